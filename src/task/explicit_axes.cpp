#include "task/explicit_axes.h"

#include <algorithm>
#include <map>

#include "task/named_reductions.h"
#include "task/products.h"
#include "task/rewrite.h"

namespace pipethreader::task {

using namespace kernel;

namespace {

class Closure {
 public:
  explicit Closure(Kernel& kernel) : kernel_(kernel) {}

  // Until nothing changes: a value depends on what its statements depend on, and on which points they are done for
  // where that can be seen in it.
  void run() {
    do {
      changed_ = false;
      visit(kernel_.body, {});
    } while (changed_);
  }

 private:
  struct Domain {  // of a loop around a statement
    AxisId axis;
    std::set<AxisId> condition;
  };

  void depends(ExprId expr, std::set<AxisId>& axes) const {
    for (const AxisId a : axes_of(kernel_, expr)) axes.insert(a);
    for (const ValueId v : values_of(kernel_, expr)) axes.insert(kernel_[v].axes.begin(), kernel_[v].axes.end());
  }

  // A reduction sees only the points of its loops.
  void depends_on_points(ExprId expr, const std::vector<Domain>& loops, std::set<AxisId>& axes) const {
    const Expr& e = kernel_[expr];
    for (const ExprId arg : e.args) depends_on_points(arg, loops, axes);
    if (e.kind != Expr::Kind::reduce) return;
    for (const Domain& loop : loops) {
      if (std::find(e.axes.begin(), e.axes.end(), loop.axis) == e.axes.end()) continue;
      axes.insert(loop.condition.begin(), loop.condition.end());
    }
  }

  void visit(const std::vector<StatementId>& body, const std::vector<Domain>& loops) {
    for (const StatementId id : body) {
      const Statement& s = kernel_[id];
      std::set<AxisId> axes;
      if (const auto* carry = std::get_if<Carry>(&s.node)) {
        depends(carry->init, axes);
        write(carry->target, carry->init, loops, axes);
      } else if (const auto* assign = std::get_if<Assign>(&s.node)) {
        depends(assign->expr, axes);
        if (assign->when) depends(*assign->when, axes);
        write(assign->target, assign->expr, loops, axes);
      } else if (const auto* loop = std::get_if<Loop>(&s.node)) {
        if (loop->where) depends(*loop->where, axes);
        std::vector<Domain> more = loops;
        more.push_back({loop->axis, axes});
        const std::vector<StatementId> inner = loop->body;
        visit(inner, more);
      }
    }
  }

  // Loops that the value outlives leave it as it is at points that they do not have. What ends with a loop's body is
  // not seen there.
  void write(ValueId value, ExprId expr, const std::vector<Domain>& loops, std::set<AxisId>& axes) {
    const std::size_t depth = defined_in_.try_emplace(value, loops.size()).first->second;
    for (std::size_t i = depth; i < loops.size(); ++i)
      axes.insert(loops[i].condition.begin(), loops[i].condition.end());
    depends_on_points(expr, loops, axes);
    add(value, axes);
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
  std::map<ValueId, std::size_t> defined_in_;  // how many loops are around its first statement
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

bool same_length(const Kernel& kernel, AxisId a, AxisId b) {
  const auto extent = static_extent(kernel, a);
  return same_expr(kernel, kernel[a].extent, kernel[b].extent) || (extent && extent == static_extent(kernel, b));
}

// Whether nothing has both axes.
bool can_be_one(const Kernel& kernel, AxisId a, AxisId b) {
  const auto both = [&](const auto& axes) {
    return std::find(axes.begin(), axes.end(), a) != axes.end() && std::find(axes.begin(), axes.end(), b) != axes.end();
  };
  if (std::any_of(kernel.values.begin(), kernel.values.end(), [&](const Value& v) { return both(v.axes); }))
    return false;
  for (std::size_t i = 0; i < kernel.exprs.size(); ++i) {
    if (both(axes_of(kernel, ExprId(i)))) return false;
  }
  return std::none_of(kernel.statements.begin(), kernel.statements.end(), [&](const Statement& s) {
    const auto* store = std::get_if<Store>(&s.node);
    if (store == nullptr) return false;
    std::set<AxisId> axes;
    for (const ExprId index : store->indices) axes.merge(axes_of(kernel, index));
    return both(axes);
  });
}

// Everything over `from` is over `to` instead.
void make_one(Kernel& kernel, AxisId from, AxisId to) {
  for (Value& v : kernel.values) std::replace(v.axes.begin(), v.axes.end(), from, to);
  for (Expr& e : kernel.exprs) {
    if (e.kind == Expr::Kind::axis && e.axis == from) e.axis = to;
    std::replace(e.axes.begin(), e.axes.end(), from, to);
  }
  kernel.axes[static_cast<std::size_t>(from.index)].kind = AxisKind::reduced;  // by nothing: it is gone
}

void unify_reduced_axes(Kernel& kernel) {
  for (std::size_t i = 0; i < kernel.exprs.size(); ++i) {
    if (kernel.exprs[i].kind != Expr::Kind::reduce) continue;
    while (const auto foreign = foreign_axis(kernel, ExprId(i), kernel.exprs[i].axes)) {
      const auto [bound, own] = *foreign;
      if (!same_length(kernel, bound, own)) break;
      if (kernel[bound].kind == AxisKind::inner) {  // another value's, that the reduction has got already
        if (!can_be_one(kernel, bound, own)) break;
        make_one(kernel, own, bound);
        continue;
      }
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

Kernel with_explicit_axes(Kernel written_so) {
  Kernel kernel = with_named_reductions(std::move(written_so));
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
