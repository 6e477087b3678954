// How the work is cut: a tile for every axis (Propagate infers all TileShapes from output and reduction tiles), the
// axis that computing lanes (warpgroups) share, and how the tiles are spread over execution units.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "device/device.h"
#include "partition/lane_sums.h"
#include "task/graph.h"

namespace pipethreader::partition {

enum class Order : std::uint8_t {
  single,      // one block a work item
  persistent,  // as many blocks as fit; each takes every n-th item
  dynamic,     // as many blocks as fit; each takes the next item
};

// What a candidate chooses; everything else follows.
struct Choice {
  int row = 128;            // tile of the axis split over lanes (all lanes together), a multiple of 64 * lanes
  int column = 128;         // tile of the other parallel axes of products
  int stream = 64;          // tile of streamed and long reduced axes
  int lanes = 2;            // computing warpgroups
  bool share_sums = false;  // each lane takes a part of the streamed axis instead of a part of the rows
  int element = 1024;       // most elements of a task's tile where no product fixes it
  Order order = Order::single;
  int teams = 1;      // of so many lanes each; the work of each lies one further along the axis `apart`
  std::string apart;  // a parallel axis without tiles
  int blocks = 1;     // that share an execution unit
  int raster = 1;     // row tiles that neighbouring work items walk before the next column tile
  int cluster = 1;    // blocks that copy for each other what all of them read
  std::string along;  // the parallel axis that the blocks of a cluster lie along; empty: that of the rows
  // Where loops' ranges depend on some axes: tiles of the others that are walked together, at most; 0: all.
  int band = 0;
  bool hold = false;  // operands that products in a loop read again in each iteration stay in registers
  bool operator==(const Choice&) const = default;
};

struct Partition {
  Choice choice;
  std::vector<int> tile;  // by axis index; 1 where the axis is uniform within a work item
  kernel::AxisId row;     // of the products' rows
  kernel::AxisId beside;  // along which the blocks of a cluster lie; invalid without clusters
  kernel::AxisId apart;   // along which the teams of lanes lie; invalid when all lanes are one
  kernel::AxisId split;   // that the lanes of a team share: `row`, or the axis of sums; invalid when a lane holds all
  std::optional<LaneSums> sums;      // that are partial in every lane, when lanes split their axis
  int lanes = 1;                     // of a team
  std::vector<kernel::AxisId> walk;  // parallel axes, slowest first
  bool has_products = false;

  [[nodiscard]] int extent(kernel::AxisId axis) const { return tile[static_cast<std::size_t>(axis.index)]; }
  [[nodiscard]] int all_lanes() const { return lanes * choice.teams; }
  // What a work item covers of an axis: the blocks of a cluster lie side by side along one, and so do teams.
  [[nodiscard]] std::int64_t work_tile(kernel::AxisId axis) const {
    return std::int64_t{extent(axis)} * (axis == beside ? choice.cluster : 1) * (axis == apart ? choice.teams : 1);
  }
  // A lone lane has the most registers that a thread can have anyway.
  [[nodiscard]] bool shares_registers() const { return all_lanes() > 1 || choice.blocks > 1; }
  // The part of the tile that one lane holds.
  [[nodiscard]] int local(kernel::AxisId axis) const { return axis == split ? extent(axis) / lanes : extent(axis); }
};

// Propagate: the tile of every axis, hence the TileShape of every value.
[[nodiscard]] Result<Partition> propagate(const task::Graph& graph, const Choice& choice);

// Whether an expression is another one in another block of a cluster, or in another team of lanes.
[[nodiscard]] bool differs_in_cluster(const task::Graph& graph, const Partition& partition, kernel::ExprId expr);
[[nodiscard]] bool differs_in_teams(const task::Graph& graph, const Partition& partition, kernel::ExprId expr);

// Parallel axes without tiles along which some of what is loaded is alike: teams of lanes can share it.
[[nodiscard]] std::vector<kernel::AxisId> axes_of_teams(const task::Graph& graph);

// Parallel axes that the ranges of loops depend on: their tiles are of different length.
[[nodiscard]] std::set<kernel::AxisId> uneven_axes(const task::Graph& graph);

// Blocks' worth of work: tiles of all parallel axes, those included that fill up clusters past an axis' end. Dynamic
// axes are taken to be `dynamic_size` long.
[[nodiscard]] double work_items(const task::Graph& graph, const Partition& partition, std::int64_t dynamic_size);

// The largest band of at most `band` that divides the tiles.
[[nodiscard]] std::int64_t even_band(std::int64_t tiles, std::int64_t band);

// TileShape of a value in one lane, by its tiled axes.
[[nodiscard]] std::vector<int> shape(const task::Graph& graph, const Partition& partition, kernel::ValueId value);

[[nodiscard]] std::string print(const task::Graph& graph, const Partition& partition);

}  // namespace pipethreader::partition
