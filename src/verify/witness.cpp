#include "verify/witness.h"

#include <algorithm>

namespace pipethreader::verify {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

struct Walk {
  explicit Walk(const Model& model) : state(model), answers(at(model.lanes)) {}
  State state;
  Answers answers;
  std::vector<std::int64_t> decisions;
  std::optional<Fault> fault;
};

// Where the exact way has fewer open decisions than the forgetful one, turns are passed over; behind the last turn
// every loop ends.
Walk walk(const Model& model, const std::vector<Turn>& way) {
  constexpr int most_decisions = 2048;
  Walk walk(model);
  auto turn = way.begin();
  for (int i = 0; i < most_decisions; ++i) {
    Machine machine(model, walk.state, &walk.answers);
    walk.fault = machine.run();
    const auto decision = machine.decision();
    if (walk.fault || !decision) break;
    const int step = walk.state.lanes[at(decision->lane)].step;
    const auto same =
        std::find_if(turn, way.end(), [&](const Turn& t) { return t.lane == decision->lane && t.step == step; });
    bool yes = same != way.end() && same->yes;
    if (same != way.end()) turn = std::next(same);
    State before = walk.state;
    if (!take(model, walk.state, *decision, yes)) {
      walk.state = std::move(before);
      yes = !yes;
      static_cast<void>(take(model, walk.state, *decision, yes));
    }
    walk.decisions.push_back(yes ? 1 : 0);
  }
  return walk;
}

// A value that agrees with everything decided: the least of each variable.
std::int64_t value_of(const Zone& zone, int variable) {
  if (const std::int64_t low = zone.low(variable); low > INT32_MIN) return low;
  const std::int32_t high = zone.bound(variable, 0);
  return high == Zone::unbounded ? 0 : std::min<std::int32_t>(0, high);
}

struct Quantity {
  int atom = -1;
  std::int64_t item = -1;
  int variable = 0;
  std::vector<std::int64_t> counters;  // by loop depth
};

// What the way has decided about all values together.
struct Agreement {
  std::shared_ptr<const Terms> terms;
  Zone zone;
  std::vector<Quantity> quantities;
  std::int64_t items = 0;

  bool operator()(const std::vector<double>& params, std::span<const std::int64_t> block_items) const {
    if (static_cast<std::int64_t>(block_items.size()) < items) return false;
    std::vector<std::pair<int, std::int64_t>> concrete{{0, 0}};
    for (const Quantity& value : quantities) {
      if (value.item >= static_cast<std::int64_t>(block_items.size())) return false;
      const std::int64_t item = value.item < 0 ? 0 : block_items[at(value.item)];
      concrete.emplace_back(value.variable, terms->value(Linear{0, {{value.atom, 1}}}, params, item, value.counters));
    }
    for (const auto& [x, x_value] : concrete) {
      for (const auto& [y, y_value] : concrete) {
        const std::int32_t most = zone.bound(x, y);
        if (x != y && most != Zone::unbounded && x_value - y_value > most) return false;
      }
    }
    return true;
  }
};

}  // namespace

Witness make_witness(const Model& model, std::shared_ptr<const Terms> terms, const Exploration& found) {
  Walk exact = walk(model, found.way);
  Witness witness;
  witness.fault = exact.fault ? exact.fault->kind : Witness::Fault::none;
  witness.explanation = exact.fault ? exact.fault->text : found.fault->text;
  witness.decisions = std::move(exact.decisions);
  witness.decisions_of_lane = std::move(exact.answers);
  witness.items = exact.state.items;
  const Zone& zone = exact.state.zone;
  Agreement agreement{std::move(terms), zone, {}, witness.items};
  for (const Symbol& symbol : exact.state.symbols) {
    const Atom& atom = agreement.terms->atom(symbol.atom);
    Quantity value{symbol.atom, symbol.item, symbol.value, {}};
    std::string text = agreement.terms->pattern_text(symbol.pattern);
    for (std::size_t h = 0; h < symbol.holes.size(); ++h) {
      const Hole& hole = atom.holes[h];
      value.counters.resize(std::max(value.counters.size(), at(hole.depth) + 1), 0);
      const std::int64_t at_hole = value_of(zone, symbol.holes[h]);
      value.counters[at(hole.depth)] = at_hole - hole.offset;
      text += fmt::format("{} #{} = {}", h == 0 ? " at" : ",", h, at_hole);
    }
    witness.counts.push_back({text, symbol.item, value_of(zone, symbol.value)});
    agreement.quantities.push_back(std::move(value));
  }
  witness.agrees = std::move(agreement);
  return witness;
}

}  // namespace pipethreader::verify
