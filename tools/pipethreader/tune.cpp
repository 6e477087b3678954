// Times the candidates of a kernel on the card and makes the fastest what `compile` and `run` use from now on.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <random>
#include <thread>

#include <nlohmann/json.hpp>

#include "commands.h"
#include "driver/report.h"
#include "driver/run.h"
#include "watchdog.h"

namespace pipethreader::tool {

namespace {

constexpr double check_budget = 2e7;  // scalar operations of the oracle

struct Options {
  KernelOptions kernel;
  std::vector<std::string> sizes;
  std::size_t candidates = 16;
  std::size_t random = 0;
  std::string out;
};

// The best by prediction, and some of the others at random.
std::vector<driver::Candidate> drawn(std::vector<driver::Candidate> all, const Options& options) {
  const std::size_t best = options.candidates - std::min(options.random, options.candidates);
  if (options.random > 0 && all.size() > best) {
    std::mt19937_64 generator(1);
    std::shuffle(all.begin() + static_cast<std::ptrdiff_t>(best), all.end(), generator);
  }
  if (all.size() > options.candidates) all.resize(options.candidates);
  return all;
}

// All before any is timed: a host that compiles launches late, and single launches are timed.
std::vector<Result<driver::Compiled>> compile_all(const driver::CompileRequest& request,
                                                  const std::vector<driver::Candidate>& candidates,
                                                  const driver::Environment& environment) {
  driver::CompileRequest one = request;
  one.threads = 1;
  std::vector<Result<driver::Compiled>> compiled(candidates.size(), fail("not compiled"));
  std::atomic<std::size_t> next = 0, done = 0;
  std::mutex mutex;
  const driver::Progress show = progress();
  const auto work = [&] {
    for (std::size_t i = next++; i < candidates.size(); i = next++) {
      compiled[i] = driver::compile_choices(one, candidates[i], environment);
      const std::lock_guard lock(mutex);
      if (show) show(fmt::format("compiled {} of {}", ++done, candidates.size()));
    }
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::max(1U, std::thread::hardware_concurrency()); ++t) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  end_progress();
  return compiled;
}

class Tuning {
 public:
  Tuning(const runtime::Gpu& gpu, const oracle::Inputs& inputs, driver::Expected& expected)
      : gpu_(gpu), inputs_(inputs), expected_(expected) {}

  // Milliseconds of a launch; an error where what it computes is wrong.
  Result<double> time(const driver::Compiled& compiled) {
    if (auto done = load(compiled); !done) return tl::unexpected(done.error());
    if (!run_->has_work()) return fail("there is no work at these sizes");
    watchdog_.begin(describe(compiled.plan.choices));
    const auto timing = gpu_.measure({}, [&](const runtime::Stream& stream) { return run_->launch(gpu_, stream); });
    watchdog_.begin("");
    if (!timing) return tl::unexpected(timing.error());
    if (auto right = check(); !right) return tl::unexpected(right.error());
    return timing->median_ms;
  }

 private:
  Result<void> load(const driver::Compiled& compiled) {
    if (run_) return run_->take(gpu_, compiled.plan, compiled.kernel, inputs_);
    auto prepared = driver::GpuRun::prepare(gpu_, compiled.plan, compiled.kernel, inputs_);
    if (!prepared) return tl::unexpected(prepared.error());
    run_ = std::move(*prepared);
    return {};
  }

  Result<void> check() {
    const auto outputs = run_->outputs_at(expected_.outputs());
    if (!outputs) return tl::unexpected(outputs.error());
    const auto checked = expected_.check(*outputs);
    if (!checked) return tl::unexpected(checked.error());
    if (!checked->ok()) return fail("wrong results: {}", checked->format());
    return {};
  }

  const runtime::Gpu& gpu_;
  const oracle::Inputs& inputs_;
  driver::Expected& expected_;
  std::optional<driver::GpuRun> run_;
  Watchdog watchdog_;
};

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
  sizes_once(options.kernel.dims, options.sizes);
  const auto sizes = driver::all_sizes(*kernel, tool::sizes(options.sizes, "--size"), driver::Held::inputs);
  if (!sizes) return report(sizes.error());
  const auto inputs = oracle::random_inputs(*kernel, *sizes, 1);
  if (!inputs) return report(inputs.error());
  auto expected = driver::Expected::evaluate(*kernel, *inputs, 1, check_budget);
  if (!expected) return report(expected.error());
  auto all = driver::choices_for(*kernel, request->device, request->forced);
  if (!all) return report(all.error());
  const std::vector<driver::Candidate> candidates = drawn(std::move(*all), options);
  auto compiled = compile_all(*request, candidates, environment);
  Tuning tuning(*gpu, *inputs, *expected);
  std::optional<std::size_t> best;
  double best_ms = 0;
  std::vector<driver::Tried> tried;
  nlohmann::ordered_json measured = {
      {"card", gpu->properties().name}, {"kernel", kernel->name}, {"candidates", nlohmann::ordered_json::array()}};
  nlohmann::ordered_json& rows = measured["candidates"];
  const auto write = [&]() -> Result<void> {
    return options.out.empty() ? Result<void>() : driver::write_text(options.out, measured.dump(1) + "\n");
  };
  if (auto done = write(); !done) return report(done.error());  // before anything is timed
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const driver::Candidate& candidate = candidates[i];
    const auto ms = compiled[i] ? tuning.time(*compiled[i]) : tl::unexpected(compiled[i].error());
    const std::string verdict = ms ? fmt::format("{:.1f} us", *ms * 1000) : ms.error().format();
    // What was built may lack what could not be proved.
    const std::string text = describe(compiled[i] ? compiled[i]->plan.choices : candidate.choices);
    fmt::print("{:>3}  {:<14}{}\n", i + 1, ms ? verdict : "rejected", text + (ms ? "" : ": " + verdict));
    std::fflush(stdout);
    nlohmann::ordered_json row = {{"choices", text}, {"predicted_us", candidate.predicted_us}};
    row[ms ? "measured_us" : "rejected"] = ms ? nlohmann::ordered_json(*ms * 1000) : nlohmann::ordered_json(verdict);
    const std::string fault = compiled[i] ? compiled[i]->plan.variants.front().fault : "";
    if (!fault.empty()) row["fault"] = fault;
    rows.push_back(std::move(row));
    if (auto done = write(); !done) return report(done.error());  // kept however this ends
    tried.push_back({candidate.choices, candidate.predicted_us, candidate.bound, verdict});
    if (ms && (!best || *ms < best_ms)) {
      best = i;
      best_ms = *ms;
    }
  }
  if (!best) return report(Error(Diagnostic{{}, {}, "no candidate runs", "its line above says why"}));
  driver::Plan& plan = compiled[*best]->plan;
  plan.tuned = true;
  plan.candidates = std::move(tried);
  if (auto done = driver::remember(*request, plan, environment); !done) return report(done.error());
  fmt::print("best: {:.1f} us: {}\n", best_ms * 1000, describe(plan.choices));
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
      ->check(CLI::Range(1, 10000))
      ->type_name("COUNT");
  command
      ->add_option("--random", options->random,
                   "how many of them are drawn at random; the others are the best by prediction")
      ->check(CLI::Range(0, 10000))
      ->type_name("COUNT");
  command->add_option("--out", options->out, "write what was predicted and measured as JSON")
      ->check(not_empty())
      ->type_name("FILE.json");
  commands[command] = [options, &environment] { return run(*options, environment); };
}

}  // namespace pipethreader::tool
