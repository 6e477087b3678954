#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "interpret/elementwise.h"
#include "interpret/number.h"
#include "interpret/reduction.h"
#include "layout/layout.h"
#include "program/expr_builder.h"

namespace pipethreader::interpret {
namespace {

using namespace program;

// --- rounding --------------------------------------------------------------------------------------------------------

TEST(Numbers, FloatsRoundBitForBitAsScalarTypesDo) {
  std::mt19937 random(11);
  std::vector<float> values = {0.0f,     -0.0f,      65504.0f, 65519.99f, 65520.0f,  1e30f,   0x1p-14f, 0x1p-24f,
                               0x1p-25f, 0x1.8p-25f, 0x1p-26f, INFINITY,  -INFINITY, 3.3e38f, 0x1p-130f};
  for (int i = 0; i < 20000; ++i) values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  for (int i = 0; i < 20000; ++i) values.push_back(static_cast<float>(random()) * 0x1p-16f - 32768.0f);
  for (int i = 0; i < 20000; ++i) values.push_back(static_cast<float>(random()) * 0x1p-47f);
  for (const ScalarType type : {ScalarType::f16, ScalarType::bf16, ScalarType::tf32, ScalarType::f8e4m3}) {
    std::vector<float> rounded = values;
    round_floats(type, rounded);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto expected = static_cast<float>(round_to(type, values[i]));
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(rounded[i])) << values[i];
        continue;
      }
      ASSERT_EQ(std::bit_cast<std::uint32_t>(rounded[i]), std::bit_cast<std::uint32_t>(expected))
          << pipethreader::name(type) << " of " << values[i];
    }
  }
}

TEST(Numbers, IntegersFloor) {
  for (std::int64_t a = -9; a <= 9; ++a)
    for (std::int64_t b = -4; b <= 4; ++b) {
      if (b == 0) continue;
      const std::int64_t* args[] = {&a, &b};
      std::int64_t quotient = 0;
      std::int64_t remainder = 0;
      apply_integers(Function::div, args, 1, &quotient);
      apply_integers(Function::mod, args, 1, &remainder);
      EXPECT_EQ(quotient, static_cast<std::int64_t>(std::floor(static_cast<double>(a) / static_cast<double>(b))));
      EXPECT_EQ(quotient * b + remainder, a);
    }
}

TEST(Numbers, MinimumAndMaximumPassOverNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(larger(nan, -1.0f), -1.0f);
  EXPECT_EQ(larger(-1.0f, nan), -1.0f);
  EXPECT_EQ(smaller(nan, 2.0f), 2.0f);
  EXPECT_EQ(smaller(2.0f, nan), 2.0f);
}

// --- expressions -----------------------------------------------------------------------------------------------------

class Expressions : public ::testing::Test {
 protected:
  std::vector<float> evaluate(ExprId root, std::vector<int> shape, std::vector<const float*> fragments = {}) {
    CodeCache cache(program);
    const Code& code = cache.compile({root}, std::move(shape));
    const Uniforms uniforms{&program, params, vars, 0, 0, &faults};
    Evaluation evaluation(code, uniforms, std::move(fragments));
    std::vector<float> out(code.elements);
    for (std::size_t begin = 0; begin < code.elements; begin += chunk_elements) {
      const std::size_t count = std::min(chunk_elements, code.elements - begin);
      evaluation.load(begin, count);
      evaluation.words(0, count, out.data() + begin);
    }
    return out;
  }
  FragmentId fragment(ScalarType type, std::vector<int> shape) {
    if (program.roles.empty()) program.roles.push_back({"r", RoleKind::computer, 1, 0, {}});
    program.fragments.push_back({"f", type, layout::replicated_over_threads(shape), RoleId(std::size_t{0})});
    return FragmentId(program.fragments.size() - 1);
  }
  Program program;
  ExprBuilder make{program};
  std::vector<double> params;
  std::vector<std::int64_t> vars;
  FaultSink faults;
};

TEST_F(Expressions, CoordinatesSelectElements) {
  const ExprId column = make.convert(ScalarType::f32, make.coord(1));
  const ExprId value = make.select(make.le(make.coord(1), make.coord(0)), column, make.constant(ScalarType::f32, -1));
  const std::vector<float> out = evaluate(value, {20, 30});  // more than one chunk
  for (int i = 0; i < 20; ++i)
    for (int j = 0; j < 30; ++j)
      EXPECT_EQ(out[static_cast<std::size_t>(i * 30 + j)], j <= i ? static_cast<float>(j) : -1.0f);
}

TEST_F(Expressions, FragmentsAreReadByTheirOwnDims) {
  const std::vector<float> v = {1, 2, 3};
  const std::vector<float> t = {10, 20, 30, 40, 50, 60};
  const ExprId by_columns = make.fragment(fragment(ScalarType::f32, {3}), {1});
  const ExprId transposed = make.fragment(fragment(ScalarType::f32, {3, 2}), {1, 0});
  EXPECT_EQ(evaluate(make.add(by_columns, transposed), {2, 3}, {v.data(), t.data()}),
            (std::vector<float>{11, 32, 53, 21, 42, 63}));
}

TEST_F(Expressions, RoundAfterEveryOperation) {
  const ExprId h = make.fragment(fragment(ScalarType::f16, {1}), {0});
  const std::vector<float> word = {2048.0f};
  const ExprId one = make.constant(ScalarType::f16, 1);
  const ExprId wide = make.add(make.convert(ScalarType::f32, h), make.constant(ScalarType::f32, 1));
  EXPECT_EQ(evaluate(make.add(make.add(h, one), one), {1}, {word.data()})[0], 2048.0f);
  EXPECT_EQ(evaluate(wide, {1}, {word.data()})[0], 2049.0f);
}

TEST_F(Expressions, OverflowOfAnElementIsAFault) {
  const ExprId big = make.add(make.coord(0), 70000);
  evaluate(make.mul(big, big), {4});
  ASSERT_TRUE(faults.any());
  EXPECT_EQ(faults.first().kind, FaultKind::overflow);
}

// --- reductions ------------------------------------------------------------------------------------------------------

Reduce reduction(ReduceOp op, layout::Layout domain, std::vector<int> kept) {
  Reduce reduce;
  reduce.op = op;
  reduce.domain = std::move(domain);
  reduce.kept = std::move(kept);
  return reduce;
}

std::vector<float> reduced(const Reduce& op, const std::vector<int>& shape, const std::vector<float>& words) {
  return reduce(plan_reduction(op, shape), op.op, ScalarType::f32, words);
}

// Small whole numbers: sums are exact in any order.
std::vector<float> small_numbers(std::size_t count) {
  std::vector<float> words(count);
  for (std::size_t i = 0; i < count; ++i) words[i] = static_cast<float>(i % 97) - 40;
  return words;
}

TEST(Reductions, ReachEveryElementOnce) {
  const std::vector<float> words = small_numbers(64 * 24);
  const std::vector<int> shape = {64, 24};
  for (const layout::Layout& domain :
       {layout::mma_accumulator(64, 24), layout::blocked(shape, 8), layout::replicated_over_threads(shape)}) {
    const std::vector<float> sums = reduced(reduction(ReduceOp::sum, domain, {0}), {64}, words);
    const std::vector<float> tops = reduced(reduction(ReduceOp::max, domain, {1}), {24}, words);
    for (std::size_t i = 0; i < 64; ++i) {
      float sum = 0;
      for (std::size_t j = 0; j < 24; ++j) sum += words[i * 24 + j];
      EXPECT_EQ(sums[i], sum);
    }
    for (std::size_t j = 0; j < 24; ++j) {
      float top = words[j];
      for (std::size_t i = 1; i < 64; ++i) top = std::max(top, words[i * 24 + j]);
      EXPECT_EQ(tops[j], top);
    }
  }
}

TEST(Reductions, LeaveAResidual) {
  Reduce op = reduction(ReduceOp::sum, layout::mma_accumulator(64, 32), {0});
  op.residual = Residual{2, 4};
  const std::vector<float> words = small_numbers(64 * 32);
  const std::vector<float> sums = reduced(op, {64, 4}, words);
  for (std::size_t i = 0; i < 64; ++i)
    for (std::size_t q = 0; q < 4; ++q) {
      float sum = 0;
      for (std::size_t j = 0; j < 32; ++j)
        if (j / 2 % 4 == q) sum += words[i * 32 + j];
      EXPECT_EQ(sums[i * 4 + q], sum);
    }
}

// Registers first, then lanes in pairs: a row of an accumulator lies in the four lanes of a quad, two neighbours each.
TEST(Reductions, CombineInTheOrderOfTheLayout) {
  std::vector<float> words(64 * 16);
  std::mt19937 random(5);
  for (float& w : words) w = static_cast<float>(random()) * 0x1p-32f;
  const std::vector<float> sums = reduced(reduction(ReduceOp::sum, layout::mma_accumulator(64, 16), {0}), {64}, words);
  for (std::size_t i = 0; i < 64; ++i) {
    const float* row = words.data() + i * 16;
    const auto lane = [&](std::size_t c) { return ((row[2 * c] + row[2 * c + 1]) + row[8 + 2 * c]) + row[9 + 2 * c]; };
    EXPECT_EQ(sums[i], (lane(0) + lane(1)) + (lane(2) + lane(3)));
  }
}

}  // namespace
}  // namespace pipethreader::interpret
