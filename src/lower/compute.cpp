// The computing lanes: the tree of items with its pipelined loops, waits, releases and the pending counts of product
// groups.
#include <algorithm>

#include "lower/lowerer.h"
#include "schedule/ring_uses.h"

namespace pipethreader::lower {

using schedule::Entry;
using schedule::Item;
using schedule::LoopTree;
using schedule::Part;
using schedule::stage_of;

// How many groups issued after the awaited one may still run, counted over the entries that execute in this stretch.
int Lowerer::pending_groups(const std::vector<Item>& items, std::size_t wait, int low, int high) const {
  const auto& awaited = std::get<Entry>(items[wait].node);
  std::size_t issue = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto* e = std::get_if<Entry>(&items[i].node);
    if (e != nullptr && e->task == awaited.task && e->part == Part::issue) issue = i;
  }
  const auto issues = [&](std::size_t i, int from, int to) {
    const auto* e = std::get_if<Entry>(&items[i].node);
    return e != nullptr && e->part == Part::issue && e->stage >= from && e->stage <= to;
  };
  int count = 0;
  if (stage_of(items[issue]) == awaited.stage) {
    for (std::size_t i = issue + 1; i < wait; ++i) count += issues(i, low, high) ? 1 : 0;
    return count;
  }
  // Issued in the iteration before, which may have been the prologue: only stage-0 issues are certain to have followed.
  for (std::size_t i = issue + 1; i < items.size(); ++i) count += issues(i, 0, 0) ? 1 : 0;
  for (std::size_t i = 0; i < wait; ++i) count += issues(i, low, high) ? 1 : 0;
  return count;
}

void Lowerer::items(const std::vector<Item>& items, Block& block, const std::vector<StatementId>& level, int low,
                    int high, int lag_base) {
  const auto active = [&](const Item& item) { return stage_of(item) >= low && stage_of(item) <= high; };
  const auto lag_of = [&](const Item& item) { return stage_of(item) + lag_base; };
  const std::vector<schedule::RingUse> uses = schedule::ring_uses(graph_, assignment_, schedule_, items, level);
  const auto issues = [&](std::size_t i) {
    const auto* e = std::get_if<Entry>(&items[i].node);
    return e != nullptr && e->part == Part::issue;
  };
  const auto neighbour_issues = [&](std::size_t i, int step) {
    for (std::size_t n = i + static_cast<std::size_t>(step); n < items.size(); n += static_cast<std::size_t>(step)) {
      if (active(items[n])) return issues(n);
    }
    return false;
  };
  const bool turns = schedule_.turns && !level.empty();
  const std::size_t first = block.size();
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!active(items[i])) continue;
    const int lag = lag_of(items[i]);
    const bool starts_turn = turns && issues(i) && !neighbour_issues(i, -1);
    const bool ends_turn = turns && issues(i) && !neighbour_issues(i, 1);
    for (const schedule::RingUse& use : uses) {
      if (use.first == i) block.push_back({program::RingWait{program::RingId(use.ring), lag}, {}});
    }
    if (starts_turn) block.push_back({program::BarrierSync{turn(), b_.instance()}, "my turn"});
    if (const auto* loop = std::get_if<LoopTree>(&items[i].node)) {
      start_in_one_lane(loop->statement, block);
      const Bounds bounds = open_loop(*loop, block);
      std::vector<StatementId> inner = level;
      inner.push_back(loop->statement);
      pipelined(*loop, bounds, block, inner);
      loops_.pop_back();
      join_partial_sums(loop->statement, block);
      join_lanes(loop->statement, block);
    } else {
      const auto& e = std::get<Entry>(items[i].node);
      stage_ = loops_.empty() || level.empty() ? 0 : e.stage;
      const int pending = e.part == Part::wait ? pending_groups(items, i, low, high) : 0;
      const bool steady = low == 0 && high > 0;
      entry(e, block, lag, pending, steady ? pin_of(e, level) : std::nullopt);
      stage_ = 0;
    }
    if (ends_turn) {
      const ExprId next = b_.mod(b_.add(b_.instance(), 1), partition_.all_lanes());
      block.push_back({program::BarrierArrive{turn(), next}, "the next lane's turn"});
    }
    for (const schedule::RingUse& use : uses) {
      if (use.last == i) block.push_back({program::RingRelease{program::RingId(use.ring), lag}, {}});
    }
  }
  join_splits(block, first);
}

program::BarrierId Lowerer::turn() {
  if (!turn_) {
    program_.barriers.push_back({"turn", 2, partition_.all_lanes()});
    turn_ = program::BarrierId(program_.barriers.size() - 1);
  }
  return *turn_;
}

void Lowerer::advance(Block& block, const std::vector<StatementId>& level) {
  for (std::size_t r = 0; r < schedule_.rings.size(); ++r) {
    if (schedule_.rings[r].level == level) block.push_back({program::RingAdvance{program::RingId(r)}, {}});
  }
}

void Lowerer::computer(const std::vector<Item>& body, Block& block, const std::vector<StatementId>& level) {
  items(body, block, level, 0, 0, 0);
  advance(block, level);
}

void Lowerer::pipelined(const LoopTree& loop, const Bounds& bounds, Block& block,
                        const std::vector<StatementId>& level) {
  const ExprId trips = b_.var(bounds.trips);
  const LoopFrame frame = loops_.back();
  program::For walk;
  walk.var = variable(kernel_[loop.axis].name + "_i");
  walk.begin = b_.constant(loop.stages - 1);
  walk.end = trips;
  if (loop.stages == 1) {
    let(walk.body, frame.origin[0], tile_origin(bounds, loop.axis, b_.var(walk.var)));
    if (schedule_.changes_places && kernel_[loop.axis].name == graph_.walk.axis)
      change_places(b_.var(walk.var), walk.body);
    const std::size_t first = walk.body.size();
    items(loop.body, walk.body, level, 0, 0, 0);
    pass_over_empty_tiles(loop, walk.body, first);
    advance(walk.body, level);
    block.push_back({std::move(walk), {}});
    return;
  }
  const ExprId any = b_.gt(trips, b_.constant(0));
  program::If prologue;
  prologue.condition = any;
  let(prologue.then, frame.origin[0], tile_origin(bounds, loop.axis, b_.constant(0)));
  items(loop.body, prologue.then, level, 0, 0, 0);
  advance(prologue.then, level);
  block.push_back({std::move(prologue), "prologue: stage 0 of the first iteration"});

  let(walk.body, frame.origin[0], tile_origin(bounds, loop.axis, b_.var(walk.var)));
  let(walk.body, frame.origin[1], tile_origin(bounds, loop.axis, b_.sub(b_.var(walk.var), 1)));
  items(loop.body, walk.body, level, 0, 1, 0);
  advance(walk.body, level);
  block.push_back({std::move(walk), "steady state: stage 0 of this iteration, stage 1 of the one before"});

  program::If epilogue;
  epilogue.condition = any;
  let(epilogue.then, frame.origin[1], tile_origin(bounds, loop.axis, b_.sub(trips, 1)));
  items(loop.body, epilogue.then, level, 1, 1, 0);
  block.push_back({std::move(epilogue), "epilogue: stage 1 of the last iteration"});
}

// The slot that the product reads next, whose filling is due anyway: waiting for it here keeps the machine's compiler
// from moving the wait for the product to before the arithmetic that shall run beside it.
std::optional<program::RingWait> Lowerer::pin_of(const Entry& entry, const std::vector<StatementId>& level) const {
  if (entry.part != Part::wait || entry.stage == 0) return std::nullopt;
  for (std::size_t r = 0; r < schedule_.rings.size(); ++r) {
    const schedule::RingPlan& ring = schedule_.rings[r];
    if (ring.level == level && ring.depth > 1 && schedule::reads(graph_, assignment_, {entry}, ring, Part::wait))
      return program::RingWait{program::RingId(r), 0};
  }
  return std::nullopt;
}

void Lowerer::entry(const Entry& entry, Block& block, int lag, int pending,
                    const std::optional<program::RingWait>& pin) {
  const task::Task& t = graph_[entry.task];
  switch (t.kind) {
    case task::TaskKind::load:
      if (assignment_[*t.writes].staged) {
        fetch(*t.writes, block, lag);
      } else {
        load(t, block);
      }
      break;
    case task::TaskKind::slice:
      fetch(*t.writes, block, lag);
      break;
    case task::TaskKind::map:
      if (entry.part == Part::prepare) set_aside(*t.writes);
      if (entry.part == Part::move) {
        move_operand(*t.writes, block);
      } else {
        map(t, block);
      }
      break;
    case task::TaskKind::reduce:
      reduce(t, block);
      break;
    case task::TaskKind::serial_reduce:
      serial_reduce(t, block);
      break;
    case task::TaskKind::store:
      store(t, block);
      break;
    case task::TaskKind::mma:
      if (entry.part == Part::issue) {
        issue(entry.task, block, lag);
      } else {
        block.push_back({program::MmaWait{pending, pin}, fmt::format("{} is complete", kernel_[*t.writes].name)});
        if (assignment_[*t.writes].scratch) after_write(*t.writes, block);
      }
      break;
  }
}

}  // namespace pipethreader::lower
