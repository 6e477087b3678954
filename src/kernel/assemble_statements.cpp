// The statements' half of the Assembler: targets, stores, and the ranges of axes that only a left side names.
#include <algorithm>

#include "kernel/assembler.h"
#include "kernel/print_expr.h"

namespace pipethreader::kernel {

void Assembler::add_statement(Statement statement) {
  blocks_.back().emplace_back(kernel_.statements.size());
  kernel_.statements.push_back(std::move(statement));
}

std::optional<std::vector<AxisId>> Assembler::plain_axes(const Target& target) {
  std::vector<AxisId> axes;
  for (ExprId index : target.indices) {
    const Expr& e = kernel_[index];
    if (e.kind != Expr::Kind::axis) {
      reporter_.report(Message::not_a_plain_axis, e.span, target.name);
      return std::nullopt;
    }
    if (std::find(axes.begin(), axes.end(), e.axis) != axes.end()) {
      const std::string text = fmt::format("{}[...]", target.name);
      reporter_.report(Message::repeated_axis, e.span, text, kernel_[e.axis].name);
      return std::nullopt;
    }
    axes.push_back(e.axis);
  }
  return axes;
}

ValueId Assembler::new_value(const Target& target, std::vector<AxisId> axes, bool carried) {
  const ValueId id(kernel_.values.size());
  if (!declare(target.name, {Symbol::Kind::value, kernel_.values.size()}, target.span)) return ValueId();
  kernel_.values.push_back({.name = target.name,
                            .type = target.type.value_or(ScalarType::f32),
                            .axes = std::move(axes),
                            .carried = carried,
                            .typed = target.type.has_value(),
                            .span = target.span});
  return id;
}

void Assembler::carry(const Target& target, ExprId init) {
  reported_.clear();
  infer_ranges(target, init);
  const auto axes = plain_axes(target);
  if (!axes) return;
  if (const auto old = find(target.name); old && old->kind == Symbol::Kind::value)
    return reporter_.report(Message::carry_redeclared, target.span, target.name);
  const ValueId value = new_value(target, *axes, true);
  if (value.valid()) add_statement({Carry{value, init}, target.span});
}

// The value a left side means: the visible one of that name, or a new one.
std::optional<ValueId> Assembler::target_value(const Target& target, const std::vector<AxisId>& axes) {
  const auto symbol = find(target.name);
  if (!symbol) {
    const ValueId fresh = new_value(target, axes, false);
    return fresh.valid() ? std::optional(fresh) : std::nullopt;
  }
  const Value& value = kernel_.values[symbol->index];
  if (value.axes != axes) {
    reporter_.report(Message::axes_mismatch, target.span, target.name, axis_names(kernel_, value.axes),
                     axis_names(kernel_, axes));
    return std::nullopt;
  }
  if (target.type) {
    reporter_.report(Message::type_declared_late, target.span, target.name);
    return std::nullopt;
  }
  return ValueId(symbol->index);
}

void Assembler::assign(const Target& target, bool accumulate, ExprId expr, std::optional<ExprId> when) {
  reported_.clear();
  infer_ranges(target, expr);
  const auto symbol = find(target.name);
  if (symbol && symbol->kind == Symbol::Kind::tensor)
    return store(target, TensorId(symbol->index), accumulate, expr, when);
  if (symbol && symbol->kind != Symbol::Kind::value)
    return reporter_.report(Message::wrong_kind, target.span, target.name, describe(symbol->kind),
                            "a value or an output");
  const auto axes = plain_axes(target);
  if (!axes) return;
  if (!symbol && accumulate) return reporter_.report(Message::accumulate_undefined, target.span, target.name);
  if (const auto value = target_value(target, *axes))
    add_statement({Assign{*value, accumulate, expr, when}, target.span});
}

void Assembler::store(const Target& target, TensorId tensor, bool accumulate, ExprId expr, std::optional<ExprId> when) {
  if (!kernel_[tensor].output) return reporter_.report(Message::input_assigned, target.span, target.name);
  if (accumulate) return reporter_.report(Message::accumulate_output, target.span, target.name);
  if (target.type) return reporter_.report(Message::type_declared_late, target.span, target.name);
  add_statement({Store{tensor, target.indices, expr, when}, target.span});
}

// --- ranges ----------------------------------------------------------------------------------------------------

// The sizes that `axis` would have to run over: of the dims it indexes alone, and of the values' axes it stands for.
void Assembler::candidates(ExprId expr, AxisId axis, std::vector<ExprId>& extents) const {
  const Expr& e = kernel_[expr];
  for (std::size_t i = 0; i < e.args.size(); ++i) {
    const Expr& arg = kernel_[e.args[i]];
    candidates(e.args[i], axis, extents);
    if (arg.kind != Expr::Kind::axis || arg.axis != axis) continue;
    if (e.kind == Expr::Kind::access && i < kernel_[e.tensor].shape.size())
      extents.push_back(kernel_[e.tensor].shape[i]);
    if (e.kind == Expr::Kind::value && i < kernel_[e.value].axes.size())
      extents.push_back(kernel_[kernel_[e.value].axes[i]].extent);
  }
}

void Assembler::infer_ranges(const Target& target, ExprId expr) {
  for (AxisId axis : std::exchange(pending_, {})) {
    std::vector<ExprId> extents;
    const auto symbol = find(target.name);
    for (std::size_t i = 0; symbol && symbol->kind == Symbol::Kind::tensor && i < target.indices.size(); ++i) {
      const Expr& index = kernel_[target.indices[i]];
      const auto& shape = kernel_.tensors[symbol->index].shape;
      if (index.kind == Expr::Kind::axis && index.axis == axis && i < shape.size()) extents.push_back(shape[i]);
    }
    candidates(expr, axis, extents);
    std::erase_if(extents, [](ExprId e) { return !e.valid(); });
    Axis& node = kernel_.axes[static_cast<std::size_t>(axis.index)];
    if (extents.empty()) {
      if (!reporter_.failed()) reporter_.report(Message::range_not_inferable, node.span, node.name);
      node.extent = literal(0, ScalarType::i32, node.span);
      continue;
    }
    node.extent = extents.front();
    for (ExprId other : extents)
      if (!same_expr(kernel_, other, extents.front())) {
        reporter_.report(Message::range_ambiguous, node.span, node.name, to_text(kernel_, extents.front()),
                         to_text(kernel_, other));
        break;
      }
  }
}

// --- combine ---------------------------------------------------------------------------------------------------

std::vector<ValueId> Assembler::carried_by(const std::vector<StatementId>& body) const {
  std::vector<ValueId> assigned;
  std::vector<ValueId> declared;
  const auto walk = [&](const auto& self, const std::vector<StatementId>& block) -> void {
    for (StatementId id : block) {
      if (const auto* carry = std::get_if<Carry>(&kernel_[id].node)) declared.push_back(carry->target);
      if (const auto* assign = std::get_if<Assign>(&kernel_[id].node)) assigned.push_back(assign->target);
      if (const auto* inner = std::get_if<Loop>(&kernel_[id].node)) self(self, inner->body);
    }
  };
  walk(walk, body);
  std::sort(assigned.begin(), assigned.end());
  assigned.erase(std::unique(assigned.begin(), assigned.end()), assigned.end());
  std::erase_if(assigned, [&](ValueId v) {
    return !kernel_[v].carried || std::find(declared.begin(), declared.end(), v) != declared.end();
  });
  return assigned;
}

bool Assembler::combine_names(Combine& combine, const std::vector<StatementId>& loop_body,
                              const std::vector<std::string>& names, SourceSpan span) {
  combine.carried = carried_by(loop_body);
  if (combine.carried.size() != names.size()) {
    std::string list;
    for (ValueId v : combine.carried) list += (list.empty() ? "" : ", ") + kernel_[v].name;
    reporter_.report(Message::combine_count, span, combine.carried.size(), list, names.size());
    return false;
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Value& mine = kernel_[combine.carried[i]];
    const ValueId other = new_value({names[i], {}, mine.type, span}, mine.axes, false);
    if (!other.valid()) return false;
    kernel_.values.back().typed = true;
    combine.others.push_back(other);
  }
  return true;
}

}  // namespace pipethreader::kernel
