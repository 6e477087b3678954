// Small damages to a device program, each one thing: a wait or an arrival taken away or done twice, a ring made
// shallower, neighbours swapped, a count, a lag or a number of bytes changed, a loop that one role goes through once
// more or less often, a branch the other way round. Some do no harm; those are rightly accepted.
#pragma once

#include <string>
#include <vector>

#include "interpret/interpret.h"
#include "program/program.h"
#include "verify/verify.h"

namespace pipethreader::test {

struct Mutant {
  std::string change;  // "consumer.0.3.1: without mma_wait"
  program::Program program;
  // Unless it names another fill, which may be there as properly as the right one, or computes more or less: then what
  // comes out is another computation's result.
  bool same_result = true;
};

// Only changes of when things happen: neighbours are not swapped where the second needs what the first computes, since
// that would be another computation, whose result no proof knows.
std::vector<Mutant> mutants(const program::Program& program);

// Parameters and a launch on which some block takes the witness's way, smallest first; none when none was found.
struct Setting {
  std::vector<double> params;
  int clusters = 1;
};
std::vector<Setting> settings_for(const program::Program& program, const verify::Witness& witness, std::size_t most);

}  // namespace pipethreader::test
