// Where a body of an sProgram needs the slots of its rings.
#pragma once

#include <vector>

#include "schedule/sprogram.h"

namespace pipethreader::schedule {

// Whether the item reads slots of the ring: `end` is Part::issue for where reading starts (a fetch, the issue of a
// product), Part::wait for where it has ended (a fetch, the wait for a product).
[[nodiscard]] bool reads(const task::Graph& graph, const partition::Assignment& assignment, const Item& item,
                         const RingPlan& ring, Part end);

// `first` and `last` are items.size() where nothing reads the ring.
struct RingUse {
  std::size_t ring = 0;   // index into Program::rings
  std::size_t first = 0;  // the item before which the slot must be full: of the earliest stage
  std::size_t last = 0;   // the item after which it is given back: of the latest stage
};

// For every ring that advances with the body: `level` are the loops around it, outermost first.
[[nodiscard]] std::vector<RingUse> ring_uses(const task::Graph& graph, const partition::Assignment& assignment,
                                             const Program& program, const std::vector<Item>& body,
                                             const std::vector<kernel::StatementId>& level);

// Lets a tile that lanes fetch into registers share the slots of one, no smaller, that a product reads in the same
// iteration: lanes wait and release once for both.
void join_tiles(const task::Graph& graph, const partition::Assignment& assignment, Program& program);

}  // namespace pipethreader::schedule
