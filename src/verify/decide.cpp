#include "verify/decide.h"

#include <algorithm>

#include "base/functions.h"

namespace pipethreader::verify {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

Answer Decider::answer(int lane, const Question& question, OpenPoint& point) {
  switch (question.kind) {
    case Question::Kind::constant:
      return question.value ? Answer::yes : Answer::no;
    case Question::Kind::leaf:
      return answer(lane, question.leaf, point);
    case Question::Kind::negation: {
      const Answer inner = answer(lane, question.parts[0], point);
      if (inner == Answer::open) return inner;
      return inner == Answer::yes ? Answer::no : Answer::yes;
    }
    case Question::Kind::choice: {
      const Answer condition = answer(lane, question.parts[0], point);
      if (condition == Answer::open) return condition;
      return answer(lane, question.parts[condition == Answer::yes ? 1 : 2], point);
    }
    case Question::Kind::all:
    case Question::Kind::any:
      break;
  }
  const Answer decisive = question.kind == Question::Kind::all ? Answer::no : Answer::yes;
  Answer result = decisive == Answer::no ? Answer::yes : Answer::no;
  OpenPoint unused;
  for (const Question& part : question.parts) {
    const Answer one = answer(lane, part, result == Answer::open ? unused : point);
    if (one == decisive) return decisive;
    if (one == Answer::open) result = Answer::open;
  }
  return result;
}

Answer Decider::compare(const OpenPoint& at_point, OpenPoint& point) const {
  const std::int32_t most = state_.zone.bound(at_point.x, at_point.y);
  if (most != Zone::unbounded && most <= at_point.limit) return Answer::yes;
  const std::int32_t least = state_.zone.bound(at_point.y, at_point.x);  // x - y >= -least
  if (least != Zone::unbounded && -std::int64_t{least} > at_point.limit) return Answer::no;
  point = at_point;
  return Answer::open;
}

Answer Decider::answer(int lane, const Leaf& leaf, OpenPoint& point) {
  if (const auto answered = answer(lane, leaf.parts, point)) return *answered;
  if (const auto answered = answer(lane, leaf.sum, point)) return *answered;
  return compare({0, variable(lane, leaf.atom), -1}, point);
}

// constant + sum >= 0, where what is fixed goes into the constant, and one unknown or the difference of two is left.
std::optional<Answer> Decider::answer(int lane, const Linear& sum, OpenPoint& point) {
  std::int64_t constant = sum.constant;
  std::vector<std::pair<int, std::int64_t>> open;
  for (const auto& [atom, coefficient] : sum.terms) {
    if (const auto fixed = value(lane, model_.terms.atom(atom))) {
      constant += coefficient * *fixed;
    } else {
      open.emplace_back(atom, coefficient);
    }
  }
  if (open.empty()) return constant >= 0 ? Answer::yes : Answer::no;
  if (open.size() == 1) {
    const auto [atom, coefficient] = open[0];
    const int x = variable(lane, atom);
    const bool at_most = coefficient < 0;  // x <= limit, else x >= limit
    const std::int64_t limit = at_most ? floor_div(constant, -coefficient) : -floor_div(constant, coefficient);
    // A large limit is a named unknown, so that all lanes leave their loops together.
    const auto& large = model_.large_constants;
    const auto named = std::find(large.begin(), large.end(), std::abs(constant));
    if (std::abs(coefficient) == 1 && named != large.end() && constant == sum.constant && limit > 0) {
      const int name = state_.constants[at(named - large.begin())];
      const std::int64_t rest = limit - *named;
      return at_most ? compare({x, name, rest}, point) : compare({name, x, -rest}, point);
    }
    return at_most ? compare({x, 0, limit}, point) : compare({0, x, -limit}, point);
  }
  if (open.size() != 2 || open[0].second != -open[1].second) return std::nullopt;
  const bool first_positive = open[0].second > 0;
  const int plus_variable = variable(lane, open[first_positive ? 0 : 1].first);
  const int minus_variable = variable(lane, open[first_positive ? 1 : 0].first);
  return compare({minus_variable, plus_variable, floor_div(constant, std::abs(open[0].second))}, point);
}

std::optional<Decider::Sum> Decider::value(int lane, const Value& value, OpenPoint& point) {
  if (!value.condition.empty()) {
    const Answer condition = answer(lane, value.condition[0], point);
    if (condition == Answer::open) return std::nullopt;
    return this->value(lane, value.parts[condition == Answer::yes ? 0 : 1], point);
  }
  if (value.atom < 0) return Sum{0, value.constant};
  if (const auto fixed = this->value(lane, model_.terms.atom(value.atom))) return Sum{0, *fixed + value.constant};
  return Sum{variable(lane, value.atom), value.constant};
}

std::optional<std::int64_t> Decider::value(int lane, const Linear& sum) const {
  std::int64_t result = sum.constant;
  for (const auto& [atom, coefficient] : sum.terms) {
    const auto one = value(lane, model_.terms.atom(atom));
    if (!one) return std::nullopt;
    result += coefficient * *one;
  }
  return result;
}

std::optional<std::int64_t> Decider::value(int lane, const Atom& atom) const {
  if (atom.kind == Atom::Kind::counter) {
    return state_.zone.exact(state_.lanes[at(lane)].frames[at(atom.index)].counter);
  }
  if (atom.kind == Atom::Kind::opaque && atom.function == Function::add) return value(lane, atom.args[0]);
  if (const Symbol* symbol = atom.kind == Atom::Kind::coord ? nullptr : find(lane, atom)) {
    if (const auto exact = state_.zone.exact(symbol->value)) return exact;
  }
  if (atom.kind != Atom::Kind::opaque) return std::nullopt;
  if (atom.function == Function::mod) {
    if (const auto rest = remainder(lane, atom)) return rest;
  }
  std::vector<double> args;
  for (const Linear& arg : atom.args) {
    const auto one = value(lane, arg);
    if (!one) return std::nullopt;
    args.push_back(static_cast<double>(*one));
  }
  if ((atom.function == Function::div || atom.function == Function::mod) && args[1] == 0) return std::nullopt;
  return static_cast<std::int64_t>(evaluate(atom.function, args, true));
}

std::optional<std::int64_t> Decider::remainder(int lane, const Atom& modulo) const {
  if (!modulo.args[1].is_constant()) return std::nullopt;
  const std::int64_t divisor = modulo.args[1].constant;
  if (divisor <= 0 || model_.compiled.modulus % divisor != 0) return std::nullopt;
  std::int64_t sum = modulo.args[0].constant;
  for (const auto& [id, coefficient] : modulo.args[0].terms) {
    const Atom& atom = model_.terms.atom(id);
    if (atom.kind != Atom::Kind::counter) return std::nullopt;
    const std::int64_t residue = state_.lanes[at(lane)].frames[at(atom.index)].residue;
    if (residue < 0) return std::nullopt;
    sum += coefficient * residue;
  }
  return floor_mod(sum, divisor);
}

// The zone variable of an atom; what nobody has asked for yet gets a new one, bounded by what its form says.
int Decider::variable(int lane, int id) {
  const Atom& atom = model_.terms.atom(id);
  const LaneState& self = state_.lanes[at(lane)];
  if (atom.kind == Atom::Kind::counter) return self.frames[at(atom.index)].counter;
  if (const Symbol* known = find(lane, atom)) return known->value;
  const Interval bounds = range(lane, id);
  Symbol symbol{atom.pattern, id, atom.uses_item || atom.uses_counter ? self.item : -1, state_.zone.add(), {}};
  if (bounds.low > -no_limit) state_.zone.constrain(0, symbol.value, -bounds.low);
  if (bounds.high < no_limit) state_.zone.constrain(symbol.value, 0, bounds.high);
  for (const Hole& hole : atom.holes) {
    symbol.holes.push_back(state_.zone.add_equal(self.frames[at(hole.depth)].counter, static_cast<int>(hole.offset)));
  }
  state_.symbols.push_back(symbol);
  return symbol.value;
}

const Symbol* Decider::find(int lane, const Atom& atom) const {
  const LaneState& self = state_.lanes[at(lane)];
  const std::int64_t item = atom.uses_item || atom.uses_counter ? self.item : -1;
  for (const Symbol& symbol : state_.symbols) {
    if (symbol.pattern != atom.pattern || symbol.item != item) continue;
    bool same = true;
    for (std::size_t h = 0; h < symbol.holes.size() && same; ++h) {
      const Hole& hole = atom.holes[h];
      same = state_.zone.equal(symbol.holes[h], self.frames[at(hole.depth)].counter, static_cast<int>(hole.offset));
    }
    if (same) return &symbol;
  }
  return nullptr;
}

// Of a sum that stands as one atom: also what is known of its parts by now.
Interval Decider::range(int lane, int id) const {
  Interval result = model_.terms.bounds(Linear{0, {{id, 1}}}, Scope{});
  const Atom& atom = model_.terms.atom(id);
  if (atom.kind != Atom::Kind::opaque || atom.function != Function::add) return result;
  Interval sum{0, 0};
  for (const auto& [part, coefficient] : atom.args[0].terms) {
    Interval one = model_.terms.bounds(Linear{0, {{part, 1}}}, Scope{});
    if (const Symbol* symbol = find(lane, model_.terms.atom(part))) {
      one.low = std::max(one.low, state_.zone.low(symbol->value));
      const std::int32_t high = state_.zone.bound(symbol->value, 0);
      if (high != Zone::unbounded) one.high = std::min<std::int64_t>(one.high, high);
    }
    if (coefficient < 0) std::swap(one.low, one.high);
    sum.low = std::abs(one.low) >= no_limit || sum.low <= -no_limit ? -no_limit : sum.low + coefficient * one.low;
    sum.high = std::abs(one.high) >= no_limit || sum.high >= no_limit ? no_limit : sum.high + coefficient * one.high;
  }
  return {std::max(result.low, sum.low), std::min(result.high, sum.high)};
}

// --- sums and their parts ----------------------------------------------------------------------------------------

namespace {

bool open_below(std::int64_t low) { return low <= -no_limit; }
bool open_above(std::int64_t high) { return high >= no_limit; }

Interval times(Interval one, std::int64_t factor) {
  if (factor < 0) std::swap(one.low, one.high);
  const auto by = [&](std::int64_t limit) {
    return std::abs(limit) < no_limit ? limit * factor : (limit < 0) == (factor > 0) ? -no_limit : no_limit;
  };
  return {by(one.low), by(one.high)};
}

Interval plus(const Interval& a, const Interval& b) {
  return {open_below(a.low) || open_below(b.low) ? -no_limit : a.low + b.low,
          open_above(a.high) || open_above(b.high) ? no_limit : a.high + b.high};
}

bool is_whole_sum(const Atom& atom) { return atom.kind == Atom::Kind::opaque && atom.function == Function::add; }

// Or one that is divided by a number.
bool is_sum(const Atom& atom) {
  const bool divided = atom.kind == Atom::Kind::opaque && atom.function == Function::div &&
                       atom.args[1].is_constant() && atom.args[1].constant > 0;
  return is_whole_sum(atom) || divided;
}

// A sum that stands as one unknown, of parts that do not depend on counters.
class Sum {
 public:
  Sum(const Model& model, State& state, const Symbol& symbol) : model_(model), state_(state), symbol_(symbol) {}

  bool agree() {
    const Atom& own = model_.terms.atom(symbol_.atom);
    const std::int64_t divisor = is_whole_sum(own) ? 1 : own.args[1].constant;
    const Linear& sum = own.args[0];
    for (const auto& [atom, coefficient] : sum.terms) add(atom, coefficient);
    Interval whole{sum.constant, sum.constant};
    for (const Part& part : parts_) whole = plus(whole, times(part.known, part.coefficient));
    if (!narrow(symbol_.value, 0, floors(whole, divisor))) return false;
    const Interval total = plus(times(of(symbol_.value, 0), divisor), {0, divisor - 1});
    for (const Part& part : parts_) {
      if (part.x < 0) continue;
      Interval rest = plus(total, {-sum.constant, -sum.constant});
      for (const Part& other : parts_) {
        if (&other != &part) rest = plus(rest, times(other.known, -other.coefficient));
      }
      if (!narrow(part.x, part.y, quotient(rest, part.coefficient))) return false;
    }
    return !is_whole_sum(own) || negation_agrees();
  }

 private:
  const Model& model_;
  State& state_;
  const Symbol& symbol_;

  // coefficient * (x - y), of zone variables; two parts with opposite coefficients are one, since their difference
  // may be known where they are not.
  struct Part {
    std::int64_t coefficient = 1;
    int x = -1;  // -1: only bounds are known
    int y = 0;
    Interval known;
  };
  std::vector<Part> parts_;

  void add(int atom, std::int64_t coefficient) {
    const Symbol* symbol = find(atom);
    Part part{coefficient, symbol == nullptr ? -1 : symbol->value, 0, known(atom)};
    const auto opposite = std::find_if(parts_.begin(), parts_.end(), [&](const Part& other) {
      return other.coefficient == -coefficient && other.x >= 0 && other.y == 0;
    });
    if (symbol == nullptr || opposite == parts_.end()) {
      parts_.push_back(part);
      return;
    }
    opposite->y = part.x;
    const Interval apart = plus(opposite->known, times(part.known, -1));
    const Interval together = of(opposite->x, opposite->y);
    opposite->known = {std::max(apart.low, together.low), std::min(apart.high, together.high)};
  }

  // The same sum with all signs turned is another unknown: which one is asked for depends on the counter beside it.
  bool negation_agrees() {
    const Linear negation = times(model_.terms.atom(symbol_.atom).args[0], -1);
    for (const Symbol& other : state_.symbols) {
      const Atom& atom = model_.terms.atom(other.atom);
      if (!is_whole_sum(atom) || other.item != symbol_.item || !(atom.args[0] == negation)) continue;
      if (!narrow(other.value, 0, times(of(symbol_.value, 0), -1))) return false;
    }
    return true;
  }

  [[nodiscard]] const Symbol* find(int id) const {
    const Atom& atom = model_.terms.atom(id);
    const std::int64_t item = atom.uses_item ? symbol_.item : -1;
    for (const Symbol& symbol : state_.symbols) {
      if (symbol.pattern == atom.pattern && symbol.item == item && symbol.holes.empty()) return &symbol;
    }
    return nullptr;
  }

  [[nodiscard]] Interval known(int id) const {
    Interval result = model_.terms.bounds(Linear{0, {{id, 1}}}, Scope{});
    if (const Symbol* symbol = find(id)) {
      const Interval found = of(symbol->value, 0);
      result = {std::max(result.low, found.low), std::min(result.high, found.high)};
    }
    return result;
  }

  [[nodiscard]] Interval of(int x, int y) const {
    const std::int32_t low = state_.zone.bound(y, x);
    const std::int32_t high = state_.zone.bound(x, y);
    return {low == Zone::unbounded ? -no_limit : -std::int64_t{low}, high == Zone::unbounded ? no_limit : high};
  }

  static Interval floors(const Interval& interval, std::int64_t divisor) {
    return {open_below(interval.low) ? -no_limit : floor_div(interval.low, divisor),
            open_above(interval.high) ? no_limit : floor_div(interval.high, divisor)};
  }

  // The integers n with factor * n in the interval.
  static Interval quotient(Interval interval, std::int64_t factor) {
    if (factor < 0) interval = times(interval, -1);
    const std::int64_t by = std::abs(factor);
    return {open_below(interval.low) ? -no_limit : -floor_div(-interval.low, by),
            open_above(interval.high) ? no_limit : floor_div(interval.high, by)};
  }

  bool narrow(int x, int y, const Interval& to) {  // x - y
    constexpr std::int64_t large = INT32_MAX / 4;
    if (to.low > -large && !state_.zone.constrain(y, x, -to.low)) return false;
    return to.high >= large || state_.zone.constrain(x, y, to.high);
  }
};

}  // namespace

bool sums_agree(const Model& model, State& state) {
  constexpr int rounds = 3;  // one narrowing may allow the next; stopping early loses nothing but precision
  for (int round = 0; round < rounds; ++round) {
    for (const Symbol& symbol : state.symbols) {
      const Atom& atom = model.terms.atom(symbol.atom);
      if (is_sum(atom) && !atom.uses_counter && !Sum(model, state, symbol).agree()) return false;
    }
  }
  return true;
}

}  // namespace pipethreader::verify
