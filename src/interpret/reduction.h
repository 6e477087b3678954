// The order in which a reduction combines its elements, as its layout fixes it: first each thread its registers in
// order, then lanes in pairs (the lowest bit of the lane first), then warps one after the other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "program/program.h"

namespace pipethreader::interpret {

struct ReductionPlan {
  struct Run {  // one thread's elements of one target
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  struct Join {  // between runs: into += from
    std::size_t into = 0;
    std::size_t from = 0;
  };
  std::vector<std::int32_t> order;  // domain elements, run by run
  std::vector<Run> runs;
  std::vector<Join> joins;
  std::vector<std::size_t> results;  // by target element: the run that ends up with its value
};

[[nodiscard]] ReductionPlan plan_reduction(const program::Reduce& op, std::span<const int> target_shape);

// A word of the type joined with another.
[[nodiscard]] float join(program::ReduceOp op, ScalarType type, float a, float b);

// One word for each target element, from one for each domain element.
[[nodiscard]] std::vector<float> reduce(const ReductionPlan& plan, program::ReduceOp op, ScalarType type,
                                        std::span<const float> words);

}  // namespace pipethreader::interpret
