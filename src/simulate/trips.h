// How often a loop runs in the mean over work items: from static extents and the affine part of its `where`.
#pragma once

#include <optional>

#include "partition/partition.h"

namespace pipethreader::simulate {

// Empty when a size is dynamic.
[[nodiscard]] std::optional<double> mean_trips(const task::Graph& graph, const partition::Partition& partition,
                                               kernel::AxisId axis, kernel::StatementId loop);

}  // namespace pipethreader::simulate
