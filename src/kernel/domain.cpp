#include "kernel/domain.h"

#include <algorithm>

#include "kernel/assembler.h"

namespace pipethreader::kernel {

Domain::Domain(const Kernel& kernel) : k_(&kernel) {
  for (const bool equations : {true, false})  // equations first: what they solve is replaced in all other facts
    for (ExprId r : kernel.requirements) require(r, equations);
}

Variable Domain::fresh() {
  nonnegative_.push_back(false);
  positive_.push_back(false);
  moving_.push_back(false);
  return static_cast<Variable>(nonnegative_.size()) - 1;
}

// --- expressions as polynomials --------------------------------------------------------------------------------

Polynomial Domain::of_dim(DimId dim) {
  if ((*k_)[dim].size) return *(*k_)[dim].size;
  if (!dims_.contains(dim)) {
    dims_[dim] = fresh();
    nonnegative_[static_cast<std::size_t>(dims_[dim])] = true;
  }
  return expanded(Polynomial::variable(dims_[dim]));
}

Polynomial Domain::expanded(Polynomial p) const {
  for (bool again = true; again;) {
    again = false;
    for (Variable v : p.variables())
      if (const auto by = solved_.find(v); by != solved_.end()) {
        p = p.substituted(v, by->second);
        again = true;
      }
  }
  return p;
}

// One variable for all equal expressions whose value is unknown but fixed: scalars, options, tensor elements.
Polynomial Domain::opaque(ExprId expr) {
  for (const auto& [other, variable] : opaque_)
    if (same_expr(*k_, other, expr)) return Polynomial::variable(variable);
  opaque_.emplace_back(expr, fresh());
  return Polynomial::variable(opaque_.back().second);
}

std::optional<Polynomial> Domain::polynomial(ExprId id) {
  const Expr& e = (*k_)[id];
  if (!is_integer(e.type)) return std::nullopt;
  switch (e.kind) {
    case Expr::Kind::literal:
      return static_cast<std::int64_t>(e.number);
    case Expr::Kind::dim:
      return of_dim(e.dim);
    case Expr::Kind::axis:
      if (!axes_.contains(e.axis)) return std::nullopt;
      return Polynomial::variable(axes_[e.axis]);
    case Expr::Kind::scalar:
    case Expr::Kind::option:
    case Expr::Kind::access:
      return opaque(id);
    case Expr::Kind::call:
      return call(id);
    default:
      return std::nullopt;
  }
}

std::optional<Polynomial> Domain::call(ExprId id) {
  const Expr& e = (*k_)[id];
  std::vector<Polynomial> args;
  for (ExprId a : e.args) {
    const auto p = polynomial(a);
    if (!p) return std::nullopt;
    args.push_back(*p);
  }
  switch (e.function) {
    case Function::neg:
      return Polynomial(0) - args[0];
    case Function::add:
      return args[0] + args[1];
    case Function::sub:
      return args[0] - args[1];
    case Function::mul:
      return args[0] * args[1];
    case Function::div:
      return floor_divide(args[0], args[1]);
    case Function::mod: {
      const auto quotient = floor_divide(args[0], args[1]);
      if (!quotient) return std::nullopt;
      return args[0] - args[1] * *quotient;
    }
    case Function::min:
    case Function::max:
      return extremum(args[0], args[1], e.function == Function::max);
    default:
      return std::nullopt;
  }
}

// The quotient is exact where the divisor divides; the rest becomes a variable q with  0 <= rest - d q < d.
std::optional<Polynomial> Domain::floor_divide(const Polynomial& numerator, const Polynomial& denominator) {
  if (!proves_nonnegative(denominator - 1)) return std::nullopt;
  Polynomial exact = 0;
  Polynomial rest = numerator;
  if (const auto parts = numerator.divided_by(denominator)) {
    exact = parts->quotient;
    rest = parts->rest;
  }
  if (const auto n = rest.constant(), d = denominator.constant(); n && d)
    return exact + Polynomial(*n >= 0 ? *n / *d : -((-*n + *d - 1) / *d));
  // floor(floor(x / a) / b) is floor(x / ab)
  for (const Quotient& q : std::vector<Quotient>(quotients_))
    if (rest == Polynomial::variable(q.variable)) {
      const auto whole = floor_divide(q.numerator, q.denominator * denominator);
      return whole ? std::optional(exact + *whole) : std::nullopt;
    }
  for (const Quotient& q : quotients_)
    if (q.numerator == rest && q.denominator == denominator) return exact + Polynomial::variable(q.variable);
  constexpr int kQuickProof = 2;
  if (proves_nonnegative(rest) && proves_nonnegative(denominator - 1 - rest, kQuickProof)) return exact;
  const Variable v = fresh();
  const Polynomial q = Polynomial::variable(v);
  nonnegative_[static_cast<std::size_t>(v)] = proves_nonnegative(rest);
  moving_[static_cast<std::size_t>(v)] = moves(rest);
  quotients_.push_back({rest, denominator, v});
  fact(rest - denominator * q);
  fact(denominator * q + denominator - 1 - rest);
  return exact + q;
}

Polynomial Domain::extremum(const Polynomial& a, const Polynomial& b, bool largest) {
  if (proves_nonnegative(a - b)) return largest ? a : b;
  if (proves_nonnegative(b - a)) return largest ? b : a;
  const Variable v = fresh();
  const Polynomial m = Polynomial::variable(v);
  const bool a_nonnegative = proves_nonnegative(a);
  const bool b_nonnegative = proves_nonnegative(b);
  nonnegative_[static_cast<std::size_t>(v)] = largest ? a_nonnegative || b_nonnegative : a_nonnegative && b_nonnegative;
  fact(largest ? m - a : a - m);
  fact(largest ? m - b : b - m);
  return m;
}

// --- what is known ---------------------------------------------------------------------------------------------

void Domain::fact(const Polynomial& nonnegative) {
  const Polynomial p = expanded(nonnegative);
  if (!p.known()) return;
  if (const auto c = p.constant()) {
    empty_ = empty_ || *c < 0;
    return;
  }
  facts_.push_back(p);
}

// p >= 1. A single positive term has only positive factors, as dims are never negative.
void Domain::positive(const Polynomial& p) {
  fact(p - 1);
  if (p.terms().size() != 1 || p.terms().begin()->second < 0) return;
  const Monomial& m = p.terms().begin()->first;
  if (!std::all_of(m.begin(), m.end(), [&](Variable v) { return nonnegative_[static_cast<std::size_t>(v)]; })) return;
  for (Variable v : m) positive_[static_cast<std::size_t>(v)] = true;
}

void Domain::add_axis(AxisId axis) {
  if (axes_.contains(axis)) return;
  const Variable v = fresh();
  nonnegative_[static_cast<std::size_t>(v)] = true;
  moving_[static_cast<std::size_t>(v)] = true;
  axes_[axis] = v;
  const auto extent = polynomial((*k_)[axis].extent);
  if (!extent) return;
  extents_[v] = *extent;
  positive(*extent);
  fact(*extent - 1 - Polynomial::variable(v));
}

void Domain::comparison(Function f, const Polynomial& a, const Polynomial& b, bool truth) {
  switch (f) {
    case Function::lt:
      return truth ? fact(b - a - 1) : fact(a - b);
    case Function::le:
      return truth ? fact(b - a) : fact(a - b - 1);
    case Function::gt:
      return comparison(Function::lt, b, a, truth);
    case Function::ge:
      return comparison(Function::le, b, a, truth);
    case Function::eq:
    case Function::ne:
      if (truth != (f == Function::eq)) return;
      fact(a - b);
      return fact(b - a);
    default:
      return;
  }
}

void Domain::assume(ExprId condition, bool truth) {
  const Expr& e = (*k_)[condition];
  if (e.kind == Expr::Kind::literal) empty_ = empty_ || (e.number != 0) != truth;
  if (e.kind != Expr::Kind::call) return;
  if (e.function == Function::logical_not) return assume(e.args[0], !truth);
  if (e.function == (truth ? Function::logical_and : Function::logical_or)) {
    assume(e.args[0], truth);
    return assume(e.args[1], truth);
  }
  if (!info(e.function).gives_boolean || e.args.size() != 2) return;
  const auto a = polynomial(e.args[0]);
  const auto b = polynomial(e.args[1]);
  if (a && b) comparison(e.function, *a, *b, truth);
}

void Domain::require(ExprId condition, bool equations) {
  const Expr& e = (*k_)[condition];
  if (e.kind != Expr::Kind::call) return;
  if (e.function == Function::logical_and) {
    require(e.args[0], equations);
    return require(e.args[1], equations);
  }
  if (equations) {
    if (e.function == Function::eq && !solve(e.args[0], e.args[1])) solve(e.args[1], e.args[0]);
    return;
  }
  assume(condition, true);
  // `require S > 0`, or 0 < S, makes S itself positive, beyond the fact.
  const bool more = e.function == Function::gt || e.function == Function::ge;
  if (more || e.function == Function::lt || e.function == Function::le) {
    const bool strict = e.function == Function::gt || e.function == Function::lt;
    const auto a = polynomial(e.args[more ? 0 : 1]);
    const auto b = polynomial(e.args[more ? 1 : 0]);
    if (a && b && obvious(*b - (strict ? 0 : 1))) positive(*a);
  }
}

// `H % G == 0` makes H = G * q; `S == T` makes S = T.
bool Domain::solve(ExprId side, ExprId other) {
  const auto lone = [](const Polynomial& p) -> std::optional<Variable> {
    const auto& terms = p.terms();
    if (terms.size() != 1 || terms.begin()->second != 1 || terms.begin()->first.size() != 1) return std::nullopt;
    return terms.begin()->first[0];
  };
  const auto uses = [](const Polynomial& p, Variable v) {
    const auto all = p.variables();
    return std::find(all.begin(), all.end(), v) != all.end();
  };
  const Expr& left = (*k_)[side];
  const auto right = polynomial(other);
  if (!right) return false;
  if (left.kind == Expr::Kind::call && left.function == Function::mod && right->constant() == 0) {
    const auto n = polynomial(left.args[0]);
    const auto d = polynomial(left.args[1]);
    const auto v = n ? lone(*n) : std::nullopt;
    if (!v || !d || uses(*d, *v)) return false;
    const Variable q = fresh();
    nonnegative_[static_cast<std::size_t>(q)] = true;
    solved_[*v] = *d * Polynomial::variable(q);
    return true;
  }
  const auto p = polynomial(side);
  const auto v = p ? lone(*p) : std::nullopt;
  if (!v || uses(*right, *v)) return false;
  solved_[*v] = *right;
  return true;
}

// --- telling points apart --------------------------------------------------------------------------------------

bool Domain::moves(const Polynomial& p) const {
  const auto all = p.variables();
  return std::any_of(all.begin(), all.end(), [&](Variable v) { return moving_[static_cast<std::size_t>(v)]; });
}

// A variable that the index fixes once the known ones are: the only one left, or the one whose steps are longer than
// all that the others add up to, as c in c*L + l.
std::optional<Variable> Domain::determined(const Polynomial& index, const std::vector<bool>& known) const {
  std::vector<Variable> open;
  for (Variable v : index.variables())
    if (moving_[static_cast<std::size_t>(v)] && !known[static_cast<std::size_t>(v)]) open.push_back(v);
  for (Variable v : open) {
    const auto in = index.linear_in(v);
    if (!in || moves(in->coefficient)) continue;
    if (open.size() == 1 && (proves_nonnegative(in->coefficient - 1) || proves_nonnegative(0 - in->coefficient - 1)))
      return v;
    Polynomial slack = in->coefficient - 1;
    bool bounded = open.size() > 1;
    for (Variable w : open) {
      const auto extent = extents_.find(w);
      const auto other = index.linear_in(w);
      if (w == v) continue;
      bounded = bounded && extent != extents_.end() && other && !moves(other->coefficient) &&
                proves_nonnegative(other->coefficient);
      if (bounded) slack = slack - other->coefficient * (extent->second - 1);
    }
    if (bounded && proves_nonnegative(slack)) return v;
  }
  return std::nullopt;
}

bool Domain::tells_apart(const std::vector<ExprId>& indices, const std::vector<AxisId>& axes) {
  std::vector<Polynomial> polynomials;
  for (ExprId i : indices)
    if (const auto p = polynomial(i)) polynomials.push_back(expanded(*p));
  if (empty_) return true;
  std::vector<bool> known(moving_.size(), false);
  for (bool again = true; again;) {
    again = false;
    for (const Polynomial& p : polynomials)
      if (const auto v = determined(p, known)) {
        known[static_cast<std::size_t>(*v)] = true;
        again = true;
      }
  }
  return std::all_of(axes.begin(), axes.end(),
                     [&](AxisId a) { return axes_.contains(a) && known[static_cast<std::size_t>(axes_[a])]; });
}

// --- proofs ----------------------------------------------------------------------------------------------------

// With v = v' + 1 for the positive variables: no negative coefficient, no variable of unknown sign.
bool Domain::obvious(const Polynomial& p) const {
  if (!p.known()) return false;
  bool negative = false;
  for (const auto& [m, c] : p.terms()) {
    negative = negative || c < 0;
    for (Variable v : m)
      if (!nonnegative_[static_cast<std::size_t>(v)]) return false;
  }
  if (!negative) return true;
  // Without a positive coefficient nothing makes up for the negative one.
  if (std::none_of(p.terms().begin(), p.terms().end(), [](const auto& term) { return term.second > 0; })) return false;
  Polynomial shifted = p;
  for (Variable v : p.variables())
    if (positive_[static_cast<std::size_t>(v)]) shifted = shifted.substituted(v, Polynomial::variable(v) + 1);
  if (!shifted.known()) return false;
  return std::all_of(shifted.terms().begin(), shifted.terms().end(), [](const auto& term) { return term.second >= 0; });
}

// The variables of the terms that keep p from being obvious, the longest terms first. What is negative for large values
// of its variables, or of unknown sign, only facts can make up for; if only the constant is negative, any variable may
// be larger than it seems.
std::vector<Variable> Domain::to_eliminate(const Polynomial& p) const {
  const auto unknown = [&](Variable v) { return !nonnegative_[static_cast<std::size_t>(v)]; };
  std::vector<const Monomial*> terms;
  for (const auto& [m, c] : p.terms())
    if (c < 0 || std::any_of(m.begin(), m.end(), unknown)) terms.push_back(&m);
  std::stable_sort(terms.begin(), terms.end(), [](auto* a, auto* b) { return a->size() > b->size(); });
  std::vector<Variable> variables;
  for (const Monomial* m : terms)
    for (Variable v : *m)
      if (std::find(variables.begin(), variables.end(), v) == variables.end()) variables.push_back(v);
  return variables.empty() ? p.variables() : variables;
}

// Takes away multiples of facts, each so that one variable vanishes. From  f = a v + r >= 0  and  p = b v + s  with a
// and b of one sign follows  p >= 0  if  |a| p + (|a| - 1) - |b| f >= 0, as p is whole.
bool Domain::search(const Polynomial& p, int depth, int& budget) const {
  if (obvious(p)) return true;
  if (depth == 0 || --budget < 0 || !p.known() || p.terms().size() > 40) return false;
  // What a fact says in so many words, whatever the sign of its variables.
  if (std::any_of(facts_.begin(), facts_.end(), [&](const Polynomial& f) { return obvious(p - f); })) return true;
  for (Variable v : to_eliminate(p)) {
    const auto in_p = p.linear_in(v);
    if (!in_p) continue;
    const Polynomial minus_b = 0 - in_p->coefficient;
    const bool up = obvious(in_p->coefficient);
    if (!up && !obvious(minus_b)) continue;
    for (const Polynomial& f : facts_) {
      const auto in_f = f.linear_in(v);
      if (!in_f || in_f->coefficient.terms().empty()) continue;
      const Polynomial a = up ? in_f->coefficient : 0 - in_f->coefficient;
      if (!obvious(a - 1)) continue;
      const Polynomial& b = up ? in_p->coefficient : minus_b;
      if (search(a * p + a - 1 - b * f, depth - 1, budget)) return true;
    }
  }
  return false;
}

bool Domain::proves_nonnegative(const Polynomial& p, int deepest) const {
  if (empty_) return true;
  const Polynomial q = expanded(p);
  for (int depth = 0; depth <= deepest; ++depth) {
    int budget = 200;
    if (search(q, depth, budget)) return true;
  }
  return false;
}

}  // namespace pipethreader::kernel
