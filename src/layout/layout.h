// Where the elements of a register tile live. A layout maps (register, lane, warp) of one warpgroup to a coordinate of
// the tile by mixed radix digits: each digit is taken from one place, and adds digit * stride to one tile dimension,
// or to none (the element is then replicated over that digit). This covers tensor-core fragments, blocked tiles for
// coalesced access, their slices (row and column vectors) and tile sizes that are no powers of two.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/diagnostic.h"

namespace pipethreader::layout {

enum class Place : std::uint8_t { reg, lane, warp };

inline constexpr int lanes_of_warp = 32;
inline constexpr int warps_of_group = 4;
inline constexpr int threads_of_group = lanes_of_warp * warps_of_group;
inline constexpr int replicated = -1;

struct Digit {
  Place place = Place::reg;
  int extent = 1;
  int dim = replicated;
  int stride = 0;
  bool operator==(const Digit&) const = default;
};

// Registers come first, then lanes, then warps; digits of one place are listed least significant first. The lane
// digits' extents multiply to 32, the warp digits' to 4. Every coordinate of `shape` is held by exactly one (thread,
// register) among those whose replicated digits are 0; register digits are never replicated.
struct Layout {
  std::vector<int> shape;
  std::vector<Digit> digits;
  bool operator==(const Layout&) const = default;

  [[nodiscard]] std::int64_t elements() const;                            // of the whole tile
  [[nodiscard]] int registers() const;                                    // elements a thread holds
  [[nodiscard]] std::vector<int> coordinates(int thread, int reg) const;  // thread = warp * 32 + lane
  // coordinates(thread, reg) is the sum of these two, dimension by dimension.
  [[nodiscard]] std::vector<int> thread_offset(int thread) const;
  [[nodiscard]] std::vector<int> register_offset(int reg) const;
  [[nodiscard]] bool owns(int thread) const;  // the thread whose replicated digits are all 0: writes once
};

// Checks the invariants above (extents, coverage, bounds).
[[nodiscard]] Result<void> validate(const Layout& layout);

// The accumulator of a warpgroup's m64nNk16 products: rows a multiple of 64, columns a multiple of 8. Packed to 16
// bits, it is also, register for register, the A operand over K = cols.
[[nodiscard]] Layout mma_accumulator(int rows, int cols);

// A tile spread so that `vector` neighbouring elements of the last dimension lie in one thread and the lanes run
// along the last dimension first (coalesced global access); warps take outer dimensions first. A vector that does not
// divide the last dimension shrinks to what does. Threads take the powers of two that divide each dimension; what they
// do not cover is held in registers; threads left over replicate.
[[nodiscard]] Layout blocked(std::span<const int> shape, int vector);

// Every thread holds the whole tile.
[[nodiscard]] Layout replicated_over_threads(std::span<const int> shape);

// The layout of a value over the dims `kept` (in that order) whose elements sit where a tile of `layout` needs them:
// register digits of the other dims vanish, their lane and warp digits replicate.
[[nodiscard]] Layout slice(const Layout& layout, std::span<const int> kept);

// As slice(), with one more, last dimension q = (j / stride) % extent of the last dimension j of `layout` (which is not
// kept): where partial results over the rest of j lie. Nothing when q cuts a digit unevenly.
[[nodiscard]] std::optional<Layout> slice_with_residual(const Layout& layout, std::span<const int> kept, int stride,
                                                        int extent);

// For an operand whose dim k is dim map[k] of the tile: the operand's register that holds what each register of the
// tile needs, equal for all threads; nothing when some element lies in another thread (a relayout is needed).
[[nodiscard]] std::optional<std::vector<int>> register_map(const Layout& tile, const Layout& operand,
                                                           std::span<const int> map);

// "[64, 128] reg(2:c1*1 2:c0*8 16:c1*8) lane(4:c1*2 8:c0*1) warp(4:c0*16)"; a replicated digit prints as "4:-".
[[nodiscard]] std::string print(const Layout& layout);
[[nodiscard]] Result<Layout> parse(const std::string& text);

}  // namespace pipethreader::layout
