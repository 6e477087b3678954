// Machine: what touches shared memory and fragments, by threads, by the tensor core, by the copy engine.
#include <algorithm>

#include "verify/machine.h"

namespace pipethreader::verify {
namespace {

using namespace program;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

// An event has happened anew: nobody is behind it yet.
void Machine::happen(int event) {
  state_.active.set(event);
  state_.sets.forget(event);
}

// `missing` is an event that the lane should be behind and is not; -1: none.
bool Machine::ordered(int index, int missing, const char* what, const Buffer& buffer) {
  if (missing < 0) return true;
  fail(Witness::Fault::race, index,
       fmt::format("{} {}, and nothing orders it behind {}", what, buffer.name, model_.describe(missing)));
  return false;
}

Machine::Place Machine::place_of(int index, const BufferRef& ref) {
  const RingId ring = model_.program[ref.buffer].ring;
  if (!ring.valid()) return {0, 0};
  const Place where = place(index, ring, ref.lag);
  if (where.fill < 0) {
    fail(Witness::Fault::wrong_value, index,
         fmt::format("uses {} with lag {} at cursor {}: that fill never was", model_.program[ref.buffer].name, ref.lag,
                     where.fill + ref.lag));
  }
  return where;
}

void Machine::write(int index, int block, const SharedAccess& access, const Place& where, bool by_copy) {
  const Buffer& buffer = model_.program[access.ref.buffer];
  const int first = model_.location(block, access.ref.buffer, where.slot);
  for (const int atom : access.atoms) {
    const Location& location = model_.locations[at(first + atom)];
    ContentState& content = state_.contents[at(first + atom)];
    const int missing = state_.sets.first_missing(model_.known(index), location.accesses, state_.active);
    if (!ordered(index, missing, "writes", buffer)) return;
    const bool written = content.writer != ContentState::Writer::none;
    if (by_copy && content.writer == ContentState::Writer::threads && !knows(index, location.fence)) {
      return fail(Witness::Fault::race, index,
                  fmt::format("the copy engine writes {} and nothing orders it behind {}", buffer.name,
                              model_.describe(location.fence)));
    }
    if (buffer.ring.valid() && written && content.fill > where.fill) {
      return fail(
          Witness::Fault::wrong_value, index,
          fmt::format("writes fill {} of {}, which holds fill {} already", where.fill, buffer.name, content.fill));
    }
    location.accesses.for_each([&](int event) { state_.active.reset(event); });
    happen(location.write);
    if (location.fence >= 0) {
      state_.sets.forget(location.fence);
      by_copy ? state_.active.reset(location.fence) : state_.active.set(location.fence);
    }
    content = {by_copy ? ContentState::Writer::copy : ContentState::Writer::threads, index, where.fill};
    if (!by_copy) state_.sets.add(model_.own(index), location.write);
  }
}

// kind: 0 threads, 1 the tensor core, 2 a bulk store; the reads of asynchronous units go `into` what waits for them.
void Machine::read(int index, const SharedAccess& access, const Place& where, int kind, Bits* into) {
  const Buffer& buffer = model_.program[access.ref.buffer];
  const int block = model_.block_of(index);
  const int first = model_.location(block, access.ref.buffer, where.slot);
  for (const int atom : access.atoms) {
    const Location& location = model_.locations[at(first + atom)];
    const ContentState& content = state_.contents[at(first + atom)];
    const bool written = content.writer != ContentState::Writer::none;
    if (!written || (buffer.ring.valid() && content.fill != where.fill)) {
      const bool early = buffer.ring.valid() &&
                         state_.slots[at(model_.ring_slot(block, buffer.ring, where.slot))].full.last < where.fill;
      return fail(early ? Witness::Fault::race : Witness::Fault::wrong_value, index,
                  fmt::format("reads {}{}, which holds {}{}", buffer.name,
                              buffer.ring.valid() ? fmt::format(" expecting fill {}", where.fill) : "",
                              written ? fmt::format("fill {}", content.fill) : "nothing yet",
                              early ? "; nothing makes it wait for that fill" : ""));
    }
    const bool needs_fence = kind != 0 && content.writer == ContentState::Writer::threads;
    const int missing = !knows(index, location.write)                  ? location.write
                        : needs_fence && !knows(index, location.fence) ? location.fence
                                                                       : -1;
    if (!ordered(index, missing, "reads", buffer)) return;
    const int event = location.reads[at(kind)][at(index)];
    happen(event);
    if (into != nullptr) {
      into->set(event);
    } else {
      state_.sets.add(model_.own(index), event);
    }
  }
}

// The instance's threads exchange values through the buffer, with barriers of their own around it.
void Machine::scratch(int index, const SharedAccess& access) {
  const Place where = place_of(index, access.ref);
  const int first = model_.location(model_.block_of(index), access.ref.buffer, where.slot);
  for (const int atom : access.atoms) {
    const Location& location = model_.locations[at(first + atom)];
    location.accesses.for_each([&](int event) {
      if (state_.sets.has(model_.own(index), event)) state_.sets.add(model_.known(index), event);
    });
  }
  write(index, model_.block_of(index), access, where, false);
  threads_meet(index);
}

// --- bulk copies and stores --------------------------------------------------------------------------------------

void Machine::copy(int index, const Step& now, const CopyBulk& op) {
  const SharedAccess& access = now.shared[0];
  const Place where = place_of(index, access.ref);
  const RingId ring = model_.program[access.ref.buffer].ring;
  for (int block = 0; block < model_.blocks && !fault_; ++block) {
    if (!model_.program[ring].multicast && block != model_.block_of(index)) continue;
    reach(index, block);
    if (fault_) return;
    write(index, block, access, where, true);
    if (fault_) return;
    copy_arrives(index, block, op, where);
  }
}

// The copy's bytes count to the phase of its fill once it is complete; who waits for the phase is then behind it.
void Machine::copy_arrives(int index, int block, const CopyBulk& op, const Place& where) {
  const Buffer& buffer = model_.program[op.target.buffer];
  const Ring& ring = model_.program[buffer.ring];
  const int place_index = model_.ring_slot(block, buffer.ring, where.slot);
  const RingSlot& names = model_.ring_slots[at(place_index)];
  PhaseState& phase = state_.slots[at(place_index)].full;
  const auto previous = static_cast<std::size_t>(floor_mod(floor_div(where.fill, ring.depth) - 1, 2));
  if (phase.last != where.fill - ring.depth || !knows(index, names.full[previous])) {
    return fail(Witness::Fault::protocol, index,
                fmt::format("its bytes may count to another phase than that of fill {} of {}", where.fill, ring.name));
  }
  std::int64_t elements = 1;
  for (const auto& dim : model_.program[op.map].dims) elements *= dim.box;
  phase.bytes_due -= elements * bits(buffer.type) / 8;
  phase.announced = true;
  state_.sets.join(names.full_gathering, model_.known(index));
  const int first = model_.location(block, op.target.buffer, where.slot);
  for (int atom = 0; atom < model_.compiled.atom_counts[at(op.target.buffer.index)]; ++atom) {
    const ContentState& content = state_.contents[at(first + atom)];
    const bool own =
        content.writer == ContentState::Writer::copy && content.lane == index && content.fill == where.fill;
    if (own) state_.sets.add(names.full_gathering, model_.locations[at(first + atom)].write);
  }
  settle_full(block, buffer.ring, where.slot);
}

void Machine::store(int index, const Step& now) {
  const SharedAccess& access = now.shared[0];
  const Place where = place_of(index, access.ref);
  if (fault_) return;
  Bits& reads = lane(index).stores.emplace_back(static_cast<int>(model_.events.size()));
  read(index, access, where, 2, &reads);
  if (lane(index).stores.size() > 32) {
    fail(Witness::Fault::protocol, index, "more than 32 bulk stores are not waited for");
  }
}

void Machine::wait_stores(int index, int pending) {
  auto& stores = lane(index).stores;
  while (static_cast<int>(stores.size()) > pending) {
    Bits done = std::move(stores.front());
    stores.pop_front();
    for (const Bits& younger : stores) done.remove(younger);
    state_.sets.join(model_.known(index), done);
  }
}

// --- products ----------------------------------------------------------------------------------------------------

Machine::Progress Machine::product(int index, const Step& now, const Mma& op) {
  LaneState& self = lane(index);
  const auto in_flight = [&](int fragment, Bits Group::*kind) {
    return (self.open.*kind).has(fragment) ||
           std::any_of(self.groups.begin(), self.groups.end(), [&](const Group& g) { return (g.*kind).has(fragment); });
  };
  const bool defined = self.defined.has(op.accumulator.index);
  const bool written_now = in_flight(op.accumulator.index, &Group::accumulators);
  if (!defined || written_now) {  // only then it matters whether it adds or overwrites
    OpenPoint point;
    const Answer accumulates = decider_.answer(index, now.question, point);
    if (accumulates == Answer::open) {
      open_[at(index)] = point;
      return Progress::open;
    }
    if (accumulates == Answer::yes && !defined) {
      fail(Witness::Fault::wrong_value, index,
           fmt::format("adds to {}, which nobody has written", fragment_name(op.accumulator.index)));
    }
    if (accumulates == Answer::no && written_now) {
      fail(Witness::Fault::protocol, index,
           fmt::format("overwrites {} while a product may still write it", fragment_name(op.accumulator.index)));
    }
  }
  if (in_flight(op.accumulator.index, &Group::operands)) {
    fail(Witness::Fault::protocol, index,
         fmt::format("overwrites {} while a product may still read it", fragment_name(op.accumulator.index)));
  }
  for (const Operand* operand : {&op.a, &op.b}) {
    if (!operand->in_registers || fault_) continue;
    const int fragment = operand->fragment.index;
    if (!self.defined.has(fragment)) {
      fail(Witness::Fault::wrong_value, index,
           fmt::format("reads {}, which nobody has written", fragment_name(fragment)));
    }
    if (in_flight(fragment, &Group::accumulators)) {
      fail(Witness::Fault::protocol, index,
           fmt::format("reads {} while a product may still write it", fragment_name(fragment)));
    }
    self.open.operands.set(fragment);
  }
  for (const SharedAccess& access : now.shared) {
    if (fault_) break;
    const Place where = place_of(index, access.ref);
    if (!fault_) read(index, access, where, 1, &self.open.reads);
  }
  self.open.accumulators.set(op.accumulator.index);
  self.defined.set(op.accumulator.index);
  return fault_ ? Progress::waits : Progress::advanced;
}

void Machine::wait_products(int index, int pending) {
  auto& groups = lane(index).groups;
  while (static_cast<int>(groups.size()) > pending) {
    Bits done = std::move(groups.front().reads);
    groups.pop_front();
    for (const Group& younger : groups) done.remove(younger.reads);
    done.remove(lane(index).open.reads);
    state_.sets.join(model_.known(index), done);
  }
}

// --- fragments ---------------------------------------------------------------------------------------------------

std::string Machine::fragment_name(int fragment) const { return model_.program.fragments[at(fragment)].name; }

void Machine::read_fragment(int index, int fragment) {
  const LaneState& self = lane(index);
  if (!self.defined.has(fragment)) {
    return fail(Witness::Fault::wrong_value, index,
                fmt::format("reads {}, which nobody has written", fragment_name(fragment)));
  }
  touch_fragment(index, fragment);
}

// Neither accumulators nor operands of a product that may be unfinished may be touched.
void Machine::touch_fragment(int index, int fragment) {
  const LaneState& self = lane(index);
  const auto uses = [&](const Group& group) {
    return group.accumulators.has(fragment) || group.operands.has(fragment);
  };
  if (uses(self.open) || std::any_of(self.groups.begin(), self.groups.end(), uses)) {
    fail(Witness::Fault::protocol, index,
         fmt::format("touches {} while a product may still use it", fragment_name(fragment)));
  }
}

void Machine::write_fragment(int index, int fragment, bool conditional) {
  touch_fragment(index, fragment);
  if (!conditional) lane(index).defined.set(fragment);
}

void Machine::touch_fragments(int index, const Step& now) {
  for (const int fragment : now.reads) read_fragment(index, fragment);
  for (const int fragment : now.writes) write_fragment(index, fragment, now.conditional);
  if (lane(index).groups.size() > 32)
    fail(Witness::Fault::protocol, index, "more than 32 groups of products are not waited for");
}

}  // namespace pipethreader::verify
