// Rectangles of a tile in shared memory: the parts that accesses touch, and the atoms that their borders cut it into.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace pipethreader::verify {

struct Rectangle {
  std::int64_t row_begin = 0, row_end = 0, col_begin = 0, col_end = 0;
  bool operator==(const Rectangle&) const = default;
};

[[nodiscard]] Rectangle whole(const program::Buffer& buffer);
[[nodiscard]] bool inside(const Rectangle& part, const Rectangle& all);
[[nodiscard]] bool has_memory(const program::Buffer& buffer, const Rectangle& part);  // all of it: stairs may lack some

// An instance's own part of a scratch buffer, element by element, when there is room for all instances; else the
// beginning.
[[nodiscard]] Rectangle scratch_part(const program::Buffer& buffer, std::int64_t elements, int instance, int instances);

// The rectangles between all borders of the parts, where there is memory.
[[nodiscard]] std::vector<Rectangle> cut(const program::Buffer& buffer, const std::vector<Rectangle>& parts);

}  // namespace pipethreader::verify
