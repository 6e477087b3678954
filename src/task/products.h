// Which sums the tensor core can do, and which axes must be tiled for it.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "kernel/kernel.h"

namespace pipethreader::task {

// sum over K of x * y with two 16-bit operands of one type, rows M only in x, columns N only in y.
struct ProductShape {
  kernel::ExprId x, y;                  // the operands (16-bit expressions)
  std::vector<kernel::AxisId> m, n, k;  // all axes of each group, in axis order
};

// The shape of a reduction as a product, if it is one; with `any_types` also where the tensor core has none of its
// types.
[[nodiscard]] std::optional<ProductShape> product_shape(const kernel::Kernel& kernel, kernel::ExprId reduce,
                                                        bool any_types = false);

// The axes of a kernel that get a tile larger than 1: of every group of a product the axis that is not independent
// work, or else one that no product has in both operands, long and
// contiguous in memory; without products the contiguous axis of the stores and what must stay on chip.
[[nodiscard]] std::set<kernel::AxisId> choose_tiled(const kernel::Kernel& kernel);

// The value of an integer expression over dims and constants; empty when it depends on anything else.
[[nodiscard]] std::optional<std::int64_t> static_size(const kernel::Kernel& kernel, kernel::ExprId expr);

// The static size of an axis; empty when it depends on a dynamic dim.
[[nodiscard]] std::optional<std::int64_t> static_extent(const kernel::Kernel& kernel, kernel::AxisId axis);

// The tiled axis of a group: empty when there is none or more than one.
[[nodiscard]] std::optional<kernel::AxisId> only_tiled(const std::vector<kernel::AxisId>& group,
                                                       const std::set<kernel::AxisId>& tiled);

// Every reduction of the kernel's statements, innermost first.
[[nodiscard]] std::vector<kernel::ExprId> reductions(const kernel::Kernel& kernel);

}  // namespace pipethreader::task
