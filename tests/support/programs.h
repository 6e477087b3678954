// The hand-written device programs in tests/support/programs, for tests of everything that takes programs.
#pragma once

#include <string>
#include <vector>

#include "program/program.h"

namespace pipethreader::test {

// File stems, sorted.
std::vector<std::string> example_programs();

std::string example_text(const std::string& stem);

// Parsed and validated; throws std::runtime_error with the diagnostics otherwise.
program::Program example_program(const std::string& stem);

}  // namespace pipethreader::test
