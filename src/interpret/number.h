// Numbers as tiles hold them: a 32-bit word that is a float, or, for integer types, the bits of an int32. Rounding and
// the map functions over arrays of them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/functions.h"
#include "base/scalar_type.h"

namespace pipethreader::interpret {

[[nodiscard]] inline bool held_as_float(ScalarType type) { return is_floating(type); }
[[nodiscard]] inline float word_of(std::int64_t integer) {
  return std::bit_cast<float>(static_cast<std::int32_t>(integer));
}
[[nodiscard]] inline std::int64_t integer_of(float word) { return std::bit_cast<std::int32_t>(word); }

// A word from a value of the type and back.
[[nodiscard]] inline float to_word(ScalarType type, double value) {
  return held_as_float(type) ? static_cast<float>(value) : word_of(static_cast<std::int64_t>(value));
}
[[nodiscard]] inline double from_word(ScalarType type, float word) {
  return held_as_float(type) ? static_cast<double>(word) : static_cast<double>(integer_of(word));
}

// Rounds floats in place to a floating type, bit for bit as round_to.
void round_floats(ScalarType type, std::span<float> values);

// out[i] = function(args[0][i], ...), each operation in float. Comparisons and logic are not here: they give integers.
void apply_floats(Function function, const float* const* args, std::size_t count, float* out);
void compare_floats(Function function, const float* a, const float* b, std::size_t count, std::int64_t* out);

// As fmin and fmax: the other operand when one is NaN.
[[nodiscard]] inline float smaller(float a, float b) { return b != b || a < b ? a : b; }
[[nodiscard]] inline float larger(float a, float b) { return b != b || a > b ? a : b; }

// Integers and booleans; division and modulo floor, by zero they give 0 (nobody may use the result).
void apply_integers(Function function, const std::int64_t* const* args, std::size_t count, std::int64_t* out);

[[nodiscard]] bool is_comparison(Function function);  // lt, le, gt, ge, eq, ne
[[nodiscard]] bool is_logic(Function function);       // and, or, not

}  // namespace pipethreader::interpret
