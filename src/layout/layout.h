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

// Digits of one place are listed least significant first. The lane digits' extents multiply to 32, the warp
// digits' to 4. Every coordinate of `shape` is held by at least one (thread, register).
struct Layout {
  std::vector<int> shape;
  std::vector<Digit> digits;
  bool operator==(const Layout&) const = default;

  [[nodiscard]] int registers() const;                                              // elements a thread holds
  [[nodiscard]] std::vector<int> coordinates(int thread, int reg) const;            // thread = warp * 32 + lane
  [[nodiscard]] bool owns(int thread) const;  // the thread whose replicated digits are all 0: writes once
};

// Checks the invariants above (extents, coverage, bounds).
[[nodiscard]] Result<void> validate(const Layout& layout);

// The accumulator of a warpgroup's m64nNk16 products: rows a multiple of 64, columns a multiple of 8. Packed to 16
// bits, it is also, register for register, the A operand over K = cols.
[[nodiscard]] Layout mma_accumulator(int rows, int cols);

// A tile spread so that `vector` neighbouring elements of the last dimension lie in one thread and the lanes run
// along the last dimension first (coalesced global access). Extents must be powers of two times anything that fits;
// what the threads do not cover is held in registers; a tile smaller than the threads is replicated.
[[nodiscard]] Layout blocked(std::span<const int> shape, int vector);

// Every thread holds the whole tile.
[[nodiscard]] Layout replicated_over_threads(std::span<const int> shape);

// The layout of a value over the dims `kept` (in that order) whose elements sit where a tile of `layout` needs them:
// register digits of the other dims vanish, their lane and warp digits replicate.
[[nodiscard]] Layout slice(const Layout& layout, std::span<const int> kept);

// For an operand whose dim k is dim map[k] of the tile: the operand's register that holds what each register of the
// tile needs, equal for all threads; nothing when some element lies in another thread (a relayout is needed).
[[nodiscard]] std::optional<std::vector<int>> register_map(const Layout& tile, const Layout& operand,
                                                           std::span<const int> map);

// "[64, 128] reg(2:c1*1 2:c0*8 16:c1*8) lane(4:c1*2 8:c0*1) warp(4:c0*16)"; a replicated digit prints as "4:-".
[[nodiscard]] std::string print(const Layout& layout);
[[nodiscard]] Result<Layout> parse(const std::string& text);

}  // namespace pipethreader::layout
