// The sTask-graph: a kernel in normal form (every statement is one load, map, reduction, product or store) with, for
// each statement, the unit that runs it and what it reads and writes. The tree of loops is kept; dependences follow
// from the order of statements over mutable values, loop-carried ones from the order in the loop body.
//
// The graph knows which axes are tiled, never how large a tile is.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "kernel/kernel.h"
#include "task/walk.h"

namespace pipethreader::task {

using TaskId = Id<struct TaskTag>;

enum class TaskKind : std::uint8_t {
  load,           // v = T[...]
  map,            // v = f(values) elementwise
  reduce,         // v = op over axes of f(values), in registers
  serial_reduce,  // the same, one index of the reduced axis after the other (no unit does it at once)
  mma,            // v (+)= sum over K of a * b on the tensor core
  store,          // O[...] = v
  slice,          // v = the current tile of a value that stays on chip whole
};

enum class UnitKind : std::uint8_t { copy_engine, tensor_core, cuda_cores };

// The axes of a product, as far as they are tiled: one each of M, N and K. Axes with tile 1 are not named here.
struct Product {
  kernel::ValueId a, b;  // a holds the rows (M) of the result, b the columns (N)
  kernel::AxisId m, n, k;
};

struct Task {
  TaskKind kind = TaskKind::map;
  UnitKind unit = UnitKind::cuda_cores;
  kernel::StatementId statement;
  std::vector<kernel::ValueId> reads;
  std::optional<kernel::ValueId> writes;
  bool accumulates = false;        // reads what it writes
  std::optional<Product> product;  // mma only
};

struct Node;
struct LoopNode {
  kernel::StatementId statement;  // its Loop; `body` there is empty, the tasks are here
  kernel::AxisId axis;
  std::vector<Node> body;
};
struct Node {
  std::variant<TaskId, LoopNode> item;
};

struct Graph {
  kernel::Kernel kernel;
  std::vector<Task> tasks;
  std::vector<Node> root;
  std::set<kernel::AxisId> tiled;  // axes that get a tile larger than 1; all others are uniform within a tile
  Walk walk;                       // that it was built with
  std::map<kernel::AxisId, kernel::AxisId> kept;  // an axis that stays on chip whole, and the loop's it is a copy of

  [[nodiscard]] const Task& operator[](TaskId id) const { return tasks[static_cast<std::size_t>(id.index)]; }
  [[nodiscard]] std::vector<kernel::AxisId> tiled_axes(kernel::ValueId value) const;  // in the value's order
  [[nodiscard]] bool has_products() const;                                            // on the tensor core
};

struct Limits {
  std::int64_t resident_product = 256;  // a reduced axis of a product up to this size stays on chip whole
  std::int64_t resident_row = 8192;     // a reduced or inner axis outside products up to this size stays on chip whole
  std::int64_t resident_bytes = 131'072;  // what a walk keeps of one tensor, for rows of a hundred elements
};

// Builds the graph of a checked, specialised kernel. Fails with a located message where the language allows what no
// schedule can do yet (an inner axis of unknown size that must stay on chip, for instance).
// With a walk, loads that do not depend on the walked axis stand outside its loop.
[[nodiscard]] Result<Graph> build(const kernel::Kernel& kernel, const Walk& walk = {}, const Limits& limits = {});

// The kernel under each walk that does some load once for all steps.
[[nodiscard]] std::vector<Graph> useful_walks(const kernel::Kernel& kernel);

// The normal form as kernel text, each statement with its unit, reads and writes as a comment.
[[nodiscard]] std::string print(const Graph& graph);

}  // namespace pipethreader::task
