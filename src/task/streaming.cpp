#include "task/streaming.h"

#include <algorithm>

#include "task/products.h"
#include "task/rewrite.h"

namespace pipethreader::task {

using namespace kernel;

namespace {

constexpr std::int64_t line_elements = 64;  // of memory, in the types that most tensors have

bool contains(const std::vector<AxisId>& axes, AxisId axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

// Axis sets of the leaves (accesses and values) that depend on one of `bound`.
void leaf_axes(const Kernel& kernel, ExprId id, const std::vector<AxisId>& bound, std::vector<std::set<AxisId>>& out) {
  const Expr& e = kernel[id];
  if (e.kind == Expr::Kind::access || e.kind == Expr::Kind::value) {
    std::set<AxisId> axes = axes_of(kernel, id);
    if (std::any_of(bound.begin(), bound.end(), [&](AxisId a) { return axes.contains(a); })) out.push_back(axes);
    return;
  }
  for (const ExprId arg : e.args) leaf_axes(kernel, arg, bound, out);
}

}  // namespace

ReductionKind classify(const Kernel& kernel, ExprId reduce, const std::set<AxisId>& tiled) {
  const auto is_tiled = [&](AxisId a) { return tiled.contains(a); };
  if (const auto shape = product_shape(kernel, reduce)) {
    const std::set<AxisId> x = axes_of(kernel, shape->x);
    const std::set<AxisId> y = axes_of(kernel, shape->y);
    const bool batch_tiled = std::any_of(
        x.begin(), x.end(), [&](AxisId a) { return y.contains(a) && is_tiled(a) && !contains(shape->k, a); });
    if (!batch_tiled && only_tiled(shape->m, tiled) && only_tiled(shape->n, tiled) && only_tiled(shape->k, tiled)) {
      return ReductionKind::product;
    }
  }
  const Expr& r = kernel[reduce];
  std::set<AxisId> domain;
  for (const AxisId a : axes_of(kernel, r.args[0])) {
    if (is_tiled(a)) domain.insert(a);
  }
  for (const AxisId a : r.axes) domain.insert(a);
  if (domain.size() <= 2) return ReductionKind::tile;
  std::vector<std::set<AxisId>> leaves;
  for (const ExprId arg : r.args) leaf_axes(kernel, arg, r.axes, leaves);
  const bool natural = std::all_of(leaves.begin(), leaves.end(), [&](const std::set<AxisId>& leaf) {
    return std::all_of(domain.begin(), domain.end(), [&](AxisId a) { return leaf.contains(a); });
  });
  return natural ? ReductionKind::tile : ReductionKind::serial;
}

namespace {

class Streamer {
 public:
  Streamer(Kernel kernel, const std::set<AxisId>& tiled, const Limits& limits)
      : kernel_(std::move(kernel)), tiled_(tiled), limits_(limits) {}

  Result<Kernel> run() {
    decide();
    std::vector<StatementId> body = kernel_.body;
    for (const AxisId axis : streamed_inner_) {
      auto sunk = sink(body, axis);
      if (!sunk) return tl::unexpected(sunk.error());
      body = std::move(*sunk);
    }
    kernel_.body = reductions_of(body);
    for (const AxisId axis : streamed_) kernel_.axes[static_cast<std::size_t>(axis.index)].kind = AxisKind::streamed;
    return std::move(kernel_);
  }

 private:
  void decide() {
    const std::vector<ExprId> all = reductions(kernel_);
    // Beside a product a tile has its 64 rows at least: no lane holds a long row of each in its registers.
    const bool products = std::any_of(
        all.begin(), all.end(), [&](ExprId id) { return classify(kernel_, id, tiled_) == ReductionKind::product; });
    const std::int64_t row = products ? limits_.resident_product : limits_.resident_row;
    for (const ExprId id : all) {
      const Expr& r = kernel_[id];
      const ReductionKind kind = classify(kernel_, id, tiled_);
      if (kind == ReductionKind::serial) continue;
      std::int64_t resident = kind == ReductionKind::product ? limits_.resident_product : row;
      if (!products && across_memory(id, r.axes)) resident /= line_elements;
      for (auto it = r.axes.rbegin(); it != r.axes.rend(); ++it) {
        if (kernel_[*it].kind != AxisKind::reduced) continue;
        const auto extent = static_extent(kernel_, *it);
        const bool fits =
            extent && *extent > 0 && *extent <= resident && (kind != ReductionKind::product || tiled_.contains(*it));
        if (fits) {
          resident /= std::max<std::int64_t>(1, *extent);
        } else {
          streamed_.insert(*it);
        }
      }
      if (const auto shape = product_shape(kernel_, id); shape && kind == ReductionKind::product) {
        for (const auto* group : {&shape->m, &shape->n, &shape->k}) in_product_.insert(group->begin(), group->end());
      }
    }
    for (std::size_t i = 0; i < kernel_.axes.size(); ++i) {
      if (kernel_.axes[i].kind != AxisKind::inner) continue;
      const auto extent = static_extent(kernel_, AxisId(i));
      if (!extent || *extent > inner_limit(AxisId(i))) streamed_inner_.insert(AxisId(i));
    }
    streamed_.insert(streamed_inner_.begin(), streamed_inner_.end());
  }

  // Whether something is read along a tiled axis that is not reduced: a tile has a line of memory of it.
  bool across_memory(ExprId id, const std::vector<AxisId>& reduced) const {
    const Expr& e = kernel_[id];
    if (e.kind == Expr::Kind::access && !e.args.empty()) {
      const Expr& last = kernel_[e.args.back()];
      const std::set<AxisId> axes = axes_of(kernel_, id);
      if (last.kind == Expr::Kind::axis && tiled_.contains(last.axis) && !contains(reduced, last.axis) &&
          std::any_of(reduced.begin(), reduced.end(), [&](AxisId a) { return axes.contains(a); }))
        return true;
    }
    return std::any_of(e.args.begin(), e.args.end(), [&](ExprId arg) { return across_memory(arg, reduced); });
  }

  static bool defines(const Kernel& kernel, StatementId id, AxisId axis) {
    const auto* assign = std::get_if<Assign>(&kernel[id].node);
    return assign != nullptr && contains(kernel[assign->target].axes, axis);
  }

  bool reduces_over(ExprId id, AxisId axis) const {
    const Expr& e = kernel_[id];
    if (e.kind == Expr::Kind::reduce && contains(e.axes, axis)) return true;
    return std::any_of(e.args.begin(), e.args.end(), [&](ExprId arg) { return reduces_over(arg, axis); });
  }

  // Every use of a value over `axis` becomes a loop over it in which the value is computed again.
  Result<std::vector<StatementId>> sink(const std::vector<StatementId>& body, AxisId axis) {
    std::vector<StatementId> out;
    std::vector<StatementId> definitions;
    for (const StatementId id : body) {
      const Statement statement = kernel_[id];
      if (const auto value = read_elsewhere_over(statement, axis)) {
        return fail_at(kernel_.file, statement.span,
                       fmt::format("'{}' is read at other places of its axis '{}', {}", kernel_[*value].name,
                                   kernel_[axis].name, why_not_whole(axis)),
                       fmt::format("fix a size of at most {} with --dim", inner_limit(axis)));
      }
      if (defines(kernel_, id, axis)) {
        Assign copy = std::get<Assign>(statement.node);
        if (reduces_over(copy.expr, axis)) {  // needs a whole pass before it can be computed anywhere
          copy.expr = looped(copy.expr, axis, definitions, statement.span, out);
          definitions.push_back(add_statement(kernel_, {copy, statement.span}));
        } else {
          definitions.push_back(id);
        }
      } else if (const auto* assign = std::get_if<Assign>(&statement.node);
                 assign && reduces_over(assign->expr, axis)) {
        Assign copy = *assign;
        copy.expr = looped(copy.expr, axis, definitions, statement.span, out);
        out.push_back(add_statement(kernel_, {copy, statement.span}));
      } else if (const auto* result = std::get_if<Store>(&statement.node);
                 result && !store_uses(*result, axis) && reduces_over(result->expr, axis)) {
        Store copy = *result;
        copy.expr = looped(copy.expr, axis, definitions, statement.span, out);
        out.push_back(add_statement(kernel_, {copy, statement.span}));
      } else if (const auto* store = std::get_if<Store>(&statement.node); store && store_uses(*store, axis)) {
        std::vector<StatementId> inside = definitions;
        inside.push_back(id);
        push_loop(axis, std::nullopt, inside, statement.span, out);
      } else if (mentions(id, axis)) {
        return fail_at(
            kernel_.file, statement.span,
            fmt::format("this statement needs all of the inner axis '{}' at once, {}", kernel_[axis].name,
                        why_not_whole(axis)),
            fmt::format("fix a size of at most {} with --dim, or make it an axis that is computed in parts: `parallel "
                        "{}` or `for {}`",
                        inner_limit(axis), kernel_[axis].name, kernel_[axis].name));
      } else {
        out.push_back(id);
      }
    }
    return out;
  }

  std::int64_t inner_limit(AxisId axis) const {
    return in_product_.contains(axis) ? limits_.resident_product : limits_.resident_row;
  }

  std::string why_not_whole(AxisId axis) const {
    const auto extent = static_extent(kernel_, axis);
    if (!extent) return "but its size is not fixed and it cannot stay on chip";
    return fmt::format("but its size is {} and {}at most {} stay on chip", *extent,
                       in_product_.contains(axis) ? "of an axis of products " : "", inner_limit(axis));
  }

  // A value over the axis that the statement reads at another place of it.
  std::optional<ValueId> read_elsewhere_over(const Statement& s, AxisId axis) const {
    const std::set<ValueId> values = read_elsewhere(kernel_, s);
    const auto found = std::ranges::find_if(values, [&](ValueId v) { return contains(kernel_[v].axes, axis); });
    return found == values.end() ? std::nullopt : std::optional(*found);
  }

  bool store_uses(const Store& store, AxisId axis) const {
    return std::any_of(store.indices.begin(), store.indices.end(),
                       [&](ExprId i) { return axes_of(kernel_, i).contains(axis); });
  }

  bool mentions(StatementId id, AxisId axis) const {
    const Statement& s = kernel_[id];
    const auto uses = [&](ExprId e) { return axes_of(kernel_, e).contains(axis) || reduces_over(e, axis); };
    if (const auto* carry = std::get_if<Carry>(&s.node)) {
      return contains(kernel_[carry->target].axes, axis) || uses(carry->init);
    }
    if (const auto* assign = std::get_if<Assign>(&s.node)) return uses(assign->expr);
    if (const auto* store = std::get_if<Store>(&s.node)) return store_uses(*store, axis) || uses(store->expr);
    const auto& loop = std::get<Loop>(s.node);
    return std::any_of(loop.body.begin(), loop.body.end(),
                       [&](StatementId b) { return mentions(b, axis) || defines(kernel_, b, axis); });
  }

  void push_loop(AxisId axis, std::optional<ExprId> where, std::vector<StatementId> body, SourceSpan span,
                 std::vector<StatementId>& out) {
    Loop loop;
    loop.axis = axis;
    loop.where = where;
    loop.body = std::move(body);
    out.push_back(add_statement(kernel_, {loop, span}));
  }

  // Moves each reduction over `axis` in the expression into a loop with a carried result, put into `out`.
  ExprId looped(ExprId expr, AxisId axis, const std::vector<StatementId>& definitions, SourceSpan span,
                std::vector<StatementId>& out) {
    return rewrite(kernel_, expr, [&](ExprId id) {
      const Expr e = kernel_[id];
      if (e.kind != Expr::Kind::reduce || !contains(e.axes, axis)) return id;
      const ValueId total = new_total(id, "total");
      out.push_back(
          add_statement(kernel_, {Carry{total, literal(kernel_, identity(e.reduce), kernel_[total].type)}, span}));
      std::vector<StatementId> inside = definitions;
      inside.push_back(accumulate(total, id, span));
      push_loop(axis, std::nullopt, inside, span, out);
      return value_expr(kernel_, total);
    });
  }

  ValueId new_total(ExprId reduce, const std::string& stem) {
    const std::set<AxisId> axes = axes_of(kernel_, reduce);
    const ValueId total = add_value(kernel_, stem, kernel_[reduce].type, {axes.begin(), axes.end()});
    kernel_.values[static_cast<std::size_t>(total.index)].carried = true;
    return total;
  }

  // total = op(total, reduction)
  StatementId accumulate(ValueId total, ExprId reduce, SourceSpan span) {
    const Expr r = kernel_[reduce];
    Assign assign;
    assign.target = total;
    if (r.reduce == ReduceOp::sum) {
      assign.accumulate = true;
      assign.expr = reduce;
    } else {
      const Function f = r.reduce == ReduceOp::max ? Function::max : Function::min;
      assign.expr = call(kernel_, f, r.type, {value_expr(kernel_, total), reduce});
    }
    return add_statement(kernel_, {assign, span});
  }

  // --- reduced axes ------------------------------------------------------------------------------------------------

  struct Shared {          // a loop that later reductions over the same domain may join
    std::size_t position;  // of its carry in the output
    StatementId loop;
    std::vector<AxisId> axes;
    std::set<ValueId> written_since;
    std::set<ValueId> totals;
  };

  std::vector<StatementId> reductions_of(const std::vector<StatementId>& body) {
    std::vector<StatementId> out;
    std::vector<Shared> shared;
    for (const StatementId id : body) {
      Statement statement = kernel_[id];
      if (auto* carry = std::get_if<Carry>(&statement.node)) {
        carry->init = streamed(carry->init, std::nullopt, statement.span, out, shared);
        finish(carry->target, statement, out, shared);
      } else if (auto* assign = std::get_if<Assign>(&statement.node)) {
        if (whole_reduction(*assign)) {
          stream_whole(*assign, statement.span, out, shared);
        } else {
          assign->expr = streamed(assign->expr, kernel_[assign->target].name, statement.span, out, shared);
          finish(assign->target, statement, out, shared);
        }
      } else if (auto* store = std::get_if<Store>(&statement.node)) {
        store->expr = streamed(store->expr, kernel_[store->tensor].name, statement.span, out, shared);
        out.push_back(add_statement(kernel_, statement));
      } else {
        auto& loop = std::get<Loop>(statement.node);
        loop.body = reductions_of(loop.body);
        out.push_back(add_statement(kernel_, statement));
        shared.clear();
      }
    }
    return out;
  }

  void finish(ValueId written, const Statement& statement, std::vector<StatementId>& out, std::vector<Shared>& shared) {
    out.push_back(add_statement(kernel_, statement));
    for (Shared& s : shared) s.written_since.insert(written);
  }

  std::vector<AxisId> streamed_axes(ExprId reduce) const {
    std::vector<AxisId> axes;
    if (kernel_[reduce].kind != Expr::Kind::reduce) return axes;
    for (const AxisId a : kernel_[reduce].axes) {
      if (streamed_.contains(a) && kernel_[a].kind == AxisKind::reduced) axes.push_back(a);
    }
    // Uniform axes go outside, the tiled one innermost.
    std::stable_partition(axes.begin(), axes.end(), [&](AxisId a) { return !tiled_.contains(a); });
    return axes;
  }

  bool whole_reduction(const Assign& assign) const {
    return !assign.when && !streamed_axes(assign.expr).empty() &&
           !values_of(kernel_, assign.expr).contains(assign.target) &&
           (!kernel_[assign.target].carried || (assign.accumulate && kernel_[assign.expr].reduce == ReduceOp::sum)) &&
           kernel_[assign.target].type == kernel_[assign.expr].type &&
           (!assign.accumulate || kernel_[assign.expr].reduce == ReduceOp::sum);
  }

  void stream_whole(const Assign& assign, SourceSpan span, std::vector<StatementId>& out, std::vector<Shared>& shared) {
    if (assign.accumulate) {
      nest(streamed_axes(assign.expr), assign.expr, assign.target, span, out);
      for (Shared& s : shared) s.written_since.insert(assign.target);
      return;
    }
    kernel_.values[static_cast<std::size_t>(assign.target.index)].carried = true;
    place(assign.expr, assign.target, span, out, shared);
  }

  ExprId streamed(ExprId expr, const std::optional<std::string>& stem, SourceSpan span, std::vector<StatementId>& out,
                  std::vector<Shared>& shared) {
    return rewrite(kernel_, expr, [&](ExprId id) {
      if (streamed_axes(id).empty()) return id;
      const ValueId total = new_total(id, stem.value_or("value") + "_sum");
      place(id, total, span, out, shared);
      return value_expr(kernel_, total);
    });
  }

  // Joins an earlier loop over an equal domain, or makes a loop of its own.
  void place(ExprId reduce, ValueId total, SourceSpan span, std::vector<StatementId>& out,
             std::vector<Shared>& shared) {
    const std::vector<AxisId> axes = streamed_axes(reduce);
    const StatementId carry = add_statement(
        kernel_, {Carry{total, literal(kernel_, identity(kernel_[reduce].reduce), kernel_[total].type)}, span});
    for (Shared& s : shared) {
      if (!joins(s, axes, reduce)) continue;
      ExprId renamed = reduce;
      for (std::size_t i = 0; i < axes.size(); ++i) renamed = rename_axis(kernel_, renamed, axes[i], s.axes[i]);
      out.insert(out.begin() + static_cast<std::ptrdiff_t>(s.position), carry);
      const StatementId inner = accumulate(total, renamed, span);
      innermost(s.loop).body.push_back(inner);
      s.totals.insert(total);
      for (Shared& other : shared) {
        if (other.position > s.position) ++other.position;
      }
      ++s.position;
      return;
    }
    const std::size_t position = out.size();
    out.push_back(carry);
    nest(axes, reduce, total, span, out);
    shared.push_back({position, out.back(), axes, {}, {total}});
  }

  bool joins(const Shared& s, const std::vector<AxisId>& axes, ExprId reduce) {
    if (s.axes.size() != axes.size()) return false;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      if (!same_expr(kernel_, kernel_[axes[i]].extent, kernel_[s.axes[i]].extent)) return false;
      if (tiled_.contains(axes[i]) != tiled_.contains(s.axes[i])) return false;
    }
    const std::set<ValueId> reads = values_of(kernel_, reduce);
    return std::none_of(reads.begin(), reads.end(),
                        [&](ValueId v) { return s.written_since.contains(v) || s.totals.contains(v); });
  }

  Loop& innermost(StatementId loop) {
    Loop& l = std::get<Loop>(kernel_.statements[static_cast<std::size_t>(loop.index)].node);
    if (l.body.size() == 1 && std::holds_alternative<Loop>(kernel_[l.body[0]].node)) return innermost(l.body[0]);
    return l;
  }

  void nest(const std::vector<AxisId>& axes, ExprId reduce, ValueId total, SourceSpan span,
            std::vector<StatementId>& out) {
    std::vector<StatementId> inside = {accumulate(total, reduce, span)};
    for (auto it = axes.rbegin(); it != axes.rend(); ++it) {
      std::vector<StatementId> outer;
      push_loop(*it, std::nullopt, inside, span, outer);
      inside = outer;
    }
    out.insert(out.end(), inside.begin(), inside.end());
  }

  Kernel kernel_;
  const std::set<AxisId>& tiled_;
  const Limits& limits_;
  std::set<AxisId> streamed_;
  std::set<AxisId> streamed_inner_;
  std::set<AxisId> in_product_;
};

}  // namespace

Result<Kernel> stream(Kernel kernel, const std::set<AxisId>& tiled, const Limits& limits) {
  return Streamer(std::move(kernel), tiled, limits).run();
}

}  // namespace pipethreader::task
