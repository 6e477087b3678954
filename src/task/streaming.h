// Turns reductions and inner axes that are too long to stay on chip into explicit loops: kernel in, kernel out.
//   C[m,n] = f16(sum[k: K] A * B)   becomes   carry C_sum[m,n] = 0; for k: K { C_sum[m,n] += sum[k] A * B; } C[m,n] =
//   f16(C_sum[m,n]);
// Reductions over the same domain that do not depend on each other share a loop. A value over a streamed inner axis is
// computed again in every loop that uses it.
#pragma once

#include <set>

#include "kernel/kernel.h"
#include "task/graph.h"

namespace pipethreader::task {

[[nodiscard]] Result<kernel::Kernel> stream(kernel::Kernel kernel, const std::set<kernel::AxisId>& tiled,
                                            const Limits& limits);

enum class ReductionKind : std::uint8_t { product, tile, serial };

// How a reduction runs, given which axes are tiled: on the tensor core, over a register tile, or index by index.
[[nodiscard]] ReductionKind classify(const kernel::Kernel& kernel, kernel::ExprId reduce,
                                     const std::set<kernel::AxisId>& tiled);

}  // namespace pipethreader::task
