// Where every value lives: its register layout, and for what the tensor core or several threads read, a tile in shared
// memory. Layouts are inferred by priority: products fix the values around them, everything else follows by slicing,
// and what no product reaches is spread for coalesced access.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "layout/layout.h"
#include "layout/stairs.h"
#include "partition/partition.h"

namespace pipethreader::partition {

// A tile in shared memory: columns are contiguous.
struct SharedTile {
  std::vector<kernel::AxisId> row_axes;  // flattened, slowest first; may be empty (one row)
  kernel::AxisId column;                 // invalid: a single element a row, its neighbours behind it where it is loaded
  int rows = 1;
  int cols = 1;
  int parts = 1;                         // the rows are so many teams' tiles, one below the other
  std::optional<layout::Stairs> stairs;  // what has memory, if not all
  [[nodiscard]] int own_rows() const { return rows / parts; }
  [[nodiscard]] std::int64_t elements() const;
};

struct Place {
  bool in_registers = false;
  bool staged = false;                  // a load that goes through a ring in shared memory
  bool scratch = false;                 // a computed value that is also written to shared memory
  std::optional<SharedTile> shared;     // when staged or scratch
  std::optional<kernel::ValueId> kept;  // a slice: the staged value that it is a part of
  std::vector<kernel::AxisId> axes;     // the tiled axes, in the order of the layout's dims
  layout::Layout layout;                // when in registers
};

// How a product takes its operands. `rows`: the axis of the accumulator's rows (the product's m, or its n: then a and b
// change places).
struct ProductPlace {
  bool swapped = false;
  bool a_in_registers = false;
  bool operator==(const ProductPlace&) const = default;
};

// The last dim of a partial value: which lane of the threads that share a row holds a share of its element. No axis of
// the kernel.
inline constexpr kernel::AxisId partial_dim{std::size_t{0x7fffffff}};

// A sum over a loop that only its end needs: every thread adds up what it holds, and one reduction after the loop joins
// the shares. Its value and what is added to it have partial_dim as their last dim until then.
struct PartialSum {
  kernel::StatementId loop;
  kernel::ValueId sum;
};

// Neighbouring columns of a tensor-core fragment lie in four lanes, in pairs.
inline constexpr int share_stride = 2;
inline constexpr int shares = 4;

struct Assignment {
  std::vector<Place> values;  // by value index
  std::vector<PartialSum> partial;
  std::map<task::TaskId, ProductPlace> products;
  std::vector<std::pair<std::vector<kernel::AxisId>, layout::Layout>> domains;  // known 2-d domains: axes (rows, cols)

  [[nodiscard]] bool is_partial(kernel::ValueId v) const {
    const Place& place = (*this)[v];
    return !place.axes.empty() && place.axes.back() == partial_dim;
  }
  [[nodiscard]] const Place& operator[](kernel::ValueId v) const { return values[static_cast<std::size_t>(v.index)]; }
};

// The layout a statement over these axes works in (dims in the given order).
[[nodiscard]] layout::Layout domain_layout(const task::Graph& graph, const Partition& partition,
                                           const Assignment& assignment, const std::vector<kernel::AxisId>& axes);

// The product with a as rows operand, after swapping.
[[nodiscard]] task::Product oriented(const task::Graph& graph, const Assignment& assignment, task::TaskId task);

// Whether values over `axis` must be masked before they are reduced over it in this loop: the tile may reach past the
// axis' end, or `where` cuts it in a way that reading zeros does not cover.
struct Masking {
  bool ragged = false;       // the last tile is partial
  bool conditioned = false;  // `where` says something about single points
  [[nodiscard]] bool any() const { return ragged || conditioned; }
};
[[nodiscard]] Masking masking(const task::Graph& graph, const Partition& partition, kernel::AxisId axis,
                              const std::optional<kernel::ExprId>& where);

[[nodiscard]] Result<Assignment> assign(const task::Graph& graph, const Partition& partition);

[[nodiscard]] std::string print(const task::Graph& graph, const Partition& partition, const Assignment& assignment);

}  // namespace pipethreader::partition
