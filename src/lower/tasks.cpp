// One sTask to instructions: maps, reductions, loads, fetches, stores, products.
#include <algorithm>

#include "kernel/print_expr.h"
#include "lower/lowerer.h"
#include "task/products.h"
#include "task/rewrite.h"
#include "task/streaming.h"

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

// What joins two parts of a reduction.
Function joining(kernel::ReduceOp op) {
  switch (op) {
    case kernel::ReduceOp::sum:
      return Function::add;
    case kernel::ReduceOp::max:
      return Function::max;
    case kernel::ReduceOp::min:
      return Function::min;
  }
  return Function::add;
}

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
  const ScalarType type = kernel_[assign.target].type;
  const ExprId old = element(target);
  ExprId value = translate(assign.expr, domain, layout, block);
  if (assign.accumulate) value = b_.add(old, value);
  value = b_.convert(type, value);
  std::optional<ExprId> keep;  // where the new value holds
  ExprId some_kept = b_.truth(false);
  for (const LoopFrame& frame : loops_) {
    if (!kernel_[assign.target].carried || !lives_before(assign.target, frame.statement)) continue;
    const auto point =
        domain_dim(domain, frame.axis) < 0 ? has_point(frame, domain, layout, block) : std::optional<ExprId>();
    if (!point) continue;
    keep = keep ? b_.logical_and(*keep, *point) : *point;
    some_kept = b_.logical_or(some_kept, masked(frame));
  }
  if (!assign.when) {
    if (keep) {
      Block some, all;
      write_masked(assign.target, b_.select(*keep, value, old), some);
      write_masked(assign.target, value, all);
      split(some_kept, std::move(some), std::move(all), block);
    } else {
      write_masked(assign.target, value, block);
    }
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

// For what each warp of each lane has reduced.
program::BufferId Lowerer::reduce_scratch(program::FragmentId target) {
  const program::Fragment& result = program_[target];
  return scratch(result.name + "_partial", ScalarType::f32, partition_.all_lanes() * layout::warps_of_group,
                 static_cast<int>(result.layout.elements()));
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
    if (frame == &loops_.back() && r.reduce == kernel::ReduceOp::sum && comes_zeroed(r.args[0])) continue;
    outside = b_.logical_or(outside, masked(*frame));
    points = b_.logical_and(points, predicate(*frame, domain, instruction.domain, block));
  }
  program::Reduce careful = instruction;
  careful.value = b_.select(points, value, neutral);
  split(outside, {{careful, {}}}, {{instruction, {}}}, block);
  if (moves) {
    ExprId result = element(moved(instruction.target, kernel_[assign.target].name, program_[target].layout, block));
    if (assign.accumulate) result = b_.call(joining(r.reduce), {element(target), result});
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

// Why no unit does the whole reduction at once.
std::string Lowerer::why_serial(const kernel::Assign& assign) const {
  const std::string& name = kernel_[assign.target].name;
  const Expr& r = kernel_[assign.expr];
  if (task::classify(kernel_, assign.expr, graph_.tiled) != task::ReductionKind::product)
    return fmt::format("a reduction into '{}' is no product of 16-bit operands and runs index by index", name);
  if (r.args.size() > 1) {
    return fmt::format("the sum into '{}' runs index by index for its `where {}`: put it into an operand, with select",
                       name, kernel::to_text(kernel_, r.args[1]));
  }
  for (const LoopFrame& frame : loops_) {
    if (!frame.where || std::find(r.axes.begin(), r.axes.end(), frame.axis) == r.axes.end()) continue;
    return fmt::format(
        "the sum into '{}' runs index by index, for no operand has all axes of a condition of `where {}`: let each "
        "condition name axes of one operand, with && between them, and make a loop of its own of what is left",
        name, kernel::to_text(kernel_, *frame.where));
  }
  return fmt::format("the sum into '{}' runs index by index", name);
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
  const ScalarType type = kernel_[assign.target].type;
  if (!assign.accumulate) block.push_back({program::Map{target, b_.constant(type, task::identity(r.reduce))}, {}});
  program_.generic_reason = why_serial(assign);
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
  serial_reads_.clear();
  const std::function<void(KernelExpr)> read = [&](KernelExpr id) {
    const Expr e = kernel_[id];
    const auto [axes, slice] = over_named(id, domain, layout);
    if (e.kind == Expr::Kind::access) {
      const program::FragmentId f =
          temporary(fmt::format("{}_k", kernel_[e.tensor].name), kernel_[e.tensor].type, slice);
      inner.push_back({program::LoadGlobal{f, access(e, axes)}, {}});
      serial_reads_[id] = f;
      return;
    }
    if (e.kind == Expr::Kind::value) {
      const auto named = task::axes_of(kernel_, id);
      const bool walked = std::any_of(r.axes.begin(), r.axes.end(), [&](AxisId a) { return named.contains(a); });
      if (walked && assignment_[e.value].scratch) serial_reads_[id] = read_scratch(id, axes, slice, inner);
      return;
    }
    for (const KernelExpr arg : e.args) read(arg);
  };
  for (const AxisId a : r.axes) {
    const LoopFrame* frame = frame_of(a);
    if (frame == nullptr || !frame->where) continue;
    for (const KernelExpr opaque : frame->condition.opaque) read(opaque);
    condition = b_.logical_and(condition, predicate(*frame, domain, layout, inner));
  }
  for (const KernelExpr arg : r.args) read(arg);
  if (r.args.size() > 1) condition = b_.logical_and(condition, translate(r.args[1], domain, layout, inner));
  const ExprId value = b_.convert(type, translate(r.args[0], domain, layout, inner));
  const ExprId old = element(target);
  const ExprId joined = b_.call(joining(r.reduce), {old, value});
  inner.push_back({program::Map{target, b_.select(condition, joined, old)}, {}});
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

}  // namespace pipethreader::lower
