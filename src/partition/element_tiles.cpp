#include "partition/element_tiles.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "task/products.h"
#include "task/rewrite.h"

namespace pipethreader::partition {

using namespace kernel;

namespace {

constexpr std::int64_t line_bits = 1024;
constexpr std::int64_t any_length = 1 << 20;  // of a dynamic axis
constexpr std::int64_t step_of_long_axes = 1024;

std::int64_t power_below(std::int64_t value) {
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(1, value))));
}

class ElementTiles {
 public:
  ElementTiles(const task::Graph& graph, const Choice& choice)
      : graph_(graph), kernel_(graph.kernel), choice_(choice) {}

  Result<std::map<AxisId, int>> run() {
    for (const task::Task& task : graph_.tasks) visit(task);
    std::vector<AxisId> streamed, parallel;
    for (const AxisId axis : graph_.tiled) {
      const AxisKind kind = kernel_[axis].kind;
      if (kind == AxisKind::streamed) streamed.push_back(axis);
      if (kind == AxisKind::parallel) parallel.push_back(axis);
      if (kind == AxisKind::streamed || kind == AxisKind::parallel) {
        const auto line = lines_.find(axis);
        const std::int64_t square = power_below(static_cast<std::int64_t>(std::sqrt(choice_.element)));
        tiles_[axis] = line == lines_.end() ? 1 : std::min({line->second, square, whole(axis)});
        continue;
      }
      if (std::ranges::none_of(domains_, [&](const auto& domain) { return domain.contains(axis); })) {
        tiles_[axis] = 1;  // only ever walked index by index
        continue;
      }
      if (!task::static_extent(kernel_, axis)) {
        return fail_at(kernel_.file, kernel_[axis].span,
                       fmt::format("axis '{}' must stay on chip whole, but its size is dynamic", kernel_[axis].name),
                       fmt::format("fix it with --dim, or stream it: for {}: ...", kernel_[axis].name));
      }
      tiles_[axis] = whole(axis);
    }
    for (const AxisId axis : streamed) widen(axis, choice_.stream);
    for (const AxisId axis : parallel) widen(axis, choice_.element);
    std::map<AxisId, int> result;
    for (const auto& [axis, tile] : tiles_) result[axis] = static_cast<int>(tile);
    return result;
  }

 private:
  std::int64_t whole(AxisId axis) const {
    const std::int64_t extent = std::max<std::int64_t>(1, task::static_extent(kernel_, axis).value_or(any_length));
    if (extent <= step_of_long_axes)
      return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(extent)));
    return (extent + step_of_long_axes - 1) / step_of_long_axes * step_of_long_axes;
  }

  // As far as every tile with this axis has room.
  void widen(AxisId axis, std::int64_t most) {
    for (const std::set<AxisId>& domain : domains_) {
      if (!domain.contains(axis)) continue;
      std::int64_t others = 1;
      for (const AxisId a : domain) {
        if (a != axis) others *= tiles_.at(a);
      }
      most = std::min<std::int64_t>(most, others == 1 ? choice_.element : power_below(choice_.element / others));
    }
    tiles_[axis] = std::max(tiles_[axis], std::min(most, whole(axis)));
  }

  // The tiled axes of what a task works on, and where these lie along memory.
  void visit(const task::Task& task) {
    const Statement& s = kernel_[task.statement];
    std::set<AxisId> domain;
    if (const auto* store = std::get_if<Store>(&s.node)) {
      for (const ExprId index : store->indices) collect(index, domain);
      collect(store->expr, domain);
      note_line(store->indices, kernel_[store->tensor].type);
    } else if (const auto* assign = std::get_if<Assign>(&s.node)) {
      for (const AxisId a : graph_.tiled_axes(assign->target)) domain.insert(a);
      // Index by index, no tile of what is reduced is ever there.
      if (task.kind != task::TaskKind::serial_reduce) collect(assign->expr, domain);
      note_lines(assign->expr);
    }
    domains_.push_back(std::move(domain));
  }

  void collect(ExprId id, std::set<AxisId>& domain) const {
    const Expr& e = kernel_[id];
    for (const AxisId a : e.axes) {
      if (graph_.tiled.contains(a)) domain.insert(a);
    }
    for (const AxisId a : task::axes_of(kernel_, id)) {
      if (graph_.tiled.contains(a)) domain.insert(a);
    }
    for (const ExprId arg : e.args) collect(arg, domain);
  }

  void note_lines(ExprId id) {
    const Expr& e = kernel_[id];
    if (e.kind == Expr::Kind::access) note_line(e.args, e.type);
    for (const ExprId arg : e.args) note_lines(arg);
  }

  void note_line(const std::vector<ExprId>& indices, ScalarType type) {
    std::set<AxisId> tiled;
    for (const ExprId index : indices) {
      for (const AxisId a : task::axes_of(kernel_, index)) {
        if (graph_.tiled.contains(a)) tiled.insert(a);
      }
    }
    if (tiled.size() < 2 || kernel_[indices.back()].kind != Expr::Kind::axis) return;
    const AxisId last = kernel_[indices.back()].axis;
    if (tiled.contains(last)) lines_[last] = std::max<std::int64_t>(lines_[last], line_bits / bits(type));
  }

  const task::Graph& graph_;
  const Kernel& kernel_;
  const Choice& choice_;
  std::vector<std::set<AxisId>> domains_;  // one a task
  std::map<AxisId, std::int64_t> lines_;   // elements of a line of memory, where a tile has other axes too
  std::map<AxisId, std::int64_t> tiles_;
};

}  // namespace

Result<std::map<AxisId, int>> element_tiles(const task::Graph& graph, const Choice& choice) {
  return ElementTiles(graph, choice).run();
}

}  // namespace pipethreader::partition
