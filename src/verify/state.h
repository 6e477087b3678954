// One moment of the exploration: where every lane stands, what is ordered behind what, and what is known of the
// integers that lanes share. encode() writes it in a form that is equal for moments from which the same can follow:
// slots count from the ring's foremost cursor, phases and work items from the latest, integers by their zone.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "verify/bits.h"
#include "verify/model.h"
#include "verify/zone.h"

namespace pipethreader::verify {

struct LoopFrame {
  int counter = 0;           // zone variable
  int loop = 0;              // index into Code::loops
  std::int64_t residue = 0;  // the counter modulo Compiled::modulus; -1: unknown
};

// Products between two commits.
struct Group {
  Bits reads;         // events
  Bits accumulators;  // fragments
  Bits operands;      // fragments
};

enum class LaneMode : std::uint8_t { running, meeting, ended };

struct LaneState {
  int step = 0;
  std::int64_t item = 0;
  LaneMode mode = LaneMode::running;
  int meeting = -1;  // where it waits
  std::vector<LoopFrame> frames;
  std::vector<std::int64_t> cursors;  // by ring
  Bits defined;                       // fragments
  std::deque<Group> groups;           // committed, oldest first
  Group open;                         // not yet committed
  std::deque<Bits> stores;            // bulk stores not yet waited for: what they read
};

struct PhaseState {
  std::int64_t last = 0;      // the fill whose phase was completed last
  std::uint64_t arrived = 0;  // lanes, in the current phase
  int arrivals = 0;
  std::int64_t bytes_due = 0;
  bool announced = false;  // bytes were expected or have come
};

struct SlotState {
  PhaseState full;
  PhaseState empty;
};

struct ContentState {
  enum class Writer : std::uint8_t { none, threads, copy };
  Writer writer = Writer::none;
  int lane = -1;
  std::int64_t fill = 0;
};

// The value of an opaque function (Atom::pattern) at the values of its counters.
struct Symbol {
  int pattern = -1;
  int atom = -1;           // of who asked first
  std::int64_t item = -1;  // -1: the same for all items
  int value = 0;           // zone variable
  std::vector<int> holes;  // zone variables
};

struct State {
  explicit State(const Model& model);

  std::vector<LaneState> lanes;
  std::vector<SlotState> slots;        // by Model::ring_slots
  std::vector<ContentState> contents;  // by Model::locations
  std::vector<std::uint64_t> arrived;  // by Model::meetings
  BitTable sets;                       // of events
  Bits active;                         // events that have happened and still matter
  Zone zone;
  std::vector<int> constants;  // zone variables of Model::large_constants
  std::vector<Symbol> symbols;
  std::int64_t items = 0;  // work items known to exist
  bool items_end = false;  // and there are no more

  [[nodiscard]] std::int64_t first_item() const;  // the least that a lane is in
};

// Forgets what no lane can ask for again, what is too large to be told apart, and what all who may ask know.
void tidy(const Model& model, State& state);

[[nodiscard]] std::string encode(const Model& model, const State& state);

}  // namespace pipethreader::verify
