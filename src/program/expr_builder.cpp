#include "program/expr_builder.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>

namespace pipethreader::program {
namespace {

void mix(std::size_t& hash, std::size_t value) { hash ^= value + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2); }

std::size_t hash_of(const Expr& e) {
  std::size_t hash = static_cast<std::size_t>(e.kind);
  mix(hash, static_cast<std::size_t>(e.type));
  mix(hash, std::bit_cast<std::uint64_t>(e.number));
  mix(hash, static_cast<std::size_t>(e.param.index) ^ (static_cast<std::size_t>(e.var.index) << 20) ^
                (static_cast<std::size_t>(e.fragment.index) << 40));
  mix(hash, static_cast<std::size_t>(e.dim) ^ (static_cast<std::size_t>(e.function) << 16));
  for (const int dim : e.dims) mix(hash, static_cast<std::size_t>(dim));
  for (const ExprId arg : e.args) mix(hash, static_cast<std::size_t>(arg.index));
  return hash;
}

// Bits, so that -0 and 0 differ and a NaN equals itself.
bool same(const Expr& a, const Expr& b) {
  return a.kind == b.kind && a.type == b.type &&
         std::bit_cast<std::uint64_t>(a.number) == std::bit_cast<std::uint64_t>(b.number) && a.param == b.param &&
         a.var == b.var && a.dim == b.dim && a.fragment == b.fragment && a.dims == b.dims && a.function == b.function &&
         a.args == b.args;
}

// The type two operands compute in.
ScalarType wider(ScalarType a, ScalarType b) {
  const auto computing = [](ScalarType t) {
    if (is_floating(t)) return bits(t) < 16 || t == ScalarType::tf32 ? ScalarType::f32 : t;
    return t == ScalarType::i64 ? t : ScalarType::i32;
  };
  a = computing(a);
  b = computing(b);
  if (a == b) return a;
  if (is_floating(a) != is_floating(b)) return is_floating(a) ? a : b;
  if (bits(a) == bits(b)) return ScalarType::f32;
  return bits(a) > bits(b) ? a : b;
}

bool leaves_the_integers(Function f) {
  switch (f) {
    case Function::exp:
    case Function::exp2:
    case Function::log:
    case Function::log2:
    case Function::sqrt:
    case Function::rsqrt:
    case Function::tanh:
    case Function::sigmoid:
    case Function::erf:
    case Function::sin:
    case Function::cos:
      return true;
    default:
      return false;
  }
}

bool commutes(Function f) {
  return f == Function::add || f == Function::mul || f == Function::min || f == Function::max || f == Function::eq ||
         f == Function::ne || f == Function::logical_and || f == Function::logical_or;
}

std::int64_t whole(double value) { return static_cast<std::int64_t>(value); }

}  // namespace

ScalarType call_type(Function function, std::span<const ScalarType> operands) {
  if (info(function).gives_boolean) return ScalarType::boolean;
  if (function == Function::select) {
    if (operands[1] == operands[2]) return operands[1];
    return wider(operands[1], operands[2]);
  }
  ScalarType type = operands[0];
  for (const ScalarType other : operands) type = wider(type, other);
  if (leaves_the_integers(function) && !is_floating(type)) return ScalarType::f32;
  return type;
}

ExprBuilder::ExprBuilder(Program& program) : program_(program) {
  for (std::size_t i = 0; i < program_.exprs.size(); ++i) known_.emplace(hash_of(program_.exprs[i]), ExprId(i));
}

ExprId ExprBuilder::intern(Expr expr) {
  const std::size_t hash = hash_of(expr);
  for (auto [at, end] = known_.equal_range(hash); at != end; ++at)
    if (same(program_[at->second], expr)) return at->second;
  const ExprId id(program_.exprs.size());
  program_.exprs.push_back(std::move(expr));
  known_.emplace(hash, id);
  return id;
}

ExprId ExprBuilder::constant(std::int64_t value) { return constant(ScalarType::i32, static_cast<double>(value)); }

ExprId ExprBuilder::constant(ScalarType type, double value) {
  Expr e{Expr::Kind::constant, type};
  e.number = round_to(type, value);
  return intern(std::move(e));
}

ExprId ExprBuilder::param(ParamId id) {
  Expr e{Expr::Kind::param, program_[id].type};
  e.param = id;
  return intern(std::move(e));
}

ExprId ExprBuilder::var(VarId id) {
  Expr e{Expr::Kind::var, ScalarType::i32};
  e.var = id;
  return intern(std::move(e));
}

ExprId ExprBuilder::instance() { return intern({Expr::Kind::instance, ScalarType::i32}); }

ExprId ExprBuilder::cluster_rank() { return intern({Expr::Kind::cluster_rank, ScalarType::i32}); }

ExprId ExprBuilder::coord(int dim) {
  Expr e{Expr::Kind::coord, ScalarType::i32};
  e.dim = dim;
  return intern(std::move(e));
}

ExprId ExprBuilder::fragment(FragmentId id, std::vector<int> dims) {
  Expr e{Expr::Kind::fragment, program_[id].type};
  e.fragment = id;
  e.dims = std::move(dims);
  return intern(std::move(e));
}

ExprId ExprBuilder::convert(ScalarType type, ExprId value) {
  if (at(value).type == type) return value;
  if (const auto n = number(value)) return constant(type, *n);
  Expr e{Expr::Kind::convert, type};
  e.args = {value};
  return intern(std::move(e));
}

ExprId ExprBuilder::call(Function function, std::vector<ExprId> args) {
  assert(static_cast<int>(args.size()) == info(function).operands);
  if (commutes(function) && number(args[0]) && !number(args[1])) std::swap(args[0], args[1]);
  std::vector<ScalarType> types;
  for (const ExprId arg : args) types.push_back(at(arg).type);
  const ScalarType type = call_type(function, types);
  if (const auto folded = fold(function, type, args)) return *folded;
  // A simplification may only stand for the call if it has the same type.
  if (const auto simple = simplify(function, type, args); simple && at(*simple).type == type) return *simple;
  Expr e{Expr::Kind::call, type};
  e.function = function;
  e.args = std::move(args);
  return intern(std::move(e));
}

std::optional<double> ExprBuilder::number(ExprId expr) const {
  return at(expr).kind == Expr::Kind::constant ? std::optional(at(expr).number) : std::nullopt;
}

const Expr* ExprBuilder::call_of(ExprId id, Function function) const {
  const Expr& e = at(id);
  return e.kind == Expr::Kind::call && e.function == function ? &e : nullptr;
}

std::optional<ExprId> ExprBuilder::fold(Function function, ScalarType type, std::span<const ExprId> args) {
  std::vector<double> numbers;
  bool integers = true;
  for (const ExprId arg : args) {
    const auto n = number(arg);
    if (!n) return std::nullopt;
    numbers.push_back(*n);
    integers = integers && !is_floating(at(arg).type);
  }
  if (integers && (function == Function::div || function == Function::mod) && numbers[1] == 0) return std::nullopt;
  return constant(type, evaluate(function, numbers, integers));
}

std::optional<ExprId> ExprBuilder::simplify(Function function, ScalarType type, std::span<const ExprId> args) {
  const bool integers = is_integer(type);
  switch (function) {
    case Function::add:
    case Function::sub:
      if (integers) return simplify_sum(function, args[0], args[1]);
      if (function == Function::sub && is(args[1], 0) && !std::signbit(*number(args[1]))) return args[0];
      return std::nullopt;
    case Function::mul:
      if (is(args[1], 1)) return args[0];
      return integers ? simplify_product(args[0], args[1]) : std::nullopt;
    case Function::div:
    case Function::mod:
      if (function == Function::div && is(args[1], 1)) return args[0];
      return integers ? simplify_division(function, args[0], args[1]) : std::nullopt;
    case Function::min:
    case Function::max: {
      if (args[0] == args[1]) return args[0];
      const Expr* inner = call_of(args[0], function);
      if (inner && number(args[1]) && number(inner->args[1])) {
        const ExprId base = inner->args[0];
        return call(function, {base, call(function, {inner->args[1], args[1]})});
      }
      return std::nullopt;
    }
    case Function::neg:
      if (const Expr* inner = call_of(args[0], Function::neg)) return inner->args[0];
      return std::nullopt;
    default:
      return simplify_logic(function, args);
  }
}

std::optional<ExprId> ExprBuilder::simplify_sum(Function function, ExprId a, ExprId b) {
  const bool minus = function == Function::sub;
  if (is(b, 0)) return a;
  if (minus && a == b) return constant(0);
  if (!minus && is(a, 0)) return b;
  if (const auto n = number(b)) {  // (x + c) + n, and x - n as x + (-n)
    const double addend = minus ? -*n : *n;
    if (const Expr* inner = call_of(a, Function::add); inner && number(inner->args[1]))
      return add(inner->args[0], whole(*number(inner->args[1]) + addend));
    if (const Expr* inner = call_of(a, Function::sub); inner && number(inner->args[1]))
      return add(inner->args[0], whole(addend - *number(inner->args[1])));
    if (!minus && *n < 0) return sub(a, whole(-*n));
    if (minus && *n < 0) return add(a, whole(-*n));
  }
  if (minus)
    if (const Expr* inner = call_of(a, Function::add)) {  // (x + y) - x
      if (inner->args[0] == b) return inner->args[1];
      if (inner->args[1] == b) return inner->args[0];
    }
  return std::nullopt;
}

std::optional<ExprId> ExprBuilder::simplify_product(ExprId a, ExprId b) {
  const auto n = number(b);
  if (!n) return std::nullopt;
  if (*n == 0) return constant(0);
  if (const Expr* inner = call_of(a, Function::mul); inner && number(inner->args[1]))
    return mul(inner->args[0], whole(*number(inner->args[1]) * *n));
  return std::nullopt;
}

// Division floors, so (x * (k n) + y) / n is x * k + y / n, and its remainder that of y, for every sign.
std::optional<ExprId> ExprBuilder::simplify_division(Function function, ExprId a, ExprId b) {
  const auto n = number(b);
  if (!n || *n <= 0) return std::nullopt;
  const bool quotient = function == Function::div;
  if (*n == 1) return quotient ? a : constant(0);
  const auto multiple = [&](ExprId e) -> std::optional<ExprId> {  // e / n when that is whole
    if (const auto c = number(e); c && std::fmod(*c, *n) == 0) return constant(whole(*c / *n));
    if (const Expr* product = call_of(e, Function::mul))
      if (const auto c = number(product->args[1]); c && std::fmod(*c, *n) == 0)
        return mul(product->args[0], whole(*c / *n));
    return std::nullopt;
  };
  if (const auto k = multiple(a)) return quotient ? *k : constant(0);
  for (const Function f : {Function::add, Function::sub}) {
    const Expr* sum = call_of(a, f);
    if (!sum) continue;
    const ExprId x = sum->args[0];
    const ExprId y = sum->args[1];
    if (const auto k = multiple(y)) return quotient ? call(f, {div(x, b), *k}) : mod(x, b);
    if (f == Function::add)
      if (const auto k = multiple(x)) return quotient ? add(*k, div(y, b)) : mod(y, b);
  }
  if (const Expr* inner = call_of(a, Function::div); inner && quotient)  // (x / c) / n
    if (const auto c = number(inner->args[1]); c && *c > 0) return div(inner->args[0], whole(*c * *n));
  if (const Expr* inner = call_of(a, Function::mod))  // (x % c) % n and (x % c) / n
    if (const auto c = number(inner->args[1]); c && *c > 0) {
      if (*c <= *n) return quotient ? constant(0) : a;
      if (!quotient && std::fmod(*c, *n) == 0) return mod(inner->args[0], b);
    }
  return std::nullopt;
}

std::optional<ExprId> ExprBuilder::simplify_logic(Function function, std::span<const ExprId> args) {
  const ExprId a = args[0];
  const bool integers = std::ranges::all_of(args, [&](ExprId e) { return !is_floating(at(e).type); });
  switch (function) {
    case Function::logical_and:
      if (is(args[1], 0)) return truth(false);
      if (number(args[1]) || a == args[1]) return a;
      return std::nullopt;
    case Function::logical_or:
      if (is(args[1], 0) || a == args[1]) return a;
      if (number(args[1])) return truth(true);
      return std::nullopt;
    case Function::logical_not: {
      const Expr& e = at(a);
      if (e.kind != Expr::Kind::call) return std::nullopt;
      const bool exact = std::ranges::all_of(e.args, [&](ExprId x) { return !is_floating(at(x).type); });
      if (e.function == Function::logical_not) return e.args[0];
      if (e.function == Function::eq) return ne(e.args[0], e.args[1]);
      if (e.function == Function::ne) return eq(e.args[0], e.args[1]);
      if (!exact) return std::nullopt;  // a NaN makes both a < b and a >= b false
      if (e.function == Function::lt) return ge(e.args[0], e.args[1]);
      if (e.function == Function::le) return gt(e.args[0], e.args[1]);
      if (e.function == Function::gt) return le(e.args[0], e.args[1]);
      if (e.function == Function::ge) return lt(e.args[0], e.args[1]);
      return std::nullopt;
    }
    case Function::select:
      if (const auto c = number(a))
        return convert(call_type(function, std::vector{at(a).type, at(args[1]).type, at(args[2]).type}),
                       args[*c != 0 ? 1 : 2]);
      return args[1] == args[2] ? std::optional(args[1]) : std::nullopt;
    case Function::lt:
    case Function::gt:
    case Function::ne:
      return integers && a == args[1] ? std::optional(truth(false)) : std::nullopt;
    case Function::le:
    case Function::ge:
    case Function::eq:
      return integers && a == args[1] ? std::optional(truth(true)) : std::nullopt;
    default:
      return std::nullopt;
  }
}

ExprId ExprBuilder::replace(ExprId expr, const Replacement& replacement) {
  const Expr e = at(expr);  // a copy: the arena grows
  if (e.args.empty()) return replacement(e).value_or(expr);
  std::vector<ExprId> args;
  for (const ExprId arg : e.args) args.push_back(replace(arg, replacement));
  if (args == e.args) return expr;
  return e.kind == Expr::Kind::convert ? convert(e.type, args[0]) : call(e.function, std::move(args));
}

}  // namespace pipethreader::program
