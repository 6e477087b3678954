// Random kernels through every stage: each must compile with whatever tiles and overlap a seed chooses, be proved, and
// agree with the oracle in the interpreter. PIPETHREADER_RANDOM_FIRST and _COUNT select other and longer runs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>

#include "device/device.h"
#include "driver/pipeline.h"
#include "interpret/interpret.h"
#include "kernel/kernel.h"
#include "oracle/oracle.h"
#include "program/program.h"
#include "support/compiled/compiled_programs.h"
#include "support/random_kernel.h"
#include "task/products.h"

namespace pipethreader {
namespace {

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

driver::Choices random_choices(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](std::initializer_list<int> from) { return *(from.begin() + random() % from.size()); };
  driver::Choices choices;
  choices.partition.lanes = pick({1, 2, 2, 3, 4});
  // A copy takes at most 256 rows.
  choices.partition.row = 64 * choices.partition.lanes * (choices.partition.lanes >= 3 ? 1 : pick({1, 1, 2}));
  choices.partition.column = pick({32, 64, 128});
  choices.partition.stream = pick({16, 32, 64, 48});
  choices.partition.order = static_cast<partition::Order>(pick({0, 1, 2}));
  choices.partition.raster = pick({1, 2, 8});
  choices.partition.band = pick({0, 1, 3});
  choices.schedule.overlap = static_cast<schedule::Overlap>(pick({0, 1, 2}));
  choices.schedule.depth = pick({2, 3});
  choices.schedule.turns = pick({0, 0, 1}) == 1;
  choices.schedule.staged_stores = pick({0, 0, 1}) == 1;
  choices.partition.cluster = pick({1, 1, 1, 1, 2});
  choices.partition.share_sums = pick({0, 0, 0, 1}) == 1;
  if (choices.partition.share_sums) choices.partition.row = pick({64, 128});
  choices.partition.blocks = pick({1, 1, 1, 2});
  choices.partition.element = pick({256, 1024, 4096});
  return choices;
}

driver::Choices plain_choices() {
  driver::Choices choices;
  choices.partition.row = 64;
  choices.partition.lanes = 1;
  choices.partition.column = 64;
  choices.partition.stream = 32;
  choices.schedule.overlap = schedule::Overlap::serial;
  return choices;
}

struct Outcome {
  std::string failure;  // empty: right
  bool product = false;
  bool specialised = false;
  bool teams = false;
  bool too_large = false;  // the first choice for the proof's budget
  std::string reason;
};

Outcome try_kernel(const testing::RandomKernel& random, const device::Device& device) {
  Outcome outcome;
  outcome.product = random.features.contains("product");
  const auto failed = [&](const std::string& stage, const std::string& text) {
    outcome.failure = fmt::format("seed {} {}: {}\n{}", random.seed, stage, text, random.text);
    return outcome;
  };
  auto parsed = kernel::parse(random.text, "random.stask");
  if (!parsed) return failed("parse", parsed.error().format());
  auto checked = kernel::check(parsed->front());
  if (!checked) return failed("check", checked.error().format());
  const std::vector<std::int64_t> sizes = testing::sizes_of(*checked, random);
  // Every third kernel keeps its dims dynamic where the compiler can.
  auto fixed = kernel::specialise(*checked, random.sizes, {});
  if (!fixed) return failed("specialise", fixed.error().format());
  driver::Choices choices = random_choices(random.seed);
  if (choices.partition.cluster > 1 && random.seed % 2 == 0 && !fixed->parallel.empty()) {
    const kernel::AxisId along = fixed->parallel[random.seed / 2 % fixed->parallel.size()];
    choices.partition.along = (*fixed)[along].name;
  }
  if (choices.partition.cluster == 1 && !choices.partition.share_sums && choices.partition.lanes <= 2) {
    const auto graph = task::build(*fixed);
    const auto axes = graph ? partition::axes_of_teams(*graph) : std::vector<kernel::AxisId>();
    if (!axes.empty() && task::static_extent(*fixed, axes[0]).value_or(1) % 2 == 0) {
      choices.partition.teams = 2;
      choices.partition.apart = (*fixed)[axes[0]].name;
    }
  }
  Result<driver::Lowered> lowered = tl::unexpected(Error());
  if (random.seed % 3 == 0 && choices.partition.lanes == 4) {  // tall tiles of dynamic sizes are not always proved
    choices.partition.lanes = 2;
    choices.partition.row = 128;
  }
  if (random.seed % 3 == 0) lowered = driver::lower_kernel(*checked, device, choices);
  if (random.seed % 3 == 1) {  // where an axis can be walked, so that something stays on chip
    const auto walks = task::useful_walks(*fixed);
    if (!walks.empty()) choices.walk = walks[random.seed % walks.size()].walk;
  }
  if (!lowered) lowered = driver::lower_kernel(*fixed, device, choices);
  if (!lowered) {  // the search would pass this candidate over
    choices = plain_choices();
    lowered = driver::lower_kernel(*fixed, device, choices);
  }
  if (!lowered) return failed("lower", lowered.error().format());
  auto inputs = oracle::random_inputs(*checked, sizes, random.seed, random.ranges);
  if (!inputs) return failed("inputs", inputs.error().format());
  const std::vector<double> params = test::arguments_for(lowered->program, *checked, *inputs).params;
  for (const program::ExprId requirement : lowered->program.requirements) {
    if (program::evaluate(lowered->program, requirement, params) != 0) continue;
    choices.bulk = false;  // what a plan keeps for such sizes
    lowered = driver::lower_kernel(lowered->program.params.empty() ? *fixed : *checked, device, choices);
    if (!lowered) return failed("lower plain", lowered.error().format());
    break;
  }
  outcome.teams = lowered->partition.apart.valid();
  outcome.specialised = lowered->program.generic_reason.empty();
  outcome.reason = lowered->program.generic_reason;
  auto printed = driver::prove_and_print(lowered->program);
  if (!printed && printed.error().gave_up) {
    // Too large for the proof's budget: like the compiler, the next candidate.
    outcome.too_large = true;
    lowered = driver::lower_kernel(*fixed, device, plain_choices());
    if (!lowered) return failed("lower again", lowered.error().format());
    printed = driver::prove_and_print(lowered->program);
  }
  if (!printed) return failed("prove", printed.error().format() + "\n" + program::print(lowered->program));
  interpret::Arguments arguments = test::arguments_for(lowered->program, *checked, *inputs);
  interpret::RunOptions options;
  options.seed = random.seed;
  options.interleaving = random.seed % 2 == 0 ? interpret::Interleaving::adversarial : interpret::Interleaving::random;
  const auto ran = interpret::run(lowered->program, arguments, options);
  if (!ran) return failed("interpret", ran.error().format() + "\n" + program::print(lowered->program));
  auto expected = oracle::evaluate(*checked, *inputs, oracle::Partition::fixed(16));
  if (!expected) return failed("oracle", expected.error().format());
  const std::string different = test::difference(*checked, *expected, arguments);
  if (!different.empty()) return failed("compare", different + "\n" + program::print(lowered->program));
  return outcome;
}

TEST(CompileRandom, SeedsThatFailedOnce) {
  const auto device = device::load_device(PIPETHREADER_SOURCE_DIR "/devices/h100.toml");
  ASSERT_TRUE(device) << device.error().format();
  // A tile that joined its own ring; proofs that took a quotient and what is divided for independent.
  for (const std::uint64_t seed : {109809ULL, 84681ULL, 137221ULL}) {
    const Outcome outcome = try_kernel(testing::random_kernel(seed), *device);
    EXPECT_TRUE(outcome.failure.empty()) << outcome.failure;
  }
}

TEST(CompileRandom, AgreesWithTheOracle) {
  const auto device = device::load_device(PIPETHREADER_SOURCE_DIR "/devices/h100.toml");
  ASSERT_TRUE(device) << device.error().format();
  const std::uint64_t first = from_environment("PIPETHREADER_RANDOM_FIRST", 1);
  const std::uint64_t count = from_environment("PIPETHREADER_RANDOM_COUNT", 200);
  std::map<std::string, std::uint64_t> made_of;
  std::map<std::string, std::uint64_t> reasons;
  std::uint64_t products = 0;
  std::uint64_t specialised = 0;
  std::uint64_t failures = 0;
  std::uint64_t too_large = 0;
  std::uint64_t sizes = 0;
  std::uint64_t teams = 0;
  std::uint64_t aligned = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const testing::RandomKernel random = testing::random_kernel(seed);
    const Outcome outcome = try_kernel(random, *device);
    for (const std::string& feature : random.features) ++made_of[feature];
    if (random.features.contains("ragged") || random.features.contains("dynamic")) ++made_of["ragged or dynamic"];
    sizes += static_cast<std::uint64_t>(random.all_sizes);
    aligned += static_cast<std::uint64_t>(random.aligned_sizes);
    products += outcome.product ? 1 : 0;
    specialised += outcome.product && outcome.specialised ? 1 : 0;
    if (outcome.product && !outcome.specialised) ++reasons[outcome.reason];
    if (from_environment("PIPETHREADER_RANDOM_VERBOSE", 0) != 0)
      fmt::print("{}{} {}\n", seed, outcome.too_large ? " too large for the first proof" : "", outcome.reason);
    too_large += outcome.too_large ? 1 : 0;
    teams += outcome.teams ? 1 : 0;
    failures += outcome.failure.empty() ? 0 : 1;
    EXPECT_TRUE(outcome.failure.empty()) << outcome.failure;
    if (failures > 200) break;
  }
  fmt::print(
      "{} kernels, {} wrong or rejected; {} with products, {} of them specialised; {} of {} sizes aligned; {} with "
      "teams\n",
      count, failures, products, specialised, aligned, sizes, teams);
  for (const auto& [reason, times] : reasons) fmt::print("  {} generic: {}\n", times, reason);
  if (count < 100) return;  // shares of a few kernels say nothing
  EXPECT_LE(200 * too_large, count) << "proofs of first choices that went over their budget";
  EXPECT_GE(100 * specialised, 90 * products);
  EXPECT_GE(100 * aligned, 75 * sizes);
  EXPECT_LE(100 * aligned, 90 * sizes);
  const auto expect_share = [&](const std::string& feature, std::uint64_t percent) {
    EXPECT_GE(100 * made_of[feature], percent * count) << feature;
  };
  expect_share("product", 80);
  expect_share("chained", 30);
  expect_share("carried", 30);
  expect_share("mask", 30);
  expect_share("ragged or dynamic", 20);
  expect_share("ragged", 20);
  expect_share("dynamic", 20);
  expect_share("window", 12);
  expect_share("unaligned", 2);
}

}  // namespace
}  // namespace pipethreader
