// What the proof shows, each property once: a small edit of an example breaks it, and the rejection says which ring,
// buffer or fragment, at which instruction of which role. And how little it looks at to prove what holds.
#include "verify/verify.h"

#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "interpret/interpret.h"
#include "support/programs.h"

namespace pipethreader::verify {
namespace {

using Fault = Witness::Fault;
using ::testing::AllOf;
using ::testing::HasSubstr;

program::Program parsed(const std::string& text) {
  auto program = program::parse(text, "test");
  if (!program) throw std::runtime_error(program.error().format());
  return *std::move(program);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  if (at == std::string::npos) throw std::runtime_error("the example has no '" + from + "'");
  return text.replace(at, from.size(), to);
}

// The example with the first `from` replaced.
program::Program edited(const std::string& stem, const std::string& from, const std::string& to) {
  return parsed(replaced(test::example_text(stem), from, to));
}

Rejection rejection_of(program::Program program) {
  auto verified = verify(std::move(program));
  EXPECT_FALSE(verified) << "proved";
  return verified ? Rejection{} : std::move(verified.error());
}

void expect_fault(const program::Program& program, Fault fault, const ::testing::Matcher<const std::string&>& says) {
  const Rejection rejection = rejection_of(program);
  EXPECT_EQ(name(rejection.witness.fault), name(fault)) << rejection.error.format();
  EXPECT_THAT(rejection.witness.explanation, says);
  EXPECT_THAT(rejection.error.format(), HasSubstr(rejection.witness.explanation));
}

void expect_error(const program::Program& program, const ::testing::Matcher<const std::string&>& says) {
  const Rejection rejection = rejection_of(program);
  EXPECT_EQ(name(rejection.witness.fault), name(Fault::none));
  EXPECT_THAT(rejection.error.format(), says);
}

// --- what holds is proved --------------------------------------------------------------------------------------------

class Examples : public ::testing::TestWithParam<std::string> {};

TEST_P(Examples, AreProved) {
  const auto verified = verify(test::example_program(GetParam()));
  ASSERT_TRUE(verified) << verified.error().error.format();
  EXPECT_THAT(verified->proof(), AllOf(HasSubstr("no cyclic wait"), HasSubstr("by exhausting")));
}

INSTANTIATE_TEST_SUITE_P(All, Examples, ::testing::ValuesIn(test::example_programs()),
                         [](const auto& param) { return param.param; });

// --- what is read is there -------------------------------------------------------------------------------------------

constexpr const char* first_wait =
    "      wait AB\n      mma acc += a origin instance * 64, b, depth 64, accumulate false";
constexpr const char* first_product = "      mma acc += a origin instance * 64, b, depth 64, accumulate false";

TEST(VerifyReads, WaitForTheirFill) {
  expect_fault(edited("matmul", first_wait, first_product), Fault::race,
               AllOf(HasSubstr("consumer[0] at consumer.0.2.0 mma"), HasSubstr("reads a"),
                     HasSubstr("the last write of a slot 0")));
}

TEST(VerifyReads, SeeTheFillThatTheCursorNames) {
  // The cursor moves on too early: the first product reads the next fill's slot.
  const std::string advance = "      mma_commit\n      advance AB\n      for k = 1";
  const std::string text = replaced(replaced(test::example_text("matmul"), first_wait,
                                             std::string("      wait AB\n      advance AB\n") + first_product),
                                    advance, "      mma_commit\n      for k = 1");
  const Rejection rejection = rejection_of(parsed(text));
  EXPECT_THAT(rejection.witness.explanation, AllOf(HasSubstr("mma"), HasSubstr("reads a")));
  EXPECT_NE(rejection.witness.fault, Fault::none);
}

TEST(VerifyReads, OfAFillBeforeTheFirstAreWrong) {
  expect_fault(edited("matmul", "      mma acc += a origin instance * 64, b, depth 64, accumulate false",
                      "      mma acc += a lag 1 origin instance * 64, b, depth 64, accumulate false"),
               Fault::wrong_value, AllOf(HasSubstr("uses a with lag 1 at cursor 0"), HasSubstr("never was")));
}

TEST(VerifyReads, ByAsynchronousUnitsAreBehindAProxyFence) {
  expect_fault(
      edited("bulk_epilogue", "    proxy_fence\n", ""), Fault::race,
      AllOf(HasSubstr("bulk_store"), HasSubstr("reads tile"), HasSubstr("a proxy fence after the last write")));
}

TEST(VerifyReads, OfOtherLanesWritesMeetThem) {
  expect_fault(edited("bulk_epilogue", "    barrier_sync filled\n", ""), Fault::race,
               AllOf(HasSubstr("worker[0]"), HasSubstr("reads tile"), HasSubstr("the last write of tile slot 0")));
}

// --- nothing is overwritten before its last read ---------------------------------------------------------------------

TEST(VerifyWrites, WaitForTheProductsThatReadTheSlot) {
  expect_fault(edited("matmul", "        mma_wait 1  // the product before this one\n", ""), Fault::race,
               AllOf(HasSubstr("producer[0]"), HasSubstr("copy_bulk"), HasSubstr("writes a"),
                     HasSubstr("the tensor core's read of a slot 0"), HasSubstr("for consumer[0]")));
  expect_fault(edited("matmul", "mma_wait 1 ", "mma_wait 2 "), Fault::race, HasSubstr("the tensor core's read"));
}

TEST(VerifyWrites, WaitForBulkStores) {
  expect_fault(edited("bulk_epilogue", "    barrier_sync free\n", ""), Fault::race,
               AllOf(HasSubstr("worker[1]"), HasSubstr("writes tile"), HasSubstr("the bulk store's read of tile")));
}

TEST(VerifyWrites, AcquireTheirSlot) {
  expect_fault(edited("plain_copies", "      acquire AB\n", ""), Fault::race,
               AllOf(HasSubstr("producer[0]"), HasSubstr("writes a"), HasSubstr("nothing orders it behind")));
}

// --- phases ----------------------------------------------------------------------------------------------------------

TEST(VerifyPhases, HaveExactlyTheirArrivals) {
  expect_fault(edited("matmul", "        release AB lag 1\n        advance",
                      "        release AB lag 1\n        release AB lag 1\n        advance"),
               Fault::protocol, AllOf(HasSubstr("consumer[0]"), HasSubstr("releases fill 0 of AB twice")));
  expect_fault(
      edited("matmul", "empty 2 bytes", "empty 1 bytes"), Fault::protocol,
      AllOf(HasSubstr("consumer[1]"), HasSubstr("releases fill 0 of AB while the phase before it may not be")));
  expect_fault(edited("plain_copies", "      commit AB\n", "      commit AB\n      commit AB\n"), Fault::protocol,
               AllOf(HasSubstr("producer[0]"), HasSubstr("arrives for fill 0 of AB")));
  expect_fault(edited("turns", "      barrier_arrive turn[1 - instance]\n",
                      "      barrier_arrive turn[1 - instance]\n      barrier_arrive turn[1 - instance]\n"),
               Fault::protocol, AllOf(HasSubstr("barrier_arrive"), HasSubstr("a second time")));
}

TEST(VerifyPhases, HaveExactlyTheirBytes) {
  expect_fault(edited("matmul", "      copy_bulk b = B_map[k * 64, col]\n", ""), Fault::deadlock,
               AllOf(HasSubstr("fill 0 in ring AB slot 0"), HasSubstr("16384 bytes due")));
  expect_fault(edited("matmul", "      copy_bulk b = B_map[k * 64, col]\n",
                      "      copy_bulk b = B_map[k * 64, col]\n      copy_bulk b = B_map[k * 64, col]\n"),
               Fault::race, AllOf(HasSubstr("copy_bulk"), HasSubstr("writes b")));
}

TEST(VerifyPhases, AreNotMistakenForTheOneBefore) {
  // A reader that skips a wait would wait for a parity that an older phase has, too.
  expect_fault(edited("matmul", "        wait AB\n        mma acc += a origin instance * 64, b, depth 64\n",
                      "        advance AB\n        advance AB\n        advance AB\n        wait AB\n"
                      "        mma acc += a origin instance * 64, b, depth 64\n"),
               Fault::protocol, AllOf(HasSubstr("consumer[0]"), HasSubstr("of AB"), HasSubstr("may see fill")));
}

TEST(VerifyPhases, OfBarriersExist) {
  expect_fault(edited("turns", "barrier_sync turn[instance]", "barrier_sync turn[instance + 1]"), Fault::protocol,
               AllOf(HasSubstr("consumer[1]"), HasSubstr("barrier 2 of 2")));
}

// --- no deadlock -----------------------------------------------------------------------------------------------------

TEST(VerifyDeadlocks, SayWhoWaitsForWhat) {
  expect_fault(edited("matmul", "        release AB lag 1\n        advance AB\n", "        advance AB\n"),
               Fault::deadlock,
               AllOf(HasSubstr("producer[0] at producer.0.2.0 acquire"),
                     HasSubstr("the release of fill 0 in ring AB slot 0"), HasSubstr("arrived: nobody")));
  expect_fault(edited("matmul", "empty 2 bytes", "empty 3 bytes"), Fault::deadlock,
               HasSubstr("ring AB slot 0 (arrived: consumer[0], consumer[1])"));
  expect_fault(edited("bulk_epilogue", "barrier filled: participants 2", "barrier filled: participants 3"),
               Fault::deadlock,
               HasSubstr("waits for the 3 participants of barrier filled (arrived: worker[0], worker[1])"));
}

TEST(VerifyDeadlocks, OfLoopsThatDoNotGoTogether) {
  expect_fault(
      edited("matmul", "    for k = 0 .. (K + 63) / 64 {\n      acquire", "    for k = 0 .. K / 64 {\n      acquire"),
      Fault::deadlock, AllOf(HasSubstr("consumer[0]"), HasSubstr("waits for the end of fill 0 in ring AB")));
}

// --- fragments -------------------------------------------------------------------------------------------------------

TEST(VerifyFragments, AreNotTouchedInFlight) {
  expect_fault(
      edited("matmul", "      mma_wait 0\n      release AB lag 1\n    } else", "      release AB lag 1\n    } else"),
      Fault::protocol, AllOf(HasSubstr("consumer[0]"), HasSubstr("touches acc while a product may still use it")));
  expect_fault(edited("matmul", "b, depth 64\n", "b, depth 64, accumulate false\n"), Fault::protocol,
               HasSubstr("overwrites acc while a product may still write it"));
}

TEST(VerifyFragments, AreWrittenBeforeTheyAreRead) {
  expect_fault(edited("matmul", "    } else {\n      map acc = 0.0\n", "    } else {\n"), Fault::wrong_value,
               HasSubstr("reads acc, which nobody has written"));
  expect_fault(edited("turns", "    map acc = 0.0\n", ""), Fault::wrong_value,
               AllOf(HasSubstr("mma"), HasSubstr("adds to acc, which nobody has written")));
}

// --- the end ---------------------------------------------------------------------------------------------------------

TEST(VerifyEnd, NothingIsUnderWay) {
  expect_fault(
      edited("bulk_epilogue",
             "  if instance == 0 {\n    bulk_store_wait 0  // shared memory lives until it has been read\n  }\n", ""),
      Fault::protocol, HasSubstr("ends while its bulk stores may still read shared memory"));
  expect_fault(edited("matmul", "    for k = 0 .. (K + 63) / 64 {\n      acquire",
                      "    for k = 0 .. (K + 64) / 64 {\n      acquire"),
               Fault::protocol, AllOf(HasSubstr("may end before the last write of b slot 0"), HasSubstr("nobody")));
}

TEST(VerifyEnd, BlocksOfAClusterOutliveWhatReachesThem) {
  const std::string text = replaced(replaced(test::example_text("cluster_matmul"),
                                             "  cluster_sync  // the other block's copies have arrived here\n", ""),
                                    "  cluster_sync\n", "");
  expect_fault(parsed(text), Fault::protocol, AllOf(HasSubstr("may end before"), HasSubstr("cluster_sync")));
}

// --- what needs no execution -----------------------------------------------------------------------------------------

TEST(VerifyStructure, CapacitiesHold) {
  std::string text = replaced(test::example_text("matmul"), "ring AB: depth 3", "ring AB: depth 9");
  for (int i = 0; i < 2; ++i) text = replaced(text, "slots 3", "slots 9");
  expect_error(parsed(text), HasSubstr("294912 bytes of shared memory do not fit into 232448"));
  expect_error(edited("matmul", "registers 232", "registers 240"), HasSubstr("budgets need 66560 registers"));
}

TEST(VerifyStructure, RolesSeeTheSameItems) {
  expect_error(
      edited("matmul", "instances 2 registers 232 {\n  for_work item in (M + 127) / 128 * ((N + 127) / 128) persistent",
             "instances 2 registers 232 {\n  for_work item in (M + 127) / 128 * ((N + 127) / 128) dynamic"),
      AllOf(HasSubstr("role"), HasSubstr("walks")));
}

TEST(VerifyBudget, IsAnErrorOfItsOwn) {
  const auto verified = verify(test::example_program("attention"), {.state_budget = 3});
  ASSERT_FALSE(verified);
  EXPECT_THAT(verified.error().error.format(), HasSubstr("not proved within 3 states"));
  EXPECT_EQ(name(verified.error().witness.fault), name(Fault::none));
}

// --- witnesses -------------------------------------------------------------------------------------------------------

TEST(VerifyWitness, IsReplayed) {
  const program::Program program = edited("matmul", first_wait, first_product);
  const Rejection rejection = rejection_of(program);
  const auto replayed = interpret::run_with_decisions(program, rejection.witness.decisions_of_lane, {});
  ASSERT_FALSE(replayed);
  EXPECT_EQ(replayed.error().kind, interpret::FaultKind::race) << replayed.error().format();
}

TEST(VerifyWitness, AgreesWithSizesThatShowTheFault) {
  const Rejection rejection =
      rejection_of(edited("matmul", "        mma_wait 1  // the product before this one\n", ""));
  ASSERT_TRUE(rejection.witness.agrees);
  const std::vector<std::int64_t> items(static_cast<std::size_t>(rejection.witness.items), 0);
  EXPECT_FALSE(rejection.witness.agrees({128, 128, 0}, items)) << "no product, no fault";
  bool some = false;
  for (int tiles = 1; tiles < 8; ++tiles) some = some || rejection.witness.agrees({128, 128, 64.0 * tiles}, items);
  EXPECT_TRUE(some);
}

// --- what the proof does not look at ---------------------------------------------------------------------------------

// Loops without synchronisation are nobody's business, however many there are and however deep.
TEST(VerifyStates, LoopsOverFragmentsNeedNone) {
  std::string text = R"(program sums

dim M: i32
dim N: i32
dim K: i32
tensor X: f32[M, N]
output Y: f32[M]
var item, a, b, c
layout tile = blocked [64, 1] 1
layout rows = slice tile [0]
fragment x: f32 on rows of worker
fragment y: f32 on rows of worker

role worker: computer instances 4 {
  for_work item in (M + 255) / 256 persistent {
    map y = 0.0
BODY    store_global Y[item * 256 + instance * 64 + c0] where item * 256 + instance * 64 + c0 < M from y
  }
}
)";
  const std::string nest = R"(    for a = 0 .. M {
      for b = a .. N {
        if b % 3 == 1 {
          for c = 0 .. min(K, b) {
            load_global x = X[c0, c] where c0 < M && c < N
            map y = y[c0] + x[c0]
          }
        }
      }
    }
)";
  std::string body;
  for (int i = 0; i < 6; ++i) body += nest;
  const program::Program program = parsed(replaced(text, "BODY", body));
  const auto verified = verify(program, {.state_budget = 10});
  ASSERT_TRUE(verified) << verified.error().error.format();
  // What only such a loop writes may not be there behind it.
  const std::string reads_x = "    map y = y[c0] + x[c0]\n    store_global Y";
  expect_fault(parsed(replaced(replaced(text, "BODY", nest), "    store_global Y", reads_x)), Fault::wrong_value,
               HasSubstr("reads x, which nobody has written"));
}

}  // namespace
}  // namespace pipethreader::verify
