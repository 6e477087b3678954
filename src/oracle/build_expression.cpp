// Expressions: their nodes, and which points the loops around them let them see.
#include "oracle/builder.h"

#include <algorithm>

namespace pipethreader::oracle {

using namespace kernel;
using Kind = Expr::Kind;

namespace {

std::size_t position(std::int32_t index) { return static_cast<std::size_t>(index); }

bool keeps_exactness(Function function) {
  switch (function) {
    case Function::add:
    case Function::sub:
    case Function::mul:
    case Function::div:
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
      return false;
    default:
      return true;
  }
}

// Types whose products are exact in f32 and which tensor cores multiply.
bool is_short_float(ScalarType type) { return is_floating(type) && unit_roundoff(type) >= 0x1p-11; }

}  // namespace

AxisSet Builder::free_axes(ExprId id) const {
  const Expr& e = kernel_[id];
  AxisSet free;
  if (e.kind == Kind::axis) free.set(position(e.axis.index));
  for (const ExprId arg : e.args) free |= free_axes(arg);
  if (e.kind == Kind::reduce)
    for (const AxisId axis : e.axes) free.reset(position(axis.index));
  return free;
}

int Builder::add(Node node) {
  program_.nodes.push_back(std::move(node));
  return static_cast<int>(program_.nodes.size()) - 1;
}

int Builder::axis_node(int axis) {
  Node node;
  node.kind = Kind::axis;
  node.type = ScalarType::i32;
  node.integer = node.exact = true;
  node.axis = axis;
  node.free.set(position(axis));
  return add(std::move(node));
}

// A call on exact booleans.
int Builder::call(Function function, std::vector<int> args) {
  Node node;
  node.kind = Kind::call;
  node.function = function;
  node.type = ScalarType::boolean;
  node.integer = node.exact = true;
  for (const int arg : args) node.free |= program_.nodes[position(arg)].free;
  node.args = std::move(args);
  return add(std::move(node));
}

// Whether the enclosing loops' `where` has a point of the current tile at the bound axes: the condition, or if it has
// axes that are not bound, whether any of their indices fulfils it. Computed once a tile into a hidden value.
int Builder::mask(const AxisSet& bound) {
  if (condition_ < 0) return -1;
  const AxisSet condition_axes = program_.nodes[position(condition_)].free & ~program_.parallel_set;
  std::vector<int> over, any;
  for (int axis = 0; axis < kPoint; ++axis) {
    if (!condition_axes.test(position(axis))) continue;
    (bound.test(position(axis)) ? over : any).push_back(axis);
  }
  auto [entry, is_new] = mask_values_.try_emplace({loop_, over}, static_cast<int>(program_.values.size()));
  if (is_new) {
    LocalValue hidden{"where", ScalarType::boolean, over, over, false, false};
    program_.values.push_back(hidden);
    StatementNode define;
    define.target = entry->second;
    define.axes = over;
    define.expr_type = ScalarType::boolean;
    define.expr = condition_;
    if (!any.empty()) {
      Node reduce;
      reduce.kind = Kind::reduce;
      reduce.reduce = ReduceOp::max;
      reduce.type = ScalarType::boolean;
      reduce.integer = reduce.exact = true;
      reduce.axes = any;
      reduce.args = {condition_};
      reduce.free = program_.nodes[position(condition_)].free;
      for (const int axis : any) reduce.free.reset(position(axis));
      define.expr = add(std::move(reduce));
    }
    program_.statements.push_back(std::move(define));
    program_.loops[position(loop_)].masks.push_back(static_cast<int>(program_.statements.size()) - 1);
  }
  Node node;
  node.kind = Kind::value;
  node.type = ScalarType::boolean;
  node.integer = node.exact = true;
  node.value = entry->second;
  for (const int axis : over) {
    node.args.push_back(axis_node(axis));
    node.free.set(position(axis));
  }
  node.free.set(kPoint);
  return add(std::move(node));
}

int Builder::statement_mask(const AxisSet& axes) { return loop_ < 0 ? -1 : mask(axes | program_.parallel_set); }

void Builder::complete_call(Node& node, const Expr& e, const Context& context) {
  const bool product = context.product && e.function == Function::mul;
  bool all_exact = true, all_short = true;
  for (std::size_t k = 0; k < e.args.size(); ++k) {
    Context inner = context;
    inner.product = product;
    inner.final = context.final && e.function == Function::select && k > 0;
    const int arg = expr(e.args[k], inner);
    const Node& built = program_.nodes[position(arg)];
    all_exact = all_exact && built.exact;
    all_short =
        all_short && is_short_float(built.type) && !(built.kind == Kind::call && built.function == Function::mul);
    node.free |= built.free;
    node.passes = node.passes || (built.passes && (e.function == Function::select || e.function == Function::min ||
                                                   e.function == Function::max));
    node.args.push_back(arg);
  }
  node.rounding = unit_roundoff(node.type);
  if (product && node.type != ScalarType::f64) node.rounding = all_short ? 0 : unit_roundoff(ScalarType::f32);
  node.exact = all_exact && (node.integer || keeps_exactness(e.function) || (product && all_short));
}

void Builder::complete_reduce(Node& node, const Expr& e, const Context& context) {
  Context inner = context;
  inner.product = e.reduce == ReduceOp::sum;
  inner.final = false;
  AxisSet over;
  for (const AxisId axis : e.axes) {
    node.axes.push_back(axis.index);
    over.set(position(axis.index));
  }
  inner.bound |= over;
  inner.reduced |= over;
  for (const ExprId arg : e.args) {
    node.args.push_back(expr(arg, inner));
    inner.product = false;
  }
  const Node& term = program_.nodes[position(node.args[0])];
  const bool tensor_core = term.kind == Kind::call && term.function == Function::mul && term.rounding == 0;
  node.term_rounding = unit_roundoff(node.type) * (tensor_core ? kTensorCoreRoundings : 1);
  const bool term_exact = term.exact;
  if (condition_ >= 0 && (program_.nodes[position(condition_)].free & over).any()) node.active = mask(inner.bound);
  for (const int arg : node.args) node.free |= program_.nodes[position(arg)].free;
  if (node.active >= 0) node.free |= program_.nodes[position(node.active)].free;
  node.free &= ~over;
  node.exact = term_exact && (node.integer || e.reduce != ReduceOp::sum);
}

void Builder::complete_value(Node& node, const Expr& e, const Context& context) {
  node.value = e.value.index;
  const LocalValue& value = program_.values[position(node.value)];
  node.passes = value.tagged;
  const std::vector<AxisId>& declared = kernel_[e.value].axes;
  for (std::size_t k = 0; k < e.args.size(); ++k) {
    const Expr& index = kernel_[e.args[k]];
    const bool own = index.kind == Kind::axis && index.axis == declared[k];
    if (e.value.index == target_ && (!own || context.reduced.test(position(index.axis.index)))) reads_target_ = true;
    if (program_.parallel_set.test(position(declared[k].index))) {
      if (!own)
        fail_once(e.span, fmt::format("'{}' is read at another point of the parallel axis '{}'", value.name,
                                      program_.axes[position(declared[k].index)].name));
      continue;
    }
    node.args.push_back(expr(e.args[k], context));
    node.free |= program_.nodes[position(node.args.back())].free;
  }
  node.free.set(kPoint);
}

int Builder::expr(ExprId id, const Context& context) {
  const Expr& e = kernel_[id];
  Node node;
  node.kind = e.kind;
  node.function = e.function;
  node.type = e.type;
  node.reduce = e.reduce;
  node.span = e.span;
  node.integer = !is_floating(e.type);
  Context plain = context;
  plain.product = plain.final = false;
  switch (e.kind) {
    case Kind::literal:
    case Kind::option:
      node.number = e.kind == Kind::literal ? e.number : kernel_[e.option].value;
      node.error = std::isfinite(node.number) ? std::fabs(round_to(node.type, node.number) - node.number) : 0;
      node.exact = !(node.error > 0);
      break;
    case Kind::dim:
      node.number = static_cast<double>(sizes_[position(e.dim.index)]);
      node.exact = true;
      break;
    case Kind::scalar:
      node.number = round_to(kernel_[e.scalar].type, scalars_[position(e.scalar.index)]);
      node.exact = true;
      break;
    case Kind::axis:
      node.axis = e.axis.index;
      node.exact = true;
      node.free.set(position(node.axis));
      if (!context.bound.test(position(node.axis)))
        fail_once(e.span, fmt::format("axis '{}' has no index here", kernel_[e.axis].name));
      break;
    case Kind::value:
      complete_value(node, e, plain);
      break;
    case Kind::access:
      node.tensor = e.tensor.index;
      node.exact = true;
      for (const ExprId arg : e.args) {
        node.args.push_back(expr(arg, plain));
        node.free |= program_.nodes[position(node.args.back())].free;
      }
      break;
    case Kind::call:
      complete_call(node, e, context);
      break;
    case Kind::convert:
      node.args.push_back(expr(e.args[0], plain));
      node.free = program_.nodes[position(node.args[0])].free;
      node.exact = program_.nodes[position(node.args[0])].exact;
      node.step = !context.final && (depends_on_state(e.args[0]) || loosely_scaled(e.args[0]));
      break;
    case Kind::reduce:
      complete_reduce(node, e, context);
      break;
  }
  return add(std::move(node));
}

}  // namespace pipethreader::oracle
