// Which axes an expression may use, which values exist where, who writes the outputs.
#include <algorithm>
#include <set>

#include "kernel/analysis.h"
#include "kernel/assembler.h"
#include "kernel/checks.h"
#include "kernel/print_expr.h"

namespace pipethreader::kernel {
namespace {

template <class T>
bool contains(const std::vector<T>& list, T item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

std::string counted(std::size_t n, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", n, n == 1 ? one : many);
}

std::string_view kind_name(AxisKind kind) {
  switch (kind) {
    case AxisKind::parallel:
      return "parallel";
    case AxisKind::streamed:
      return "streamed";
    case AxisKind::inner:
      return "inner";
    case AxisKind::reduced:
      return "reduced";
  }
  return "";
}

class ScopeCheck {
 public:
  ScopeCheck(const Kernel& kernel, Reporter& reporter)
      : k_(kernel), reporter_(reporter), in_scope_(kernel.axes.size()) {}

  void run() {
    for (std::size_t i = 0; i < k_.axes.size(); ++i)
      in_scope_[i] = k_.axes[i].kind == AxisKind::parallel || k_.axes[i].kind == AxisKind::inner;
    sizes();
    block(k_.body);
    if (!reporter_.failed()) outputs();  // else they may only follow from what was found
  }

 private:
  // --- sizes and requirements ----------------------------------------------------------------------------------
  void sizes() {
    for (const Tensor& t : k_.tensors)
      for (ExprId size : t.shape) constant(size, fmt::format("the shape of '{}'", t.name));
    for (const Axis& a : k_.axes) constant(a.extent, fmt::format("the size of axis '{}'", a.name));
    for (ExprId r : k_.requirements) constant(r, "`require`");
  }

  void constant(ExprId expr, const std::string& what) {
    if (!is_static(k_, expr)) reporter_.report(Message::size_not_constant, k_[expr].span, what);
  }

  // --- expressions ---------------------------------------------------------------------------------------------
  void expression(ExprId id) {
    const Expr& e = k_[id];
    if (e.kind == Expr::Kind::axis && !in_scope(e.axis)) outside(e.axis, e.span);
    if (e.kind == Expr::Kind::access) access(e);
    if (e.kind == Expr::Kind::value) value(e);
    if (e.kind == Expr::Kind::reduce) return reduce(e);
    for (ExprId arg : e.args) expression(arg);
  }

  bool in_scope(AxisId axis) const { return in_scope_[static_cast<std::size_t>(axis.index)]; }

  void outside(AxisId axis, SourceSpan span) {
    std::vector<AxisId> here;
    for (std::size_t i = 0; i < k_.axes.size(); ++i)
      if (in_scope_[i]) here.emplace_back(i);
    reporter_.report(Message::axis_not_in_scope, span, k_[axis].name, axis_list(k_, here));
  }

  void access(const Expr& e) {
    const Tensor& t = k_[e.tensor];
    if (t.output) return reporter_.report(Message::output_read, e.span, t.name);
    rank(t.name, counted(t.shape.size(), "dim", "dims"), t.shape.size(), e.args.size(), e.span);
    for (ExprId index : e.args) quasi_affine(t.name, index);
  }

  bool rank(const std::string& name, const std::string& has, std::size_t expected, std::size_t used, SourceSpan span) {
    if (expected == used) return true;
    reporter_.report(Message::rank_mismatch, span, name, has, counted(used, "index", "indices"));
    return false;
  }

  void quasi_affine(const std::string& name, ExprId index) {
    bool gathers = false;
    visit_exprs(k_, index, [&](ExprId id) {
      const Expr& e = k_[id];
      if (e.kind != Expr::Kind::access && e.kind != Expr::Kind::value) return;
      const std::string& source = e.kind == Expr::Kind::access ? k_[e.tensor].name : k_[e.value].name;
      reporter_.report(Message::gather_not_supported, k_[index].span, name, source);
      gathers = true;
    });
    if (!gathers && !is_quasi_affine(k_, index)) reporter_.report(Message::index_not_affine, k_[index].span, name);
  }

  // A value's parallel and streamed axes are read as they are; its inner axes at any index.
  void value(const Expr& e) {
    const Value& v = k_[e.value];
    if (!defined_.contains(e.value)) reporter_.report(Message::undefined_value, e.span, v.name);
    if (!rank(v.name, counted(v.axes.size(), "axis", "axes"), v.axes.size(), e.args.size(), e.span)) return;
    bool fits = true;
    std::string used;
    for (std::size_t i = 0; i < e.args.size(); ++i) {
      const Expr& index = k_[e.args[i]];
      used += (i > 0 ? "," : "") + to_text(k_, e.args[i]);
      const bool same = index.kind == Expr::Kind::axis && index.axis == v.axes[i];
      const bool listed = index.kind == Expr::Kind::axis && contains(v.axes, index.axis);
      fits = fits && (same || (k_[v.axes[i]].kind == AxisKind::inner && !listed));
    }
    if (!fits) return reporter_.report(Message::axes_mismatch, e.span, v.name, axis_names(k_, v.axes), used);
    for (ExprId index : e.args) quasi_affine(v.name, index);
  }

  void reduce(const Expr& e) {
    std::vector<AxisId> opened;
    for (AxisId a : e.axes) {
      if (k_[a].kind == AxisKind::parallel) reporter_.report(Message::reduce_parallel, e.span, k_[a].name);
      if (k_[a].kind == AxisKind::reduced && !in_scope(a)) opened.push_back(a);
      if (k_[a].kind != AxisKind::reduced && !in_scope(a)) outside(a, e.span);
    }
    for (AxisId a : opened) in_scope_[static_cast<std::size_t>(a.index)] = true;
    for (ExprId arg : e.args) expression(arg);
    for (AxisId a : opened) in_scope_[static_cast<std::size_t>(a.index)] = false;
  }

  // Every axis of the right side is on the left, or is parallel and so the same throughout.
  void right_side(ExprId expr, const std::vector<AxisId>& left, const std::string& name) {
    expression(expr);
    for (AxisId a : free_axes(k_, expr)) {
      used_.insert(a);
      if (k_[a].kind != AxisKind::parallel && in_scope(a) && !contains(left, a))
        reporter_.report(Message::free_axis, k_[expr].span, k_[a].name, name);
    }
  }

  void guard(const std::optional<ExprId>& when, const std::vector<AxisId>& left, const std::string& name) {
    if (when) right_side(*when, left, name);
  }

  // --- statements ----------------------------------------------------------------------------------------------
  void block(const std::vector<StatementId>& statements) {
    for (StatementId id : statements) {
      const Statement& s = k_[id];
      std::visit([&](const auto& node) { statement(node, s.span); }, s.node);
    }
  }

  std::string target_text(ValueId v) const {
    const Value& value = k_[v];
    return value.name + (value.axes.empty() ? "" : "[" + axis_names(k_, value.axes) + "]");
  }

  void target_axes(ValueId v, SourceSpan span) {
    for (AxisId a : k_[v].axes) {
      used_.insert(a);
      if (!in_scope(a)) outside(a, span);
    }
  }

  void statement(const Carry& c, SourceSpan span) {
    if (combine_) return reporter_.report(Message::statement_in_combine, span, "`carry`");
    target_axes(c.target, span);
    right_side(c.init, k_[c.target].axes, target_text(c.target));
    define(c.target);
  }

  void define(ValueId v) {
    defined_.insert(v);
    if (!levels_.empty()) levels_.back().push_back(v);
  }

  bool defined_here(ValueId v) const { return levels_.empty() || contains(levels_.back(), v); }

  void statement(const Assign& a, SourceSpan span) {
    const Value& v = k_[a.target];
    target_axes(a.target, span);
    right_side(a.expr, v.axes, target_text(a.target));
    guard(a.when, v.axes, target_text(a.target));
    if (!defined_.contains(a.target)) {
      if (a.accumulate) return reporter_.report(Message::accumulate_undefined, span, v.name);
      if (a.when) return reporter_.report(Message::guarded_definition, span, v.name);
      return define(a.target);
    }
    if (defined_here(a.target)) return;
    const bool allowed = combine_ ? contains(combine_->carried, a.target) : v.carried;
    if (!allowed) reporter_.report(Message::assigned_not_carried, span, v.name);
  }

  void statement(const Store& s, SourceSpan span) {
    const Tensor& t = k_[s.tensor];
    if (combine_) return reporter_.report(Message::statement_in_combine, span, "a store");
    rank(t.name, counted(t.shape.size(), "dim", "dims"), t.shape.size(), s.indices.size(), span);
    std::vector<AxisId> left;
    for (ExprId index : s.indices) {
      expression(index);
      quasi_affine(t.name, index);
      for (AxisId a : free_axes(k_, index)) left.push_back(a);
    }
    used_.insert(left.begin(), left.end());
    right_side(s.expr, left, t.name);
    guard(s.when, left, t.name);
    stores_.push_back({s.tensor, left, streams_, span});
  }

  void statement(const Loop& l, SourceSpan span) {
    if (combine_) return reporter_.report(Message::statement_in_combine, span, "a loop");
    const auto axis = static_cast<std::size_t>(l.axis.index);
    in_scope_[axis] = true;
    if (l.where) condition(*l.where);
    streams_.push_back(l.axis);
    nested([&] { block(l.body); });
    streams_.pop_back();
    in_scope_[axis] = false;
    if (!l.combine) return;
    combine_ = &*l.combine;
    nested([&] {
      for (ValueId v : l.combine->others) define(v);
      block(l.combine->body);
    });
    combine_ = nullptr;
  }

  void condition(ExprId where) {
    expression(where);
    visit_exprs(k_, where, [&](ExprId id) {
      if (k_[id].kind == Expr::Kind::value)
        reporter_.report(Message::where_uses_value, k_[id].span, k_[k_[id].value].name);
    });
    for (AxisId a : free_axes(k_, where)) {
      used_.insert(a);
      if (k_[a].kind == AxisKind::inner)
        reporter_.report(Message::where_uses_inner_axis, k_[where].span, k_[a].name, kind_name(k_[a].kind));
    }
  }

  // What is first assigned in a body ends with it.
  template <class Body>
  void nested(const Body& body) {
    const std::set<ValueId> before = defined_;
    levels_.emplace_back();
    body();
    levels_.pop_back();
    defined_ = before;
  }

  // --- outputs -------------------------------------------------------------------------------------------------
  struct Stored {
    TensorId tensor;
    std::vector<AxisId> axes;
    std::vector<AxisId> streams;
    SourceSpan span;
  };

  void outputs() {
    bool any = false;
    for (std::size_t i = 0; i < k_.tensors.size(); ++i) {
      if (!k_.tensors[i].output) continue;
      any = true;
      output(TensorId(i));
    }
    if (!any) reporter_.report(Message::no_output, {}, k_.name);
    for (AxisId a : k_.parallel)
      if (!used_.contains(a)) reporter_.report(Message::unused_parallel_axis, k_[a].span, k_[a].name);
  }

  void output(TensorId tensor) {
    const Tensor& t = k_[tensor];
    const Stored* first = nullptr;
    for (const Stored& s : stores_) {
      if (s.tensor != tensor) continue;
      if (first != nullptr) reporter_.report(Message::output_written_twice, s.span, t.name, first->span.line);
      if (first == nullptr) first = &s;
      std::vector<AxisId> needed = k_.parallel;
      needed.insert(needed.end(), s.streams.begin(), s.streams.end());
      for (AxisId a : needed)
        if (!contains(s.axes, a) && (k_[a].kind == AxisKind::streamed || used_.contains(a)))
          reporter_.report(Message::output_misses_axis, s.span, t.name, k_[a].name, kind_name(k_[a].kind));
    }
    if (first == nullptr) reporter_.report(Message::output_never_written, t.span, t.name);
  }

  const Kernel& k_;
  Reporter& reporter_;
  std::vector<bool> in_scope_;
  std::set<ValueId> defined_;
  std::vector<std::vector<ValueId>> levels_;  // values first assigned in each open body
  std::vector<AxisId> streams_;
  std::set<AxisId> used_;
  std::vector<Stored> stores_;
  const Combine* combine_ = nullptr;
};

}  // namespace

void check_scopes(const Kernel& kernel, Reporter& reporter) { ScopeCheck(kernel, reporter).run(); }

}  // namespace pipethreader::kernel
