// What a compiled kernel is: the choices that won, one or more printed kernels with their machine code, and what the
// host has to know to launch them. A plan is complete: running one needs no stage of the compiler again. It is what the
// cache holds.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "driver/pipeline.h"
#include "emit/emit.h"
#include "kernel/kernel.h"
#include "program/program.h"
#include "runtime/cubin_report.h"

namespace pipethreader::driver {

struct Variant {
  program::Program program;  // proved; its `requirements` say for which sizes it may be launched
  emit::CudaSource source;
  std::vector<std::byte> cubin;  // empty: there was no run-time compiler
  runtime::AssemblerReport assembler;
  std::string fault;  // what is wrong with the machine code (spills, serialised products); empty: nothing
};

// A candidate that was compiled, and what became of it.
struct Tried {
  Choices choices;
  double predicted_us = 0;  // 0: not predicted
  std::string bound;        // what bounds it; empty: not predicted
  std::string verdict;      // "chosen", "not needed", or why it was rejected
};

struct Plan {
  std::string kernel;  // its name
  std::string text;    // as specialised, in the kernel language
  std::string device;  // name
  Choices choices;
  std::vector<Variant> variants;  // in the order to try at launch; the last has no requirements
  std::vector<Variant> joins;     // launched behind it, on what it leaves in the workspace; tensors go by name
  std::vector<Tried> candidates;
  std::string compiler;  // identity of the run-time compiler; empty: none
  std::string compiler_path;
  std::string no_machine_code;  // why there is none and what to do; empty: there is
  bool tuned = false;           // chosen by timing on a card
  std::string note;             // what costs time and is not plain from the kernel; empty: nothing

  [[nodiscard]] const Variant& best() const { return variants.front(); }
  [[nodiscard]] bool assembled() const { return !variants.empty() && !variants.front().cubin.empty(); }
  [[nodiscard]] const std::string& generic_reason() const { return best().program.generic_reason; }
};

// Whether the tensor core has work; taken to be so where nothing was built.
[[nodiscard]] bool has_products(const Plan& plan);

// "specialised" or "generic: why".
[[nodiscard]] std::string specialisation(const program::Program& program);

// The values of a variant's parameters: sizes by DimId and scalars by ScalarId of the kernel it was made from.
[[nodiscard]] Result<std::vector<double>> parameters(const program::Program& program, const kernel::Kernel& kernel,
                                                     const std::vector<std::int64_t>& sizes,
                                                     const std::vector<double>& scalars);

// The first variant whose requirements hold.
[[nodiscard]] Result<std::size_t> variant_for(const Plan& plan, const kernel::Kernel& kernel,
                                              const std::vector<std::int64_t>& sizes,
                                              const std::vector<double>& scalars);

// One string and back. What cannot be read (of another version, damaged) is nothing.
[[nodiscard]] std::string pack(const Plan& plan);
[[nodiscard]] std::optional<Plan> unpack(std::string_view text);

}  // namespace pipethreader::driver
