// What is known about the integers that lanes share (loop counters, trip counts): bounds on differences of two of
// them, x - y <= c, kept closed (a difference bound matrix). Variable 0 is the number 0. A zone only ever says what
// must hold; forgetting is sound, and extrapolate() forgets all that is larger than a threshold, so that only finitely
// many zones exist.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace pipethreader::verify {

class Zone {
 public:
  static constexpr std::int32_t unbounded = INT32_MAX;

  Zone();
  [[nodiscard]] int add();                        // a new variable nothing is known of
  [[nodiscard]] int add_equal(int other, int offset);  // a new variable with the value of `other` + offset
  void remove(int variable);
  void shift(int variable, int by);               // variable := variable + by
  bool constrain(int x, int y, std::int64_t c);   // x - y <= c; false when nothing satisfies it
  [[nodiscard]] std::int32_t bound(int x, int y) const { return cells_[index(x, y)]; }  // of x - y, or unbounded
  [[nodiscard]] std::optional<std::int64_t> exact(int x) const;
  [[nodiscard]] bool equal(int x, int y, int offset) const;  // x == y + offset in every solution
  [[nodiscard]] std::int64_t low(int x) const;   // INT32_MIN: none
  // Forgets bounds beyond `value`, and bounds on differences of two variables beyond `difference`.
  void extrapolate(int value, int difference);

 private:
  int capacity_ = 0;
  std::vector<bool> used_;
  std::vector<std::int32_t> cells_;
  [[nodiscard]] std::size_t index(int x, int y) const {
    return static_cast<std::size_t>(x) * static_cast<std::size_t>(capacity_) + static_cast<std::size_t>(y);
  }
  std::int32_t& cell(int x, int y) { return cells_[index(x, y)]; }
  void grow();
  void close();
};

}  // namespace pipethreader::verify
