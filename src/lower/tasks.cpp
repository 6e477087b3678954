// One sTask to instructions: maps, reductions, loads, fetches, stores, products.
#include <algorithm>

#include "lower/lowerer.h"
#include "partition/bulk.h"
#include "task/products.h"
#include "task/rewrite.h"

namespace pipethreader::lower {

using kernel::Expr;

namespace {

std::vector<AxisId> join(std::vector<AxisId> first, const std::vector<AxisId>& more) {
  for (const AxisId a : more) {
    if (std::find(first.begin(), first.end(), a) == first.end()) first.push_back(a);
  }
  return first;
}

program::ReduceOp reduce_op(kernel::ReduceOp op) { return static_cast<program::ReduceOp>(op); }

}  // namespace

namespace {

bool writes(const task::Graph& graph, const std::vector<task::Node>& nodes, ValueId value, StatementId without) {
  return std::any_of(nodes.begin(), nodes.end(), [&](const task::Node& node) {
    if (const auto* id = std::get_if<TaskId>(&node.item)) return graph[*id].writes == value;
    const auto& loop = std::get<task::LoopNode>(node.item);
    return loop.statement != without && writes(graph, loop.body, value, without);
  });
}

}  // namespace

// Whether the value has been given outside the loop: then iterations without a point keep it.
bool Lowerer::lives_before(ValueId value, StatementId loop) const { return writes(graph_, graph_.root, value, loop); }

// v = expr when c; a carried value keeps what it is at elements that the loop's domain has no point for.
void Lowerer::map(const task::Task& task, Block& block) {
  const kernel::Statement statement = kernel_[task.statement];
  const auto& assign = std::get<kernel::Assign>(statement.node);
  const std::vector<AxisId> domain = assignment_[assign.target].axes;
  const program::FragmentId target = fragment(assign.target);
  const layout::Layout layout = program_[target].layout;
  std::vector<int> own;
  for (std::size_t i = 0; i < domain.size(); ++i) own.push_back(static_cast<int>(i));
  const ScalarType type = kernel_[assign.target].type;
  const ExprId old = b_.fragment(target, own);
  ExprId value = translate(assign.expr, domain, layout, block);
  if (assign.accumulate) value = b_.add(old, value);
  value = b_.convert(type, value);
  std::optional<ExprId> keep;  // where the new value holds
  if (!loops_.empty() && kernel_[assign.target].carried && lives_before(assign.target, loops_.back().statement)) {
    const bool over_axis = domain_dim(domain, loops_.back().axis) >= 0;
    if (!over_axis) keep = has_point(loops_.back(), domain, layout, block);
  }
  if (!assign.when) {
    if (keep) value = b_.select(*keep, value, old);
    write_masked(assign.target, value, block);
    if (assignment_[assign.target].scratch) write_scratch(assign.target, block);
    return;
  }
  ExprId when = translate(*assign.when, domain, layout, block);
  if (keep) when = b_.logical_and(*keep, when);
  program::IfAny guard;
  // The condition in the smallest domain that it depends on.
  std::vector<AxisId> narrow;
  const auto axes = task::axes_of(kernel_, *assign.when);
  for (const AxisId a : domain) {
    if (axes.contains(a)) narrow.push_back(a);
  }
  std::vector<int> kept;
  for (const AxisId a : narrow) kept.push_back(domain_dim(domain, a));
  guard.domain = layout::slice(layout, kept);
  guard.predicate = translate(*assign.when, narrow, guard.domain, block);
  guard.then.push_back({program::Map{target, b_.select(when, value, old)}, {}});
  block.push_back(
      {std::move(guard), fmt::format("{} changes only where its condition holds", kernel_[assign.target].name)});
  after_write(assign.target, block);
}

program::BufferId Lowerer::reduce_scratch(program::FragmentId target) {
  int elements = 1;
  for (const int extent : program_[target].layout.shape) elements *= extent;
  program::Buffer scratch;
  scratch.name = program_[target].name + "_partial";
  scratch.type = ScalarType::f32;
  scratch.rows = partition_.lanes * 4;
  scratch.cols = elements;
  program_.buffers.push_back(scratch);
  return program::BufferId(program_.buffers.size() - 1);
}

void Lowerer::reduce(const task::Task& task, Block& block) {
  const kernel::Statement statement = kernel_[task.statement];
  const auto& assign = std::get<kernel::Assign>(statement.node);
  const Expr r = kernel_[assign.expr];
  if (task::product_shape(kernel_, assign.expr, true) && !task::product_shape(kernel_, assign.expr)) {
    program_.generic_reason =
        fmt::format("the operands of the product into '{}' are not both f16 or both bf16", kernel_[assign.target].name);
  }
  std::vector<AxisId> kept_axes = assignment_[assign.target].axes;
  const bool partial = assignment_.is_partial(assign.target);
  if (partial) kept_axes.pop_back();
  std::vector<AxisId> domain = kept_axes;
  for (const AxisId a : task::axes_of(kernel_, r.args[0])) {
    if (graph_.tiled.contains(a)) domain = join(domain, {a});
  }
  for (const AxisId a : r.axes) {
    if (graph_.tiled.contains(a)) domain = join(domain, {a});
  }
  program::Reduce instruction;
  instruction.target = fragment(assign.target);
  instruction.op = reduce_op(r.reduce);
  instruction.accumulate = assign.accumulate;
  instruction.domain = partition::domain_layout(graph_, partition_, assignment_, domain);
  for (const AxisId a : kept_axes) instruction.kept.push_back(domain_dim(domain, a));
  // Where the result is kept elsewhere than the reduction leaves it, it moves.
  const layout::Layout natural = layout::slice(instruction.domain, instruction.kept);
  const program::FragmentId target = instruction.target;
  std::vector<int> own;
  for (std::size_t i = 0; i < kept_axes.size(); ++i) own.push_back(static_cast<int>(i));
  const bool moves = !partial && !layout::register_map(program_[target].layout, natural, own);
  if (partial) instruction.residual = program::Residual{partition::share_stride, partition::shares};
  if (moves) {
    instruction.target = temporary(kernel_[assign.target].name + "_reduced", kernel_[assign.target].type, natural);
    instruction.accumulate = false;
  }
  const bool over_warps =
      !partial &&
      std::any_of(instruction.domain.digits.begin(), instruction.domain.digits.end(), [&](const layout::Digit& d) {
        return d.place == layout::Place::warp && d.dim != layout::replicated && d.extent > 1 &&
               std::find(instruction.kept.begin(), instruction.kept.end(), d.dim) == instruction.kept.end();
      });
  if (over_warps) instruction.scratch = reduce_scratch(instruction.target);
  const ExprId value = translate(r.args[0], domain, instruction.domain, block);
  const ExprId neutral = b_.constant(program_[instruction.target].type, task::identity(r.reduce));
  // Points outside the domain are left out by selection: those past an axis' end, past `where`, past the loop's
  // `where`.
  ExprId condition = b_.truth(true);
  for (const AxisId a : r.axes) {
    const LoopFrame* frame = frame_of(a);
    if (frame == nullptr && ragged(a)) condition = b_.logical_and(condition, b_.lt(index(a, domain), extent(a)));
  }
  if (r.args.size() > 1) condition = b_.logical_and(condition, translate(r.args[1], domain, instruction.domain, block));
  instruction.value = b_.select(condition, value, neutral);
  ExprId outside = b_.truth(false);
  ExprId points = condition;
  for (const AxisId a : r.axes) {
    const LoopFrame* frame = frame_of(a);
    if (frame == nullptr) continue;
    outside = b_.logical_or(outside, masked(*frame));
    points = b_.logical_and(points, predicate(*frame, domain, instruction.domain, block));
  }
  if (b_.is(outside, 0)) {
    block.push_back({instruction, {}});
  } else {
    program::Reduce careful = instruction;
    careful.value = b_.select(points, value, neutral);
    if (b_.is(outside, 1)) {
      block.push_back({careful, {}});
    } else {
      program::If split;
      split.condition = outside;
      split.then.push_back({careful, {}});
      split.otherwise.push_back({instruction, {}});
      block.push_back({std::move(split), "masked tile"});
    }
  }
  if (moves) {
    const program::FragmentId moved =
        temporary(kernel_[assign.target].name + "_moved", kernel_[assign.target].type, program_[target].layout);
    int elements = 1;
    for (const int e : natural.shape) elements *= e;
    program::Buffer scratch;
    scratch.name = kernel_[assign.target].name + "_move";
    scratch.type = kernel_[assign.target].type;
    scratch.rows = partition_.lanes * elements;
    program_.buffers.push_back(scratch);
    block.push_back({program::Relayout{moved, instruction.target, program::BufferId(program_.buffers.size() - 1)}, {}});
    ExprId result = b_.fragment(moved, own);
    if (assign.accumulate) {
      const Function join_with = r.reduce == kernel::ReduceOp::sum   ? Function::add
                                 : r.reduce == kernel::ReduceOp::max ? Function::max
                                                                     : Function::min;
      result = b_.call(join_with, {b_.fragment(target, own), result});
    }
    block.push_back({program::Map{target, result}, {}});
  }
  after_write(assign.target, block);
}

// After the loop: the shares of its partial sums become one value.
void Lowerer::join_partial_sums(StatementId loop, Block& block) {
  for (const partition::PartialSum& partial : assignment_.partial) {
    if (partial.loop != loop) continue;
    partition::Place& place = assignment_.values[static_cast<std::size_t>(partial.sum.index)];
    program::Reduce join;
    join.op = program::ReduceOp::sum;
    join.domain = place.layout;
    join.kept = {0};
    join.value = b_.fragment(fragment(partial.sum), {0, 1});
    place.axes.pop_back();
    place.layout = layout::slice(join.domain, join.kept);
    fragments_.erase(partial.sum);
    join.target = fragment(partial.sum);
    block.push_back({join, fmt::format("the shares of {} are joined", kernel_[partial.sum].name)});
  }
}

// One index of the reduced axes after the other: what depends on them is read one by one, from global memory or from
// the copy of a computed value in shared memory.
void Lowerer::serial_reduce(const task::Task& task, Block& block) {
  const kernel::Statement statement = kernel_[task.statement];
  const auto& assign = std::get<kernel::Assign>(statement.node);
  const Expr r = kernel_[assign.expr];
  const std::vector<AxisId> domain = assignment_[assign.target].axes;
  const program::FragmentId target = fragment(assign.target);
  const layout::Layout layout = program_[target].layout;
  std::vector<int> own;
  for (std::size_t i = 0; i < domain.size(); ++i) own.push_back(static_cast<int>(i));
  const ScalarType type = kernel_[assign.target].type;
  if (!assign.accumulate) block.push_back({program::Map{target, b_.constant(type, task::identity(r.reduce))}, {}});
  program_.generic_reason = fmt::format(
      "a reduction into '{}' is no product of 16-bit operands and runs index by index", kernel_[assign.target].name);
  Block* body = &block;
  std::vector<program::For> nest;
  std::map<AxisId, ExprId> saved = axes_;
  ExprId condition = b_.truth(true);
  for (const AxisId a : r.axes) {
    program::For walk;
    walk.var = variable(kernel_[a].name + "_k");
    walk.begin = b_.constant(0);
    const LoopFrame* frame = frame_of(a);
    if (frame != nullptr) {
      walk.end = b_.min(b_.constant(partition_.extent(a)), b_.sub(extent(a), origin(a)));
      axes_[a] = b_.add(origin(a), b_.var(walk.var));
    } else {
      walk.end = extent(a);
      axes_[a] = b_.var(walk.var);
    }
    nest.push_back(walk);
  }
  Block inner;
  for (const AxisId a : r.axes) {
    const LoopFrame* frame = frame_of(a);
    if (frame == nullptr || !frame->where) continue;
    condition = b_.logical_and(condition, predicate(*frame, domain, layout, inner));
  }
  serial_reads_.clear();
  const std::function<void(KernelExpr)> read = [&](KernelExpr id) {
    const Expr e = kernel_[id];
    const auto mine = task::axes_of(kernel_, id);
    std::vector<AxisId> axes;
    for (const AxisId a : domain) {
      if (mine.contains(a)) axes.push_back(a);
    }
    std::vector<int> kept;
    for (const AxisId a : axes) kept.push_back(domain_dim(domain, a));
    const layout::Layout slice = layout::slice(layout, kept);
    if (e.kind == Expr::Kind::access) {
      const program::FragmentId f =
          temporary(fmt::format("{}_k", kernel_[e.tensor].name), kernel_[e.tensor].type, slice);
      inner.push_back({program::LoadGlobal{f, access(e, axes)}, {}});
      serial_reads_[id] = f;
      return;
    }
    if (e.kind == Expr::Kind::value) {
      const bool walked = std::any_of(r.axes.begin(), r.axes.end(), [&](AxisId a) { return mine.contains(a); });
      if (!walked) return;
      std::vector<AxisId> order;
      for (const AxisId a : assignment_[e.value].axes) {
        if (domain_dim(domain, a) >= 0) order.push_back(a);
      }
      std::vector<int> order_kept;
      for (const AxisId a : order) order_kept.push_back(domain_dim(domain, a));
      const program::FragmentId f =
          temporary(kernel_[e.value].name + "_k", kernel_[e.value].type, layout::slice(layout, order_kept));
      inner.push_back({program::LoadShared{
                           f, {buffers_.at(e.value), 0}, shared_row(e.value, order, true), shared_col(e.value, order)},
                       {}});
      serial_reads_[id] = f;
      return;
    }
    for (const KernelExpr arg : e.args) read(arg);
  };
  for (const KernelExpr arg : r.args) read(arg);
  if (r.args.size() > 1) condition = b_.logical_and(condition, translate(r.args[1], domain, layout, inner));
  const ExprId value = b_.convert(type, translate(r.args[0], domain, layout, inner));
  const ExprId old = b_.fragment(target, own);
  const Function join_with = r.reduce == kernel::ReduceOp::sum   ? Function::add
                             : r.reduce == kernel::ReduceOp::max ? Function::max
                                                                 : Function::min;
  inner.push_back({program::Map{target, b_.select(condition, b_.call(join_with, {old, value}), old)}, {}});
  serial_reads_.clear();
  axes_ = saved;
  for (auto walk = nest.rbegin(); walk != nest.rend(); ++walk) {
    walk->body = std::move(inner);
    inner.clear();
    inner.push_back({*walk, {}});
  }
  for (program::Instr& instruction : inner) body->push_back(std::move(instruction));
  after_write(assign.target, block);
}

void Lowerer::load(const task::Task& task, Block& block) {
  const kernel::Statement statement = kernel_[task.statement];
  const auto& assign = std::get<kernel::Assign>(statement.node);
  const std::vector<AxisId> domain = assignment_[assign.target].axes;
  const Expr source = kernel_[assign.expr];
  block.push_back({program::LoadGlobal{fragment(assign.target), access(source, domain)}, {}});
  after_write(assign.target, block);
}

// Row and column of a value's tile in shared memory for an element of `domain`. `whole`: the tile of all lanes.
ExprId Lowerer::shared_row(ValueId value, const std::vector<AxisId>& domain, bool whole) {
  const partition::SharedTile& tile = *assignment_[value].shared;
  ExprId row = b_.constant(0);
  for (const AxisId a : tile.row_axes) {
    const int dim = domain_dim(domain, a);
    ExprId at = dim >= 0 ? b_.coord(dim)
                         : b_.sub(axes_.contains(a) ? axes_.at(a) : b_.constant(0),
                                  frame_of(a) != nullptr ? b_.var(frame_of(a)->origin[stage_]) : b_.constant(0));
    if (dim >= 0 && a == partition_.row && partition_.lanes > 1 && whole)
      at = b_.add(at, b_.mul(b_.instance(), partition_.local(a)));
    row = b_.add(b_.mul(row, partition_.extent(a)), at);
  }
  return row;
}

ExprId Lowerer::shared_col(ValueId value, const std::vector<AxisId>& domain) {
  const partition::SharedTile& tile = *assignment_[value].shared;
  if (!tile.column.valid()) return b_.constant(0);
  const AxisId a = tile.column;
  const int dim = domain_dim(domain, a);
  if (dim < 0)
    return b_.sub(axes_.contains(a) ? axes_.at(a) : b_.constant(0),
                  frame_of(a) != nullptr ? b_.var(frame_of(a)->origin[stage_]) : b_.constant(0));
  ExprId at = b_.coord(dim);
  if (a == partition_.row && partition_.lanes > 1) at = b_.add(at, b_.mul(b_.instance(), partition_.local(a)));
  return at;
}

void Lowerer::fetch(ValueId value, Block& block, int lag) {
  const std::vector<AxisId> domain = assignment_[value].axes;
  block.push_back(
      {program::LoadShared{
           fragment(value), {buffers_.at(value), lag}, shared_row(value, domain, true), shared_col(value, domain)},
       {}});
  after_write(value, block);
}

// Where the loop's tile lies in what is kept of the whole axis. Every tile lies inside; said so that the proof sees it
// without knowing the loop's range.
ExprId Lowerer::kept_origin(AxisId whole, AxisId loop) {
  return b_.min(b_.max(origin(loop), b_.constant(0)), b_.constant(partition_.extent(whole) - partition_.extent(loop)));
}

// From here on the value is computed and read beside the registers that products read it from.
void Lowerer::set_aside(ValueId operand) {
  if (operands_.contains(operand)) return;
  operands_[operand] = fragment(operand);
  fragments_[operand] = temporary(kernel_[operand].name + "_next", kernel_[operand].type, assignment_[operand].layout);
}

void Lowerer::move_operand(ValueId operand, Block& block) {
  std::vector<int> own;
  for (std::size_t i = 0; i < assignment_[operand].axes.size(); ++i) own.push_back(static_cast<int>(i));
  block.push_back({program::Map{operands_.at(operand), b_.fragment(fragment(operand), own)}, {}});
}

// The part of a kept value that the loops have come to.
void Lowerer::slice(const task::Task& task, Block& block) {
  const kernel::Statement statement = kernel_[task.statement];
  const auto& assign = std::get<kernel::Assign>(statement.node);
  const Expr part = kernel_[assign.expr];
  const std::vector<AxisId> domain = assignment_[assign.target].axes;
  const partition::SharedTile& tile = *assignment_[part.value].shared;
  const auto place = [&](AxisId own) {
    for (std::size_t i = 0; i < part.args.size(); ++i) {
      if (kernel_[part.value].axes[i] != own) continue;
      const AxisId read = kernel_[part.args[i]].axis;
      const int dim = domain_dim(domain, read);
      ExprId at = dim < 0 ? b_.constant(0) : b_.coord(dim);
      if (dim >= 0 && read == partition_.row && partition_.lanes > 1)
        at = b_.add(at, b_.mul(b_.instance(), partition_.local(read)));
      return read == own ? at : b_.add(kept_origin(own, read), at);
    }
    return b_.constant(0);
  };
  ExprId row = b_.constant(0);
  for (const AxisId a : tile.row_axes) row = b_.add(b_.mul(row, partition_.extent(a)), place(a));
  const ExprId col = tile.column.valid() ? place(tile.column) : b_.constant(0);
  block.push_back({program::LoadShared{fragment(assign.target), {buffers_.at(part.value), 0}, row, col}, {}});
  after_write(assign.target, block);
}

void Lowerer::lane_barrier(Block& block) {
  if (!lane_barrier_) {
    program_.barriers.push_back({"lanes", partition_.lanes, 1});
    lane_barrier_ = program::BarrierId(program_.barriers.size() - 1);
  }
  block.push_back({program::BarrierSync{*lane_barrier_, std::nullopt}, {}});
}

// A product's operand is zero where the product must not see it: the tiles that need that, and the points that stay.
std::optional<Lowerer::Mask> Lowerer::mask_of(ValueId value, Block& block) {
  const std::vector<AxisId> domain = assignment_[value].axes;
  for (const auto& [id, place] : assignment_.products) {
    const task::Product p = partition::oriented(graph_, assignment_, id);
    const bool operand = (p.a == value && (place.a_in_registers || assignment_[value].scratch)) ||
                         (p.b == value && assignment_[value].scratch);
    if (!operand || domain_dim(domain, p.k) < 0) continue;
    const LoopFrame* frame = frame_of(p.k);
    const layout::Layout layout = program_[fragment(value)].layout;
    if (frame != nullptr) {
      const ExprId outside = masked(*frame);
      if (b_.is(outside, 0)) return std::nullopt;
      const auto inside_axes = [&](const task::Linear& form) {
        return std::all_of(form.axes.begin(), form.axes.end(),
                           [&](const auto& a) { return domain_dim(domain, a.first) >= 0; });
      };
      LoopFrame known = *frame;  // what the condition says about axes that this operand has
      std::erase_if(known.condition.inequalities, [&](const task::Linear& form) { return !inside_axes(form); });
      std::erase_if(known.condition.opaque, [&](KernelExpr e) {
        const auto axes = task::axes_of(kernel_, e);
        return std::any_of(axes.begin(), axes.end(),
                           [&](AxisId a) { return graph_.tiled.contains(a) && domain_dim(domain, a) < 0; });
      });
      return Mask{outside, predicate(known, domain, layout, block)};
    }
    if (ragged(p.k)) return Mask{b_.truth(true), b_.lt(index(p.k, domain), extent(p.k))};
    return std::nullopt;
  }
  return std::nullopt;
}

// value = expr; where it is masked, 0 at the points that are left out.
void Lowerer::write_masked(ValueId value, ExprId expr, Block& block) {
  const program::FragmentId target = fragment(value);
  const auto mask = mask_of(value, block);
  if (!mask) {
    block.push_back({program::Map{target, expr}, {}});
    return;
  }
  const program::Map careful{target, b_.select(mask->points, expr, b_.constant(kernel_[value].type, 0))};
  if (b_.is(mask->outside, 1)) {
    block.push_back({careful, {}});
    return;
  }
  program::If split;
  split.condition = mask->outside;
  split.then.push_back({careful, {}});
  split.otherwise.push_back({program::Map{target, expr}, {}});
  block.push_back({std::move(split), "masked tile"});
}

// What has been written otherwise than by write_masked() is masked, and copied to shared memory where products read it
// from there.
void Lowerer::after_write(ValueId value, Block& block) {
  std::vector<int> own;
  for (std::size_t i = 0; i < assignment_[value].axes.size(); ++i) own.push_back(static_cast<int>(i));
  Block conditions;
  if (const auto mask = mask_of(value, conditions)) {
    const program::FragmentId f = fragment(value);
    program::If outside;
    outside.condition = mask->outside;
    outside.then = std::move(conditions);
    outside.then.push_back(
        {program::Map{f, b_.select(mask->points, b_.fragment(f, own), b_.constant(kernel_[value].type, 0))}, {}});
    block.push_back({std::move(outside), "masked tile"});
  }
  if (assignment_[value].scratch) write_scratch(value, block);
}

void Lowerer::write_scratch(ValueId value, Block& block) {
  const std::vector<AxisId> domain = assignment_[value].axes;
  if (!buffers_.contains(value)) {
    const partition::SharedTile& tile = *assignment_[value].shared;
    program::Buffer buffer;
    buffer.name = kernel_[value].name;
    buffer.type = kernel_[value].type;
    buffer.rows = tile.rows;
    buffer.cols = tile.cols;
    buffer.swizzle = swizzle_for(buffer.rows, buffer.cols, buffer.type);
    buffers_[value] = program::BufferId(program_.buffers.size());
    program_.buffers.push_back(buffer);
  }
  lane_barrier(block);  // all lanes have finished with what was here
  program::StoreShared store{
      fragment(value), {buffers_.at(value), 0}, shared_row(value, domain, true), shared_col(value, domain)};
  const bool split = partition_.lanes > 1 && domain_dim(domain, partition_.row) >= 0;
  if (partition_.lanes > 1 && !split) {
    program::If first;
    first.condition = b_.eq(b_.instance(), b_.constant(0));
    first.then.push_back({store, {}});
    first.then.push_back({program::ProxyFence{}, {}});
    block.push_back({std::move(first), "every lane holds it; the first writes it"});
  } else {
    block.push_back({store, {}});
    block.push_back({program::ProxyFence{}, {}});
  }
  lane_barrier(block);
}

void Lowerer::store(const task::Task& task, Block& block) {
  const kernel::Statement statement = kernel_[task.statement];
  const auto& node = std::get<kernel::Store>(statement.node);
  const ValueId value = kernel_[node.expr].value;
  if (schedule_.staged_stores && staged_store(node, value, block)) return;
  const std::vector<AxisId> domain = assignment_[value].axes;
  const program::FragmentId source = fragment(value);
  const layout::Layout layout = program_[source].layout;
  program::Access target;
  target.tensor = program::TensorId(static_cast<std::size_t>(node.tensor.index));
  for (const KernelExpr i : node.indices) target.indices.push_back(indexing(i, domain));
  ExprId guard = inside(domain);
  if (node.when) guard = b_.logical_and(guard, translate(*node.when, domain, layout, block));
  for (const LoopFrame& frame : loops_) {
    if (frame.where) guard = b_.logical_and(guard, predicate(frame, domain, layout, block));
  }
  if (partition_.lanes > 1 && domain_dim(domain, partition_.row) < 0) {
    guard = b_.logical_and(guard, b_.eq(b_.instance(), b_.constant(0)));
  }
  if (!b_.is(guard, 1)) target.guard = guard;
  block.push_back({program::StoreGlobal{source, target}, {}});
}

// Through shared memory and the copy engine, each lane its own rows; false where the copy engine cannot take the tile.
bool Lowerer::staged_store(const kernel::Store& node, ValueId value, Block& block) {
  const bool masked = std::any_of(loops_.begin(), loops_.end(), [&](const LoopFrame& frame) {
    return frame.where || graph_.tiled.contains(frame.axis);
  });
  if (node.when || masked || !options_.bulk) return false;
  const auto answer = partition::bulk_view(kernel_, graph_.tiled, node.tensor, node.indices);
  if (!answer.view || !answer.view->aligned.empty()) return false;
  const std::vector<AxisId> domain = assignment_[value].axes;
  program::TensorMap map;
  std::vector<ExprId> coordinates;
  std::vector<AxisId> box;  // innermost first
  for (const partition::BulkDim& dim : answer.view->dims) {
    if (!dim.exact) return false;
    program::TensorMap::MapDim d;
    d.extent = size(dim.extent);
    d.stride = b_.constant(dim.stride_factor);
    for (const KernelExpr s : dim.stride) d.stride = b_.mul(d.stride, size(s));
    d.box = dim.axis ? partition_.local(*dim.axis) : 1;
    ExprId at = uniform(dim.coordinate);
    if (dim.axis) {
      box.push_back(*dim.axis);
      if (*dim.axis == partition_.row && partition_.lanes > 1) at = b_.add(at, b_.mul(b_.instance(), d.box));
    }
    map.dims.push_back(d);
    coordinates.push_back(at);
  }
  const bool split = partition_.lanes > 1;
  if (box.size() != 2 || domain.size() != 2 || (split && box[1] != partition_.row)) return false;
  const int rows = partition_.extent(box[1]);
  const int cols = partition_.extent(box[0]);
  const ScalarType type = kernel_[value].type;
  if (rows > 256 || swizzle_for(rows, cols, type) == program::Swizzle::none) return false;
  program::Buffer buffer;
  buffer.name = kernel_[value].name + "_out";
  buffer.type = type;
  buffer.rows = rows;
  buffer.cols = cols;
  buffer.swizzle = swizzle_for(rows, cols, type);
  map.name = kernel_[value].name + "_out_map";
  map.tensor = program::TensorId(static_cast<std::size_t>(node.tensor.index));
  map.swizzle = buffer.swizzle;
  program_.buffers.push_back(buffer);
  const program::BufferRef target{program::BufferId(program_.buffers.size() - 1), 0};
  program_.maps.push_back(map);
  if (!store_barrier_) {
    program_.barriers.push_back({"stored", 1, partition_.lanes});
    store_barrier_ = program::BarrierId(program_.barriers.size() - 1);
  }
  const ExprId first = split ? b_.mul(b_.instance(), partition_.local(partition_.row)) : b_.constant(0);
  const ExprId row = b_.add(first, b_.coord(domain_dim(domain, box[1])));
  const ExprId col = b_.coord(domain_dim(domain, box[0]));
  block.push_back({program::BulkStoreWait{0}, "the copy engine has read the tile before"});
  block.push_back({program::BarrierSync{*store_barrier_, b_.instance()}, {}});
  block.push_back({program::StoreShared{fragment(value), target, row, col}, {}});
  block.push_back({program::ProxyFence{}, {}});
  block.push_back({program::BarrierSync{*store_barrier_, b_.instance()}, {}});
  block.push_back({program::BulkStore{target, first, program::MapId(program_.maps.size() - 1), coordinates}, {}});
  return true;
}

program::Operand Lowerer::shared_operand(ValueId value, AxisId free_axis, AxisId k, int lag) {
  program::Operand operand;
  const auto& kept = assignment_[value].kept;
  const ValueId source = kept.value_or(value);
  operand.buffer = {buffers_.at(source), assignment_[value].staged ? lag : 0};
  const AxisId column = assignment_[source].shared->column;
  const auto whole = graph_.kept.find(column);
  operand.transposed = column != k && (whole == graph_.kept.end() || whole->second != k);
  if (free_axis == partition_.row && partition_.lanes > 1)
    operand.origin = b_.mul(b_.instance(), partition_.local(free_axis));
  if (!kept) return operand;
  for (const AxisId own : kernel_[source].axes) {
    const auto loop = graph_.kept.find(own);
    if (loop == graph_.kept.end()) continue;
    const ExprId at = kept_origin(own, loop->second);
    if (loop->second == k) operand.k_origin = at;
    if (loop->second == free_axis) operand.origin = operand.origin ? b_.add(*operand.origin, at) : at;
  }
  return operand;
}

void Lowerer::issue(TaskId id, Block& block, int lag) {
  const task::Task& t = graph_[id];
  const task::Product p = partition::oriented(graph_, assignment_, id);
  // A ring outside the innermost loop does not advance with it.
  const auto lag_for = [&](ValueId v) {
    for (const schedule::RingPlan& ring : schedule_.rings) {
      if (std::find(ring.values.begin(), ring.values.end(), v) == ring.values.end()) continue;
      return !loops_.empty() && !ring.level.empty() && ring.level.back() == loops_.back().statement ? lag : 0;
    }
    return 0;
  };
  program::Mma mma;
  mma.accumulator = fragment(*t.writes);
  if (assignment_.products.at(id).a_in_registers) {
    mma.a.in_registers = true;
    mma.a.fragment = operands_.contains(p.a) ? operands_.at(p.a) : fragment(p.a);
  } else {
    mma.a = shared_operand(p.a, p.m, p.k, lag_for(p.a));
  }
  mma.b = shared_operand(p.b, p.n, p.k, lag_for(p.b));
  mma.k = partition_.extent(p.k);
  if (!t.accumulates) mma.accumulate = b_.truth(false);
  block.push_back({mma, fmt::format("{} {} {} * {}", kernel_[*t.writes].name, t.accumulates ? "+=" : "=",
                                    kernel_[p.a].name, kernel_[p.b].name)});
  block.push_back({program::MmaCommit{}, {}});
}

}  // namespace pipethreader::lower
