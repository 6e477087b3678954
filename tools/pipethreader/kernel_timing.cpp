#include "kernel_timing.h"

#include <algorithm>
#include <functional>

#include "driver/report.h"
#include "product_peer.h"
#include "watchdog.h"

namespace pipethreader::tool {

namespace {

constexpr double check_budget = 1e8;  // scalar operations of the oracle

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

// Under load: launches without a pause until the time is over, then the median of as many as a burst has.
Result<double> time_sustained(const runtime::Gpu& gpu, int load_ms,
                              const std::function<Result<void>(const runtime::Stream&)>& work) {
  const auto one = gpu.measure({}, work);
  if (!one) return tl::unexpected(one.error());
  runtime::MeasureOptions options;
  options.idle_ms = 0;
  options.warmups = std::max(1, static_cast<int>(load_ms / std::max(0.001, one->median_ms)));
  const auto timing = gpu.measure(options, work);
  if (!timing) return tl::unexpected(timing.error());
  return timing->median_ms;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Result<driver::Check> check_once(const runtime::Gpu& gpu, driver::GpuRun& run, driver::Expected& expected,
                                 const std::string& schedule) {
  Watchdog watchdog;
  watchdog.begin(schedule);
  if (auto done = run.launch(gpu, runtime::Stream()); !done) return tl::unexpected(done.error());
  if (auto done = gpu.synchronize(); !done) return tl::unexpected(done.error());
  watchdog.begin("");
  const auto outputs = run.outputs_at(expected.outputs());
  if (!outputs) return tl::unexpected(outputs.error());
  return expected.check(*outputs);
}

// The product that cuBLAS is given, and the library.
struct Peer {
  PlainProduct product;
  Cublas cublas;
};

// Nothing where the kernel is no plain product, or, with the reason in `missing`, where there is no cuBLAS.
std::optional<Peer> peer_of(const kernel::Kernel& kernel, const driver::Plan& plan,
                            const driver::Environment& environment, std::string& missing) {
  const auto product = plain_product(kernel);
  if (!product) return std::nullopt;
  auto opened = Cublas::open(plan.compiler_path, environment.nvrtc.environments);
  if (opened) return Peer{*product, std::move(*opened)};
  const Diagnostic& why = opened.error().diagnostics.front();
  missing = why.message + (why.hint.empty() ? "" : "; " + why.hint);
  return std::nullopt;
}

// Fills in the times.
Result<void> time_rounds(const runtime::Gpu& gpu, driver::GpuRun& run, const kernel::Kernel& kernel,
                         const std::vector<std::int64_t>& sizes, const Bursts& bursts, const std::optional<Peer>& peer,
                         KernelTiming& timing) {
  const auto extent = [&](kernel::AxisId a) { return kernel::evaluate_size(kernel, kernel[a].extent, sizes); };
  std::vector<double> mine, theirs;
  Watchdog watchdog;
  for (int round = 0; round < bursts.rounds; ++round) {
    if (bursts.replay == 1) watchdog.begin(timing.schedule);  // a graph may take long and be well
    const auto own = time(gpu, bursts.replay, [&](const runtime::Stream& stream) { return run.launch(gpu, stream); });
    if (!own) return tl::unexpected(own.error());
    mine.push_back(*own);
    if (!peer) continue;
    const auto other = time(gpu, bursts.replay, [&](const runtime::Stream& stream) {
      const PlainProduct& p = peer->product;
      return peer->cublas.multiply(p, extent(p.m), extent(p.n), extent(p.k), run.address(p.x), run.address(p.y),
                                   run.address(p.out), stream);
    });
    if (!other) return tl::unexpected(other.error());
    theirs.push_back(*other);
  }
  watchdog.begin("");
  timing.ms = median(mine);
  if (bursts.sustained_ms > 0) {
    const auto sustained = time_sustained(gpu, bursts.sustained_ms,
                                          [&](const runtime::Stream& stream) { return run.launch(gpu, stream); });
    if (!sustained) return tl::unexpected(sustained.error());
    timing.sustained_ms = *sustained;
  }
  if (peer) timing.peer_ms = median(theirs);
  return {};
}

}  // namespace

Result<KernelTiming> time_kernel(const runtime::Gpu& gpu, const driver::CompileRequest& request,
                                 const std::vector<kernel::Binding>& sizes, const Bursts& bursts,
                                 const driver::Environment& environment) {
  const auto compiled = driver::compile(request, environment, progress());
  if (!compiled) return tl::unexpected(compiled.error());
  warn(compiled->warnings);
  const kernel::Kernel& kernel = compiled->kernel;
  const auto all = driver::all_sizes(kernel, sizes, driver::Held::inputs);
  if (!all) return tl::unexpected(all.error());
  const auto inputs = oracle::random_inputs(kernel, *all, 1);
  if (!inputs) return tl::unexpected(inputs.error());
  auto run = driver::GpuRun::prepare(gpu, compiled->plan, kernel, *inputs);
  if (!run) return tl::unexpected(run.error());
  if (!run->has_work()) return fail("there is no work at these sizes");
  auto expected = driver::Expected::evaluate(kernel, *inputs, 1, check_budget);
  if (!expected) return tl::unexpected(expected.error());
  auto checked = check_once(gpu, *run, *expected, describe(compiled->plan.choices));
  if (!checked) return tl::unexpected(checked.error());

  KernelTiming timing;
  timing.kernel = kernel.name;
  timing.schedule = fmt::format("{}, {}", driver::specialisation(compiled->plan.variants[run->variant()].program),
                                describe(compiled->plan.choices));
  timing.checked = std::move(*checked);
  timing.flops = driver::product_flops(kernel, *all).value_or(0);
  const auto peer = peer_of(kernel, compiled->plan, environment, timing.no_cublas);
  if (auto done = time_rounds(gpu, *run, kernel, *all, bursts, peer, timing); !done)
    return tl::unexpected(done.error());
  return timing;
}

}  // namespace pipethreader::tool
