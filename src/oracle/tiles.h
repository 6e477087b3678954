// The tiles of one loop under a partition, in the order they are walked.
#pragma once

#include <cstdint>
#include <vector>

#include "oracle/oracle.h"

namespace pipethreader::oracle {

// Numbers that are the same on every platform and standard library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();                                       // splitmix64
  void skip(std::uint64_t count);                             // as that many calls of next(), at once
  double uniform();                                           // [0, 1)
  std::int64_t between(std::int64_t low, std::int64_t high);  // both included

 private:
  std::uint64_t state_;
};

struct Tile {
  std::int64_t first = 0, length = 0;
};

[[nodiscard]] std::vector<Tile> tiles_of(const LoopTiles& how, std::int64_t extent, bool ordered);

}  // namespace pipethreader::oracle
