#include <algorithm>
#include <map>
#include <set>

#include "oracle/oracle.h"
#include "oracle/program.h"

namespace pipethreader::oracle {
namespace {

using namespace kernel;
using Kind = Expr::Kind;

std::size_t position(std::int32_t index) { return static_cast<std::size_t>(index); }

// What surrounds an expression.
struct Context {
  AxisSet bound;         // axes with a current index
  AxisSet reduced;       // of those, bound by a reduction around here
  bool product = false;  // a factor of a product that enters a sum
  bool final = false;    // its value is what a store writes
};

class Builder {
 public:
  Builder(const Kernel& kernel, const std::vector<std::int64_t>& sizes, const std::vector<double>& scalars)
      : kernel_(kernel), sizes_(sizes), scalars_(scalars) {}

  Result<Program> build();

 private:
  void add_tables();
  void find_loosely_scaled();
  bool is_product_with(ExprId id, ValueId value) const;
  bool is_rescaled_sum(const Assign& node) const;
  bool accumulates(ValueId target, ExprId from, bool plus) const;
  void enter_state(const std::vector<StatementId>& ids);
  int statement(StatementId id);
  std::vector<int> body(const std::vector<StatementId>& ids);
  int assign(const Assign& node, SourceSpan span);
  int carry(const Carry& node, SourceSpan span);
  int store(const Store& node, SourceSpan span);
  int loop(const Loop& node, SourceSpan span);

  int expr(ExprId id, const Context& context);
  void complete_call(Node& node, const Expr& e, const Context& context);
  void complete_reduce(Node& node, const Expr& e, const Context& context);
  void complete_value(Node& node, const Expr& e, const Context& context);
  int add(Node node);
  int call(Function function, std::vector<int> args);
  int axis_node(int axis);
  int mask(const AxisSet& bound);
  int statement_mask(const AxisSet& axes);

  AxisSet free_axes(ExprId id) const;
  bool depends_on_state(ExprId id) const;
  bool loosely_scaled(ExprId id) const;
  void visit_assignments(const std::vector<StatementId>& ids, const auto& visit) const;
  void fail_once(SourceSpan span, std::string message);

  const Kernel& kernel_;
  const std::vector<std::int64_t>& sizes_;
  const std::vector<double>& scalars_;
  Program program_;
  std::vector<bool> state_dependent_;  // by value: follows from state that an enclosing loop carries
  std::vector<bool> loosely_scaled_;   // by value: see find_loosely_scaled
  std::set<int> defined_;              // values assigned so far
  int condition_ = -1;                 // the conjunction of the enclosing `where`s
  int loop_ = -1;                      // the innermost loop being built
  std::map<std::pair<int, std::vector<int>>, int> mask_values_;  // (loop, axes) -> value
  int target_ = -1;                                              // of the assignment being built
  bool reads_target_ = false;
  std::optional<Error> error_;
};

void Builder::fail_once(SourceSpan span, std::string message) {
  if (!error_) error_ = Error(Diagnostic{kernel_.file, span, std::move(message), {}});
}

void Builder::add_tables() {
  program_.file = kernel_.file;
  for (const Axis& axis : kernel_.axes)
    program_.axes.push_back({axis.name, false, std::max<std::int64_t>(0, constant_of(kernel_, axis.extent, sizes_))});
  for (const AxisId axis : kernel_.parallel) {
    program_.parallel.push_back(axis.index);
    program_.parallel_set.set(position(axis.index));
    program_.axes[position(axis.index)].parallel = true;
  }
  for (std::size_t t = 0; t < kernel_.tensors.size(); ++t) {
    const Tensor& tensor = kernel_.tensors[t];
    program_.tensors.push_back({tensor.name, tensor.type, shape_of(kernel_, TensorId(t), sizes_), tensor.output});
  }
  for (const Value& value : kernel_.values) {
    LocalValue local{value.name, value.type, {}, {}, value.carried, is_floating(value.type)};
    for (const AxisId axis : value.axes) {
      local.declared.push_back(axis.index);
      if (program_.parallel_set.test(position(axis.index))) continue;
      local.axes.push_back(axis.index);
      if (kernel_[axis].kind == AxisKind::streamed) local.tagged = false;
    }
    program_.values.push_back(std::move(local));
  }
}

AxisSet Builder::free_axes(ExprId id) const {
  const Expr& e = kernel_[id];
  AxisSet free;
  if (e.kind == Kind::axis) free.set(position(e.axis.index));
  for (const ExprId arg : e.args) free |= free_axes(arg);
  if (e.kind == Kind::reduce)
    for (const AxisId axis : e.axes) free.reset(position(axis.index));
  return free;
}

bool Builder::depends_on_state(ExprId id) const {
  const Expr& e = kernel_[id];
  if (e.kind == Kind::value && state_dependent_[position(e.value.index)]) return true;
  return std::any_of(e.args.begin(), e.args.end(), [&](ExprId arg) { return depends_on_state(arg); });
}

void Builder::visit_assignments(const std::vector<StatementId>& ids, const auto& visit) const {
  for (const StatementId id : ids) {
    const auto& node = kernel_[id].node;
    if (const auto* assign = std::get_if<Assign>(&node)) visit(assign->target, assign->expr, assign->accumulate);
    if (const auto* carry = std::get_if<Carry>(&node)) visit(carry->target, carry->init, false);
    if (const auto* loop = std::get_if<Loop>(&node)) {
      visit_assignments(loop->body, visit);
      if (loop->combine) visit_assignments(loop->combine->body, visit);
    }
  }
}

// v += e, v = v + e, v = max(v, e), v = min(v, e).
bool Builder::accumulates(ValueId target, ExprId from, bool plus) const {
  const Expr& e = kernel_[from];
  if (plus) return true;
  if (e.kind != Kind::call || e.args.size() != 2) return false;
  const Expr& first = kernel_[e.args[0]];
  const bool folds = e.function == Function::add || e.function == Function::max || e.function == Function::min;
  return folds && first.kind == Kind::value && first.value == target;
}

// State that a loop only adds to, or takes the maximum of, ends the same for every partition, up to rounding. Other
// state may end with another scale or shift (sums relative to a stale maximum), which divides out later; until it does,
// what follows from it is loosely scaled, and a conversion may round it anywhere within a step.
void Builder::find_loosely_scaled() {
  loosely_scaled_.assign(kernel_.values.size(), false);
  bool changed = true;
  while (changed) {
    changed = false;
    const auto visit = [&](bool in_loop) {
      return [&, in_loop](ValueId target, ExprId from, bool plus) {
        if (loosely_scaled_[position(target.index)]) return;
        const bool state = in_loop && kernel_[target].carried && !accumulates(target, from, plus);
        if (state || loosely_scaled(from)) loosely_scaled_[position(target.index)] = changed = true;
      };
    };
    visit_assignments(kernel_.body, visit(false));
    for (const Statement& statement : kernel_.statements)
      if (const auto* loop = std::get_if<Loop>(&statement.node)) visit_assignments(loop->body, visit(true));
  }
}

bool Builder::loosely_scaled(ExprId id) const {
  const Expr& e = kernel_[id];
  if (e.kind == Kind::value) return loosely_scaled_[position(e.value.index)];
  const bool compares = e.kind == Kind::call && info(e.function).gives_boolean;
  const bool divides = e.kind == Kind::call && e.function == Function::div;
  if (compares) return false;
  if (divides) return loosely_scaled(e.args[0]) != loosely_scaled(e.args[1]);
  return std::any_of(e.args.begin(), e.args.end(), [&](ExprId arg) { return loosely_scaled(arg); });
}

// Marks what follows, in a loop's body, from the state that the loop carries.
void Builder::enter_state(const std::vector<StatementId>& ids) {
  bool changed = true;
  while (changed) {
    changed = false;
    visit_assignments(ids, [&](ValueId target, ExprId from, bool) {
      if (state_dependent_[position(target.index)] || (!kernel_[target].carried && !depends_on_state(from))) return;
      state_dependent_[position(target.index)] = changed = true;
    });
  }
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

// v * e or e * v.
bool Builder::is_product_with(ExprId id, ValueId value) const {
  const Expr& e = kernel_[id];
  if (e.kind != Kind::call || e.function != Function::mul) return false;
  return std::any_of(e.args.begin(), e.args.end(),
                     [&](ExprId arg) { return kernel_[arg].kind == Kind::value && kernel_[arg].value == value; });
}

// v = v * e + sum[...] f or v = v + sum[...] f.
bool Builder::is_rescaled_sum(const Assign& node) const {
  const Expr& e = kernel_[node.expr];
  if (e.kind != Kind::call || e.function != Function::add || !is_floating(e.type)) return false;
  const Expr& base = kernel_[e.args[0]];
  const Expr& added = kernel_[e.args[1]];
  const bool own = base.kind == Kind::value && base.value == node.target;
  return added.kind == Kind::reduce && added.reduce == ReduceOp::sum &&
         (own || is_product_with(e.args[0], node.target));
}

int Builder::assign(const Assign& node, SourceSpan span) {
  StatementNode s;
  s.kind = StatementNode::Kind::assign;
  s.span = span;
  s.target = node.target.index;
  s.axes = program_.values[position(s.target)].axes;
  s.accumulate = node.accumulate;
  AxisSet axes = program_.parallel_set;
  for (const int axis : s.axes) axes.set(position(axis));
  target_ = s.target;
  reads_target_ = false;
  const Context context = {axes, {}, false, false};
  const Expr& root_expr = kernel_[node.expr];
  if (!node.accumulate && is_rescaled_sum(node)) {
    s.accumulate = true;
    s.base = expr(root_expr.args[0], context);
    s.expr = expr(root_expr.args[1], context);
  } else {
    s.expr = expr(node.expr, context);
    s.rescale = is_product_with(node.expr, node.target);
  }
  if (s.accumulate) program_.values[position(s.target)].accumulates = true;
  if (node.when) s.when = expr(*node.when, {axes, {}, false, false});
  s.reads_target = reads_target_;
  target_ = -1;
  s.active = statement_mask(axes);
  const Node& root = program_.nodes[position(s.expr)];
  s.expr_type = root.type;
  s.accumulate_rounding = unit_roundoff(kernel_[node.target].type);
  if (root.kind == Kind::reduce) s.accumulate_rounding = std::max(s.accumulate_rounding, root.term_rounding);
  if (s.base >= 0) s.expr_type = kernel_[node.expr].type;
  defined_.insert(s.target);
  program_.statements.push_back(std::move(s));
  return static_cast<int>(program_.statements.size()) - 1;
}

int Builder::carry(const Carry& node, SourceSpan span) {
  const int index = assign(Assign{node.target, false, node.init, std::nullopt}, span);
  program_.statements[position(index)].kind = StatementNode::Kind::carry;
  return index;
}

int Builder::store(const Store& node, SourceSpan span) {
  StatementNode s;
  s.kind = StatementNode::Kind::store;
  s.span = span;
  s.target = node.tensor.index;
  AxisSet free = free_axes(node.expr);
  for (const ExprId index : node.indices) free |= free_axes(index);
  if (node.when) free |= free_axes(*node.when);
  free |= program_.parallel_set;
  for (int axis = 0; axis < kPoint; ++axis)
    if (free.test(position(axis)) && !program_.parallel_set.test(position(axis))) s.axes.push_back(axis);
  for (const ExprId index : node.indices) s.indices.push_back(expr(index, {free, {}, false, false}));
  s.expr = expr(node.expr, {free, {}, false, true});
  if (node.when) s.when = expr(*node.when, {free, {}, false, false});
  s.active = statement_mask(free);
  s.expr_type = program_.nodes[position(s.expr)].type;
  program_.statements.push_back(std::move(s));
  return static_cast<int>(program_.statements.size()) - 1;
}

int Builder::loop(const Loop& node, SourceSpan span) {
  StatementNode s;
  s.kind = StatementNode::Kind::loop;
  s.span = span;
  s.loop = static_cast<int>(program_.loops.size());
  program_.loops.emplace_back();
  const std::set<int> defined_before = defined_;
  const int outer_condition = condition_, outer_loop = loop_;
  loop_ = s.loop;
  const std::vector<bool> outer_state = state_dependent_;
  enter_state(node.body);
  if (node.where) {
    AxisSet all;
    all.set();
    const int own = expr(*node.where, {all, {}, false, false});
    condition_ = condition_ < 0 ? own : call(Function::logical_and, {condition_, own});
  }
  const std::vector<int> statements = body(node.body);
  condition_ = outer_condition;
  loop_ = outer_loop;
  state_dependent_ = outer_state;
  LoopNode& built = program_.loops[position(s.loop)];
  built.axis = node.axis.index;
  built.ordered = node.ordered;
  built.body = statements;
  visit_assignments(node.body, [&](ValueId target, ExprId, bool) {
    if (!kernel_[target].carried && !defined_before.contains(target.index)) built.resets.push_back(target.index);
  });
  if (node.combine) {
    built.combines = true;
    for (const ValueId id : node.combine->carried) built.carried.push_back(id.index);
    for (const ValueId id : node.combine->others) built.others.push_back(id.index);
    const std::vector<int> combine_body = body(node.combine->body);
    program_.loops[position(s.loop)].combine_body = combine_body;
  }
  program_.statements.push_back(std::move(s));
  return static_cast<int>(program_.statements.size()) - 1;
}

int Builder::statement(StatementId id) {
  const Statement& s = kernel_[id];
  if (const auto* node = std::get_if<Assign>(&s.node)) return assign(*node, s.span);
  if (const auto* node = std::get_if<Carry>(&s.node)) return carry(*node, s.span);
  if (const auto* node = std::get_if<Store>(&s.node)) return store(*node, s.span);
  return loop(std::get<Loop>(s.node), s.span);
}

std::vector<int> Builder::body(const std::vector<StatementId>& ids) {
  std::vector<int> result;
  for (const StatementId id : ids) result.push_back(statement(id));
  return result;
}

Result<Program> Builder::build() {
  if (kernel_.axes.size() >= kMaxAxes) return fail("the oracle takes at most {} axes", kMaxAxes);
  add_tables();
  state_dependent_.assign(kernel_.values.size(), false);
  find_loosely_scaled();
  program_.body = body(kernel_.body);
  if (error_) return tl::unexpected(*error_);
  for (LoopNode& loop : program_.loops)
    for (std::size_t v = 0; v < program_.values.size(); ++v)
      if (std::ranges::find(program_.values[v].axes, loop.axis) != program_.values[v].axes.end())
        loop.tile_values.push_back(static_cast<int>(v));
  return std::move(program_);
}

}  // namespace

std::int64_t constant_of(const Kernel& kernel, ExprId id, const std::vector<std::int64_t>& sizes) {
  const auto value = [&](const auto& self, ExprId which) -> double {
    const Expr& e = kernel[which];
    if (e.kind == Kind::literal) return e.number;
    if (e.kind == Kind::dim) return static_cast<double>(sizes[position(e.dim.index)]);
    if (e.kind == Kind::option) return kernel[e.option].value;
    if (e.kind == Kind::convert) return round_to(e.type, self(self, e.args[0]));
    std::vector<double> operands;
    for (const ExprId arg : e.args) operands.push_back(self(self, arg));
    return e.kind == Kind::call ? pipethreader::evaluate(e.function, operands, true) : 0;
  };
  return static_cast<std::int64_t>(value(value, id));
}

Result<Program> build_program(const Kernel& kernel, const std::vector<std::int64_t>& sizes,
                              const std::vector<double>& scalars) {
  return Builder(kernel, sizes, scalars).build();
}

}  // namespace pipethreader::oracle
