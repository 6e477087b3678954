// The sTask IR: a kernel over global tensors in index notation. A Kernel is a value; it is made by the parser or
// the builder, checked by check(), and never holds tiles, threads, stages or layouts.
//
// Nodes live in arenas and are named by typed ids. Expressions are shared between index arithmetic and values: an
// index is an expression of integer type over axes, dims and constants.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/diagnostic.h"
#include "base/functions.h"
#include "base/ids.h"
#include "base/scalar_type.h"

namespace pipethreader::kernel {

using DimId = Id<struct DimTag>;
using AxisId = Id<struct AxisTag>;
using TensorId = Id<struct TensorTag>;
using ScalarId = Id<struct ScalarTag>;
using OptionId = Id<struct OptionTag>;
using ValueId = Id<struct ValueTag>;
using ExprId = Id<struct ExprTag>;
using StatementId = Id<struct StatementTag>;

// A named size. Dynamic while `size` is empty; specialise() fills it.
struct Dim {
  std::string name;
  std::optional<std::int64_t> size;
  SourceSpan span;
};

enum class AxisKind : std::uint8_t {
  parallel,  // independent work
  streamed,  // the axis of a `for`
  inner,     // free: declared by `inner`, or inferred where a value is defined over it
  reduced,   // bound by one reduction: sum[k: K]
};

struct Axis {
  std::string name;
  AxisKind kind = AxisKind::parallel;
  ExprId extent;  // integer expression over dims
  SourceSpan span;
};

struct Tensor {
  std::string name;
  ScalarType type = ScalarType::f32;
  std::vector<ExprId> shape;  // integer expressions over dims; row-major, last dim contiguous
  bool output = false;
  SourceSpan span;
};

// A run-time scalar parameter.
struct Scalar {
  std::string name;
  ScalarType type = ScalarType::f32;
  SourceSpan span;
};

// A compile-time constant; part of the cache key; folded by specialise().
struct Option {
  std::string name;
  ScalarType type = ScalarType::boolean;  // boolean, i32 or f32
  double value = 0;
  SourceSpan span;
};

// A named local value over axes. A name means its latest value: several statements may assign it.
struct Value {
  std::string name;
  ScalarType type = ScalarType::f32;
  std::vector<AxisId> axes;  // in the order written where it was defined
  bool carried = false;      // declared by `carry`
  bool typed = false;        // `type` was written by the user; otherwise check() infers it
  SourceSpan span;
};

enum class ReduceOp : std::uint8_t { sum, max, min };

struct Expr {
  enum class Kind : std::uint8_t {
    literal,  // `number`
    axis,     // the index of `axis` used as an integer
    dim,      // the size `dim`
    option,   // `option`
    scalar,   // `scalar`
    value,    // `value` at `args` (one index expression per axis of the value; plain axes in all but rare cases)
    access,   // global `tensor` at `args` (one index expression per dim)
    call,     // `function`(args)
    convert,  // args[0] converted to `type`
    reduce,   // `reduce` over `axes` of args[0]; args[1], if present, restricts the domain (`where`)
  };
  Kind kind = Kind::literal;
  ScalarType type = ScalarType::f32;  // the result; set by check() (before: only for literals and converts)
  double number = 0;
  AxisId axis;
  DimId dim;
  OptionId option;
  ScalarId scalar;
  ValueId value;
  TensorId tensor;
  Function function = Function::add;
  ReduceOp reduce = ReduceOp::sum;
  std::vector<AxisId> axes;
  std::vector<ExprId> args;
  SourceSpan span;
};

// carry v[i, d] = init;
struct Carry {
  ValueId target;
  ExprId init;
};

// v[i, j] = expr when c;   or   v[i, j] += expr when c;
struct Assign {
  ValueId target;
  bool accumulate = false;
  ExprId expr;
  std::optional<ExprId> when;
};

// O[b, i, d] = expr when c;   (`when`: elements where it is false are not written)
struct Store {
  TensorId tensor;
  std::vector<ExprId> indices;
  ExprId expr;
  std::optional<ExprId> when;
};

// How two partial states of a loop combine: `combine (m2, l2, o2) { statements }`. `others[k]` stands for the second
// partial state's `carried[k]`; the statements update the carried values from both.
struct Combine {
  std::vector<ValueId> carried;
  std::vector<ValueId> others;
  std::vector<StatementId> body;
};

// for axis: extent where condition { body }
struct Loop {
  AxisId axis;
  std::optional<ExprId> where;
  bool ordered = false;  // the order of tiles is part of the meaning
  std::vector<StatementId> body;
  std::optional<Combine> combine;
};

struct Statement {
  std::variant<Carry, Assign, Store, Loop> node;
  SourceSpan span;
};

struct Kernel {
  std::string name;
  std::string file;  // for diagnostics; empty for built kernels
  std::vector<Dim> dims;
  std::vector<Axis> axes;
  std::vector<Tensor> tensors;  // in parameter order, then outputs in order
  std::vector<Scalar> scalars;
  std::vector<Option> options;
  std::vector<Value> values;
  std::vector<Expr> exprs;
  std::vector<Statement> statements;
  std::vector<ExprId> requirements;  // `require`: boolean expressions over dims and options
  std::vector<AxisId> parallel;      // in the order declared
  std::vector<StatementId> body;

  [[nodiscard]] const Dim& operator[](DimId id) const { return dims[static_cast<std::size_t>(id.index)]; }
  [[nodiscard]] const Axis& operator[](AxisId id) const { return axes[static_cast<std::size_t>(id.index)]; }
  [[nodiscard]] const Tensor& operator[](TensorId id) const { return tensors[static_cast<std::size_t>(id.index)]; }
  [[nodiscard]] const Scalar& operator[](ScalarId id) const { return scalars[static_cast<std::size_t>(id.index)]; }
  [[nodiscard]] const Option& operator[](OptionId id) const { return options[static_cast<std::size_t>(id.index)]; }
  [[nodiscard]] const Value& operator[](ValueId id) const { return values[static_cast<std::size_t>(id.index)]; }
  [[nodiscard]] const Expr& operator[](ExprId id) const { return exprs[static_cast<std::size_t>(id.index)]; }
  [[nodiscard]] const Statement& operator[](StatementId id) const {
    return statements[static_cast<std::size_t>(id.index)];
  }
};

// --- the stage's functions -------------------------------------------------------------------------------------

// Text to kernels (a file may hold several). All syntax and name errors, each with its place.
[[nodiscard]] Result<std::vector<Kernel>> parse(const std::string& text, const std::string& file);

// The text form; parse(print(k)) gives an equal kernel, and printing that gives the same text.
[[nodiscard]] std::string print(const Kernel& kernel);

// Types, ranks, scopes, axis use, domains (an access outside its tensor that no `where` excludes is an error).
// Returns the kernel with every expression's type set.
[[nodiscard]] Result<Kernel> check(Kernel kernel);

// Fixes dims and options by name, folds the options (and dims now known) through every expression, checks `require`,
// drops branches that became constant (a `where true`, a `when true`). Unknown names are errors that list the known.
struct Binding {
  std::string name;
  double value = 0;
};
[[nodiscard]] Result<Kernel> specialise(const Kernel& checked, const std::vector<Binding>& dims,
                                        const std::vector<Binding>& options);

// The value of an integer expression over dims when `sizes` gives every dim (by DimId index); asserts otherwise.
[[nodiscard]] std::int64_t evaluate_size(const Kernel& kernel, ExprId expr, const std::vector<std::int64_t>& sizes);

}  // namespace pipethreader::kernel
