// The element types of the kernel language and of device programs.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace pipethreader {

enum class ScalarType : std::uint8_t {
  f64,
  f32,
  tf32,
  bf16,
  f16,
  f8e4m3,
  f8e5m2,
  i64,
  i32,
  i8,
  u8,
  i4,
  u4,
  f4e2m1,
  boolean,
};

[[nodiscard]] std::string_view name(ScalarType type);                   // "f16"; boolean is "bool"
[[nodiscard]] std::optional<ScalarType> scalar_type(std::string_view);  // the inverse
[[nodiscard]] int bits(ScalarType type);                                // storage bits of an element; boolean 8
[[nodiscard]] bool is_floating(ScalarType type);
[[nodiscard]] bool is_integer(ScalarType type);

// Rounds a value to the nearest representable one (ties to even; overflow as the type's conversion does on the
// GPU: f16, bf16 and f8e5m2 to infinity, f8e4m3 to NaN for NaN and saturating to 448 otherwise; integers truncate
// towards zero and saturate).
[[nodiscard]] double round_to(ScalarType type, double value);

// Half the distance between 1 and the next representable number: f32 2^-24, f16 2^-11, ... ; 0 for integers.
[[nodiscard]] double unit_roundoff(ScalarType type);

// The ends of a type's range: its largest finite number, its least one (integers: the minimum), and the smallest
// positive one (subnormals included; 1 for integers).
[[nodiscard]] double largest_finite(ScalarType type);
[[nodiscard]] double lowest_finite(ScalarType type);
[[nodiscard]] double smallest_positive(ScalarType type);

}  // namespace pipethreader
