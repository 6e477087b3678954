#include "verify/machine.h"

#include <algorithm>
#include <utility>

#include "program/walk.h"

namespace pipethreader::verify {
namespace {

using namespace program;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

const Step& Machine::step(int index) const { return model_.code(index).steps[at(state_.lanes[at(index)].step)]; }

std::string Machine::who(int lane) const { return fmt::format("{} at {}", model_.code(lane).name, step(lane).place); }

void Machine::fail(Witness::Fault kind, int lane, const std::string& text) {
  if (!fault_) fault_ = Fault{kind, fmt::format("{}: {}", who(lane), text)};
}

// In each round every lane goes on until it must wait or has begun an iteration of an outermost loop.
std::optional<Fault> Machine::run(std::int64_t pause) {
  open_.assign(at(model_.lanes), std::nullopt);
  std::int64_t steps = 0;
  bool moved = true;
  while (moved && !fault_ && !paused_) {
    moved = false;
    for (int index = 0; index < model_.lanes && !fault_; ++index) {
      open_[at(index)].reset();
      for (bool go_on = true; go_on && !fault_ && lane(index).mode == LaneMode::running;) {
        const Step& now = step(index);
        if (advance(index) != Progress::advanced) break;
        moved = true;
        ++steps;
        go_on = now.what != Do::loop_next || now.depth > 0;
      }
    }
    paused_ = moved && steps >= pause;
  }
  if (fault_ || paused_) return fault_;
  const bool all_ended = std::all_of(state_.lanes.begin(), state_.lanes.end(),
                                     [](const LaneState& l) { return l.mode == LaneMode::ended; });
  if (all_ended) {
    end_of_all();
  } else if (!decision()) {
    deadlock();
  }
  return fault_;
}

// The lane that is furthest behind decides first: within an item before about the next one, inner loops before outer.
std::optional<OpenDecision> Machine::decision() const {
  std::optional<OpenDecision> best;
  std::pair<int, std::int64_t> best_rank;
  for (int index = 0; index < model_.lanes; ++index) {
    if (!open_[at(index)]) continue;
    const bool next_item = step(index).what == Do::work_head;
    const int rank = next_item ? 1000 : -step(index).depth;
    const std::pair<int, std::int64_t> order{rank, state_.lanes[at(index)].item};
    if (best && best_rank <= order) continue;
    best = OpenDecision{index, next_item, *open_[at(index)]};
    best_rank = order;
  }
  return best;
}

// --- control -----------------------------------------------------------------------------------------------------

Machine::Progress Machine::advance(int index) {
  LaneState& self = lane(index);
  const Step& now = step(index);
  switch (now.what) {
    case Do::work_head:
      return next_item(index, now);
    case Do::work_next:
      ++self.item;
      self.step = now.target;
      return Progress::advanced;
    case Do::loop_enter: {
      if (now.plain && all_ways_alike(index, now)) {
        answer_no(index, self.step);
        self.step = now.join;
        return Progress::advanced;
      }
      OpenPoint point;
      const auto start = decider_.value(index, now.start, point);
      if (!start) {
        open_[at(index)] = point;
        return Progress::open;
      }
      const std::int64_t residue = start->variable == 0 ? floor_mod(start->offset, model_.compiled.modulus) : -1;
      self.frames.push_back(
          {state_.zone.add_equal(start->variable, static_cast<int>(start->offset)), now.loop, residue});
      break;
    }
    case Do::loop_head:
    case Do::branch:
      return decide(index, now);
    case Do::loop_next:
      state_.zone.shift(self.frames.back().counter, now.stride);
      if (std::int64_t& residue = self.frames.back().residue; residue >= 0) {
        residue = floor_mod(residue + now.stride, model_.compiled.modulus);
      }
      self.step = now.target;
      return Progress::advanced;
    case Do::jump:
      self.step = now.target;
      return Progress::advanced;
    case Do::execute: {
      const Progress progress = execute(index, now);
      if (progress != Progress::advanced || self.mode != LaneMode::running) return progress;
      break;
    }
    case Do::end:
      end(index);
      return Progress::waits;
  }
  ++self.step;
  return Progress::advanced;
}

Machine::Progress Machine::next_item(int index, const Step& now) {
  LaneState& self = lane(index);
  const bool exists = self.item < state_.items;
  if (!exists && !state_.items_end) {
    open_[at(index)] = OpenPoint{};
    return Progress::open;
  }
  if (answers_ != nullptr) (*answers_)[at(index)].push_back(exists ? 1 : 0);
  self.step = exists ? self.step + 1 : now.target;
  return Progress::advanced;
}

Machine::Progress Machine::decide(int index, const Step& now) {
  LaneState& self = lane(index);
  const bool open = now.what == Do::branch && now.question.kind != Question::Kind::constant;
  if (now.plain && open && all_ways_alike(index, now)) {
    answer_no(index, self.step);
    self.step = now.join;
    return Progress::advanced;
  }
  OpenPoint point;
  const Answer answer = decider_.answer(index, now.question, point);
  if (answer == Answer::open) {
    open_[at(index)] = point;
    return Progress::open;
  }
  const bool yes = answer == Answer::yes;
  if (answers_ != nullptr && !now.decided_by_constants) (*answers_)[at(index)].push_back(yes ? 1 : 0);
  if (yes) {
    ++self.step;
    return Progress::advanced;
  }
  if (now.what == Do::loop_head) {
    state_.zone.remove(self.frames.back().counter);
    self.frames.pop_back();
  }
  self.step = now.target;
  return Progress::advanced;
}

// A branch or a loop that only touches fragments, without fault on any way, needs no decision: what is surely written
// behind it is what every way writes. Where something that only some ways write is read later, it does need one.
bool Machine::all_ways_alike(int index, const Step& now) {
  LaneState& self = lane(index);
  const Bits before = self.defined;
  const int from = self.step;
  Bits touched = before;
  bool alike = now.what == Do::branch ? pass_branch(index, from, touched) : pass(index, from, now.join, touched);
  fault_.reset();
  touched.remove(self.defined);
  touched &= model_.code(index).live[at(now.join)];
  alike = alike && touched.empty();
  if (!alike) self.defined = before;
  return alike;
}

// For a witness: a branch that needs no decision goes its other way, and so do those on that way; a loop that needs
// none ends at once.
void Machine::answer_no(int index, int branch) {
  if (answers_ == nullptr) return;
  const auto& steps = model_.code(index).steps;
  const auto answer = [&](const Step& step) {
    if (!step.decided_by_constants) (*answers_)[at(index)].push_back(0);
  };
  const int join = steps[at(branch)].join;
  for (int s = branch; s < join;) {
    const Step& now = steps[at(s)];
    if (now.what == Do::branch) answer(now);
    if (now.what == Do::loop_enter) answer(steps[at(s) + 1]);
    if (now.what == Do::jump) break;
    s = now.what == Do::branch ? now.target : now.what == Do::loop_enter ? now.join : s + 1;
  }
}

// Touches the fragments of such steps. Left as defined is what every way through them writes, `touched` gains what any
// does; false at a fault.
bool Machine::pass(int index, int from, int to, Bits& touched) {
  const auto& steps = model_.code(index).steps;
  for (int s = from; s < to && !fault_;) {
    const Step& now = steps[at(s)];
    if (now.what == Do::jump) {
      s = now.target;
    } else if (now.what == Do::branch) {
      if (!pass_branch(index, s, touched)) return false;
      s = now.join;
    } else if (now.what == Do::loop_enter) {
      // Perhaps never; and a second time finds more written than the first.
      const Bits before = lane(index).defined;
      if (!pass(index, s + 2, now.join - 1, touched)) return false;
      lane(index).defined = before;
      s = now.join;
    } else {
      touch_fragments(index, now);
      for (const int fragment : now.writes) touched.set(fragment);
      ++s;
    }
  }
  return !fault_;
}

bool Machine::pass_branch(int index, int branch, Bits& touched) {
  const Step& now = model_.code(index).steps[at(branch)];
  const Bits before = lane(index).defined;
  if (!pass(index, branch + 1, now.join, touched)) return false;
  const Bits then = std::exchange(lane(index).defined, before);
  if (!pass(index, now.target, now.join, touched)) return false;
  lane(index).defined &= then;
  return true;
}

Machine::Progress Machine::execute(int index, const Step& now) {
  return std::visit(
      [&](const auto& op) {
        using Op = std::remove_cvref_t<decltype(op)>;
        if constexpr (std::is_same_v<Op, RingAcquire>) return acquire(index, op.ring);
        if constexpr (std::is_same_v<Op, RingWait>) return wait(index, op.ring, op.lag);
        if constexpr (std::is_same_v<Op, Mma>) return product(index, now, op);
        if constexpr (std::is_same_v<Op, BarrierSync> || std::is_same_v<Op, BarrierArrive>) {
          const auto which = now.index ? now.index : decider_.value(index, now.index_sum);
          if (!which || *which < 0 || *which >= model_.program[op.barrier].count) {
            fail(Witness::Fault::protocol, index,
                 which ? fmt::format("barrier {} of {}", *which, model_.program[op.barrier].count)
                       : "which barrier is used cannot be told");
            return Progress::waits;
          }
          const int meeting = model_.meeting(model_.block_of(index), op.barrier, static_cast<int>(*which));
          return meet(index, meeting, std::is_same_v<Op, BarrierSync>);
        }
        if constexpr (std::is_same_v<Op, ClusterSync>) {
          return meet(index, static_cast<int>(model_.meetings.size()) - 1, true);
        }
        if constexpr (std::is_same_v<Op, MmaWait>) {
          if (op.pin) {
            if (const Progress pinned = wait(index, op.pin->ring, op.pin->lag); pinned != Progress::advanced)
              return pinned;
          }
          wait_products(index, op.pending);
        }
        if constexpr (std::is_same_v<Op, RingCommit>) commit(index, op.ring);
        if constexpr (std::is_same_v<Op, RingRelease>) release(index, op.ring, op.lag);
        if constexpr (std::is_same_v<Op, RingAdvance>) ++lane(index).cursors[at(op.ring.index)];
        if constexpr (std::is_same_v<Op, CopyBulk>) copy(index, now, op);
        if constexpr (std::is_same_v<Op, MmaCommit>) {
          LaneState& self = lane(index);
          self.groups.push_back(self.open);
          self.open.reads.clear();
          self.open.accumulators.clear();
          self.open.operands.clear();
        }
        if constexpr (std::is_same_v<Op, ProxyFence>) fence(index);
        if constexpr (std::is_same_v<Op, BulkStore>) store(index, now);
        if constexpr (std::is_same_v<Op, BulkStoreWait>) wait_stores(index, op.pending);
        if constexpr (std::is_same_v<Op, LoadShared> || std::is_same_v<Op, StoreShared> ||
                      std::is_same_v<Op, CopyPlain> || std::is_same_v<Op, LoadGlobal> ||
                      std::is_same_v<Op, StoreGlobal> || std::is_same_v<Op, Map> || std::is_same_v<Op, Reduce> ||
                      std::is_same_v<Op, Relayout> || std::is_same_v<Op, IfAny>) {
          touch_fragments(index, now);
          for (const SharedAccess& access : now.shared) {
            if constexpr (std::is_same_v<Op, Reduce> || std::is_same_v<Op, Relayout>) {
              scratch(index, access);
            } else {
              const Place where = place_of(index, access.ref);
              if (fault_) break;
              if constexpr (std::is_same_v<Op, LoadShared>) {
                read(index, access, where, 0, nullptr);
              } else {
                write(index, model_.block_of(index), access, where, false);
              }
            }
          }
        }
        return Progress::advanced;
      },
      now.instr->op);
}

// --- the end -----------------------------------------------------------------------------------------------------

void Machine::end(int index) {
  LaneState& self = lane(index);
  if (!self.groups.empty() || !self.open.reads.empty() || !self.open.accumulators.empty()) {
    fail(Witness::Fault::protocol, index, "ends while products it has not waited for may be unfinished");
  }
  if (!self.stores.empty()) {
    fail(Witness::Fault::protocol, index, "ends while its bulk stores may still read shared memory");
  }
  self.mode = LaneMode::ended;
}

// Shared memory is gone when a block ends: some lane of it must be behind each copy into it and each remote arrival.
void Machine::end_of_all() {
  const auto known_in = [&](int block, int event) {
    for (int index = 0; index < model_.lanes; ++index) {
      if (model_.block_of(index) == block && knows(index, event)) return true;
    }
    return false;
  };
  for (int block = 0; block < model_.blocks && !fault_; ++block) {
    for (int i = 0; i < model_.locations_of_block; ++i) {
      const std::size_t location = at(block * model_.locations_of_block + i);
      if (state_.contents[location].writer != ContentState::Writer::copy) continue;
      const int event = model_.locations[location].write;
      if (known_in(block, event)) continue;
      fault_ = Fault{Witness::Fault::protocol,
                     fmt::format("block {} may end before {} has arrived: nobody in it waits for it", block,
                                 model_.describe(event))};
    }
    for (const int event : model_.remote[at(block)]) {
      if (event < 0 || !state_.active.has(event) || known_in(block, event)) continue;
      fault_ = Fault{Witness::Fault::protocol, fmt::format("block {} may end before {}: no cluster_sync lies between",
                                                           block, model_.describe(event))};
    }
  }
}

void Machine::deadlock() {
  std::string text = "nobody can go on";
  for (int index = 0; index < model_.lanes; ++index) {
    if (lane(index).mode == LaneMode::ended) {
      text += fmt::format("; {} has ended", model_.code(index).name);
    } else {
      text += fmt::format("; {} waits for {}", who(index), waits_for(index));
    }
  }
  fault_ = Fault{Witness::Fault::deadlock, text};
}

std::string Machine::waits_for(int index) const {
  const LaneState& self = state_.lanes[at(index)];
  const auto lanes_of = [&](std::uint64_t arrived) {
    std::string text;
    for (int other = 0; other < model_.lanes; ++other) {
      if ((arrived >> other) & 1) text += (text.empty() ? "" : ", ") + model_.code(other).name;
    }
    return text.empty() ? std::string("nobody") : text;
  };
  if (self.mode == LaneMode::meeting) {
    const auto* sync = std::get_if<BarrierSync>(&step(index).instr->op);
    return fmt::format("the {} participants of {} (arrived: {})", model_.meetings[at(self.meeting)].participants,
                       sync == nullptr ? "the cluster" : "barrier " + model_.program[sync->barrier].name,
                       lanes_of(state_.arrived[at(self.meeting)]));
  }
  const auto ring = [&](RingId id, int lag, bool full) {
    const Place where = place(index, id, lag);
    const SlotState& slot = state_.slots[at(model_.ring_slot(model_.block_of(index), id, where.slot))];
    const PhaseState& phase = full ? slot.full : slot.empty;
    std::string text = fmt::format("{} of fill {} in ring {} slot {} (arrived: {}", full ? "the end" : "the release",
                                   full ? where.fill : where.fill - model_.program[id].depth, model_.program[id].name,
                                   where.slot, lanes_of(phase.arrived));
    if (full && phase.bytes_due != 0) text += fmt::format(", {} bytes due", phase.bytes_due);
    return text + ")";
  };
  const Instr& instr = *step(index).instr;
  if (const auto* op = std::get_if<RingAcquire>(&instr.op)) return ring(op->ring, 0, false);
  if (const auto* op = std::get_if<RingWait>(&instr.op)) return ring(op->ring, op->lag, true);
  if (const auto* op = std::get_if<MmaWait>(&instr.op); op != nullptr && op->pin)
    return ring(op->pin->ring, op->pin->lag, true);
  return "what never comes";
}

}  // namespace pipethreader::verify
