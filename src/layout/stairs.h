// Of a tile in shared memory that masks leave unread in part, the part that has memory.
#pragma once

#include <cstdint>

namespace pipethreader::layout {

// Stair i, the rows from i * `rows` on, has the columns [begin + i * begin_step, end + i * end_step) alone, all of them
// multiples of the swizzle's span.
struct Stairs {
  int rows = 0;
  int begin = 0, begin_step = 0;
  int end = 0, end_step = 0;
  [[nodiscard]] int first(int stair) const { return begin + stair * begin_step; }
  [[nodiscard]] int last(int stair) const { return end + stair * end_step; }

  // Of the first stairs, so many of them.
  [[nodiscard]] std::int64_t elements(int stairs) const {
    std::int64_t columns = 0;
    for (int stair = 0; stair < stairs; ++stair) columns += last(stair) - first(stair);
    return columns * rows;
  }

  // Whether a row has these columns.
  [[nodiscard]] bool has(std::int64_t row, std::int64_t col_begin, std::int64_t col_end) const {
    const int stair = static_cast<int>(row / rows);
    return col_begin >= first(stair) && col_end <= last(stair);
  }
};

}  // namespace pipethreader::layout
