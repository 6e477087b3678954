// Sums that lanes can share: each lane takes a part of the streamed axis and has a partial value of every sum over it;
// after the loop the first lane adds up what the others hand it.
//   acc = init; for k { ...; acc += sum[k] ...; } ... acc ...
// Nothing else in the loop may read what is summed, and what follows the loop must be work of one lane.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "task/graph.h"

namespace pipethreader::partition {

struct LaneSums {
  kernel::StatementId loop;             // the outermost that adds to them: behind it they are joined
  kernel::AxisId axis;                  // of a loop over tiles, that one or inside it
  std::vector<kernel::ValueId> values;  // partial in every lane until the loop ends
  std::set<kernel::ValueId> from_zero;  // start at 0 in any case; the others may do so in one lane only
};

// Nothing where the kernel has no such loop, or does something beside it that takes all lanes.
[[nodiscard]] std::optional<LaneSums> lane_sums(const task::Graph& graph);

}  // namespace pipethreader::partition
