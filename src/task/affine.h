// Affine analysis of conditions and indices over the tiled axes: what a loop's `where` says about tile bounds, which
// tiles it leaves whole, and which rows it leaves without a point.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "kernel/kernel.h"

namespace pipethreader::task {

// sum of coefficient * axis over tiled axes, plus uniform expressions, plus a constant.
struct Linear {
  std::map<kernel::AxisId, std::int64_t> axes;
  std::vector<std::pair<std::int64_t, kernel::ExprId>> uniform;  // coefficient, expression without tiled axes
  std::int64_t constant = 0;
};

// The affine form of an integer expression; empty when a tiled axis enters in another way.
[[nodiscard]] std::optional<Linear> linear(const kernel::Kernel& kernel, kernel::ExprId expr,
                                           const std::set<kernel::AxisId>& tiled);

// A condition as a conjunction: inequalities `form >= 0`, and what is no affine inequality.
struct Conjunction {
  std::vector<Linear> inequalities;
  std::vector<kernel::ExprId> opaque;
};
[[nodiscard]] Conjunction conjunction(const kernel::Kernel& kernel, kernel::ExprId condition,
                                      const std::set<kernel::AxisId>& tiled);

}  // namespace pipethreader::task
