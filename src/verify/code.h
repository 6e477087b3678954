// Each role instance's body as a straight list of steps with jumps, with everything resolved that does not change
// while it runs: conditions as questions, which part of which buffer an access touches. Parts of buffers are atoms: the
// rectangles that the borders of all accesses cut a buffer into.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "program/program.h"
#include "verify/bits.h"
#include "verify/rectangles.h"
#include "verify/terms.h"

namespace pipethreader::verify {

struct SharedAccess {
  program::BufferRef ref;
  Rectangle part;
  std::vector<int> atoms;  // of the buffer's grid
};

enum class Do : std::uint8_t {
  work_head,   // a next item? else to `target`
  work_next,   // to `target`, a head
  loop_enter,  // the counter of loop `depth` starts at `start`
  loop_head,   // goes on? else the counter ends and to `target`
  loop_next,   // the counter moves on by `stride`; to `target`, a head
  branch,      // holds? else to `target`
  jump,
  execute,  // everything else: by `instr`
  end,
};

struct Step {
  Do what = Do::execute;
  int target = -1;
  int depth = 0;  // of loops around it; of loop steps: their own
  Value start;
  int stride = 1;
  Question question;                 // loop_head, branch; of a product: whether it accumulates
  bool decided_by_constants = true;  // nothing a run could decide otherwise
  // Branch: neither side does more than touch fragments. loop_enter: nor does the body, and the interpreter needs no
  // answers in it that the loop's own does not cover.
  bool plain = false;
  bool inside_plain = false;  // in the body of such a loop, or its head
  int join = -1;              // branch, loop_enter: where all ways meet
  int loop = -1;              // loop_enter: index into Code::loops
  const program::Instr* instr = nullptr;
  std::string place;  // "consumer.0.3.1: mma_wait 1"

  std::vector<int> reads;             // fragments read by the instance's threads
  std::vector<int> writes;            // fragments written
  bool conditional = false;           // inside an if_any: writes may not happen
  std::vector<SharedAccess> shared;   // in the order: read or written; of a product: its shared operands
  std::optional<std::int64_t> index;  // of a barrier, when constant
  Linear index_sum;                   // otherwise
};

// Where in a code a pattern (an opaque function) is asked for, to know when an answer is needed no more.
struct PatternUse {
  int pattern = -1;
  int step = 0;
  std::vector<Hole> holes;
};

// Counters of loops with step 1, and with step -1 unless `count_down_loops_up`, are the loop's variable itself; else
// they count 0, 1, ...
struct LoopRange {
  int depth = 0;
  int stride = 1;
  int begin = 0;  // the step loop_enter
  int end = 0;    // the step after loop_next
};

// One role instance of one block of the cluster.
struct Code {
  program::RoleId role;
  int instance = 0;
  int cluster_rank = 0;
  std::string name;  // "consumer[1]" or "consumer[1] of block 0"
  std::vector<Step> steps;
  std::vector<PatternUse> uses;
  std::vector<LoopRange> loops;
  std::vector<Bits> live;  // by step: fragments that may be read from there on before they are written
};

// The loop of this depth around a step; -1: none.
[[nodiscard]] int loop_around(const Code& code, int step, int depth);

struct Compiled {
  std::vector<Code> codes;       // block by block, role by role, instance by instance
  std::vector<int> atom_counts;  // by BufferId
  std::vector<std::vector<Rectangle>> atoms;
  std::int64_t modulus = 1;                      // common multiple of the divisors of `counter % d`
  std::vector<std::int64_t> constants;           // with which counters and other integers are compared
  std::vector<std::int64_t> constants_of_plain;  // in branches that only touch fragments
};

[[nodiscard]] Result<Compiled> compile(const program::Program& program, Terms& terms, bool count_down_loops_up = false);

}  // namespace pipethreader::verify
