// Results to global memory: by the threads, or through shared memory and the copy engine.
#include <algorithm>

#include "lower/lowerer.h"

namespace pipethreader::lower {

// What all lanes hold alike, or the first one alone, the first stores.
void Lowerer::store(const task::Task& task, Block& block) {
  const ValueId value = kernel_[std::get<kernel::Store>(kernel_[task.statement].node).expr].value;
  if (partition_.lanes == 1 || domain_dim(assignment_[value].axes, partition_.split) >= 0)
    return store_part(task, block);
  program::If first;
  first.condition = b_.eq(lane(), b_.constant(0));
  store_part(task, first.then);
  block.push_back({std::move(first), {}});
}

void Lowerer::store_part(const task::Task& task, Block& block) {
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
    const int side = dim.axis ? partition_.local(*dim.axis) : 1;
    map.dims.push_back(map_dim(dim, side));
    ExprId at = uniform(dim.coordinate);
    if (dim.axis) {
      box.push_back(*dim.axis);
      if (*dim.axis == partition_.split) at = b_.add(at, b_.mul(lane(), side));
    }
    coordinates.push_back(at);
  }
  const bool split = domain_dim(domain, partition_.split) >= 0;
  if (box.size() != 2 || domain.size() != 2 || (split && box[1] != partition_.split)) return false;
  const int rows = partition_.extent(box[1]);
  const int cols = partition_.extent(box[0]);
  const ScalarType type = kernel_[value].type;
  if (rows > 256 || swizzle_for(rows, cols, type) == program::Swizzle::none) return false;
  program::Buffer buffer;
  buffer.name = kernel_[value].name + "_out";
  buffer.type = type;
  buffer.rows = rows * partition_.choice.teams;
  buffer.cols = cols;
  buffer.swizzle = swizzle_for(rows, cols, type);
  map.name = kernel_[value].name + "_out_map";
  map.tensor = program::TensorId(static_cast<std::size_t>(node.tensor.index));
  map.swizzle = buffer.swizzle;
  program_.buffers.push_back(buffer);
  const program::BufferRef target{program::BufferId(program_.buffers.size() - 1), 0};
  program_.maps.push_back(map);
  if (!store_barrier_) {
    program_.barriers.push_back({"stored", 1, partition_.all_lanes()});
    store_barrier_ = program::BarrierId(program_.barriers.size() - 1);
  }
  ExprId first = split ? b_.mul(own_lane(), partition_.local(partition_.split)) : b_.constant(0);
  if (partition_.apart.valid()) first = b_.add(first, b_.mul(team(), rows));
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

}  // namespace pipethreader::lower
