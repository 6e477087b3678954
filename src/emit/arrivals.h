// Loads from slots of rings that have arrived, or that nobody waits for, when their slot is given back.
#pragma once

#include <set>

#include "program/program.h"

namespace pipethreader::emit {

// The releases behind which no register is read that hangs on a load from the slot: who needed one has had it. Before
// any other release a load may still be under way.
[[nodiscard]] std::set<const program::RingRelease*> settled_releases(const program::Program& program);

}  // namespace pipethreader::emit
