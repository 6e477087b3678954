// Race detection: who touched what last. A cell is a piece of memory that is always touched as a whole; a row of shared
// memory is one cell until somebody touches a part of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "interpret/clock.h"
#include "program/program.h"

namespace pipethreader::interpret {

struct Access {
  Component component = 0;
  Time time = 0;           // 0: nobody
  bool by_threads = true;  // of a role instance; else by an asynchronous unit
  const program::Instr* instr = nullptr;
};

// Who touches now. `clock` is what happened before: for an asynchronous unit, before its issue.
struct Toucher {
  Access access;
  const VectorClock* clock = nullptr;
  Component issuer = 0;       // the role instance
  Time issuer_synced = 0;     // its threads have met at a barrier after what they did up to this time
  bool threads_meet = false;  // the instruction itself holds barriers of the instance's threads around its accesses
};

// Times at which a role instance made its writes visible to asynchronous units, increasing.
using Fences = std::vector<Time>;
using FencesOf = std::function<const Fences&(Component)>;

enum class Conflict : std::uint8_t { none, unordered, threads_unordered, no_proxy_fence };

[[nodiscard]] bool happened_before(const Access& earlier, const Toucher& now);

struct Cell {
  Access write;
  std::vector<Access> reads;

  struct Verdict {
    Conflict conflict = Conflict::none;
    Access with;
    bool with_write = true;
  };
  Verdict read(const Toucher& now, const FencesOf& fences);
  Verdict write_by(const Toucher& now, const FencesOf& fences);
};

// The shadow of one slot.
class SlotShadow {
 public:
  SlotShadow(int rows, int cols) : cols_(cols), rows_(static_cast<std::size_t>(rows), std::vector<Cell>(1)) {}

  // Columns [begin, end) of a row.
  Cell::Verdict touch(int row, int begin, int end, bool write, const Toucher& now, const FencesOf& fences);

 private:
  int cols_;
  std::vector<std::vector<Cell>> rows_;  // one cell, or one a column
};

[[nodiscard]] std::string_view description(Conflict conflict);

}  // namespace pipethreader::interpret
