// Barriers with real phases. A phase barrier is what a ring has twice a slot; a meeting is a named barrier of a block
// or the barrier of a cluster. Hardware tells phases apart by one bit, so whoever waits or arrives must know, not by
// luck of timing, that the phase before is over: a barrier is a component of the clocks, its time the number of phases
// done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "interpret/clock.h"

namespace pipethreader::interpret {

struct PhaseBarrier {
  Component component = 0;
  int expected = 1;                   // arrivals a phase
  std::int64_t bytes_due = 0;         // announced minus arrived; below 0: arrived before announced
  std::int64_t bytes_seen = 0;        // arrived in this phase, for reports
  std::int64_t phase = 0;             // phases completed
  std::vector<std::size_t> arrivers;  // actors, in this phase
  VectorClock gathering;
  VectorClock completed;  // of the last phase
  struct Wait {
    std::size_t actor = 0;
    Time time = 0;
  };
  std::vector<Wait> waits;  // for the last phase

  [[nodiscard]] bool done() const { return static_cast<int>(arrivers.size()) >= expected && bytes_due == 0; }

  // Begins the next phase. Gives a wait for the phase before that may come after this one, and would see wrong.
  std::optional<Wait> complete() {
    std::optional<Wait> late;
    ++phase;
    gathering.raise(component, static_cast<Time>(phase));
    for (const Wait& wait : waits)
      if (gathering[static_cast<Component>(wait.actor)] < wait.time) late = wait;
    waits.clear();
    bytes_seen = 0;
    arrivers.clear();
    completed = gathering;
    gathering.clear();
    return late;
  }
};

struct Meeting {
  Component component = 0;
  std::size_t participants = 2;
  std::int64_t generation = 0;
  std::vector<std::size_t> arrivers;
  VectorClock gathering;
  VectorClock completed;

  bool complete() {
    if (arrivers.size() < participants) return false;
    ++generation;
    gathering.raise(component, static_cast<Time>(generation));
    arrivers.clear();
    completed = gathering;
    gathering.clear();
    return true;
  }
};

}  // namespace pipethreader::interpret
