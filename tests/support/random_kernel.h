// Random small kernels in index notation, as .stask text: valid by construction, with numbers that stay tame (bounded
// exponents, no overflow of f16, no division by almost nothing) and results that do not depend on how loops are cut
// into tiles. The same seed gives the same kernel everywhere.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "kernel/kernel.h"
#include "oracle/oracle.h"

namespace pipethreader::testing {

struct RandomKernel {
  std::uint64_t seed = 0;
  std::string text;
  std::vector<kernel::Binding> sizes;  // of the dynamic dims
  std::vector<oracle::Range> ranges;   // of inputs that need another than the default
  int all_sizes = 0;                   // but those of batches and windows
  int aligned_sizes = 0;               // how many of them are multiples of 8
  // What the kernel is made of: "chained" (a product feeds a product), "product", "carried", "mask", "window", "ragged"
  // (a size that is no multiple of 16, the smallest tile), "unaligned" (rows that are no multiple of 8 elements long),
  // "dynamic", "static", "epilogue", "row_reduction", "several_outputs", "several_loops", "before_loop", "gqa",
  // "broadcast", "transposed", "when", "combine", "ordered", "f16", "bf16", "f32", "short_product" (of 16-bit
  // operands), "inner_rows".
  std::set<std::string> features;
};

[[nodiscard]] RandomKernel random_kernel(std::uint64_t seed);

// The sizes by DimId, for oracle::Inputs.
[[nodiscard]] std::vector<std::int64_t> sizes_of(const kernel::Kernel& kernel, const RandomKernel& random);

}  // namespace pipethreader::testing
