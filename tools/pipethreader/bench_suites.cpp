#include "bench_suites.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>

#include <nlohmann/json.hpp>

#include "driver/report.h"
#include "suites.h"

namespace pipethreader::tool {

namespace {

using nlohmann::ordered_json;

// "M4096 N4096 K4096, not causal, graph of 20": a row's sizes and options, as the documents write them.
std::string described(const SuiteRow& row) {
  std::string text;
  for (const std::string& dim : row.dims) {
    const std::size_t sign = dim.find('=');
    text += (text.empty() ? "" : " ") + dim.substr(0, sign) + dim.substr(sign + 1);
  }
  for (const std::string& option : row.options) {
    const auto [name, value] = split(option, "options", "NAME=VALUE");
    text += ", " + (value == "true" ? name : value == "false" ? "not " + name : option);
  }
  if (row.replay > 1) text += fmt::format(", graph of {}", row.replay);
  return text;
}

std::string name_of(const SuiteRow& row) {
  return row.kernel.empty() ? row.file.substr(0, row.file.rfind('.')) : row.kernel;
}

// The command that times this row alone.
std::string command_of(const SuiteRow& row, const SuitesRequest& request) {
  std::string text = "pipethreader bench kernels/" + row.file;
  const auto add = [&](const char* option, const std::vector<std::string>& values) {
    for (const std::string& value : values) text += fmt::format(" {} {}", option, value);
  };
  if (!row.kernel.empty()) add("--kernel", {row.kernel});
  if (!request.common.device.empty()) add("--device", {request.common.device});
  add("--dim", row.dims);
  add("--option", row.options);
  add("--force", separate(request.common.forced));
  if (row.replay > 1) add("--replay", {std::to_string(row.replay)});
  add("--rounds", {std::to_string(request.rounds)});
  return text;
}

std::string command_of(const SuitesRequest& request) {
  std::string text = "pipethreader bench";
  for (const std::string& name : request.names) text += " --suite " + name;
  if (!request.common.device.empty()) text += " --device " + request.common.device;
  for (const std::string& forced : separate(request.common.forced)) text += " --force " + forced;
  return text + fmt::format(" --rounds {}", request.rounds);
}

double rounded(double value, int digits) {
  const double scale = std::pow(10.0, digits);
  return std::round(value * scale) / scale;
}

std::string today() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm local{};
  localtime_r(&now, &local);
  return fmt::format("{:04}-{:02}-{:02}", local.tm_year + 1900, local.tm_mon + 1, local.tm_mday);
}

double tera(double flops, double ms) { return flops / ms / 1e9; }

class SuitesRun {
 public:
  SuitesRun(const SuitesRequest& request, const driver::Environment& environment, const runtime::Gpu& gpu)
      : request_(request), environment_(environment), gpu_(gpu), fallback_device_(device_of_card()) {
    report_ = {{"card", gpu.properties().name},
               {"clock", fmt::format("{:.0f} MHz at most", gpu.properties().peak_clock_mhz)},
               {"date", today()},
               {"command", command_of(request)},
               {"rows", ordered_json::array()},
               {"failed", ordered_json::array()}};
  }

  // Before anything is timed, and after each row: what was measured is kept however this ends.
  [[nodiscard]] Result<void> write() const {
    if (request_.out.empty()) return {};
    return driver::write_text(request_.out, report_.dump(1) + "\n");
  }

  [[nodiscard]] Result<void> suite(const std::string& name, const std::vector<SuiteRow>& rows) {
    std::size_t kernel = 6, sizes = 5;
    for (const SuiteRow& row : rows) {
      kernel = std::max(kernel, name_of(row).size());
      sizes = std::max(sizes, described(row).size());
    }
    fmt::print("{} on {}\n", name, gpu_.properties().name);
    fmt::print("  {:<{}}  {:<{}}  {:>9}  {:>8}  {:>9}  {:>6}\n", "kernel", kernel, "sizes", sizes, "us", "TFLOP/s",
               "cuBLAS us", "ratio");
    for (const SuiteRow& row : rows) {
      const std::string label = fmt::format("{:<{}}  {:<{}}", name_of(row), kernel, described(row), sizes);
      one(name, row, label);
      if (auto written = write(); !written) return written;
    }
    return {};
  }

  [[nodiscard]] int status() const { return failed_ > 0 ? Exit::failed : wrong_ > 0 ? Exit::wrong_results : Exit::ok; }

 private:
  Result<KernelTiming> timed(const SuiteRow& row) const {
    KernelOptions options = request_.common;
    options.file = data_file(environment_, "kernels/" + row.file);
    if (options.file.empty()) return fail("no kernels/{} was found", row.file);
    options.name = row.kernel;
    options.dims = row.dims;
    options.options = row.options;
    const auto request = options.request(environment_, fallback_device_);
    if (!request) return tl::unexpected(request.error());
    return time_kernel(gpu_, *request, {}, {request_.rounds, row.replay}, environment_);
  }

  void one(const std::string& suite, const SuiteRow& row, const std::string& label) {
    const auto timing = timed(row);
    end_progress();
    if (!timing) {
      ++failed_;
      return fails(suite, row, label, "failed", timing.error().format());
    }
    if (!timing->checked.ok()) {
      ++wrong_;
      return fails(suite, row, label, "wrong", timing->checked.format());
    }
    if (no_cublas_.empty() && !timing->no_cublas.empty()) {
      no_cublas_ = timing->no_cublas;
      warn({no_cublas_});
    }
    show(*timing, label);
    keep(suite, row, *timing);
  }

  void fails(const std::string& suite, const SuiteRow& row, const std::string& label, const char* how,
             const std::string& why) {
    fmt::print("  {}  {:>9}\n", label, how);
    std::fflush(stdout);
    fmt::print(stderr, "{} {}: {}\n", name_of(row), described(row), why);
    report_["failed"].push_back({{"suite", suite}, {"command", command_of(row, request_)}, {"error", why}});
  }

  static void show(const KernelTiming& timing, const std::string& label) {
    const std::string rate = timing.flops > 0 ? fmt::format("{:.1f}", tera(timing.flops, timing.ms)) : "";
    const std::string peer = timing.peer_ms ? fmt::format("{:.1f}", *timing.peer_ms * 1000) : "";
    const std::string ratio = timing.peer_ms ? fmt::format("{:.2f}", *timing.peer_ms / timing.ms) : "";
    // No spaces behind the last number.
    std::string line = fmt::format("  {}  {:>9.1f}  {:>8}  {:>9}  {:>6}", label, timing.ms * 1000, rate, peer, ratio);
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::print("{}\n", line);
    std::fflush(stdout);
  }

  void keep(const std::string& suite, const SuiteRow& row, const KernelTiming& timing) {
    ordered_json entry = {{"suite", suite}, {"command", command_of(row, request_)}, {"ms", rounded(timing.ms, 5)}};
    if (timing.flops > 0) entry["tflops"] = rounded(tera(timing.flops, timing.ms), 1);
    if (timing.peer_ms) {
      entry["peer"] = "cuBLAS";
      entry["peer_ms"] = rounded(*timing.peer_ms, 5);
      entry["ratio"] = rounded(*timing.peer_ms / timing.ms, 3);
      entry["peer_tflops"] = rounded(tera(timing.flops, *timing.peer_ms), 1);
    }
    report_["rows"].push_back(std::move(entry));
  }

  const SuitesRequest& request_;
  const driver::Environment& environment_;
  const runtime::Gpu& gpu_;
  const std::string fallback_device_;
  ordered_json report_;
  std::string no_cublas_;  // told once
  int failed_ = 0, wrong_ = 0;
};

}  // namespace

int bench_suites(const SuitesRequest& request, const driver::Environment& environment) {
  no_repeats(request.names, "--suite");
  const auto suites = load_suites(environment);
  if (!suites) return report(suites.error());
  for (const std::string& name : request.names) {
    if (suites->contains(name)) continue;
    std::vector<std::string> known;
    for (const auto& [suite, rows] : *suites) known.push_back(suite);
    throw UsageError{fmt::format("there is no suite '{}'; known are {}", name, fmt::join(known, ", "))};
  }
  const auto gpu = driver::open_gpu();
  if (!gpu) return report(gpu.error());
  SuitesRun run(request, environment, *gpu);
  if (auto written = run.write(); !written) return report(written.error());
  for (const std::string& name : request.names) {
    if (auto done = run.suite(name, suites->at(name)); !done) return report(done.error());
  }
  return run.status();
}

}  // namespace pipethreader::tool
