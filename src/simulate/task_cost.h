// What one sTask costs on the execution unit that runs it, in cycles, from the device's tables: the analytic model. It
// knows tiles and layouts, never which kernel they belong to.
#pragma once

#include <vector>

#include "device/device.h"
#include "partition/assignment.h"
#include "task/graph.h"

namespace pipethreader::simulate {

struct TaskCost {
  device::Demand demand;      // what one lane asks of every resource
  double cycles = 0;          // on its unit with nobody else there: tensor cycles, ALU cycles, or transfer cycles
  double latency = 0;         // from the end of those cycles until the result can be used
  double issue = 0;           // cycles for which the issuing lane is held at least (asynchronous sTasks)
  int instructions = 0;       // asynchronous instructions that are issued
  double bytes = 0;           // moved to or from global memory by all lanes together
  double register_ports = 0;  // the share of `cycles` that the register ports are busy
};

// By TaskId. A task that a lane never executes (a load that goes through the copier) has the copier's cost; what
// fetching it into registers costs a lane is in `fetches`.
struct TaskCosts {
  std::vector<TaskCost> tasks;
  std::vector<TaskCost> fetches;
};

[[nodiscard]] TaskCosts task_costs(const task::Graph& graph, const partition::Partition& partition,
                                   const partition::Assignment& assignment, const device::Device& device);

}  // namespace pipethreader::simulate
