// Host arrays of doubles to the packed bytes of a device tensor and back. Rounding is that of base/scalar_type's
// round_to; elements narrower than a byte are packed with the low element in the low bits. Free of tables, fast enough
// for 64M elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/scalar_type.h"

namespace pipethreader::runtime {

// Bytes of `count` packed elements.
[[nodiscard]] std::size_t packed_bytes(ScalarType type, std::size_t count);

[[nodiscard]] std::vector<std::byte> pack(ScalarType type, std::span<const double> values);
// `bytes` must hold packed_bytes(type, values.size()).
void pack_into(ScalarType type, std::span<const double> values, std::span<std::byte> bytes);

[[nodiscard]] std::vector<double> unpack(ScalarType type, std::span<const std::byte> bytes, std::size_t count);
void unpack_into(ScalarType type, std::span<const std::byte> bytes, std::span<double> values);

// The bits of one element, for tests and constants in printed code.
[[nodiscard]] std::uint64_t to_bits(ScalarType type, double value);
[[nodiscard]] double from_bits(ScalarType type, std::uint64_t bits);

}  // namespace pipethreader::runtime
