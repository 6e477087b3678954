// The compiler as one straight function: a checked kernel and a device in, a proved and printed device program out.
// Every stage is named, timed and dumpable. The choices (tiles, lanes, overlap, depths) come in; search/ makes them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "device/device.h"
#include "emit/emit.h"
#include "partition/assignment.h"
#include "partition/partition.h"
#include "program/program.h"
#include "schedule/sprogram.h"
#include "task/graph.h"
#include "verify/verify.h"

namespace pipethreader::driver {

struct Choices {
  int split = 1;  // parts of the loop that work items share out; a second launch joins what they leave
  task::Walk walk;
  partition::Choice partition;
  schedule::Choice schedule;
  bool bulk = true;
  bool pass_over = true;  // a lane passes over tiles in which its rows have no point
  bool operator==(const Choices&) const = default;
};

// What each stage made, for reports and dumps.
struct Lowered {
  task::Graph graph;
  partition::Partition partition;
  partition::Assignment assignment;
  schedule::Program schedule;
  program::Program program;  // legalised, not yet proved
};

// The stages as far as they went.
struct Reached {
  std::optional<task::Graph> graph;
  std::optional<partition::Partition> partition;
  std::optional<partition::Assignment> assignment;
  std::optional<schedule::Program> schedule;
  std::optional<program::Program> program;
  std::optional<Error> error;  // why they went no further; nothing where all is there

  [[nodiscard]] int stages() const;  // how many left something
};

struct StageTime {
  std::string stage;
  double milliseconds = 0;
};

// kernel -> task graph -> partition -> assignment -> sProgram -> device program. With a split, the kernel of the first
// launch.
[[nodiscard]] Reached lower_as_far(const kernel::Kernel& specialised, const device::Device& device,
                                   const Choices& choices, std::vector<StageTime>* times = nullptr);
[[nodiscard]] Result<Lowered> lower_kernel(const kernel::Kernel& specialised, const device::Device& device,
                                           const Choices& choices, std::vector<StageTime>* times = nullptr);

// What went the whole way.
[[nodiscard]] Lowered whole(Reached reached);

// The device program's proof and source.
struct Printed {
  verify::VerifiedProgram verified;
  emit::CudaSource source;
};
[[nodiscard]] Result<Printed> prove_and_print(const program::Program& program, std::vector<StageTime>* times = nullptr);

}  // namespace pipethreader::driver
