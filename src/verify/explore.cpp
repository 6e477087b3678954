#include "verify/explore.h"

#include <algorithm>
#include <deque>
#include <string>
#include <unordered_set>
#include <utility>

namespace pipethreader::verify {
namespace {

// Long loops of constant length ask nothing; their states are compared every so many steps.
constexpr std::int64_t steps_between_states = 1000;

struct Node {
  std::int64_t parent = -1;
  Turn turn;
};

}  // namespace

bool take(const Model& model, State& state, const OpenDecision& decision, bool yes) {
  if (decision.next_item) {
    yes ? void(++state.items) : void(state.items_end = true);
    return true;
  }
  const OpenPoint& point = decision.point;
  const bool possible = yes ? state.zone.constrain(point.x, point.y, point.limit)
                            : state.zone.constrain(point.y, point.x, -point.limit - 1);
  return possible && sums_agree(model, state);
}

Exploration explore(const Model& model, std::int64_t budget) {
  Exploration result;
  std::vector<Node> nodes{Node{}};
  std::unordered_set<std::string> seen;
  std::deque<std::pair<State, std::int64_t>> waiting;
  waiting.emplace_back(State(model), 0);
  while (!waiting.empty()) {
    auto [state, node] = std::move(waiting.front());
    waiting.pop_front();
    Machine machine(model, state);
    result.fault = machine.run(steps_between_states);
    if (result.fault) {
      for (std::int64_t n = node; n > 0; n = nodes[static_cast<std::size_t>(n)].parent) {
        result.way.push_back(nodes[static_cast<std::size_t>(n)].turn);
      }
      std::reverse(result.way.begin(), result.way.end());
      return result;
    }
    const auto decision = machine.paused() ? std::nullopt : machine.decision();
    if (!machine.paused() && !decision) continue;  // all have ended
    tidy(model, state);                            // the decision's variables stay: a lane still asks for them
    if (!seen.insert(encode(model, state)).second) continue;
    if (++result.states > budget) {
      result.over_budget = true;
      return result;
    }
    if (!decision) {
      waiting.emplace_back(std::move(state), node);
      continue;
    }
    for (const bool yes : {true, false}) {
      State next = state;
      if (!take(model, next, *decision, yes)) continue;
      const int step = state.lanes[static_cast<std::size_t>(decision->lane)].step;
      nodes.push_back({node, {decision->lane, step, yes}});
      waiting.emplace_back(std::move(next), static_cast<std::int64_t>(nodes.size()) - 1);
    }
  }
  return result;
}

}  // namespace pipethreader::verify
