// Proof that a device program is free of races, of deadlocks, and reads what it should, at every trip count. Only
// verify() can make a VerifiedProgram, and the emitters accept nothing else.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/diagnostic.h"
#include "program/program.h"

namespace pipethreader::verify {

class VerifiedProgram {
 public:
  [[nodiscard]] const program::Program& program() const { return program_; }
  [[nodiscard]] const std::string& proof() const { return proof_; }  // what was shown, one line a property

 private:
  friend struct Prover;
  VerifiedProgram(program::Program program, std::string proof) : program_(std::move(program)), proof_(std::move(proof)) {}
  program::Program program_;
  std::string proof_;
};

// How the decisions that lanes share (trip counts, conditions, whether there is a next work item) fell on the way to a
// fault; the interpreter replays it.
struct Witness {
  enum class Fault : std::uint8_t { none, race, deadlock, wrong_value, protocol };
  Fault fault = Fault::none;
  std::vector<std::int64_t> decisions;  // in program order of the shared decisions: 1 enter / continue, 0 leave / else
  std::string explanation;              // which instructions of which roles, and who waits for whom
};

struct Options {
  std::int64_t state_budget = 200'000;  // states explored; over it the program is rejected
};

struct Rejection {
  Error error;
  Witness witness;
};

[[nodiscard]] tl::expected<VerifiedProgram, Rejection> verify(program::Program program, const Options& options = {});

}  // namespace pipethreader::verify
