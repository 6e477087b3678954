// Runs a device program on the CPU on real numbers, one role instance of every block interleaved with the others and
// with the work of the asynchronous units, in an order that a seed decides. It knows nothing of kernels or schedules
// and does not trust the program: a race, a deadlock, a wrong phase or a value nobody wrote ends the run with a Fault
// that names role, instance and instruction. What one run does not show, another seed may: it tests, verify() proves.
//
// Semantics are those of tiles: a role instance executes one instruction at a time on whole tiles, numbers are rounded
// as their types say (f32 arithmetic in float), and layouts matter only where they decide what is computed (the
// registers of a residual reduction, the warps that an if_any skips). Copies, products and bulk stores take effect at
// any time between their issue and the wait that covers them. Clusters run one after another, yet count as unordered.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "program/program.h"

namespace pipethreader::interpret {

// `tensors` hold row-major values, already rounded to the tensor's type. Outputs may come empty; they are filled with
// NaN before the run, and whatever the program never writes keeps it.
struct Arguments {
  std::vector<double> params;                // by ParamId
  std::vector<std::vector<double>> tensors;  // by TensorId
};

// How role instances and asynchronous units take turns.
enum class Interleaving : std::uint8_t {
  random,       // every choice uniform
  adversarial,  // some instance far ahead, others starved, async work at the first or the last moment
};

struct RunOptions {
  std::uint64_t seed = 1;
  int clusters = 2;  // launched for persistent and dynamic work; single work launches one a work item
  Interleaving interleaving = Interleaving::random;
  bool detect_races = true;
  std::int64_t step_limit = 100'000'000;  // instructions executed, all instances together

  // Replays a proof's witness: for each role instance (block by block, role by role) the answers to its decisions on
  // work items, trip counts and conditions that constants do not decide, in its program order (1: enter, go on; 0:
  // leave, else), instead of evaluating them. An instance that runs out of answers leaves. No numbers are computed:
  // slots and fragments only know who wrote them in which fill. `Arguments` may then be empty.
  std::optional<std::vector<std::vector<std::int64_t>>> decisions;
};

enum class FaultKind : std::uint8_t {
  arguments,      // the arguments do not fit the program
  race,           // two accesses, one a write, and nothing orders them; also a missing proxy fence
  deadlock,       // nobody can go on
  wrong_value,    // a read sees another iteration than its cursor says
  protocol,       // barrier phases or arrivals do not match; a fragment touched while a product uses it
  uninitialised,  // a read of something nobody wrote
  out_of_bounds,
  overflow,     // integer arithmetic left its type
  unsupported,  // the program uses something the interpreter does not model
  step_limit,
};

[[nodiscard]] std::string_view name(FaultKind kind);

struct Fault {
  FaultKind kind = FaultKind::protocol;
  std::string explanation;  // who, at which instruction, what was found; for a deadlock who waits for whom

  [[nodiscard]] std::string format() const;  // "race: ..."
  [[nodiscard]] Error error() const;         // the same as a diagnostic
};

struct RunReport {
  std::int64_t steps = 0;      // instructions executed
  std::int64_t clusters = 0;   // clusters run
  std::int64_t items = 0;      // work items done, all clusters together
  std::int64_t unwritten = 0;  // elements of outputs that nobody wrote
};

[[nodiscard]] tl::expected<RunReport, Fault> run(const program::Program& program, Arguments& arguments,
                                                 const RunOptions& options = {});

// The replay of a witness (see RunOptions::decisions): no arguments needed.
[[nodiscard]] tl::expected<RunReport, Fault> run_with_decisions(const program::Program& program,
                                                                std::vector<std::vector<std::int64_t>> decisions,
                                                                RunOptions options = {});

}  // namespace pipethreader::interpret
