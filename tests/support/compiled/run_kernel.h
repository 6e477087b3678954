// A kernel through every stage and run in the interpreter beside the oracle. For tests that include what
// compiled_programs.h asks for, and verify/ headers.
#pragma once

#include <string>
#include <vector>

#include "support/compiled/compiled_programs.h"

namespace pipethreader::test {

// Parsed and checked.
inline kernel::Kernel checked(const std::string& text) {
  return compiled::valid(kernel::check(compiled::valid(kernel::parse(text, "test.stask")).front()));
}

struct KernelRun {
  std::string failure;  // empty: right
  std::string generic_reason;
  std::string program;
};

// `dynamic`: the dims named in `sizes` stay dynamic.
inline KernelRun run_kernel(const std::string& text, const std::vector<kernel::Binding>& sizes,
                            const driver::Choices& choices, bool dynamic = false) {
  const kernel::Kernel whole = checked(text);
  const kernel::Kernel kernel = dynamic ? whole : compiled::valid(kernel::specialise(whole, sizes, {}));
  const auto device = compiled::valid(device::load_device(PIPETHREADER_SOURCE_DIR "/devices/h100.toml"));
  std::vector<std::int64_t> by_dim;
  for (const kernel::Dim& dim : whole.dims) {
    std::int64_t size = dim.size.value_or(0);
    for (const kernel::Binding& binding : sizes) {
      if (binding.name == dim.name) size = static_cast<std::int64_t>(binding.value);
    }
    by_dim.push_back(size);
  }
  const auto lowered = driver::lower_kernel(kernel, device, choices);
  if (!lowered) return {lowered.error().format(), {}, {}};
  KernelRun result{{}, lowered->program.generic_reason, program::print(lowered->program)};
  const auto printed = driver::prove_and_print(lowered->program);
  if (!printed) return {printed.error().format() + "\n" + result.program, result.generic_reason, result.program};
  const auto inputs = compiled::valid(oracle::random_inputs(whole, by_dim, 5, {}));
  interpret::Arguments arguments = arguments_for(lowered->program, whole, inputs);
  const auto ran = interpret::run(lowered->program, arguments);
  if (!ran) return {ran.error().format() + "\n" + result.program, result.generic_reason, result.program};
  result.failure =
      difference(whole, compiled::valid(oracle::evaluate(whole, inputs, oracle::Partition::fixed(16))), arguments);
  return result;
}

}  // namespace pipethreader::test
