// The host-side description of a bulk tensor copy and its checks. Gpu::encode turns a description into the 128 opaque
// bytes that a kernel takes as a `const __grid_constant__` parameter; validate() needs no driver.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/diagnostic.h"
#include "base/scalar_type.h"

namespace pipethreader::runtime {

enum class TensorSwizzle : std::uint8_t { none, bytes_32, bytes_64, bytes_128 };
enum class L2Promotion : std::uint8_t { none, bytes_64, bytes_128, bytes_256 };
enum class OutOfBoundsFill : std::uint8_t { zeros, nan };

// Axes are listed innermost (contiguous) first, as the hardware wants them.
struct TensorMapDescription {
  ScalarType type = ScalarType::f16;
  std::uint64_t base = 0;                      // device address, a multiple of 16
  std::vector<std::uint64_t> sizes;            // elements along each axis; 1 to 5 axes
  std::vector<std::uint64_t> byte_strides;     // of every axis but the innermost; multiples of 16
  std::vector<std::uint32_t> box;              // elements copied along each axis, 1..256
  std::vector<std::uint32_t> element_strides;  // empty: all 1
  TensorSwizzle swizzle = TensorSwizzle::none;
  L2Promotion l2_promotion = L2Promotion::bytes_256;
  OutOfBoundsFill fill = OutOfBoundsFill::zeros;
};

// Everything the hardware demands of a description, with the axis and the number in the message.
[[nodiscard]] Result<void> validate(const TensorMapDescription& description);

class TensorMap {
 public:
  [[nodiscard]] std::span<const std::byte> bytes() const { return opaque_; }

 private:
  friend class Gpu;
  alignas(64) std::array<std::byte, 128> opaque_{};
};

}  // namespace pipethreader::runtime
