// Products and what they read: tiles in shared memory, registers, the zeros at points that a product must not see.
#include <algorithm>

#include "lower/lowerer.h"
#include "task/rewrite.h"

namespace pipethreader::lower {

using kernel::Expr;

// Where an element of `domain` lies along axis `own` of a tile in shared memory, which holds all lanes' shares.
ExprId Lowerer::in_tile(ValueId source, AxisId own, const std::vector<AxisId>& domain) {
  const auto kept = graph_.kept.find(own);
  const bool part = kept != graph_.kept.end() && domain_dim(domain, own) < 0;
  const AxisId axis = part ? kept->second : own;
  const int dim = domain_dim(domain, axis);
  ExprId at = b_.constant(0);
  if (dim >= 0) {
    at = b_.coord(dim);
    if (axis == partition_.split) at = b_.add(at, b_.mul(lane(), partition_.local(axis)));
  } else if (const auto one = axes_.find(axis); one != axes_.end()) {  // one index after the other
    const LoopFrame* frame = frame_of(axis);
    at = frame == nullptr ? one->second : b_.sub(one->second, b_.var(frame->origin[stage_]));
  }
  return part ? b_.add(kept_origin(source, own, axis), at) : at;
}

// Row and column of the value's tile in shared memory for an element of `domain`; of a slice, of what it is a part of.
ExprId Lowerer::shared_row(ValueId value, const std::vector<AxisId>& domain) {
  const ValueId source = assignment_[value].kept.value_or(value);
  const partition::SharedTile& tile = *assignment_[source].shared;
  ExprId row = b_.constant(0);
  for (const AxisId a : tile.row_axes) row = b_.add(b_.mul(row, partition_.extent(a)), in_tile(source, a, domain));
  return b_.add(team_rows(source), row);
}

ExprId Lowerer::shared_col(ValueId value, const std::vector<AxisId>& domain) {
  const ValueId source = assignment_[value].kept.value_or(value);
  const AxisId column = assignment_[source].shared->column;
  if (column.valid()) return in_tile(source, column, domain);
  const bool copied = assignment_[value].staged && assignment_[value].shared->cols > 1;
  return copied ? among_neighbours(value) : b_.constant(0);
}

// Where a value that is read at `index` lies along its axis `own`. All points that count lie inside; said so that the
// others stay inside too.
ExprId Lowerer::at_index(ValueId value, AxisId own, KernelExpr index, const std::vector<AxisId>& domain) {
  const Expr& e = kernel_[index];
  if (e.kind == Expr::Kind::axis && e.axis == own) return in_tile(value, own, domain);
  const ExprId at = b_.sub(indexing(index, domain), origin(own));
  return b_.max(b_.min(at, b_.sub(extent(own), 1)), b_.constant(0));
}

// A computed value, over `axes`, from its copy in shared memory: at whatever indices the expression names.
program::FragmentId Lowerer::read_scratch(KernelExpr value, const std::vector<AxisId>& axes,
                                          const layout::Layout& layout, Block& block) {
  const Expr e = kernel_[value];
  const partition::SharedTile& tile = *assignment_[e.value].shared;
  const std::vector<AxisId>& own = kernel_[e.value].axes;
  const auto along = [&](AxisId axis) {
    const auto i = static_cast<std::size_t>(std::find(own.begin(), own.end(), axis) - own.begin());
    return at_index(e.value, axis, e.args[i], axes);
  };
  ExprId row = b_.constant(0);
  for (const AxisId a : tile.row_axes) row = b_.add(b_.mul(row, partition_.extent(a)), along(a));
  const ExprId col = tile.column.valid() ? along(tile.column) : b_.constant(0);
  const program::FragmentId f = temporary(kernel_[e.value].name + "_at", kernel_[e.value].type, layout);
  block.push_back({program::LoadShared{f, {buffers_.at(e.value), 0}, row, col}, {}});
  return f;
}

void Lowerer::fetch(ValueId value, Block& block, int lag) {
  const auto& kept = assignment_[value].kept;
  const std::vector<AxisId> domain = assignment_[value].axes;
  const program::BufferRef source{buffers_.at(kept.value_or(value)), kept ? 0 : lag};
  block.push_back(
      {program::LoadShared{fragment(value), source, shared_row(value, domain), shared_col(value, domain)}, {}});
  after_write(value, block);
}

// Where the loop's tile lies in what is kept of the whole axis. Every tile lies inside; said so that the proof sees it
// without knowing the loop's range. On stairs, a tile that lies elsewhere has no point in the lane's rows.
ExprId Lowerer::kept_origin(ValueId source, AxisId whole, AxisId loop) {
  ExprId first = b_.constant(0);
  ExprId last = b_.constant(partition_.extent(whole) - partition_.extent(loop));
  if (const auto& stairs = program_[buffers_.at(source)].stairs;
      stairs && assignment_[source].shared->column == whole) {
    first = b_.add(b_.mul(lane(), stairs->begin_step), stairs->begin);
    last = b_.add(b_.mul(lane(), stairs->end_step), stairs->end - partition_.extent(loop));
  }
  return b_.min(b_.max(origin(loop), first), last);
}

// From here on the value is computed and read beside the registers that products read it from.
void Lowerer::set_aside(ValueId operand) {
  if (operands_.contains(operand)) return;
  operands_[operand] = fragment(operand);
  fragments_[operand] = temporary(kernel_[operand].name + "_next", kernel_[operand].type, assignment_[operand].layout);
}

void Lowerer::move_operand(ValueId operand, Block& block) {
  block.push_back({program::Map{operands_.at(operand), element(fragment(operand))}, {}});
}

void Lowerer::lane_barrier(Block& block) {
  if (!lane_barrier_) {
    program_.barriers.push_back({"lanes", partition_.lanes, 1});
    lane_barrier_ = program::BarrierId(program_.barriers.size() - 1);
  }
  block.push_back({program::BarrierSync{*lane_barrier_, std::nullopt}, {}});
}

void Lowerer::write_scratch(ValueId value, Block& block) {
  const std::vector<AxisId> domain = assignment_[value].axes;
  if (!buffers_.contains(value)) {
    buffers_[value] = program::BufferId(program_.buffers.size());
    program_.buffers.push_back(tile_buffer(value));
  }
  lane_barrier(block);  // all lanes have finished with what was here
  program::StoreShared store{
      fragment(value), {buffers_.at(value), 0}, shared_row(value, domain), shared_col(value, domain)};
  const bool split = partition_.lanes > 1 && domain_dim(domain, partition_.split) >= 0;
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

program::Operand Lowerer::shared_operand(ValueId value, AxisId free_axis, AxisId k, int lag) {
  program::Operand operand;
  const auto& kept = assignment_[value].kept;
  const ValueId source = kept.value_or(value);
  operand.buffer = {buffers_.at(source), assignment_[value].staged ? lag : 0};
  const AxisId column = assignment_[source].shared->column;
  const auto whole = graph_.kept.find(column);
  operand.transposed = column != k && (whole == graph_.kept.end() || whole->second != k);
  const ExprId share = b_.mul(lane(), partition_.split.valid() ? partition_.local(partition_.split) : 0);
  // Columns that are contiguous begin with a whole span of the swizzle.
  const auto begins = [&](std::int64_t step) {
    const program::Buffer& buffer = program_[operand.buffer.buffer];
    const int span = program::swizzle_bytes(buffer.swizzle) * 8 / bits(buffer.type);
    if (operand.transposed && span > 0 && step % span != 0)
      fail(fmt::format("parts of {} columns of '{}' begin inside a span of {}", step, kernel_[value].name, span));
  };
  if (free_axis == partition_.split) {
    operand.origin = share;
    begins(partition_.local(free_axis));
  }
  if (k == partition_.split) operand.k_origin = share;
  if (assignment_[source].shared->parts > 1) {
    std::optional<ExprId>& rows = operand.transposed ? operand.k_origin : operand.origin;
    rows = rows ? b_.add(*rows, team_rows(source)) : team_rows(source);
  }
  if (!kept) return operand;
  for (const AxisId own : kernel_[source].axes) {
    const auto loop = graph_.kept.find(own);
    if (loop == graph_.kept.end()) continue;
    const ExprId at = kept_origin(source, own, loop->second);
    if (loop->second == k) operand.k_origin = operand.k_origin ? b_.add(*operand.k_origin, at) : at;
    if (loop->second != free_axis) continue;
    operand.origin = operand.origin ? b_.add(*operand.origin, at) : at;
    begins(partition_.extent(free_axis));
  }
  return operand;
}

void Lowerer::issue(TaskId id, Block& block, int lag) {
  const task::Task& t = graph_[id];
  const task::Product p = partition::oriented(graph_, assignment_, id);
  // A ring outside the innermost loop does not advance with it.
  const auto lag_for = [&](ValueId v) {
    const auto ring = schedule_.ring_of(v);
    if (!ring || loops_.empty()) return 0;
    const std::vector<StatementId>& level = schedule_.rings[*ring].level;
    return !level.empty() && level.back() == loops_.back().statement ? lag : 0;
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
  mma.k = partition_.local(p.k);
  if (!t.accumulates) mma.accumulate = b_.truth(false);
  block.push_back({mma, fmt::format("{} {} {} * {}", kernel_[*t.writes].name, t.accumulates ? "+=" : "=",
                                    kernel_[p.a].name, kernel_[p.b].name)});
  block.push_back({program::MmaCommit{}, {}});
}

}  // namespace pipethreader::lower
