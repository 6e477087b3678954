// Cuts every buffer into atoms: what all accesses together cannot tell apart.
#pragma once

#include "verify/code.h"

namespace pipethreader::verify {

// Fills `atoms` and `atom_counts` of what was compiled, and the atoms that each access touches.
void cut_buffers(const program::Program& program, Compiled& compiled);

}  // namespace pipethreader::verify
