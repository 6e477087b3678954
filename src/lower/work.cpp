// Work items and loops: which tile a block computes, how many tiles a loop walks, and what its condition masks.
#include <algorithm>

#include "lower/lowerer.h"
#include "task/products.h"
#include "task/rewrite.h"

namespace pipethreader::lower {

using kernel::AxisKind;

ExprId Lowerer::work_count() { return tiles_of(partition_.walk); }

// item -> tile of every parallel axis. Tiles whose loops are longest come first, in bands of the other axes' tiles that
// find what they share in L2.
void Lowerer::open_work(Block& body) {
  axes_.clear();
  const std::set<AxisId> depends = partition::uneven_axes(graph_);
  std::vector<AxisId> order = partition_.walk;
  const auto uneven = [&](AxisId a) { return partition_.extent(a) > 1 && depends.contains(a); };
  const auto others = std::stable_partition(order.begin(), order.end(), uneven);
  const std::vector<AxisId> longest_first(order.begin(), others);
  const std::vector<AxisId> rest(others, order.end());
  const ExprId item = b_.var(variable("item"));
  if (partition_.choice.band == 0 || longest_first.empty() || rest.empty()) {
    open_tiles(order, item, longest_first, body);
    return;
  }
  const ExprId lengths = tiles_of(longest_first);
  const ExprId all = tiles_of(rest);
  // Bands of one size where their number is known: what divides by a constant is simpler to prove.
  std::int64_t band = partition_.choice.band;
  const auto known = b_.number(all);
  if (known) band = partition::even_band(static_cast<std::int64_t>(*known), band);
  const ExprId area = b_.mul(lengths, band);
  const ExprId start = b_.mul(b_.div(item, area), band);
  ExprId height = b_.constant(band);
  if (!known) {
    const program::VarId left = variable("group_size");
    let(body, left, b_.min(height, b_.sub(all, start)));
    height = b_.var(left);
  }
  const ExprId inner = b_.mod(item, area);
  open_tiles(longest_first, b_.div(inner, height), longest_first, body);
  open_tiles(rest, b_.add(start, b_.mod(inner, height)), longest_first, body);
}

ExprId Lowerer::tiles_of(const std::vector<AxisId>& axes) {
  ExprId count = b_.constant(1);
  for (const AxisId a : axes) count = b_.mul(count, b_.ceil_div(extent(a), partition_.work_tile(a)));
  return count;
}

// A number -> tiles of axes, the slowest first. Pairs of tiled axes are walked in bands of `raster` tiles of the slower
// one, so that neighbours share operands in L2.
void Lowerer::open_tiles(std::vector<AxisId> order, ExprId rest, const std::vector<AxisId>& longest_first,
                         Block& body) {
  const auto tiled = [&](AxisId a) { return partition_.extent(a) > 1; };
  const auto uneven = [&](AxisId a) {
    return std::find(longest_first.begin(), longest_first.end(), a) != longest_first.end();
  };
  const auto tiles = [&](AxisId a) { return b_.ceil_div(extent(a), partition_.work_tile(a)); };
  const auto set = [&](AxisId a, ExprId tile) {
    if (uneven(a)) tile = b_.sub(b_.sub(tiles(a), 1), tile);
    const program::VarId var = variable(kernel_[a].name + (tiled(a) ? "_0" : ""));
    ExprId start = b_.mul(tile, partition_.work_tile(a));
    if (a == partition_.beside && partition_.choice.cluster > 1)
      start = b_.add(start, b_.mul(b_.cluster_rank(), partition_.extent(a)));
    let(body, var, start);
    axes_[a] = b_.var(var);
  };
  while (!order.empty()) {
    const AxisId fast = order.back();
    order.pop_back();
    const bool band = partition_.choice.raster > 1 && !order.empty() && tiled(fast) && tiled(order.back()) &&
                      !uneven(fast) && !uneven(order.back());
    if (!band) {
      const bool last = order.empty();
      set(fast, last ? rest : b_.mod(rest, tiles(fast)));
      if (!last) rest = b_.div(rest, tiles(fast));
      continue;
    }
    const AxisId slow = order.back();
    order.pop_back();
    const ExprId area = b_.mul(tiles(slow), tiles(fast));
    const program::VarId place = variable("place");
    let(body, place, order.empty() ? rest : b_.mod(rest, area));
    if (!order.empty()) rest = b_.div(rest, area);
    const ExprId in_band = b_.mul(tiles(fast), partition_.choice.raster);
    const program::VarId band_start = variable("band");
    let(body, band_start, b_.mul(b_.div(b_.var(place), in_band), partition_.choice.raster));
    const program::VarId height = variable("band_height");
    let(body, height, b_.min(b_.constant(partition_.choice.raster), b_.sub(tiles(slow), b_.var(band_start))));
    const ExprId inner = b_.mod(b_.var(place), in_band);
    set(slow, b_.add(b_.var(band_start), b_.mod(inner, b_.var(height))));
    set(fast, b_.div(inner, b_.var(height)));
  }
}

Lowerer::Bounds Lowerer::open_loop(const schedule::LoopTree& loop, Block& block) {
  const AxisId axis = loop.axis;
  const auto& statement = std::get<kernel::Loop>(kernel_[loop.statement].node);
  LoopFrame frame;
  frame.axis = axis;
  frame.statement = loop.statement;
  frame.where = statement.where;
  if (frame.where) frame.condition = task::conjunction(kernel_, *frame.where, graph_.tiled);
  const std::string name = kernel_[axis].name;
  frame.origin[0] = variable(partition_.extent(axis) > 1 ? name + "_0" : name);
  frame.origin[1] = variable(partition_.extent(axis) > 1 ? name + "_0_before" : name + "_before");
  const int tile = partition_.extent(axis);
  ExprId first = b_.constant(0);
  ExprId last = b_.ceil_div(extent(axis), tile);
  // The points that inequalities of the axis alone leave; elements of which some have no point are told apart later.
  ExprId least = b_.constant(0);
  ExprId most = b_.sub(extent(axis), 1);
  bool alone = frame.condition.opaque.empty();
  bool upper = false;
  for (const task::Linear& form : frame.condition.inequalities) {
    const auto found = form.axes.find(axis);
    alone = alone && found != form.axes.end() && form.axes.size() == 1;
    if (found == form.axes.end()) {
      // Says nothing about the axis: no point at all where it fails everywhere.
      last = b_.select(b_.ge(extreme(form, true, true, axis), b_.constant(0)), last, b_.constant(0));
      continue;
    }
    const std::int64_t factor = found->second;
    const ExprId rest = extreme(form, true, true, axis);
    if (factor < 0) {  // axis <= rest / -factor
      most = b_.min(most, b_.div(rest, -factor));
      last = b_.min(last, b_.add(b_.div(b_.div(rest, -factor), tile), 1));
      upper = true;
    } else {  // axis >= -rest / factor, rounded up
      least = b_.max(least, b_.div(b_.add(b_.neg(rest), factor - 1), factor));
      first = b_.max(first, b_.div(b_.div(b_.add(b_.neg(rest), factor - 1), factor), tile));
    }
  }
  // Without a point there is no tile to walk: first and last point would lie in one tile the wrong way round.
  if (alone && !b_.is(least, 0)) last = b_.select(b_.le(least, most), last, first);
  Bounds bounds;
  bounds.trips = variable(name + "_trips");
  bounds.first = variable(name + "_first");
  bounds.direction = upper && !statement.ordered ? -1 : 1;
  let(block, bounds.trips, b_.max(b_.constant(0), b_.sub(last, first)));
  let(block, bounds.first, bounds.direction < 0 ? b_.sub(last, 1) : first);
  loops_.push_back(frame);
  return bounds;
}

ExprId Lowerer::tile_origin(const Bounds& bounds, AxisId axis, ExprId iteration) {
  const ExprId first = b_.var(bounds.first);
  const ExprId tile = bounds.direction < 0 ? b_.sub(first, iteration) : b_.add(first, iteration);
  return b_.mul(tile, partition_.extent(axis));
}

const LoopFrame* Lowerer::frame_of(AxisId axis) const {
  for (auto frame = loops_.rbegin(); frame != loops_.rend(); ++frame) {
    if (frame->axis == axis) return &*frame;
  }
  return nullptr;
}

ExprId Lowerer::masked(const LoopFrame& frame) {
  ExprId whole = b_.truth(frame.condition.opaque.empty());
  for (const task::Linear& form : frame.condition.inequalities) {
    whole = b_.logical_and(whole, b_.ge(extreme(form, false, false, AxisId()), b_.constant(0)));
  }
  if (ragged(frame.axis)) {
    const ExprId end = b_.add(local_origin(frame.axis), partition_.local(frame.axis));
    whole = b_.logical_and(whole, b_.le(end, extent(frame.axis)));
  }
  return b_.logical_not(whole);
}

ExprId Lowerer::predicate(const LoopFrame& frame, const std::vector<AxisId>& domain, const layout::Layout& layout,
                          Block& block) {
  ExprId all = b_.truth(true);
  for (const task::Linear& form : frame.condition.inequalities) {
    all = b_.logical_and(all, b_.ge(linear(form, domain), b_.constant(0)));
  }
  for (const KernelExpr opaque : frame.condition.opaque) {
    all = b_.logical_and(all, translate(opaque, domain, layout, block));
  }
  if (ragged(frame.axis)) all = b_.logical_and(all, b_.lt(index(frame.axis, domain), extent(frame.axis)));
  return all;
}

// `axes` begin with the dims `kept` of a layout, where that has them; each thread holds all of the others.
layout::Layout Lowerer::with_registers(const layout::Layout& layout, const std::vector<int>& kept,
                                       const std::vector<AxisId>& axes) const {
  layout::Layout result = layout::slice(layout, kept);
  std::vector<layout::Digit> registers;
  for (std::size_t i = kept.size(); i < axes.size(); ++i) {
    const int extent = partition_.local(axes[i]);
    if (extent > 1) registers.push_back({layout::Place::reg, extent, static_cast<int>(i), 1});
    result.shape.push_back(extent);
  }
  result.digits.insert(result.digits.begin(), registers.begin(), registers.end());
  return result;
}

// Tiled axes that the loop's condition is about.
std::set<AxisId> Lowerer::condition_axes(const LoopFrame& frame) const {
  std::set<AxisId> axes;
  for (const task::Linear& form : frame.condition.inequalities) {
    for (const auto& [axis, factor] : form.axes) axes.insert(axis);
  }
  for (const KernelExpr opaque : frame.condition.opaque) {
    for (const AxisId a : task::axes_of(kernel_, opaque)) {
      if (graph_.tiled.contains(a)) axes.insert(a);
    }
  }
  return axes;
}

// Whether the loop's domain has a point in the tile at an element of `domain`; nothing when every element has one.
std::optional<ExprId> Lowerer::has_point(const LoopFrame& frame, const std::vector<AxisId>& domain,
                                         const layout::Layout& layout, Block& block) {
  const auto row_dependent = [&](const task::Linear& form) {
    return std::any_of(form.axes.begin(), form.axes.end(), [&](const auto& a) { return a.first != frame.axis; });
  };
  const bool needed = !frame.condition.opaque.empty() || std::any_of(frame.condition.inequalities.begin(),
                                                                     frame.condition.inequalities.end(), row_dependent);
  if (!needed) return std::nullopt;
  std::set<AxisId> axes = condition_axes(frame);
  axes.erase(frame.axis);
  const bool affine = frame.condition.opaque.empty() &&
                      std::all_of(axes.begin(), axes.end(), [&](AxisId a) { return domain_dim(domain, a) >= 0; });
  if (affine) {
    ExprId low = origin(frame.axis);
    ExprId high = b_.add(low, partition_.extent(frame.axis) - 1);
    if (ragged(frame.axis)) high = b_.min(high, b_.sub(extent(frame.axis), 1));
    ExprId others = b_.truth(true);
    for (const task::Linear& form : frame.condition.inequalities) {
      task::Linear rest = form;
      const auto found = rest.axes.find(frame.axis);
      if (found == rest.axes.end()) {
        others = b_.logical_and(others, b_.ge(linear(rest, domain), b_.constant(0)));
        continue;
      }
      const std::int64_t factor = found->second;
      rest.axes.erase(found);
      const ExprId value = linear(rest, domain);
      if (factor < 0) {
        high = b_.min(high, b_.div(value, -factor));
      } else {
        low = b_.max(low, b_.div(b_.add(b_.neg(value), factor - 1), factor));
      }
    }
    return b_.logical_and(b_.le(low, high), others);
  }
  // Counted: the largest predicate over the axes that `domain` lacks, at points of the loops over these.
  std::vector<const LoopFrame*> about = {&frame};
  for (std::size_t i = 0; i < about.size(); ++i) {
    for (const AxisId a : condition_axes(*about[i])) {
      const LoopFrame* outer = domain_dim(domain, a) < 0 ? frame_of(a) : nullptr;
      if (outer == nullptr || std::find(about.begin(), about.end(), outer) != about.end()) continue;
      about.push_back(outer);
      axes.merge(condition_axes(*outer));
    }
  }
  axes.erase(frame.axis);
  std::vector<AxisId> kept;
  for (const AxisId a : domain) {
    if (axes.contains(a)) kept.push_back(a);
  }
  std::vector<AxisId> all = kept;
  for (const AxisId a : axes) {
    if (domain_dim(kept, a) < 0) all.push_back(a);
  }
  all.push_back(frame.axis);
  layout::Layout full = partition::domain_layout(graph_, partition_, assignment_, all);
  std::vector<int> dims;
  for (std::size_t i = 0; i < kept.size(); ++i) dims.push_back(static_cast<int>(i));
  std::vector<int> map;
  for (const AxisId a : kept) map.push_back(domain_dim(domain, a));
  if (!layout::register_map(layout, layout::slice(full, dims), map)) full = with_registers(layout, map, all);
  const program::FragmentId any = temporary("any_point", ScalarType::f32, layout::slice(full, dims));
  program::Reduce count;
  count.target = any;
  count.op = program::ReduceOp::max;
  count.domain = full;
  ExprId point = b_.truth(true);
  for (const LoopFrame* each : about) point = b_.logical_and(point, predicate(*each, all, full, block));
  count.value = b_.select(point, b_.constant(ScalarType::f32, 1), b_.constant(ScalarType::f32, 0));
  count.kept = dims;
  count.scratch = reduce_scratch(any);
  block.push_back({count, "points of the loop's domain in this tile"});
  if (!layout::register_map(layout, program_[any].layout, map)) {
    fail("a condition on data in `where` over these axes is not scheduled yet");
    return std::nullopt;
  }
  return b_.gt(b_.fragment(any, map), b_.constant(ScalarType::f32, 0));
}

}  // namespace pipethreader::lower
