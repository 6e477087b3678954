// The global tensors of a run. Outputs start unwritten; every element remembers who wrote it, and, where the program
// also reads the tensor, who read it. Clusters are unordered.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "interpret/launch.h"
#include "interpret/shadow.h"

namespace pipethreader::interpret {

class GlobalMemory {
 public:
  GlobalMemory(const Launch& launch, Arguments& arguments, FaultSink& faults);

  // Element `index` (row-major).
  double read(program::TensorId tensor, std::int64_t index, int cluster, const Toucher& now);
  void write(program::TensorId tensor, std::int64_t index, double value, int cluster, const Toucher& now);

  [[nodiscard]] std::int64_t unwritten() const;

 private:
  bool inside(program::TensorId tensor, std::int64_t index);
  struct Element {
    Access write;
    Access read;  // the last one
    std::int32_t write_cluster = -1;
    std::int32_t read_cluster = -1;
  };
  void check(program::TensorId tensor, std::int64_t index, const Access& earlier, int earlier_cluster, int cluster,
             const Toucher& now, std::string_view what);

  const Launch& launch_;
  Arguments& arguments_;
  FaultSink& faults_;
  std::vector<std::vector<Element>> shadows_;       // outputs only, when races are looked for
  std::vector<std::vector<std::uint8_t>> written_;  // outputs only
};

}  // namespace pipethreader::interpret
