#include "interpret/interpret.h"

#include <cmath>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program/program.h"
#include "support/programs.h"
#include "support/reference.h"

namespace pipethreader::interpret {
namespace {

using test::example_program;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<double>& output_of(const program::Program& program, const Arguments& arguments) {
  for (std::size_t t = 0; t < program.tensors.size(); ++t)
    if (program.tensors[t].output) return arguments.tensors[t];
  return arguments.tensors.back();
}

void expect_reference(const std::string& name, const program::Program& program, const Arguments& arguments) {
  const std::vector<test::Expected> expected = test::reference(name, arguments);
  const std::vector<double>& found = output_of(program, arguments);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_TRUE(std::fabs(found[i] - expected[i].value) <= expected[i].error)
        << name << ", element " << i << ": " << found[i] << ", expected " << expected[i].value << " +- "
        << expected[i].error;
}

// The example with a piece of its text replaced. The result need not be a program that validates.
program::Program edited(const std::string& stem, const std::string& from, const std::string& to) {
  std::string text = test::example_text(stem);
  const std::size_t at = text.find(from);
  if (at == std::string::npos) throw std::runtime_error("'" + from + "' is not in " + stem);
  text.replace(at, from.size(), to);
  auto program = program::parse(text, stem);
  if (!program) throw std::runtime_error(program.error().format());
  return *std::move(program);
}

// The first fault over some seeds, both ways of interleaving.
std::optional<Fault> fault_of(const program::Program& program, const std::vector<double>& params, int seeds = 8) {
  for (int seed = 1; seed <= seeds; ++seed)
    for (const Interleaving interleaving : {Interleaving::random, Interleaving::adversarial}) {
      Arguments arguments = test::random_arguments(program, params, 3);
      RunOptions options;
      options.seed = static_cast<std::uint64_t>(seed);
      options.interleaving = interleaving;
      if (const auto report = run(program, arguments, options); !report) return report.error();
    }
  return std::nullopt;
}

#define EXPECT_FAULT(program, params, expected_kind, matcher)                         \
  do {                                                                                \
    const std::optional<Fault> fault = fault_of(program, std::vector<double> params); \
    ASSERT_TRUE(fault.has_value());                                                   \
    EXPECT_EQ(name(fault->kind), name(expected_kind)) << fault->explanation;          \
    EXPECT_THAT(fault->explanation, matcher);                                         \
  } while (false)

// --- the examples ----------------------------------------------------------------------------------------------------

class Examples : public ::testing::TestWithParam<std::string> {};

TEST_P(Examples, ComputeTheirReference) {
  const program::Program program = example_program(GetParam());
  for (const std::vector<double>& sizes : test::sizes_for(GetParam()))
    for (const Interleaving interleaving : {Interleaving::random, Interleaving::adversarial}) {
      Arguments arguments = test::random_arguments(program, sizes, 7);
      RunOptions options;
      options.interleaving = interleaving;
      const auto report = run(program, arguments, options);
      ASSERT_TRUE(report) << report.error().format();
      EXPECT_EQ(report->unwritten, 0);
      expect_reference(GetParam(), program, arguments);
    }
}

TEST_P(Examples, GiveTheSameBitsWhateverTheSeedAndGrid) {
  const program::Program program = example_program(GetParam());
  const std::vector<double> sizes = test::sizes_for(GetParam()).front();
  std::vector<double> first;
  for (int i = 0; i < 4; ++i) {
    Arguments arguments = test::random_arguments(program, sizes, 7);
    RunOptions options;
    options.seed = static_cast<std::uint64_t>(100 + i);
    options.clusters = 1 + i;
    ASSERT_TRUE(run(program, arguments, options));
    if (i == 0) first = output_of(program, arguments);
    EXPECT_EQ(output_of(program, arguments), first);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Examples, ::testing::ValuesIn(test::example_programs()),
                         [](const auto& param) { return param.param; });

TEST(Interpret, ReportsTheWorkDone) {
  const program::Program program = example_program("matmul");
  Arguments arguments = test::random_arguments(program, {300, 300, 64}, 1);
  RunOptions options;
  options.clusters = 2;
  const auto report = run(program, arguments, options);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->clusters, 2);
  EXPECT_EQ(report->items, 9);
}

// --- races -----------------------------------------------------------------------------------------------------------

TEST(InterpretRaces, AReaderThatDoesNotWait) {
  EXPECT_FAULT(edited("matmul", "        wait AB\n        mma acc += a origin instance * 64, b, depth 64\n",
                      "        mma acc += a origin instance * 64, b, depth 64\n"),
               ({128, 128, 256}), FaultKind::race, HasSubstr("buffer 'a'"));
}

TEST(InterpretRaces, ASlotReleasedWhileAProductReadsIt) {
  EXPECT_FAULT(edited("plain_copies", "      mma_wait 0\n      release AB\n", "      release AB\n      mma_wait 0\n"),
               ({64, 64, 320}), FaultKind::race,
               AllOf(HasSubstr("the tensor core for consumer[0]"), HasSubstr("nothing orders them")));
}

TEST(InterpretRaces, AMissingProxyFence) {
  EXPECT_FAULT(edited("bulk_epilogue", "    proxy_fence\n", ""), ({128, 64}), FaultKind::race,
               HasSubstr("no proxy fence"));
}

TEST(InterpretRaces, AProxyFenceBehindTheBarrier) {
  EXPECT_FAULT(edited("bulk_epilogue", "    proxy_fence\n    barrier_sync filled\n",
                      "    barrier_sync filled\n    proxy_fence\n"),
               ({128, 64}), FaultKind::race, HasSubstr("no proxy fence"));
}

TEST(InterpretRaces, ABulkStoreThatDoesNotWaitForTheOtherInstance) {
  EXPECT_FAULT(edited("bulk_epilogue", "    barrier_sync filled\n", ""), ({128, 64}), FaultKind::race,
               HasSubstr("buffer 'tile'"));
}

TEST(InterpretRaces, ATileOverwrittenBeforeItsBulkStoreHasReadIt) {
  EXPECT_FAULT(
      edited("bulk_epilogue", "      bulk_store_wait 0  // the store of the item before has read the tile\n", ""),
      ({512, 64}), FaultKind::race, HasSubstr("a bulk store of worker[0]"));
}

TEST(InterpretRaces, TwoBlocksWriteOneElement) {
  EXPECT_FAULT(edited("scale_tile", "let row = item / ((N + 63) / 64) * 64 + instance * 32",
                      "let row = item / ((N + 63) / 64) * 32 + instance * 32"),
               ({128, 64, 1}), FaultKind::race, AllOf(HasSubstr("tensor 'Y'"), HasSubstr("in another cluster")));
}

TEST(InterpretRaces, TwoInstancesWriteOneElement) {
  EXPECT_FAULT(edited("scale_tile", "* 64 + instance * 32", "* 64"), ({64, 64, 1}), FaultKind::race,
               HasSubstr("tensor 'Y'"));
}

TEST(InterpretRaces, ScratchSharedByTwoInstances) {
  EXPECT_FAULT(edited("softmax_row", "f32[2, 4]", "f32[1, 4]"), ({4, 100}), FaultKind::race,
               HasSubstr("buffer 'scratch'"));
}

TEST(InterpretRaces, AreNotLookedForWhenNotAsked) {
  const program::Program program = edited("bulk_epilogue", "    proxy_fence\n", "");
  Arguments arguments = test::random_arguments(program, {128, 64}, 3);
  RunOptions options;
  options.detect_races = false;
  EXPECT_TRUE(run(program, arguments, options));
}

// --- barriers --------------------------------------------------------------------------------------------------------

TEST(InterpretDeadlocks, SayWhoWaitsForWhom) {
  EXPECT_FAULT(edited("plain_copies", "      release AB\n", ""), ({64, 64, 320}), FaultKind::deadlock,
               AllOf(HasSubstr("producer[0] (cluster 0) at producer.0.6.0 acquire waits for ring 'AB', slot 0 to be "
                               "empty: phase 0; it is in phase 0 with 0 of 1 arrivals"),
                     HasSubstr("consumer[0] (cluster 0) at consumer.0.7.0 wait waits for ring 'AB', slot 0 to be full: "
                               "phase 1")));
}

TEST(InterpretDeadlocks, NameWhoHasArrived) {
  EXPECT_FAULT(
      edited("bulk_epilogue", "    barrier_sync free\n", "    if instance == 1 {\n      barrier_sync free\n    }\n"),
      ({128, 64}), FaultKind::deadlock,
      AllOf(HasSubstr("barrier 'free'[0]: 1 of 2 have arrived (worker[1]"),
            HasSubstr("barrier 'filled'[0]: 1 of 2 have arrived (worker[0]")));
}

TEST(InterpretDeadlocks, CountBytes) {
  EXPECT_FAULT(edited("matmul", "      copy_bulk b = B_map[k * 64, col]\n", ""), ({128, 128, 64}), FaultKind::deadlock,
               HasSubstr("16384 bytes arrived, 16384 due"));
}

TEST(InterpretProtocol, TooManyArrivals) {
  EXPECT_FAULT(edited("plain_copies", "      release AB\n", "      release AB\n      release AB\n"), ({64, 64, 192}),
               FaultKind::protocol, HasSubstr("'empty' of ring 'AB'"));
}

TEST(InterpretProtocol, PhasesThatDoNotWaitForEveryReader) {
  const program::Program program =
      edited("matmul", "ring AB: depth 3 full 1 empty 2", "ring AB: depth 3 full 1 empty 1");
  EXPECT_FAULT(program, ({128, 128, 640}), FaultKind::race, HasSubstr("the copy engine for producer[0]"));
  Arguments arguments = test::random_arguments(program, {128, 128, 640}, 3);
  RunOptions options;
  options.detect_races = false;  // what is left is what the phases themselves show
  const auto report = run(program, arguments, options);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().kind, FaultKind::protocol);
  EXPECT_THAT(report.error().explanation, HasSubstr("ring 'AB'"));
}

TEST(InterpretProtocol, AReleaseOfASlotThatIsNotYetFilled) {
  EXPECT_FAULT(edited("plain_copies", "      release AB\n      advance AB\n", "      advance AB\n      release AB\n"),
               ({64, 64, 192}), FaultKind::protocol, HasSubstr("'empty' of ring 'AB', slot 1"));
}

TEST(InterpretProtocol, AFragmentTouchedWhileAProductUsesIt) {
  EXPECT_FAULT(edited("plain_copies", "      mma_wait 0\n      release AB\n      advance AB\n    }\n",
                      "      release AB\n      advance AB\n    }\n"),
               ({64, 64, 64}), FaultKind::protocol,
               AllOf(HasSubstr("touches fragment 'acc'"), HasSubstr("consumer.0.7.1 mma")));
}

TEST(InterpretProtocol, AnOperandOverwrittenInFlight) {
  EXPECT_FAULT(edited("attention", "        mma_wait 0  // PV(n-1) has read P and V\n", ""), ({1, 256, 0.2}),
               FaultKind::protocol, HasSubstr("touches fragment 'p'"));
}

TEST(InterpretProtocol, AnEndWithBulkStoresUnderWay) {
  EXPECT_FAULT(edited("bulk_epilogue", "    bulk_store_wait 0  // shared memory lives until it has been read\n", ""),
               ({128, 64}), FaultKind::protocol, HasSubstr("ends while its bulk stores"));
}

TEST(InterpretProtocol, ABlockThatEndsBeforeItsNeighbourHasFinished) {
  EXPECT_FAULT(edited("cluster_matmul", "  cluster_sync\n", ""), ({256, 128, 64}), FaultKind::deadlock,
               HasSubstr("the cluster:"));
  std::string text = test::example_text("cluster_matmul");
  for (std::size_t at = text.find("  cluster_sync"); at != std::string::npos; at = text.find("  cluster_sync"))
    text.erase(at, text.find('\n', at) + 1 - at);
  const auto program = program::parse(text, "cluster_matmul");
  ASSERT_TRUE(program) << program.error().format();
  EXPECT_FAULT(*program, ({256, 128, 64}), FaultKind::protocol, HasSubstr("end"));
}

// --- values ----------------------------------------------------------------------------------------------------------

TEST(InterpretValues, AnotherFillThanTheCursorSays) {
  EXPECT_FAULT(
      edited("matmul", "        mma acc += a origin instance * 64, b, depth 64\n        mma_commit\n        mma_wait 1",
             "        mma acc += a lag 1 origin instance * 64, b, depth 64\n        mma_commit\n        mma_wait 1"),
      ({128, 128, 640}), FaultKind::race, HasSubstr("buffer 'a'"));
}

TEST(InterpretValues, AnUninitialisedFragment) {
  EXPECT_FAULT(edited("attention", "    map l_part = 0.0\n", ""), ({1, 64, 0.2}), FaultKind::uninitialised,
               HasSubstr("fragment 'l_part'"));
  EXPECT_FAULT(edited("turns", "    map acc = 0.0\n", ""), ({128, 128, 64}), FaultKind::uninitialised,
               HasSubstr("fragment 'acc'"));
}

TEST(InterpretValues, SharedMemoryThatNobodyWrote) {
  EXPECT_FAULT(edited("bulk_epilogue", "store_shared tile [instance * 64 + c0, c1] = x",
                      "if instance == 0 {\n      store_shared tile [instance * 64 + c0, c1] = x\n    }"),
               ({128, 64}), FaultKind::uninitialised, HasSubstr("buffer 'tile'"));
}

TEST(InterpretValues, OutOfBounds) {
  EXPECT_FAULT(edited("scale_tile", "load_global x = X[row + c0, col + c1] where row + c0 < M && col + c1 < N",
                      "load_global x = X[row + c0, col + c1] where row + c0 < M"),
               ({64, 65, 1}), FaultKind::out_of_bounds, AllOf(HasSubstr("tensor 'X'"), HasSubstr("extent 65")));
  EXPECT_FAULT(edited("bulk_epilogue", "[instance * 64 + c0, c1]", "[instance * 65 + c0, c1]"), ({128, 64}),
               FaultKind::out_of_bounds, HasSubstr("row 128"));
  EXPECT_FAULT(edited("turns", "barrier_sync turn[instance]", "barrier_sync turn[instance + 1]"), ({128, 128, 64}),
               FaultKind::out_of_bounds, HasSubstr("barrier 'turn'"));
}

TEST(InterpretValues, IntegerOverflow) {
  EXPECT_FAULT(edited("scale_tile", "let row = item / ((N + 63) / 64) * 64", "let row = (item + 2000000000) * 64"),
               ({64, 64, 1}), FaultKind::overflow, HasSubstr("does not fit i32"));
}

TEST(InterpretArguments, MustFitTheProgram) {
  const program::Program program = example_program("matmul");
  Arguments arguments = test::random_arguments(program, {128, 128, 64}, 1);
  arguments.params.pop_back();
  EXPECT_EQ(run(program, arguments).error().kind, FaultKind::arguments);
  arguments = test::random_arguments(program, {128, 128, 64}, 1);
  arguments.tensors[1].pop_back();
  EXPECT_THAT(run(program, arguments).error().format(), HasSubstr("tensor 'B' has 8191 elements, expected 8192"));
  arguments = test::random_arguments(program, {128, 128, 63}, 1);
  EXPECT_THAT(run(program, arguments).error().format(), HasSubstr("requirement 0"));
}

TEST(InterpretArguments, StepLimit) {
  const program::Program program = example_program("matmul");
  Arguments arguments = test::random_arguments(program, {128, 128, 64}, 1);
  RunOptions options;
  options.step_limit = 10;
  EXPECT_EQ(run(program, arguments, options).error().kind, FaultKind::step_limit);
}

}  // namespace
}  // namespace pipethreader::interpret
