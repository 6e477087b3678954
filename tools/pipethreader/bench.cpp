#include "bench_suites.h"

namespace pipethreader::tool {

namespace {

struct Options {
  KernelOptions kernel;
  std::vector<std::string> sizes;
  std::vector<std::string> suites;
  std::string out;
  Bursts bursts;
};

void show(const std::string& name, double ms, double flops) {
  fmt::print("  {:<14}{:>12.1f} us", name, ms * 1000);
  if (flops > 0) fmt::print("{:>10.1f} TFLOP/s", flops / ms / 1e9);
  fmt::print("\n");
}

int run_kernel(const Options& options, const driver::Environment& environment) {
  sizes_once(options.kernel.dims, options.sizes);
  const auto gpu = driver::open_gpu();
  if (!gpu) return report(gpu.error());
  const auto request = options.kernel.request(environment, device_of_card());
  if (!request) return report(request.error());
  const auto timing = time_kernel(*gpu, *request, sizes(options.sizes, "--size"), options.bursts, environment);
  if (!timing) return report(timing.error());
  fmt::print("{} on {}: {}\n", timing->kernel, gpu->properties().name, timing->schedule);
  fmt::print("  checked       {}\n", timing->checked.format());
  show("pipethreader", timing->ms, timing->flops);
  if (timing->sustained_ms) show("  under load", *timing->sustained_ms, timing->flops);
  if (timing->peer_ms) {
    show("cuBLAS", *timing->peer_ms, timing->flops);
    fmt::print("  {:<14}{:>12.2f} x cuBLAS\n", "speed", *timing->peer_ms / timing->ms);
  } else {
    fmt::print("  no peer: {}\n", timing->no_cublas.empty() ? "only plain products have one here" : timing->no_cublas);
  }
  return timing->checked.ok() ? Exit::ok : Exit::wrong_results;
}

int run(const Options& options, const driver::Environment& environment) {
  if (!options.suites.empty())
    return bench_suites({options.suites, options.kernel, options.bursts.rounds, options.out}, environment);
  if (options.kernel.file.empty()) throw UsageError{"bench takes a kernel FILE, or --suite NAME"};
  return run_kernel(options, environment);
}

}  // namespace

void add_bench(CLI::App& app, const driver::Environment& environment, Commands& commands) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "bench", "time a kernel, or the rows of a suite, on the card, beside cuBLAS where both can do it");
  options->kernel.declare(*command);
  command->add_option("--size", options->sizes, "a dynamic dim's size while timing")
      ->allow_extra_args(false)
      ->type_name("NAME=SIZE");
  command->add_option("--rounds", options->bursts.rounds, "bursts of each")
      ->check(CLI::Range(1, 1000))
      ->type_name("COUNT");
  command
      ->add_option("--replay", options->bursts.replay, "launches in a captured graph that is timed as one; 1: no graph")
      ->check(CLI::Range(1, 10000))
      ->type_name("COUNT");
  command
      ->add_option("--sustained", options->bursts.sustained_ms,
                   "time it under load, too: after launching for so many milliseconds without a pause")
      ->check(CLI::Range(1, 60000))
      ->type_name("MS");
  CLI::Option* suite = command->add_option("--suite", options->suites, "time all rows of a suite of bench/suites.toml")
                           ->allow_extra_args(false)
                           ->type_name("NAME");
  command->add_option("--out", options->out, "write the rows of the suites as JSON")
      ->check(not_empty())
      ->type_name("FILE.json")
      ->needs(suite);
  // A suite's rows say what and how: only where, with which choices and how often is left to say.
  command->get_option("FILE")->required(false);
  for (const char* name : {"FILE", "--kernel", "--dim", "--option", "--size", "--replay", "--sustained"})
    suite->excludes(command->get_option(name));
  commands[command] = [options, &environment] { return run(*options, environment); };
}

}  // namespace pipethreader::tool
