// Vector clocks: what happened before what, independent of the order that this run happened to take. Every role
// instance is a component, and so is every queue of an asynchronous unit: its work starts after the issue, but is
// before something else only for those who waited for it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pipethreader::interpret {

using Component = std::uint32_t;
using Time = std::uint32_t;  // counts from 1 within a component; 0: never

class VectorClock {
 public:
  [[nodiscard]] Time operator[](Component c) const { return c < times_.size() ? times_[c] : 0; }

  void raise(Component c, Time time) {
    if (c >= times_.size()) times_.resize(c + 1, 0);
    times_[c] = std::max(times_[c], time);
  }
  Time tick(Component c) {
    raise(c, (*this)[c] + 1);
    return times_[c];
  }
  void join(const VectorClock& other) {
    if (other.times_.size() > times_.size()) times_.resize(other.times_.size(), 0);
    for (std::size_t c = 0; c < other.times_.size(); ++c) times_[c] = std::max(times_[c], other.times_[c]);
  }
  void clear() { times_.clear(); }

 private:
  std::vector<Time> times_;
};

}  // namespace pipethreader::interpret
