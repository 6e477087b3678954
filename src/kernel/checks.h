// The three parts of check(). Each reports all it finds.
#pragma once

#include "kernel/kernel.h"
#include "kernel/messages.h"

namespace pipethreader::kernel {

void check_scopes(const Kernel& kernel, Reporter& reporter);  // shapes, axes, what is defined where, outputs
void check_types(Kernel& kernel, Reporter& reporter);         // sets every expression's and value's type
void check_bounds(const Kernel& kernel, Reporter& reporter);  // after the two others found nothing

}  // namespace pipethreader::kernel
