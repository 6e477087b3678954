#include "base/scalar_type.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace pipethreader {
namespace {

enum class Family : std::uint8_t { floating, integer, boolean };
enum class Overflow : std::uint8_t { infinity, saturate };

struct TypeInfo {
  ScalarType type;
  std::string_view name;
  int bits;
  Family family;
  // floating: stored mantissa bits, smallest normal exponent, largest finite value, what lies beyond it
  int mantissa;
  int min_exponent;
  double largest;
  Overflow overflow;
  // integer
  double lowest;
};

constexpr double kInf = std::numeric_limits<double>::infinity();

constexpr TypeInfo floating(ScalarType type, std::string_view name, int bits, int mantissa, int min_exponent,
                            double largest, Overflow overflow = Overflow::infinity) {
  return {type, name, bits, Family::floating, mantissa, min_exponent, largest, overflow, -largest};
}

constexpr TypeInfo integer(ScalarType type, std::string_view name, int bits, double lowest, double largest) {
  return {type, name, bits, Family::integer, 0, 0, largest, Overflow::saturate, lowest};
}

// In the order of the enum.
constexpr std::array kTypes = {
    floating(ScalarType::f64, "f64", 64, 52, -1022, std::numeric_limits<double>::max()),
    floating(ScalarType::f32, "f32", 32, 23, -126, 0x1.fffffep127),
    floating(ScalarType::tf32, "tf32", 32, 10, -126, 0x1.ffcp127),
    floating(ScalarType::bf16, "bf16", 16, 7, -126, 0x1.fep127),
    floating(ScalarType::f16, "f16", 16, 10, -14, 65504.0),
    floating(ScalarType::f8e4m3, "f8e4m3", 8, 3, -6, 448.0, Overflow::saturate),
    floating(ScalarType::f8e5m2, "f8e5m2", 8, 2, -14, 57344.0),
    integer(ScalarType::i64, "i64", 64, -0x1p63, 0x1.fffffffffffffp62),
    integer(ScalarType::i32, "i32", 32, -2147483648.0, 2147483647.0),
    integer(ScalarType::i8, "i8", 8, -128.0, 127.0),
    integer(ScalarType::u8, "u8", 8, 0.0, 255.0),
    integer(ScalarType::i4, "i4", 4, -8.0, 7.0),
    integer(ScalarType::u4, "u4", 4, 0.0, 15.0),
    floating(ScalarType::f4e2m1, "f4e2m1", 4, 1, 0, 6.0, Overflow::saturate),
    TypeInfo{ScalarType::boolean, "bool", 8, Family::boolean, 0, 0, 1.0, Overflow::saturate, 0.0},
};

constexpr bool in_enum_order() {
  for (std::size_t i = 0; i < kTypes.size(); ++i)
    if (static_cast<std::size_t>(kTypes[i].type) != i) return false;
  return kTypes.size() == static_cast<std::size_t>(ScalarType::boolean) + 1;
}
static_assert(in_enum_order());

const TypeInfo& info_of(ScalarType type) { return kTypes[static_cast<std::size_t>(type)]; }

// Round to nearest, ties to even, subnormals included. Doubles at the anchor are as far apart as the type's numbers are
// at `value`: adding it rounds, once.
double round_floating(const TypeInfo& t, double value) {
  if (std::isnan(value)) return t.type == ScalarType::f4e2m1 ? t.largest : value;  // f4e2m1 has no NaN
  double rounded = std::fabs(value);
  if (rounded <= 2 * t.largest) {
    const int exponent = std::max(static_cast<int>(std::bit_cast<std::uint64_t>(rounded) >> 52) - 1023, t.min_exponent);
    const double anchor = std::bit_cast<double>(static_cast<std::uint64_t>(1023 + 52 + exponent - t.mantissa) << 52);
    rounded = (rounded + anchor) - anchor;
  }
  if (rounded > t.largest) rounded = t.overflow == Overflow::infinity ? kInf : t.largest;
  return std::copysign(rounded, value);
}

double round_integer(const TypeInfo& t, double value) {
  if (std::isnan(value)) return 0;
  const double truncated = std::trunc(value) + 0.0;  // -0 becomes 0
  if (truncated < t.lowest) return t.lowest;
  return truncated > t.largest ? t.largest : truncated;
}

}  // namespace

std::string_view name(ScalarType type) { return info_of(type).name; }

std::optional<ScalarType> scalar_type(std::string_view text) {
  for (const TypeInfo& t : kTypes)
    if (t.name == text) return t.type;
  return std::nullopt;
}

int bits(ScalarType type) { return info_of(type).bits; }

bool is_floating(ScalarType type) { return info_of(type).family == Family::floating; }

bool is_integer(ScalarType type) { return info_of(type).family == Family::integer; }

double round_to(ScalarType type, double value) {
  const TypeInfo& t = info_of(type);
  switch (t.family) {
    case Family::floating:
      return type == ScalarType::f64 ? value : round_floating(t, value);
    case Family::integer:
      return round_integer(t, value);
    case Family::boolean:
      return value != 0 ? 1 : 0;
  }
  return value;
}

double unit_roundoff(ScalarType type) {
  const TypeInfo& t = info_of(type);
  return t.family == Family::floating ? std::scalbn(1.0, -(t.mantissa + 1)) : 0;
}

double largest_finite(ScalarType type) { return info_of(type).largest; }

double lowest_finite(ScalarType type) { return info_of(type).lowest; }

double smallest_positive(ScalarType type) {
  const TypeInfo& t = info_of(type);
  return t.family == Family::floating ? std::scalbn(1.0, t.min_exponent - t.mantissa) : 1;
}

}  // namespace pipethreader
