#include "layout/layout.h"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace pipethreader::layout {
namespace {

int extent_of(const Layout& layout, Place place) {
  int extent = 1;
  for (const Digit& d : layout.digits)
    if (d.place == place) extent *= d.extent;
  return extent;
}

// Adds what the digits of `place` contribute at `index`.
void add_offset(const Layout& layout, Place place, int index, std::vector<int>& coordinates) {
  for (const Digit& d : layout.digits) {
    if (d.place != place) continue;
    const int digit = index % d.extent;
    index /= d.extent;
    if (d.dim != replicated) coordinates[static_cast<std::size_t>(d.dim)] += digit * d.stride;
  }
  assert(index == 0);
}

std::vector<int> offset(const Layout& layout, Place place, int index) {
  std::vector<int> coordinates(layout.shape.size(), 0);
  add_offset(layout, place, index, coordinates);
  return coordinates;
}

// For each index of `place`, the sum of its coordinates times their dimensions' weights.
std::vector<int> positions(const Layout& layout, Place place, std::span<const int> weights) {
  std::vector<int> result = {0};
  for (const Digit& d : layout.digits) {
    if (d.place != place) continue;
    const int step = d.dim == replicated ? 0 : d.stride * weights[static_cast<std::size_t>(d.dim)];
    const std::size_t below = result.size();
    for (int digit = 1; digit < d.extent; ++digit)
      for (std::size_t i = 0; i < below; ++i) result.push_back(result[i] + digit * step);
  }
  return result;
}

void push_digit(Layout& layout, Digit digit) {
  if (digit.extent > 1) layout.digits.push_back(digit);
}

int power_of_two_divisor(int value) { return value & -value; }

Result<void> check_digits(const Layout& layout) {
  Place last = Place::reg;
  for (const Digit& d : layout.digits) {
    if (d.place < last) return fail("layout digits must list registers, then lanes, then warps");
    last = d.place;
    if (d.extent < 2) return fail("a layout digit has extent {}; expected at least 2", d.extent);
    if (d.dim == replicated) {
      if (d.place == Place::reg) return fail("a register digit is replicated; only lane and warp digits may be");
      if (d.stride != 0) return fail("a replicated layout digit has stride {}; expected 0", d.stride);
    } else if (d.dim < 0 || d.dim >= static_cast<int>(layout.shape.size())) {
      return fail("a layout digit names dimension {} of a tile with {} dimensions", d.dim, layout.shape.size());
    } else if (d.stride < 1) {
      return fail("a layout digit has stride {}; expected at least 1", d.stride);
    }
  }
  if (const int lanes = extent_of(layout, Place::lane); lanes != lanes_of_warp)
    return fail("lane digits multiply to {}; expected {}", lanes, lanes_of_warp);
  if (const int warps = extent_of(layout, Place::warp); warps != warps_of_group)
    return fail("warp digits multiply to {}; expected {}", warps, warps_of_group);
  return {};
}

}  // namespace

std::int64_t Layout::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

int Layout::registers() const { return extent_of(*this, Place::reg); }

std::vector<int> Layout::thread_offset(int thread) const {
  assert(thread >= 0 && thread < threads_of_group);
  std::vector<int> result(shape.size(), 0);
  add_offset(*this, Place::lane, thread % lanes_of_warp, result);
  add_offset(*this, Place::warp, thread / lanes_of_warp, result);
  return result;
}

std::vector<int> Layout::register_offset(int reg) const {
  assert(reg >= 0 && reg < registers());
  return offset(*this, Place::reg, reg);
}

std::vector<int> Layout::coordinates(int thread, int reg) const {
  std::vector<int> result = thread_offset(thread);
  add_offset(*this, Place::reg, reg, result);
  return result;
}

bool Layout::owns(int thread) const {
  int lane = thread % lanes_of_warp;
  int warp = thread / lanes_of_warp;
  for (const Digit& d : digits) {
    if (d.place == Place::reg) continue;
    int& index = d.place == Place::lane ? lane : warp;
    if (d.dim == replicated && index % d.extent != 0) return false;
    index /= d.extent;
  }
  return true;
}

Result<void> validate(const Layout& layout) {
  for (const int extent : layout.shape)
    if (extent < 1) return fail("a layout has a dimension of extent {}; expected at least 1", extent);
  if (auto digits = check_digits(layout); !digits) return digits;

  // Dimensions are independent: each must be counted through, once, by its own digits. Sorted by stride, digits count
  // through 0 .. extent - 1 exactly when every stride is the product of the extents before it.
  for (std::size_t dim = 0; dim < layout.shape.size(); ++dim) {
    std::vector<Digit> own;
    for (const Digit& d : layout.digits)
      if (d.dim == static_cast<int>(dim)) own.push_back(d);
    std::ranges::sort(own, {}, &Digit::stride);
    int covered = 1;
    for (const Digit& d : own) {
      if (d.stride != covered)
        return fail("dimension {} of a layout is not covered once: a digit has stride {}, expected {}", dim, d.stride,
                    covered);
      covered *= d.extent;
    }
    if (covered != layout.shape[dim])
      return fail("dimension {} of a layout has extent {} but its digits cover {}", dim, layout.shape[dim], covered);
  }
  return {};
}

Layout mma_accumulator(int rows, int cols) {
  assert(rows > 0 && rows % 64 == 0 && cols > 0 && cols % 8 == 0);
  Layout layout{{rows, cols}, {}};
  push_digit(layout, {Place::reg, 2, 1, 1});
  push_digit(layout, {Place::reg, 2, 0, 8});
  push_digit(layout, {Place::reg, cols / 8, 1, 8});
  push_digit(layout, {Place::reg, rows / 64, 0, 64});
  push_digit(layout, {Place::lane, 4, 1, 2});
  push_digit(layout, {Place::lane, 8, 0, 1});
  push_digit(layout, {Place::warp, 4, 0, 16});
  return layout;
}

Layout blocked(std::span<const int> shape, int vector) {
  assert(vector >= 1);
  Layout layout{{shape.begin(), shape.end()}, {}};
  const int rank = static_cast<int>(shape.size());
  std::vector<int> rest(shape.begin(), shape.end());  // what of each dimension is not yet placed
  std::vector<int> stride(shape.size(), 1);
  std::vector<Digit> registers, lanes, warps;
  const auto take = [&](std::vector<Digit>& digits, Place place, int dim, int extent) {
    const auto d = static_cast<std::size_t>(dim);
    if (extent > 1) digits.push_back({place, extent, dim, stride[d]});
    rest[d] /= extent;
    stride[d] *= extent;
  };

  if (rank > 0) take(registers, Place::reg, rank - 1, std::gcd(vector, shape.back()));
  int free_lanes = lanes_of_warp;
  for (int dim = rank - 1; dim >= 0; --dim) {
    const int extent = std::min(free_lanes, power_of_two_divisor(rest[static_cast<std::size_t>(dim)]));
    take(lanes, Place::lane, dim, extent);
    free_lanes /= extent;
  }
  if (free_lanes > 1) lanes.push_back({Place::lane, free_lanes, replicated, 0});
  int free_warps = warps_of_group;
  for (int dim = 0; dim < rank; ++dim) {
    const int extent = std::min(free_warps, power_of_two_divisor(rest[static_cast<std::size_t>(dim)]));
    take(warps, Place::warp, dim, extent);
    free_warps /= extent;
  }
  if (free_warps > 1) warps.push_back({Place::warp, free_warps, replicated, 0});
  for (int dim = rank - 1; dim >= 0; --dim) take(registers, Place::reg, dim, rest[static_cast<std::size_t>(dim)]);

  for (const auto* digits : {&registers, &lanes, &warps})
    layout.digits.insert(layout.digits.end(), digits->begin(), digits->end());
  return layout;
}

Layout replicated_over_threads(std::span<const int> shape) {
  Layout layout{{shape.begin(), shape.end()}, {}};
  for (int dim = static_cast<int>(shape.size()) - 1; dim >= 0; --dim)
    push_digit(layout, {Place::reg, shape[static_cast<std::size_t>(dim)], dim, 1});
  layout.digits.push_back({Place::lane, lanes_of_warp, replicated, 0});
  layout.digits.push_back({Place::warp, warps_of_group, replicated, 0});
  return layout;
}

Layout slice(const Layout& layout, std::span<const int> kept) {
  Layout result;
  for (const int dim : kept) result.shape.push_back(layout.shape[static_cast<std::size_t>(dim)]);
  for (Digit d : layout.digits) {
    const auto at = std::ranges::find(kept, d.dim);
    if (d.dim != replicated && at != kept.end()) {
      d.dim = static_cast<int>(at - kept.begin());
    } else if (d.place == Place::reg) {
      continue;
    } else {
      d.dim = replicated;
      d.stride = 0;
      // Neighbouring replicated digits are one, so that equal layouts compare equal.
      if (!result.digits.empty() && result.digits.back().place == d.place && result.digits.back().dim == replicated) {
        result.digits.back().extent *= d.extent;
        continue;
      }
    }
    result.digits.push_back(d);
  }
  return result;
}

std::optional<Layout> slice_with_residual(const Layout& layout, std::span<const int> kept, int stride, int extent) {
  if (layout.shape.empty() || stride < 1 || extent < 1 || layout.shape.back() % (stride * extent) != 0)
    return std::nullopt;
  const int last = static_cast<int>(layout.shape.size()) - 1;
  if (std::ranges::find(kept, last) != kept.end()) return std::nullopt;

  // The last dimension becomes three: what lies below, in and above the residual. Digits are cut at its ends.
  constexpr int below = 1, inside = 0, above = 2;
  Layout cut{layout.shape, {}};
  cut.shape.back() = extent;
  cut.shape.insert(cut.shape.end(), {stride, layout.shape.back() / (stride * extent)});
  for (Digit d : layout.digits) {
    if (d.dim != last) {
      cut.digits.push_back(d);
      continue;
    }
    const std::pair<int, int> parts[] = {{below, 1}, {inside, stride}, {above, stride * extent}};
    for (const auto& [part, begin] : parts) {
      const int end = begin * cut.shape[static_cast<std::size_t>(last + part)];
      if (d.stride >= end || d.extent == 1) continue;
      if (d.stride % begin != 0) return std::nullopt;
      const int room = end / d.stride;
      if (end % d.stride != 0 || (d.extent > room && d.extent % room != 0)) return std::nullopt;
      const int taken = std::min(d.extent, room);
      push_digit(cut, {d.place, taken, last + part, d.stride / begin});
      d.extent /= taken;
      d.stride *= taken;
    }
  }
  std::vector<int> dims(kept.begin(), kept.end());
  dims.push_back(last);
  return slice(cut, dims);
}

// Both layouts are sums of a register part, a lane part and a warp part, each 0 at index 0. So the operand's register
// can be the same for all threads only if lane and warp parts agree by themselves; then registers are matched at thread
// 0. Coordinates are compared as positions in the operand.
std::optional<std::vector<int>> register_map(const Layout& tile, const Layout& operand, std::span<const int> map) {
  assert(map.size() == operand.shape.size());
  std::vector<int> tile_weights(tile.shape.size(), 0);
  std::vector<int> operand_weights(operand.shape.size(), 0);
  int volume = 1;
  for (std::size_t k = map.size(); k-- > 0;) {
    const auto dim = static_cast<std::size_t>(map[k]);
    if (tile.shape[dim] > operand.shape[k]) return std::nullopt;  // some element is in no thread
    operand_weights[k] = volume;
    tile_weights[dim] += volume;
    volume *= operand.shape[k];
  }
  if (positions(tile, Place::lane, tile_weights) != positions(operand, Place::lane, operand_weights) ||
      positions(tile, Place::warp, tile_weights) != positions(operand, Place::warp, operand_weights))
    return std::nullopt;

  std::vector<int> holder(static_cast<std::size_t>(volume), -1);
  int reg = 0;
  for (const int position : positions(operand, Place::reg, operand_weights))
    holder[static_cast<std::size_t>(position)] = reg++;
  std::vector<int> result;
  for (const int position : positions(tile, Place::reg, tile_weights)) {
    result.push_back(holder[static_cast<std::size_t>(position)]);
    if (result.back() < 0) return std::nullopt;
  }
  return result;
}

}  // namespace pipethreader::layout
