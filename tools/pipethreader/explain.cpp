#include "driver/explain.h"

#include "commands.h"
#include "driver/report.h"
#include "kernel_timing.h"

namespace pipethreader::tool {

namespace {

struct Options {
  KernelOptions kernel;
  std::string html, trace;
  std::int64_t trips = 8;
  bool measure = false;
};

// What a launch on this machine's card takes, and how busy that kept the units.
Result<void> show_measured(const driver::CompileRequest& request, const driver::Staged& staged,
                           const simulate::Timeline& timeline, const driver::Environment& environment) {
  const auto gpu = driver::open_gpu();
  if (!gpu) return tl::unexpected(gpu.error());
  const auto timing = time_kernel(*gpu, request, {}, {}, environment);
  if (!timing) return tl::unexpected(timing.error());
  const auto table = driver::explain_measured(staged, request.device, timeline, timing->ms * 1000);
  if (!table) return tl::unexpected(table.error());
  fmt::print("\nMeasured: {:.1f} us a launch on {}\n{}", timing->ms * 1000, gpu->properties().name, *table);
  return {};
}

int run(const Options& options, const driver::Environment& environment) {
  if (options.measure) {  // say at once when there is no card
    if (const auto card = driver::open_gpu(); !card) return report(card.error());
  }
  const auto request = options.kernel.request(environment, options.measure ? device_of_card() : "h100");
  if (!request) return report(request.error());
  const auto compiled = driver::compile(*request, environment, progress());
  if (!compiled) return report(compiled.error());
  warn(compiled->warnings);
  if (const driver::Progress show = progress()) show("following the chosen schedule through all stages");
  const auto staged = driver::compile_stages(*request, compiled->plan.choices);
  end_progress();
  if (!staged) return report(staged.error());
  const driver::Lowered& l = staged->lowered;
  const auto timeline =
      simulate::simulate(l.graph, l.partition, l.assignment, l.schedule, request->device, options.trips);
  fmt::print("{}", driver::explain_text(*staged, request->device, timeline, terminal_columns()));
  if (options.measure) {
    if (auto done = show_measured(*request, *staged, timeline, environment); !done) return report(done.error());
  }
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
  command->add_option("--html", options->html, "write the timeline as a page")->check(not_empty())->type_name("FILE");
  command->add_option("--trace", options->trace, "write the timeline as a trace for Perfetto")
      ->check(not_empty())
      ->type_name("FILE");
  command->add_option("--trips", options->trips, "iterations of each loop to simulate")
      ->check(CLI::Range(1, 1000))
      ->type_name("COUNT");
  command->add_flag("--measure", options->measure, "time it on this machine's card: how busy the units were");
  commands[command] = [options, &environment] { return run(*options, environment); };
}

}  // namespace pipethreader::tool
