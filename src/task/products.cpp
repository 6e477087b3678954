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

std::optional<std::int64_t> static_size(const Kernel& kernel, ExprId expr) {
  std::vector<std::int64_t> sizes;
  for (const Dim& dim : kernel.dims) sizes.push_back(dim.size.value_or(-1));
  const std::function<bool(ExprId)> known = [&](ExprId id) {
    const Expr& e = kernel[id];
    if (e.kind == Expr::Kind::literal) return true;
    if (e.kind == Expr::Kind::dim) return kernel[e.dim].size.has_value();
    return e.kind == Expr::Kind::call && std::all_of(e.args.begin(), e.args.end(), known);
  };
  if (!known(expr)) return std::nullopt;
  return evaluate_size(kernel, expr, sizes);
}

std::optional<std::int64_t> static_extent(const Kernel& kernel, AxisId axis) {
  return static_size(kernel, kernel[axis].extent);
}

std::optional<ProductShape> product_shape(const Kernel& kernel, ExprId reduce, bool any_types) {
  const Expr& r = kernel[reduce];
  if (r.kind != Expr::Kind::reduce || r.reduce != ReduceOp::sum) return std::nullopt;
  const Expr& body = kernel[strip_widening(kernel, r.args[0])];
  if (body.kind != Expr::Kind::call || body.function != Function::mul) return std::nullopt;
  ProductShape shape;
  shape.x = strip_widening(kernel, body.args[0]);
  shape.y = strip_widening(kernel, body.args[1]);
  const ScalarType type = kernel[shape.x].type;
  if (!any_types && (!tensor_core_type(type) || type != kernel[shape.y].type)) return std::nullopt;
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

namespace {

// Axes that both operands of some product have without being summed over.
std::set<AxisId> shared_axes(const Kernel& kernel) {
  std::set<AxisId> shared;
  for (const ExprId reduce : reductions(kernel)) {
    const auto shape = product_shape(kernel, reduce);
    if (!shape) continue;
    const std::set<AxisId> y = axes_of(kernel, shape->y);
    for (const AxisId a : axes_of(kernel, shape->x)) {
      if (y.contains(a) && std::find(shape->k.begin(), shape->k.end(), a) == shape->k.end()) shared.insert(a);
    }
  }
  return shared;
}

constexpr std::int64_t fills_a_tile = 48;  // three quarters of the rows of a product: the rest is padding

// Axes in the last index of some tensor.
std::set<AxisId> contiguous_axes(const Kernel& kernel) {
  std::set<AxisId> found;
  const auto last = [&](const std::vector<ExprId>& indices) {
    if (!indices.empty()) found.merge(axes_of(kernel, indices.back()));
  };
  for (const Expr& e : kernel.exprs) {
    if (e.kind == Expr::Kind::access) last(e.args);
  }
  std::vector<const Store*> stores;
  stores_of(kernel, kernel.body, stores);
  for (const Store* store : stores) last(store->indices);
  return found;
}

}  // namespace

std::set<AxisId> choose_tiled(const Kernel& kernel) {
  std::set<AxisId> tiled;
  const auto parallel = [&](AxisId a) { return kernel[a].kind == AxisKind::parallel; };
  for (std::size_t i = 0; i < kernel.axes.size(); ++i) {
    // Inner and streamed axes stay on chip in tiles; reduced ones are decided by the products below.
    const AxisKind kind = kernel.axes[i].kind;
    if (kind == AxisKind::inner || kind == AxisKind::streamed) tiled.insert(AxisId(i));
  }
  // A product whose operands share a tiled axis is no product of tiles: such axes are the last to be chosen. Among
  // those long enough for a tile, the one that walks through memory without gaps.
  const std::set<AxisId> shared = shared_axes(kernel);
  const std::set<AxisId> contiguous = contiguous_axes(kernel);
  const auto best_of = [&](const std::vector<AxisId>& group) {
    const auto rank = [&](AxisId a) {
      const std::int64_t extent = static_extent(kernel, a).value_or(1 << 30);
      return std::tuple(!shared.contains(a), std::min(extent, fills_a_tile), contiguous.contains(a), extent);
    };
    return *std::max_element(group.begin(), group.end(), [&](AxisId a, AxisId b) { return rank(a) < rank(b); });
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
    return best_of(alone.empty() ? shape.k : alone);
  };
  bool products = false;
  for (const ExprId reduce : reductions(kernel)) {
    const auto shape = product_shape(kernel, reduce);
    if (!shape) continue;
    products = true;
    for (const auto* group : {&shape->m, &shape->n}) {
      const bool has = std::any_of(group->begin(), group->end(), [&](AxisId a) { return tiled.contains(a); });
      if (!has) tiled.insert(best_of(*group));
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
