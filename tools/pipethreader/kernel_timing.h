// One kernel at one size on the card: compiled, judged by the oracle on random inputs, and timed, beside cuBLAS where
// it is one plain product. Bursts of the two take turns, so that both see the same card.
#pragma once

#include <optional>
#include <string>

#include "commands.h"
#include "driver/run.h"

namespace pipethreader::tool {

struct Bursts {
  int rounds = 5;
  int replay = 1;        // so many launches are captured in a graph and timed as one; 1: no graph
  int sustained_ms = 0;  // launches for so long before the time is taken, as the card runs under load; 0: none
};

struct KernelTiming {
  std::string kernel;
  std::string schedule;  // how it is specialised, and its choices
  driver::Check checked;
  double ms = 0;  // of a launch, the median over the rounds
  std::optional<double> sustained_ms;
  double flops = 0;               // 0: the kernel has no products
  std::optional<double> peer_ms;  // cuBLAS's
  std::string no_cublas;          // why it was not found for a kernel that it could do
};

// `sizes`: of the dims that `request` leaves dynamic. Warnings of the compiler go to stderr. Numbers that are wrong are
// no error here: `checked` says so.
[[nodiscard]] Result<KernelTiming> time_kernel(const runtime::Gpu& gpu, const driver::CompileRequest& request,
                                               const std::vector<kernel::Binding>& sizes, const Bursts& bursts,
                                               const driver::Environment& environment);

}  // namespace pipethreader::tool
