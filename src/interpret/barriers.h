// Barriers with real phases. A phase barrier is what a ring has twice a slot; a meeting is a named barrier of a block or
// the barrier of a cluster.
#pragma once

#include <cstdint>
#include <vector>

#include "interpret/clock.h"

namespace pipethreader::interpret {

struct PhaseBarrier {
  int expected = 1;                   // arrivals a phase
  std::int64_t bytes_due = 0;         // announced minus arrived; below 0: arrived before announced
  std::int64_t bytes_seen = 0;        // arrived in this phase, for reports
  std::int64_t phase = 0;             // phases completed
  std::vector<std::size_t> arrivers;  // actors, in this phase
  VectorClock gathering;
  VectorClock completed;  // of the last phase

  // Whether the phase is over; then the next one begins.
  bool complete() {
    if (static_cast<int>(arrivers.size()) < expected || bytes_due != 0) return false;
    ++phase;
    bytes_seen = 0;
    arrivers.clear();
    completed = gathering;
    gathering.clear();
    return true;
  }
};

struct Meeting {
  std::size_t participants = 2;
  std::int64_t generation = 0;
  std::vector<std::size_t> arrivers;
  VectorClock gathering;
  VectorClock completed;

  bool complete() {
    if (arrivers.size() < participants) return false;
    ++generation;
    arrivers.clear();
    completed = gathering;
    gathering.clear();
    return true;
  }
};

}  // namespace pipethreader::interpret
