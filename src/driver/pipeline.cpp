#include "driver/pipeline.h"

#include <algorithm>
#include <chrono>

#include "driver/capabilities.h"
#include "lower/lower.h"
#include "program/legalise.h"
#include "schedule/valid.h"
#include "task/split.h"

namespace pipethreader::driver {

namespace {

// Programs of the library need a few hundred states; one that needs more than this gives way to the next candidate.
constexpr std::int64_t proof_budget = 20'000;
constexpr std::int64_t usual_instances = 8;

// Runs one stage and notes its time.
template <class F>
auto stage(std::vector<StageTime>* times, const char* name, F&& run) {
  const auto start = std::chrono::steady_clock::now();
  auto result = run();
  if (times != nullptr) {
    const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - start;
    times->push_back({name, spent.count()});
  }
  return result;
}

Reached stopped(Reached reached, const Error& error) {
  reached.error = error;
  return reached;
}

}  // namespace

int Reached::stages() const {
  return int{graph.has_value()} + int{partition.has_value()} + int{assignment.has_value()} + int{schedule.has_value()} +
         int{program.has_value()};
}

Reached lower_as_far(const kernel::Kernel& specialised, const device::Device& device, const Choices& choices,
                     std::vector<StageTime>* times) {
  Reached made;
  if (choices.split > 1) {
    auto halves = stage(times, "split", [&] { return task::split(specialised, choices.split); });
    if (!halves) return stopped(std::move(made), halves.error());
    Choices rest = choices;
    rest.split = 1;
    return lower_as_far(halves->parts, device, rest, times);
  }
  // Splits statements into sTasks; long reductions become loops, so that all later stages see one kind of loop.
  auto graph = stage(times, "task", [&] { return task::build(specialised, choices.walk); });
  if (!graph) return stopped(std::move(made), graph.error());
  made.graph = std::move(*graph);
  // Fixes every tile; layouts need the extents.
  auto partition = stage(times, "partition", [&] { return partition::propagate(*made.graph, choices.partition); });
  if (!partition) return stopped(std::move(made), partition.error());
  made.partition = std::move(*partition);
  // Says which values lie in shared memory: only those have rings and copies to schedule.
  auto assignment = stage(times, "layout", [&] { return partition::assign(*made.graph, *made.partition); });
  if (!assignment) return stopped(std::move(made), assignment.error());
  made.assignment = std::move(*assignment);
  auto schedule = stage(times, "schedule", [&] {
    return schedule::greedy(*made.graph, *made.partition, *made.assignment, choices.schedule);
  });
  if (!schedule) return stopped(std::move(made), schedule.error());
  if (auto valid = schedule::check_valid(*made.graph, *made.assignment, *schedule); !valid)
    return stopped(std::move(made), valid.error());
  made.schedule = std::move(*schedule);
  auto lowered = stage(times, "lower", [&] {
    return lower::lower(*made.graph, *made.partition, *made.assignment, *made.schedule, device,
                        {.bulk = choices.bulk, .pass_over = choices.pass_over});
  });
  if (!lowered) return stopped(std::move(made), lowered.error());
  // Places buffers; needs the final list of them.
  const std::int64_t shared = device.shared_bytes(lowered->blocks_per_unit);
  auto legal = stage(times, "legalise", [&] { return program::legalise(std::move(*lowered), shared); });
  if (!legal) return stopped(std::move(made), legal.error());
  if (auto able = check_capabilities(*legal, device); !able) return stopped(std::move(made), able.error());
  if (auto valid = program::validate(*legal); !valid) return stopped(std::move(made), valid.error());
  made.program = std::move(*legal);
  return made;
}

Lowered whole(Reached reached) {
  return {std::move(*reached.graph), std::move(*reached.partition), std::move(*reached.assignment),
          std::move(*reached.schedule), std::move(*reached.program)};
}

Result<Lowered> lower_kernel(const kernel::Kernel& specialised, const device::Device& device, const Choices& choices,
                             std::vector<StageTime>* times) {
  Reached reached = lower_as_far(specialised, device, choices, times);
  if (reached.error) return tl::unexpected(*reached.error);
  return whole(std::move(reached));
}

Result<Printed> prove_and_print(const program::Program& program, std::vector<StageTime>* times) {
  // A state of many role instances takes longer.
  std::int64_t instances = 0;
  for (const program::Role& role : program.roles) instances += role.instances * program.cluster;
  const std::int64_t budget = proof_budget * usual_instances / std::max(usual_instances, instances);
  auto verified = stage(times, "verify", [&] { return verify::verify(program, {.state_budget = budget}); });
  if (!verified) return tl::unexpected(verified.error().error);
  auto source = stage(times, "emit", [&] { return emit::emit(*verified); });
  if (!source) return tl::unexpected(source.error());
  return Printed{std::move(*verified), std::move(*source)};
}

}  // namespace pipethreader::driver
