#include "driver/explain.h"

#include "commands.h"
#include "driver/report.h"

namespace pipethreader::tool {

namespace {

struct Options {
  KernelOptions kernel;
  std::string html, trace;
  std::int64_t trips = 8;
};

int run(const Options& options, const driver::Environment& environment) {
  const auto request = options.kernel.request(environment);
  if (!request) return report(request.error());
  const auto compiled = driver::compile(*request, environment, progress());
  if (!compiled) return report(compiled.error());
  warn(compiled->warnings);
  const auto staged = driver::compile_stages(*request, compiled->plan.choices);
  if (!staged) return report(staged.error());
  const driver::Lowered& l = staged->lowered;
  const auto timeline =
      simulate::simulate(l.graph, l.partition, l.assignment, l.schedule, request->device, options.trips);
  fmt::print("{}", driver::explain_text(*staged, request->device, timeline, terminal_columns()));
  const std::string candidates = driver::explain_candidates(compiled->plan);
  fmt::print("\nCandidates:\n{}", candidates);
  if (!options.html.empty()) {
    const std::string page = driver::explain_html(*staged, request->device, timeline, candidates);
    if (auto done = driver::write_text(options.html, page); !done) return report(done.error());
    fmt::print("\nWritten: {}\n", options.html);
  }
  if (!options.trace.empty()) {
    if (auto done = driver::write_text(options.trace, driver::explain_trace(*staged, request->device, timeline)); !done)
      return report(done.error());
    fmt::print("{}Written: {} (open it at https://ui.perfetto.dev)\n", options.html.empty() ? "\n" : "", options.trace);
  }
  return Exit::ok;
}

}  // namespace

void add_explain(CLI::App& app, const driver::Environment& environment, Commands& commands) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("explain", "show a kernel's schedule: which unit does what, and when");
  options->kernel.declare(*command);
  command->add_option("--html", options->html, "write the timeline as a page")->type_name("FILE");
  command->add_option("--trace", options->trace, "write the timeline as a trace for Perfetto")->type_name("FILE");
  command->add_option("--trips", options->trips, "iterations of each loop to simulate")
      ->check(CLI::Range(1, 1000))
      ->type_name("COUNT");
  commands[command] = [options, &environment] { return run(*options, environment); };
}

}  // namespace pipethreader::tool
