#include "partition/stairs.h"

#include <algorithm>

#include "task/affine.h"
#include "task/products.h"

namespace pipethreader::partition {

using namespace kernel;

namespace {

constexpr int span_bytes = 128;  // of the widest swizzle

struct Range {
  std::int64_t low = 0, high = 0;  // both included
};

// Whether some point of the two ranges may satisfy all inequalities over these axes alone.
bool has_points(const std::vector<task::Linear>& inequalities, AxisId row, Range rows, AxisId column, Range columns) {
  return std::all_of(inequalities.begin(), inequalities.end(), [&](const task::Linear& form) {
    std::int64_t most = form.constant;
    for (const auto& [axis, factor] : form.axes) {
      if (axis != row && axis != column) return true;
      const Range& range = axis == row ? rows : columns;
      most += factor * (factor > 0 ? range.high : range.low);
    }
    return !form.uniform.empty() || most >= 0;
  });
}

}  // namespace

std::optional<layout::Stairs> stairs(const task::Graph& graph, const Partition& partition, const SharedTile& tile,
                                     ScalarType type, const std::vector<std::optional<ExprId>>& conditions) {
  const auto whole = graph.kept.find(tile.column);
  const bool by_rows = partition.lanes > 1 && partition.split == partition.row && tile.row_axes.size() == 1 &&
                       tile.row_axes[0] == partition.split && tile.parts == 1 && partition.choice.cluster == 1;
  if (whole == graph.kept.end() || !by_rows) return std::nullopt;
  const AxisId row = partition.split;
  const AxisId column = whole->second;
  // Where tiles lie must be known: one tile of rows, and all columns.
  if (task::static_extent(graph.kernel, row) != tile.rows || task::static_extent(graph.kernel, column) != tile.cols)
    return std::nullopt;
  const int height = partition.local(row);
  const int width = partition.extent(column);
  const int span = span_bytes * 8 / bits(type);
  if (height % 8 != 0 || tile.cols % span != 0 || tile.cols % width != 0) return std::nullopt;

  std::vector<std::vector<task::Linear>> inequalities;
  for (const auto& where : conditions) {
    if (!where) return std::nullopt;
    inequalities.push_back(task::conjunction(graph.kernel, *where, graph.tiled).inequalities);
  }
  std::vector<Range> read;  // by lane: whole spans
  for (int lane = 0; lane < partition.lanes; ++lane) {
    std::optional<Range> columns;
    for (int first = 0; first < tile.cols; first += width) {
      const bool some = std::any_of(inequalities.begin(), inequalities.end(), [&](const auto& forms) {
        return has_points(forms, row, {std::int64_t{lane} * height, std::int64_t{lane + 1} * height - 1}, column,
                          {first, first + width - 1});
      });
      if (!some) continue;
      if (!columns) columns = Range{first / span * span, 0};
      columns->high = (first + width + span - 1) / span * span;
    }
    if (!columns) return std::nullopt;
    read.push_back(*columns);
  }
  layout::Stairs result;
  result.rows = height;
  result.begin = static_cast<int>(read[0].low);
  result.begin_step = static_cast<int>(read[1].low - read[0].low);
  result.end = static_cast<int>(read[0].high);
  result.end_step = static_cast<int>(read[1].high - read[0].high);
  bool all = true;
  for (int lane = 0; lane < partition.lanes; ++lane) {
    const Range& columns = read[static_cast<std::size_t>(lane)];
    if (columns.low != result.first(lane) || columns.high != result.last(lane)) return std::nullopt;
    all = all && columns.low == 0 && columns.high == tile.cols;
  }
  if (all) return std::nullopt;
  return result;
}

}  // namespace pipethreader::partition
