#include "partition/partition.h"

#include <algorithm>
#include <bit>
#include <map>

#include "partition/element_tiles.h"
#include "task/products.h"
#include "task/rewrite.h"

namespace pipethreader::partition {

using namespace kernel;

namespace {

std::int64_t round_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

class Propagator {
 public:
  Propagator(const task::Graph& graph, const Choice& choice) : graph_(graph), choice_(choice) {}

  Result<Partition> run() {
    result_.choice = choice_;
    result_.tile.assign(graph_.kernel.axes.size(), 1);
    for (const task::Task& task : graph_.tasks) {
      if (task.product) {
        result_.has_products = true;
        products_.push_back(*task.product);
      }
    }
    choose_row();
    if (auto done = choose_beside(); !done) return tl::unexpected(done.error());
    if (auto done = choose_apart(); !done) return tl::unexpected(done.error());
    if (choice_.share_sums && choice_.lanes > 1) share_sums();
    if (result_.has_products) {
      for (const AxisId axis : graph_.tiled) {
        auto tile = product_tile(axis);
        if (!tile) return tl::unexpected(tile.error());
        result_.tile[static_cast<std::size_t>(axis.index)] = *tile;
      }
    } else {
      const auto tiles = element_tiles(graph_, choice_);
      if (!tiles) return tl::unexpected(tiles.error());
      for (const auto& [axis, tile] : *tiles) result_.tile[static_cast<std::size_t>(axis.index)] = tile;
    }
    for (const auto& [whole, loop] : graph_.kept) {  // every tile of the loop lies inside
      const std::int64_t extent = *task::static_extent(graph_.kernel, whole);
      result_.tile[static_cast<std::size_t>(whole.index)] =
          static_cast<int>(std::max<std::int64_t>(round_up(extent, result_.extent(loop)), result_.extent(loop)));
    }
    choose_lanes();
    result_.walk = graph_.kernel.parallel;
    return result_;
  }

 private:
  bool parallel(AxisId a) const { return graph_.kernel[a].kind == AxisKind::parallel; }
  bool streamed(AxisId a) const { return graph_.kernel[a].kind == AxisKind::streamed; }

  bool computed(ValueId v) const {
    return std::none_of(graph_.tasks.begin(), graph_.tasks.end(),
                        [&](const task::Task& t) { return t.kind == task::TaskKind::load && t.writes == v; });
  }

  // The row axis: in the most products, best beside an operand that is computed (it can then stay in registers).
  void choose_row() {
    std::map<AxisId, int> score;
    for (const task::Product& p : products_) {
      score[p.m] += 10 + (computed(p.a) ? 3 : 0) + (parallel(p.m) ? 1 : 0);
      score[p.n] += 10 + (computed(p.b) ? 3 : 0) + (parallel(p.n) ? 1 : 0);
    }
    int best = 0;
    for (const task::Product& p : products_) {
      for (const AxisId axis : {p.m, p.n}) {
        if (score[axis] > best) {
          best = score[axis];
          result_.row = axis;
        }
      }
    }
  }

  Result<void> choose_beside() {
    if (choice_.cluster == 1) return {};
    if (choice_.along.empty()) {
      if (!result_.row.valid() || !parallel(result_.row)) {
        return fail_at(graph_.kernel.file, {},
                       fmt::format("the blocks of a cluster lie side by side along a parallel axis that makes rows of "
                                   "products; '{}' has none",
                                   graph_.kernel.name),
                       "name a parallel axis with --force cluster=AXIS:BLOCKS");
      }
      result_.beside = result_.row;
      return {};
    }
    for (const AxisId axis : graph_.kernel.parallel) {
      if (graph_.kernel[axis].name == choice_.along) result_.beside = axis;
    }
    if (!result_.beside.valid()) {
      return fail_at(
          graph_.kernel.file, {},
          fmt::format("there is no parallel axis '{}' for clusters to lie along, or it is walked", choice_.along),
          "name another one, or leave out the walk");
    }
    // What is not tiled is not masked at its end either.
    const auto extent = task::static_extent(graph_.kernel, result_.beside);
    if (graph_.tiled.contains(result_.beside)) return {};
    if (!extent) {
      return fail_at(graph_.kernel.file, graph_.kernel[result_.beside].span,
                     fmt::format("clusters along axis '{}' need its size when compiling", choice_.along),
                     "fix it with --dim");
    }
    if (*extent % choice_.cluster != 0)
      return fail_at(
          graph_.kernel.file, graph_.kernel[result_.beside].span,
          fmt::format("clusters of {} do not divide axis '{}' of {}", choice_.cluster, choice_.along, *extent),
          "force clusters that divide it, or along another axis");
    return {};
  }

  Result<void> choose_apart() {
    if (choice_.teams == 1) return {};
    for (const AxisId axis : graph_.kernel.parallel) {
      if (graph_.kernel[axis].name == choice_.apart && !graph_.tiled.contains(axis)) result_.apart = axis;
    }
    if (!result_.apart.valid())
      return fail_at(graph_.kernel.file, {},
                     fmt::format("there is no parallel axis '{}' without tiles for teams to lie along, or it is walked",
                                 choice_.apart),
                     "name another one with --force teams=AXIS:TEAMS, or leave out the walk");
    if (!result_.has_products || choice_.share_sums || choice_.cluster > 1)
      return fail_at(graph_.kernel.file, {}, "teams of lanes need products, and neither share sums nor lie in clusters",
                     "leave out --force teams");
    const auto extent = task::static_extent(graph_.kernel, result_.apart);
    if (!extent || *extent % choice_.teams != 0)
      return fail_at(graph_.kernel.file, graph_.kernel[result_.apart].span,
                     fmt::format("teams along axis '{}' need its size when compiling, a multiple of {}", choice_.apart,
                                 choice_.teams),
                     "fix it with --dim, or force fewer teams");
    if (uneven_axes(graph_).contains(result_.apart))
      return fail_at(
          graph_.kernel.file, graph_.kernel[result_.apart].span,
          fmt::format("loops depend on axis '{}': teams along it would not walk the same tiles", choice_.apart),
          "name another axis with --force teams=AXIS:TEAMS");
    return {};
  }

  bool rows_somewhere(AxisId axis) const {
    return std::any_of(products_.begin(), products_.end(),
                       [&](const task::Product& p) { return p.m == axis || p.n == axis; });
  }

  Result<int> product_tile(AxisId axis) const {
    const auto extent = task::static_extent(graph_.kernel, axis);
    const std::int64_t known = std::max<std::int64_t>(1, extent.value_or(1 << 20));
    const std::int64_t step = axis == result_.row || needs_rows(axis) ? 64 : 16;
    const std::int64_t whole = round_up(known, step);
    if (axis == result_.row && (parallel(axis) || streamed(axis)))
      return static_cast<int>(std::min(round_up(choice_.row, 64), whole));
    if (parallel(axis)) return static_cast<int>(round_up(std::min<std::int64_t>(choice_.column, whole), step));
    if (streamed(axis)) {
      const std::int64_t parts = axis == result_.split ? step * result_.lanes : step;
      return static_cast<int>(round_up(std::min<std::int64_t>(choice_.stream, whole), parts));
    }
    if (!extent || whole > 8192) {
      return fail_at(graph_.kernel.file, graph_.kernel[axis].span,
                     fmt::format("axis '{}' must stay on chip whole, but its size is {}", graph_.kernel[axis].name,
                                 extent ? fmt::format("{}", *extent) : "dynamic"),
                     fmt::format("fix it with --dim, or stream it: for {}: ...", graph_.kernel[axis].name));
    }
    return static_cast<int>(whole);
  }

  // Whether the axis is the rows of some product's result: it has no other axis that is the row axis.
  bool needs_rows(AxisId axis) const {
    return std::any_of(products_.begin(), products_.end(), [&](const task::Product& p) {
      return (p.m == axis || p.n == axis) && p.m != result_.row && p.n != result_.row;
    });
  }

  // Lanes share the axis of sums where it makes no rows: fragments of rows are 64 high.
  void share_sums() {
    const auto sums = result_.has_products ? lane_sums(graph_) : std::nullopt;
    if (!sums || sums->axis == result_.row || needs_rows(sums->axis)) return;
    result_.sums = sums;
    result_.split = sums->axis;
    result_.lanes = choice_.lanes;
  }

  // Lanes share the rows when every product has them and nothing is reduced over them.
  void choose_lanes() {
    if (result_.sums) return;
    if (!result_.row.valid() || choice_.lanes <= 1) return;
    const AxisId row = result_.row;
    for (const task::Product& p : products_) {
      if (p.m != row && p.n != row) return;
      if (p.k == row) return;
    }
    for (const task::Task& task : graph_.tasks) {
      if (task.kind != task::TaskKind::reduce && task.kind != task::TaskKind::serial_reduce) continue;
      const auto& assign = std::get<Assign>(graph_.kernel[task.statement].node);
      const auto& axes = graph_.kernel[assign.expr].axes;
      if (std::find(axes.begin(), axes.end(), row) != axes.end()) return;
    }
    const int lanes = result_.extent(row) / 64;
    result_.lanes = std::min(choice_.lanes, lanes);
    while (result_.extent(row) % (64 * result_.lanes) != 0) --result_.lanes;
    if (result_.lanes > 1) result_.split = row;
  }

  const task::Graph& graph_;
  const Choice& choice_;
  Partition result_;
  std::vector<task::Product> products_;
};

}  // namespace

Result<Partition> propagate(const task::Graph& graph, const Choice& choice) { return Propagator(graph, choice).run(); }

namespace {

// Between `count` neighbours along the axis, the first of which is a multiple of their number.
bool differs_along(const task::Graph& graph, AxisId axis, int count, ExprId expr) {
  const Expr& e = graph.kernel[expr];
  if (e.kind == Expr::Kind::axis) return e.axis == axis;
  // They lie in one part of a division by such a multiple.
  const bool divides = e.kind == Expr::Kind::call && e.function == Function::div &&
                       graph.kernel[e.args[0]].kind == Expr::Kind::axis && !graph.tiled.contains(axis);
  if (divides) {
    const auto by = task::static_size(graph.kernel, e.args[1]);
    if (by && *by % count == 0) return false;
  }
  return std::any_of(e.args.begin(), e.args.end(), [&](ExprId arg) { return differs_along(graph, axis, count, arg); });
}

}  // namespace

bool differs_in_cluster(const task::Graph& graph, const Partition& partition, ExprId expr) {
  return differs_along(graph, partition.beside, partition.choice.cluster, expr);
}

bool differs_in_teams(const task::Graph& graph, const Partition& partition, ExprId expr) {
  return partition.apart.valid() && differs_along(graph, partition.apart, partition.choice.teams, expr);
}

std::vector<AxisId> axes_of_teams(const task::Graph& graph) {
  constexpr int least = 2;  // teams
  const std::set<AxisId> uneven = uneven_axes(graph);
  std::vector<AxisId> axes;
  for (const AxisId axis : graph.kernel.parallel) {
    if (graph.tiled.contains(axis) || uneven.contains(axis)) continue;
    const bool shares = std::any_of(graph.tasks.begin(), graph.tasks.end(), [&](const task::Task& t) {
      return t.kind == task::TaskKind::load && !graph.tiled_axes(*t.writes).empty() &&
             !differs_along(graph, axis, least, std::get<Assign>(graph.kernel[t.statement].node).expr);
    });
    if (shares) axes.push_back(axis);
  }
  return axes;
}

std::set<AxisId> uneven_axes(const task::Graph& graph) {
  std::set<AxisId> axes;
  const auto visit = [&](const auto& self, const std::vector<task::Node>& nodes) -> void {
    for (const task::Node& node : nodes) {
      const auto* loop = std::get_if<task::LoopNode>(&node.item);
      if (loop == nullptr) continue;
      if (const auto& where = std::get<Loop>(graph.kernel[loop->statement].node).where) {
        for (const AxisId a : task::axes_of(graph.kernel, *where)) {
          if (graph.kernel[a].kind == AxisKind::parallel) axes.insert(a);
        }
      }
      self(self, loop->body);
    }
  };
  visit(visit, graph.root);
  return axes;
}

double work_items(const task::Graph& graph, const Partition& partition, std::int64_t dynamic_size) {
  double items = 1;
  for (const AxisId a : partition.walk) {
    const std::int64_t extent = std::max<std::int64_t>(1, task::static_extent(graph.kernel, a).value_or(dynamic_size));
    const std::int64_t tile = partition.work_tile(a);
    const std::int64_t blocks = a == partition.beside ? partition.choice.cluster : 1;
    const std::int64_t tiles = (extent + tile - 1) / tile;
    items *= static_cast<double>(tiles * blocks);
  }
  return items;
}

std::int64_t even_band(std::int64_t tiles, std::int64_t band) {
  std::int64_t even = std::clamp<std::int64_t>(band, 1, std::max<std::int64_t>(1, tiles));
  while (tiles % even != 0) --even;
  return even;
}

std::vector<int> shape(const task::Graph& graph, const Partition& partition, ValueId value) {
  std::vector<int> result;
  for (const AxisId axis : graph.tiled_axes(value)) result.push_back(partition.local(axis));
  return result;
}

std::string print(const task::Graph& graph, const Partition& partition) {
  std::string text = fmt::format("partition {}\n  tiles", graph.kernel.name);
  for (std::size_t i = 0; i < partition.tile.size(); ++i) {
    const Axis& axis = graph.kernel.axes[i];
    if (graph.tiled.contains(AxisId(i)) || axis.kind == AxisKind::parallel) {
      text += fmt::format(" {}:{}", axis.name, partition.tile[i]);
    }
  }
  static constexpr const char* orders[] = {"single", "persistent", "dynamic"};
  text +=
      fmt::format("\n  lanes {}{}\n  work {} raster {} cluster {}{}\n", partition.lanes,
                  partition.split.valid() ? " over " + graph.kernel[partition.split].name : "",
                  orders[static_cast<int>(partition.choice.order)], partition.choice.raster, partition.choice.cluster,
                  partition.choice.along.empty() ? "" : " along " + partition.choice.along);
  if (partition.apart.valid())
    text += fmt::format("  teams {} along {}\n", partition.choice.teams, graph.kernel[partition.apart].name);
  text += "  TileShapes in a lane\n";
  for (std::size_t i = 0; i < graph.kernel.values.size(); ++i) {
    const auto dims = shape(graph, partition, ValueId(i));
    text += fmt::format("    {}: {}[{}]\n", graph.kernel.values[i].name, name(graph.kernel.values[i].type),
                        fmt::join(dims, ", "));
  }
  return text;
}

}  // namespace pipethreader::partition
