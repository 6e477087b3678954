// What the assembler did to a kernel: registers, spills, stack, shared memory, and whether it serialised tensor-core
// groups. Read from the text that the assembler prints, or from the ELF of the cubin itself.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"

namespace pipethreader::runtime {

struct FunctionReport {
  std::string name;
  int registers = 0;
  int spill_store_bytes = 0;
  int spill_load_bytes = 0;
  int stack_bytes = 0;
  int static_shared_bytes = 0;
  bool operator==(const FunctionReport&) const = default;
};

struct AssemblerReport {
  // The largest of any function of the cubin.
  int registers = 0;
  int spill_store_bytes = 0;
  int spill_load_bytes = 0;
  int stack_bytes = 0;
  // Tensor-core groups were serialised (C7508, C7510, C7512..C7515, and their kin): right results, no overlap.
  bool serialised = false;
  // The assembler put in fences or waits of its own (C7517, C7519): right results, their place is not ours.
  bool injected_waits = false;
  // A register reallocation (setmaxnreg) was ignored.
  bool ignored_register_budget = false;
  std::vector<std::string> messages;  // every warning and performance remark, a line each
  std::vector<FunctionReport> functions;

  [[nodiscard]] bool spills() const { return spill_store_bytes > 0 || spill_load_bytes > 0; }
  bool operator==(const AssemblerReport&) const = default;
};

// Reads what `-v` makes the assembler print. Text it does not know is skipped.
[[nodiscard]] AssemblerReport parse_assembler_log(std::string_view log);

// Registers, stack and static shared memory of each kernel in a cubin. An ELF does not say how many bytes are spilled:
// spills show as stack only.
[[nodiscard]] Result<AssemblerReport> read_cubin(std::span<const std::byte> cubin);

// The log's report, completed by the cubin's where the log says nothing of a function.
[[nodiscard]] Result<AssemblerReport> assembler_report(std::string_view log, std::span<const std::byte> cubin);

}  // namespace pipethreader::runtime
