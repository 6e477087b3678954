// Inputs for the example programs and what they have to compute, by plain loops in double.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "interpret/interpret.h"
#include "program/program.h"

namespace pipethreader::test {

// Random inputs in [-1, 1] (or so), rounded to their types; outputs empty.
interpret::Arguments random_arguments(const program::Program& program, std::vector<double> params, std::uint64_t seed);

// An element of the one output, and how far f32 arithmetic and the rounding of stored and intermediate values may
// bring a right result away from it.
struct Expected {
  double value = 0;
  double error = 0;
};
std::vector<Expected> reference(const std::string& example, const interpret::Arguments& arguments);

// Sizes that are small, yet have several tiles, ragged edges and (for loops) few and many trips.
std::vector<std::vector<double>> sizes_for(const std::string& example);

}  // namespace pipethreader::test
