// Lanes that share the axis of sums, and clusters along other axes than the rows': what they need, and that the result
// is the oracle's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/pipeline.h"
#include "interpret/interpret.h"
#include "oracle/oracle.h"
#include "partition/lane_sums.h"
#include "support/compiled/run_kernel.h"
#include "task/graph.h"

namespace pipethreader {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::optional<partition::LaneSums> sums_of(const std::string& text) {
  const auto graph = task::build(test::checked(text));
  EXPECT_TRUE(graph) << graph.error().format();
  return partition::lane_sums(*graph);
}

// Two sums over one loop, one of which starts with something; masked and ragged at the end.
const char* const two_sums = R"(
kernel two_sums(X: f16[72,600], W: f16[40,600], b: f32[72]) -> (Y: f32[72,40]) {
  parallel m: 72, n: 40;
  carry y[m,n] = b[m], r[m] = 0;
  for k: 600 where k < 590 {
    y[m,n] += sum[k] X[m,k] * W[n,k];
    r[m] += sum[k] f32(X[m,k]);
  }
  Y[m,n] = y[m,n] + r[m];
})";

// Heads of a group read the same W.
const char* const grouped = R"(
kernel grouped(X: f16[8,72,96], W: f16[2,96,64]) -> (Y: f32[8,72,64]) {
  parallel h: 8, m: 72, n: 64;
  carry y[m,n] = 0;
  for k: 96 { y[m,n] += sum[k] X[h,m,k] * W[h / 4,k,n]; }
  Y[h,m,n] = y[m,n];
})";

// The program's text.
std::string expect_right(const std::string& text, const driver::Choices& choices) {
  const auto run = test::run_kernel(text, {}, choices);
  EXPECT_EQ(run.failure, "");
  EXPECT_EQ(run.generic_reason, "");
  return run.program;
}

TEST(LaneSums, AreFoundWithWhatTheyStartFrom) {
  const auto sums = sums_of(two_sums);
  ASSERT_TRUE(sums);
  EXPECT_EQ(sums->values.size(), 2U);
  EXPECT_EQ(sums->from_zero.size(), 1U);
}

TEST(LaneSums, AreNoneWhereTheLoopReadsThem) {
  EXPECT_FALSE(sums_of(R"(
kernel scaled(X: f16[64,600], W: f16[64,600]) -> (Y: f32[64,64]) {
  parallel m: 64, n: 64;
  carry y[m,n] = 0;
  for k: 600 {
    y[m,n] = y[m,n] * 0.5;
    y[m,n] += sum[k] X[m,k] * W[n,k];
  }
  Y[m,n] = y[m,n];
})"));
}

class SharedSums : public ::testing::TestWithParam<std::tuple<int, int, partition::Order>> {};

TEST_P(SharedSums, AgreeWithTheOracle) {
  const auto [lanes, stream, order] = GetParam();
  driver::Choices choices;
  choices.partition.row = 128;
  choices.partition.column = 64;
  choices.partition.lanes = lanes;
  choices.partition.share_sums = true;
  choices.partition.stream = stream;
  choices.partition.order = order;
  const std::string text = expect_right(two_sums, choices);
  EXPECT_THAT(text, HasSubstr("handed"));
  EXPECT_THAT(text, HasSubstr(fmt::format("instances {}", lanes)));
}

INSTANTIATE_TEST_SUITE_P(All, SharedSums,
                         ::testing::Combine(::testing::Values(2, 3, 4), ::testing::Values(64, 128),
                                            ::testing::Values(partition::Order::single, partition::Order::persistent,
                                                              partition::Order::dynamic)));

// A loop around the one over tiles adds up, too: what lanes hand over counts once, at its end.
TEST(LaneSums, AreJoinedBehindTheOutermostLoop) {
  const std::string kernel = R"(
kernel windows(X: f16[60,320], W: f16[3,320,40]) -> (Y: f32[54,40]) {
  parallel m: 54, n: 40;
  y[m,n] = sum[r: 3, k: 320] X[m + r*3,k] * W[r,k,n];
  Y[m,n] = y[m,n];
})";
  for (const int lanes : {2, 4}) {
    driver::Choices choices;
    choices.partition.row = 64;
    choices.partition.column = 64;
    choices.partition.stream = 64;
    choices.partition.lanes = lanes;
    choices.partition.share_sums = true;
    choices.partition.order = partition::Order::persistent;
    EXPECT_THAT(expect_right(kernel, choices), HasSubstr("handed"));
  }
}

// Without products there is nothing to share: tiles are no multiples of the lanes.
TEST(LaneSums, AreNotSharedWithoutProducts) {
  driver::Choices choices;
  choices.partition.lanes = 3;
  choices.partition.share_sums = true;
  expect_right(R"(
kernel row_sums(X: f32[8,64]) -> (Y: f32[8]) {
  parallel m: 8;
  carry y[m] = 1;
  for k: 64 where k % 3 != 1 { y[m] += sum[k] X[m,k]; }
  Y[m] = y[m];
})",
               choices);
}

class ClusterAlong : public ::testing::TestWithParam<std::tuple<std::string, int, bool>> {};

TEST_P(ClusterAlong, CopiesForEachOtherWhatIsAlike) {
  const auto [axis, blocks, shares] = GetParam();
  driver::Choices choices;
  choices.partition.row = 128;
  choices.partition.column = 64;
  choices.partition.stream = 64;
  choices.partition.order = partition::Order::persistent;
  choices.partition.cluster = blocks;
  choices.partition.along = axis;
  const std::string text = expect_right(grouped, choices);
  EXPECT_THAT(text, shares ? ::testing::Matcher<std::string>(HasSubstr(" multicast")) : Not(HasSubstr(" multicast")));
}

// Four heads of a group share W, eight do not; all columns read the same X, all rows the same W.
INSTANTIATE_TEST_SUITE_P(All, ClusterAlong,
                         ::testing::Values(std::tuple("h", 2, true), std::tuple("h", 4, true),
                                           std::tuple("h", 8, false), std::tuple("m", 2, true),
                                           std::tuple("n", 2, true)));

TEST(ClusterAlong, ImpossibleOnesAreErrors) {
  const auto graph = task::build(test::checked(grouped));
  ASSERT_TRUE(graph);
  partition::Choice choice;
  choice.cluster = 2;
  choice.along = "q";
  EXPECT_THAT(partition::propagate(*graph, choice).error().format(), HasSubstr("no parallel axis 'q' for clusters"));
  choice.cluster = 3;
  choice.along = "h";
  EXPECT_THAT(
      partition::propagate(*graph, choice).error().format(),
      ::testing::MatchesRegex("test.stask:[0-9]+:[0-9]+: error: clusters of 3 do not divide axis 'h' of 8\n  hint: "
                              "force clusters that divide it, .*"));
}

struct Formation {
  int lanes = 1;  // of a team
  int teams = 2;
};

class Teams : public ::testing::TestWithParam<std::tuple<Formation, partition::Order, bool>> {};

TEST_P(Teams, ShareWhatIsAlike) {
  const auto [formation, order, bulk] = GetParam();
  const auto [lanes, teams] = formation;
  driver::Choices choices;
  choices.partition.lanes = lanes;
  choices.partition.row = 64 * lanes;
  choices.partition.column = 64;
  choices.partition.stream = 64;
  choices.partition.order = order;
  choices.partition.teams = teams;
  choices.partition.apart = "h";
  choices.schedule.staged_stores = bulk;
  choices.bulk = bulk;
  const auto run = test::run_kernel(grouped, {}, choices);
  EXPECT_EQ(run.failure, "");
  EXPECT_EQ(run.generic_reason.empty(), bulk);
  EXPECT_THAT(run.program, HasSubstr(fmt::format("computer instances {}", lanes * teams)));
}

INSTANTIATE_TEST_SUITE_P(All, Teams,
                         ::testing::Combine(::testing::Values(Formation{1, 2}, Formation{1, 4}, Formation{2, 2}),
                                            ::testing::Values(partition::Order::single, partition::Order::persistent,
                                                              partition::Order::dynamic),
                                            ::testing::Bool()));

TEST(Teams, AreFormedWhereSomethingIsAlike) {
  const auto graph = task::build(test::checked(grouped));
  ASSERT_TRUE(graph);
  const auto axes = partition::axes_of_teams(*graph);
  ASSERT_EQ(axes.size(), 1U);
  EXPECT_EQ(graph->kernel[axes[0]].name, "h");
}

TEST(Teams, ImpossibleOnesAreErrors) {
  const auto graph = task::build(test::checked(grouped));
  ASSERT_TRUE(graph);
  const auto error = [&](const std::string& axis, int teams, int cluster) {
    partition::Choice choice;
    choice.teams = teams;
    choice.apart = axis;
    choice.cluster = cluster;
    return partition::propagate(*graph, choice).error().format();
  };
  EXPECT_THAT(error("q", 2, 1), HasSubstr("no parallel axis 'q' without tiles for teams"));
  EXPECT_THAT(error("m", 2, 1), HasSubstr("no parallel axis 'm' without tiles for teams"));
  EXPECT_THAT(error("h", 3, 1), HasSubstr("teams along axis 'h' need its size when compiling, a multiple of 3"));
  EXPECT_THAT(error("h", 2, 2), HasSubstr("neither share sums nor lie in clusters"));
}

}  // namespace
}  // namespace pipethreader
