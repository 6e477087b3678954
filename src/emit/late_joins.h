// Reductions whose threads need not always hear of each other's parts.
#pragma once

#include <map>
#include <vector>

#include "program/program.h"

namespace pipethreader::emit {

// A maximum (or minimum) is one of the parts that it joins. Where it is read under a condition on it alone, as by
//   x = max(m, max over j of s[j]);  n = select(x - m > 8, x, m)
// a warp no part of which meets the condition can leave its parts as they are: their maximum does not meet it either.
struct LateJoin {
  std::vector<const program::Map*> between;  // what the condition reads on the way, computed from the maximum
  const program::Map* decides = nullptr;     // selects by the condition
};

// For the reductions of a program that stay within a warp, by their address. The maps stand right behind.
[[nodiscard]] std::map<const program::Reduce*, LateJoin> late_joins(const program::Program& program);

}  // namespace pipethreader::emit
