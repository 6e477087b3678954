// Machine: slots of rings with their two phase barriers, named barriers, and the cluster's.
#include <algorithm>

#include "verify/machine.h"

namespace pipethreader::verify {
namespace {

using namespace program;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
std::size_t odd(std::int64_t phase) { return static_cast<std::size_t>(floor_mod(phase, 2)); }
std::uint64_t bit(int lane) { return std::uint64_t{1} << lane; }

}  // namespace

Machine::Place Machine::place(int index, RingId ring, int lag) const {
  const std::int64_t fill = state_.lanes[at(index)].cursors[at(ring.index)] - lag;
  return {fill, static_cast<int>(floor_mod(fill, model_.program[ring].depth))};
}

// Something in another block is touched: it must not have ended by then. (Its barriers are initialised: a launch begins
// by that and by a meeting of the cluster, before any role does.)
void Machine::reach(int index, int block) {
  if (model_.block_of(index) == block) return;
  happen(model_.remote[at(block)][at(index)]);
  state_.sets.add(model_.known(index), model_.remote[at(block)][at(index)]);
}

// Waits until the release of the fill that used the slot before. The barrier tells only odd phases from even ones: the
// phase before that one must be known to be over, and the next one cannot be over yet.
Machine::Progress Machine::acquire(int index, RingId ring) {
  const Ring& info = model_.program[ring];
  const Place where = place(index, ring, 0);
  const int block = model_.block_of(index);
  const int place_index = model_.ring_slot(block, ring, where.slot);
  const RingSlot& names = model_.ring_slots[at(place_index)];
  SlotState& slot = state_.slots[at(place_index)];
  const std::int64_t needed = where.fill - info.depth;
  const std::int64_t phase = floor_div(needed, info.depth);
  if (phase >= 0 && !knows(index, names.empty[odd(phase - 1)])) {
    fail(Witness::Fault::protocol, index,
         fmt::format("waits for the release of fill {} of {} and may see that of fill {} instead", needed, info.name,
                     needed - info.depth));
    return Progress::waits;
  }
  if (slot.empty.last < needed) return Progress::waits;
  if (slot.empty.last > needed) {
    fail(Witness::Fault::protocol, index,
         fmt::format("waits for the release of fill {} of {}, and the next is released already", needed, info.name));
    return Progress::waits;
  }
  state_.sets.join(model_.known(index), names.empty_done);
  happen(names.empty_waits[at(index)]);
  state_.sets.add(model_.known(index), names.empty_waits[at(index)]);
  if (info.bytes > 0 && model_.fills_by_bulk[at(index)][at(ring.index)]) {
    slot.full.bytes_due += info.bytes;
    slot.full.announced = true;
    arrive_full(index, ring, where.fill);
  }
  return Progress::advanced;
}

Machine::Progress Machine::wait(int index, RingId ring, int lag) {
  const Ring& info = model_.program[ring];
  const Place where = place(index, ring, lag);
  if (where.fill < 0) return Progress::advanced;  // before the first phase; whoever reads such a slot fails there
  const int place_index = model_.ring_slot(model_.block_of(index), ring, where.slot);
  const RingSlot& names = model_.ring_slots[at(place_index)];
  const SlotState& slot = state_.slots[at(place_index)];
  const std::int64_t phase = where.fill / info.depth;
  if (!knows(index, names.full[odd(phase - 1)])) {
    fail(Witness::Fault::protocol, index,
         fmt::format("waits for fill {} of {} and may see fill {} instead", where.fill, info.name,
                     where.fill - info.depth));
    return Progress::waits;
  }
  if (slot.full.last < where.fill) return Progress::waits;
  if (slot.full.last > where.fill) {
    fail(Witness::Fault::protocol, index,
         fmt::format("waits for fill {} of {}, which is overwritten already", where.fill, info.name));
    return Progress::waits;
  }
  state_.sets.join(model_.known(index), names.full_done);
  happen(names.full_waits[at(index)]);
  state_.sets.add(model_.known(index), names.full_waits[at(index)]);
  return Progress::advanced;
}

void Machine::arrive_full(int index, RingId ring, std::int64_t fill) {
  const Ring& info = model_.program[ring];
  const auto slot_index = static_cast<int>(floor_mod(fill, info.depth));
  const int block = model_.block_of(index);
  const int place_index = model_.ring_slot(block, ring, slot_index);
  const RingSlot& names = model_.ring_slots[at(place_index)];
  PhaseState& phase = state_.slots[at(place_index)].full;
  if (phase.last != fill - info.depth || !knows(index, names.full[odd(floor_div(fill, info.depth) - 1)])) {
    return fail(Witness::Fault::protocol, index,
                fmt::format("arrives for fill {} of {}, and the fill before it in that slot may not be complete", fill,
                            info.name));
  }
  if ((phase.arrived & bit(index)) != 0 || phase.arrivals >= info.full_arrivals) {
    return fail(Witness::Fault::protocol, index,
                fmt::format("one arrival too many for fill {} of {}", fill, info.name));
  }
  phase.arrived |= bit(index);
  ++phase.arrivals;
  state_.sets.join(names.full_gathering, model_.known(index));
  state_.sets.join(names.full_gathering, model_.own(index));
  settle_full(block, ring, slot_index);
}

void Machine::commit(int index, RingId ring) {
  fence(index);
  arrive_full(index, ring, place(index, ring, 0).fill);
}

// Completes the phase when all have arrived and all bytes are there.
void Machine::settle_full(int block, RingId ring, int slot_index) {
  const Ring& info = model_.program[ring];
  const int place_index = model_.ring_slot(block, ring, slot_index);
  const RingSlot& names = model_.ring_slots[at(place_index)];
  PhaseState& phase = state_.slots[at(place_index)].full;
  if (phase.arrivals < info.full_arrivals || phase.bytes_due != 0) return;
  const std::int64_t fill = phase.last + info.depth;
  for (const int buffer : model_.buffers_of_ring[at(ring.index)]) {
    const int location = model_.location(block, BufferId(at(buffer)), slot_index);
    for (int atom = 0; atom < model_.compiled.atom_counts[at(buffer)]; ++atom) {
      const ContentState& content = state_.contents[at(location + atom)];
      if (content.writer != ContentState::Writer::none && content.fill == fill) continue;
      if (!fault_) {
        fault_ =
            Fault{Witness::Fault::wrong_value, fmt::format("fill {} of ring {} is complete and {} has not been written",
                                                           fill, info.name, model_.program.buffers[at(buffer)].name)};
      }
      return;
    }
  }
  phase = {fill, 0, 0, 0, false};
  const std::size_t parity = odd(floor_div(fill, info.depth));
  state_.sets.clear(names.full_done);
  state_.sets.join(names.full_done, names.full_gathering);
  state_.sets.clear(names.full_gathering);
  happen(names.full[parity]);
  state_.sets.add(names.full_done, names.full[parity]);
  const int late = state_.sets.first_missing(names.full_done, names.all_full_waits, state_.active);
  if (late >= 0 && !fault_) {
    fault_ = Fault{Witness::Fault::protocol,
                   fmt::format("fill {} of ring {} may be complete before {}, which then lags two phases", fill,
                               info.name, model_.describe(late))};
  }
}

void Machine::release(int index, RingId ring, int lag) {
  const Ring& info = model_.program[ring];
  const Place where = place(index, ring, lag);
  for (int block = 0; block < model_.blocks && !fault_; ++block) {
    if (!info.multicast && block != model_.block_of(index)) continue;
    reach(index, block);
    const int place_index = model_.ring_slot(block, ring, where.slot);
    const RingSlot& names = model_.ring_slots[at(place_index)];
    PhaseState& phase = state_.slots[at(place_index)].empty;
    const bool known_over = knows(index, names.empty[odd(floor_div(where.fill, info.depth) - 1)]);
    if (where.fill < 0 || phase.last != where.fill - info.depth || !known_over) {
      return fail(Witness::Fault::protocol, index,
                  fmt::format("releases fill {} of {} while the phase before it may not be over, or is not the last",
                              where.fill, info.name));
    }
    if ((phase.arrived & bit(index)) != 0) {
      return fail(Witness::Fault::protocol, index, fmt::format("releases fill {} of {} twice", where.fill, info.name));
    }
    phase.arrived |= bit(index);
    ++phase.arrivals;
    state_.sets.join(names.empty_gathering, model_.known(index));
    state_.sets.join(names.empty_gathering, model_.own(index));
    settle_empty(block, ring, where.slot);
  }
}

void Machine::settle_empty(int block, RingId ring, int slot_index) {
  const Ring& info = model_.program[ring];
  const int place_index = model_.ring_slot(block, ring, slot_index);
  const RingSlot& names = model_.ring_slots[at(place_index)];
  PhaseState& phase = state_.slots[at(place_index)].empty;
  if (phase.arrivals < info.empty_arrivals) return;
  const std::int64_t fill = phase.last + info.depth;
  const std::uint64_t arrived = phase.arrived;
  phase = {fill, 0, 0, 0, false};
  const std::size_t parity = odd(floor_div(fill, info.depth));
  state_.sets.clear(names.empty_done);
  state_.sets.join(names.empty_done, names.empty_gathering);
  state_.sets.clear(names.empty_gathering);
  happen(names.empty[parity]);
  state_.sets.add(names.empty_done, names.empty[parity]);
  if (info.empty_arrivals == 1) {  // who is the only one to arrive knows that the phase is over
    for (int lane = 0; lane < model_.lanes; ++lane) {
      if ((arrived & bit(lane)) != 0) state_.sets.add(model_.known(lane), names.empty[parity]);
    }
  }
  const int late = state_.sets.first_missing(names.empty_done, names.all_empty_waits, state_.active);
  if (late >= 0 && !fault_) {
    fault_ = Fault{Witness::Fault::protocol,
                   fmt::format("fill {} of ring {} may be released before {}, which then lags two phases", fill,
                               info.name, model_.describe(late))};
  }
}

// --- meetings ----------------------------------------------------------------------------------------------------

// Which generation an arrival counts to must not depend on timing: the last one must be known to be over.
Machine::Progress Machine::meet(int index, int meeting, bool stay) {
  const MeetingPlace& names = model_.meetings[at(meeting)];
  std::uint64_t& arrived = state_.arrived[at(meeting)];
  if ((arrived & bit(index)) != 0) {
    fail(Witness::Fault::protocol, index, "arrives a second time before the others have arrived once");
    return Progress::waits;
  }
  if (!knows(index, names.event)) {
    fail(Witness::Fault::protocol, index, "arrives, and the barrier's last meeting may not be over");
    return Progress::waits;
  }
  arrived |= bit(index);
  state_.sets.join(names.gathering, model_.known(index));
  state_.sets.join(names.gathering, model_.own(index));
  if (stay) {
    lane(index).mode = LaneMode::meeting;
    lane(index).meeting = meeting;
  }
  if (__builtin_popcountll(arrived) < names.participants) return Progress::advanced;
  arrived = 0;
  happen(names.event);
  state_.sets.add(names.gathering, names.event);
  for (int other = 0; other < model_.lanes; ++other) {
    LaneState& waiting = lane(other);
    if (waiting.mode != LaneMode::meeting || waiting.meeting != meeting) continue;
    state_.sets.join(model_.known(other), names.gathering);
    threads_meet(other);
    waiting.mode = LaneMode::running;
    waiting.meeting = -1;
    if (other != index) ++waiting.step;
  }
  state_.sets.clear(names.gathering);
  return Progress::advanced;
}

// All that single threads of the lane did is now before all that any of them does.
void Machine::threads_meet(int index) {
  state_.sets.join(model_.known(index), model_.own(index));
  state_.sets.clear(model_.own(index));
}

// The lane's own writes become visible to asynchronous units.
void Machine::fence(int index) {
  for (std::size_t i = 0; i < model_.locations.size(); ++i) {
    const Location& location = model_.locations[i];
    const ContentState& content = state_.contents[i];
    if (location.fence < 0 || content.writer != ContentState::Writer::threads || content.lane != index) continue;
    if (knows(index, location.write)) {
      state_.sets.add(model_.known(index), location.fence);
    } else {
      state_.sets.add(model_.own(index), location.fence);
    }
  }
}

}  // namespace pipethreader::verify
