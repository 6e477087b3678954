// The shared memory of one block: numbers, which fill of its ring a slot holds, and the shadow for race detection.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "interpret/shadow.h"
#include "program/program.h"

namespace pipethreader::interpret {

// A quiet NaN that no arithmetic makes: the word was never written (in this fill).
inline constexpr std::uint32_t poison_bits = 0x7fe5deadu;
[[nodiscard]] inline bool is_poison(float word) { return std::bit_cast<std::uint32_t>(word) == poison_bits; }

struct Slot {
  Slot(const program::Buffer& buffer)
      : words(static_cast<std::size_t>(buffer.rows) * static_cast<std::size_t>(buffer.cols),
              std::bit_cast<float>(poison_bits)),
        shadow(buffer.rows, buffer.cols) {}

  void begin_fill(std::int64_t number) {
    fill = number;
    std::fill(words.begin(), words.end(), std::bit_cast<float>(poison_bits));
  }

  std::vector<float> words;  // row-major
  std::int64_t fill = -1;    // cursor / depth of whoever wrote it; stays -1 for scratch
  SlotShadow shadow;
};

// A slot as an instruction means it: with the fill that the instance's cursor names (-1 for scratch).
struct SlotRef {
  program::BufferId buffer;
  int slot = 0;
  std::int64_t fill = -1;
};

struct Region {
  int row_begin = 0;
  int row_end = 0;
  int col_begin = 0;
  int col_end = 0;
};

class SharedMemory {
 public:
  explicit SharedMemory(const program::Program& program) {
    for (const program::Buffer& buffer : program.buffers)
      slots_.emplace_back(static_cast<std::size_t>(buffer.slots), Slot(buffer));
  }
  Slot& operator[](const SlotRef& ref) {
    return slots_[static_cast<std::size_t>(ref.buffer.index)][static_cast<std::size_t>(ref.slot)];
  }

 private:
  std::vector<std::vector<Slot>> slots_;
};

}  // namespace pipethreader::interpret
