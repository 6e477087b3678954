#include "runtime/tensor_map.h"

#include <optional>

#include "runtime/driver_context.h"

namespace pipethreader::runtime {
namespace {

// The driver's code of an element type as the copy engine moves it; none for types narrower than a byte.
std::optional<int> element_code(ScalarType type) {
  switch (type) {
    case ScalarType::u8:
    case ScalarType::i8:
    case ScalarType::f8e4m3:
    case ScalarType::f8e5m2:
    case ScalarType::boolean:
      return 0;
    case ScalarType::i32:
      return 3;
    case ScalarType::i64:
      return 5;
    case ScalarType::f16:
      return 6;
    case ScalarType::f32:
      return 7;
    case ScalarType::f64:
      return 8;
    case ScalarType::bf16:
      return 9;
    case ScalarType::tf32:
      return 11;
    case ScalarType::i4:
    case ScalarType::u4:
    case ScalarType::f4e2m1:
      return std::nullopt;
  }
  return std::nullopt;
}

std::uint64_t swizzle_span(TensorSwizzle swizzle) {
  switch (swizzle) {
    case TensorSwizzle::none:
      return 0;
    case TensorSwizzle::bytes_32:
      return 32;
    case TensorSwizzle::bytes_64:
      return 64;
    case TensorSwizzle::bytes_128:
      return 128;
  }
  return 0;
}

constexpr std::uint64_t largest_size = std::uint64_t{1} << 32;
constexpr std::uint64_t largest_stride = std::uint64_t{1} << 40;

Result<void> check_counts(const TensorMapDescription& d) {
  const std::size_t rank = d.sizes.size();
  if (rank < 1 || rank > 5) return fail("a tensor map has 1 to 5 axes, not {}", rank);
  if (d.byte_strides.size() != rank - 1)
    return fail("a tensor map of {} axes has {} byte strides, not {}", rank, rank - 1, d.byte_strides.size());
  if (d.box.size() != rank) return fail("a tensor map of {} axes has a box of as many, not {}", rank, d.box.size());
  if (!d.element_strides.empty() && d.element_strides.size() != rank)
    return fail("a tensor map of {} axes has as many element strides or none, not {}", rank, d.element_strides.size());
  return {};
}

Result<void> check_axis(const TensorMapDescription& d, std::size_t axis) {
  if (d.sizes[axis] < 1 || d.sizes[axis] > largest_size)
    return fail("axis {} of a tensor map has size {}; 1 to 2^32 is possible", axis, d.sizes[axis]);
  if (d.box[axis] < 1 || d.box[axis] > 256)
    return fail("axis {} of a tensor map has a box of {} elements; 1 to 256 is possible", axis, d.box[axis]);
  if (!d.element_strides.empty() && (d.element_strides[axis] < 1 || d.element_strides[axis] > 8))
    return fail("axis {} of a tensor map has element stride {}; 1 to 8 is possible", axis, d.element_strides[axis]);
  if (axis == 0) return {};
  const std::uint64_t stride = d.byte_strides[axis - 1];
  if (stride % 16 != 0 || stride >= largest_stride) {
    return fail_at({}, {}, fmt::format("axis {} of a tensor map has a stride of {} bytes", axis, stride),
                   "strides are multiples of 16 below 2^40; other tensors need plain copies");
  }
  return {};
}

Result<void> check_inner_box(const TensorMapDescription& d) {
  const std::uint64_t bytes = std::uint64_t{d.box[0]} * static_cast<std::uint64_t>(bits(d.type)) / 8;
  if (bytes % 16 != 0) return fail("the innermost box of a tensor map has {} bytes, no multiple of 16", bytes);
  const std::uint64_t span = swizzle_span(d.swizzle);
  if (span != 0 && bytes > span)
    return fail("the innermost box of a tensor map has {} bytes, more than its swizzle span of {}", bytes, span);
  return {};
}

}  // namespace

Result<void> validate(const TensorMapDescription& d) {
  if (!element_code(d.type)) return fail("a tensor map cannot hold elements of type {}", name(d.type));
  if (auto ok = check_counts(d); !ok) return ok;
  if (d.base % 16 != 0) {
    return fail_at({}, {}, fmt::format("a tensor map's base address {:#x} is no multiple of 16", d.base),
                   "align the tensor, or use plain copies for it");
  }
  for (std::size_t axis = 0; axis < d.sizes.size(); ++axis)
    if (auto ok = check_axis(d, axis); !ok) return ok;
  return check_inner_box(d);
}

Result<TensorMap> Gpu::encode(const TensorMapDescription& d) const {
  if (auto ok = validate(d); !ok) return tl::unexpected(ok.error());
  const std::vector<std::uint32_t> ones(d.sizes.size(), 1);
  const auto& element_strides = d.element_strides.empty() ? ones : d.element_strides;
  constexpr int no_interleave = 0;
  // The driver reads no stride of a tensor with one dim, but refuses a null pointer to them.
  std::vector<std::uint64_t> strides = d.byte_strides;
  strides.resize(d.sizes.size());
  TensorMap map;
  auto ok = context_->run("encode a tensor map", [&](const Driver& driver) {
    return driver.encode_tiled(map.opaque_.data(), *element_code(d.type), static_cast<std::uint32_t>(d.sizes.size()),
                               reinterpret_cast<void*>(d.base), d.sizes.data(), strides.data(), d.box.data(),
                               element_strides.data(), no_interleave, static_cast<int>(d.swizzle),
                               static_cast<int>(d.l2_promotion), static_cast<int>(d.fill));
  });
  if (!ok) return tl::unexpected(ok.error());
  return map;
}

}  // namespace pipethreader::runtime
