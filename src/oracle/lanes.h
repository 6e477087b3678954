// Vectors of numbers for the walk over expressions: an expression is evaluated for many points (lanes) at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "oracle/program.h"

namespace pipethreader::oracle {

// Scratch memory that is given back in reverse order: everything allocated since `mark()` by `release()`.
class Arena {
 public:
  struct Mark {
    std::size_t block = 0, used = 0;
  };

  [[nodiscard]] Mark mark() const { return {block_, used_}; }
  void release(Mark mark) {
    block_ = mark.block;
    used_ = mark.used;
  }

  template <class T>
  [[nodiscard]] T* allocate(std::size_t count) {
    return static_cast<T*>(allocate_bytes((count * sizeof(T) + 63) / 64 * 64));
  }

 private:
  static constexpr std::size_t kBlockBytes = std::size_t{1} << 20;

  void* allocate_bytes(std::size_t bytes) {
    while (block_ < blocks_.size() && used_ + bytes > blocks_[block_].bytes) {
      ++block_;
      used_ = 0;
    }
    if (block_ == blocks_.size()) {
      const std::size_t size = bytes > kBlockBytes ? bytes : kBlockBytes;
      blocks_.push_back({std::make_unique<double[]>(size / sizeof(double)), size});
      used_ = 0;
    }
    void* result = reinterpret_cast<std::byte*>(blocks_[block_].data.get()) + used_;
    used_ += bytes;
    return result;
  }

  struct Block {
    std::unique_ptr<double[]> data;
    std::size_t bytes;
  };
  std::vector<Block> blocks_;
  std::size_t block_ = 0, used_ = 0;
};

// Gives back what was allocated during its life.
class Scratch {
 public:
  explicit Scratch(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
  ~Scratch() { arena_.release(mark_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

 private:
  Arena& arena_;
  Arena::Mark mark_;
};

// The points an expression is evaluated at: the index of each axis, an array of `count` for axes that vary from lane to
// lane, one number for others. Axes without an index here are null.
struct Points {
  std::size_t count = 0;
  AxisSet varying;
  const double** columns = nullptr;  // by axis, kPoint included
};

// The values of an expression at some points: `count` of them, or one that all share.
struct Lanes {
  const double* values = nullptr;
  const double* errors = nullptr;       // null: all 0
  const std::uint64_t* tags = nullptr;  // null: none. Equal tags (not 0) mean the very same number
  bool shared = false;

  [[nodiscard]] double value(std::size_t lane) const { return values[shared ? 0 : lane]; }
  [[nodiscard]] double error(std::size_t lane) const { return errors == nullptr ? 0 : errors[shared ? 0 : lane]; }
  [[nodiscard]] std::uint64_t tag(std::size_t lane) const { return tags == nullptr ? 0 : tags[shared ? 0 : lane]; }
};

// What the terms of a reduction have come to at one outer lane.
struct Fold {
  double value = 0;
  double magnitude = 0;         // sum: of |term|
  double error = 0;             // sum: of the terms' errors
  double upper = 0, lower = 0;  // max and min: the largest and smallest the result can be
  double terms = 0;
};

}  // namespace pipethreader::oracle
