#include "verify/model.h"

#include <algorithm>
#include <map>

namespace pipethreader::verify {
namespace {

using namespace program;

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

enum ReadKind { by_threads = 0, by_mma = 1, by_store = 2 };

// How a step reads shared memory (-1: not), and whether threads write it.
struct AccessKind {
  int read = -1;
  bool threads_write = false;
};

AccessKind kind_of(const Instr& instr) {
  if (std::holds_alternative<LoadShared>(instr.op)) return {by_threads, false};
  if (std::holds_alternative<Mma>(instr.op)) return {by_mma, false};
  if (std::holds_alternative<BulkStore>(instr.op)) return {by_store, false};
  if (std::holds_alternative<CopyBulk>(instr.op)) return {-1, false};
  return {-1, true};
}

}  // namespace

Model::Model(const Program& p, Terms& t, Compiled c, std::int64_t largest)
    : program(p), terms(t), compiled(std::move(c)), blocks(p.cluster), lanes(static_cast<int>(compiled.codes.size())) {
  lanes_of_block = lanes / blocks;
  sets = 2 * lanes;
  find_uses();
  add_locations();
  add_rings();
  add_meetings();
  find_askers();
  choose_thresholds(largest);
  find_comparisons();
  for (Location& location : locations) {
    location.accesses = Bits(static_cast<int>(events.size()));
    location.accesses.set(location.write);
    for (const auto& reads : location.reads) {
      for (const int event : reads) {
        if (event >= 0) location.accesses.set(event);
      }
    }
  }
  for (RingSlot& slot : ring_slots) {
    slot.all_full_waits = Bits(static_cast<int>(events.size()));
    slot.all_empty_waits = Bits(static_cast<int>(events.size()));
    for (const int event : slot.full_waits) {
      if (event >= 0) slot.all_full_waits.set(event);
    }
    for (const int event : slot.empty_waits) {
      if (event >= 0) slot.all_empty_waits.set(event);
    }
  }
}

int Model::add(Event event) {
  events.push_back(event);
  return static_cast<int>(events.size()) - 1;
}

void Model::find_uses() {
  buffers_of_ring.resize(program.rings.size());
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    if (program.buffers[b].ring.valid())
      buffers_of_ring[at(program.buffers[b].ring.index)].push_back(static_cast<int>(b));
  }
  for (const Code& code : compiled.codes) {
    auto& uses = uses_ring.emplace_back(program.rings.size(), false);
    auto& fills = fills_by_bulk.emplace_back(program.rings.size(), false);
    for (const Step& step : code.steps) {
      if (step.instr == nullptr) continue;
      const auto use = [&](RingId ring) { uses[at(ring.index)] = true; };
      std::visit(
          [&](const auto& op) {
            using Op = std::remove_cvref_t<decltype(op)>;
            if constexpr (requires { op.ring; }) use(op.ring);
            if constexpr (std::is_same_v<Op, MmaWait>) {
              if (op.pin) use(op.pin->ring);
            }
            if constexpr (std::is_same_v<Op, ForWork>) order = op.order;
          },
          step.instr->op);
      for (const SharedAccess& access : step.shared) {
        const RingId ring = program[access.ref.buffer].ring;
        if (!ring.valid()) continue;
        use(ring);
        if (std::holds_alternative<CopyBulk>(step.instr->op)) fills[at(ring.index)] = true;
      }
    }
  }
}

void Model::add_locations() {
  // Which lane reads which buffer how; which buffers threads write.
  std::vector<std::vector<std::array<bool, 3>>> read(program.buffers.size());
  for (auto& lanes_of : read) lanes_of.resize(static_cast<std::size_t>(lanes), {false, false, false});
  std::vector<bool> threads_write(program.buffers.size(), false);
  for (int lane = 0; lane < lanes; ++lane) {
    for (const Step& step : code(lane).steps) {
      for (const SharedAccess& access : step.shared) {
        const AccessKind kind = kind_of(*step.instr);
        const std::size_t buffer = at(access.ref.buffer.index);
        if (kind.read >= 0) read[buffer][static_cast<std::size_t>(lane)][static_cast<std::size_t>(kind.read)] = true;
        if (kind.threads_write) threads_write[buffer] = true;
      }
    }
  }
  static constexpr Event::Kind read_kinds[] = {Event::Kind::read, Event::Kind::mma_read, Event::Kind::store_read};
  for (int block = 0; block < blocks; ++block) {
    for (std::size_t b = 0; b < program.buffers.size(); ++b) {
      if (block == 0) first_location_of_buffer.push_back(static_cast<int>(locations.size()));
      for (int slot = 0; slot < program.buffers[b].slots; ++slot) {
        for (int atom = 0; atom < compiled.atom_counts[b]; ++atom) {
          Location location;
          const Event event{Event::Kind::write, block, static_cast<int>(b), slot, atom, -1};
          location.write = add(event);
          Event fence = event;
          fence.kind = Event::Kind::fence;
          if (threads_write[b]) location.fence = add(fence);
          for (std::size_t k = 0; k < 3; ++k) {
            location.reads[k].assign(static_cast<std::size_t>(lanes), -1);
            for (int lane = 0; lane < lanes; ++lane) {
              if (block_of(lane) != block || !read[b][static_cast<std::size_t>(lane)][k]) continue;
              Event of_lane = event;
              of_lane.kind = read_kinds[k];
              of_lane.lane = lane;
              location.reads[k][static_cast<std::size_t>(lane)] = add(of_lane);
            }
          }
          locations.push_back(std::move(location));
        }
      }
    }
    if (block == 0) locations_of_block = static_cast<int>(locations.size());
  }
}

void Model::add_rings() {
  for (int block = 0; block < blocks; ++block) {
    for (std::size_t r = 0; r < program.rings.size(); ++r) {
      if (block == 0) first_slot_of_ring.push_back(static_cast<int>(ring_slots.size()));
      for (int s = 0; s < program.rings[r].depth; ++s) {
        RingSlot slot;
        Event event{Event::Kind::full, block, static_cast<int>(r), s, 0, -1};
        for (int parity = 0; parity < 2; ++parity) {
          event.atom = parity;
          event.kind = Event::Kind::full;
          slot.full[at(parity)] = add(event);
          event.kind = Event::Kind::empty;
          slot.empty[at(parity)] = add(event);
        }
        event.atom = 0;
        for (int lane = 0; lane < lanes; ++lane) {
          const bool uses = block_of(lane) == block && uses_ring[at(lane)][r];
          event.lane = lane;
          event.kind = Event::Kind::full_wait;
          slot.full_waits.push_back(uses ? add(event) : -1);
          event.kind = Event::Kind::empty_wait;
          slot.empty_waits.push_back(uses ? add(event) : -1);
        }
        slot.full_gathering = sets++;
        slot.full_done = sets++;
        slot.empty_gathering = sets++;
        slot.empty_done = sets++;
        ring_slots.push_back(std::move(slot));
      }
    }
    if (block == 0) ring_slots_of_block = static_cast<int>(ring_slots.size());
  }
}

void Model::add_meetings() {
  for (int block = 0; block < blocks; ++block) {
    for (std::size_t b = 0; b < program.barriers.size(); ++b) {
      if (block == 0) first_meeting_of_barrier.push_back(static_cast<int>(meetings.size()));
      for (int index = 0; index < program.barriers[b].count; ++index) {
        const int event = add({Event::Kind::meeting, block, static_cast<int>(b), index, 0, -1});
        meetings.push_back({program.barriers[b].participants, event, sets++});
      }
    }
    if (block == 0) meetings_of_block = static_cast<int>(meetings.size());
  }
  meetings.push_back({lanes, add({Event::Kind::meeting, 0, -1, 0, 0, -1}), sets++});
  for (int block = 0; block < blocks; ++block) {
    auto& of_block = remote.emplace_back();
    for (int lane = 0; lane < lanes; ++lane) {
      of_block.push_back(block_of(lane) == block ? -1 : add({Event::Kind::remote, block, 0, 0, 0, lane}));
    }
  }
}

namespace {

// What a lane's code has to do with.
struct Dealings {
  std::vector<bool> touches;  // by BufferId
  std::vector<bool> writes;   // by BufferId
  std::vector<bool> meets;    // by BarrierId; last: the cluster
};

Dealings dealings_of(const Program& program, const Code& code) {
  Dealings result;
  result.touches.resize(program.buffers.size());
  result.writes.resize(program.buffers.size());
  result.meets.resize(program.barriers.size() + 1);
  for (const Step& step : code.steps) {
    if (step.instr == nullptr) continue;
    for (const SharedAccess& access : step.shared) {
      result.touches[at(access.ref.buffer.index)] = true;
      if (kind_of(*step.instr).read < 0) result.writes[at(access.ref.buffer.index)] = true;
    }
    if (const auto* sync = std::get_if<BarrierSync>(&step.instr->op)) result.meets[at(sync->barrier.index)] = true;
    if (const auto* arrive = std::get_if<BarrierArrive>(&step.instr->op))
      result.meets[at(arrive->barrier.index)] = true;
    if (std::holds_alternative<ClusterSync>(step.instr->op)) result.meets.back() = true;
  }
  return result;
}

}  // namespace

// Who touches a buffer, uses a ring or meets at a barrier asks about its events; only who writes a buffer asks about
// reads of it. What is multicast concerns lanes of all blocks.
void Model::find_askers() {
  std::vector<Dealings> dealings;
  for (const Code& code : compiled.codes) dealings.push_back(dealings_of(program, code));
  const auto asks = [&](const Event& event, int lane) {
    const Dealings& own = dealings[at(lane)];
    const bool same_block = block_of(lane) == event.block;
    const auto multicast = [&](RingId ring) { return ring.valid() && program[ring].multicast; };
    switch (event.kind) {
      case Event::Kind::write:
      case Event::Kind::fence:
      case Event::Kind::read:
      case Event::Kind::mma_read:
      case Event::Kind::store_read: {
        const std::size_t buffer = at(event.object);
        const bool concerned = same_block || multicast(program.buffers[buffer].ring);
        const bool any_access = event.kind == Event::Kind::write || event.kind == Event::Kind::fence;
        return concerned && (any_access ? own.touches : own.writes)[buffer];
      }
      case Event::Kind::full:
      case Event::Kind::empty:
      case Event::Kind::full_wait:
      case Event::Kind::empty_wait:
        return (same_block || multicast(RingId(at(event.object)))) && uses_ring[at(lane)][at(event.object)];
      case Event::Kind::meeting:
        return event.object < 0 ? own.meets.back() : same_block && own.meets[at(event.object)];
      case Event::Kind::remote:
        return true;
    }
    return true;
  };
  std::map<std::vector<int>, Bits> by_lanes;
  for (std::size_t e = 0; e < events.size(); ++e) {
    std::vector<int> asking;
    for (int lane = 0; lane < lanes; ++lane) {
      if (asks(events[e], lane)) asking.push_back(lane);
    }
    auto group = by_lanes.try_emplace(std::move(asking), static_cast<int>(events.size())).first;
    group->second.set(static_cast<int>(e));
  }
  for (auto& [asking, members] : by_lanes) {
    if (!asking.empty()) askers.push_back({asking, std::move(members)});
  }
}

// Integers are told apart as far as conditions compare them with constants, differences as far as rings allow one lane
// to lead another. What is larger is unknown; large constants get a name, so that all lanes mean the same by them.
void Model::choose_thresholds(std::int64_t largest) {
  constexpr std::int64_t exact = std::int64_t{1} << 24;
  constexpr std::size_t most_names = 8;
  int depth = 1;
  for (const Ring& ring : program.rings) depth = std::max(depth, ring.depth);
  std::int64_t small = 1;
  if (largest > 2) {
    auto& all = compiled.constants;
    all.insert(all.end(), compiled.constants_of_plain.begin(), compiled.constants_of_plain.end());
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
  }
  for (const std::int64_t c : compiled.constants) {
    if (c <= largest) small = std::max(small, c);
  }
  if (largest >= exact) small = exact;
  largest_value = static_cast<int>(small) + 1;
  largest_difference = largest_value + depth + 2;
  for (const std::int64_t c : compiled.constants) {
    if (c > largest_value && large_constants.size() < most_names) large_constants.push_back(c);
  }
}

// --- which integers are compared ---------------------------------------------------------------------------------

void Model::find_comparisons() {
  kinds = static_cast<int>(large_constants.size());
  for (const Code& c : compiled.codes) {
    first_kind_of_lane.push_back(kinds);
    kinds += static_cast<int>(c.loops.size());
  }
  first_kind_of_pattern = kinds;
  kinds += terms.pattern_count();
  comparisons.assign(at(kinds) * at(kinds), false);
  for (int lane = 0; lane < lanes; ++lane) {
    const auto& steps = code(lane).steps;
    for (std::size_t s = 0; s < steps.size(); ++s) {
      note_comparisons(lane, static_cast<int>(s), steps[s].question);
      if (steps[s].what == Do::loop_enter) note_start(lane, static_cast<int>(s), steps[s].start);
    }
  }
  // Counters that are compared with the same thing run towards the same end: how far one is ahead matters.
  for (int a = 0; a < first_kind_of_pattern; ++a) {
    for (int b = 0; b < a; ++b) {
      for (int other = 0; other < kinds; ++other) {
        const bool third = other < first_kind_of_lane[0] || other >= first_kind_of_pattern;
        if (third && compared(a, other) && compared(b, other)) note_comparison(a, b);
      }
    }
  }
}

void Model::note_comparison(int kind, int other) {
  if (kind < 0 || other < 0) return;
  comparisons[at(kind) * at(kinds) + at(other)] = true;
  comparisons[at(other) * at(kinds) + at(kind)] = true;
}

int Model::kind_of_atom(int lane, int step, int id) const {
  const Atom& atom = terms.atom(id);
  if (atom.pattern >= 0) return kind_of_pattern(atom.pattern);
  if (atom.kind != Atom::Kind::counter) return -1;
  const int loop = loop_around(code(lane), step, atom.index);
  return loop < 0 ? -1 : kind_of_loop(lane, loop);
}

void Model::note_comparisons(int lane, int step, const Question& question) {
  for (const Question& part : question.parts) note_comparisons(lane, step, part);
  if (question.kind != Question::Kind::leaf) return;
  note_comparisons(lane, step, question.leaf.sum);
  note_comparisons(lane, step, question.leaf.parts);
}

void Model::note_comparisons(int lane, int step, const Linear& sum) {
  for (const auto& [atom, coefficient] : sum.terms) {
    const int kind = kind_of_atom(lane, step, atom);
    for (const auto& [other, other_coefficient] : sum.terms) {
      if (other != atom) note_comparison(kind, kind_of_atom(lane, step, other));
    }
    for (std::size_t c = 0; c < large_constants.size(); ++c) {
      if (large_constants[c] == std::abs(sum.constant)) note_comparison(kind, kind_of_constant(static_cast<int>(c)));
    }
  }
}

void Model::note_start(int lane, int step, const Value& start) {
  for (const Question& condition : start.condition) note_comparisons(lane, step, condition);
  for (const Value& part : start.parts) note_start(lane, step, part);
  if (start.atom >= 0) {
    note_comparison(kind_of_loop(lane, code(lane).steps[at(step)].loop), kind_of_atom(lane, step, start.atom));
  }
}

int Model::location(int block, BufferId buffer, int slot) const {
  return block * locations_of_block + first_location_of_buffer[at(buffer.index)] +
         slot * compiled.atom_counts[at(buffer.index)];
}
int Model::ring_slot(int block, RingId ring, int slot) const {
  return block * ring_slots_of_block + first_slot_of_ring[at(ring.index)] + slot;
}
int Model::meeting(int block, BarrierId barrier, int index) const {
  return block * meetings_of_block + first_meeting_of_barrier[at(barrier.index)] + index;
}

std::string Model::describe(int id) const {
  const Event& event = events[at(id)];
  const std::string block = blocks > 1 ? fmt::format(" of block {}", event.block) : "";
  const auto place = [&] {
    const Buffer& buffer = program.buffers[at(event.object)];
    const Rectangle& part = compiled.atoms[at(event.object)][at(event.atom)];
    std::string text = fmt::format("{} slot {}{}", buffer.name, event.slot, block);
    if (compiled.atom_counts[at(event.object)] > 1) {
      text += fmt::format(", rows {}..{}, columns {}..{}", part.row_begin, part.row_end - 1, part.col_begin,
                          part.col_end - 1);
    }
    return text;
  };
  const auto slot = [&] {
    return fmt::format("{} slot {}{}", program.rings[at(event.object)].name, event.slot, block);
  };
  const std::string lane = event.lane >= 0 ? code(event.lane).name : "";
  switch (event.kind) {
    case Event::Kind::write:
      return "the last write of " + place();
    case Event::Kind::fence:
      return "a proxy fence after the last write of " + place();
    case Event::Kind::read:
      return fmt::format("the read of {} by {}", place(), lane);
    case Event::Kind::mma_read:
      return fmt::format("the tensor core's read of {} for {}", place(), lane);
    case Event::Kind::store_read:
      return fmt::format("the bulk store's read of {} for {}", place(), lane);
    case Event::Kind::full:
      return "the fill of " + slot();
    case Event::Kind::empty:
      return "the release of " + slot();
    case Event::Kind::full_wait:
      return fmt::format("the wait of {} for {} to be full", lane, slot());
    case Event::Kind::empty_wait:
      return fmt::format("the wait of {} for {} to be empty", lane, slot());
    case Event::Kind::meeting:
      if (event.object < 0) return "the last meeting of the cluster";
      return fmt::format("the last meeting at {}[{}]{}", program.barriers[at(event.object)].name, event.slot, block);
    case Event::Kind::remote:
      return fmt::format("an arrival or copy of {} in block {}", lane, event.block);
  }
  return "";
}

}  // namespace pipethreader::verify
