// The C++ API of PipeThreader: kernels in index notation, from text or from the builder (pipethreader/builder.h),
// compiled for a device and run. Nothing here needs a GPU, a driver or a CUDA toolkit to build; without them compile()
// gives source, and run() interprets.
//
//   auto kernel = pipethreader::load("kernels/matmul.stask");
//   auto compiled = pipethreader::compile(*kernel, {.dims = {{"M", 512}, {"N", 512}, {"K", 64}}});
//   std::puts(compiled->source().c_str());
//   auto result = compiled->run_random({.where = pipethreader::Where::cpu});
//   if (!result || !result->correct) ...
//
// Everything that can fail returns a Result; its error's format() is the message for the user.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/diagnostic.h"
#include "kernel/kernel.h"
#include "pipethreader/builder.h"

namespace pipethreader {

// Parses and checks a kernel: of a file, or of a text.
[[nodiscard]] Result<kernel::Kernel> load(const std::string& path, const std::string& kernel_name = {});
[[nodiscard]] Result<kernel::Kernel> parse(const std::string& text, const std::string& kernel_name = {});

struct CompileOptions {
  std::string device = "h100";               // a name, or a .toml file
  std::map<std::string, std::int64_t> dims;  // dims left out stay dynamic: one binary for all sizes
  std::map<std::string, double> options;
  std::vector<std::string> data = {};  // folders that hold devices/, before the installed one
  bool machine_code = true;            // off: CUDA source only, of the schedule ranked first
  bool use_cache = true;
#ifdef PIPETHREADER_DATA_FOLDER  // of the installed package
  std::string installed_data = PIPETHREADER_DATA_FOLDER;
#else
  std::string installed_data = {};
#endif
};

// Row-major; values are exact in the tensor's type.
struct Array {
  std::vector<std::int64_t> shape;
  std::vector<double> values;
};

enum class Where { cpu, gpu };  // interpreted, or on the first card

struct RunOptions {
  Where where = Where::cpu;
  std::map<std::string, std::int64_t> sizes = {};  // of dynamic dims
  std::map<std::string, double> scalars = {};
  std::uint64_t seed = 1;
};

struct RunResult {
  std::map<std::string, Array> outputs;
  double microseconds = 0;  // on a card: the median of many launches
  bool correct = false;     // run_random: within the oracle's bound
  std::string check;        // run_random: the comparison in one line
};

class CompiledKernel {
 public:
  [[nodiscard]] const std::string& name() const;
  [[nodiscard]] const std::string& source() const;          // CUDA
  [[nodiscard]] std::span<const std::byte> cubin() const;   // empty without a run-time compiler
  [[nodiscard]] const std::string& generic_reason() const;  // empty: specialised
  [[nodiscard]] std::string report() const;                 // for people
  [[nodiscard]] std::string report_json() const;

  // Inputs by name; every input and scalar must be given.
  [[nodiscard]] Result<RunResult> run(const std::map<std::string, Array>& inputs, const RunOptions& options = {}) const;
  // Random inputs (and scalars that are not given), compared with the oracle.
  [[nodiscard]] Result<RunResult> run_random(const RunOptions& options = {}) const;

  struct State;
  explicit CompiledKernel(std::shared_ptr<const State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<const State> state_;
};

// `kernel` may come fresh from the builder: it is checked here.
[[nodiscard]] Result<CompiledKernel> compile(const kernel::Kernel& kernel, const CompileOptions& options = {});

}  // namespace pipethreader
