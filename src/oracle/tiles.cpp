#include "oracle/tiles.h"

#include <algorithm>
#include <utility>

namespace pipethreader::oracle {

namespace {

constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15u;

}  // namespace

std::uint64_t Random::next() {
  std::uint64_t z = state_ += kStep;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

void Random::skip(std::uint64_t count) { state_ += count * kStep; }

double Random::uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

std::int64_t Random::between(std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(high - low + 1));
}

std::vector<Tile> tiles_of(const LoopTiles& how, std::int64_t extent, bool ordered) {
  Random random(how.seed);
  std::vector<Tile> tiles;
  for (std::int64_t first = 0; first < extent;) {
    std::int64_t length = extent;
    if (how.kind == LoopTiles::Kind::one) length = 1;
    if (how.kind == LoopTiles::Kind::fixed) length = std::max<std::int64_t>(1, how.size);
    if (how.kind == LoopTiles::Kind::ragged) length = random.between(1, std::max<std::int64_t>(1, extent / 2));
    length = std::min(length, extent - first);
    tiles.push_back({first, length});
    first += length;
  }
  if (how.shuffle && !ordered)
    for (std::size_t i = tiles.size(); i > 1; --i)
      std::swap(tiles[i - 1], tiles[static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(i) - 1))]);
  return tiles;
}

}  // namespace pipethreader::oracle
