// Proof that a device program is free of races, of deadlocks, and reads what it should, at every trip count. Only
// verify() can make a VerifiedProgram, and the emitters accept nothing else. How it works: docs/verification.md.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
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
  VerifiedProgram(program::Program program, std::string proof)
      : program_(std::move(program)), proof_(std::move(proof)) {}
  program::Program program_;
  std::string proof_;
};

// How the decisions that lanes share (trip counts, conditions, whether there is a next work item) fell on the way to a
// fault; the interpreter replays it.
struct Witness {
  enum class Fault : std::uint8_t { none, race, deadlock, wrong_value, protocol };

  // The value that an expression has in a work item (counted from the block's first; -1: in all).
  struct Count {
    std::string expression;
    std::int64_t item = -1;
    std::int64_t value = 0;
  };

  Fault fault = Fault::none;
  std::vector<std::int64_t> decisions;  // in the order they were taken: 1 enter / continue, 0 leave / else
  // For each role instance (block by block, role by role) its own decisions that constants do not decide, in its
  // program order.
  std::vector<std::vector<std::int64_t>> decisions_of_lane;
  std::vector<Count> counts;
  std::int64_t items = 0;   // work items the block does, at least
  std::string explanation;  // which instructions of which roles, and who waits for whom

  // Whether a block that does `block_items` on these parameters takes the witness's way. Empty when no fault was found.
  std::function<bool(const std::vector<double>& params, std::span<const std::int64_t> block_items)> agrees;
};

[[nodiscard]] std::string_view name(Witness::Fault fault);

struct Options {
  std::int64_t state_budget = 200'000;        // states explored; over it the program is rejected
  std::int64_t shared_bytes_limit = 232'448;  // of an execution unit, for all its blocks together
  std::int64_t registers_limit = 65'536;
};

struct Rejection {
  Error error;
  Witness witness;
};

[[nodiscard]] tl::expected<VerifiedProgram, Rejection> verify(program::Program program, const Options& options = {});

}  // namespace pipethreader::verify
