#include "oracle/builder.h"

#include <algorithm>

#include "oracle/oracle.h"

namespace pipethreader::oracle {

using namespace kernel;
using Kind = Expr::Kind;

namespace {

std::size_t position(std::int32_t index) { return static_cast<std::size_t>(index); }

}  // namespace

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
