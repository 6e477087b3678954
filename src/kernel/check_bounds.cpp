// Every access lies in its tensor: for all sizes that `require` admits and all points that `where`, `when` and
// `select` leave.
#include "kernel/analysis.h"
#include "kernel/checks.h"
#include "kernel/domain.h"
#include "kernel/print_expr.h"

namespace pipethreader::kernel {
namespace {

class BoundsCheck {
 public:
  BoundsCheck(const Kernel& kernel, Reporter& reporter) : k_(kernel), reporter_(reporter) {}

  void run() {
    Domain domain(k_);
    sizes(domain);
    for (AxisId a : k_.parallel) domain.add_axis(a);
    block(k_.body, domain);
  }

 private:
  // Divisions in sizes are looked at where their axes are in use: h/(H/G) needs G > 0 only while there is an h.
  void sizes(Domain domain) {
    for (const Tensor& t : k_.tensors)
      for (ExprId size : t.shape) nonnegative(size, fmt::format("'{}'", t.name), domain);
    for (const Axis& a : k_.axes) nonnegative(a.extent, fmt::format("axis '{}'", a.name), domain);
  }

  void nonnegative(ExprId size, const std::string& what, Domain& domain) {
    const std::size_t before = reporter_.count();
    expression(size, domain);
    const auto p = domain.polynomial(size);
    if (reporter_.count() == before && (!p || !domain.proves_nonnegative(*p)))
      reporter_.report(Message::size_negative, k_[size].span, what, to_text(k_, size));
  }

  // --- expressions ---------------------------------------------------------------------------------------------
  void expression(ExprId id, const Domain& domain) {
    const Expr& e = k_[id];
    switch (e.kind) {
      case Expr::Kind::access:
        for (std::size_t i = 0; i < e.args.size(); ++i)
          index(k_[e.tensor].name, i, e.args[i], k_[e.tensor].shape[i], domain);
        return;
      case Expr::Kind::value:
        for (std::size_t i = 0; i < e.args.size(); ++i) {
          const AxisId axis = k_[e.value].axes[i];
          if (k_[e.args[i]].kind == Expr::Kind::axis && k_[e.args[i]].axis == axis) continue;
          index(k_[e.value].name, i, e.args[i], k_[axis].extent, domain);
        }
        return;
      case Expr::Kind::reduce:
        return reduce(e, domain);
      case Expr::Kind::call:
        return call(e, domain);
      default:
        for (ExprId arg : e.args) expression(arg, domain);
    }
  }

  [[gnu::noinline]] void index(const std::string& name, std::size_t position, ExprId id, ExprId size,
                               const Domain& known) {
    Domain domain = known;
    if (domain.empty()) return;
    const std::size_t before = reporter_.count();
    expression(id, domain);
    const auto i = domain.polynomial(id);
    const auto n = domain.polynomial(size);
    if (reporter_.count() > before) return;
    if (!i || !domain.proves_nonnegative(*i))
      reporter_.report(Message::index_below, k_[id].span, name, position + 1, to_text(k_, id));
    if (!i || !n || !domain.proves_nonnegative(*n - 1 - *i))
      reporter_.report(Message::index_above, k_[id].span, name, position + 1, to_text(k_, id), to_text(k_, size));
  }

  [[gnu::noinline]] void reduce(const Expr& e, const Domain& known) {
    Domain domain = known;
    for (AxisId a : e.axes) domain.add_axis(a);
    if (e.args.size() > 1) {
      expression(e.args[1], domain);
      domain.assume(e.args[1], true);
    }
    expression(e.args[0], domain);
  }

  void call(const Expr& e, const Domain& domain) {
    const bool guards =
        e.function == Function::select || e.function == Function::logical_and || e.function == Function::logical_or;
    if (guards) return guard(e, domain);
    for (const ExprId arg : e.args) expression(arg, domain);
    if ((e.function == Function::div || e.function == Function::mod) && is_integer(e.type)) divisor(e.args[1], domain);
  }

  // Not inlined, as the next are not: a domain is large, and expressions are deep.
  [[gnu::noinline]] void guard(const Expr& e, const Domain& domain) {
    expression(e.args[0], domain);
    for (std::size_t i = 1; i < e.args.size(); ++i) {
      Domain guarded = domain;
      guarded.assume(e.args[0], e.function == Function::select ? i == 1 : e.function == Function::logical_and);
      expression(e.args[i], guarded);
    }
  }

  [[gnu::noinline]] void divisor(ExprId id, const Domain& known) {
    Domain domain = known;
    const auto d = domain.polynomial(id);
    if (!domain.empty() && (!d || !domain.proves_nonnegative(*d - 1)))
      reporter_.report(Message::divisor_not_positive, k_[id].span, to_text(k_, id));
  }

  // --- statements ----------------------------------------------------------------------------------------------
  void block(const std::vector<StatementId>& statements, const Domain& domain) {
    for (StatementId id : statements) std::visit([&](const auto& node) { statement(node, domain); }, k_[id].node);
  }

  void right_side(ExprId expr, const std::optional<ExprId>& when, Domain& domain) {
    if (when) {
      expression(*when, domain);
      domain.assume(*when, true);
    }
    expression(expr, domain);
  }

  void statement(const Carry& c, Domain domain) {
    for (AxisId a : k_[c.target].axes) domain.add_axis(a);
    right_side(c.init, std::nullopt, domain);
  }

  void statement(const Assign& a, Domain domain) {
    for (AxisId axis : k_[a.target].axes) domain.add_axis(axis);
    right_side(a.expr, a.when, domain);
  }

  void statement(const Store& s, Domain domain) {
    std::vector<AxisId> axes;
    for (ExprId i : s.indices)
      for (AxisId a : free_axes(k_, i)) axes.push_back(a);
    for (AxisId a : axes) domain.add_axis(a);
    right_side(s.expr, s.when, domain);
    for (std::size_t i = 0; i < s.indices.size(); ++i)
      index(k_[s.tensor].name, i, s.indices[i], k_[s.tensor].shape[i], domain);
    if (!s.indices.empty() && !domain.tells_apart(s.indices, axes))
      reporter_.report(Message::output_overlaps, k_[s.indices[0]].span, k_[s.tensor].name);
  }

  void statement(const Loop& l, Domain domain) {
    if (l.combine) block(l.combine->body, domain);
    domain.add_axis(l.axis);
    if (l.where) {
      expression(*l.where, domain);
      domain.assume(*l.where, true);
    }
    block(l.body, domain);
  }

  const Kernel& k_;
  Reporter& reporter_;
};

}  // namespace

void check_bounds(const Kernel& kernel, Reporter& reporter) { BoundsCheck(kernel, reporter).run(); }

}  // namespace pipethreader::kernel
