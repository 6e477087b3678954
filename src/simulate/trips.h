// How often a loop runs in the mean over work items: from static extents and the affine part of its `where`.
#pragma once

#include <vector>

#include "partition/partition.h"

namespace pipethreader::simulate {

struct Trips {
  double mean = 0;
  double most = 0;  // of the longest work item
};

// Dynamic dims are taken to be 4096.
[[nodiscard]] Trips trips_of(const task::Graph& graph, const partition::Partition& partition, kernel::AxisId axis,
                             kernel::StatementId loop);

// For each lane of a team, the part of a loop's tiles in which its rows have a point; it passes over the others.
[[nodiscard]] std::vector<double> shares_of_lanes(const task::Graph& graph, const partition::Partition& partition,
                                                  kernel::AxisId axis, kernel::StatementId loop);

}  // namespace pipethreader::simulate
