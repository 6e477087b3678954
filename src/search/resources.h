// What a scheduled candidate needs of the registers and the shared memory.
#pragma once

#include <cstdint>

#include "device/device.h"
#include "partition/assignment.h"
#include "partition/partition.h"
#include "schedule/sprogram.h"

namespace pipethreader::search {

// The most registers that live values need at once in a computing thread, without addresses and counters.
[[nodiscard]] int live_registers(const task::Graph& graph, const partition::Partition& partition,
                                 const partition::Assignment& assignment, const schedule::Program& program);

struct SharedNeed {
  std::int64_t fixed = 0;      // rings outside loops, one slot each, and scratch
  std::int64_t per_depth = 0;  // one slot of every ring inside loops
};
[[nodiscard]] SharedNeed shared_need(const task::Graph& graph, const partition::Assignment& assignment,
                                     const schedule::Program& program);

// How many tiles of the even axes are walked together, so that what all tiles of the uneven ones load of them stays in
// the device's share of L2 for it; 0: all, also where their number is not known.
[[nodiscard]] int band_for_l2(const task::Graph& graph, const partition::Partition& partition,
                              const device::Device& device);

}  // namespace pipethreader::search
