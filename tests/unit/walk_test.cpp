// Walked axes: which walks are worth it, what stays on chip, and that the result is the oracle's.
#include "task/walk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/pipeline.h"
#include "interpret/interpret.h"
#include "oracle/oracle.h"
#include "support/compiled/run_kernel.h"
#include "task/graph.h"

namespace pipethreader {
namespace {

using ::testing::HasSubstr;

// Every h of a group multiplies by the same W; the weights of a loop's tiles stay on chip as a whole.
const char* const grouped = R"(
kernel grouped(X: f16[8,72,96], W: f16[2,96,40], scale: f32[8]) -> (Y: f32[8,72,40]) {
  parallel h: 8, m: 72, n: 40;
  carry y[m,n] = 0;
  for k: 96 {
    x[m,k] = f16(X[h,m,k] * scale[h]);
    y[m,n] += sum[k] x[m,k] * W[h / 4,k,n];
  }
  Y[h,m,n] = y[m,n];
})";

TEST(Walk, OnlyWhatSavesALoadIsUseful) {
  const auto walks = task::useful_walks(test::checked(grouped));
  ASSERT_EQ(walks.size(), 1U);  // a walk over both groups reads other weights half-way
  EXPECT_EQ(walks[0].walk.axis, "h");
  EXPECT_EQ(walks[0].walk.length, 4);
}

TEST(Walk, WhatDoesNotDependOnItIsLoadedBeforeIt) {
  const auto graph = task::build(test::checked(grouped), {"h", 4});
  ASSERT_TRUE(graph) << graph.error().format();
  const std::string text = task::print(*graph);
  EXPECT_THAT(text, HasSubstr("w_kept[h_block,k_all,n] = W[h_block,k_all,n];\n  for h: 4 {"));
  EXPECT_THAT(text, HasSubstr("w_tile[h_block,k,n] = w_kept[h_block,k,n];"));
  EXPECT_THAT(text, HasSubstr("X[h_block*4 + h,m,k]"));
}

TEST(Walk, WrongWalksAreErrors) {
  const kernel::Kernel kernel = test::checked(grouped);
  EXPECT_THAT(task::build(kernel, {"q", 4}).error().format(), HasSubstr("there is no parallel axis 'q' to walk"));
  EXPECT_THAT(
      task::build(kernel, {"m", 4}).error().format(),
      ::testing::MatchesRegex("test.stask:[0-9]+:[0-9]+: error: axis 'm' cannot be walked: it is tiled\n  hint: "
                              "walk a parallel axis .*"));
  EXPECT_THAT(task::build(kernel, {"h", 3}).error().format(),
              HasSubstr("a walk of 3 steps does not divide axis 'h' of 8"));
}

class WalkedKernel : public ::testing::TestWithParam<std::tuple<int, int, int>> {};

TEST_P(WalkedKernel, AgreesWithTheOracle) {
  const auto [length, stream, lanes] = GetParam();
  driver::Choices choices;
  choices.walk = {"h", length};
  choices.partition.row = 64 * lanes;
  choices.partition.lanes = lanes;
  choices.partition.stream = stream;
  choices.partition.order = partition::Order::persistent;
  const auto run = test::run_kernel(grouped, {}, choices);
  EXPECT_EQ(run.failure, "");
  EXPECT_EQ(run.generic_reason, "");
}

// 64 does not divide 96: the last tile of the loop reaches past what there is.
INSTANTIATE_TEST_SUITE_P(All, WalkedKernel,
                         ::testing::Combine(::testing::Values(2, 4, 8), ::testing::Values(32, 64),
                                            ::testing::Values(1, 2)));

}  // namespace
}  // namespace pipethreader
