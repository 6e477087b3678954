// What stays the same while a program is explored: its lanes (the role instances of every block of the cluster), and
// the *events* that ordering is about. An event stands for the latest access of one kind to one place ("the write of
// atom 0 of slot 1 of K", "the tensor core's read of it for consumer[1]"), so there are finitely many; who is ordered
// behind an event is a set of them, never a clock that grows.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "program/program.h"
#include "verify/bits.h"
#include "verify/code.h"

namespace pipethreader::verify {

struct Event {
  enum class Kind : std::uint8_t {
    write,       // of an atom, by whoever wrote it last
    fence,       // the writer's threads made that write visible to asynchronous units
    read,        // of an atom by a lane's threads
    mma_read,    // of an atom by the tensor core for a lane
    store_read,  // of an atom by the copy engine for a lane's bulk store
    full,        // a phase of a slot's `full` is complete (one event each for even and odd phases)
    empty,       // the same for `empty`
    full_wait,   // a lane has waited on a slot's `full`
    empty_wait,  // the same for `empty`
    meeting,     // a generation of a named barrier is complete
    remote,      // a lane arrives or copies in another block
  };
  Kind kind = Kind::write;
  int block = 0;
  int object = 0;  // buffer, ring or barrier
  int slot = 0;    // or the barrier's index
  int atom = 0;    // or the phase's parity
  int lane = -1;
};

struct Location {
  int write = -1;
  int fence = -1;             // -1: threads never write it
  std::vector<int> reads[3];  // by lane: read, mma_read, store_read; -1: never happens
  Bits accesses;              // write and all reads
};

struct RingSlot {
  std::array<int, 2> full{};
  std::array<int, 2> empty{};
  std::vector<int> full_waits;  // by lane; -1: never
  std::vector<int> empty_waits;
  Bits all_full_waits, all_empty_waits;
  int full_gathering = 0, full_done = 0, empty_gathering = 0, empty_done = 0;  // sets
};

struct MeetingPlace {
  int participants = 0;
  int event = 0;
  int gathering = 0;  // set
};

// Events that only these lanes ever ask about: whether they are behind them.
struct Askers {
  std::vector<int> lanes;
  Bits events;
};

struct Model {
  // `largest`: constants up to it that conditions compare with are told apart.
  Model(const program::Program& program, Terms& terms, Compiled compiled, std::int64_t largest);

  const program::Program& program;
  Terms& terms;
  Compiled compiled;
  int blocks = 1;
  int lanes = 0;
  int lanes_of_block = 0;

  std::vector<Event> events;
  std::vector<Location> locations;       // block, buffer, slot, atom
  std::vector<RingSlot> ring_slots;      // block, ring, slot
  std::vector<MeetingPlace> meetings;    // block, barrier, index; last: the cluster's
  std::vector<std::vector<int>> remote;  // by block, lane
  std::vector<Askers> askers;            // together all events
  int sets = 0;
  int largest_value = 8;       // beyond it integers are not told apart
  int largest_difference = 8;  // nor are their differences beyond this
  std::vector<std::int64_t> large_constants;
  std::vector<std::vector<bool>> uses_ring;       // by lane, ring
  std::vector<std::vector<bool>> fills_by_bulk;   // by lane, ring
  std::vector<std::vector<int>> buffers_of_ring;  // by ring
  program::WorkOrder order = program::WorkOrder::single;

  // Kinds of shared integers: the large constants, the counter of each loop of each lane, the value of each pattern.
  // Only what some question compares directly is worth remembering about two of them.
  [[nodiscard]] int kind_of_constant(int index) const { return index; }
  [[nodiscard]] int kind_of_loop(int lane, int loop) const {
    return first_kind_of_lane[static_cast<std::size_t>(lane)] + loop;
  }
  [[nodiscard]] int kind_of_pattern(int pattern) const { return first_kind_of_pattern + pattern; }
  [[nodiscard]] bool compared(int kind, int other) const {
    return comparisons[static_cast<std::size_t>(kind) * static_cast<std::size_t>(kinds) +
                       static_cast<std::size_t>(other)];
  }
  int kinds = 0;
  std::vector<int> first_kind_of_lane;
  int first_kind_of_pattern = 0;
  std::vector<bool> comparisons;

  [[nodiscard]] const Code& code(int lane) const { return compiled.codes[static_cast<std::size_t>(lane)]; }
  [[nodiscard]] int block_of(int lane) const { return lane / lanes_of_block; }
  [[nodiscard]] int known(int lane) const { return 2 * lane; }    // what is before all the lane's threads do next
  [[nodiscard]] int own(int lane) const { return 2 * lane + 1; }  // what single threads of it did since they last met
  [[nodiscard]] int location(int block, program::BufferId buffer, int slot) const;  // of atom 0; the others follow
  [[nodiscard]] int ring_slot(int block, program::RingId ring, int slot) const;
  [[nodiscard]] int meeting(int block, program::BarrierId barrier, int index) const;
  [[nodiscard]] std::string describe(int event) const;  // "the write of K[1] rows 0..63"

  std::vector<int> first_location_of_buffer;  // in block 0
  std::vector<int> first_slot_of_ring;
  std::vector<int> first_meeting_of_barrier;
  int locations_of_block = 0, ring_slots_of_block = 0, meetings_of_block = 0;

 private:
  int add(Event event);
  void find_uses();
  void add_locations();
  void add_rings();
  void add_meetings();
  void find_askers();
  void choose_thresholds(std::int64_t largest);
  void find_comparisons();
  void note_comparison(int kind, int other);
  void note_comparisons(int lane, int step, const Question& question);
  void note_comparisons(int lane, int step, const Linear& sum);
  void note_start(int lane, int step, const Value& start);
  [[nodiscard]] int kind_of_atom(int lane, int step, int atom) const;
};

}  // namespace pipethreader::verify
