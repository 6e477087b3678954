// Typed indices: a TensorId does not convert to a ValueId, so tables cannot be mixed up.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace pipethreader {

template <class Tag>
struct Id {
  std::int32_t index = -1;

  constexpr Id() = default;
  constexpr explicit Id(std::size_t i) : index(static_cast<std::int32_t>(i)) {}
  [[nodiscard]] constexpr bool valid() const { return index >= 0; }
  constexpr auto operator<=>(const Id&) const = default;
};

}  // namespace pipethreader

template <class Tag>
struct std::hash<pipethreader::Id<Tag>> {
  std::size_t operator()(pipethreader::Id<Tag> id) const noexcept { return std::hash<std::int32_t>{}(id.index); }
};
