#include "runtime/host_array.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>
#include <type_traits>

namespace pipethreader::runtime {
namespace {

enum class Overflow { infinity, saturate };

// A binary floating format of E exponent and M mantissa bits, the sign above them.
template <int E, int M, Overflow O, std::uint32_t NotANumber, std::uint32_t Largest>
struct Format {
  static constexpr int bias = (1 << (E - 1)) - 1;
  static constexpr int sign_shift = E + M;
  static constexpr std::uint32_t overflow_code = O == Overflow::infinity ? Largest + 1 : Largest;

  // Rounds to nearest even in one step from the double, subnormals included.
  static std::uint32_t encode(double value) {
    constexpr int shift = 52 - M;
    constexpr std::uint64_t magnitude_mask = ~std::uint64_t{0} >> 1;
    constexpr double smallest_normal = std::bit_cast<double>(std::uint64_t(1023 + 1 - bias) << 52);
    // Adding 1.5 * 2^52 units of the subnormal grid leaves the rounded multiple in the low mantissa bits.
    constexpr double grid_anchor =
        std::bit_cast<double>((std::uint64_t(1023 + 1 - bias + shift) << 52) | (std::uint64_t{1} << 51));
    const auto u = std::bit_cast<std::uint64_t>(value);
    const std::uint64_t a = u & magnitude_mask;
    const auto sign = static_cast<std::uint32_t>(u >> 63) << sign_shift;

    const std::uint64_t rounded = (a + ((std::uint64_t{1} << (shift - 1)) - 1) + ((a >> shift) & 1)) >> shift;
    const std::uint64_t normal = rounded - (std::uint64_t(1023 - bias) << M);
    const double magnitude = std::bit_cast<double>(a);
    const std::uint64_t subnormal =
        std::bit_cast<std::uint64_t>(magnitude + grid_anchor) - std::bit_cast<std::uint64_t>(grid_anchor);

    std::uint64_t code = magnitude < smallest_normal ? subnormal : normal;
    code = magnitude >= smallest_normal && code > Largest ? overflow_code : code;
    code = a > 0x7ff0000000000000u ? NotANumber : code;
    return static_cast<std::uint32_t>(code) | (a > 0x7ff0000000000000u ? 0 : sign);
  }

  static double decode(std::uint32_t bits) {
    const std::uint32_t magnitude = bits & ((std::uint32_t{1} << sign_shift) - 1);
    const std::uint64_t sign = std::uint64_t{(bits >> sign_shift) & 1} << 63;
    double value = 0;
    if (magnitude < (std::uint32_t{1} << M)) {
      value = magnitude * std::bit_cast<double>(std::uint64_t(1023 + 1 - bias - M) << 52);
    } else if (magnitude <= Largest) {
      value = std::bit_cast<double>((std::uint64_t{magnitude} << (52 - M)) + (std::uint64_t(1023 - bias) << 52));
    } else {
      value = O == Overflow::infinity && magnitude == Largest + 1 ? std::numeric_limits<double>::infinity()
                                                                  : std::numeric_limits<double>::quiet_NaN();
    }
    return std::bit_cast<double>(std::bit_cast<std::uint64_t>(value) | sign);
  }
};

using F16 = Format<5, 10, Overflow::infinity, 0x7fff, 0x7bff>;
using Bf16 = Format<8, 7, Overflow::infinity, 0x7fff, 0x7f7f>;
using Tf32 = Format<8, 10, Overflow::infinity, 0x3ffff, 0x3fbff>;
using F8e4m3 = Format<4, 3, Overflow::saturate, 0x7f, 0x7e>;
using F8e5m2 = Format<5, 2, Overflow::infinity, 0x7f, 0x7b>;
using F4e2m1 = Format<2, 1, Overflow::saturate, 0x7, 0x7>;  // has no NaN: 6 stands for it

// How each element type is stored: an unsigned word, and the way to and from it.
template <class F, class Word>
struct SmallFloat {
  using word = Word;
  static word encode(double v) { return static_cast<word>(F::encode(v)); }
  static double decode(word w) { return F::decode(w); }
};

struct Tf32Codec {  // stored as the upper bits of an f32
  using word = std::uint32_t;
  static word encode(double v) { return Tf32::encode(v) << 13; }
  static double decode(word w) { return std::bit_cast<float>(w); }
};

struct F32Codec {
  using word = std::uint32_t;
  static word encode(double v) { return std::bit_cast<word>(static_cast<float>(v)); }
  static double decode(word w) { return std::bit_cast<float>(w); }
};

struct F64Codec {
  using word = std::uint64_t;
  static word encode(double v) { return std::bit_cast<word>(v); }
  static double decode(word w) { return std::bit_cast<double>(w); }
};

// Truncates towards zero and saturates; NaN becomes 0. Bits is the width of the stored field. The largest i64 is the
// largest that a double holds, 2^63 - 1024, as round_to has it.
template <class Integer, class Word, int Bits>
struct IntegerCodec {
  using word = Word;
  static constexpr bool is_signed = std::is_signed_v<Integer>;
  static constexpr double lowest = is_signed ? -static_cast<double>(std::uint64_t{1} << (Bits - 1)) : 0.0;
  static constexpr double beyond = static_cast<double>(std::uint64_t{1} << (Bits - 1)) * (is_signed ? 1 : 2);
  static constexpr std::uint64_t mask = Bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << (Bits % 64)) - 1;

  static word encode(double v) {
    if (v != v) return 0;
    const double t = std::trunc(v);
    if (t >= beyond) return static_cast<word>(Bits == 64 ? (mask >> 1) - 1023 : is_signed ? mask >> 1 : mask);
    return static_cast<word>(static_cast<std::uint64_t>(static_cast<std::int64_t>(t < lowest ? lowest : t)) & mask);
  }
  static double decode(word w) {
    if constexpr (!is_signed) return static_cast<double>(w);
    const std::uint64_t sign = std::uint64_t{1} << (Bits - 1);
    return static_cast<double>(static_cast<std::int64_t>((std::uint64_t{w} ^ sign) - sign));
  }
};

struct BooleanCodec {
  using word = std::uint8_t;
  static word encode(double v) { return v != 0 ? 1 : 0; }
  static double decode(word w) { return w != 0 ? 1 : 0; }
};

// Calls `use` with the codec of the type.
template <class Use>
decltype(auto) with_codec(ScalarType type, Use&& use) {
  switch (type) {
    case ScalarType::f64:
      return use(F64Codec{});
    case ScalarType::f32:
      return use(F32Codec{});
    case ScalarType::tf32:
      return use(Tf32Codec{});
    case ScalarType::bf16:
      return use(SmallFloat<Bf16, std::uint16_t>{});
    case ScalarType::f16:
      return use(SmallFloat<F16, std::uint16_t>{});
    case ScalarType::f8e4m3:
      return use(SmallFloat<F8e4m3, std::uint8_t>{});
    case ScalarType::f8e5m2:
      return use(SmallFloat<F8e5m2, std::uint8_t>{});
    case ScalarType::i64:
      return use(IntegerCodec<std::int64_t, std::uint64_t, 64>{});
    case ScalarType::i32:
      return use(IntegerCodec<std::int32_t, std::uint32_t, 32>{});
    case ScalarType::i8:
      return use(IntegerCodec<std::int8_t, std::uint8_t, 8>{});
    case ScalarType::u8:
      return use(IntegerCodec<std::uint8_t, std::uint8_t, 8>{});
    case ScalarType::i4:
      return use(IntegerCodec<std::int8_t, std::uint8_t, 4>{});
    case ScalarType::u4:
      return use(IntegerCodec<std::uint8_t, std::uint8_t, 4>{});
    case ScalarType::f4e2m1:
      return use(SmallFloat<F4e2m1, std::uint8_t>{});
    case ScalarType::boolean:
      break;
  }
  return use(BooleanCodec{});
}

// Splits [0, count) over the cores; pieces start at even elements, so no two share a byte.
template <class Piece>
void in_parallel(std::size_t count, Piece&& piece) {
  constexpr std::size_t smallest_piece = std::size_t{1} << 18;
  const std::size_t workers =
      std::min<std::size_t>({std::max(1u, std::thread::hardware_concurrency()), count / smallest_piece + 1, 32});
  const std::size_t step = (count / workers + 2) & ~std::size_t{1};
  std::vector<std::thread> threads;
  for (std::size_t begin = step; begin < count; begin += step)
    threads.emplace_back([&piece, begin, end = std::min(count, begin + step)] { piece(begin, end); });
  piece(0, std::min(count, step));
  for (std::thread& thread : threads) thread.join();
}

template <class Codec>
void pack_words(std::span<const double> values, std::byte* out) {
  in_parallel(values.size(), [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const typename Codec::word word = Codec::encode(values[i]);
      std::memcpy(out + i * sizeof(word), &word, sizeof(word));
    }
  });
}

template <class Codec>
void pack_nibbles(std::span<const double> values, std::byte* out) {
  in_parallel(values.size(), [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; i += 2) {
      const unsigned low = Codec::encode(values[i]);
      const unsigned high = i + 1 < end ? Codec::encode(values[i + 1]) : 0;
      out[i / 2] = static_cast<std::byte>(low | (high << 4));
    }
  });
}

template <class Codec>
double element_at(bool nibbles, const std::byte* in, std::size_t i) {
  typename Codec::word word;
  if constexpr (sizeof(word) == 1) {
    const auto byte = static_cast<unsigned>(in[i / 2]);
    if (nibbles) return Codec::decode(static_cast<std::uint8_t>(i % 2 == 0 ? byte & 15 : byte >> 4));
  }
  std::memcpy(&word, in + i * sizeof(word), sizeof(word));
  return Codec::decode(word);
}

}  // namespace

std::size_t packed_bytes(ScalarType type, std::size_t count) {
  const auto width = static_cast<std::size_t>(bits(type));
  return width >= 8 ? count * (width / 8) : (count + 1) / 2;
}

void pack_into(ScalarType type, std::span<const double> values, std::span<std::byte> bytes) {
  assert(bytes.size() >= packed_bytes(type, values.size()));
  with_codec(type, [&]<class Codec>(Codec) {
    if (bits(type) < 8) {
      if constexpr (sizeof(typename Codec::word) == 1) pack_nibbles<Codec>(values, bytes.data());
    } else {
      pack_words<Codec>(values, bytes.data());
    }
  });
}

void unpack_into(ScalarType type, std::span<const std::byte> bytes, std::span<double> values) {
  assert(bytes.size() >= packed_bytes(type, values.size()));
  const bool nibbles = bits(type) < 8;
  with_codec(type, [&]<class Codec>(Codec) {
    in_parallel(values.size(), [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) values[i] = element_at<Codec>(nibbles, bytes.data(), i);
    });
  });
}

std::vector<std::byte> pack(ScalarType type, std::span<const double> values) {
  std::vector<std::byte> bytes(packed_bytes(type, values.size()));
  pack_into(type, values, bytes);
  return bytes;
}

std::vector<double> unpack(ScalarType type, std::span<const std::byte> bytes, std::size_t count) {
  std::vector<double> values(count);
  unpack_into(type, bytes, values);
  return values;
}

Result<void> pack_in_pieces(ScalarType type, std::span<const double> values, const PutPiece& put) {
  const std::size_t most = most_piece_bytes * 8 / static_cast<std::size_t>(bits(type));
  std::vector<std::byte> bytes;
  for (std::size_t first = 0; first < values.size(); first += most) {
    const auto piece = values.subspan(first, std::min(most, values.size() - first));
    bytes.resize(packed_bytes(type, piece.size()));
    pack_into(type, piece, bytes);
    if (auto done = put(bytes, packed_bytes(type, first)); !done) return done;
  }
  return {};
}

Result<std::vector<double>> unpack_at(ScalarType type, std::span<const std::int64_t> at, const GetPiece& get) {
  constexpr std::size_t far = std::size_t{1} << 16;  // copying so many bytes takes about as long as beginning a copy
  const auto element = [&](std::size_t i) { return static_cast<std::size_t>(at[i]); };
  std::vector<double> values;
  values.reserve(at.size());
  std::vector<std::byte> bytes;
  for (std::size_t first = 0, end = 0; first < at.size(); first = end) {
    const std::size_t base = element(first) & ~std::size_t{1};  // where a byte begins
    const std::size_t offset = packed_bytes(type, base);
    for (end = first + 1; end < at.size(); ++end) {
      const std::size_t next = packed_bytes(type, element(end) + 1);
      if (next - packed_bytes(type, element(end - 1) + 1) > far || next - offset > most_piece_bytes) break;
    }
    bytes.resize(packed_bytes(type, element(end - 1) + 1) - offset);
    if (auto done = get(bytes, offset); !done) return tl::unexpected(done.error());
    with_codec(type, [&]<class Codec>(Codec) {
      for (std::size_t i = first; i < end; ++i)
        values.push_back(element_at<Codec>(bits(type) < 8, bytes.data(), element(i) - base));
    });
  }
  return values;
}

std::uint64_t to_bits(ScalarType type, double value) {
  return with_codec(type, [&]<class Codec>(Codec) { return static_cast<std::uint64_t>(Codec::encode(value)); });
}

double from_bits(ScalarType type, std::uint64_t word) {
  return with_codec(type, [&]<class Codec>(Codec) { return Codec::decode(static_cast<typename Codec::word>(word)); });
}

}  // namespace pipethreader::runtime
