// Whether a device has what a program asks of it: a code generator for its architecture, the products, the copy engine.
#pragma once

#include "base/diagnostic.h"
#include "device/device.h"
#include "program/program.h"

namespace pipethreader::driver {

// An error says what the device lacks.
[[nodiscard]] Result<void> check_capabilities(const program::Program& program, const device::Device& device);

}  // namespace pipethreader::driver
