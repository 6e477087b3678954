// Packing agrees with round_to for every element type: every code of the narrow ones, every neighbour and midpoint.
#include "runtime/host_array.h"

#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace pipethreader::runtime {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

const std::vector<ScalarType> every_type = {
    ScalarType::f64, ScalarType::f32, ScalarType::tf32, ScalarType::bf16,   ScalarType::f16,
    ScalarType::i64, ScalarType::i32, ScalarType::i8,   ScalarType::f8e4m3, ScalarType::f8e5m2,
    ScalarType::u8,  ScalarType::i4,  ScalarType::u4,   ScalarType::f4e2m1, ScalarType::boolean};

void expect_same(double a, double b, ScalarType type, double from) {
  if (std::isnan(a) && std::isnan(b)) return;
  EXPECT_TRUE(a == b && std::signbit(a) == std::signbit(b))
      << name(type) << " of " << from << ": packed " << a << ", rounded " << b;
}

void check(ScalarType type, double value) {
  expect_same(from_bits(type, to_bits(type, value)), round_to(type, value), type, value);
}

TEST(HostArray, RoundsAsRoundToDoesAtSpecialValues) {
  for (const ScalarType type : every_type)
    for (const double v :
         {0.0,     -0.0,    1.0,          -1.0,         0.5,           1.5,     -2.5,      2.5,     1e-10,  -1e-40,
          5e-324,  1e300,   -1e300,       inf,          -inf,          nan,     127.5,     128.0,   -128.9, -129.0,
          255.9,   256.0,   2147483647.5, 2147483648.0, -2147483649.0, 9.3e18,  -9.3e18,   448.0,   464.0,  464.1,
          57344.0, 61440.0, 65504.0,      65519.9,      65520.0,       3.4e38,  3.3961e38, 3.41e38, 6.0,    7.0,
          0x1p-24, 0x1p-25, 0x1.8p-25,    0x1p-133,     0x1p-134,      0x1p-149})
      check(type, v);
}

TEST(HostArray, EveryCodeOfANarrowTypeSurvivesAndMidpointsGoToEven) {
  for (const ScalarType type : every_type) {
    if (bits(type) > 16) continue;
    for (std::uint64_t code = 0; code < (std::uint64_t{1} << bits(type)); ++code) {
      const double value = from_bits(type, code);
      check(type, value);
      if (std::isfinite(value) && type != ScalarType::boolean) {
        ASSERT_EQ(value == 0 && is_integer(type) ? 0 : to_bits(type, value), code) << name(type);
      }
      const double next = from_bits(type, code + 1);
      if (!std::isfinite(value) || !std::isfinite(next)) continue;
      const double middle = (value + next) / 2;
      for (const double v : {middle, std::nextafter(middle, inf), std::nextafter(middle, -inf)}) check(type, v);
    }
  }
}

TEST(HostArray, RandomBitPatternsRoundAsRoundToDoes) {
  std::mt19937_64 random(7);
  for (const ScalarType type : every_type) {
    for (int i = 0; i < 20000; ++i) {
      const std::uint64_t mantissa = random() & ((std::uint64_t{1} << 52) - 1);
      const std::uint64_t exponent = 1023 - 160 + random() % 320;
      check(type, std::bit_cast<double>((random() << 63) | (exponent << 52) | mantissa));
    }
  }
}

TEST(HostArray, ElementsNarrowerThanAByteAreLowFirst) {
  const std::vector<double> values = {1, -2, 7};
  const auto bytes = pack(ScalarType::i4, values);
  ASSERT_EQ(bytes.size(), 2u);
  EXPECT_EQ(std::to_integer<int>(bytes[0]), 0xe1);
  EXPECT_EQ(std::to_integer<int>(bytes[1]), 0x07);
  EXPECT_EQ(unpack(ScalarType::i4, bytes, 3), values);
}

TEST(HostArray, LargeArraysComeBackWhateverTheirLength) {
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{262145}, std::size_t{1000003}}) {
    std::vector<double> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<double>(i % 15) - 7;
    for (const ScalarType type : {ScalarType::f16, ScalarType::i4, ScalarType::f32, ScalarType::f8e5m2}) {
      const auto bytes = pack(type, values);
      ASSERT_EQ(bytes.size(), packed_bytes(type, count));
      const auto back = unpack(type, bytes, count);
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(back[i], round_to(type, values[i])) << name(type) << " " << i;
    }
  }
}

}  // namespace
}  // namespace pipethreader::runtime
