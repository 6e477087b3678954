#include "runtime/nvrtc.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>

#include "runtime/dynamic_library.h"

namespace pipethreader::runtime {

// The library's functions, by our own declarations; a program is an opaque pointer and every result an int, 0 for
// success.
struct Nvrtc::State {
  explicit State(DynamicLibrary opened) : library(std::move(opened)) {}

  DynamicLibrary library;
  NvrtcLocation location;
  int major = 0;
  int minor = 0;

  int (*get_version)(int*, int*) = nullptr;
  const char* (*error_text)(int) = nullptr;
  int (*architecture_count)(int*) = nullptr;
  int (*architectures)(int*) = nullptr;
  int (*create)(void**, const char* source, const char* name, int headers, const char* const*,
                const char* const*) = nullptr;
  int (*destroy)(void**) = nullptr;
  int (*compile)(void*, int count, const char* const* options) = nullptr;
  int (*log_size)(void*, std::size_t*) = nullptr;
  int (*log)(void*, char*) = nullptr;
  int (*cubin_size)(void*, std::size_t*) = nullptr;
  int (*cubin)(void*, char*) = nullptr;

  [[nodiscard]] Result<void> bind_functions() {
    const char* missing = nullptr;
    const auto bind = [&](auto& function, const char* symbol) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library.symbol(symbol));
      if (function == nullptr) missing = symbol;
    };
    bind(get_version, "nvrtcVersion");
    bind(error_text, "nvrtcGetErrorString");
    bind(architecture_count, "nvrtcGetNumSupportedArchs");
    bind(architectures, "nvrtcGetSupportedArchs");
    bind(create, "nvrtcCreateProgram");
    bind(destroy, "nvrtcDestroyProgram");
    bind(compile, "nvrtcCompileProgram");
    bind(log_size, "nvrtcGetProgramLogSize");
    bind(log, "nvrtcGetProgramLog");
    bind(cubin_size, "nvrtcGetCUBINSize");
    bind(cubin, "nvrtcGetCUBIN");
    if (missing != nullptr) return fail("the library '{}' is no NVRTC: it has no '{}'", location.path, missing);
    if (const int code = get_version(&major, &minor); code != 0)
      return fail("NVRTC at '{}' cannot tell its version: {}", location.path, error_text(code));
    return {};
  }
};

namespace {

// NVRTC opens its builtins by name only, which the loader finds once they are loaded: in a wheel nobody else would.
void preload_builtins(const std::string& library) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path directory = fs::canonical(library, error).parent_path();
  if (error) return;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string file = it->path().filename().string();
    if (file.starts_with("libnvrtc-builtins.so.")) (void)DynamicLibrary::open(it->path().string());
  }
}

// A program of the compiler, destroyed with its owner.
struct Program {
  int (*destroy)(void**);
  void* handle = nullptr;
  ~Program() {
    if (handle != nullptr) destroy(&handle);
  }
};

// The first `limit` lines, and how many more there were.
std::string shortened(const std::string& log, int limit) {
  std::size_t at = 0;
  for (int line = 0; line < limit; ++line) {
    at = log.find('\n', at);
    if (at == std::string::npos) return log;
    ++at;
  }
  const auto rest = std::count(log.begin() + static_cast<std::ptrdiff_t>(at), log.end(), '\n');
  return rest == 0 ? log : fmt::format("{}... and {} lines more", log.substr(0, at), rest);
}

}  // namespace

Result<Nvrtc> Nvrtc::open(const NvrtcSearch& search) {
  auto location = locate_nvrtc(search);
  if (!location) return tl::unexpected(location.error());
  return open(*location);
}

Result<Nvrtc> Nvrtc::open(const NvrtcLocation& location) {
  preload_builtins(location.path);
  auto library = DynamicLibrary::open(location.path);
  if (!library) return tl::unexpected(library.error());
  auto state = std::make_shared<State>(std::move(*library));
  state->location = location;
  if (auto ok = state->bind_functions(); !ok) return tl::unexpected(ok.error());
  Nvrtc nvrtc;
  nvrtc.state_ = std::move(state);
  return nvrtc;
}

std::pair<int, int> Nvrtc::version() const { return {state_->major, state_->minor}; }
std::string Nvrtc::version_text() const { return fmt::format("NVRTC {}.{}", state_->major, state_->minor); }
const NvrtcLocation& Nvrtc::location() const { return state_->location; }

std::vector<std::string> Nvrtc::architectures() const {
  int count = 0;
  if (state_->architecture_count(&count) != 0 || count <= 0) return {};
  std::vector<int> numbers(static_cast<std::size_t>(count));
  if (state_->architectures(numbers.data()) != 0) return {};
  std::vector<std::string> names;
  for (const int number : numbers) names.push_back(fmt::format("sm_{}", number));
  return names;
}

Result<CompiledKernel> Nvrtc::compile(const CompileRequest& request) const {
  const auto begin = std::chrono::steady_clock::now();
  const State& s = *state_;
  const auto failed = [&](std::string_view what, int code, const std::string& log) {
    return fail_at(request.name, {}, fmt::format("{} failed to {}: {}", version_text(), what, s.error_text(code)),
                   shortened(log, 60));
  };
  Program program{s.destroy};
  if (const int code = s.create(&program.handle, request.source.c_str(), request.name.c_str(), 0, nullptr, nullptr);
      code != 0)
    return failed("take the source", code, {});

  std::vector<std::string> options = {"--gpu-architecture=" + request.architecture, "--ptxas-options=-v"};
  options.insert(options.end(), request.options.begin(), request.options.end());
  std::vector<const char*> pointers;
  for (const std::string& option : options) pointers.push_back(option.c_str());
  const int compiled = s.compile(program.handle, static_cast<int>(pointers.size()), pointers.data());

  CompiledKernel kernel;
  std::size_t bytes = 0;
  if (s.log_size(program.handle, &bytes) == 0 && bytes > 1) {
    kernel.log.resize(bytes);
    if (s.log(program.handle, kernel.log.data()) != 0) kernel.log.clear();
    while (!kernel.log.empty() && kernel.log.back() == '\0') kernel.log.pop_back();
  }
  if (compiled != 0) return failed("compile", compiled, kernel.log);
  if (const int code = s.cubin_size(program.handle, &bytes); code != 0 || bytes == 0)
    return failed("give a cubin (is the architecture a real one, sm_90a?)", code, kernel.log);
  kernel.cubin.resize(bytes);
  if (const int code = s.cubin(program.handle, reinterpret_cast<char*>(kernel.cubin.data())); code != 0)
    return failed("give the cubin", code, kernel.log);

  auto report = assembler_report(kernel.log, kernel.cubin);
  if (!report) return tl::unexpected(report.error());
  kernel.report = std::move(*report);
  kernel.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return kernel;
}

std::vector<Result<CompiledKernel>> Nvrtc::compile_all(const std::vector<CompileRequest>& requests, unsigned threads,
                                                       const Progress& finished) const {
  std::vector<std::optional<Result<CompiledKernel>>> slots(requests.size());
  std::atomic<std::size_t> next{0};
  std::atomic<bool> stopped{false};
  std::mutex reporting;
  std::size_t done = 0;  // under the mutex
  const auto work = [&] {
    for (std::size_t i; !stopped && (i = next.fetch_add(1)) < requests.size();) {
      slots[i] = compile(requests[i]);
      const std::lock_guard lock(reporting);
      ++done;
      if (finished && !stopped && !finished(done, requests.size(), i)) stopped = true;
    }
  };
  if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> pool;
  for (std::size_t i = 1; i < std::min<std::size_t>(threads, requests.size()); ++i) pool.emplace_back(work);
  work();
  for (std::thread& thread : pool) thread.join();

  std::vector<Result<CompiledKernel>> results;
  results.reserve(slots.size());
  for (auto& slot : slots) {
    if (slot) {
      results.push_back(std::move(*slot));
    } else {
      results.push_back(fail("not compiled: stopped before its turn"));
    }
  }
  return results;
}

}  // namespace pipethreader::runtime
