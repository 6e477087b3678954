// The sProgram's lanes unrolled to straight lists of steps for a limited number of trips: what a lane does, in order.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/sprogram.h"
#include "simulate/timeline.h"

namespace pipethreader::simulate {

struct Step {
  enum class Kind : std::uint8_t {
    acquire,  // copier: slot `index` of `ring` is free
    copy,     // copier: starts `task` into slot `index`
    full,     // computer: slot `index` is filled
    release,  // computer: has finished with slot `index`
    run,      // a blocking sTask, or fetching a staged value
    issue,
    wait,
    begin,  // computer: an iteration of loop `index` starts; `iteration`
    end,    // computer: a work item is over
  };
  Kind kind = Kind::run;
  task::TaskId task;
  std::int64_t iteration = -1;
  std::size_t ring = 0;
  std::int64_t index = 0;
  int stages = 1;    // begin: of the loop
  double share = 1;  // of the task's cycles: neighbours without a wait between them fill each other's gaps
  double part = 1;   // of the task: what a mean lane does of it
};

struct Traces {
  std::vector<Step> copier;
  std::vector<Step> computer;
  std::vector<LoopTime> loops;  // trips and simulated are set
  std::vector<double> passing;  // by lane of a team: what it does of a loop that lanes pass over in part, over the mean
};

[[nodiscard]] Traces unroll(const task::Graph& graph, const partition::Partition& partition,
                            const partition::Assignment& assignment, const schedule::Program& program,
                            std::int64_t trips_limit, int work_items);

}  // namespace pipethreader::simulate
