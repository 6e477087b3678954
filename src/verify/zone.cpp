#include "verify/zone.h"

#include <algorithm>

namespace pipethreader::verify {
namespace {

std::int32_t sum(std::int32_t a, std::int32_t b) {
  if (a == Zone::unbounded || b == Zone::unbounded) return Zone::unbounded;
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(std::int64_t{a} + b, INT32_MIN / 2, INT32_MAX / 2));
}

}  // namespace

Zone::Zone() {
  grow();
  used_[0] = true;
}

void Zone::grow() {
  const int old = capacity_;
  const int wider = std::max(8, old * 2);
  std::vector<std::int32_t> cells(static_cast<std::size_t>(wider) * static_cast<std::size_t>(wider), unbounded);
  for (int x = 0; x < wider; ++x) {
    for (int y = 0; y < wider; ++y) {
      auto& target = cells[static_cast<std::size_t>(x) * static_cast<std::size_t>(wider) + static_cast<std::size_t>(y)];
      if (x < old && y < old) {
        target = cell(x, y);
      } else if (x == y) {
        target = 0;
      }
    }
  }
  capacity_ = wider;
  cells_ = std::move(cells);
  used_.resize(static_cast<std::size_t>(wider), false);
}

int Zone::add() {
  const auto free = std::find(used_.begin(), used_.end(), false);
  const auto variable = static_cast<int>(free - used_.begin());
  if (free == used_.end()) grow();
  used_[static_cast<std::size_t>(variable)] = true;
  return variable;
}

int Zone::add_equal(int other, int offset) {
  const int variable = add();
  for (int y = 0; y < capacity_; ++y) {
    if (y == variable || !used_[static_cast<std::size_t>(y)]) continue;
    cell(variable, y) = sum(cell(other, y), offset);
    cell(y, variable) = sum(cell(y, other), -offset);
  }
  return variable;
}

void Zone::remove(int variable) {
  used_[static_cast<std::size_t>(variable)] = false;
  for (int y = 0; y < capacity_; ++y) {
    if (y == variable) continue;
    cell(variable, y) = unbounded;
    cell(y, variable) = unbounded;
  }
}

void Zone::shift(int variable, int by) {
  for (int y = 0; y < capacity_; ++y) {
    if (y == variable) continue;
    cell(variable, y) = sum(cell(variable, y), by);
    cell(y, variable) = sum(cell(y, variable), -by);
  }
}

bool Zone::constrain(int x, int y, std::int64_t c) {
  const auto bound = static_cast<std::int32_t>(std::clamp<std::int64_t>(c, INT32_MIN / 2, INT32_MAX / 2));
  if (sum(cell(y, x), bound) < 0) return false;
  if (cell(x, y) <= bound) return true;
  cell(x, y) = bound;
  for (int a = 0; a < capacity_; ++a) {
    if (!used_[static_cast<std::size_t>(a)]) continue;
    const std::int32_t to = sum(cell(a, x), bound);
    if (to == unbounded) continue;
    for (int b = 0; b < capacity_; ++b) {
      if (used_[static_cast<std::size_t>(b)]) cell(a, b) = std::min(cell(a, b), sum(to, cell(y, b)));
    }
  }
  return true;
}

std::optional<std::int64_t> Zone::exact(int x) const {
  const std::int32_t high = bound(x, 0);
  if (high == unbounded || bound(0, x) != -high) return std::nullopt;
  return high;
}

bool Zone::equal(int x, int y, int offset) const {
  return bound(x, y) != unbounded && bound(x, y) <= offset && bound(y, x) != unbounded && bound(y, x) <= -offset;
}

std::int64_t Zone::low(int x) const { return bound(0, x) == unbounded ? INT32_MIN : -std::int64_t{bound(0, x)}; }

void Zone::close() {
  for (int via = 0; via < capacity_; ++via) {
    if (!used_[static_cast<std::size_t>(via)]) continue;
    for (int x = 0; x < capacity_; ++x) {
      const std::int32_t to = cell(x, via);
      if (to == unbounded) continue;
      for (int y = 0; y < capacity_; ++y) cell(x, y) = std::min(cell(x, y), sum(to, cell(via, y)));
    }
  }
}

}  // namespace pipethreader::verify
