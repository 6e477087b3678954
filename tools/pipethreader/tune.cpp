// Times the candidates of a kernel on the card and makes the fastest what `compile` and `run` use from now on.
#include "commands.h"
#include "driver/report.h"
#include "driver/run.h"

namespace pipethreader::tool {

namespace {

struct Options {
  KernelOptions kernel;
  std::vector<std::string> sizes;
  std::size_t candidates = 16;
};

struct Timed {
  driver::Compiled compiled;
  double ms = 0;
};

Result<Timed> time_one(const runtime::Gpu& gpu, const driver::CompileRequest& request,
                       const driver::Candidate& candidate, const driver::Environment& environment,
                       const oracle::Inputs& inputs) {
  auto compiled = driver::compile_choices(request, candidate, environment);
  if (!compiled) return tl::unexpected(compiled.error());
  auto prepared = driver::GpuRun::prepare(gpu, compiled->plan, compiled->kernel, inputs);
  if (!prepared) return tl::unexpected(prepared.error());
  if (!prepared->has_work()) return fail("there is no work at these sizes");
  if (auto done = prepared->launch(gpu, runtime::Stream()); !done) return tl::unexpected(done.error());
  if (auto done = gpu.synchronize(); !done) return tl::unexpected(done.error());
  const auto outputs = prepared->outputs();
  if (!outputs) return tl::unexpected(outputs.error());
  const auto checked = driver::check(compiled->kernel, inputs, *outputs, 1, 5e7);
  if (!checked) return tl::unexpected(checked.error());
  if (!checked->ok()) return fail("wrong results: {}", checked->format());
  const auto timing = gpu.measure({}, [&](const runtime::Stream& stream) { return prepared->launch(gpu, stream); });
  if (!timing) return tl::unexpected(timing.error());
  return Timed{std::move(*compiled), timing->median_ms};
}

int run(const Options& options, const driver::Environment& environment) {
  const auto gpu = driver::open_gpu();
  if (!gpu) {
    report(gpu.error());
    fmt::print(stderr, "  `tune` times candidates on a card; `compile` ranks them by the model without one\n");
    return Exit::failed;
  }
  const auto request = options.kernel.request(environment, device_of_card());
  if (!request) return report(request.error());
  const auto kernel = kernel::specialise(request->kernel, request->dims, request->options);
  if (!kernel) return report(kernel.error());
  const auto sizes = driver::all_sizes(*kernel, tool::sizes(options.sizes, "--size"));
  if (!sizes) return report(sizes.error());
  const auto inputs = oracle::random_inputs(*kernel, *sizes, 1);
  if (!inputs) return report(inputs.error());
  const auto candidates = driver::choices_for(*kernel, request->device, request->forced);
  if (!candidates) return report(candidates.error());
  std::optional<Timed> best;
  std::vector<driver::Tried> tried;
  for (std::size_t i = 0; i < candidates->size() && i < options.candidates; ++i) {
    const driver::Candidate& candidate = (*candidates)[i];
    auto timed = time_one(*gpu, *request, candidate, environment, *inputs);
    const std::string verdict = timed ? fmt::format("{:.1f} us", timed->ms * 1000) : timed.error().format();
    fmt::print("{:>3}  {:<14}{}\n", i + 1, timed ? verdict : "rejected",
               describe(candidate.choices) + (timed ? "" : ": " + verdict));
    tried.push_back({candidate.choices, candidate.predicted_us, candidate.bound, verdict});
    if (timed && (!best || timed->ms < best->ms)) best = std::move(*timed);
  }
  if (!best) return report(Error(Diagnostic{{}, {}, "no candidate runs", "its line above says why"}));
  best->compiled.plan.tuned = true;
  best->compiled.plan.candidates = std::move(tried);
  if (auto done = driver::remember(*request, best->compiled.plan, environment); !done) return report(done.error());
  fmt::print("best: {:.1f} us: {}\n", best->ms * 1000, describe(best->compiled.plan.choices));
  return Exit::ok;
}

}  // namespace

void add_tune(CLI::App& app, const driver::Environment& environment, Commands& commands) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("tune", "time a kernel's candidates on the card and remember the fastest");
  options->kernel.declare(*command, false);
  command->add_option("--size", options->sizes, "a dynamic dim's size while timing")
      ->allow_extra_args(false)
      ->type_name("NAME=SIZE");
  command->add_option("--candidates", options->candidates, "how many to time at most")
      ->check(CLI::Range(1, 1000))
      ->type_name("COUNT");
  commands[command] = [options, &environment] { return run(*options, environment); };
}

}  // namespace pipethreader::tool
