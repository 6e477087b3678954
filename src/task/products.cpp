#include "task/products.h"

#include <algorithm>

#include "task/rewrite.h"

namespace pipethreader::task {

using namespace kernel;

namespace {

ExprId strip_widening(const Kernel& kernel, ExprId id) {
  while (kernel[id].kind == Expr::Kind::convert && kernel[id].type == ScalarType::f32) id = kernel[id].args[0];
  return id;
}

bool tensor_core_type(ScalarType type) { return type == ScalarType::f16 || type == ScalarType::bf16; }

void find_reductions(const Kernel& kernel, ExprId id, std::vector<ExprId>& found) {
  for (const ExprId arg : kernel[id].args) find_reductions(kernel, arg, found);
  if (kernel[id].kind == Expr::Kind::reduce) found.push_back(id);
}

void find_reductions(const Kernel& kernel, const std::vector<StatementId>& body, std::vector<ExprId>& found) {
  for (const StatementId id : body) {
    const Statement& s = kernel[id];
    if (const auto* carry = std::get_if<Carry>(&s.node)) find_reductions(kernel, carry->init, found);
    if (const auto* assign = std::get_if<Assign>(&s.node)) find_reductions(kernel, assign->expr, found);
    if (const auto* store = std::get_if<Store>(&s.node)) find_reductions(kernel, store->expr, found);
    if (const auto* loop = std::get_if<Loop>(&s.node)) find_reductions(kernel, loop->body, found);
  }
}

// Whether an access has an index of this axis and another of `among`, as a window has; the copy engine steps along one.
bool shares_index(const Kernel& kernel, ExprId access, AxisId axis, const std::set<AxisId>& among) {
  const Expr& e = kernel[access];
  if (e.kind != Expr::Kind::access) return false;
  return std::any_of(e.args.begin(), e.args.end(), [&](ExprId index) {
    const std::set<AxisId> axes = axes_of(kernel, index);
    const auto counts = [&](AxisId a) { return among.contains(a); };
    return axes.contains(axis) && std::count_if(axes.begin(), axes.end(), counts) > 1;
  });
}

// Contiguous axes: those that stand alone, with factor 1, in the last index of an access.
void stores_of(const Kernel& kernel, const std::vector<StatementId>& body, std::vector<const Store*>& found) {
  for (const StatementId id : body) {
    if (const auto* store = std::get_if<Store>(&kernel[id].node)) found.push_back(store);
    if (const auto* loop = std::get_if<Loop>(&kernel[id].node)) stores_of(kernel, loop->body, found);
  }
}

}  // namespace

std::optional<std::int64_t> static_extent(const Kernel& kernel, AxisId axis) {
  std::vector<std::int64_t> sizes;
  for (const Dim& dim : kernel.dims) sizes.push_back(dim.size.value_or(-1));
  bool known = true;
  const std::function<void(ExprId)> visit = [&](ExprId id) {
    if (kernel[id].kind == Expr::Kind::dim && !kernel[kernel[id].dim].size) known = false;
    for (const ExprId arg : kernel[id].args) visit(arg);
  };
  visit(kernel[axis].extent);
  if (!known) return std::nullopt;
  return evaluate_size(kernel, kernel[axis].extent, sizes);
}

std::optional<ProductShape> product_shape(const Kernel& kernel, ExprId reduce) {
  const Expr& r = kernel[reduce];
  if (r.kind != Expr::Kind::reduce || r.reduce != ReduceOp::sum) return std::nullopt;
  const Expr& body = kernel[strip_widening(kernel, r.args[0])];
  if (body.kind != Expr::Kind::call || body.function != Function::mul) return std::nullopt;
  ProductShape shape;
  shape.x = strip_widening(kernel, body.args[0]);
  shape.y = strip_widening(kernel, body.args[1]);
  if (!tensor_core_type(kernel[shape.x].type) || kernel[shape.x].type != kernel[shape.y].type) return std::nullopt;
  const std::set<AxisId> x = axes_of(kernel, shape.x);
  const std::set<AxisId> y = axes_of(kernel, shape.y);
  for (const AxisId k : r.axes) {
    if (!x.contains(k) || !y.contains(k)) return std::nullopt;
    shape.k.push_back(k);
  }
  const auto reduced = [&](AxisId a) { return std::find(r.axes.begin(), r.axes.end(), a) != r.axes.end(); };
  for (const AxisId a : x) {
    if (!y.contains(a) && !reduced(a)) shape.m.push_back(a);
  }
  for (const AxisId a : y) {
    if (!x.contains(a) && !reduced(a)) shape.n.push_back(a);
  }
  if (shape.m.empty() || shape.n.empty()) return std::nullopt;
  return shape;
}

std::optional<AxisId> only_tiled(const std::vector<AxisId>& group, const std::set<AxisId>& tiled) {
  std::optional<AxisId> found;
  for (const AxisId axis : group) {
    if (!tiled.contains(axis)) continue;
    if (found) return std::nullopt;
    found = axis;
  }
  return found;
}

std::vector<ExprId> reductions(const Kernel& kernel) {
  std::vector<ExprId> found;
  find_reductions(kernel, kernel.body, found);
  return found;
}

std::set<AxisId> choose_tiled(const Kernel& kernel) {
  std::set<AxisId> tiled;
  const auto parallel = [&](AxisId a) { return kernel[a].kind == AxisKind::parallel; };
  for (std::size_t i = 0; i < kernel.axes.size(); ++i) {
    // Inner and streamed axes stay on chip in tiles; reduced ones are decided by the products below.
    const AxisKind kind = kernel.axes[i].kind;
    if (kind == AxisKind::inner || kind == AxisKind::streamed) tiled.insert(AxisId(i));
  }
  const auto longest = [&](const std::vector<AxisId>& group) {
    return *std::max_element(group.begin(), group.end(), [&](AxisId a, AxisId b) {
      return static_extent(kernel, a).value_or(1 << 30) < static_extent(kernel, b).value_or(1 << 30);
    });
  };
  // The reduced axis to walk in tiles: not one of a window, as long as there is another.
  const auto best_reduced = [&](const ProductShape& shape) {
    std::set<AxisId> all(shape.k.begin(), shape.k.end());
    all.insert(shape.m.begin(), shape.m.end());
    all.insert(shape.n.begin(), shape.n.end());
    std::vector<AxisId> alone;
    for (const AxisId a : shape.k) {
      if (!shares_index(kernel, shape.x, a, all) && !shares_index(kernel, shape.y, a, all)) alone.push_back(a);
    }
    return longest(alone.empty() ? shape.k : alone);
  };
  bool products = false;
  for (const ExprId reduce : reductions(kernel)) {
    const auto shape = product_shape(kernel, reduce);
    if (!shape) continue;
    products = true;
    for (const auto* group : {&shape->m, &shape->n}) {
      const bool has = std::any_of(group->begin(), group->end(), [&](AxisId a) { return tiled.contains(a); });
      if (!has) tiled.insert(longest(*group));
    }
    const bool has = std::any_of(shape->k.begin(), shape->k.end(), [&](AxisId a) { return tiled.contains(a); });
    if (!has) tiled.insert(best_reduced(*shape));
  }
  for (const ExprId reduce : reductions(kernel)) {
    // A reduction that is no product runs over a register tile: all its axes are tiled.
    if (!product_shape(kernel, reduce)) tiled.insert(kernel[reduce].axes.begin(), kernel[reduce].axes.end());
  }
  if (products) return tiled;
  std::vector<const Store*> stores;
  stores_of(kernel, kernel.body, stores);
  for (const Store* store : stores) {
    if (store->indices.empty()) continue;
    const Expr& last = kernel[store->indices.back()];
    if (last.kind == Expr::Kind::axis && parallel(last.axis)) {
      tiled.insert(last.axis);
      break;
    }
  }
  return tiled;
}

}  // namespace pipethreader::task
