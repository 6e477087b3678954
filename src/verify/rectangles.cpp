#include "verify/rectangles.h"

#include <algorithm>
#include <set>

namespace pipethreader::verify {

Rectangle whole(const program::Buffer& buffer) { return {0, buffer.rows, 0, buffer.cols}; }

bool inside(const Rectangle& part, const Rectangle& all) {
  return part.row_begin >= all.row_begin && part.row_end <= all.row_end && part.col_begin >= all.col_begin &&
         part.col_end <= all.col_end;
}

bool has_memory(const program::Buffer& buffer, const Rectangle& part) {
  if (!buffer.stairs) return true;
  const std::int64_t rows = buffer.stairs->rows;
  for (std::int64_t row = part.row_begin / rows * rows; row < part.row_end; row += rows) {
    if (!buffer.stairs->has(row, part.col_begin, part.col_end)) return false;
  }
  return true;
}

Rectangle scratch_part(const program::Buffer& buffer, std::int64_t elements, int instance, int instances) {
  Rectangle part = whole(buffer);
  const std::int64_t cols = part.col_end;
  const std::int64_t size = part.row_end * cols;
  const std::int64_t first = elements * instances <= size ? elements * instance : 0;
  const std::int64_t last = std::min(first + elements, size);
  part.row_begin = first / cols;
  part.row_end = (last + cols - 1) / cols;
  if (part.row_end == part.row_begin + 1) {
    part.col_begin = first % cols;
    part.col_end = last - part.row_begin * cols;
  }
  return part;
}

std::vector<Rectangle> cut(const program::Buffer& buffer, const std::vector<Rectangle>& parts) {
  std::set<std::int64_t> rows{0, buffer.rows};
  std::set<std::int64_t> cols{0, buffer.cols};
  for (const Rectangle& part : parts) {
    rows.insert({part.row_begin, part.row_end});
    cols.insert({part.col_begin, part.col_end});
  }
  for (int stair = 0; buffer.stairs && stair < buffer.rows / buffer.stairs->rows; ++stair) {
    rows.insert(std::int64_t{stair} * buffer.stairs->rows);
    cols.insert({buffer.stairs->first(stair), buffer.stairs->last(stair)});
  }
  std::vector<Rectangle> atoms;
  for (auto row = rows.begin(); std::next(row) != rows.end(); ++row) {
    for (auto col = cols.begin(); std::next(col) != cols.end(); ++col) {
      const Rectangle atom{*row, *std::next(row), *col, *std::next(col)};
      if (has_memory(buffer, atom)) atoms.push_back(atom);
    }
  }
  return atoms;
}

}  // namespace pipethreader::verify
