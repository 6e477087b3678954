// The maker of random kernels: writes declarations and statements as text, and keeps count of sizes and magnitudes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "support/random_kernel.h"

namespace pipethreader::testing {

// splitmix64: the same numbers on every platform.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x1234567u) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  int between(int low, int high) { return low + static_cast<int>(next() % static_cast<std::uint64_t>(high - low + 1)); }
  bool chance(int percent) { return between(0, 99) < percent; }
  template <class T>
  const T& pick(const std::vector<T>& items) {
    return items[static_cast<std::size_t>(between(0, static_cast<int>(items.size()) - 1))];
  }

 private:
  std::uint64_t state_;
};

// A size; its name stands in the text as `$name$` until all sizes are known.
struct DimChoice {
  int size = 1;
  bool is_static = false;
  bool keeps_size = false;
  bool contiguous = false;  // rows of some tensor are this long
};

struct AxisChoice {
  std::string name;
  std::string extent;  // with `$name$` marks
};

// A value over [rows, column] that later parts may use; |elements| <= magnitude.
struct Tile {
  std::string name;
  AxisChoice column;
  double magnitude = 1;
};

inline std::string number(double value) {
  return fmt::format("{:.6g}", value) + (value == static_cast<int>(value) ? ".0" : "");
}

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : dice_(seed) { result_.seed = seed; }
  RandomKernel make();

 private:
  // names, declarations and the whole (random_kernel.cpp)
  std::string fresh(const std::string& stem) { return fmt::format("{}{}", stem, ++names_[stem]); }
  std::string dim(const std::string& stem, int low, int high, bool keeps_size = false);
  int size_of(const std::string& extent) const;
  AxisChoice column_axis(int low = 1, int high = 72);
  std::string input(const std::string& stem, const std::string& type, std::vector<AxisChoice> axes, bool batched);
  std::string at(const std::string& value, const std::string& column) const {
    return fmt::format("{}[{},{}]", value, rows_.name, column);
  }
  std::string row(const std::string& value) const { return fmt::format("{}[{}]", value, rows_.name); }
  void say(const std::string& line) { body_ += std::string(static_cast<std::size_t>(2 * depth_), ' ') + line + "\n"; }
  void feature(const std::string& name) { result_.features.insert(name); }
  std::string fresh_type();
  std::string mask(const std::string& axis, const std::string& extent);
  std::string open_loop(const std::string& axis, const std::string& extent, int mask_percent);
  void close_loop(const std::string& combine = {});
  void work(double amount) { work_.push_back(amount); }
  // A chain of two products per row; a parallel column repeats the first.
  void chain_work(double length, double depth, double column) {
    work(columns_parallel_ ? length * (depth + 10) * column : length * (depth + column));
  }

  // parts (random_kernel_parts.cpp)
  Tile load();
  std::string narrowed(Tile& tile);
  std::string operand(const std::string& stem, const AxisChoice& streamed, const AxisChoice& other,
                      const std::string& own);
  Tile product(Tile* from);
  Tile streamed_product(Tile* from);
  Tile attention(Tile* from);
  Tile decay_scan();
  Tile convolution();
  Tile statistics();
  Tile epilogue(Tile tile);
  Tile normalise(Tile tile);
  void streamed_softmax();
  Tile accumulate_by(const std::string& axis, const std::string& extent, const std::string& weight, double magnitude);
  void store(const Tile& tile);
  void store_row(const Tile& tile);
  std::string activation(const std::string& x, double& magnitude);

  void shrink();
  void make_ragged();
  void note_sizes();
  void render();
  double total_work() const;

  Dice dice_;
  RandomKernel result_;
  std::map<std::string, int> names_;
  std::map<std::string, DimChoice> dims_;
  std::vector<AxisChoice> batch_;
  std::string group_;  // the dim G of grouped heads, or empty
  AxisChoice rows_;
  bool rows_parallel_ = true;
  bool columns_parallel_ = false;  // the column axis of the only part is parallel
  std::string type_;               // of most product operands
  std::vector<std::string> parameters_, outputs_, parallel_, inner_, require_;
  std::string body_;
  int depth_ = 1, loops_ = 0;
  bool aligned_ = true;      // lengths of tensors' rows are multiples of 8
  int static_percent_ = 30;  // of the sizes that are written as numbers
  std::vector<double> work_;
};

}  // namespace pipethreader::testing
