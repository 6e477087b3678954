// Finds the sums over loops that only their ends need, and lets every thread keep its share of them until then:
//   l = 0; for j { t = sum[j] p; l = l * a + t; } ... l ...
// Nothing else in the loop may read l, and it starts at 0: then each thread's share goes through the same steps as the
// whole, and one reduction after the loop joins them.
#pragma once

#include "partition/assignment.h"

namespace pipethreader::partition {

// Gives such sums, and what is added to them, their layouts; notes them in `assignment.partial`.
void keep_sums_in_shares(const task::Graph& graph, Assignment& assignment);

}  // namespace pipethreader::partition
