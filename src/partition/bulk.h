// Whether the copy engine can move an access' tile, and as what box: the tensor is viewed with one dim per tiled axis,
// so that what lies past an axis' end is read as zero and never written, even where another axis' data follows in
// memory. One element, without any tiled axis, is moved with its neighbours: the box begins at the multiple of 16 bytes
// before it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "partition/partition.h"

namespace pipethreader::partition {

struct BulkDim {
  kernel::ExprId extent;               // elements
  std::vector<kernel::ExprId> stride;  // product of these sizes, times `stride_factor`, in elements
  std::int64_t stride_factor = 1;
  kernel::ExprId coordinate;           // evaluated at the tile's origin
  std::optional<kernel::AxisId> axis;  // the box spans this axis' tile; none: 1
  int step = 1;
  bool exact = true;  // elements past the axis' end lie outside the dim
};

struct BulkView {
  kernel::TensorId tensor;
  std::vector<BulkDim> dims;  // innermost first
  std::vector<std::pair<std::vector<kernel::ExprId>, std::int64_t>>
      aligned;  // strides (elements) that must be multiples of 16 bytes at run time
};

struct BulkAnswer {
  std::optional<BulkView> view;
  std::string reason;  // why not
};

// `kernel` gains the expressions that the view needs.
[[nodiscard]] BulkAnswer bulk_view(kernel::Kernel& kernel, const std::set<kernel::AxisId>& tiled,
                                   kernel::TensorId tensor, const std::vector<kernel::ExprId>& indices);

}  // namespace pipethreader::partition
