#include "base/scalar_type.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

namespace pipethreader {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<ScalarType> all_types() {
  std::vector<ScalarType> types;
  for (int i = 0; i <= static_cast<int>(ScalarType::boolean); ++i) types.push_back(static_cast<ScalarType>(i));
  return types;
}

TEST(ScalarType, NamesAreReadBack) {
  for (ScalarType t : all_types()) EXPECT_EQ(scalar_type(name(t)), t);
  EXPECT_EQ(name(ScalarType::boolean), "bool");
  EXPECT_EQ(scalar_type("half"), std::nullopt);
}

TEST(ScalarType, Bits) {
  EXPECT_EQ(bits(ScalarType::f64), 64);
  EXPECT_EQ(bits(ScalarType::tf32), 32);
  EXPECT_EQ(bits(ScalarType::bf16), 16);
  EXPECT_EQ(bits(ScalarType::f8e5m2), 8);
  EXPECT_EQ(bits(ScalarType::u4), 4);
  EXPECT_EQ(bits(ScalarType::f4e2m1), 4);
  EXPECT_EQ(bits(ScalarType::boolean), 8);
}

TEST(ScalarType, F32IsTheMachinesOwnRounding) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 100000; ++i) {
    const double x = std::bit_cast<double>(random());
    if (std::isnan(x)) continue;
    EXPECT_EQ(round_to(ScalarType::f32, x), static_cast<double>(static_cast<float>(x)));
    const double small = std::ldexp(static_cast<double>(random() >> 11), -200 + static_cast<int>(random() % 60));
    EXPECT_EQ(round_to(ScalarType::f32, small), static_cast<double>(static_cast<float>(small)));
  }
}

TEST(ScalarType, TiesGoToEven) {
  EXPECT_EQ(round_to(ScalarType::f16, 2049), 2048);
  EXPECT_EQ(round_to(ScalarType::f16, 2051), 2052);
  EXPECT_EQ(round_to(ScalarType::f16, 2049.0001), 2050);
  EXPECT_EQ(round_to(ScalarType::bf16, 257), 256);
  EXPECT_EQ(round_to(ScalarType::bf16, 259), 260);
  EXPECT_EQ(round_to(ScalarType::tf32, 2049), 2048);
  EXPECT_EQ(round_to(ScalarType::f8e4m3, 17), 16);
  EXPECT_EQ(round_to(ScalarType::f8e4m3, 19), 20);
  EXPECT_EQ(round_to(ScalarType::f4e2m1, 2.5), 2);
  EXPECT_EQ(round_to(ScalarType::f4e2m1, 5), 4);
  EXPECT_EQ(round_to(ScalarType::f4e2m1, -3.5), -4);
}

TEST(ScalarType, Subnormals) {
  EXPECT_EQ(round_to(ScalarType::f16, 0x1p-24), 0x1p-24);
  EXPECT_EQ(round_to(ScalarType::f16, 0x1p-25), 0);  // a tie
  EXPECT_EQ(round_to(ScalarType::f16, 0x1.8p-25), 0x1p-24);
  EXPECT_EQ(round_to(ScalarType::f8e4m3, 0x1p-9), 0x1p-9);
  EXPECT_EQ(round_to(ScalarType::f8e5m2, 0x1p-16), 0x1p-16);
  EXPECT_EQ(round_to(ScalarType::f4e2m1, 0.5), 0.5);
  EXPECT_EQ(round_to(ScalarType::f4e2m1, 0.25), 0);
  EXPECT_TRUE(std::signbit(round_to(ScalarType::f16, -0x1p-30)));
}

TEST(ScalarType, OverflowAsTheGpuConverts) {
  EXPECT_EQ(round_to(ScalarType::f16, 65504), 65504);
  EXPECT_EQ(round_to(ScalarType::f16, 65519.9), 65504);
  EXPECT_EQ(round_to(ScalarType::f16, 65520), kInf);
  EXPECT_EQ(round_to(ScalarType::f8e5m2, -61440), -kInf);
  EXPECT_EQ(round_to(ScalarType::f8e4m3, 1e9), 448);
  EXPECT_EQ(round_to(ScalarType::f8e4m3, -kInf), -448);
  EXPECT_TRUE(std::isnan(round_to(ScalarType::f8e4m3, kNan)));
  EXPECT_EQ(round_to(ScalarType::f4e2m1, kInf), 6);
  EXPECT_EQ(round_to(ScalarType::bf16, 0x1.ffp127), kInf);
  EXPECT_EQ(round_to(ScalarType::f32, 1e300), kInf);
}

TEST(ScalarType, IntegersTruncateAndSaturate) {
  EXPECT_EQ(round_to(ScalarType::i32, -1.9), -1);
  EXPECT_EQ(round_to(ScalarType::i32, 1e10), 2147483647);
  EXPECT_EQ(round_to(ScalarType::i8, -129), -128);
  EXPECT_EQ(round_to(ScalarType::u8, -3), 0);
  EXPECT_EQ(round_to(ScalarType::u8, 300), 255);
  EXPECT_EQ(round_to(ScalarType::i4, 9), 7);
  EXPECT_EQ(round_to(ScalarType::u4, 15.9), 15);
  EXPECT_EQ(round_to(ScalarType::i32, kNan), 0);
  EXPECT_EQ(round_to(ScalarType::boolean, 0.25), 1);
}

TEST(ScalarType, RoundingTwiceChangesNothing) {
  std::mt19937_64 random(2);
  for (ScalarType t : all_types())
    for (int i = 0; i < 5000; ++i) {
      const double x = std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(random() % 100) - 100);
      const double once = round_to(t, x);
      EXPECT_EQ(round_to(t, once), once) << name(t) << " " << x;
      if (!std::isfinite(once) || !is_floating(t) || std::fabs(x) > largest_finite(t) || std::fabs(x) < 1) continue;
      EXPECT_LE(std::fabs(once - x), unit_roundoff(t) * std::fabs(x)) << name(t);
    }
}

TEST(ScalarType, UnitRoundoffIsHalfOfTheFirstStepAboveOne) {
  EXPECT_EQ(unit_roundoff(ScalarType::f32), 0x1p-24);
  EXPECT_EQ(unit_roundoff(ScalarType::f16), 0x1p-11);
  EXPECT_EQ(unit_roundoff(ScalarType::i32), 0);
  for (ScalarType t : all_types()) {
    if (!is_floating(t) || t == ScalarType::f64) continue;
    EXPECT_EQ(round_to(t, 1 + unit_roundoff(t)), 1) << name(t);
    EXPECT_EQ(round_to(t, 1 + 1.01 * unit_roundoff(t)), 1 + 2 * unit_roundoff(t)) << name(t);
  }
}

TEST(ScalarType, EndsOfTheRange) {
  for (ScalarType t : all_types()) {
    EXPECT_EQ(round_to(t, largest_finite(t)), largest_finite(t)) << name(t);
    EXPECT_EQ(round_to(t, lowest_finite(t)), lowest_finite(t)) << name(t);
    EXPECT_EQ(round_to(t, smallest_positive(t)), smallest_positive(t)) << name(t);
  }
  EXPECT_EQ(smallest_positive(ScalarType::f16), 0x1p-24);
  EXPECT_EQ(smallest_positive(ScalarType::f32), 0x1p-149);
}

}  // namespace
}  // namespace pipethreader
