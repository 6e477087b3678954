#include "verify/state.h"

#include <algorithm>
#include <cstring>

namespace pipethreader::verify {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Every set holds what has never happened: then "ordered behind" is true of it.
void happened_before_all(const Model& model, State& state, int event) {
  state.active.set(event);
  for (int set = 0; set < model.sets; ++set) state.sets.add(set, event);
}

}  // namespace

State::State(const Model& model)
    : lanes(at(model.lanes)),
      slots(model.ring_slots.size()),
      contents(model.locations.size()),
      arrived(model.meetings.size(), 0),
      sets(model.sets, static_cast<int>(model.events.size())),
      active(static_cast<int>(model.events.size())) {
  const auto fragments = static_cast<int>(model.program.fragments.size());
  const auto events = static_cast<int>(model.events.size());
  for (LaneState& lane : lanes) {
    lane.cursors.assign(model.program.rings.size(), 0);
    lane.defined = Bits(fragments);
    lane.open = {Bits(events), Bits(fragments), Bits(fragments)};
  }
  for (int block = 0; block < model.blocks; ++block) {
    for (std::size_t r = 0; r < model.program.rings.size(); ++r) {
      const int depth = model.program.rings[r].depth;
      for (int s = 0; s < depth; ++s) {
        SlotState& slot = slots[at(model.ring_slot(block, program::RingId(r), s))];
        slot.full.last = s - depth;
        slot.empty.last = s - depth;
      }
    }
  }
  for (const RingSlot& slot : model.ring_slots) {
    for (const int event : slot.full) happened_before_all(model, *this, event);
    for (const int event : slot.empty) happened_before_all(model, *this, event);
  }
  for (const MeetingPlace& meeting : model.meetings) happened_before_all(model, *this, meeting.event);
  for (const std::int64_t constant : model.large_constants)
    constants.push_back(zone.add_equal(0, static_cast<int>(constant)));
  if (model.order == program::WorkOrder::single) {
    items = 1;
    items_end = true;
  }
}

std::int64_t State::first_item() const {
  std::int64_t first = items;
  for (const LaneState& lane : lanes) {
    if (lane.mode != LaneMode::ended) first = std::min(first, lane.item);
  }
  return first;
}

// --- forgetting --------------------------------------------------------------------------------------------------

namespace {

// Whether a lane can no longer ask for the value of a symbol: at every place where it does, its loops have gone past
// the symbol's counters.
bool is_past(const Model& model, const State& state, int lane, const Symbol& symbol) {
  const LaneState& at_lane = state.lanes[at(lane)];
  if (at_lane.mode == LaneMode::ended || at_lane.item > symbol.item) return true;
  const Code& code = model.code(lane);
  for (const PatternUse& use : code.uses) {
    if (use.pattern != symbol.pattern) continue;
    bool past = false;
    bool same = true;  // so far in the same iterations
    for (std::size_t h = 0; h < use.holes.size() && same && !past; ++h) {
      const int depth = use.holes[h].depth;
      const int around = loop_around(code, use.step, depth);
      if (around < 0) return false;
      const LoopRange* loop = &code.loops[at(around)];
      if (at_lane.step <= loop->begin) return false;
      if (at_lane.step >= loop->end) {
        past = true;
        break;
      }
      const int counter = at_lane.frames[at(depth)].counter;
      const auto offset = static_cast<int>(use.holes[h].offset);
      const bool up = loop->stride > 0;
      const std::int32_t behind =
          up ? state.zone.bound(symbol.holes[h], counter) : state.zone.bound(counter, symbol.holes[h]);
      if (behind == Zone::unbounded) return false;
      if (behind < (up ? offset : -offset)) past = true;
      same = state.zone.equal(symbol.holes[h], counter, offset);
    }
    if (!past && !(same && at_lane.step > use.step)) return false;
  }
  return true;
}

}  // namespace

namespace {
void extrapolate(const Model& model, State& state);

// An event that everyone who may ask knows matters no more until it happens again: all answers are yes. That a phase is
// over behind all waits of the one before is asked of the arrivals so far, which must know it too.
void forget_known(const Model& model, State& state) {
  for (const Askers& askers : model.askers) {
    Bits known = askers.events;
    known &= state.active;
    for (const int lane : askers.lanes) state.sets.keep_common(model.known(lane), known);
    if (known.empty()) continue;
    for (std::size_t s = 0; s < model.ring_slots.size(); ++s) {
      const RingSlot& slot = model.ring_slots[s];
      const auto unless_arrived = [&](const PhaseState& phase, const Bits& waits, int gathering) {
        if (phase.arrivals == 0 && !phase.announced) return;
        waits.for_each([&](int event) {
          if (!state.sets.has(gathering, event)) known.reset(event);
        });
      };
      unless_arrived(state.slots[s].full, slot.all_full_waits, slot.full_gathering);
      unless_arrived(state.slots[s].empty, slot.all_empty_waits, slot.empty_gathering);
    }
    state.active.remove(known);
  }
}
}  // namespace

void tidy(const Model& model, State& state) {
  const std::int64_t first = state.first_item();
  const auto forgotten = [&](const Symbol& symbol) {
    if (symbol.item < 0) return false;
    if (symbol.item < first) return true;
    if (symbol.holes.empty()) return false;
    for (int lane = 0; lane < model.lanes; ++lane) {
      if (!is_past(model, state, lane, symbol)) return false;
    }
    return true;
  };
  std::vector<Symbol> kept;
  for (Symbol& symbol : state.symbols) {
    if (!forgotten(symbol)) {
      kept.push_back(std::move(symbol));
      continue;
    }
    state.zone.remove(symbol.value);
    for (const int hole : symbol.holes) state.zone.remove(hole);
  }
  state.symbols = std::move(kept);
  extrapolate(model, state);
  forget_known(model, state);
}

namespace {

struct Variable {
  enum class Role : std::uint8_t { none, constant, counter, value, hole } role = Role::none;
  int kind = -1;
};

void extrapolate(const Model& model, State& state) {
  std::vector<Variable> variables(at(state.zone.capacity()));
  for (std::size_t c = 0; c < state.constants.size(); ++c) {
    variables[at(state.constants[c])] = {Variable::Role::constant, model.kind_of_constant(static_cast<int>(c))};
  }
  for (int lane = 0; lane < model.lanes; ++lane) {
    for (const LoopFrame& frame : state.lanes[at(lane)].frames) {
      variables[at(frame.counter)] = {Variable::Role::counter, model.kind_of_loop(lane, frame.loop)};
    }
  }
  for (const Symbol& symbol : state.symbols) {
    variables[at(symbol.value)] = {Variable::Role::value, model.kind_of_pattern(symbol.pattern)};
    for (const int hole : symbol.holes) variables[at(hole)] = {Variable::Role::hole, -1};
  }
  state.zone.extrapolate(model.largest_value, model.largest_difference, [&](int x, int y) {
    using Worth = Zone::Worth;
    using Role = Variable::Role;
    const Variable& a = variables[at(x)];
    const Variable& b = variables[at(y)];
    if (a.role == Role::hole || b.role == Role::hole) {
      const Role other = a.role == Role::hole ? b.role : a.role;
      return other == Role::counter || other == Role::hole ? Worth::when_fixed : Worth::nothing;
    }
    if (a.role == Role::constant && b.role == Role::constant) return Worth::when_fixed;
    if (!model.compared(a.kind, b.kind)) return Worth::nothing;
    if (a.role == Role::counter && b.role == Role::counter) return Worth::when_fixed;
    return a.role == Role::counter ? Worth::least_excess : Worth::bounds;
  });
}

}  // namespace

// --- encoding ----------------------------------------------------------------------------------------------------

namespace {

class Encoder {
 public:
  Encoder(const Model& model, const State& state) : model_(model), state_(state) {}

  std::string run() {
    text_.reserve(2048);
    find_foremost();
    order_places();
    const std::int64_t first = state_.first_item();
    number(state_.items - first);
    number(state_.items_end ? 1 : 0);
    for (int lane = 0; lane < model_.lanes; ++lane) encode_lane(lane, first);
    for (int block = 0; block < model_.blocks; ++block) encode_rings(block);
    for (const std::uint64_t arrived : state_.arrived) number(static_cast<std::int64_t>(arrived));
    encode_bits(state_.active);
    for (const int set : set_order_) encode_events(state_.sets.words(set));
    encode_zone(first);
    return std::move(text_);
  }

 private:
  const Model& model_;
  const State& state_;
  std::string text_;
  std::vector<std::vector<std::int64_t>> foremost_;  // by block, ring: the largest cursor
  std::vector<int> event_order_;
  std::vector<int> set_order_;

  void number(std::int64_t value) {
    if (value >= -100 && value <= 100) {
      text_.push_back(static_cast<char>(value));
      return;
    }
    text_.push_back(static_cast<char>(127));
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    text_.append(bytes, sizeof value);
  }

  // Blocks fill their own rings independently, one perhaps more often than the other, and multicast ones together.
  void find_foremost() {
    foremost_.assign(at(model_.blocks), std::vector<std::int64_t>(model_.program.rings.size(), 0));
    for (std::size_t r = 0; r < model_.program.rings.size(); ++r) {
      for (int lane = 0; lane < model_.lanes; ++lane) {
        for (int block = 0; block < model_.blocks; ++block) {
          if (block != model_.block_of(lane) && !model_.program.rings[r].multicast) continue;
          foremost_[at(block)][r] = std::max(foremost_[at(block)][r], state_.lanes[at(lane)].cursors[r]);
        }
      }
    }
  }

  // The slot that the foremost cursor's fill + i uses.
  [[nodiscard]] int rotated(int block, std::size_t ring, int i) const {
    return static_cast<int>((foremost_[at(block)][ring] + i) % model_.program.rings[ring].depth);
  }

  void order_places() {
    const auto events = static_cast<int>(model_.events.size());
    std::vector<bool> placed(model_.events.size(), false);
    const auto place = [&](int event) {
      if (event < 0 || placed[at(event)]) return;
      placed[at(event)] = true;
      event_order_.push_back(event);
    };
    std::vector<bool> set_placed(at(model_.sets), false);
    const auto place_set = [&](int set) {
      set_placed[at(set)] = true;
      set_order_.push_back(set);
    };
    for (int block = 0; block < model_.blocks; ++block) {
      for (std::size_t r = 0; r < model_.program.rings.size(); ++r) {
        for (int i = 0; i < model_.program.rings[r].depth; ++i) {
          const int s = rotated(block, r, i);
          const int index = model_.ring_slot(block, program::RingId(r), s);
          const RingSlot& slot = model_.ring_slots[at(index)];
          const auto odd = [&](std::int64_t last) {
            return static_cast<std::size_t>(floor_mod(floor_div(last, model_.program.rings[r].depth), 2));
          };
          const std::size_t full = odd(state_.slots[at(index)].full.last);
          const std::size_t empty = odd(state_.slots[at(index)].empty.last);
          place(slot.full[full]), place(slot.full[1 - full]);
          place(slot.empty[empty]), place(slot.empty[1 - empty]);
          for (const int event : slot.full_waits) place(event);
          for (const int event : slot.empty_waits) place(event);
          place_set(slot.full_gathering), place_set(slot.full_done);
          place_set(slot.empty_gathering), place_set(slot.empty_done);
          for (const int buffer : model_.buffers_of_ring[r]) {
            const int first = model_.location(block, program::BufferId(at(buffer)), s);
            for (int atom = 0; atom < model_.compiled.atom_counts[at(buffer)]; ++atom) {
              const Location& location = model_.locations[at(first + atom)];
              place(location.write), place(location.fence);
              for (const auto& reads : location.reads) {
                for (const int event : reads) place(event);
              }
            }
          }
        }
      }
    }
    for (int event = 0; event < events; ++event) place(event);
    for (int set = 0; set < model_.sets; ++set) {
      if (!set_placed[at(set)]) place_set(set);
    }
  }

  // Only what matters: members that are active.
  void encode_events(const std::uint64_t* words) {
    char byte = 0;
    int filled = 0;
    for (const int event : event_order_) {
      if (!state_.active.has(event)) continue;
      byte = static_cast<char>((byte << 1) | static_cast<char>((words[event / 64] >> (event % 64)) & 1));
      if (++filled % 7 == 0) {
        text_.push_back(byte);
        byte = 0;
      }
    }
    text_.push_back(byte);
  }

  void encode_bits(const Bits& bits) {
    for (std::size_t i = 0; i < event_order_.size(); ++i) {
      if (bits.has(event_order_[i])) number(static_cast<std::int64_t>(i));
    }
    number(-1);
  }
  void encode_fragments(const Bits& bits) {
    bits.for_each([&](int i) { number(i); });
    number(-1);
  }
  void encode_group(const Group& group) {
    encode_bits(group.reads);
    encode_fragments(group.accumulators);
    encode_fragments(group.operands);
  }

  void encode_lane(int index, std::int64_t first) {
    const LaneState& lane = state_.lanes[at(index)];
    number(lane.step);
    number(static_cast<int>(lane.mode));
    if (lane.mode == LaneMode::ended) return;
    number(lane.item - first);
    number(lane.meeting);
    for (std::size_t r = 0; r < lane.cursors.size(); ++r) {
      if (model_.uses_ring[at(index)][r]) number(lane.cursors[r] - foremost_[at(model_.block_of(index))][r]);
    }
    for (const LoopFrame& frame : lane.frames) number(frame.residue);
    encode_fragments(lane.defined);
    number(static_cast<std::int64_t>(lane.groups.size()));
    for (const Group& group : lane.groups) encode_group(group);
    encode_group(lane.open);
    number(static_cast<std::int64_t>(lane.stores.size()));
    for (const Bits& store : lane.stores) encode_bits(store);
  }

  void encode_phase(const PhaseState& phase, std::int64_t foremost) {
    number(phase.last - foremost);
    number(static_cast<std::int64_t>(phase.arrived));
    number(phase.arrivals);
    number(phase.bytes_due);
    number(phase.announced ? 1 : 0);
  }
  void encode_content(const ContentState& content, std::int64_t foremost) {
    number(static_cast<int>(content.writer));
    number(content.lane);
    if (content.writer != ContentState::Writer::none) number(content.fill - foremost);
  }

  void encode_rings(int block) {
    for (std::size_t r = 0; r < model_.program.rings.size(); ++r) {
      for (int i = 0; i < model_.program.rings[r].depth; ++i) {
        const int s = rotated(block, r, i);
        const SlotState& slot = state_.slots[at(model_.ring_slot(block, program::RingId(r), s))];
        encode_phase(slot.full, foremost_[at(block)][r]);
        encode_phase(slot.empty, foremost_[at(block)][r]);
        for (const int buffer : model_.buffers_of_ring[r]) {
          const int location = model_.location(block, program::BufferId(at(buffer)), s);
          for (int atom = 0; atom < model_.compiled.atom_counts[at(buffer)]; ++atom) {
            encode_content(state_.contents[at(location + atom)], foremost_[at(block)][r]);
          }
        }
      }
    }
    for (std::size_t b = 0; b < model_.program.buffers.size(); ++b) {
      if (model_.program.buffers[b].ring.valid()) continue;
      const int location = model_.location(block, program::BufferId(b), 0);
      for (int i = 0; i < model_.program.buffers[b].slots * model_.compiled.atom_counts[b]; ++i) {
        encode_content(state_.contents[at(location + i)], 0);
      }
    }
  }

  void encode_zone(std::int64_t first) {
    std::vector<int> order{0};
    order.insert(order.end(), state_.constants.begin(), state_.constants.end());
    for (const LaneState& lane : state_.lanes) {
      for (const LoopFrame& frame : lane.frames) order.push_back(frame.counter);
    }
    std::vector<const Symbol*> symbols;
    for (const Symbol& symbol : state_.symbols) symbols.push_back(&symbol);
    std::stable_sort(symbols.begin(), symbols.end(), [](const Symbol* a, const Symbol* b) {
      return std::pair(a->pattern, a->item) < std::pair(b->pattern, b->item);
    });
    for (const Symbol* symbol : symbols) {
      number(symbol->pattern);
      number(symbol->item < 0 ? -1 : symbol->item - first);
      order.push_back(symbol->value);
      order.insert(order.end(), symbol->holes.begin(), symbol->holes.end());
    }
    number(static_cast<std::int64_t>(order.size()));
    for (const int x : order) {
      for (const int y : order) {
        const std::int32_t bound = state_.zone.bound(x, y);
        number(bound == Zone::unbounded ? -101 : bound);
      }
    }
  }
};

}  // namespace

std::string encode(const Model& model, const State& state) { return Encoder(model, state).run(); }

}  // namespace pipethreader::verify
