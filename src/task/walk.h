// Walks a parallel axis inside an execution unit: kernel in, kernel out. A work item then covers `length` indices of
// the axis, one after the other, in a loop around the whole body, and what does not depend on the axis is loaded once
// for all of them.
//   parallel h: 64;  ...                       becomes    parallel h_block: 4;  for h: 16 { ... T[h_block * 16 + h] ...
//   }
// Quotients and remainders by constants are taken apart, so that `h / 32` is seen to be the same for all of a block.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "kernel/kernel.h"

namespace pipethreader::task {

struct Walk {
  std::string axis;  // empty: every work item has one tile of each parallel axis
  int length = 1;
  bool operator==(const Walk&) const = default;
};

// Fails where there is no such parallel axis of fixed size, where it is tiled, or where `length` does not divide it.
[[nodiscard]] Result<kernel::Kernel> walked(kernel::Kernel kernel, const std::set<kernel::AxisId>& tiled,
                                            const Walk& walk);

// The walks worth trying: every parallel axis of fixed size that is not tiled, whole and in a few equal parts.
[[nodiscard]] std::vector<Walk> possible_walks(const kernel::Kernel& kernel, const std::set<kernel::AxisId>& tiled);

}  // namespace pipethreader::task
