// Compiled kernels on a real card, against the oracle: poisoned outputs, fresh random inputs, sizes around tile edges,
// one binary for many sizes. Skipped, with the driver's reason, where there is no Hopper GPU.
#include <random>

#include <gtest/gtest.h>

#include "driver/compiler.h"
#include "driver/run.h"
#include "support/random_kernel.h"

namespace pipethreader::driver {
namespace {

const std::string root = PIPETHREADER_SOURCE_DIR;

class KernelsOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    auto gpu = open_gpu();
    if (!gpu) GTEST_SKIP() << gpu.error().format();
    if (const auto nvrtc = runtime::locate_nvrtc(environment_.nvrtc); !nvrtc) GTEST_SKIP() << nvrtc.error().format();
    gpu_ = std::move(*gpu);
  }

  Compiled compiled(const std::string& file, const std::string& name, const std::vector<kernel::Binding>& dims,
                    const std::vector<kernel::Binding>& options = {}, const Forced& forced = {}) {
    CompileRequest request;
    auto kernel = load_kernel(root + "/kernels/" + file, name);
    EXPECT_TRUE(kernel) << kernel.error().format();
    request.kernel = std::move(*kernel);
    request.dims = dims;
    request.options = options;
    request.device = *device::load_device(root + "/devices/h200.toml");
    request.candidates = 2;
    request.forced = forced;
    auto result = compile(request, environment_);
    EXPECT_TRUE(result) << file << ": " << result.error().format();
    return std::move(*result);
  }

  // Twice with the same loaded kernel: what a launch leaves behind (counters) must serve the next.
  void expect_right(const Compiled& compiled, const std::vector<kernel::Binding>& sizes, std::uint64_t seed,
                    const std::vector<oracle::Range>& ranges = {}, int launches = 2) {
    std::string what = compiled.plan.kernel;
    for (const auto& s : sizes) what += fmt::format(" {}={}", s.name, s.value);
    const auto all = all_sizes(compiled.kernel, sizes);
    ASSERT_TRUE(all) << what << all.error().format();
    const auto inputs = oracle::random_inputs(compiled.kernel, *all, seed, ranges);
    ASSERT_TRUE(inputs) << what << inputs.error().format();
    auto run = GpuRun::prepare(gpu_, compiled.plan, compiled.kernel, *inputs);
    ASSERT_TRUE(run) << what << run.error().format();
    for (int launch = 0; launch < launches; ++launch) {
      ASSERT_TRUE(run->poison());
      const auto launched = run->launch(gpu_, runtime::Stream());
      ASSERT_TRUE(launched) << what << launched.error().format();
      const auto finished = gpu_.synchronize();
      ASSERT_TRUE(finished) << what << finished.error().format();
    }
    const auto outputs = run->outputs();
    ASSERT_TRUE(outputs) << what << outputs.error().format();
    const auto checked = check(compiled.kernel, *inputs, *outputs, seed, 5e7);
    ASSERT_TRUE(checked) << what << checked.error().format();
    EXPECT_TRUE(checked->report.ok()) << what << ": " << checked->report.format();
  }

  Environment environment_ = read_environment(running_program(), {root});
  runtime::Gpu gpu_;
};

using Sizes = std::vector<kernel::Binding>;

TEST_F(KernelsOnGpu, OneMatmulBinaryTakesManySizes) {
  const Compiled matmul = compiled("matmul.stask", "matmul", {});
  std::mt19937 random(5);
  const int edges[] = {0, 1, 7, 8, 31, 63, 64, 65, 127, 128, 129, 200, 255, 256, 257, 333, 512};
  const auto pick = [&] { return static_cast<double>(edges[random() % std::size(edges)]); };
  for (std::uint64_t i = 0; i < 30; ++i) expect_right(matmul, {{"M", pick()}, {"N", pick()}, {"K", pick()}}, i);
  expect_right(matmul, {{"M", 1000}, {"N", 1016}, {"K", 2048}}, 77);
}

TEST_F(KernelsOnGpu, EveryTranspositionOfMatmul) {
  for (const char* name : {"matmul", "matmul_b_rows", "matmul_a_columns", "matmul_a_columns_b_rows"}) {
    for (const Sizes& sizes : {Sizes{{"M", 136}, {"N", 264}, {"K", 72}}, Sizes{{"M", 256}, {"N", 128}, {"K", 512}}}) {
      expect_right(compiled("matmul.stask", name, sizes), {}, 3);
    }
  }
}

TEST_F(KernelsOnGpu, OneAttentionBinaryTakesManySizes) {
  for (const double causal : {0.0, 1.0}) {
    const Compiled attention = compiled("flash_attention.stask", "", {{"D", 64}}, {{"causal", causal}});
    // More queries than keys, none, one tile and its neighbours, several heads to a key head.
    const int edges[] = {0, 1, 63, 64, 65, 127, 128, 129, 191, 193, 300, 513, 640};
    std::mt19937 random(11);
    const auto pick = [&] { return static_cast<double>(edges[random() % std::size(edges)]); };
    for (std::uint64_t i = 0; i < 30; ++i) {
      const double group = 1 + static_cast<double>(random() % 2);
      const double heads = group * (1 + static_cast<double>(random() % 3));
      expect_right(attention, {{"B", 1}, {"H", heads}, {"G", group}, {"S", pick()}, {"T", pick()}}, i);
    }
  }
}

TEST_F(KernelsOnGpu, HeadDimsFrom16To256) {
  for (const double d : {16, 32, 64, 96, 128, 192, 256}) {
    expect_right(
        compiled("flash_attention.stask", "", {{"B", 1}, {"H", 2}, {"G", 1}, {"S", 200}, {"T", 200}, {"D", d}}), {}, 9);
  }
}

TEST_F(KernelsOnGpu, TheRestOfTheLibrary) {
  const std::pair<const char*, Sizes> all[] = {
      {"softmax.stask", {{"M", 37}, {"N", 1000}}},
      {"rms_norm.stask", {{"M", 33}, {"N", 777}}},
      {"layer_norm.stask", {{"M", 5}, {"N", 512}}},
      {"gated_ffn.stask", {{"M", 200}, {"N", 136}, {"K", 264}}},
      {"matmul_batched.stask", {{"B", 3}, {"M", 100}, {"N", 72}, {"K", 64}}},
      {"matmul_bf16.stask", {{"M", 130}, {"N", 64}, {"K", 200}}},
      {"matmul_bias_relu.stask", {{"M", 130}, {"N", 72}, {"K", 128}}},
      {"matmul_bias_gelu.stask", {{"M", 130}, {"N", 72}, {"K", 128}}},
      {"matmul_softmax_rows.stask", {{"M", 130}, {"N", 96}, {"K", 64}, {"D", 64}}},
      {"chunk_state.stask", {{"B", 1}, {"C", 2}, {"L", 64}, {"H", 4}, {"P", 64}, {"G", 2}, {"N", 64}}},
      {"chunk_scan.stask", {{"B", 1}, {"C", 2}, {"L", 64}, {"H", 4}, {"P", 64}, {"G", 2}, {"N", 64}}},
      {"chunk_state.stask", {{"B", 2}, {"C", 2}, {"L", 256}, {"H", 16}, {"P", 64}, {"G", 1}, {"N", 128}}},  // walked
      {"chunk_scan.stask", {{"B", 2}, {"C", 2}, {"L", 256}, {"H", 16}, {"P", 64}, {"G", 1}, {"N", 128}}},
      {"chunk_scan.stask", {{"B", 1}, {"C", 2}, {"L", 200}, {"H", 16}, {"P", 40}, {"G", 2}, {"N", 72}}},
      {"retention.stask", {{"B", 1}, {"H", 2}, {"S", 200}, {"D", 64}, {"E", 64}}},
      {"attention_decode.stask", {{"B", 2}, {"G", 2}, {"R", 8}, {"T", 300}, {"D", 64}}},
      {"conv2d.stask",
       {{"N", 1}, {"H", 10}, {"W", 12}, {"P", 10}, {"Q", 12}, {"C", 16}, {"F", 24}, {"R", 3}, {"S", 3}}},
  };
  for (const auto& [file, sizes] : all) expect_right(compiled(file, "", sizes), {}, 21);
}

TEST_F(KernelsOnGpu, GivesTheElementsOfASample) {
  const Compiled matmul = compiled("matmul.stask", "matmul", {{"M", 1000}, {"N", 2000}, {"K", 64}});
  const auto inputs = oracle::random_inputs(matmul.kernel, *all_sizes(matmul.kernel, {}), 7);
  auto run = GpuRun::prepare(gpu_, matmul.plan, matmul.kernel, *inputs);
  ASSERT_TRUE(run) << run.error().format();
  ASSERT_TRUE(run->launch(gpu_, runtime::Stream()));
  ASSERT_TRUE(gpu_.synchronize());
  const auto whole = run->outputs();
  ASSERT_TRUE(whole) << whole.error().format();
  auto expected = Expected::evaluate(matmul.kernel, *inputs, 7, 1e5);
  ASSERT_TRUE(expected) << expected.error().format();
  const auto some = run->outputs_at(expected->outputs());
  ASSERT_TRUE(some) << some.error().format();
  const oracle::OutputTensor& out = expected->outputs().tensors[0];
  ASSERT_TRUE(out.sample);
  for (std::size_t i = 0; i < out.sample->size(); ++i)
    ASSERT_EQ((*some)[0][i], (*whole)[0][static_cast<std::size_t>(out.element(i))]);
  EXPECT_TRUE(expected->check(*some)->report.ok());
  const auto all = Expected::evaluate(matmul.kernel, *inputs, 7, 1e12);
  ASSERT_TRUE(all) << all.error().format();
  EXPECT_EQ(*run->outputs_at(all->outputs()), *whole);
}

// Blocks that fill the card and share execution units: memory is slow to answer, and warps of a group come apart.
TEST_F(KernelsOnGpu, SchedulesUnderLoad) {
  struct Case {
    const char* file;
    Sizes sizes;
    std::vector<kernel::Binding> options;
    Forced forced;
  };
  const Sizes chunks = {{"B", 1}, {"C", 264}, {"L", 64}, {"H", 8}, {"P", 64}, {"G", 1}, {"N", 128}};
  const Sizes long_chunks = {{"B", 1}, {"C", 132}, {"L", 256}, {"H", 8}, {"P", 64}, {"G", 1}, {"N", 128}};
  const Sizes heads = {{"B", 4}, {"H", 16}, {"G", 16}, {"S", 2048}, {"T", 2048}, {"D", 64}};
  const Case all[] = {
      // Slots read by threads and filled again at once.
      {"chunk_state.stask", chunks, {}, {{"order", "single"}, {"stream", "16"}, {"staged", "off"}, {"walk", "h:8"}}},
      {"chunk_scan.stask", long_chunks, {}, {{"order", "single"}, {"stream", "16"}, {"lanes", "1"}}},
      {"chunk_scan.stask", long_chunks, {}, {{"walk", "h:8"}}},
      {"chunk_scan.stask",
       long_chunks,
       {},
       {{"walk", "h:8"}, {"row", "256"}, {"lanes", "4"}, {"stream", "64"}, {"column", "64"}, {"staged", "off"}}},
      // Lanes that pass tiles over.
      {"flash_attention.stask", heads, {{"causal", 1}}, {{"lanes", "3"}, {"stream", "96"}, {"overlap", "serial"}}},
      {"flash_attention.stask", heads, {{"causal", 1}}, {{"lanes", "2"}, {"row", "256"}, {"overlap", "serial"}}},
      // Lanes that share sums.
      {"chunk_state.stask", chunks, {}, {{"share", "sums"}, {"lanes", "2"}, {"stream", "64"}}},
      {"matmul.stask", {{"M", 512}, {"N", 1024}, {"K", 4096}}, {}, {{"share", "sums"}, {"lanes", "2"}}},
      {"matmul.stask", {{"M", 500}, {"N", 1000}, {"K", 4008}}, {}, {{"share", "sums"}, {"lanes", "4"}}},
      {"gated_ffn.stask", {{"M", 512}, {"N", 512}, {"K", 2048}}, {}, {{"share", "sums"}, {"lanes", "2"}}},
      // Teams of lanes, and blocks that share a unit.
      {"chunk_scan.stask", long_chunks, {}, {{"teams", "h:4"}, {"lanes", "1"}, {"walk", "off"}}},
      {"chunk_scan.stask", long_chunks, {}, {{"teams", "h:2"}, {"lanes", "2"}, {"order", "single"}, {"walk", "off"}}},
      {"chunk_state.stask", chunks, {}, {{"teams", "h:2"}, {"stream", "32"}, {"walk", "off"}}},
      {"chunk_scan.stask", long_chunks, {}, {{"blocks", "2"}, {"lanes", "2"}, {"walk", "off"}}},
      {"flash_attention.stask", heads, {{"causal", 1}}, {{"blocks", "4"}, {"lanes", "1"}, {"order", "dynamic"}}},
      // Heads that copy for each other what they share.
      {"chunk_state.stask", long_chunks, {}, {{"cluster", "h:2"}, {"walk", "off"}}},
      {"chunk_scan.stask", long_chunks, {}, {{"cluster", "h:4"}, {"walk", "off"}}},
      // Loops split over work items, and joined by a second launch.
      {"matmul.stask", {{"M", 64}, {"N", 512}, {"K", 4096}}, {}, {{"split", "4"}}},
      {"attention_decode.stask", {{"B", 4}, {"G", 8}, {"R", 8}, {"T", 4096}, {"D", 64}}, {}, {{"split", "8"}}},
  };
  for (const Case& c : all) {
    expect_right(compiled(c.file, "", c.sizes, c.options, c.forced), {}, 33, {}, 20);
    if (HasFailure()) FAIL() << c.file << " forced " << fmt::format("{}={}", c.forced[0].first, c.forced[0].second);
  }
}

TEST_F(KernelsOnGpu, ASampleOfRandomKernels) {
  for (std::uint64_t seed = 9000; seed < 9040; ++seed) {
    const testing::RandomKernel random = testing::random_kernel(seed);
    const auto parsed = kernel::parse(random.text, "random.stask");
    ASSERT_TRUE(parsed) << parsed.error().format();
    CompileRequest request;
    auto checked = kernel::check(parsed->front());
    ASSERT_TRUE(checked) << checked.error().format();
    request.kernel = std::move(*checked);
    request.dims = random.sizes;
    request.device = *device::load_device(root + "/devices/h200.toml");
    request.candidates = 1;
    const auto compiled = compile(request, environment_);
    ASSERT_TRUE(compiled) << random.text << compiled.error().format();
    expect_right(*compiled, {}, seed, random.ranges);
    if (HasFailure()) FAIL() << random.text;
  }
}

}  // namespace
}  // namespace pipethreader::driver
