// Makes the expressions of a program: each different expression exists once, constants are folded, and identities that
// hold exactly (integers: also x * 0, (x * c + y) / c, ...; floating point: only those that keep every bit) simplify.
// Types follow from the operands by `call_type`; where another is wanted, convert().
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "program/program.h"

namespace pipethreader::program {

// The type a call has: booleans for comparisons and logic; else the wider operand type, where an integer gives way to
// any floating type, two different 16-bit floating types give f32, types narrower than 16 bits compute in f32 or i32,
// and functions that leave the integers (exp2, sqrt, ...) take them as f32. `select` looks at its two values only.
[[nodiscard]] ScalarType call_type(Function function, std::span<const ScalarType> operands);

class ExprBuilder {
 public:
  explicit ExprBuilder(Program& program);

  ExprId constant(std::int64_t value);             // i32
  ExprId constant(ScalarType type, double value);  // rounded to `type`
  ExprId truth(bool value) { return constant(ScalarType::boolean, value ? 1 : 0); }
  ExprId param(ParamId id);
  ExprId var(VarId id);
  ExprId instance();
  ExprId cluster_rank();
  ExprId coord(int dim);
  ExprId fragment(FragmentId id, std::vector<int> dims);
  ExprId convert(ScalarType type, ExprId value);  // nothing to do when `value` has the type
  ExprId call(Function function, std::vector<ExprId> args);

  ExprId neg(ExprId a) { return call(Function::neg, {a}); }
  ExprId add(ExprId a, ExprId b) { return call(Function::add, {a, b}); }
  ExprId sub(ExprId a, ExprId b) { return call(Function::sub, {a, b}); }
  ExprId mul(ExprId a, ExprId b) { return call(Function::mul, {a, b}); }
  ExprId div(ExprId a, ExprId b) { return call(Function::div, {a, b}); }
  ExprId mod(ExprId a, ExprId b) { return call(Function::mod, {a, b}); }
  ExprId min(ExprId a, ExprId b) { return call(Function::min, {a, b}); }
  ExprId max(ExprId a, ExprId b) { return call(Function::max, {a, b}); }
  ExprId lt(ExprId a, ExprId b) { return call(Function::lt, {a, b}); }
  ExprId le(ExprId a, ExprId b) { return call(Function::le, {a, b}); }
  ExprId gt(ExprId a, ExprId b) { return call(Function::gt, {a, b}); }
  ExprId ge(ExprId a, ExprId b) { return call(Function::ge, {a, b}); }
  ExprId eq(ExprId a, ExprId b) { return call(Function::eq, {a, b}); }
  ExprId ne(ExprId a, ExprId b) { return call(Function::ne, {a, b}); }
  ExprId logical_and(ExprId a, ExprId b) { return call(Function::logical_and, {a, b}); }
  ExprId logical_or(ExprId a, ExprId b) { return call(Function::logical_or, {a, b}); }
  ExprId logical_not(ExprId a) { return call(Function::logical_not, {a}); }
  ExprId select(ExprId condition, ExprId a, ExprId b) { return call(Function::select, {condition, a, b}); }
  ExprId add(ExprId a, std::int64_t b) { return add(a, constant(b)); }
  ExprId sub(ExprId a, std::int64_t b) { return sub(a, constant(b)); }
  ExprId mul(ExprId a, std::int64_t b) { return mul(a, constant(b)); }
  ExprId div(ExprId a, std::int64_t b) { return div(a, constant(b)); }
  ExprId mod(ExprId a, std::int64_t b) { return mod(a, constant(b)); }
  ExprId ceil_div(ExprId a, std::int64_t b) { return div(add(a, b - 1), b); }

  // The expression as it stands, unsimplified (for the parser).
  ExprId intern(Expr expr);

  // `expr` with every leaf for which `replacement` gives something replaced by it, simplified again.
  using Replacement = std::function<std::optional<ExprId>(const Expr&)>;
  ExprId replace(ExprId expr, const Replacement& replacement);

  // The number, when `expr` is a constant.
  [[nodiscard]] std::optional<double> number(ExprId expr) const;
  [[nodiscard]] bool is(ExprId expr, double value) const { return number(expr) == value; }

 private:
  [[nodiscard]] const Expr& at(ExprId id) const { return program_[id]; }
  [[nodiscard]] const Expr* call_of(ExprId id, Function function) const;  // null when it is no such call
  std::optional<ExprId> fold(Function function, ScalarType type, std::span<const ExprId> args);
  std::optional<ExprId> simplify(Function function, ScalarType type, std::span<const ExprId> args);
  std::optional<ExprId> simplify_sum(Function function, ExprId a, ExprId b);
  std::optional<ExprId> simplify_product(ExprId a, ExprId b);
  std::optional<ExprId> simplify_division(Function function, ExprId a, ExprId b);
  std::optional<ExprId> simplify_logic(Function function, std::span<const ExprId> args);

  Program& program_;
  std::unordered_multimap<std::size_t, ExprId> known_;
};

}  // namespace pipethreader::program
