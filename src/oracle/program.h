// A kernel at concrete sizes, ready to be walked: expressions with everything looked up (types, roundoffs, which axes
// they depend on, what restricts them), statements with the condition under which they are active.
//
// The program still means what the kernel says; nothing is reordered or fused.
#pragma once

#include <bitset>
#include <cstdint>
#include <vector>

#include "kernel/kernel.h"
#include "oracle/error_model.h"

namespace pipethreader::oracle {

// A set of axes, by AxisId index. The last bit stands for the point of the parallel axes, which every local value
// depends on.
inline constexpr std::size_t kMaxAxes = 127;
using AxisSet = std::bitset<kMaxAxes + 1>;
inline constexpr int kPoint = static_cast<int>(kMaxAxes);

struct Node {
  kernel::Expr::Kind kind = kernel::Expr::Kind::literal;
  Function function = Function::add;
  ScalarType type = ScalarType::f32;
  bool integer = false;  // of integer or boolean type: evaluated exactly
  bool exact = false;    // no element carries an error
  bool passes = false;   // an element may be the very number that some value holds (access, select, min, max)
  bool step = false;     // convert: depends on carried state, so that a whole step of the type is charged
  double number = 0;     // literal, dim, option, scalar
  double error = 0;      // of the literal
  double rounding = 0;   // unit roundoff of one operation
  kernel::ReduceOp reduce = kernel::ReduceOp::sum;
  double term_rounding = 0;  // reduce: roundoff of one addition
  int axis = -1;
  int value = -1;  // into Program::values
  int tensor = -1;
  int active = -1;  // reduce: the node that says which points the enclosing loops' `where` lets it see; -1: all
  std::vector<int> args;
  std::vector<int> axes;  // reduce
  AxisSet free;
  SourceSpan span;
};

// Storage of a local value: one element per point of the parallel axes and per index of `axes`.
struct LocalValue {
  std::string name;
  ScalarType type = ScalarType::f32;
  std::vector<int> axes;  // those that are not parallel
  // For each axis as declared: whether it is parallel (its index is then the point's own).
  std::vector<int> declared;
  bool carried = false;
  bool tagged = false;       // elements remember which number they hold
  bool accumulates = false;  // sums are added to it: elements remember the magnitude and number of all terms
};

struct StatementNode {
  enum class Kind : std::uint8_t { assign, carry, store, loop };
  Kind kind = Kind::assign;
  int target = -1;  // value or tensor
  int expr = -1;    // node
  int when = -1;    // node
  int active = -1;  // node: whether the enclosing loops' `where` has a point here; -1: always
  // v += e, or v = b + sum[...] e with a base that follows from v (v * a + sum[...] e): the sums of all tiles are one
  // sum of many terms, in any order.
  bool accumulate = false;
  int base = -1;         // node; -1: v itself
  bool rescale = false;  // v = v * e
  double accumulate_rounding = 0;
  bool reads_target = false;  // at other indices than its own: evaluated in full before it is written
  ScalarType expr_type = ScalarType::f32;
  std::vector<int> indices;  // store
  std::vector<int> axes;     // the axes it ranges over, without the parallel ones
  int loop = -1;
  SourceSpan span;
};

struct LoopNode {
  int axis = -1;
  bool ordered = false;
  std::vector<int> body;         // into Program::statements
  std::vector<int> masks;        // statements that compute the masks of a tile, run before the body
  std::vector<int> resets;       // values that are undefined at the start of a tile
  std::vector<int> tile_values;  // values over this loop's axis
  bool combines = false;
  std::vector<int> carried, others;  // combine
  std::vector<int> combine_body;
};

struct AxisNode {
  std::string name;
  bool parallel = false;
  std::int64_t extent = 0;
};

struct TensorNode {
  std::string name;
  ScalarType type = ScalarType::f32;
  std::vector<std::int64_t> shape;
  bool output = false;
};

struct Program {
  std::string file;
  std::vector<Node> nodes;
  std::vector<LocalValue> values;
  std::vector<StatementNode> statements;
  std::vector<LoopNode> loops;
  std::vector<AxisNode> axes;
  std::vector<TensorNode> tensors;
  std::vector<int> parallel;
  std::vector<int> body;
  AxisSet parallel_set;
};

[[nodiscard]] Result<Program> build_program(const kernel::Kernel& kernel, const std::vector<std::int64_t>& sizes,
                                            const std::vector<double>& scalars);

// The value of an expression over dims, options and constants.
[[nodiscard]] std::int64_t constant_of(const kernel::Kernel& kernel, kernel::ExprId expr,
                                       const std::vector<std::int64_t>& sizes);

}  // namespace pipethreader::oracle
