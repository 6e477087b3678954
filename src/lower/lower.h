// Lowering: an sProgram with its partition and assignment becomes a device program. Nothing is decided here that
// changes the schedule; masks, guards, coordinates, slots and barriers are spelled out.
#pragma once

#include <string>

#include "base/diagnostic.h"
#include "device/device.h"
#include "partition/assignment.h"
#include "partition/partition.h"
#include "program/program.h"
#include "schedule/sprogram.h"
#include "task/graph.h"

namespace pipethreader::lower {

struct Options {
  bool bulk = true;       // use the copy engine; off: the variant for sizes that it cannot take
  bool pass_over = true;  // a lane passes over tiles in which its rows have no point
};

[[nodiscard]] Result<program::Program> lower(const task::Graph& graph, const partition::Partition& partition,
                                             const partition::Assignment& assignment, const schedule::Program& schedule,
                                             const device::Device& device, const Options& options = {});

}  // namespace pipethreader::lower
