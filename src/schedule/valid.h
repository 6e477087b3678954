// Whether an sProgram may stand for its graph.
#pragma once

#include "partition/assignment.h"
#include "schedule/sprogram.h"
#include "task/graph.h"

namespace pipethreader::schedule {

// Runs graph and schedule side by side on symbols, every loop for a few trips: each store must receive the value that
// the graph's own order gives, nothing may be written that a product still reads, a product's result only be read after
// the wait for it; every load has its place, and its ring a slot for each stage. An error names the sTask: the proof of
// the device program no longer knows them. Whether registers and shared memory suffice is the search's to weigh and
// program::legalise()'s to say.
[[nodiscard]] Result<void> check_valid(const task::Graph& graph, const partition::Assignment& assignment,
                                       const Program& program);

}  // namespace pipethreader::schedule
