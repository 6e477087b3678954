#include "interpret/interpret.h"

#include "interpret/cluster.h"

namespace pipethreader::interpret {

std::string_view name(FaultKind kind) {
  switch (kind) {
    case FaultKind::arguments:
      return "wrong arguments";
    case FaultKind::race:
      return "race";
    case FaultKind::deadlock:
      return "deadlock";
    case FaultKind::wrong_value:
      return "wrong value";
    case FaultKind::protocol:
      return "protocol";
    case FaultKind::uninitialised:
      return "uninitialised";
    case FaultKind::out_of_bounds:
      return "out of bounds";
    case FaultKind::overflow:
      return "overflow";
    case FaultKind::unsupported:
      return "unsupported";
    case FaultKind::step_limit:
      return "step limit";
  }
  return "";
}

std::string Fault::format() const { return fmt::format("{}: {}", name(kind), explanation); }

Error Fault::error() const { return Error(Diagnostic{{}, {}, format(), {}}); }

namespace {

void check_arguments(const Launch& launch, const Arguments& arguments, FaultSink& faults) {
  const program::Program& p = launch.program;
  if (arguments.params.size() != p.params.size())
    return faults.raise(FaultKind::arguments,
                        fmt::format("{} params given, the program has {}", arguments.params.size(), p.params.size()));
  if (arguments.tensors.size() != p.tensors.size())
    return faults.raise(FaultKind::arguments, fmt::format("{} tensors given, the program has {}",
                                                          arguments.tensors.size(), p.tensors.size()));
  for (std::size_t t = 0; t < p.tensors.size(); ++t) {
    const auto expected = static_cast<std::size_t>(launch.elements(program::TensorId(t)));
    if (!p.tensors[t].output && arguments.tensors[t].size() != expected)
      faults.raise(FaultKind::arguments, fmt::format("tensor '{}' has {} elements, expected {}", p.tensors[t].name,
                                                     arguments.tensors[t].size(), expected));
  }
  const std::vector<std::int64_t> no_vars(p.vars.size(), 0);
  const Uniforms uniforms{&p, launch.params, no_vars, 0, 0, &faults};
  for (std::size_t r = 0; r < p.requirements.size(); ++r)
    if (!uniforms.truth(p.requirements[r]))
      faults.raise(FaultKind::arguments, fmt::format("the params do not meet requirement {} of the program", r));
}

}  // namespace

tl::expected<RunReport, Fault> run(const program::Program& program, Arguments& arguments, const RunOptions& options) {
  FaultSink faults;
  Launch launch(program, arguments, options, faults);
  if (launch.numbers()) check_arguments(launch, arguments, faults);
  if (faults.any()) return tl::unexpected(faults.first());
  GlobalMemory global(launch, arguments, faults);
  const WorkPlan plan(launch, faults);
  RunReport report;
  report.clusters = plan.clusters();
  for (int c = 0; c < plan.clusters() && !faults.any(); ++c) Cluster(launch, global, plan, c, faults).run(report);
  if (faults.any()) return tl::unexpected(faults.first());
  if (launch.numbers()) report.unwritten = global.unwritten();
  return report;
}

tl::expected<RunReport, Fault> run_with_decisions(const program::Program& program,
                                                  std::vector<std::vector<std::int64_t>> decisions,
                                                  RunOptions options) {
  options.decisions = std::move(decisions);
  Arguments arguments;
  return run(program, arguments, options);
}

}  // namespace pipethreader::interpret
