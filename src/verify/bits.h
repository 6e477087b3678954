// Small sets of small numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pipethreader::verify {

class Bits {
 public:
  Bits() = default;
  explicit Bits(int size) : words_((static_cast<std::size_t>(size) + 63) / 64, 0) {}
  void set(int i) { words_[word(i)] |= mask(i); }
  void reset(int i) { words_[word(i)] &= ~mask(i); }
  [[nodiscard]] bool has(int i) const { return (words_[word(i)] & mask(i)) != 0; }
  bool operator==(const Bits&) const = default;
  void clear() { words_.assign(words_.size(), 0); }
  [[nodiscard]] bool empty() const {
    for (const std::uint64_t w : words_) {
      if (w != 0) return false;
    }
    return true;
  }
  Bits& operator|=(const Bits& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
    return *this;
  }
  Bits& operator&=(const Bits& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] &= other.words_[i];
    return *this;
  }
  void remove(const Bits& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] &= ~other.words_[i];
  }
  template <class Visit>
  void for_each(Visit visit) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      for (std::uint64_t w = words_[i]; w != 0; w &= w - 1) visit(static_cast<int>(i * 64) + __builtin_ctzll(w));
    }
  }

 private:
  friend class BitTable;
  std::vector<std::uint64_t> words_;
  static std::size_t word(int i) { return static_cast<std::size_t>(i) / 64; }
  static std::uint64_t mask(int i) { return std::uint64_t{1} << (static_cast<unsigned>(i) % 64); }
};

// A table of equally large sets.
class BitTable {
 public:
  BitTable() = default;
  BitTable(int sets, int size) : width_((static_cast<std::size_t>(size) + 63) / 64) {
    words_.assign(static_cast<std::size_t>(sets) * width_, 0);
  }
  [[nodiscard]] bool has(int set, int i) const { return (word(set, i) & mask(i)) != 0; }
  void add(int set, int i) { words_[index(set, i)] |= mask(i); }
  void join(int set, int other) {
    for (std::size_t k = 0; k < width_; ++k) words_[first(set) + k] |= words_[first(other) + k];
  }
  void join(int set, const Bits& other) {
    for (std::size_t k = 0; k < width_; ++k) words_[first(set) + k] |= other.words_[k];
  }
  void clear(int set) {
    for (std::size_t k = 0; k < width_; ++k) words_[first(set) + k] = 0;
  }
  void forget(int i) {  // in every set
    for (std::size_t k = index(0, i); k < words_.size(); k += width_) words_[k] &= ~mask(i);
  }
  void forget(const Bits& members) {
    for (std::size_t set = 0; set < words_.size(); set += width_) {
      for (std::size_t k = 0; k < width_; ++k) words_[set + k] &= ~members.words_[k];
    }
  }
  void keep_common(int set, Bits& members) const {
    for (std::size_t k = 0; k < width_; ++k) members.words_[k] &= words_[first(set) + k];
  }
  // The first of `members` that is in `among` and not in the set; -1: none.
  [[nodiscard]] int first_missing(int set, const Bits& members, const Bits& among) const {
    for (std::size_t k = 0; k < width_; ++k) {
      const std::uint64_t missing = members.words_[k] & among.words_[k] & ~words_[first(set) + k];
      if (missing != 0) return static_cast<int>(k * 64) + __builtin_ctzll(missing);
    }
    return -1;
  }
  [[nodiscard]] const std::uint64_t* words(int set) const { return words_.data() + first(set); }
  [[nodiscard]] std::size_t width() const { return width_; }

 private:
  std::size_t width_ = 0;
  std::vector<std::uint64_t> words_;
  [[nodiscard]] std::size_t first(int set) const { return static_cast<std::size_t>(set) * width_; }
  [[nodiscard]] std::size_t index(int set, int i) const { return first(set) + static_cast<std::size_t>(i) / 64; }
  [[nodiscard]] std::uint64_t word(int set, int i) const { return words_[index(set, i)]; }
  static std::uint64_t mask(int i) { return std::uint64_t{1} << (static_cast<unsigned>(i) % 64); }
};

}  // namespace pipethreader::verify
