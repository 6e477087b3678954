#include "task/explicit_axes.h"

#include <algorithm>

#include "task/rewrite.h"

namespace pipethreader::task {

using namespace kernel;

namespace {

class Closure {
 public:
  explicit Closure(Kernel& kernel) : kernel_(kernel) {}

  // Until nothing changes: a value depends on what its statements and the conditions around them depend on.
  void run() {
    do {
      changed_ = false;
      visit(kernel_.body, {});
    } while (changed_);
  }

 private:
  void depends(ExprId expr, std::set<AxisId>& axes) const {
    for (const AxisId a : axes_of(kernel_, expr)) axes.insert(a);
    for (const ValueId v : values_of(kernel_, expr)) axes.insert(kernel_[v].axes.begin(), kernel_[v].axes.end());
  }

  void visit(const std::vector<StatementId>& body, const std::set<AxisId>& around) {
    for (const StatementId id : body) {
      const Statement& s = kernel_[id];
      std::set<AxisId> axes = around;
      if (const auto* carry = std::get_if<Carry>(&s.node)) {
        depends(carry->init, axes);
        add(carry->target, axes);
      } else if (const auto* assign = std::get_if<Assign>(&s.node)) {
        depends(assign->expr, axes);
        if (assign->when) depends(*assign->when, axes);
        add(assign->target, axes);
      } else if (const auto* loop = std::get_if<Loop>(&s.node)) {
        if (loop->where) depends(*loop->where, axes);
        const std::vector<StatementId> inner = loop->body;
        visit(inner, axes);
      }
    }
  }

  void add(ValueId value, const std::set<AxisId>& axes) {
    std::vector<AxisId>& own = kernel_.values[static_cast<std::size_t>(value.index)].axes;
    for (const AxisId a : axes) {
      if (kernel_[a].kind != AxisKind::parallel || std::find(own.begin(), own.end(), a) != own.end()) continue;
      own.push_back(a);
      changed_ = true;
    }
  }

  Kernel& kernel_;
  bool changed_ = false;
};

// The first value below `id` that is read at a bound axis which is not its own: that axis and the value's.
std::optional<std::pair<AxisId, AxisId>> foreign_axis(const Kernel& kernel, ExprId id,
                                                      const std::vector<AxisId>& bound) {
  const Expr& e = kernel[id];
  if (e.kind == Expr::Kind::value) {
    for (std::size_t i = 0; i < e.args.size() && i < kernel[e.value].axes.size(); ++i) {
      const Expr& at = kernel[e.args[i]];
      const AxisId own = kernel[e.value].axes[i];
      if (at.kind == Expr::Kind::axis && at.axis != own &&
          std::find(bound.begin(), bound.end(), at.axis) != bound.end()) {
        return std::pair(at.axis, own);
      }
    }
  }
  for (const ExprId arg : e.args) {
    if (const auto found = foreign_axis(kernel, arg, bound)) return found;
  }
  return std::nullopt;
}

void unify_reduced_axes(Kernel& kernel) {
  for (std::size_t i = 0; i < kernel.exprs.size(); ++i) {
    if (kernel.exprs[i].kind != Expr::Kind::reduce) continue;
    while (const auto foreign = foreign_axis(kernel, ExprId(i), kernel.exprs[i].axes)) {
      const auto [bound, own] = *foreign;
      const Expr& reduce = kernel.exprs[i];
      bool taken = std::find(reduce.axes.begin(), reduce.axes.end(), own) != reduce.axes.end();
      for (const ExprId arg : reduce.args) taken = taken || axes_of(kernel, arg).contains(own);
      if (taken) break;
      const ExprId renamed = rename_axis(kernel, ExprId(i), bound, own);
      kernel.exprs[i] = Expr(kernel[renamed]);
    }
  }
}

}  // namespace

Kernel with_explicit_axes(Kernel kernel) {
  unify_reduced_axes(kernel);
  std::vector<std::size_t> written;
  for (const Value& v : kernel.values) written.push_back(v.axes.size());
  Closure(kernel).run();
  const std::size_t count = kernel.exprs.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (kernel.exprs[i].kind != Expr::Kind::value) continue;
    const ValueId value = kernel.exprs[i].value;
    const std::vector<AxisId> axes = kernel[value].axes;
    for (std::size_t a = written[static_cast<std::size_t>(value.index)]; a < axes.size(); ++a) {
      const ExprId axis = axis_expr(kernel, axes[a]);
      kernel.exprs[i].args.push_back(axis);
    }
  }
  return kernel;
}

}  // namespace pipethreader::task
