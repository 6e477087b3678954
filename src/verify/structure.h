// What needs no execution: capacities, that all roles go through the same work items, that clusters are used alike.
#pragma once

#include "verify/code.h"
#include "verify/verify.h"

namespace pipethreader::verify {

[[nodiscard]] Result<void> check_structure(const program::Program& program, const Options& options);

}  // namespace pipethreader::verify
