// The device program: what one launch does, in a closed instruction set over tiles. One body per role; shared-memory
// buffers and rings with slots; barriers with phases. It is what verify() proves, interpret runs and emit prints; it
// knows nothing of kernels, tasks or schedules. Synchronisation is monotone only (counted barriers, first-in-first-out
// groups), and branches on data contain none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/diagnostic.h"
#include "base/functions.h"
#include "base/ids.h"
#include "base/scalar_type.h"
#include "layout/layout.h"
#include "layout/stairs.h"

namespace pipethreader::program {

using ParamId = Id<struct ProgramParamTag>;
using TensorId = Id<struct ProgramTensorTag>;
using MapId = Id<struct ProgramMapTag>;
using BufferId = Id<struct ProgramBufferTag>;
using RingId = Id<struct ProgramRingTag>;
using BarrierId = Id<struct ProgramBarrierTag>;
using FragmentId = Id<struct ProgramFragmentTag>;
using VarId = Id<struct ProgramVarTag>;
using RoleId = Id<struct ProgramRoleTag>;
using ExprId = Id<struct ProgramExprTag>;

// A run-time argument that is no tensor: a dim's size (i32) or a scalar.
struct Param {
  std::string name;
  ScalarType type = ScalarType::i32;
  bool dim = true;
};

// A uniform integer, assigned by For, ForWork or Let of one role instance.
struct Var {
  std::string name;
};

// Scalar expressions: uniform integers (over constants, params, vars, instance), or per-element values (which may also
// use coord and fragment). Booleans are 0 or 1.
struct Expr {
  enum class Kind : std::uint8_t {
    constant,      // `number`
    param,         // `param`
    var,           // `var`
    instance,      // which instance of its role executes (warpgroup index within the role)
    cluster_rank,  // which block of its cluster
    coord,         // coordinate of the tile's dimension `dim` (local to the instance's fragment or to the buffer)
    fragment,      // element of `fragment`; its dim k is dim dims[k] of the tile
    call,          // `function`(args); type integer: i32 arithmetic, div and mod floor
    convert,       // args[0] rounded to `type`
  };
  Kind kind = Kind::constant;
  ScalarType type = ScalarType::i32;
  double number = 0;
  ParamId param;
  VarId var;
  int dim = 0;
  FragmentId fragment;
  std::vector<int> dims;
  Function function = Function::add;
  std::vector<ExprId> args;
};

// A global tensor argument, dense row-major. Sizes are expressions over constants and params.
struct Tensor {
  std::string name;
  ScalarType type = ScalarType::f16;
  std::vector<ExprId> shape;
  bool output = false;
};

enum class Swizzle : std::uint8_t { none, bytes32, bytes64, bytes128 };

// A tile of shared memory: `rows` x `cols`, columns contiguous in global memory; `slots` of them. With a swizzle, the
// columns are cut into boxes as wide as the swizzle span, box after box, each rows x span, 16-byte chunks permuted
// within groups of 8 rows (as the copy engine does it); slots are then aligned to 1024 bytes. Without: dense row-major,
// 128-byte aligned slots.
struct Buffer {
  std::string name;
  ScalarType type = ScalarType::f16;
  int rows = 1;
  int cols = 1;
  int slots = 1;
  Swizzle swizzle = Swizzle::none;
  std::optional<layout::Stairs> stairs;  // else all rows have all columns
  RingId ring;                           // invalid: scratch with one slot, ordered by barriers
  std::int64_t offset = -1;              // byte offset in the block's shared memory; set by legalisation
};

// A ring of slots between a filling role and its readers: one `full` and one `empty` barrier a slot. All its buffers
// have `depth` slots and are filled and freed together. Every role instance has its own cursor, starting at 0; the slot
// is cursor % depth, the phase (cursor / depth) % 2. `full` completes after `full_arrivals` arrivals and `bytes` of
// bulk copies.
struct Ring {
  std::string name;
  int depth = 1;
  int full_arrivals = 1;   // role instances that commit (one for a bulk filler)
  int empty_arrivals = 1;  // role instances that release (in the whole cluster when `multicast`)
  std::int64_t bytes = 0;  // bytes of bulk copies per fill into one block; 0: filled by threads
  bool multicast = false;  // bulk copies go to every block of the cluster, each block issuing its share of the rows
};

// A hardware barrier of `participants` role instances; `count` of them (indexed).
struct Barrier {
  std::string name;
  int participants = 2;
  int count = 1;
};

// What the host encodes for the copy engine: dims innermost first; coordinates outside are read as 0, not written.
struct TensorMap {
  std::string name;
  TensorId tensor;
  struct MapDim {
    ExprId extent;  // elements
    ExprId stride;  // elements; that of the innermost is 1
    int box = 1;    // elements a copy moves along it; the innermost may exceed the swizzle span (then several boxes)
    int step = 1;   // elements between neighbours of the box (convolution strides)
  };
  std::vector<MapDim> dims;
  Swizzle swizzle = Swizzle::bytes128;

  // Of shared memory, that one copy moves: every dim but the innermost.
  [[nodiscard]] std::int64_t rows() const;
};

// A register tile of each instance of a role.
struct Fragment {
  std::string name;
  ScalarType type = ScalarType::f32;
  layout::Layout layout;
  RoleId role;
};

// --- instructions ------------------------------------------------------------------------------------------------

struct Instr;
using Block = std::vector<Instr>;

enum class WorkOrder : std::uint8_t {
  single,      // one item a block (grid = count)
  persistent,  // block, block + grid, ...
  dynamic,     // the next item nobody has taken; same sequence in every role of a block
};

// The outermost loop of every role; the same items in every role of a block; in a cluster, in every block.
// item counts from 0 to count - 1; blocks of a cluster receive the same item and tell their share by cluster_rank.
struct ForWork {
  VarId item;
  ExprId count;
  WorkOrder order = WorkOrder::single;
  Block body;
};

struct For {
  VarId var;  // begin, begin + step, ... while (step > 0 ? < end : > end)
  ExprId begin;
  ExprId end;
  int step = 1;
  Block body;
};

struct If {  // uniform condition
  ExprId condition;
  Block then;
  Block otherwise;
};

// A per-element predicate over the tile `domain`; the body (Map only) runs where any element held by the warp satisfies
// it. Skipping is only an optimisation: the body's own selects keep what must stay.
struct IfAny {
  layout::Layout domain;
  ExprId predicate;
  Block then;
};

struct Let {
  VarId var;
  ExprId value;
};

struct RingAcquire {  // the filler waits until the slot at its cursor is empty; for bulk fills it then expects `bytes`
  RingId ring;
};
struct RingCommit {  // a filler by threads: its writes are visible to async readers, then arrives on `full`
  RingId ring;
};
struct RingWait {  // a reader waits until the slot at cursor - lag is full; repeating it is harmless
  RingId ring;
  int lag = 0;
};
struct RingRelease {  // a reader has finished with the slot at cursor - lag
  RingId ring;
  int lag = 0;
};
struct RingAdvance {  // the instance's cursor moves on by one
  RingId ring;
};

// A buffer's slot: for a ring the slot at the instance's cursor - lag.
struct BufferRef {
  BufferId buffer;
  int lag = 0;
};

// By the copy engine, issued by one thread: tile of `map` at `coordinates` (innermost first) into the buffer (rows are
// the map's outer dims flattened, innermost fastest) from `row` and `col` on; completes on the ring's `full`. In a
// multicast each block of the cluster copies its share of the rows to all.
struct CopyBulk {
  BufferRef target;
  MapId map;
  std::vector<ExprId> coordinates;
  int row = 0;
  int col = 0;  // other than 0 in buffers with stairs only
};

// tensor[indices] where guard, else 0; indices and guard are expressions over uniform values and coord(0..). Global
// addresses are 64-bit.
struct Access {
  TensorId tensor;
  std::vector<ExprId> indices;
  std::optional<ExprId> guard;
};

struct CopyPlain {  // by all threads of the role: coord(0) is the buffer's row, coord(1) its column
  BufferRef target;
  Access source;
};
struct LoadGlobal {  // tensor's type must be the fragment's
  FragmentId target;
  Access source;
};
struct StoreGlobal {  // each element is written once, also when replicated; the guard may read fragments
  FragmentId source;
  Access target;
};
struct LoadShared {  // fragment element at coords = buffer[row, col]
  FragmentId target;
  BufferRef source;
  ExprId row;
  ExprId col;
};
struct StoreShared {
  FragmentId source;
  BufferRef target;
  ExprId row;
  ExprId col;
};
// By the copy engine, issued by one thread of one instance: rows [row, row + map's rows) of the buffer to global
// memory, as one committed group.
struct BulkStore {
  BufferRef source;
  ExprId row;
  MapId map;
  std::vector<ExprId> coordinates;
};
struct BulkStoreWait {  // the issuing instance waits until all but `pending` of its bulk stores have read their source
  int pending = 0;
};

// One operand of a product. Shared: rows x cols of the buffer are [M or N, K], or [K, M or N] when `transposed`;
// `origin` (uniform) is the first row of M or N used, `k_origin` the first of K. Registers: a fragment [M, K] in the
// accumulator layout, 16-bit.
struct Operand {
  bool in_registers = false;
  FragmentId fragment;
  BufferRef buffer;
  bool transposed = false;
  std::optional<ExprId> origin;
  std::optional<ExprId> k_origin;
};

// Issues accumulator[M, N] (+)= A[M, K] * B[N, K]^T, asynchronously: done after a commit and the wait for its group.
// Until then neither accumulator nor operands may be touched (other products of the same instance may add to the
// accumulator).
struct Mma {
  FragmentId accumulator;
  Operand a;
  Operand b;
  int k = 16;
  std::optional<ExprId> accumulate;  // uniform boolean; absent: true; false overwrites
};
struct MmaCommit {};
struct MmaWait {  // until at most `pending` committed groups of this instance are unfinished
  int pending = 0;
  std::optional<RingWait> pin;  // a wait on a slot that is already full: holds this wait in its place in machine code
};

struct Map {  // every element of the fragment, on its layout
  FragmentId target;
  ExprId value;
};

// target[kept] = op over the other dims of `domain` of `value`, joined with the old target when `accumulate`.
// With a residual, the last domain dim j is not reduced completely: the target has one more, last dim q = (j / stride)
// % extent (the partial results stay in their lanes). Order of combination is fixed by the layout. Reducing over warp
// digits needs `scratch` (4 warps x target elements, f32).
enum class ReduceOp : std::uint8_t { sum, max, min };
struct Residual {
  int stride = 1;
  int extent = 1;
};
struct Reduce {
  FragmentId target;
  ReduceOp op = ReduceOp::sum;
  layout::Layout domain;
  ExprId value;
  std::vector<int> kept;
  std::optional<Residual> residual;
  bool accumulate = false;
  BufferId scratch;
};

// target = source moved to the target's layout (same shape and type), through `scratch` shared by the instance's
// threads (rows = instances * elements of the tile; invalid: by shuffles or register moves only).
struct Relayout {
  FragmentId target;
  FragmentId source;
  BufferId scratch;
};

struct BarrierSync {  // arrives and waits until all participants have arrived
  BarrierId barrier;
  std::optional<ExprId> index;
};
struct BarrierArrive {
  BarrierId barrier;
  std::optional<ExprId> index;
};
struct ProxyFence {
};  // shared memory written by this instance's threads becomes visible to async units (before a barrier or commit)
struct ClusterSync {};  // all instances of all roles of the cluster

struct Instr {
  std::variant<
#define INSTRUCTION(type, text) type,
#include "program/instructions.def"
#undef INSTRUCTION
      std::monostate>
      op;
  std::string comment;  // printed into dumps and CUDA
};

// --- the program -------------------------------------------------------------------------------------------------

enum class RoleKind : std::uint8_t {
  copier,    // one warp issuing bulk copies from one thread (its warpgroup's other warps idle), or four warps of plain
             // copies
  computer,  // a warpgroup issuing products and arithmetic
};

struct Role {
  std::string name;
  RoleKind kind = RoleKind::computer;
  int instances = 1;  // warpgroups
  int registers = 0;  // budget a thread; 0: as launched
  Block body;
};

struct Program {
  std::string name;
  std::vector<Param> params;
  std::vector<Tensor> tensors;
  std::vector<TensorMap> maps;
  std::vector<Buffer> buffers;
  std::vector<Ring> rings;
  std::vector<Barrier> barriers;
  std::vector<Fragment> fragments;
  std::vector<Var> vars;
  std::vector<Expr> exprs;
  std::vector<Role> roles;
  std::vector<ExprId> requirements;  // over params: what the host checks before launch (alignment of strides, ...)
  int cluster = 1;
  int blocks_per_unit = 1;        // resident blocks an EU is meant to hold
  std::int64_t shared_bytes = 0;  // set by legalisation, barriers included
  std::string generic_reason;     // empty: specialised

  [[nodiscard]] const Param& operator[](ParamId id) const { return params[static_cast<std::size_t>(id.index)]; }
  [[nodiscard]] const Tensor& operator[](TensorId id) const { return tensors[static_cast<std::size_t>(id.index)]; }
  [[nodiscard]] const TensorMap& operator[](MapId id) const { return maps[static_cast<std::size_t>(id.index)]; }
  [[nodiscard]] const Buffer& operator[](BufferId id) const { return buffers[static_cast<std::size_t>(id.index)]; }
  [[nodiscard]] const Ring& operator[](RingId id) const { return rings[static_cast<std::size_t>(id.index)]; }
  [[nodiscard]] const Barrier& operator[](BarrierId id) const { return barriers[static_cast<std::size_t>(id.index)]; }
  [[nodiscard]] const Fragment& operator[](FragmentId id) const {
    return fragments[static_cast<std::size_t>(id.index)];
  }
  [[nodiscard]] const Var& operator[](VarId id) const { return vars[static_cast<std::size_t>(id.index)]; }
  [[nodiscard]] const Expr& operator[](ExprId id) const { return exprs[static_cast<std::size_t>(id.index)]; }
  [[nodiscard]] const Role& operator[](RoleId id) const { return roles[static_cast<std::size_t>(id.index)]; }
};

// Bytes of one slot of a buffer.
[[nodiscard]] std::int64_t slot_bytes(const Buffer& buffer);
[[nodiscard]] int span_columns(const Buffer& buffer);  // of a box of the swizzle; all without one

// Where a slot may begin, and the distance from one slot to the next: 1024 bytes when swizzled, 128 otherwise.
[[nodiscard]] int slot_alignment(const Buffer& buffer);
[[nodiscard]] std::int64_t slot_stride(const Buffer& buffer);

// Whether an expression uses neither coordinates nor fragments.
[[nodiscard]] bool is_uniform(const Program& program, ExprId expr);

// Width of a box of a swizzled buffer in bytes: 32, 64 or 128; 0 without a swizzle (a row is then not cut).
[[nodiscard]] int swizzle_bytes(Swizzle swizzle);

// Static well-formedness: ids in range, types, shapes, operand layouts (register_map exists), roles, capacities given
// as numbers. A program that fails here is a bug of whoever made it; hand-edited text gets the message.
[[nodiscard]] Result<void> validate(const Program& program);

// The text form: print and parse are inverse, up to names that are not unique or no identifiers (they get a suffix) and
// the order and sharing of expressions.
[[nodiscard]] std::string print(const Program& program);
[[nodiscard]] std::string print(const Program& program, ExprId expr);
[[nodiscard]] Result<Program> parse(const std::string& text, const std::string& file);

// Host-side evaluation of a uniform integer expression over params (by ParamId index).
[[nodiscard]] std::int64_t evaluate(const Program& program, ExprId expr, const std::vector<double>& params);

}  // namespace pipethreader::program
