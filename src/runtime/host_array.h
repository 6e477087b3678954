// Host arrays of doubles to the packed bytes of a device tensor and back, whole or in part. Rounding is that of
// base/scalar_type's round_to; elements narrower than a byte are packed with the low element in the low bits. Free of
// tables, fast enough for 64M elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/diagnostic.h"
#include "base/scalar_type.h"

namespace pipethreader::runtime {

// Bytes of `count` packed elements.
[[nodiscard]] std::size_t packed_bytes(ScalarType type, std::size_t count);

[[nodiscard]] std::vector<std::byte> pack(ScalarType type, std::span<const double> values);
// `bytes` must hold packed_bytes(type, values.size()).
void pack_into(ScalarType type, std::span<const double> values, std::span<std::byte> bytes);

[[nodiscard]] std::vector<double> unpack(ScalarType type, std::span<const std::byte> bytes, std::size_t count);
void unpack_into(ScalarType type, std::span<const std::byte> bytes, std::span<double> values);

// Large tensors go over in pieces of at most so many bytes, so that the host holds no second copy of them.
inline constexpr std::size_t most_piece_bytes = std::size_t{32} << 20;
using PutPiece = std::function<Result<void>(std::span<const std::byte> bytes, std::size_t offset)>;
using GetPiece = std::function<Result<void>(std::span<std::byte> bytes, std::size_t offset)>;

[[nodiscard]] Result<void> pack_in_pieces(ScalarType type, std::span<const double> values, const PutPiece& put);

// The elements `at`, ascending, of a packed tensor. Those near one another come in one piece; what lies far between
// them stays where it is.
[[nodiscard]] Result<std::vector<double>> unpack_at(ScalarType type, std::span<const std::int64_t> at,
                                                    const GetPiece& get);

// The bits of one element, for tests and constants in printed code.
[[nodiscard]] std::uint64_t to_bits(ScalarType type, double value);
[[nodiscard]] double from_bits(ScalarType type, std::uint64_t bits);

}  // namespace pipethreader::runtime
