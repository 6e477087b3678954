// Tiles of a kernel without products: what no product fixes is shared out so that no task's tile has more elements than
// asked for, in rows along memory that fill its lines.
#pragma once

#include <map>

#include "partition/partition.h"

namespace pipethreader::partition {

// Of every tiled axis. Axes that stay on chip whole are whole. Then a line of memory along each axis that some tile is
// contiguous in, beside others; then up to `stream` of streamed axes; what is left goes to parallel ones.
[[nodiscard]] Result<std::map<kernel::AxisId, int>> element_tiles(const task::Graph& graph, const Choice& choice);

}  // namespace pipethreader::partition
