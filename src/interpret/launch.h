// What is fixed for a whole run: the program with its sizes filled in, and names for reports.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "interpret/elementwise.h"
#include "interpret/fault_sink.h"
#include "interpret/interpret.h"
#include "interpret/reduction.h"
#include "program/program.h"

namespace pipethreader::interpret {

struct ResolvedMap {
  program::TensorId tensor;
  std::vector<std::int64_t> extent;
  std::vector<std::int64_t> stride;
  std::vector<int> box;
  std::vector<int> step;
  int rows = 1;  // of the box: its outer dims flattened
  int cols = 1;
};

class Launch {
 public:
  Launch(const program::Program& program, const Arguments& arguments, const RunOptions& options, FaultSink& faults);

  const program::Program& program;
  const RunOptions& options;
  std::vector<double> params;
  std::vector<std::vector<std::int64_t>> shapes;  // by TensorId
  std::vector<ResolvedMap> maps;                  // by MapId
  std::vector<bool> read;                         // by TensorId: some instruction reads it
  CodeCache code;
  std::unordered_map<const program::Reduce*, ReductionPlan> reductions;  // made at first use

  [[nodiscard]] bool replay() const { return options.decisions.has_value(); }
  [[nodiscard]] bool numbers() const { return !replay(); }
  [[nodiscard]] std::int64_t elements(program::TensorId tensor) const;
  [[nodiscard]] bool fills_by_bulk(program::RoleId role, program::RingId ring) const;
  [[nodiscard]] const program::ForWork* work() const { return work_; }  // the first of all roles; may be null
  // Which warps hold each element of a layout (row-major), a bit each.
  [[nodiscard]] const std::vector<std::uint8_t>& warps_of(const layout::Layout& layout);
  // "consumer.0.2.1 (mma: scores)"
  [[nodiscard]] std::string place(const program::Instr* instr) const;

 private:
  void note(std::size_t role, const program::Instr& instr);
  void resolve_map(const program::TensorMap& map, const Uniforms& uniforms);

  std::unordered_map<const program::Instr*, std::string> places_;
  std::unordered_map<const layout::Layout*, std::vector<std::uint8_t>> warps_;
  std::vector<std::vector<bool>> bulk_;  // by RoleId, RingId
  const program::ForWork* work_ = nullptr;
};

template <class Id>
[[nodiscard]] std::size_t at(Id id) {
  return static_cast<std::size_t>(id.index);
}

}  // namespace pipethreader::interpret
