#include "verify/terms.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/functions.h"

namespace pipethreader::verify {
namespace {

using program::Expr;

std::int64_t evaluate_integers(Function function, const std::vector<std::int64_t>& args) {
  std::vector<double> values(args.begin(), args.end());
  return static_cast<std::int64_t>(evaluate(function, values, true));
}

std::int64_t limited(std::int64_t value) { return std::clamp(value, -no_limit, no_limit); }

}  // namespace

std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}
std::int64_t floor_mod(std::int64_t a, std::int64_t b) { return a - floor_div(a, b) * b; }

Linear plus(const Linear& a, const Linear& b, std::int64_t factor) {
  Linear sum{a.constant + factor * b.constant, {}};
  auto left = a.terms.begin();
  auto right = b.terms.begin();
  while (left != a.terms.end() || right != b.terms.end()) {
    const bool take_left = right == b.terms.end() || (left != a.terms.end() && left->first <= right->first);
    const bool take_right = left == a.terms.end() || (right != b.terms.end() && right->first <= left->first);
    const int atom = take_left ? left->first : right->first;
    std::int64_t coefficient = 0;
    if (take_left) coefficient += (left++)->second;
    if (take_right) coefficient += factor * (right++)->second;
    if (coefficient != 0) sum.terms.emplace_back(atom, coefficient);
  }
  return sum;
}

Linear times(const Linear& a, std::int64_t factor) { return plus(Linear{}, a, factor); }

std::optional<Linear> Terms::build(program::ExprId id, const Scope& scope) {
  const Expr& expr = program_[id];
  switch (expr.kind) {
    case Expr::Kind::constant:
      return Linear{static_cast<std::int64_t>(expr.number), {}};
    case Expr::Kind::param:
      return atom_sum(Atom{Atom::Kind::param, expr.param.index});
    case Expr::Kind::var: {
      const auto found = scope.vars.find(expr.var.index);
      if (found == scope.vars.end()) return std::nullopt;
      return found->second;
    }
    case Expr::Kind::instance:
      return Linear{scope.instance, {}};
    case Expr::Kind::cluster_rank:
      return Linear{scope.cluster_rank, {}};
    case Expr::Kind::coord:
      return atom_sum(Atom{Atom::Kind::coord, expr.dim});
    case Expr::Kind::fragment:
      return std::nullopt;
    case Expr::Kind::convert:
      if (!is_integer(expr.type) && expr.type != ScalarType::boolean) return std::nullopt;
      return build(expr.args[0], scope);
    case Expr::Kind::call:
      break;
  }
  std::vector<Linear> args;
  for (const auto arg : expr.args) {
    auto built = build(arg, scope);
    if (!built) return std::nullopt;
    args.push_back(std::move(*built));
  }
  return call(expr.function, std::move(args));
}

Linear Terms::call(Function function, std::vector<Linear> args) {
  const bool constant = std::all_of(args.begin(), args.end(), [](const Linear& arg) { return arg.is_constant(); });
  if (constant && !((function == Function::div || function == Function::mod) && args[1].constant == 0)) {
    std::vector<std::int64_t> values;
    for (const auto& arg : args) values.push_back(arg.constant);
    return Linear{evaluate_integers(function, values), {}};
  }
  switch (function) {
    case Function::neg:
      return times(args[0], -1);
    case Function::add:
      return plus(args[0], args[1]);
    case Function::sub:
      return plus(args[0], args[1], -1);
    case Function::mul:
      if (args[0].is_constant()) return times(args[1], args[0].constant);
      if (args[1].is_constant()) return times(args[0], args[1].constant);
      break;
    case Function::div:
      if (args[1].is_constant() && args[1].constant > 0) return floor_division(args[0], args[1].constant);
      break;
    case Function::mod:
      if (args[1].is_constant() && args[1].constant > 0) return modulo(args[0], args[1].constant);
      break;
    case Function::select:
      if (args[0].is_constant()) return args[0].constant != 0 ? args[1] : args[2];
      if (args[1] == args[2]) return args[1];
      break;
    case Function::min:
    case Function::max: {
      const Linear difference = plus(args[0], args[1], -1);
      if (difference.is_constant()) return (difference.constant < 0) == (function == Function::min) ? args[0] : args[1];
      break;
    }
    default:
      break;
  }
  Atom atom;
  atom.kind = Atom::Kind::opaque;
  atom.function = function;
  atom.args = std::move(args);
  return atom_sum(std::move(atom));
}

// floor(sum / divisor): what is divisible leaves the function.
Linear Terms::floor_division(const Linear& a, std::int64_t divisor) {
  if (divisor == 1) return a;
  Linear whole;
  Linear rest;
  for (const auto& [atom, coefficient] : a.terms) {
    const bool divisible = coefficient % divisor == 0;
    (divisible ? whole : rest).terms.emplace_back(atom, divisible ? coefficient / divisor : coefficient);
  }
  whole.constant = floor_div(a.constant, divisor);
  rest.constant = floor_mod(a.constant, divisor);
  if (rest.is_constant()) return whole;
  Atom atom;
  atom.kind = Atom::Kind::opaque;
  atom.function = Function::div;
  atom.args = {rest, Linear{divisor, {}}};
  return plus(whole, atom_sum(std::move(atom)));
}

Linear Terms::modulo(const Linear& a, std::int64_t divisor) {
  Linear rest{floor_mod(a.constant, divisor), {}};
  for (const auto& [atom, coefficient] : a.terms) {
    if (const std::int64_t left = floor_mod(coefficient, divisor); left != 0) rest.terms.emplace_back(atom, left);
  }
  if (rest.is_constant()) return rest;
  Atom atom;
  atom.kind = Atom::Kind::opaque;
  atom.function = Function::mod;
  atom.args = {rest, Linear{divisor, {}}};
  return atom_sum(std::move(atom));
}

Linear Terms::counter(int depth) { return atom_sum(Atom{Atom::Kind::counter, depth}); }
Linear Terms::item() { return atom_sum(Atom{Atom::Kind::item, 0}); }

Linear Terms::atom_sum(Atom atom) {
  std::string key = fmt::format("{}:{}:{}", static_cast<int>(atom.kind), atom.index, static_cast<int>(atom.function));
  for (const Linear& arg : atom.args) {
    key += fmt::format("({}", arg.constant);
    for (const auto& [id, coefficient] : arg.terms) key += fmt::format(" {}*{}", coefficient, id);
    key += ")";
  }
  const auto [found, fresh] = interned_.try_emplace(key, static_cast<int>(atoms_.size()));
  if (fresh) {
    find_pattern(atom);
    atoms_.push_back(std::move(atom));
  }
  return Linear{0, {{found->second, 1}}};
}

void Terms::find_pattern(Atom& atom) {
  atom.uses_item = atom.kind == Atom::Kind::item;
  atom.uses_counter = atom.kind == Atom::Kind::counter;
  for (const Linear& arg : atom.args) {
    for (const auto& [id, coefficient] : arg.terms) {
      const Atom& inner = atoms_[static_cast<std::size_t>(id)];
      atom.uses_item = atom.uses_item || inner.uses_item;
      atom.uses_counter = atom.uses_counter || inner.uses_counter;
    }
  }
  if (atom.kind == Atom::Kind::counter || atom.kind == Atom::Kind::coord) return;
  const std::string key = pattern_key(atom, atom.holes, false);
  const auto [found, fresh] = patterns_.try_emplace(key, static_cast<int>(patterns_.size()));
  if (fresh) {
    std::vector<Hole> again;
    pattern_text_.push_back(pattern_key(atom, again, true));
  }
  atom.pattern = found->second;
}

std::string Terms::pattern_key(const Atom& atom, std::vector<Hole>& holes, bool readable) const {
  switch (atom.kind) {
    case Atom::Kind::param:
      return readable ? program_.params[static_cast<std::size_t>(atom.index)].name : fmt::format("p{}", atom.index);
    case Atom::Kind::item:
      return "item";
    case Atom::Kind::coord:
      return fmt::format("c{}", atom.index);
    case Atom::Kind::counter:
    case Atom::Kind::opaque:
      break;
  }
  std::vector<std::string> args;
  for (const Linear& arg : atom.args) args.push_back(pattern_key(arg, holes, readable));
  const FunctionInfo& function = info(atom.function);
  if (readable && atom.function == Function::add) return args[0];
  if (readable && !function.symbol.empty() && args.size() == 2) {
    const bool sum = args[0].find(' ') != std::string::npos && args[0].front() != '(';
    return fmt::format("({} {} {})", sum ? "(" + args[0] + ")" : args[0], function.symbol, args[1]);
  }
  return fmt::format("{}({})", function.name, fmt::join(args, ", "));
}

// Counters print as #0, #1, ... in order of appearance, moved by whole multiples of their coefficient so that the
// constant is small: what depends on `counter + 1` in a peeled loop is the same function of another value.
std::string Terms::pattern_key(const Linear& sum, std::vector<Hole>& holes, bool readable) const {
  std::int64_t constant = sum.constant;
  std::string text;
  const auto append = [&](std::int64_t coefficient, const std::string& what) {
    if (!text.empty())
      text += coefficient < 0 ? " - " : " + ";
    else if (coefficient < 0)
      text += "-";
    if (std::abs(coefficient) != 1) text += fmt::format("{} * ", std::abs(coefficient));
    text += what;
  };
  for (const auto& [id, coefficient] : sum.terms) {
    const Atom& atom = this->atom(id);
    if (atom.kind != Atom::Kind::counter) {
      append(coefficient, pattern_key(atom, holes, readable));
      continue;
    }
    auto hole = std::find_if(holes.begin(), holes.end(), [&](const Hole& h) { return h.depth == atom.index; });
    if (hole == holes.end()) hole = holes.insert(hole, Hole{atom.index, floor_div(constant, coefficient)});
    constant -= coefficient * hole->offset;
    append(coefficient, fmt::format("#{}", hole - holes.begin()));
  }
  if (constant != 0 || text.empty()) {
    if (!text.empty()) text += constant < 0 ? " - " : " + ";
    text += fmt::format("{}", text.empty() ? constant : std::abs(constant));
  }
  return text;
}

std::string Terms::text(const Linear& sum) const {
  std::vector<Hole> holes;
  return pattern_key(sum, holes, true);
}

// --- questions ---------------------------------------------------------------------------------------------------

Question Terms::question(const Linear& truth) {
  if (truth.is_constant()) return {Question::Kind::constant, truth.constant != 0};
  if (truth.constant == 0 && truth.terms.size() == 1) {
    const Atom atom = this->atom(truth.terms[0].first);
    const auto difference = [&](int a, int b, std::int64_t offset) {
      Linear sum = plus(atom.args[static_cast<std::size_t>(a)], atom.args[static_cast<std::size_t>(b)], -1);
      sum.constant += offset;
      return at_least_zero(sum);
    };
    if (atom.kind == Atom::Kind::opaque) {
      switch (atom.function) {
        case Function::lt:
          return difference(1, 0, -1);
        case Function::le:
          return difference(1, 0, 0);
        case Function::gt:
          return difference(0, 1, -1);
        case Function::ge:
          return difference(0, 1, 0);
        case Function::eq:
          return {Question::Kind::all, true, {}, {difference(0, 1, 0), difference(1, 0, 0)}};
        case Function::ne:
          return {Question::Kind::any, true, {}, {difference(0, 1, -1), difference(1, 0, -1)}};
        case Function::logical_and:
          return {Question::Kind::all, true, {}, {question(atom.args[0]), question(atom.args[1])}};
        case Function::logical_or:
          return {Question::Kind::any, true, {}, {question(atom.args[0]), question(atom.args[1])}};
        case Function::logical_not:
          return {Question::Kind::negation, true, {}, {question(atom.args[0])}};
        default:
          break;
      }
    }
  }
  Linear below = times(truth, -1);
  Linear above = truth;
  below.constant -= 1;
  above.constant -= 1;
  return {Question::Kind::any, true, {}, {at_least_zero(above), at_least_zero(below)}};
}

// min, max and select leave the sum: each is a choice between two sums.
bool Terms::split(const Linear& sum, Question& condition, Linear& yes, Linear& no) {
  for (const auto& [id, coefficient] : sum.terms) {
    const Atom atom = this->atom(id);
    if (atom.kind != Atom::Kind::opaque) continue;
    const Linear rest = plus(sum, Linear{0, {{id, coefficient}}}, -1);
    const auto with = [&, times = coefficient](std::size_t arg) { return plus(rest, atom.args[arg], times); };
    if (atom.function == Function::min || atom.function == Function::max) {
      condition = at_least_zero(plus(atom.args[1], atom.args[0], -1));  // the first is the smaller one
      const std::size_t smaller = atom.function == Function::min ? 0 : 1;
      yes = with(smaller);
      no = with(1 - smaller);
      return true;
    }
    if (atom.function == Function::select) {
      condition = question(atom.args[0]);
      yes = with(1);
      no = with(2);
      return true;
    }
  }
  return false;
}

Question Terms::at_least_zero(const Linear& sum) {
  Question condition;
  Linear yes, no;
  if (split(sum, condition, yes, no)) {
    return {Question::Kind::choice, true, {}, {condition, at_least_zero(yes), at_least_zero(no)}};
  }
  const Leaf leaf = reduced(sum);
  if (leaf.sum.is_constant()) return {Question::Kind::constant, leaf.sum.constant >= 0};
  return {Question::Kind::leaf, true, leaf};
}

Value Terms::value(const Linear& sum) {
  Question condition;
  Linear yes, no;
  if (split(sum, condition, yes, no)) return {-1, 0, {condition}, {value(yes), value(no)}};
  Linear rest = sum;
  rest.constant = 0;
  if (rest.is_constant()) return {-1, sum.constant};
  const bool single = rest.terms.size() == 1 && rest.terms[0].second == 1;
  return {single ? rest.terms[0].first : as_one_atom(rest).terms[0].first, sum.constant};
}

// Divides by what the coefficients share, or by the largest coefficient of a counter with the rest rounded down, so
// that counters stand alone: 100 * k <= n is k <= floor(n / 100).
Leaf Terms::reduced(Linear sum) {
  std::int64_t shared = 0;
  std::int64_t of_counters = 0;
  bool rest = false;
  for (const auto& [id, coefficient] : sum.terms) {
    shared = std::gcd(shared, coefficient);
    if (atom(id).kind == Atom::Kind::counter) {
      of_counters = std::gcd(of_counters, coefficient);
    } else {
      rest = true;
    }
  }
  if (shared > 1) {
    sum = floor_division(sum, shared);
  } else if (of_counters > 1 && rest) {
    sum = floor_division(sum, of_counters);
  }
  Leaf leaf{joined(sum), sum, -1};
  const auto& terms = leaf.sum.terms;
  if (terms.size() > 2 || (terms.size() == 2 && terms[0].second != -terms[1].second)) {
    Atom whole;
    whole.kind = Atom::Kind::opaque;
    whole.function = Function::ge;
    whole.args = {leaf.sum, Linear{}};
    leaf.atom = atom_sum(std::move(whole)).terms[0].first;
  }
  return leaf;
}

Linear Terms::as_one_atom(const Linear& sum) {
  Atom whole;
  whole.kind = Atom::Kind::opaque;
  whole.function = Function::add;
  whole.args = {sum, Linear{}};
  return atom_sum(std::move(whole));
}

// Multiples become atoms of their own, and so does all that is no counter when it is too much, or has the counter's
// sign: the difference of two atoms is left.
Linear Terms::joined(const Linear& sum) {
  Linear result{sum.constant, {}};
  Linear others;
  std::size_t counters = 0;
  std::int64_t sign_of_counters = 0;
  for (const auto& term : sum.terms) {
    if (atom(term.first).kind == Atom::Kind::counter) {
      result.terms.push_back(term);
      sign_of_counters = term.second < 0 ? -1 : 1;
      ++counters;
    } else {
      others.terms.push_back(term);
    }
  }
  if (others.terms.empty()) return sum;
  const auto unit = [](std::int64_t coefficient) { return std::abs(coefficient) == 1; };
  const auto sign_of = [](std::int64_t coefficient) { return coefficient < 0 ? -1 : 1; };
  if (counters == 0 && others.terms.size() == 2 && sign_of(others.terms[0].second) != sign_of(others.terms[1].second)) {
    for (const auto& [id, coefficient] : others.terms) {
      const Linear one{0, {{id, std::abs(coefficient)}}};
      result = plus(result, unit(coefficient) ? one : as_one_atom(one), sign_of(coefficient));
    }
    return result;
  }
  const bool alone = others.terms.size() == 1 && unit(others.terms[0].second);
  if (alone && (counters == 0 || others.terms[0].second != sign_of_counters)) return sum;
  const std::int64_t sign = counters > 0 ? -sign_of_counters : sign_of(others.terms[0].second);
  return plus(result, as_one_atom(times(others, sign)), sign);
}

// --- values ------------------------------------------------------------------------------------------------------

Interval Terms::bounds(const Linear& sum, const Scope& scope) const {
  Interval result{sum.constant, sum.constant};
  for (const auto& [id, coefficient] : sum.terms) {
    Interval one = bounds(atom(id), scope);
    if (coefficient < 0) std::swap(one.low, one.high);
    const auto add = [&, times = coefficient](std::int64_t& to, std::int64_t limit) {
      if (std::abs(limit) >= no_limit) {
        to = (limit < 0) == (times > 0) ? -no_limit : no_limit;
      } else if (std::abs(to) < no_limit) {
        to = limited(to + times * limit);
      }
    };
    add(result.low, one.low);
    add(result.high, one.high);
  }
  return result;
}

Interval Terms::bounds(const Atom& atom, const Scope& scope) const {
  const auto at = [](std::size_t i) { return i; };
  switch (atom.kind) {
    case Atom::Kind::param:
      return {program_.params[at(static_cast<std::size_t>(atom.index))].dim ? 0 : -no_limit, no_limit};
    case Atom::Kind::item:
      return {0, no_limit};
    case Atom::Kind::counter: {
      const auto depth = static_cast<std::size_t>(atom.index);
      return depth < scope.counters.size() ? scope.counters[depth] : Interval{0, no_limit};
    }
    case Atom::Kind::coord: {
      const auto dim = static_cast<std::size_t>(atom.index);
      return {0, dim < scope.coords.size() ? scope.coords[dim] - 1 : no_limit};
    }
    case Atom::Kind::opaque:
      break;
  }
  std::vector<Interval> args;
  for (const Linear& arg : atom.args) args.push_back(bounds(arg, scope));
  switch (atom.function) {
    case Function::div:
      if (atom.args[1].is_constant() && atom.args[1].constant > 0) {
        const std::int64_t d = atom.args[1].constant;
        return {args[0].low <= -no_limit ? -no_limit : floor_div(args[0].low, d),
                args[0].high >= no_limit ? no_limit : floor_div(args[0].high, d)};
      }
      if (args[0].low >= 0 && args[1].low >= 0) return {0, args[0].high};
      break;
    case Function::mod:
      if (args[1].low >= 1) return {0, args[1].high >= no_limit ? no_limit : args[1].high - 1};
      if (args[0].low >= 0 && args[1].low >= 0) return {0, args[0].high};  // nothing is divided by 0
      break;
    case Function::mul:
      if (args[0].low >= 0 && args[1].low >= 0) return {0, no_limit};
      break;
    case Function::min:
      return {std::min(args[0].low, args[1].low), std::min(args[0].high, args[1].high)};
    case Function::max:
      return {std::max(args[0].low, args[1].low), std::max(args[0].high, args[1].high)};
    case Function::add:
      return args[0];
    case Function::select:
      return {std::min(args[1].low, args[2].low), std::max(args[1].high, args[2].high)};
    case Function::abs:
      return {0, no_limit};
    default:
      if (info(atom.function).gives_boolean) return {0, 1};
  }
  return {-no_limit, no_limit};
}

std::int64_t Terms::value(const Linear& sum, const std::vector<double>& params, std::int64_t item,
                          const std::vector<std::int64_t>& counters) const {
  std::int64_t result = sum.constant;
  for (const auto& [id, coefficient] : sum.terms) {
    const Atom& a = atom(id);
    std::int64_t one = 0;
    switch (a.kind) {
      case Atom::Kind::param:
        one = static_cast<std::int64_t>(params[static_cast<std::size_t>(a.index)]);
        break;
      case Atom::Kind::item:
        one = item;
        break;
      case Atom::Kind::counter:
        one = counters[static_cast<std::size_t>(a.index)];
        break;
      case Atom::Kind::coord:
        break;
      case Atom::Kind::opaque: {
        std::vector<std::int64_t> args;
        for (const Linear& arg : a.args) args.push_back(value(arg, params, item, counters));
        const bool by_zero = (a.function == Function::div || a.function == Function::mod) && args[1] == 0;
        one = by_zero ? 0 : evaluate_integers(a.function, args);
      }
    }
    result += coefficient * one;
  }
  return result;
}

}  // namespace pipethreader::verify
