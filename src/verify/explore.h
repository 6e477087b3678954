// Goes through all states that any decisions lead to, each once, until nothing new appears or a fault does.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "verify/machine.h"

namespace pipethreader::verify {

// A decision on the way from the start: which lane stood where, and the answer.
struct Turn {
  int lane = 0;
  int step = 0;
  bool yes = false;
};

struct Exploration {
  std::int64_t states = 0;
  bool over_budget = false;
  std::optional<Fault> fault;
  std::vector<Turn> way;  // to the fault
};

[[nodiscard]] Exploration explore(const Model& model, std::int64_t budget);

// Takes the answer in the state; false when that contradicts what is known.
[[nodiscard]] bool take(const Model& model, State& state, const OpenDecision& decision, bool yes);

}  // namespace pipethreader::verify
