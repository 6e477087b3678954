// Runs of neighbouring registers as the words of one memory access of 1 to 16 bytes.
#pragma once

#include <string>
#include <vector>

#include "emit/emission.h"

namespace pipethreader::emit {

// Registers that are neighbours along a dim of the tile: 0 .. count-1, and every later group of `count`.
struct Run {
  int dim = 0;
  int count = 1;  // a power of two
};
[[nodiscard]] Run contiguous_run(const layout::Layout& tile);

// What each coordinate is a multiple of at the first register of every group.
[[nodiscard]] std::vector<int> coordinate_divisors(const layout::Layout& tile, Run run);

// C type that holds `count` elements: uint4, uint2, unsigned, unsigned short or unsigned char.
[[nodiscard]] std::string vector_type(ScalarType type, int count);

// An expression of that type from the registers `first` .. `first` + count - 1.
[[nodiscard]] std::string gathered(Emission& emission, program::FragmentId id, int first, int count);
// Assigns those registers from a variable of that type.
void scatter(Emission& emission, program::FragmentId id, int first, int count, const std::string& vector);

// The bits of one element, in its memory type.
[[nodiscard]] std::string element_bits(Emission& emission, program::FragmentId id, int reg);

}  // namespace pipethreader::emit
