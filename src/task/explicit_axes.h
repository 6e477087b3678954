// A value may leave out the parallel axes that it depends on (`total = sum[k] X[i,k]` exists once for each i). Tiles
// need them said: this adds them to the values and to every use. And a reduction may walk all of a value's axis under a
// name of its own (`sum[r: R] y[i,r] * W[n,r]` for y[i,d]): it gets the value's, and two values that it reads so get
// one axis. Reductions inside others get names first (named_reductions.h).
#pragma once

#include "kernel/kernel.h"

namespace pipethreader::task {

[[nodiscard]] kernel::Kernel with_explicit_axes(kernel::Kernel kernel);

}  // namespace pipethreader::task
