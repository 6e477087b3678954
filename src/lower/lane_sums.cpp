// Sums whose axis lanes share: each lane adds up its part, the first one joins them.
#include "lower/lowerer.h"

namespace pipethreader::lower {

// What a sum starts with counts once.
void Lowerer::start_in_one_lane(StatementId loop, Block& block) {
  if (!partition_.sums || partition_.sums->loop != loop) return;
  program::If others;
  others.condition = b_.gt(b_.instance(), b_.constant(0));
  for (const ValueId v : partition_.sums->values) {
    if (partition_.sums->from_zero.contains(v)) continue;
    others.then.push_back({program::Map{fragment(v), b_.constant(kernel_[v].type, 0)}, {}});
  }
  if (!others.then.empty()) block.push_back({std::move(others), "the first lane has what the sums start with"});
}

// The other lanes hand their parts to the first through shared memory and go on to the next work item.
void Lowerer::join_lanes(StatementId loop, Block& block) {
  if (!partition_.sums || partition_.sums->loop != loop) return;
  const int others = partition_.lanes - 1;
  program_.barriers.push_back({"handed", partition_.lanes, 1});
  const program::BarrierId handed(program_.barriers.size() - 1);
  if (!taken_) {
    program_.barriers.push_back({"taken", partition_.lanes, 1});
    taken_ = program::BarrierId(program_.barriers.size() - 1);
  }
  program::If first;
  first.condition = b_.eq(b_.instance(), b_.constant(0));
  first.then.push_back({program::BarrierSync{handed, std::nullopt}, {}});
  first.otherwise.push_back({program::BarrierSync{*taken_, std::nullopt}, {}});
  for (const ValueId v : partition_.sums->values) {
    const program::FragmentId sum = fragment(v);
    const layout::Layout layout = program_[sum].layout;
    const std::string name = kernel_[v].name;
    const int cols = layout.shape.empty() ? 1 : layout.shape.back();
    const int rows = static_cast<int>(layout.elements()) / cols;
    program::Buffer buffer;
    buffer.name = name + "_handed";
    buffer.type = program_[sum].type;
    buffer.rows = others * rows;
    buffer.cols = cols;
    buffer.swizzle = swizzle_for(buffer.rows, cols, buffer.type);
    program_.buffers.push_back(buffer);
    const program::BufferRef place{program::BufferId(program_.buffers.size() - 1), 0};
    ExprId row = b_.constant(0);
    for (std::size_t d = 0; d + 1 < layout.shape.size(); ++d)
      row = b_.add(b_.mul(row, layout.shape[d]), b_.coord(static_cast<int>(d)));
    const ExprId col = layout.shape.empty() ? b_.constant(0) : b_.coord(static_cast<int>(layout.shape.size()) - 1);
    // Not below 0; said so that the proof sees it without knowing who comes here.
    const ExprId mine = b_.mul(others == 1 ? b_.constant(0) : b_.max(b_.sub(b_.instance(), 1), b_.constant(0)), rows);
    first.otherwise.push_back({program::StoreShared{sum, place, b_.add(mine, row), col}, {}});
    const program::FragmentId part = temporary(name + "_part", program_[sum].type, layout);
    for (int other = 0; other < others; ++other) {
      first.then.push_back({program::LoadShared{part, place, b_.add(row, other * rows), col}, {}});
      first.then.push_back({program::Map{sum, b_.add(element(sum), element(part))}, {}});
    }
  }
  first.then.push_back({program::BarrierArrive{*taken_, std::nullopt}, {}});
  first.otherwise.push_back({program::BarrierArrive{handed, std::nullopt}, {}});
  block.push_back({std::move(first), "the first lane adds what the others have summed"});
  for (const ValueId v : partition_.sums->values) {
    if (assignment_[v].scratch) write_scratch(v, block);
  }
}

}  // namespace pipethreader::lower
