// The whole compiler: a checked kernel in, a plan with machine code out. Tries the best few candidates, assembles them
// in parallel, keeps the first that the assembler has no objection to, and remembers the outcome on disk.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "driver/candidates.h"
#include "driver/environment.h"
#include "driver/plan.h"

namespace pipethreader::driver {

// Parses and checks a file; `name` picks one of several kernels, the first when empty. Errors point into the file.
[[nodiscard]] Result<kernel::Kernel> load_kernel(const std::string& path, const std::string& name = {});

struct CompileRequest {
  kernel::Kernel kernel;  // checked
  std::vector<kernel::Binding> dims;
  std::vector<kernel::Binding> options;
  device::Device device;
  Forced forced;
  int candidates = 4;    // compiled at most
  bool assemble = true;  // off: source only
  bool use_cache = true;
  unsigned threads = 0;  // of the run-time compiler; 0: one per core
};

// Called with a line of text as work goes on.
using Progress = std::function<void(const std::string&)>;

struct Compiled {
  kernel::Kernel kernel;  // specialised: dims without a size are dynamic
  Plan plan;
  bool from_cache = false;
  std::vector<StageTime> times;
  std::vector<std::string> warnings;
};

[[nodiscard]] Result<Compiled> compile(const CompileRequest& request, const Environment& environment,
                                       const Progress& progress = {});

// The stages up to the proved program and its source, for these choices or the first candidate that fits; no machine
// code, no cache.
struct Staged {
  kernel::Kernel kernel;
  Candidate candidate;
  Lowered lowered;
  Printed printed;
  std::vector<StageTime> times;
};
// Where no candidate goes the whole way, `reached` gets what was made of the one that got furthest.
[[nodiscard]] Result<Staged> compile_stages(const CompileRequest& request, const std::optional<Choices>& choices = {},
                                            std::optional<Reached>* reached = nullptr);

// A plan for one set of choices, assembled; what tuning times.
[[nodiscard]] Result<Compiled> compile_choices(const CompileRequest& request, const Candidate& candidate,
                                               const Environment& environment);
// Makes the plan what compile() answers from now on.
[[nodiscard]] Result<void> remember(const CompileRequest& request, const Plan& plan, const Environment& environment);

}  // namespace pipethreader::driver
