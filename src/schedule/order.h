// Orders one body: dependences between parts of sTasks across the two stages of a pipelined loop, and the list
// schedule.
#pragma once

#include <vector>

#include "schedule/sprogram.h"

namespace pipethreader::schedule {

// What the tasks of one straight body look like to the scheduler.
struct BodyTask {
  task::TaskId task;
  bool asynchronous = false;
};

// The order of entries for a body. `in_loop`: the body repeats, so that values carried to the next iteration constrain
// the order and products may be deferred or delayed.
[[nodiscard]] std::vector<Entry> order_body(const task::Graph& graph, const partition::Assignment& assignment,
                                            const std::vector<task::TaskId>& tasks, bool in_loop, Overlap overlap);

}  // namespace pipethreader::schedule
