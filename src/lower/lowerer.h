// The state of one lowering, shared by its parts: names of tensors, fragments, buffers and rings, the uniform variables
// that axes stand for at the current place, and translation of kernel expressions to program expressions.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lower/lower.h"
#include "partition/bulk.h"
#include "program/expr_builder.h"
#include "task/affine.h"

namespace pipethreader::lower {

using kernel::AxisId;
using kernel::StatementId;
using kernel::ValueId;
using KernelExpr = kernel::ExprId;
using program::Block;
using program::ExprId;
using task::TaskId;

// A loop being lowered: where its tile starts for each stage, and what masks that implies.
struct LoopFrame {
  AxisId axis;
  StatementId statement;
  std::optional<KernelExpr> where;
  task::Conjunction condition;
  program::VarId origin[2];  // per stage: the first index of the tile
};

// The widest swizzle that rows and columns of a tile allow.
[[nodiscard]] program::Swizzle swizzle_for(int rows, int cols, ScalarType type);

class Lowerer {
 public:
  Lowerer(const task::Graph& graph, const partition::Partition& partition, const partition::Assignment& assignment,
          const schedule::Program& schedule, const device::Device& device, const Options& options);

  Result<program::Program> run();

 private:
  // --- lowerer.cpp: declarations and expressions
  void declare();
  void declare_rings();
  [[nodiscard]] program::Buffer tile_buffer(ValueId value) const;  // one slot, in no ring
  [[nodiscard]] int copier_registers() const;
  program::VarId variable(const std::string& name);
  void let(Block& block, program::VarId var, ExprId value) { block.push_back({program::Let{var, value}, {}}); }
  ExprId size(KernelExpr expr);  // sizes: dims and constants only
  ExprId extent(AxisId axis) { return size(kernel_[axis].extent); }
  ExprId origin(AxisId axis);  // first index of the tile, the lane's share not counted
  ExprId team();               // of the instance
  ExprId lane();               // of the team: which of the rows it has, where lanes share them
  ExprId own_lane();           // the same all the time
  void change_places(ExprId step, Block& block);
  ExprId team_rows(ValueId value);
  ExprId local_origin(AxisId axis);  // of this lane's share
  [[nodiscard]] int domain_dim(const std::vector<AxisId>& domain, AxisId axis) const;
  ExprId index(AxisId axis, const std::vector<AxisId>& domain);
  // The axes of the domain that an expression names, and the domain's layout over these alone.
  [[nodiscard]] std::pair<std::vector<AxisId>, layout::Layout> over_named(KernelExpr id,
                                                                          const std::vector<AxisId>& domain,
                                                                          const layout::Layout& layout) const;
  // Elementwise value over `domain`; `block` receives relayouts where an operand lies elsewhere.
  ExprId translate(KernelExpr expr, const std::vector<AxisId>& domain, const layout::Layout& layout, Block& block);
  ExprId uniform(KernelExpr expr);                                      // integer expression at the tile's origin
  ExprId indexing(KernelExpr expr, const std::vector<AxisId>& domain);  // integer expression per element
  program::FragmentId fragment(ValueId value);
  program::FragmentId temporary(const std::string& name, ScalarType type, const layout::Layout& layout);
  program::BufferId scratch(const std::string& name, ScalarType type, int rows, int cols = 1);
  ExprId element(program::FragmentId fragment);  // at the same coordinates
  // A copy of the fragment in another layout, by way of shared memory.
  program::FragmentId moved(program::FragmentId source, const std::string& name, const layout::Layout& layout,
                            Block& block);
  program::FragmentId operand(ValueId value, const std::vector<AxisId>& domain, const layout::Layout& layout,
                              Block& block);
  [[nodiscard]] bool ragged(AxisId axis) const;
  ExprId inside(const std::vector<AxisId>& domain);  // all ragged axes of the domain within their ends
  ExprId linear(const task::Linear& form, const std::vector<AxisId>& domain);
  ExprId extreme(const task::Linear& form, bool high, bool whole_rows, AxisId skip);

  // --- work.cpp: work items and loops
  void open_work(Block& body);
  void open_tiles(std::vector<AxisId> order, ExprId rest, const std::vector<AxisId>& longest_first, Block& body);
  ExprId tiles_of(const std::vector<AxisId>& axes);
  ExprId work_count();
  struct Bounds {
    program::VarId trips;
    program::VarId first;  // the tile walked first
    int direction = 1;
  };
  Bounds open_loop(const schedule::LoopTree& loop, Block& block);
  ExprId tile_origin(const Bounds& bounds, AxisId axis, ExprId iteration);
  ExprId masked(const LoopFrame& frame);  // uniform: some point of the tile lies outside
  ExprId predicate(const LoopFrame& frame, const std::vector<AxisId>& domain, const layout::Layout& layout,
                   Block& block);  // per element
  const LoopFrame* frame_of(AxisId axis) const;
  [[nodiscard]] layout::Layout with_registers(const layout::Layout& layout, const std::vector<int>& kept,
                                              const std::vector<AxisId>& axes) const;
  [[nodiscard]] std::set<AxisId> condition_axes(const LoopFrame& frame) const;
  std::optional<ExprId> has_point(const LoopFrame& frame, const std::vector<AxisId>& domain,
                                  const layout::Layout& layout, Block& block);

  // --- copies.cpp: the copier's lane, global accesses
  void copier(const std::vector<schedule::Item>& items, Block& block);
  [[nodiscard]] bool summed_over(ValueId value, AxisId axis) const;  // by a product that reads it
  void copy(ValueId value, std::size_t ring, Block& block);
  void copy_stairs(ValueId value, Block& block);
  program::Access access(const kernel::Expr& access, const std::vector<AxisId>& domain);
  std::optional<ExprId> access_guard(const std::vector<KernelExpr>& indices, kernel::TensorId tensor,
                                     const std::vector<AxisId>& domain);
  [[nodiscard]] int box_side(ValueId value, AxisId axis) const;
  program::TensorMap::MapDim map_dim(const partition::BulkDim& dim, int box);
  ExprId among_neighbours(ValueId value);
  std::optional<program::MapId> tensor_map(ValueId value, std::vector<ExprId>& coordinates);

  // --- compute.cpp: the computing lanes
  void computer(const std::vector<schedule::Item>& items, Block& block, const std::vector<StatementId>& level);
  void pipelined(const schedule::LoopTree& loop, const Bounds& bounds, Block& block,
                 const std::vector<StatementId>& level);
  // Emits the items whose stage is in [low, high]; `lag0`: ring lag of stage-0 entries.
  void items(const std::vector<schedule::Item>& items, Block& block, const std::vector<StatementId>& level, int low,
             int high, int lag_base);
  void entry(const schedule::Entry& entry, Block& block, int lag, int pending,
             const std::optional<program::RingWait>& pin);
  [[nodiscard]] std::optional<program::RingWait> pin_of(const schedule::Entry& entry,
                                                        const std::vector<StatementId>& level) const;
  void advance(Block& block, const std::vector<StatementId>& level);
  int pending_groups(const std::vector<schedule::Item>& items, std::size_t wait, int low, int high) const;
  program::BarrierId turn();

  // --- lane_sums.cpp: sums whose axis lanes share
  void start_in_one_lane(StatementId loop, Block& block);
  void join_lanes(StatementId loop, Block& block);

  // --- tasks.cpp: maps, reductions, loads by the threads
  [[nodiscard]] bool lives_before(ValueId value, StatementId loop) const;
  void map(const task::Task& task, Block& block);
  program::BufferId reduce_scratch(program::FragmentId target);
  void reduce(const task::Task& task, Block& block);
  void join_partial_sums(StatementId loop, Block& block);
  [[nodiscard]] std::string why_serial(const kernel::Assign& assign) const;
  void serial_reduce(const task::Task& task, Block& block);
  void load(const task::Task& task, Block& block);

  // --- operands.cpp: products and what they read
  void issue(TaskId id, Block& block, int lag);
  program::Operand shared_operand(ValueId value, AxisId free_axis, AxisId k, int lag);
  void fetch(ValueId value, Block& block, int lag);  // from a ring's slot into registers; a slice of a kept value too
  ExprId kept_origin(ValueId source, AxisId whole, AxisId loop);
  ExprId in_tile(ValueId source, AxisId own, const std::vector<AxisId>& domain);
  ExprId shared_row(ValueId value, const std::vector<AxisId>& domain);
  ExprId shared_col(ValueId value, const std::vector<AxisId>& domain);
  ExprId at_index(ValueId value, AxisId own, KernelExpr index, const std::vector<AxisId>& domain);
  program::FragmentId read_scratch(KernelExpr value, const std::vector<AxisId>& axes, const layout::Layout& layout,
                                   Block& block);
  void set_aside(ValueId operand);
  void move_operand(ValueId operand, Block& block);
  void write_scratch(ValueId value, Block& block);
  void lane_barrier(Block& block);

  // --- masks.cpp: points that a tile leaves out
  struct Mask {
    ExprId outside;  // uniform: the tile has points that must not be seen
    ExprId points;   // per element: those that may
  };
  [[nodiscard]] std::optional<AxisId> summed_by_product(ValueId value) const;
  [[nodiscard]] std::optional<ValueId> same_zeros(KernelExpr expr) const;
  [[nodiscard]] bool is_zeroed(ValueId value) const;
  [[nodiscard]] bool comes_zeroed(KernelExpr expr) const;
  [[nodiscard]] bool computed_zeroed(ValueId value) const;
  [[nodiscard]] LoopFrame part_about(const LoopFrame& frame, const std::vector<AxisId>& domain) const;
  std::optional<Mask> mask_of(ValueId value, Block& block);
  void split(ExprId outside, Block careful, Block plain, Block& block);
  void write_masked(ValueId value, ExprId expr, Block& block);
  void after_write(ValueId value, Block& block);
  std::set<program::FragmentId> given_to_others(const Block& block, std::size_t first) const;
  void pass_over_empty_tiles(const schedule::LoopTree& loop, Block& block, std::size_t first);
  static void join_splits(Block& block, std::size_t first);

  // --- stores.cpp: results to global memory
  void store(const task::Task& task, Block& block);
  void store_part(const task::Task& task, Block& block);
  bool staged_store(const kernel::Store& node, ValueId value, Block& block);

  void fail(const std::string& message, SourceSpan span = {});

  const task::Graph& graph_;
  kernel::Kernel kernel_;  // a copy that gains expressions
  const partition::Partition& partition_;
  partition::Assignment assignment_;  // a copy: partial sums are whole after their loops
  const schedule::Program& schedule_;
  const device::Device& device_;
  Options options_;

  program::Program program_;
  program::ExprBuilder b_;
  program::RoleId computer_;
  std::vector<program::ParamId> dims_;     // by dim index
  std::vector<program::ParamId> scalars_;  // by scalar index
  std::map<ValueId, program::FragmentId> fragments_;
  std::map<ValueId, program::FragmentId> operands_;  // what products read, where the value is prepared elsewhere
  std::map<ValueId, program::BufferId> buffers_;
  std::map<std::string, program::VarId> variables_;
  std::map<AxisId, ExprId> axes_;  // what an axis is at the current place: its tile's origin
  std::vector<LoopFrame> loops_;
  int stage_ = 0;
  std::optional<program::BarrierId> lane_barrier_;
  std::optional<program::BarrierId> turn_;           // one a lane: whose turn it is on the tensor core
  std::optional<program::BarrierId> taken_;          // the first lane has added what the others handed over
  std::optional<program::VarId> place_;              // which rows the lane has, where that changes
  std::optional<program::BarrierId> store_barrier_;  // one a lane: its part of a staged result is written
  std::optional<AxisId> reversed_row_;
  bool serial_ = false;  // inside a serial reduction: accesses and shared values are read one by one
  std::map<KernelExpr, program::FragmentId> serial_reads_;
  Error error_;
};

}  // namespace pipethreader::lower
