// Small device programs, one for each kind of instruction and each of its forms, for tests that compare an executed
// kernel with the interpreter. Inputs are small whole numbers, so that sums are exact in any order; where a program
// uses functions that are only approximate, `ulps` says how far results may be off.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "interpret/interpret.h"
#include "program/program.h"

namespace pipethreader::test {

struct InstructionProgram {
  std::string name;
  std::string text;
  std::vector<double> params;
  int ulps = 0;              // of the output's type
  bool wide_inputs = false;  // inputs between 1/8 and 4 instead of small whole numbers
};

std::vector<InstructionProgram> instruction_programs();

// Inputs for one of them; outputs empty.
interpret::Arguments instruction_arguments(const program::Program& program, const InstructionProgram& instruction,
                                           std::uint64_t seed);

// Equal, both NaN, or at most `ulps` units in the last place of `expected` apart.
bool agree(ScalarType type, double found, double expected, int ulps);

}  // namespace pipethreader::test
