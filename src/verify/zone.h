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
  [[nodiscard]] int add();                             // a new variable nothing is known of
  [[nodiscard]] int add_equal(int other, int offset);  // a new variable with the value of `other` + offset
  void remove(int variable);
  void shift(int variable, int by);              // variable := variable + by
  bool constrain(int x, int y, std::int64_t c);  // x - y <= c; false when nothing satisfies it
  [[nodiscard]] std::int32_t bound(int x, int y) const { return cells_[index(x, y)]; }  // of x - y, or unbounded
  [[nodiscard]] std::optional<std::int64_t> exact(int x) const;
  [[nodiscard]] bool equal(int x, int y, int offset) const;  // x == y + offset in every solution
  [[nodiscard]] std::int64_t low(int x) const;               // INT32_MIN: none
  // What is worth knowing of the difference of two variables.
  enum class Worth : std::uint8_t {
    nothing,
    when_fixed,
    bounds,
    least_excess,  // bounds, but of a positive lower bound of y - x no more than that it is positive
  };
  // Forgets bounds beyond `value`, differences beyond `difference`, and what worth(x, y) does not keep of x - y <= c.
  template <class WorthOf>
  void extrapolate(int value, int difference, WorthOf worth);
  [[nodiscard]] int capacity() const { return capacity_; }

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

template <class WorthOf>
void Zone::extrapolate(int value, int difference, WorthOf worth) {
  bool changed = false;
  const auto relax = [&](std::int32_t& c, std::int32_t to) {
    if (c >= to) return;
    c = to;
    changed = true;
  };
  const std::vector<std::int32_t> before = cells_;
  for (int x = 0; x < capacity_; ++x) {
    if (!used_[static_cast<std::size_t>(x)]) continue;
    for (int y = 0; y < capacity_; ++y) {
      if (x == y || !used_[static_cast<std::size_t>(y)]) continue;
      std::int32_t& c = cell(x, y);
      const bool of_value = x == 0 || y == 0;
      const int most = of_value ? value : difference;
      if (c > most) relax(c, unbounded);
      if (c < -most) relax(c, -most);
      if (of_value) continue;
      const bool fixed = before[index(x, y)] != unbounded && before[index(y, x)] == -before[index(x, y)];
      const Worth kept = worth(x, y);
      if (kept == Worth::nothing || (kept == Worth::when_fixed && !fixed)) relax(c, unbounded);
      if (kept == Worth::least_excess && !fixed) relax(c, -1);
    }
  }
  if (changed) close();
}

}  // namespace pipethreader::verify
