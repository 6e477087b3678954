// What lanes read of a tile that a walk keeps whole, where the masks of loops leave the rest unread: neither copied nor
// given memory. A causal mask leaves a staircase.
#pragma once

#include <optional>
#include <vector>

#include "layout/stairs.h"
#include "partition/assignment.h"

namespace pipethreader::partition {

// For a tile with the loop axis' whole as its columns. `conditions`: of the loops that read parts of it. Nothing where
// lanes would read all, or do not begin and end in equal steps.
[[nodiscard]] std::optional<layout::Stairs> stairs(const task::Graph& graph, const Partition& partition,
                                                   const SharedTile& tile, ScalarType type,
                                                   const std::vector<std::optional<kernel::ExprId>>& conditions);

}  // namespace pipethreader::partition
