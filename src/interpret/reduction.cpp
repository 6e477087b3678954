#include "interpret/reduction.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "interpret/elementwise.h"
#include "interpret/number.h"

namespace pipethreader::interpret {

using namespace program;

namespace {

// The target element that each element of the domain joins.
std::vector<std::int32_t> targets_of(const Reduce& op, std::span<const int> target_shape) {
  const std::vector<int>& shape = op.domain.shape;
  const std::vector<std::int64_t> strides = strides_of(shape);
  const std::vector<std::int64_t> target_strides = strides_of(target_shape);
  std::vector<std::int32_t> targets(elements_of(shape));
  for (std::size_t e = 0; e < targets.size(); ++e) {
    const auto coordinate = [&](std::size_t d) { return static_cast<std::int64_t>(e) / strides[d] % shape[d]; };
    std::int64_t target = 0;
    for (std::size_t k = 0; k < op.kept.size(); ++k)
      target += coordinate(static_cast<std::size_t>(op.kept[k])) * target_strides[k];
    if (op.residual)
      target += coordinate(shape.size() - 1) / op.residual->stride % op.residual->extent * target_strides.back();
    targets[e] = static_cast<std::int32_t>(target);
  }
  return targets;
}

// Where each element is combined: by the one thread that owns it, as its register.
struct Holder {
  int thread = 0;
  int reg = 0;
};

std::vector<Holder> holders_of(const layout::Layout& layout) {
  std::vector<Holder> holders(elements_of(layout.shape));
  const std::vector<std::int64_t> strides = strides_of(layout.shape);
  const int registers = layout.registers();
  for (int thread = 0; thread < layout::threads_of_group; ++thread) {
    if (!layout.owns(thread)) continue;
    for (int reg = 0; reg < registers; ++reg) {
      const std::vector<int> coordinates = layout.coordinates(thread, reg);
      std::int64_t element = 0;
      for (std::size_t d = 0; d < coordinates.size(); ++d) element += coordinates[d] * strides[d];
      holders[static_cast<std::size_t>(element)] = {thread, reg};
    }
  }
  return holders;
}

// Joins the runs of one target, given by their threads in order; the first run ends up with the value.
void join_threads(std::vector<std::pair<int, std::size_t>> runs, std::vector<ReductionPlan::Join>& joins) {
  constexpr int lane_bits = 5;
  for (int bit = 1; bit <= lane_bits + 2; ++bit) {
    const int shift = bit <= lane_bits ? bit : lane_bits + 2;  // behind the lanes: all warps at once
    std::vector<std::pair<int, std::size_t>> left;
    for (const auto& [thread, run] : runs) {
      if (!left.empty() && left.back().first >> shift == thread >> shift)
        joins.push_back({left.back().second, run});
      else
        left.emplace_back(thread, run);
    }
    runs = std::move(left);
  }
}

}  // namespace

ReductionPlan plan_reduction(const Reduce& op, std::span<const int> target_shape) {
  const std::vector<std::int32_t> targets = targets_of(op, target_shape);
  const std::vector<Holder> holders = holders_of(op.domain);
  ReductionPlan plan;
  plan.order.resize(targets.size());
  std::iota(plan.order.begin(), plan.order.end(), 0);
  const auto key = [&](std::int32_t e) {
    const auto i = static_cast<std::size_t>(e);
    return std::tuple(targets[i], holders[i].thread, holders[i].reg);
  };
  std::ranges::sort(plan.order, {}, key);
  plan.results.assign(elements_of(target_shape), 0);
  for (std::size_t begin = 0; begin < plan.order.size();) {
    const auto target = static_cast<std::size_t>(targets[static_cast<std::size_t>(plan.order[begin])]);
    plan.results[target] = plan.runs.size();
    std::vector<std::pair<int, std::size_t>> threads;
    const auto of_target = [&](std::size_t i) {
      return i < plan.order.size() && targets[static_cast<std::size_t>(plan.order[i])] == static_cast<int>(target);
    };
    const auto thread_at = [&](std::size_t i) { return holders[static_cast<std::size_t>(plan.order[i])].thread; };
    while (of_target(begin)) {
      std::size_t end = begin + 1;
      while (of_target(end) && thread_at(end) == thread_at(begin)) ++end;
      threads.emplace_back(thread_at(begin), plan.runs.size());
      plan.runs.push_back({begin, end});
      begin = end;
    }
    join_threads(std::move(threads), plan.joins);
  }
  return plan;
}

float join(ReduceOp op, ScalarType type, float a, float b) {
  if (held_as_float(type)) {
    float out = op == ReduceOp::sum ? a + b : op == ReduceOp::max ? larger(a, b) : smaller(a, b);
    if (type != ScalarType::f32) round_floats(type, {&out, 1});
    return out;
  }
  const std::int64_t x = integer_of(a);
  const std::int64_t y = integer_of(b);
  return word_of(op == ReduceOp::sum ? x + y : op == ReduceOp::max ? std::max(x, y) : std::min(x, y));
}

std::vector<float> reduce(const ReductionPlan& plan, ReduceOp op, ScalarType type, std::span<const float> words) {
  std::vector<float> sums(plan.runs.size());
  const auto word = [&](std::size_t i) { return words[static_cast<std::size_t>(plan.order[i])]; };
  for (std::size_t r = 0; r < sums.size(); ++r) {
    float sum = word(plan.runs[r].begin);
    for (std::size_t i = plan.runs[r].begin + 1; i < plan.runs[r].end; ++i) sum = join(op, type, sum, word(i));
    sums[r] = sum;
  }
  for (const ReductionPlan::Join& pair : plan.joins) sums[pair.into] = join(op, type, sums[pair.into], sums[pair.from]);
  std::vector<float> out(plan.results.size());
  std::ranges::transform(plan.results, out.begin(), [&](std::size_t run) { return sums[run]; });
  return out;
}

}  // namespace pipethreader::interpret
