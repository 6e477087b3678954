#include "verify/explore.h"

#include <algorithm>
#include <deque>
#include <string>
#include <unordered_set>
#include <utility>

namespace pipethreader::verify {
namespace {

struct Node {
  std::int64_t parent = -1;
  Turn turn;
};

}  // namespace

bool take(State& state, const OpenDecision& decision, bool yes) {
  if (decision.next_item) {
    yes ? void(++state.items) : void(state.items_end = true);
    return true;
  }
  const OpenPoint& point = decision.point;
  return yes ? state.zone.constrain(point.x, point.y, point.limit)
             : state.zone.constrain(point.y, point.x, -point.limit - 1);
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
    result.fault = machine.run();
    if (result.fault) {
      for (std::int64_t n = node; n > 0; n = nodes[static_cast<std::size_t>(n)].parent) {
        result.way.push_back(nodes[static_cast<std::size_t>(n)].turn);
      }
      std::reverse(result.way.begin(), result.way.end());
      return result;
    }
    const auto decision = machine.decision();
    if (!decision) continue;  // all have ended
    tidy(model, state);
    // What is forgotten may renumber nothing: the decision's variables belong to a lane that still asks.
    if (!seen.insert(encode(model, state)).second) continue;
    if (++result.states > budget) {
      result.over_budget = true;
      return result;
    }
    for (const bool yes : {true, false}) {
      State next = state;
      if (!take(next, *decision, yes)) continue;
      const int step = state.lanes[static_cast<std::size_t>(decision->lane)].step;
      nodes.push_back({node, {decision->lane, step, yes}});
      waiting.emplace_back(std::move(next), static_cast<std::int64_t>(nodes.size()) - 1);
    }
  }
  return result;
}

}  // namespace pipethreader::verify
