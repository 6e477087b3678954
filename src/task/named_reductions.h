// A reduction inside another one gets a name: kernel in, kernel out.
//   O[m] = max[l: L] sum[k: K] A[l,m,k];   becomes   inner l: L;  v[l,m] = sum[k: K] A[l,m,k];  O[m] = max[l] v[l,m];
#pragma once

#include "kernel/kernel.h"

namespace pipethreader::task {

[[nodiscard]] kernel::Kernel with_named_reductions(kernel::Kernel kernel);

}  // namespace pipethreader::task
