#include "kernel/assembler.h"

#include <algorithm>

namespace pipethreader::kernel {
namespace {

std::string kinds_of_name(const Symbol& s) { return std::string(describe(s.kind)); }

}  // namespace

std::string_view describe(Symbol::Kind kind) {
  switch (kind) {
    case Symbol::Kind::dim:
      return "a dim";
    case Symbol::Kind::axis:
      return "an axis";
    case Symbol::Kind::tensor:
      return "a tensor";
    case Symbol::Kind::scalar:
      return "a scalar";
    case Symbol::Kind::option:
      return "an option";
    case Symbol::Kind::value:
      return "a value";
  }
  return "";
}

std::string axis_names(const Kernel& kernel, std::span<const AxisId> axes) {
  std::string text;
  for (AxisId a : axes) text += (text.empty() ? "" : ",") + kernel[a].name;
  return text;
}

std::string axis_list(const Kernel& kernel, const std::vector<AxisId>& axes) {
  std::string text;
  for (AxisId a : axes) text += (text.empty() ? "" : ", ") + kernel[a].name;
  return text.empty() ? "no axis" : text;
}

bool same_expr(const Kernel& kernel, ExprId a, ExprId b) {
  if (a == b) return true;
  const Expr& x = kernel[a];
  const Expr& y = kernel[b];
  if (x.kind != y.kind || x.args.size() != y.args.size() || x.number != y.number || x.axis != y.axis ||
      x.dim != y.dim || x.option != y.option || x.scalar != y.scalar || x.value != y.value || x.tensor != y.tensor ||
      x.axes != y.axes)
    return false;
  if (x.kind == Expr::Kind::call && x.function != y.function) return false;
  if (x.kind == Expr::Kind::convert && x.type != y.type) return false;
  if (x.kind == Expr::Kind::reduce && x.reduce != y.reduce) return false;
  for (std::size_t i = 0; i < x.args.size(); ++i)
    if (!same_expr(kernel, x.args[i], y.args[i])) return false;
  return true;
}

Assembler::Assembler(std::string name, std::string file, Reporter& reporter) : reporter_(reporter) {
  kernel_.name = std::move(name);
  kernel_.file = std::move(file);
  scopes_.emplace_back();
  blocks_.emplace_back();
}

Kernel Assembler::take() {
  kernel_.body = std::move(blocks_.front());
  return std::move(kernel_);
}

// --- names -----------------------------------------------------------------------------------------------------

std::optional<Symbol> Assembler::find(const std::string& name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
    if (const auto found = scope->find(name); found != scope->end()) return found->second;
  return std::nullopt;
}

// A loop or a reduction may use the name of an inner axis again: another axis, in its own scope.
bool Assembler::may_reuse(const Symbol& old, const Symbol& fresh) const {
  if (old.kind != Symbol::Kind::axis || fresh.kind != Symbol::Kind::axis) return false;
  const AxisKind kind = kernel_.axes[fresh.index].kind;
  return kernel_.axes[old.index].kind == AxisKind::inner && (kind == AxisKind::reduced || kind == AxisKind::streamed);
}

bool Assembler::declare(const std::string& name, Symbol symbol, SourceSpan span) {
  if (const auto old = find(name); old && !may_reuse(*old, symbol)) {
    reporter_.report(Message::name_taken, span, name, kinds_of_name(*old));
    return false;
  }
  const bool global = symbol.kind == Symbol::Kind::axis && kernel_.axes[symbol.index].kind == AxisKind::inner;
  (global ? scopes_.front() : scopes_.back())[name] = symbol;
  return true;
}

std::string Assembler::axes_in_scope() const {
  std::set<AxisId> axes;
  for (const Scope& scope : scopes_)
    for (const auto& [name, symbol] : scope)
      if (symbol.kind == Symbol::Kind::axis && find(name)->index == symbol.index) axes.insert(AxisId(symbol.index));
  return axis_list(kernel_, {axes.begin(), axes.end()});
}

void Assembler::report_unknown(const std::string& name, SourceSpan span) {
  if (!reported_.insert(name).second) return;
  const std::uint32_t later = look_ahead_ ? look_ahead_(name) : 0;
  if (const auto ended = ended_.find(name); ended != ended_.end()) {
    if (ended->second.kind == Symbol::Kind::axis)
      return reporter_.report(Message::axis_not_in_scope, span, name, axes_in_scope());
    return reporter_.report(Message::out_of_scope, span, name);
  }
  if (later > 0) return reporter_.report(Message::used_before_assigned, span, name, later);
  if (function_named(name) && info(*function_named(name)).symbol.empty())
    return reporter_.report(Message::unknown_name, span, name, fmt::format("call the function as `{}(...)`", name));
  reporter_.report(
      Message::unknown_name, span, name,
      fmt::format("an axis is declared by `parallel {0}: SIZE;`, `for {0}: SIZE` or `sum[{0}: SIZE]`", name));
}

void Assembler::open_scope() { scopes_.emplace_back(); }

void Assembler::close_scope() {
  ended_.insert(scopes_.back().begin(), scopes_.back().end());
  scopes_.pop_back();
}

void Assembler::open_block() {
  reported_.clear();
  open_scope();
  blocks_.emplace_back();
}

std::vector<StatementId> Assembler::close_block() {
  close_scope();
  std::vector<StatementId> block = std::move(blocks_.back());
  blocks_.pop_back();
  return block;
}

// --- declarations ----------------------------------------------------------------------------------------------

ExprId Assembler::dim(const std::string& name, SourceSpan span) {
  auto symbol = find(name);
  if (!symbol) {
    symbol = Symbol{Symbol::Kind::dim, kernel_.dims.size()};
    kernel_.dims.push_back({name, std::nullopt, span});
    declare(name, *symbol, span);
  }
  return named(name, span);
}

void Assembler::tensor(const std::string& name, ScalarType type, std::vector<ExprId> shape, bool output,
                       SourceSpan span) {
  if (!declare(name, {Symbol::Kind::tensor, kernel_.tensors.size()}, span)) return;
  kernel_.tensors.push_back({name, type, std::move(shape), output, span});
}

void Assembler::scalar(const std::string& name, ScalarType type, SourceSpan span) {
  if (!declare(name, {Symbol::Kind::scalar, kernel_.scalars.size()}, span)) return;
  kernel_.scalars.push_back({name, type, span});
}

void Assembler::option(const std::string& name, ScalarType type, double value, SourceSpan span) {
  if (!declare(name, {Symbol::Kind::option, kernel_.options.size()}, span)) return;
  kernel_.options.push_back({name, type, value, span});
}

AxisId Assembler::axis(const std::string& name, AxisKind kind, ExprId extent, SourceSpan span) {
  const AxisId id(kernel_.axes.size());
  kernel_.axes.push_back({name, kind, extent, span});
  declare(name, {Symbol::Kind::axis, kernel_.axes.size() - 1}, span);
  if (kind == AxisKind::parallel) kernel_.parallel.push_back(id);
  return id;
}

// --- expressions -----------------------------------------------------------------------------------------------

ExprId Assembler::add(Expr expr) {
  int depth = 0;
  for (ExprId arg : expr.args) depth = std::max(depth, depths_[static_cast<std::size_t>(arg.index)]);
  if (depth == kDeepestTree) {
    reporter_.report(Message::too_deep, expr.span, kDeepestTree);
    depth = 0;
  }
  depths_.push_back(depth + 1);
  kernel_.exprs.push_back(std::move(expr));
  return ExprId(kernel_.exprs.size() - 1);
}

ExprId Assembler::literal(double number, ScalarType type, SourceSpan span) {
  return add({.kind = Expr::Kind::literal, .type = type, .number = number, .span = span});
}

ExprId Assembler::call(Function function, std::vector<ExprId> args, SourceSpan span) {
  const FunctionInfo& f = info(function);
  if (args.size() != static_cast<std::size_t>(f.operands)) {
    reporter_.report(Message::wrong_argument_count, span, f.name, f.operands, args.size());
    args.resize(static_cast<std::size_t>(f.operands), literal(0, ScalarType::i32, span));
  }
  return add({.kind = Expr::Kind::call, .function = function, .args = std::move(args), .span = span});
}

ExprId Assembler::negative(ExprId number, SourceSpan span) {
  const Expr& e = kernel_[number];
  return literal(e.number == 0 && is_integer(e.type) ? 0 : -e.number, e.type, span);
}

ExprId Assembler::convert(ScalarType type, ExprId arg, SourceSpan span) {
  return add({.kind = Expr::Kind::convert, .type = type, .args = {arg}, .span = span});
}

ExprId Assembler::reduce(ReduceOp op, std::vector<AxisId> axes, ExprId body, std::optional<ExprId> where,
                         SourceSpan span) {
  std::vector<ExprId> args = {body};
  if (where) args.push_back(*where);
  return add(
      {.kind = Expr::Kind::reduce, .reduce = op, .axes = std::move(axes), .args = std::move(args), .span = span});
}

ExprId Assembler::named(const std::string& name, SourceSpan span) {
  const auto symbol = find(name);
  Expr e{.span = span};
  if (!symbol) {
    report_unknown(name, span);
    return add(e);
  }
  switch (symbol->kind) {
    case Symbol::Kind::dim:
      e.kind = Expr::Kind::dim;
      e.dim = DimId(symbol->index);
      break;
    case Symbol::Kind::axis:
      e.kind = Expr::Kind::axis;
      e.axis = AxisId(symbol->index);
      break;
    case Symbol::Kind::scalar:
      e.kind = Expr::Kind::scalar;
      e.scalar = ScalarId(symbol->index);
      break;
    case Symbol::Kind::option:
      e.kind = Expr::Kind::option;
      e.option = OptionId(symbol->index);
      break;
    case Symbol::Kind::value:
      e.kind = Expr::Kind::value;
      e.value = ValueId(symbol->index);
      break;
    case Symbol::Kind::tensor:
      reporter_.report(Message::needs_indices, span, name, kernel_.tensors[symbol->index].shape.size());
      break;
  }
  return add(std::move(e));
}

ExprId Assembler::element(const std::string& name, std::vector<ExprId> indices, SourceSpan span) {
  const auto symbol = find(name);
  Expr e{.args = std::move(indices), .span = span};
  if (!symbol) {
    report_unknown(name, span);
  } else if (symbol->kind == Symbol::Kind::tensor) {
    e.kind = Expr::Kind::access;
    e.tensor = TensorId(symbol->index);
  } else if (symbol->kind == Symbol::Kind::value) {
    e.kind = Expr::Kind::value;
    e.value = ValueId(symbol->index);
  } else {
    reporter_.report(Message::takes_no_indices, span, name, kinds_of_name(*symbol));
  }
  return add(std::move(e));
}

std::optional<AxisId> Assembler::existing_axis(const std::string& name, SourceSpan span) {
  const auto symbol = find(name);
  if (!symbol) {
    report_unknown(name, span);
    return std::nullopt;
  }
  if (symbol->kind != Symbol::Kind::axis) {
    reporter_.report(Message::wrong_kind, span, name, kinds_of_name(*symbol), "an axis");
    return std::nullopt;
  }
  return AxisId(symbol->index);
}

ExprId Assembler::target_index(const std::string& name, SourceSpan span) {
  const auto symbol = find(name);
  if (!symbol) pending_.push_back(axis(name, AxisKind::inner, ExprId(), span));
  if (symbol && symbol->kind == Symbol::Kind::tensor) {
    reporter_.report(Message::wrong_kind, span, name, kinds_of_name(*symbol), "an axis");
    return literal(0, ScalarType::i32, span);
  }
  return named(name, span);
}

}  // namespace pipethreader::kernel
