// Random kernels against the oracle: each is valid, evaluates quickly to tame numbers, does not depend on how its loops
// are cut, and keeps its bounds when every rounding is made as large as the error model allows.
#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "kernel/kernel.h"
#include "oracle/oracle.h"
#include "support/random_kernel.h"

namespace pipethreader {
namespace {

using oracle::LoopTiles;
using oracle::Partition;
using testing::RandomKernel;

constexpr std::uint64_t kKernels = 200;

struct Case {
  RandomKernel random;
  kernel::Kernel kernel;
  oracle::Inputs inputs;
};

// Fails the test, with the text, if the kernel is not valid.
std::optional<Case> make(std::uint64_t seed) {
  Case c;
  c.random = testing::random_kernel(seed);
  auto parsed = kernel::parse(c.random.text, "random.stask");
  auto checked = parsed ? kernel::check(parsed->front()) : Result<kernel::Kernel>(tl::unexpected(parsed.error()));
  if (!checked) {
    ADD_FAILURE() << "seed " << seed << "\n" << c.random.text << checked.error().format();
    return std::nullopt;
  }
  c.kernel = *checked;
  auto inputs = oracle::random_inputs(c.kernel, testing::sizes_of(c.kernel, c.random), seed, c.random.ranges);
  if (!inputs) {
    ADD_FAILURE() << "seed " << seed << ": " << inputs.error().format();
    return std::nullopt;
  }
  c.inputs = *inputs;
  return c;
}

TEST(RandomKernels, AreWhatTheyAreMeantToBe) {
  std::map<std::string, int> mix;
  std::int64_t elements = 0, unbounded = 0, loose = 0;
  for (std::uint64_t seed = 0; seed < kKernels; ++seed) {
    const auto c = make(seed);
    if (!c) continue;
    EXPECT_EQ(testing::random_kernel(seed).text, c->random.text);
    for (const std::string& feature : c->random.features) ++mix[feature];
    const auto outputs = oracle::evaluate(c->kernel, c->inputs, Partition::fixed(16));
    ASSERT_TRUE(outputs) << c->random.text << outputs.error().format();
    for (const oracle::OutputTensor& tensor : outputs->tensors)
      for (std::size_t i = 0; i < tensor.bounds.size(); ++i) {
        if (tensor.written[i] == 0) continue;
        const double value = tensor.values[i];
        ASSERT_TRUE(std::isfinite(value)) << "seed " << seed << ", '" << tensor.name << "'\n" << c->random.text;
        ++elements;
        unbounded += std::isinf(tensor.bounds[i]) ? 1 : 0;
        loose += tensor.bounds[i] > 0.05 * (1 + std::fabs(value)) ? 1 : 0;
      }
  }
  const auto share = [&](const char* feature) { return 100 * mix[feature] / static_cast<int>(kKernels); };
  EXPECT_GE(share("chained"), 30);
  EXPECT_GE(share("carried"), 30);
  EXPECT_GE(share("mask"), 30);
  EXPECT_GE(share("dynamic"), 20);
  EXPECT_GE(share("ragged"), 20);
  EXPECT_GE(share("short_product"), 60);
  for (const char* feature :
       {"window", "epilogue", "row_reduction", "several_outputs", "before_loop", "several_loops", "f16", "bf16", "f32",
        "gqa", "broadcast", "transposed", "when", "combine", "ordered", "inner_rows", "static"})
    EXPECT_GE(share(feature), 5) << feature;
  // A bound that is far from the numbers proves little; few may be.
  EXPECT_LT(unbounded, elements / 200);
  EXPECT_LT(loose, elements / 50);
}

TEST(RandomKernels, DoNotDependOnThePartition) {
  for (std::uint64_t seed = 0; seed < kKernels; ++seed) {
    const auto c = make(seed);
    if (!c) continue;
    const auto independent = oracle::check_partition_independence(c->kernel, c->inputs, seed);
    EXPECT_TRUE(independent) << c->random.text << independent.error().format();
  }
}

TEST(RandomKernels, KeepTheirBoundsWhateverTheRoundings) {
  for (std::uint64_t seed = 0; seed < kKernels; ++seed) {
    const auto c = make(seed);
    if (!c) continue;
    // The bound of the finest partition holds for programs with larger tiles, in any order, and for split loops.
    const auto expected = oracle::evaluate(c->kernel, c->inputs, Partition::one());
    ASSERT_TRUE(expected) << expected.error().format();
    const std::vector<Partition> programs = {
        Partition::one(),
        Partition::whole(),
        Partition::fixed(8),
        {{.kind = LoopTiles::Kind::ragged, .shuffle = true, .seed = seed}, {}},
        {{.kind = LoopTiles::Kind::fixed, .size = 5, .split = true}, {}},
    };
    for (std::size_t p = 0; p < programs.size(); ++p) {
      const auto run = oracle::evaluate_perturbed(c->kernel, c->inputs, programs[p], seed + 1000 * p);
      ASSERT_TRUE(run) << run.error().format();
      std::vector<std::vector<double>> actual;
      for (const oracle::OutputTensor& tensor : run->tensors) actual.push_back(tensor.values);
      const auto report = oracle::compare(*expected, actual);
      ASSERT_TRUE(report) << report.error().format();
      EXPECT_TRUE(report->ok()) << "seed " << seed << ", program " << p << ": " << report->format() << "\n"
                                << c->random.text;
    }
  }
}

}  // namespace
}  // namespace pipethreader
