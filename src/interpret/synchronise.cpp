// Rings, named barriers, fences, and the waits for asynchronous work.
#include <algorithm>

#include "interpret/cluster.h"

namespace pipethreader::interpret {

using namespace program;

// --- phase barriers --------------------------------------------------------------------------------------------------

Cluster::RingPlace Cluster::place_in(const Actor& actor, RingId ring, int lag) const {
  const std::int64_t cursor = actor.cursors[at(ring)] - lag;
  const std::int64_t depth = program_[ring].depth;
  if (cursor < 0) return {static_cast<int>((cursor % depth + depth) % depth), -1};
  return {static_cast<int>(cursor % depth), cursor / depth};
}

PhaseBarrier& Cluster::barrier_at(const BarrierPlace& place) {
  Block& block = blocks_[place.block];
  return (place.full ? block.full : block.empty)[at(place.ring)][static_cast<std::size_t>(place.slot)];
}

std::string Cluster::name_of(const BarrierPlace& place) const {
  return fmt::format("'{}' of ring '{}', slot {}, of block {}", place.full ? "full" : "empty",
                     program_[place.ring].name, place.slot, place.block);
}

// Whoever has seen phase n must know, whatever the timing, that the phases before are over: parity tells two apart
// only.
bool Cluster::knows_phases(const VectorClock& clock, std::int64_t count, const BarrierPlace& place,
                           std::string_view what) {
  const PhaseBarrier& barrier = barrier_at(place);
  if (!launch_.options.detect_races || static_cast<std::int64_t>(clock[barrier.component]) >= count) return true;
  faults_.raise(FaultKind::protocol, fmt::format("{} {} in phase {}, and phase {} may not be over by then", what,
                                                 name_of(place), count, count - 1));
  return false;
}

void Cluster::settle(const BarrierPlace& place) {
  PhaseBarrier& barrier = barrier_at(place);
  if (!barrier.done()) return;
  const std::vector<std::size_t> arrivers = barrier.arrivers;
  const auto late = barrier.complete();
  ++wakeups_;
  if (place.full) check_filled(place, barrier.phase - 1);
  if (!place.full && barrier.expected == 1)  // the only one to arrive knows that the phase is over
    actors_[arrivers.front()].clock.raise(barrier.component, static_cast<Time>(barrier.phase));
  if (late && launch_.options.detect_races)
    faults_.raise(FaultKind::protocol,
                  fmt::format("phase {} of {} may be over before {} has waited for phase {}: it then lags two phases",
                              barrier.phase - 1, name_of(place), name_of(actors_[late->actor]), barrier.phase - 2));
}

void Cluster::check_filled(const BarrierPlace& place, std::int64_t fill) {
  for (std::size_t b = 0; b < program_.buffers.size(); ++b) {
    if (program_.buffers[b].ring != place.ring) continue;
    const SlotRef ref{BufferId(b), place.slot, fill};
    const std::int64_t held = blocks_[place.block].memory[ref].fill;
    if (held != fill)
      faults_.raise(FaultKind::wrong_value,
                    fmt::format("{} of block {} is complete, and holds {}", name_of(ref), place.block,
                                held < 0 ? "nothing" : fmt::format("fill {}", held)));
  }
}

// What a barrier hands on. All threads of an instance stand behind its arrivals and its waits: what they did before an
// arrival that comes back to them is over for all of them.
void Cluster::receive(Actor& actor, const VectorClock& clock) {
  actor.synced = std::max(actor.synced, clock[static_cast<Component>(actor.index)]);
  actor.clock.join(clock);
}

// An arrival meant for phase `phase`: the hardware counts it to whatever phase is current.
void Cluster::arrive(Actor& actor, std::int64_t phase, const BarrierPlace& place) {
  PhaseBarrier& barrier = barrier_at(place);
  if (!knows_phases(actor.clock, phase, place, "arrives on")) return;
  if (barrier.phase != phase)
    return faults_.raise(FaultKind::protocol,
                         fmt::format("arrives on {} for phase {}, but {}", name_of(place), phase, state_of(barrier)));
  if (static_cast<int>(barrier.arrivers.size()) >= barrier.expected)
    return faults_.raise(FaultKind::protocol,
                         fmt::format("one arrival too many on {}: {}", name_of(place), state_of(barrier)));
  barrier.gathering.join(actor.clock);
  barrier.arrivers.push_back(actor.index);
  settle(place);
}

// Until phase `phase` is over; phase -1 is over from the start. With only its parity to go by, a waiter can mistake
// phases two apart.
Step Cluster::wait(Actor& actor, std::int64_t phase, const BarrierPlace& place) {
  PhaseBarrier& barrier = barrier_at(place);
  if (!knows_phases(actor.clock, phase, place, "waits for")) return Step::advanced;
  if (barrier.phase == phase) return Step::blocked;
  if (barrier.phase != phase + 1) {
    faults_.raise(FaultKind::protocol, fmt::format("waits for phase {} of {}, which its parity cannot tell: {}", phase,
                                                   name_of(place), state_of(barrier)));
    return Step::advanced;
  }
  if (phase >= 0) receive(actor, barrier.completed);
  barrier.waits.push_back({actor.index, actor.now});
  return Step::advanced;
}

void Cluster::reach(const Actor& actor, std::size_t block) {
  if (actor.block == block) return;
  if (blocks_[block].running == 0)
    faults_.raise(FaultKind::protocol, fmt::format("touches block {}, which has already ended", block));
  blocks_[block].reached_from[actor.index] = actor.now;
}

Step Cluster::execute(Actor& actor, const Instr&, const RingAcquire& op) {
  const RingPlace place = place_in(actor, op.ring, 0);
  if (wait(actor, place.fill - 1, {actor.block, op.ring, place.slot, false}) == Step::blocked) return Step::blocked;
  actor.copies_of_fill[at(op.ring)] = 0;
  if (program_[op.ring].bytes == 0 || !launch_.fills_by_bulk(actor.role, op.ring) || faults_.any())
    return Step::advanced;
  const BarrierPlace full{actor.block, op.ring, place.slot, true};
  barrier_at(full).bytes_due += program_[op.ring].bytes;
  arrive(actor, place.fill, full);
  return Step::advanced;
}

Step Cluster::execute(Actor& actor, const Instr&, const RingCommit& op) {
  const RingPlace place = place_in(actor, op.ring, 0);
  actor.fences.push_back(actor.now);
  arrive(actor, place.fill, {actor.block, op.ring, place.slot, true});
  return Step::advanced;
}

Step Cluster::execute(Actor& actor, const Instr&, const RingWait& op) {
  const RingPlace place = place_in(actor, op.ring, op.lag);
  return wait(actor, place.fill, {actor.block, op.ring, place.slot, true});
}

Step Cluster::execute(Actor& actor, const Instr&, const RingRelease& op) {
  const RingPlace place = place_in(actor, op.ring, op.lag);
  for (std::size_t b = 0; b < blocks_.size() && !faults_.any(); ++b) {
    if (!program_[op.ring].multicast && b != actor.block) continue;
    reach(actor, b);
    const BarrierPlace empty{b, op.ring, place.slot, false};
    if (std::ranges::find(barrier_at(empty).arrivers, actor.index) != barrier_at(empty).arrivers.end())
      faults_.raise(FaultKind::protocol, fmt::format("releases twice: {}", name_of(empty)));
    arrive(actor, place.fill, empty);
  }
  return Step::advanced;
}

Step Cluster::execute(Actor& actor, const Instr&, const RingAdvance& op) {
  ++actor.cursors[at(op.ring)];
  return Step::advanced;
}

// A bulk copy has arrived completely: its bytes count towards the phase.
void Cluster::count_bytes(const BulkRead& copy) {
  const Buffer& buffer = program_[copy.target.buffer];
  const ResolvedMap& map = launch_.maps[at(copy.map)];
  const BarrierPlace place{copy.block, copy.ring, copy.target.slot, true};
  PhaseBarrier& full = barrier_at(place);
  if (!knows_phases(copy.issue.clock, copy.target.fill, place, "counts bytes on")) return;
  if (full.phase != copy.target.fill)
    return faults_.raise(FaultKind::protocol, fmt::format("counts bytes on {} for phase {}, but {}", name_of(place),
                                                          copy.target.fill, state_of(full)));
  const std::int64_t bytes = static_cast<std::int64_t>(map.rows) * map.cols * bits(buffer.type) / 8;
  full.bytes_due -= bytes;
  full.bytes_seen += bytes;
  full.gathering.join(copy.issue.clock);
  full.gathering.raise(copy.issue.component, copy.issue.time);
  settle(place);
}

// --- meetings --------------------------------------------------------------------------------------------------------

Step Cluster::meet(Actor& actor, Meeting& meeting, bool wait) {
  if (!actor.meeting) {
    if (std::ranges::find(meeting.arrivers, actor.index) != meeting.arrivers.end()) {
      faults_.raise(FaultKind::protocol, "arrives a second time before the others have arrived once");
      return Step::advanced;
    }
    const std::int64_t generation = meeting.generation;
    if (launch_.options.detect_races && static_cast<std::int64_t>(actor.clock[meeting.component]) < generation) {
      faults_.raise(FaultKind::protocol, "arrives, and the barrier's last meeting may not be over by then");
      return Step::advanced;
    }
    meeting.gathering.join(actor.clock);
    meeting.arrivers.push_back(actor.index);
    if (meeting.complete()) ++wakeups_;
    if (!wait) return Step::advanced;
    actor.meeting = generation;
  }
  if (meeting.generation == *actor.meeting) return Step::blocked;
  actor.meeting.reset();
  receive(actor, meeting.completed);
  return Step::advanced;
}

Meeting* Cluster::meeting_of(Actor& actor, BarrierId barrier, const std::optional<ExprId>& index) {
  std::vector<Meeting>& meetings = blocks_[actor.block].barriers[at(barrier)];
  const std::int64_t i = index ? uniforms(actor).integer(*index) : 0;
  if (i >= 0 && i < static_cast<std::int64_t>(meetings.size())) return &meetings[static_cast<std::size_t>(i)];
  faults_.raise(outside(),
                fmt::format("barrier '{}' has {}, and {} is used", program_[barrier].name, meetings.size(), i));
  return nullptr;
}

Step Cluster::execute(Actor& actor, const Instr&, const BarrierSync& op) {
  Meeting* meeting = meeting_of(actor, op.barrier, op.index);
  return meeting == nullptr ? Step::advanced : meet(actor, *meeting, true);
}

Step Cluster::execute(Actor& actor, const Instr&, const BarrierArrive& op) {
  Meeting* meeting = meeting_of(actor, op.barrier, op.index);
  return meeting == nullptr ? Step::advanced : meet(actor, *meeting, false);
}

Step Cluster::execute(Actor& actor, const Instr&, const ClusterSync&) { return meet(actor, everybody_, true); }

Step Cluster::execute(Actor& actor, const Instr&, const ProxyFence&) {
  actor.fences.push_back(actor.now);
  return Step::advanced;
}

// --- asynchronous work -----------------------------------------------------------------------------------------------

Step Cluster::execute(Actor& actor, const Instr&, const BulkStoreWait& op) {
  const auto pending = static_cast<std::size_t>(op.pending);
  if (actor.stores.size() <= pending) return Step::advanced;
  const auto last = actor.stores.end() - static_cast<std::ptrdiff_t>(pending);
  if (std::any_of(actor.stores.begin(), last, [](const auto& store) { return !store.second; })) return Step::blocked;
  actor.clock.raise(store_reads(actor), std::prev(last)->first);
  actor.stores.erase(actor.stores.begin(), last);
  return Step::advanced;
}

Step Cluster::execute(Actor& actor, const Instr&, const MmaCommit&) {
  for (Product& product : actor.products)
    if (product.group < 0) product.group = actor.groups;
  ++actor.groups;
  return Step::advanced;
}

Step Cluster::execute(Actor& actor, const Instr& instr, const MmaWait& op) {
  if (op.pin && execute(actor, instr, *op.pin) == Step::blocked) return Step::blocked;
  const std::int64_t first_pending = actor.groups - op.pending;
  const auto covered = [&](const Product& p) { return p.group >= 0 && p.group < first_pending; };
  if (std::ranges::any_of(actor.products, [&](const Product& p) { return covered(p) && !p.done; }))
    return Step::blocked;
  while (!actor.products.empty() && covered(actor.products.front())) {
    actor.clock.raise(tensor_queue(actor), actor.products.front().issue.time);
    actor.products.pop_front();
  }
  return Step::advanced;
}

}  // namespace pipethreader::interpret
