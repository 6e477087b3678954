#include "task/rewrite.h"

#include <algorithm>
#include <limits>

namespace pipethreader::task {

using namespace kernel;

namespace {

void collect(const Kernel& kernel, ExprId id, std::set<AxisId>& axes, std::set<ValueId>& values) {
  const Expr& e = kernel[id];
  if (e.kind == Expr::Kind::axis) axes.insert(e.axis);
  if (e.kind == Expr::Kind::value) {
    values.insert(e.value);
    for (const AxisId axis : kernel[e.value].axes) {
      if (e.args.empty()) axes.insert(axis);
    }
  }
  std::set<AxisId> inner;
  std::set<AxisId>& target = e.kind == Expr::Kind::reduce ? inner : axes;
  for (const ExprId arg : e.args) collect(kernel, arg, target, values);
  if (e.kind == Expr::Kind::reduce) {
    for (const AxisId bound : e.axes) inner.erase(bound);
    axes.insert(inner.begin(), inner.end());
  }
}

std::string free_name(const Kernel& kernel, const std::string& stem) {
  const auto taken = [&](const std::string& name) {
    const auto named = [&](const auto& item) { return item.name == name; };
    return std::any_of(kernel.values.begin(), kernel.values.end(), named) ||
           std::any_of(kernel.tensors.begin(), kernel.tensors.end(), named) ||
           std::any_of(kernel.scalars.begin(), kernel.scalars.end(), named) ||
           std::any_of(kernel.axes.begin(), kernel.axes.end(), named) ||
           std::any_of(kernel.dims.begin(), kernel.dims.end(), named);
  };
  std::string name = stem;
  for (int n = 2; taken(name); ++n) name = fmt::format("{}_{}", stem, n);
  return name;
}

}  // namespace

std::set<AxisId> axes_of(const Kernel& kernel, ExprId expr) {
  std::set<AxisId> axes;
  std::set<ValueId> values;
  collect(kernel, expr, axes, values);
  return axes;
}

std::set<ValueId> values_of(const Kernel& kernel, ExprId expr) {
  std::set<AxisId> axes;
  std::set<ValueId> values;
  collect(kernel, expr, axes, values);
  return values;
}

bool is_read_elsewhere(const Kernel& kernel, ExprId expr) {
  const Expr& e = kernel[expr];
  if (e.kind != Expr::Kind::value) return false;
  const std::vector<AxisId>& own = kernel[e.value].axes;
  for (std::size_t i = 0; i < e.args.size(); ++i) {
    const Expr& at = kernel[e.args[i]];
    if (at.kind != Expr::Kind::axis || at.axis != own[i]) return true;
  }
  return false;
}

namespace {

void collect_read_elsewhere(const Kernel& kernel, ExprId expr, std::set<ValueId>& values) {
  if (is_read_elsewhere(kernel, expr)) values.insert(kernel[expr].value);
  for (const ExprId arg : kernel[expr].args) collect_read_elsewhere(kernel, arg, values);
}

}  // namespace

std::set<ValueId> read_elsewhere(const Kernel& kernel, const Statement& statement) {
  std::set<ValueId> values;
  const auto add = [&](const std::optional<ExprId>& e) {
    if (e) collect_read_elsewhere(kernel, *e, values);
  };
  if (const auto* carry = std::get_if<Carry>(&statement.node)) add(carry->init);
  if (const auto* assign = std::get_if<Assign>(&statement.node)) add(assign->expr), add(assign->when);
  if (const auto* store = std::get_if<Store>(&statement.node)) add(store->expr), add(store->when);
  return values;
}

bool same_expr(const Kernel& kernel, ExprId a, ExprId b) {
  if (a == b) return true;
  const Expr& x = kernel[a];
  const Expr& y = kernel[b];
  if (x.kind != y.kind || x.type != y.type || x.number != y.number || x.axis != y.axis || x.dim != y.dim ||
      x.option != y.option || x.scalar != y.scalar || x.value != y.value || x.tensor != y.tensor ||
      x.function != y.function || x.reduce != y.reduce || x.axes != y.axes || x.args.size() != y.args.size()) {
    return false;
  }
  return std::equal(x.args.begin(), x.args.end(), y.args.begin(),
                    [&](ExprId p, ExprId q) { return same_expr(kernel, p, q); });
}

ExprId add_expr(Kernel& kernel, Expr expr) {
  kernel.exprs.push_back(std::move(expr));
  return ExprId(kernel.exprs.size() - 1);
}

ExprId rewrite(Kernel& kernel, ExprId id, const Replace& replace) {
  const std::vector<ExprId> old = kernel[id].args;
  std::vector<ExprId> args;
  args.reserve(old.size());
  for (const ExprId arg : old) args.push_back(rewrite(kernel, arg, replace));
  if (args == old) return replace(id);
  Expr copy = kernel[id];
  copy.args = std::move(args);
  return replace(add_expr(kernel, std::move(copy)));
}

ExprId rename_axis(Kernel& kernel, ExprId expr, AxisId from, AxisId to) {
  return rewrite(kernel, expr, [&](ExprId id) {
    Expr e = kernel[id];
    if (e.kind == Expr::Kind::axis && e.axis == from) return axis_expr(kernel, to);
    if (e.kind == Expr::Kind::reduce && std::find(e.axes.begin(), e.axes.end(), from) != e.axes.end()) {
      std::replace(e.axes.begin(), e.axes.end(), from, to);
      return add_expr(kernel, std::move(e));
    }
    return id;
  });
}

ExprId literal(Kernel& kernel, double number, ScalarType type) {
  Expr e;
  e.kind = Expr::Kind::literal;
  e.type = type;
  e.number = number;
  return add_expr(kernel, std::move(e));
}

ExprId axis_expr(Kernel& kernel, AxisId axis) {
  Expr e;
  e.kind = Expr::Kind::axis;
  e.type = ScalarType::i32;
  e.axis = axis;
  return add_expr(kernel, std::move(e));
}

ExprId value_expr(Kernel& kernel, ValueId value) {
  Expr e;
  e.kind = Expr::Kind::value;
  e.type = kernel[value].type;
  e.value = value;
  for (const AxisId axis : kernel[value].axes) e.args.push_back(axis_expr(kernel, axis));
  return add_expr(kernel, std::move(e));
}

ExprId call(Kernel& kernel, Function function, ScalarType type, std::vector<ExprId> args) {
  Expr e;
  e.kind = Expr::Kind::call;
  e.type = type;
  e.function = function;
  e.args = std::move(args);
  return add_expr(kernel, std::move(e));
}

StatementId add_statement(Kernel& kernel, Statement statement) {
  kernel.statements.push_back(std::move(statement));
  return StatementId(kernel.statements.size() - 1);
}

AxisId add_axis(Kernel& kernel, Axis axis) {
  axis.name = free_name(kernel, axis.name);
  kernel.axes.push_back(std::move(axis));
  return AxisId(kernel.axes.size() - 1);
}

ValueId add_value(Kernel& kernel, const std::string& stem, ScalarType type, std::vector<AxisId> axes) {
  Value value;
  value.name = free_name(kernel, stem);
  value.type = type;
  value.axes = std::move(axes);
  kernel.values.push_back(std::move(value));
  return ValueId(kernel.values.size() - 1);
}

bool sets_zero(const Kernel& kernel, StatementId statement) {
  const auto& node = kernel[statement].node;
  const auto zero = [&](ExprId e) { return kernel[e].kind == Expr::Kind::literal && kernel[e].number == 0; };
  if (const auto* carry = std::get_if<Carry>(&node)) return zero(carry->init);
  const auto* assign = std::get_if<Assign>(&node);
  return assign != nullptr && !assign->when && !assign->accumulate && zero(assign->expr);
}

double identity(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return 0;
    case ReduceOp::max:
      return -std::numeric_limits<double>::infinity();
    case ReduceOp::min:
      return std::numeric_limits<double>::infinity();
  }
  return 0;
}

}  // namespace pipethreader::task
