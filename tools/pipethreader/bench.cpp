#include <algorithm>
#include <functional>
#include <optional>

#include "commands.h"
#include "driver/report.h"
#include "driver/run.h"
#include "product_peer.h"

namespace pipethreader::tool {

namespace {

struct Options {
  KernelOptions kernel;
  std::vector<std::string> sizes;
  int rounds = 5;
  int replay = 1;
};

// The median milliseconds of a launch, of single launches or of those of a graph.
Result<double> time(const runtime::Gpu& gpu, int replay,
                    const std::function<Result<void>(const runtime::Stream&)>& work) {
  std::optional<runtime::Graph> graph;
  if (replay > 1) {
    auto captured = gpu.capture([&](const runtime::Stream& stream) -> Result<void> {
      for (int i = 0; i < replay; ++i)
        if (auto done = work(stream); !done) return done;
      return {};
    });
    if (!captured) return tl::unexpected(captured.error());
    graph = std::move(*captured);
  }
  const auto timing =
      gpu.measure({}, [&](const runtime::Stream& stream) { return graph ? graph->launch(stream) : work(stream); });
  if (!timing) return tl::unexpected(timing.error());
  return timing->median_ms / replay;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void show(const std::string& name, double ms, double flops) {
  fmt::print("  {:<14}{:>12.1f} us", name, ms * 1000);
  if (flops > 0) fmt::print("{:>10.1f} TFLOP/s", flops / ms / 1e9);
  fmt::print("\n");
}

int run(const Options& options, const driver::Environment& environment) {
  const auto gpu = driver::open_gpu();
  if (!gpu) return report(gpu.error());
  const auto request = options.kernel.request(environment, device_of_card());
  if (!request) return report(request.error());
  const auto compiled = driver::compile(*request, environment, progress());
  if (!compiled) return report(compiled.error());
  warn(compiled->warnings);
  const kernel::Kernel& kernel = compiled->kernel;
  const auto sizes = driver::all_sizes(kernel, tool::sizes(options.sizes, "--size"));
  if (!sizes) return report(sizes.error());
  const auto inputs = oracle::random_inputs(kernel, *sizes, 1);
  if (!inputs) return report(inputs.error());
  auto ours = driver::GpuRun::prepare(*gpu, compiled->plan, kernel, *inputs);
  if (!ours) return report(ours.error());
  if (!ours->has_work()) return report(Error(Diagnostic{{}, {}, "there is no work at these sizes", ""}));
  if (auto done = ours->launch(*gpu, runtime::Stream()); !done) return report(done.error());
  if (auto done = gpu->synchronize(); !done) return report(done.error());
  const auto outputs = ours->outputs();
  if (!outputs) return report(outputs.error());
  const auto checked = driver::check(kernel, *inputs, *outputs, 1, 1e8);
  if (!checked) return report(checked.error());
  fmt::print("{} on {}: {}, {}\n", kernel.name, gpu->properties().name,
             driver::specialisation(compiled->plan.variants[ours->variant()].program),
             describe(compiled->plan.choices));
  fmt::print("  checked       {}\n", checked->format());

  const auto product = plain_product(kernel);
  std::optional<Cublas> peer;
  std::string no_peer = "no peer: only plain products have one here";
  if (product) {
    auto opened = Cublas::open(compiled->plan.compiler_path, environment.nvrtc.environments);
    if (opened)
      peer = std::move(*opened);
    else
      no_peer = opened.error().format();
  }
  const auto extent = [&](kernel::AxisId a) { return kernel::evaluate_size(kernel, kernel[a].extent, *sizes); };
  // Bursts of the two take turns, so that both see the same card.
  std::vector<double> mine, theirs;
  for (int round = 0; round < options.rounds; ++round) {
    const auto own =
        time(*gpu, options.replay, [&](const runtime::Stream& stream) { return ours->launch(*gpu, stream); });
    if (!own) return report(own.error());
    mine.push_back(*own);
    if (!peer) continue;
    const auto other = time(*gpu, options.replay, [&](const runtime::Stream& stream) {
      return peer->multiply(*product, extent(product->m), extent(product->n), extent(product->k),
                            ours->address(product->x), ours->address(product->y), ours->address(product->out), stream);
    });
    if (!other) return report(other.error());
    theirs.push_back(*other);
  }
  const double flops = driver::product_flops(kernel, *sizes).value_or(0);
  show("pipethreader", median(mine), flops);
  if (peer) {
    show("cuBLAS", median(theirs), flops);
    fmt::print("  {:<14}{:>12.2f} x cuBLAS\n", "speed", median(theirs) / median(mine));
  } else {
    fmt::print("  {}\n", no_peer);
  }
  return checked->ok() ? Exit::ok : Exit::wrong_results;
}

}  // namespace

void add_bench(CLI::App& app, const driver::Environment& environment, Commands& commands) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("bench", "time a kernel on the card, beside cuBLAS where both can do it");
  options->kernel.declare(*command);
  command->add_option("--size", options->sizes, "a dynamic dim's size while timing")
      ->allow_extra_args(false)
      ->type_name("NAME=SIZE");
  command->add_option("--rounds", options->rounds, "bursts of each")->check(CLI::Range(1, 1000))->type_name("COUNT");
  command->add_option("--replay", options->replay, "launches in a captured graph that is timed as one; 1: no graph")
      ->check(CLI::Range(1, 10000))
      ->type_name("COUNT");
  commands[command] = [options, &environment] { return run(*options, environment); };
}

}  // namespace pipethreader::tool
