// Timing of an sProgram: runs its lanes on the execution unit's units for one work item and says when each sTask runs
// and how long the whole takes. The tensor core serves all lanes at once (one after the other when they take turns),
// the CUDA cores are shared by whoever computes, register traffic slows the tensor core, copies are served in order.
// Rings hold back readers and fillers as in the printed program. Memory beyond the execution unit's share of L2 is not
// modelled.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/device.h"
#include "schedule/sprogram.h"
#include "simulate/task_cost.h"

namespace pipethreader::simulate {

// One sTask at work, or a lane that waits.
struct Span {
  enum class Kind : std::uint8_t { work, wait };
  Kind kind = Kind::work;
  int lane = 0;  // index into Timeline::lanes: who issued it
  task::UnitKind unit = task::UnitKind::cuda_cores;
  task::TaskId task;
  std::int64_t iteration = -1;  // of the innermost loop; -1 outside loops
  double start = 0;
  double end = 0;
};

// A loop of the schedule. Loops are simulated for a limited number of trips; the rest is extrapolated.
struct LoopTime {
  kernel::AxisId axis;
  double trips = 0;   // the mean over work items
  double most = 0;    // of the longest one
  double passed = 1;  // the part of them that a mean lane does not pass over
  std::int64_t simulated = 0;
  double cycles_per_trip = 0;  // in the steady state
  double steady_start = 0;     // a steady iteration to look at begins and ends here
  double steady_end = 0;
};

struct Timeline {
  std::vector<std::string> lanes;  // the copier first, if there is one
  std::vector<Span> spans;         // by start
  std::vector<LoopTime> loops;
  double cycles = 0;        // of what was simulated
  double work_cycles = 0;   // of one mean work item, with the trips that were not simulated; of the last one simulated,
                            // from the end of the one before, whose time its copies use
  double start_cycles = 0;  // by which the first of several work items takes longer than the last
  device::Demand demand;    // what one mean work item asks of each resource, all lanes together; of a copy for several
                            // blocks, its share
  device::Demand busy;      // the same in cycles: device.busy_cycles(demand)
  double bytes = 0;         // to and from global memory in one mean work item, shared copies as above
  bool stuck = false;       // the lanes wait for each other: no schedule of ours does
};

// "load K", "mma s", "max n": what reports call a task.
[[nodiscard]] std::string task_name(const task::Graph& graph, task::TaskId task);

// `work_items` one after the other, by lanes that stay.
[[nodiscard]] Timeline simulate(const task::Graph& graph, const partition::Partition& partition,
                                const partition::Assignment& assignment, const schedule::Program& program,
                                const device::Device& device, std::int64_t trips_limit = 8, int work_items = 1);

}  // namespace pipethreader::simulate
