// Types that the language has and no schedule can hold yet.
#pragma once

#include "base/diagnostic.h"
#include "kernel/kernel.h"

namespace pipethreader::task {

// Fails with the place of each tensor, value and conversion of such a type.
[[nodiscard]] Result<void> check_types(const kernel::Kernel& kernel);

}  // namespace pipethreader::task
