// One spelling of each kernel. What comes later visits and numbers things as they stand, and takes the first of what is
// alike: here all that a writer may order as they like is put into one order, so that a kernel's schedule does not hang
// on how it was written. Names say nothing.
//   - Parallel axes stand as the results have them in memory, the slowest first.
//   - Factors, terms and what else may change places: as their axes stand, where loads or products come from them.
//   - Statements that do not need each other: in a loop those over tiles before those over rows, of these what leaves
//     less behind first.
// Values name all their axes (explicit_axes.h). Axes and values are numbered as they then come; tensors, which are
// parameters, stay. What nothing tells apart stays as it was written: it is the same either way.
#pragma once

#include "kernel/kernel.h"

namespace pipethreader::task {

[[nodiscard]] kernel::Kernel canonical(kernel::Kernel kernel);

}  // namespace pipethreader::task
