// The text of one expression, as print() writes it; used by messages too.
#pragma once

#include <string>

#include "kernel/kernel.h"

namespace pipethreader::kernel {

[[nodiscard]] std::string to_text(const Kernel& kernel, ExprId expr);

}  // namespace pipethreader::kernel
