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

void Cluster::settle(PhaseBarrier& barrier) {
  if (barrier.complete()) ++wakeups_;
}

// What a barrier hands on. All threads of an instance stand behind its arrivals and its waits: what they did before an
// arrival that comes back to them is over for all of them.
void Cluster::receive(Actor& actor, const VectorClock& clock) {
  actor.synced = std::max(actor.synced, clock[static_cast<Component>(actor.index)]);
  actor.clock.join(clock);
}

// An arrival meant for phase `phase`: the hardware counts it to whatever phase is current.
void Cluster::arrive(Actor& actor, PhaseBarrier& barrier, std::int64_t phase, const std::string& what) {
  if (barrier.phase != phase)
    return faults_.raise(FaultKind::protocol, fmt::format("arrives on {} for phase {}, but {}", what, phase,
                                                          state_of(barrier)));
  if (static_cast<int>(barrier.arrivers.size()) >= barrier.expected)
    return faults_.raise(FaultKind::protocol, fmt::format("one arrival too many on {}: {}", what, state_of(barrier)));
  barrier.gathering.join(actor.clock);
  barrier.arrivers.push_back(actor.index);
  settle(barrier);
}

Step Cluster::execute(Actor& actor, const Instr&, const RingAcquire& op) {
  const RingPlace place = place_in(actor, op.ring, 0);
  Block& block = blocks_[actor.block];
  const auto slot = static_cast<std::size_t>(place.slot);
  PhaseBarrier& empty = block.empty[at(op.ring)][slot];
  if (empty.phase == place.fill - 1) return Step::blocked;
  if (empty.phase != place.fill) {
    faults_.raise(FaultKind::protocol,
                  fmt::format("waits until ring '{}', slot {} is empty for fill {}, which its parity cannot tell: {}",
                              program_[op.ring].name, slot, place.fill, state_of(empty)));
    return Step::advanced;
  }
  if (place.fill > 0) receive(actor, empty.completed);
  actor.copies_of_fill[at(op.ring)] = 0;
  if (program_[op.ring].bytes == 0 || !launch_.fills_by_bulk(actor.role, op.ring)) return Step::advanced;
  PhaseBarrier& full = block.full[at(op.ring)][slot];
  full.bytes_due += program_[op.ring].bytes;
  arrive(actor, full, place.fill, fmt::format("'full' of ring '{}', slot {}", program_[op.ring].name, slot));
  return Step::advanced;
}

Step Cluster::execute(Actor& actor, const Instr&, const RingCommit& op) {
  const RingPlace place = place_in(actor, op.ring, 0);
  actor.fences.push_back(actor.now);
  arrive(actor, blocks_[actor.block].full[at(op.ring)][static_cast<std::size_t>(place.slot)], place.fill,
         fmt::format("'full' of ring '{}', slot {}", program_[op.ring].name, place.slot));
  return Step::advanced;
}

Step Cluster::execute(Actor& actor, const Instr&, const RingWait& op) {
  const RingPlace place = place_in(actor, op.ring, op.lag);
  const PhaseBarrier& full = blocks_[actor.block].full[at(op.ring)][static_cast<std::size_t>(place.slot)];
  if (full.phase == place.fill && place.fill >= 0) return Step::blocked;
  if (full.phase != place.fill + 1) {
    faults_.raise(FaultKind::protocol,
                  fmt::format("waits for fill {} of ring '{}', slot {}, which its parity cannot tell: {}", place.fill,
                              program_[op.ring].name, place.slot, state_of(full)));
    return Step::advanced;
  }
  receive(actor, full.completed);
  return Step::advanced;
}

Step Cluster::execute(Actor& actor, const Instr&, const RingRelease& op) {
  const RingPlace place = place_in(actor, op.ring, op.lag);
  const bool everywhere = program_[op.ring].multicast;
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    if (!everywhere && b != actor.block) continue;
    if (blocks_[b].running == 0)
      faults_.raise(FaultKind::protocol,
                    fmt::format("arrives on a barrier of block {}, which has already ended", b));
    PhaseBarrier& barrier = blocks_[b].empty[at(op.ring)][static_cast<std::size_t>(place.slot)];
    const std::string what = fmt::format("'empty' of ring '{}', slot {}", program_[op.ring].name, place.slot);
    if (std::ranges::find(barrier.arrivers, actor.index) != barrier.arrivers.end())
      faults_.raise(FaultKind::protocol, fmt::format("releases twice: {} of block {}", what, b));
    arrive(actor, barrier, place.fill, what);
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
  PhaseBarrier& full = blocks_[copy.block].full[at(copy.ring)][static_cast<std::size_t>(copy.target.slot)];
  if (full.phase != copy.target.fill)
    faults_.raise(FaultKind::protocol,
                  fmt::format("bytes for fill {} of ring '{}', slot {} arrive, but {}", copy.target.fill,
                              program_[copy.ring].name, copy.target.slot, state_of(full)));
  const std::int64_t bytes = static_cast<std::int64_t>(map.rows) * map.cols * bits(buffer.type) / 8;
  full.bytes_due -= bytes;
  full.bytes_seen += bytes;
  full.gathering.join(copy.issue.clock);
  full.gathering.raise(copy.issue.component, copy.issue.time);
  settle(full);
}

// --- meetings --------------------------------------------------------------------------------------------------------

Step Cluster::meet(Actor& actor, Meeting& meeting, bool wait) {
  if (!actor.meeting) {
    if (std::ranges::find(meeting.arrivers, actor.index) != meeting.arrivers.end()) {
      faults_.raise(FaultKind::protocol, "arrives a second time before the others have arrived once");
      return Step::advanced;
    }
    const std::int64_t generation = meeting.generation;
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
  faults_.raise(FaultKind::out_of_bounds,
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
