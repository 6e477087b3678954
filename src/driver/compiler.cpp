#include "driver/compiler.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include <dlfcn.h>

#include "runtime/atomic_file.h"
#include "runtime/kernel_cache.h"
#include "task/products.h"
#include "task/split.h"

namespace pipethreader::driver {

namespace {

constexpr std::string_view too_many_registers = "its products need more registers than a launch of so many threads has";

// Which build of the compiler this is: another one must not answer from the same cache entries.
std::string build_identity() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&build_identity), &info) == 0 || info.dli_fname == nullptr) return "unknown";
  std::error_code error;
  std::filesystem::path file = running_program();
  if (!std::string_view(info.dli_fname).empty() && std::string_view(info.dli_fname).ends_with(".so"))
    file = info.dli_fname;
  const auto size = std::filesystem::file_size(file, error);
  if (error) return "unknown";
  const auto time = std::filesystem::last_write_time(file, error);
  return fmt::format("{} {}", size, time.time_since_epoch().count());
}

std::string key_of(const CompileRequest& request, const kernel::Kernel& specialised) {
  std::string key = fmt::format("plan {}\nbuild {}\ndevice {} {:016x}\n", specialised.name, build_identity(),
                                request.device.name, request.device.digest);
  for (const auto& [name, text] : request.forced) key += fmt::format("force {}={}\n", name, text);
  for (const kernel::Dim& dim : specialised.dims) {
    if (dim.size) key += fmt::format("dim {}={}\n", dim.name, *dim.size);
  }
  return key + kernel::print(specialised);
}

// A candidate taken as far as its source.
struct Built {
  Candidate candidate;
  Lowered lowered;
  Printed printed;
};

// What was made of a candidate that failed is the error.
tl::expected<Built, Reached> build(const kernel::Kernel& kernel, const device::Device& device, Candidate candidate,
                                   std::vector<StageTime>* times) {
  Reached lowered = lower_as_far(kernel, device, candidate.choices, times);
  if (lowered.error) return tl::unexpected(std::move(lowered));
  auto printed = prove_and_print(*lowered.program, times);
  if (printed) return Built{std::move(candidate), whole(std::move(lowered)), std::move(*printed)};
  lowered.error = printed.error();
  // Lanes that go ways of their own are the hardest part of a proof.
  candidate.choices.pass_over = false;
  auto together = lower_kernel(kernel, device, candidate.choices, times);
  if (!together || program::print(together->program) == program::print(*lowered.program))
    return tl::unexpected(std::move(lowered));
  auto second = prove_and_print(together->program, times);
  if (!second) return tl::unexpected(std::move(lowered));
  return Built{std::move(candidate), std::move(*together), std::move(*second)};
}

// The same without the copy engine, for sizes that it cannot take; nothing when the first takes all sizes.
Result<std::optional<Built>> build_fallback(const kernel::Kernel& kernel, const device::Device& device,
                                            const Built& built) {
  if (built.printed.verified.program().requirements.empty()) return std::nullopt;
  Candidate plain = built.candidate;
  plain.choices.bulk = false;
  auto fallback = build(kernel, device, plain, nullptr);
  if (!fallback) return tl::unexpected(*fallback.error().error);
  return std::optional<Built>(std::move(*fallback));
}

runtime::CompileRequest assembly_of(const Built& built, const device::Device& device) {
  runtime::CompileRequest request;
  request.name = built.printed.source.entry + ".cu";
  request.source = built.printed.source.text;
  request.architecture = device.architecture;
  return request;
}

// By what factor the faults of its machine code slow a kernel down, about; 1: there are none.
double slowdown(const runtime::AssemblerReport& report, const device::Faults& faults) {
  const double spilled = std::max(report.spill_store_bytes, report.spill_load_bytes);
  return 1 + (report.serialised ? faults.serialised : 0) +
         (report.ignored_register_budget ? faults.ignored_budget : 0) +
         (report.spills() ? faults.spilled + spilled / faults.spilled_bytes_as_time : 0);
}

std::string fault_of(const runtime::AssemblerReport& report) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
  if (report.serialised) add("the assembler serialised the products");
  if (report.ignored_register_budget) add("the assembler ignored the register budgets");
  if (report.spills()) {
    add(fmt::format("{} bytes of registers are spilled", std::max(report.spill_store_bytes, report.spill_load_bytes)));
  }
  return text;
}

Variant variant_of(const Built& built) { return {built.printed.verified.program(), built.printed.source, {}, {}, {}}; }

void take(Variant& variant, const runtime::CompiledKernel& compiled) {
  variant.cubin = compiled.cubin;
  variant.assembler = compiled.report;
  variant.fault = fault_of(compiled.report);
}

// Proofs that end at their budget take seconds each. After a few of them only the small candidates at the end of the
// list are tried, and those only as long as nothing is built.
class Patience {
 public:
  explicit Patience(std::size_t candidates) : small_(candidates - std::min(candidates, small_candidates)) {}
  [[nodiscard]] bool passes_over(std::size_t candidate, bool have_one) const {
    return unproved_ >= most_unproved && (have_one || candidate < small_);
  }
  void note(const Error& error) { unproved_ += error.gave_up ? 1 : 0; }

 private:
  static constexpr int most_unproved = 10;
  static constexpr std::size_t small_candidates = 4;
  std::size_t small_;  // where they begin
  int unproved_ = 0;
};

// Of candidates that failed, the first of those that got furthest: its error says most.
void keep_furthest(std::optional<Reached>& furthest, Reached failed) {
  if (!furthest || failed.stages() > furthest->stages()) furthest = std::move(failed);
}

// Why no candidate could be built: that one's error, or what to do when the proofs took too long.
Error none_built(const kernel::Kernel& kernel, const Error& error) {
  if (!error.gave_up) return error;
  std::vector<std::string> dynamic;
  for (const kernel::Dim& dim : kernel.dims) {
    if (!dim.size) dynamic.push_back(dim.name);
  }
  return Error(Diagnostic{kernel.file,
                          {},
                          fmt::format("no schedule of '{}' could be proved within the budget of a proof", kernel.name),
                          dynamic.empty()
                              ? "write it with fewer nested loops, or a product of 16-bit operands"
                              : fmt::format("fix dims with --dim; dynamic are {}", fmt::join(dynamic, ", "))});
}

class Compilation {
 public:
  Compilation(const CompileRequest& request, const Environment& environment, const Progress& progress)
      : request_(request),
        environment_(environment),
        progress_(progress),
        cache_(request.use_cache ? environment.cache : "") {}

  Result<Compiled> run() {
    auto kernel = kernel::specialise(request_.kernel, request_.dims, request_.options);
    if (!kernel) return tl::unexpected(kernel.error());
    result_.kernel = std::move(*kernel);
    const std::string key = key_of(request_, result_.kernel);
    if (from_cache(key)) return std::move(result_);
    say("ranking schedules");
    auto candidates = choices_for(result_.kernel, request_.device, request_.forced);
    if (!candidates) return tl::unexpected(candidates.error());
    ranked_ = std::move(*candidates);
    for (;;) {
      if (auto done = build_all(); !done) return tl::unexpected(done.error());
      const auto done = choose();
      if (done) break;
      // None of these became machine code: the next ones.
      if (next_ >= ranked_.size() || assembled_.empty()) return tl::unexpected(done.error());
      pass_over();
    }
    if (auto stored = cache_.store_blob(key, pack(result_.plan)); !stored) warn(stored.error());
    return std::move(result_);
  }

  Result<Compiled> run_one(const Candidate& candidate) {
    auto kernel = kernel::specialise(request_.kernel, request_.dims, request_.options);
    if (!kernel) return tl::unexpected(kernel.error());
    result_.kernel = std::move(*kernel);
    ranked_ = {candidate};
    if (auto done = build_all(); !done) return tl::unexpected(done.error());
    if (auto done = choose(); !done) return tl::unexpected(done.error());
    return std::move(result_);
  }

 private:
  void say(const std::string& text) const {
    if (progress_) progress_(text);
  }
  void warn(const Error& error) {
    for (const Diagnostic& d : error.diagnostics)
      result_.warnings.push_back(d.message + (d.hint.empty() ? "" : "\n  hint: " + d.hint));
  }

  bool from_cache(const std::string& key) {
    const auto start = std::chrono::steady_clock::now();
    const auto blob = cache_.lookup_blob(key);
    if (!blob) return false;
    auto plan = unpack(*blob);
    if (!plan) return false;
    if (!plan->assembled() && request_.assemble) {
      const auto found = runtime::locate_nvrtc(environment_.nvrtc);
      if (found) return false;
      plan->no_machine_code = found.error().format();
    }
    if (plan->assembled() && !same_compiler(*plan)) return false;
    result_.plan = std::move(*plan);
    result_.from_cache = true;
    const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - start;
    result_.times.push_back({"cache", spent.count()});
    return true;
  }

  // A run-time compiler that was replaced makes its machine code again; one that is gone leaves what it made.
  static bool same_compiler(const Plan& plan) {
    runtime::NvrtcSearch search;
    search.library = plan.compiler_path;
    const auto found = runtime::locate_nvrtc(search);
    return !found || found->identity == plan.compiler;
  }

  // The best few that can be built. What is generic because of its tiles gives way to what is specialised.
  Result<void> build_all() {
    std::optional<Reached> furthest;
    std::vector<Built> generic;
    const auto wanted = static_cast<std::size_t>(std::max(1, request_.candidates));
    Patience patience(ranked_.size());
    for (; next_ < ranked_.size(); ++next_) {
      if (built_.size() >= wanted || generic.size() >= 2 * wanted + 4) break;
      if (patience.passes_over(next_, !built_.empty() || !generic.empty())) continue;
      const Candidate& candidate = ranked_[next_];
      say(fmt::format("candidate {}: {}", built_.size() + 1, describe(candidate.choices)));
      std::vector<StageTime> times;
      auto built = build(result_.kernel, request_.device, candidate, &times);
      if (!built) {
        const Error& error = *built.error().error;
        patience.note(error);
        rejected_.push_back({candidate.choices, candidate.predicted_us, candidate.bound, error.format()});
        keep_furthest(furthest, std::move(built.error()));
        continue;
      }
      if (result_.times.empty()) result_.times = std::move(times);
      const bool plain = !built->printed.verified.program().generic_reason.empty();
      (plain ? generic : built_).push_back(std::move(*built));
    }
    const std::size_t specialised = built_.size();
    for (Built& built : generic) {
      if (specialised == 0 && built_.size() < wanted) built_.push_back(std::move(built));
    }
    if (built_.empty()) return tl::unexpected(none_built(result_.kernel, *furthest->error));
    return {};
  }

  // A few more that are predicted to be faster than `limit`.
  bool build_more(std::size_t count, double limit) {
    constexpr std::size_t most = 16;  // in all
    const std::size_t before = built_.size();
    for (; next_ < ranked_.size() && built_.size() < std::min(before + count, most); ++next_) {
      const Candidate& candidate = ranked_[next_];
      if (candidate.predicted_us == 0 || candidate.predicted_us >= limit) break;
      say(fmt::format("candidate {}: {}", built_.size() + 1, describe(candidate.choices)));
      auto built = build(result_.kernel, request_.device, candidate, nullptr);
      if (built && built->printed.verified.program().generic_reason.empty()) built_.push_back(std::move(*built));
    }
    return built_.size() > before;
  }

  void pass_over() {
    for (std::size_t i = 0; i < built_.size(); ++i) {
      const Candidate& c = built_[i].candidate;
      rejected_.push_back({c.choices, c.predicted_us, c.bound, verdicts_[i]});
    }
    built_.clear();
    assembled_.clear();
    verdicts_.clear();
  }

  Result<void> choose() {
    Plan& plan = result_.plan;
    plan.kernel = result_.kernel.name;
    plan.text = kernel::print(result_.kernel);
    plan.device = request_.device.name;
    std::optional<runtime::NvrtcLocation> location;
    if (request_.assemble) {
      auto found = runtime::locate_nvrtc(environment_.nvrtc);
      if (found)
        location = *found;
      else
        plan.no_machine_code = found.error().format();
    } else {
      plan.no_machine_code = "source only, as asked";
    }
    return location ? choose_assembled(*location) : choose_first();
  }

  void note(std::size_t winner) {
    for (std::size_t i = 0; i < built_.size(); ++i) {
      const Candidate& c = built_[i].candidate;
      std::string verdict = verdicts_.size() > i ? verdicts_[i] : "";
      if (i == winner) verdict = verdict.empty() ? "chosen" : "chosen although " + verdict;
      if (verdict.empty()) verdict = i < assembled_.size() && !assembled_[i] ? "not needed" : "ranked lower";
      result_.plan.candidates.push_back({c.choices, c.predicted_us, c.bound, verdict});
    }
    for (Tried& tried : rejected_) result_.plan.candidates.push_back(std::move(tried));
    result_.plan.choices = built_[winner].candidate.choices;
    result_.plan.note = repeated_products(built_[winner].lowered.graph);
  }

  // A row that does not stay on chip is walked again for what needs all of it, and what it is made from is made again.
  [[nodiscard]] std::string repeated_products(const task::Graph& graph) const {
    std::int64_t written = 0;
    for (std::size_t i = 0; i < result_.kernel.exprs.size(); ++i) {
      if (result_.kernel.exprs[i].kind == kernel::Expr::Kind::reduce &&
          task::product_shape(result_.kernel, kernel::ExprId(i)))
        ++written;
    }
    const auto made = std::count_if(graph.tasks.begin(), graph.tasks.end(),
                                    [](const task::Task& t) { return t.product.has_value(); });
    if (made <= written) return {};
    return fmt::format(
        "{} products are computed for {} in the kernel: rows that do not stay on chip are walked more than once", made,
        written);
  }

  // The launch behind a split kernel: what its own ranking puts first, of what can be built and assembled.
  Result<void> add_join(std::size_t winner, const runtime::Nvrtc* nvrtc) {
    const int parts = built_[winner].candidate.choices.split;
    if (parts == 1) return {};
    say("the second launch, which joins the parts");
    const auto halves = task::split(result_.kernel, parts);
    if (!halves) return tl::unexpected(halves.error());
    const auto candidates = choices_for(halves->join, request_.device, {{"split", "1"}});
    if (!candidates) return tl::unexpected(candidates.error());
    std::optional<Built> join;
    std::optional<Reached> furthest;
    for (const Candidate& candidate : *candidates) {
      auto built = build(halves->join, request_.device, candidate, nullptr);
      if (built) {
        join = std::move(*built);
        break;
      }
      keep_furthest(furthest, std::move(built.error()));
    }
    if (!join) return tl::unexpected(*furthest->error);
    Variant variant = variant_of(*join);
    if (nvrtc != nullptr) {
      auto own = assemble(*nvrtc, {assembly_of(*join, request_.device)});
      if (!own[0]) return tl::unexpected(own[0].error());
      take(variant, own[0]->kernel);
    }
    result_.plan.joins.push_back(std::move(variant));
    return {};
  }

  Result<void> choose_first() {
    auto fallback = build_fallback(result_.kernel, request_.device, built_[0]);
    if (!fallback) return tl::unexpected(fallback.error());
    result_.plan.variants.push_back(variant_of(built_[0]));
    if (*fallback) result_.plan.variants.push_back(variant_of(**fallback));
    note(0);
    return add_join(0, nullptr);
  }

  Result<void> choose_assembled(const runtime::NvrtcLocation& location) {
    auto nvrtc = runtime::Nvrtc::open(location);
    if (!nvrtc) return tl::unexpected(nvrtc.error());
    const auto start = std::chrono::steady_clock::now();
    result_.plan.compiler = location.identity;
    result_.plan.compiler_path = location.path;
    const auto winner = assemble_until_good(*nvrtc);
    if (!winner) return tl::unexpected(winner.error());
    Variant best = variant_of(built_[*winner]);
    take(best, (*assembled_[*winner])->kernel);
    result_.plan.variants.push_back(std::move(best));
    if (auto done = add_fallback(*nvrtc, *winner); !done) return done;
    if (auto done = add_join(*winner, &*nvrtc); !done) return done;
    note(*winner);
    const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - start;
    result_.times.push_back({"assemble", spent.count()});
    return {};
  }

  using Assembled = Result<runtime::CachedCompile>;

  std::vector<Assembled> assemble(const runtime::Nvrtc& nvrtc, const std::vector<runtime::CompileRequest>& requests) {
    auto compiled = runtime::compile_all_cached(nvrtc, cache_, requests, request_.threads,
                                                [&](std::size_t done, std::size_t total, std::size_t) {
                                                  say(fmt::format("assembled {} of {}", done, total));
                                                  return true;
                                                });
    for (const auto& c : compiled) {
      if (c && !c->warning.empty()) result_.warnings.push_back(c->warning);
    }
    return compiled;
  }

  // As many at a time as there are cores, in the order of their rank, until none of the others can be faster than the
  // best, its faults counted.
  // Source that does not compile is a fault of ours: reported, not hidden.
  Result<std::size_t> assemble_until_good(const runtime::Nvrtc& nvrtc) {
    const std::size_t batch =
        std::max(1U, request_.threads > 0 ? request_.threads : std::thread::hardware_concurrency());
    std::optional<std::size_t> best;
    for (std::size_t first = 0;; first += batch) {
      if (best && first < built_.size() && predicted(first) >= cost_of(*best)) break;
      if (first >= built_.size() && !(best && build_more(batch, cost_of(*best)))) break;
      assembled_.resize(built_.size());
      verdicts_.resize(built_.size());
      const std::size_t last = std::min(first + batch, built_.size());
      std::vector<runtime::CompileRequest> requests;
      for (std::size_t i = first; i < last; ++i) requests.push_back(assembly_of(built_[i], request_.device));
      auto compiled = assemble(nvrtc, requests);
      for (std::size_t i = first; i < last; ++i) {
        assembled_[i] = std::move(compiled[i - first]);
        if (judge(i) && (!best || cost_of(i) < cost_of(*best))) best = i;
      }
    }
    if (!best && verdicts_[0] == too_many_registers)
      return fail_at({}, {},
                     fmt::format("every schedule of '{}' that was tried: {}", result_.kernel.name, verdicts_[0]),
                     "force fewer lanes or blocks, smaller tiles, or nothing");
    if (!best) return tl::unexpected(assembled_[0]->error());
    return *best;
  }

  // Notes what is wrong with a candidate's machine code; false when there is none.
  bool judge(std::size_t i) {
    const Assembled& compiled = *assembled_[i];
    if (compiled) {
      verdicts_[i] = fault_of(compiled->kernel.report);
      return true;
    }
    const std::string why = compiled.error().format();
    if (why.find("Insufficient registers") != std::string::npos) {
      verdicts_[i] = too_many_registers;
      return false;
    }
    verdicts_[i] = "its source does not compile: " + why;
    result_.warnings.push_back(fmt::format("a candidate's source does not compile; please report this: {}", why));
    return false;
  }

  // What nothing is predicted of comes behind what has a prediction.
  [[nodiscard]] double predicted(std::size_t i) const {
    constexpr double unknown = 1e12;
    const double us = built_[i].candidate.predicted_us;
    return us > 0 ? us : unknown;
  }
  [[nodiscard]] double cost_of(std::size_t i) const {
    return predicted(i) * slowdown((*assembled_[i])->kernel.report, request_.device.faults);
  }

  // For sizes that the winner cannot take.
  Result<void> add_fallback(const runtime::Nvrtc& nvrtc, std::size_t winner) {
    auto fallback = build_fallback(result_.kernel, request_.device, built_[winner]);
    if (!fallback) return tl::unexpected(fallback.error());
    if (!*fallback) return {};
    auto own = assemble(nvrtc, {assembly_of(**fallback, request_.device)});
    if (!own[0]) return tl::unexpected(own[0].error());
    Variant variant = variant_of(**fallback);
    take(variant, own[0]->kernel);
    result_.plan.variants.push_back(std::move(variant));
    return {};
  }

  const CompileRequest& request_;
  const Environment& environment_;
  const Progress& progress_;
  runtime::KernelCache cache_;
  Compiled result_;
  std::vector<Candidate> ranked_;
  std::size_t next_ = 0;  // of these, to be built
  std::vector<Built> built_;
  std::vector<std::optional<Assembled>> assembled_;  // by built_; nothing: not needed
  std::vector<std::string> verdicts_;                // by built_: why the machine code is bad; empty: it is not
  std::vector<Tried> rejected_;                      // never built
};

}  // namespace

Result<kernel::Kernel> load_kernel(const std::string& path, const std::string& name) {
  auto bytes = runtime::read_file(path);
  if (!bytes)
    return fail_at(path, {},
                   bytes.error().diagnostics.empty() ? "cannot be read" : bytes.error().diagnostics[0].message);
  const std::string text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  auto kernels = kernel::parse(text, path);
  if (!kernels) return tl::unexpected(kernels.error());
  if (kernels->empty()) return fail_at(path, {}, "the file holds no kernel");
  std::vector<std::string> names;
  for (kernel::Kernel& k : *kernels) {
    if (name.empty() || k.name == name) return kernel::check(std::move(k));
    names.push_back(k.name);
  }
  return fail_at(path, {}, fmt::format("there is no kernel '{}' in this file", name),
                 fmt::format("it holds {}", fmt::join(names, ", ")));
}

Result<Compiled> compile(const CompileRequest& request, const Environment& environment, const Progress& progress) {
  return Compilation(request, environment, progress).run();
}

Result<Compiled> compile_choices(const CompileRequest& request, const Candidate& candidate,
                                 const Environment& environment) {
  return Compilation(request, environment, {}).run_one(candidate);
}

Result<void> remember(const CompileRequest& request, const Plan& plan, const Environment& environment) {
  auto kernel = kernel::specialise(request.kernel, request.dims, request.options);
  if (!kernel) return tl::unexpected(kernel.error());
  return runtime::KernelCache(environment.cache).store_blob(key_of(request, *kernel), pack(plan));
}

Result<Staged> compile_stages(const CompileRequest& request, const std::optional<Choices>& choices,
                              std::optional<Reached>* reached) {
  auto kernel = kernel::specialise(request.kernel, request.dims, request.options);
  if (!kernel) return tl::unexpected(kernel.error());
  auto candidates = choices ? Result<std::vector<Candidate>>(std::vector<Candidate>{{*choices, 0, ""}})
                            : choices_for(*kernel, request.device, request.forced);
  if (!candidates) return tl::unexpected(candidates.error());
  std::optional<Reached> furthest;
  Patience patience(candidates->size());
  for (std::size_t i = 0; i < candidates->size(); ++i) {
    if (patience.passes_over(i, false)) continue;
    std::vector<StageTime> times;
    auto built = build(*kernel, request.device, (*candidates)[i], &times);
    if (built) {
      return Staged{std::move(*kernel), std::move(built->candidate), std::move(built->lowered),
                    std::move(built->printed), std::move(times)};
    }
    patience.note(*built.error().error);
    keep_furthest(furthest, std::move(built.error()));
  }
  const Error error = none_built(*kernel, *furthest->error);
  if (reached != nullptr) *reached = std::move(furthest);
  return tl::unexpected(error);
}

}  // namespace pipethreader::driver
