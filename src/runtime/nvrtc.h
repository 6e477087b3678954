// The run-time compiler: CUDA source in, cubin and assembler's report out. The library is opened at run time from an
// explicit path, the system toolkit, or the PyPI wheels; when it is missing the error lists where it was looked for and
// what to install. No file is read or written by a compilation.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/diagnostic.h"
#include "runtime/cubin_report.h"

namespace pipethreader::runtime {

// Where to look, in this order; everything here comes from the caller, since nothing below driver/ reads the
// environment.
struct NvrtcSearch {
  std::string library;  // a file or its directory; when given, only this is tried
  std::vector<std::string> toolkit_roots = {"/usr/local/cuda",
                                            "/opt/cuda"};  // and their versioned siblings, newest first
  bool loader = true;                                      // the loader's own path: libnvrtc.so.13, .so.12
  std::vector<std::string> environments;                   // directories holding bin/python3, such as "<program>/.venv"
  std::string python = "python3";                          // asked for its site-packages last; empty: not asked
};

struct CompileRequest {
  std::string name = "kernel.cu";  // appears in messages
  std::string source;
  std::string architecture = "sm_90a";
  std::vector<std::string> options;  // further options, "--use_fast_math"
};

struct CompiledKernel {
  std::vector<std::byte> cubin;
  std::string log;
  AssemblerReport report;
  double seconds = 0;
};

// A library that was found. Finding one reads directories only, unless the loader or python3 has to be asked.
struct NvrtcLocation {
  std::string path;
  // Changes whenever another compiler is installed; part of a cache key, so that a cached compile need not load
  // the library: "libnvrtc.so.13.0.88 104857600 1756900000".
  std::string identity;
};
[[nodiscard]] Result<NvrtcLocation> locate_nvrtc(const NvrtcSearch& search = {});

class Nvrtc {
 public:
  [[nodiscard]] static Result<Nvrtc> open(const NvrtcSearch& search = {});
  [[nodiscard]] static Result<Nvrtc> open(const NvrtcLocation& location);

  [[nodiscard]] std::pair<int, int> version() const;  // {13, 0}
  [[nodiscard]] std::string version_text() const;     // "NVRTC 13.0"
  [[nodiscard]] const NvrtcLocation& location() const;
  [[nodiscard]] std::vector<std::string> architectures() const;  // "sm_90", ...

  // Safe from several threads at once. A failed compilation's error holds the compiler's log.
  [[nodiscard]] Result<CompiledKernel> compile(const CompileRequest& request) const;

  // One result per request, in order. `finished(done, total, index)` is called after each, one call at a time;
  // returning false skips what has not started (those results say so). threads 0: one per core.
  using Progress = std::function<bool(std::size_t done, std::size_t total, std::size_t index)>;
  [[nodiscard]] std::vector<Result<CompiledKernel>> compile_all(const std::vector<CompileRequest>& requests,
                                                                unsigned threads = 0,
                                                                const Progress& finished = {}) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace pipethreader::runtime
