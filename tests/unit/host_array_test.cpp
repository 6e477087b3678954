// Packing agrees with round_to for every element type: every code of the narrow ones, every neighbour and midpoint.
#include "runtime/host_array.h"

#include <algorithm>
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

// Copies from packed bytes, and counts.
struct Copies {
  const std::vector<std::byte>& from;
  std::vector<std::size_t> pieces;

  GetPiece get() {
    return [this](std::span<std::byte> bytes, std::size_t offset) -> Result<void> {
      EXPECT_LE(offset + bytes.size(), from.size());
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(offset), bytes.size(), bytes.begin());
      pieces.push_back(bytes.size());
      return {};
    };
  }
};

TEST(HostArray, SomeElementsAreThoseOfTheWhole) {
  std::mt19937_64 random(3);
  std::vector<double> values(200001);
  for (double& v : values) v = static_cast<double>(random() % 15) - 7;
  for (const ScalarType type : every_type) {
    const auto bytes = pack(type, values);
    const auto whole = unpack(type, bytes, values.size());
    for (const std::uint64_t step : {1, 2, 1000, 150000}) {
      std::vector<std::int64_t> at;
      for (std::size_t i = random() % 2; i < values.size(); i += 1 + random() % step)
        at.push_back(static_cast<std::int64_t>(i));
      at.push_back(static_cast<std::int64_t>(values.size()) - 1);
      Copies copies{bytes, {}};
      const auto some = unpack_at(type, at, copies.get());
      ASSERT_TRUE(some);
      ASSERT_EQ(some->size(), at.size());
      for (std::size_t i = 0; i < at.size(); ++i) ASSERT_EQ((*some)[i], whole[static_cast<std::size_t>(at[i])]);
    }
  }
}

TEST(HostArray, OnlyWhatIsNearSomeElementIsCopied) {
  const std::vector<std::byte> bytes(std::size_t{100} << 20, std::byte{0});
  const auto pieces = [&](const std::vector<std::int64_t>& at) {
    Copies copies{bytes, {}};
    EXPECT_EQ(unpack_at(ScalarType::f16, at, copies.get())->size(), at.size());
    return copies.pieces;
  };
  EXPECT_EQ(pieces({}), (std::vector<std::size_t>{}));
  EXPECT_EQ(pieces({7}), (std::vector<std::size_t>{4}));  // from the even one
  EXPECT_EQ(pieces({8, 9, 1008}), (std::vector<std::size_t>{2002}));
  EXPECT_EQ(pieces({0, 50000000}), (std::vector<std::size_t>{2, 2}));
  std::vector<std::int64_t> every_few;
  for (std::int64_t i = 0; i < 50000000; i += 10000) every_few.push_back(i);
  for (const std::size_t piece : pieces(every_few)) EXPECT_LE(piece, most_piece_bytes);
  EXPECT_EQ(pieces(every_few).size(), 3U);
}

TEST(HostArray, AFailedCopyIsTheResult) {
  const auto none = unpack_at(ScalarType::f32, std::vector<std::int64_t>{1},
                              [](std::span<std::byte>, std::size_t) -> Result<void> { return fail("no card"); });
  EXPECT_FALSE(none);
  EXPECT_FALSE(pack_in_pieces(ScalarType::f32, std::vector<double>{1},
                              [](std::span<const std::byte>, std::size_t) -> Result<void> { return fail("no card"); }));
}

TEST(HostArray, PiecesMakeUpTheWhole) {
  std::vector<double> values(most_piece_bytes / 4 + 1001);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 15) - 7;
  for (const ScalarType type : {ScalarType::f64, ScalarType::f32, ScalarType::i4}) {
    std::vector<std::byte> bytes;
    const auto packed = pack_in_pieces(type, values, [&](std::span<const std::byte> piece, std::size_t offset) {
      EXPECT_EQ(offset, bytes.size());
      EXPECT_LE(piece.size(), most_piece_bytes);
      bytes.insert(bytes.end(), piece.begin(), piece.end());
      return Result<void>();
    });
    ASSERT_TRUE(packed);
    EXPECT_TRUE(bytes == pack(type, values)) << name(type);
  }
}

}  // namespace
}  // namespace pipethreader::runtime
