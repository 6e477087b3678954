// Of a tile in shared memory that masks leave unread in part, the part that has memory.
#pragma once

namespace pipethreader::layout {

// Stair i, the rows from i * `rows` on, has the columns [begin + i * begin_step, end + i * end_step) alone, all of them
// multiples of the swizzle's span.
struct Stairs {
  int rows = 0;
  int begin = 0, begin_step = 0;
  int end = 0, end_step = 0;
  [[nodiscard]] int first(int stair) const { return begin + stair * begin_step; }
  [[nodiscard]] int last(int stair) const { return end + stair * end_step; }
};

}  // namespace pipethreader::layout
