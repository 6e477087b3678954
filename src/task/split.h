// Splits the loop of a kernel into parts that different work items take: two kernels in place of one. The first leaves
// the state that each part ends with in a workspace, the second combines the states, in order, and goes on where the
// loop ended.
//   carry s = 0; for k: K { ... s += sum[k] ... } C = f(s);   becomes
//   parallel part: P; carry s = 0; for k: K / P { ... part * (K / P) + k ... } s_parts[part] = s;   and
//   C = f(s_parts[0] + s_parts[1] + ...);
// Sums combine by addition, other states as the loop's `combine` says.
#pragma once

#include "kernel/kernel.h"

namespace pipethreader::task {

struct Split {
  kernel::Kernel parts;  // its outputs are the workspace
  kernel::Kernel join;   // reads the workspace; has the kernel's outputs
};

// Fails where the kernel has no such loop of fixed size, where `parts` does not divide it, or where something else than
// the state is needed behind the loop.
[[nodiscard]] Result<Split> split(const kernel::Kernel& specialised, int parts);

}  // namespace pipethreader::task
