// The runtime on a real card: compile, load, copy, launch, time. Skipped, with the driver's reason, where there is
// none.
#include <array>
#include <cmath>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/driver.h"
#include "runtime/host_array.h"
#include "runtime/nvrtc.h"

namespace pipethreader::runtime {
namespace {

using ::testing::HasSubstr;

class RuntimeOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    auto gpu = Gpu::open(0);
    if (!gpu) GTEST_SKIP() << gpu.error().format();
    gpu_ = std::move(*gpu);
    auto nvrtc = Nvrtc::open();
    if (!nvrtc) GTEST_SKIP() << nvrtc.error().format();
    nvrtc_ = std::move(*nvrtc);
  }

  [[nodiscard]] bool hopper() const { return gpu_.properties().compute_major == 9; }

  Result<Function> kernel(const std::string& source, const std::string& name) {
    const GpuProperties& p = gpu_.properties();
    CompileRequest request;
    request.source = source;
    request.architecture = fmt::format("sm_{}{}{}", p.compute_major, p.compute_minor, hopper() ? "a" : "");
    auto compiled = nvrtc_.compile(request);
    if (!compiled) return tl::unexpected(compiled.error());
    auto module = gpu_.load(compiled->cubin);
    if (!module) return tl::unexpected(module.error());
    return module->function(name);
  }

  Gpu gpu_;
  Nvrtc nvrtc_;
};

template <class T>
void expect_ok(const Result<T>& result) {
  ASSERT_TRUE(result) << result.error().format();
}

TEST_F(RuntimeOnGpu, PropertiesAreThoseOfACard) {
  const GpuProperties& p = gpu_.properties();
  EXPECT_GT(p.sm_count, 0);
  EXPECT_GT(p.peak_clock_mhz, 100);
  EXPECT_GT(p.memory_bytes, std::int64_t{1} << 30);
  if (hopper()) {
    EXPECT_EQ(p.shared_bytes_per_block, 232448);
    EXPECT_EQ(p.registers_per_sm, 65536);
  }
  EXPECT_THAT(Gpu::open(Gpu::count().value()).error().format(), HasSubstr("there is no GPU"));
}

TEST_F(RuntimeOnGpu, ACopyMadeByAKernelComesBack) {
  const auto function = kernel(
      "extern \"C\" __global__ void copy(const float* from, float* to, int n, float factor) {\n"
      "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
      "  if (i < n) to[i] = factor * from[i];\n"
      "}\n",
      "copy");
  expect_ok(function);
  const int n = 100'003;
  std::vector<double> values(n);
  std::mt19937 random(1);
  for (double& v : values) v = static_cast<double>(random() % 2048) - 1024;
  auto from = gpu_.upload(pack(ScalarType::f32, values));
  auto to = gpu_.allocate(static_cast<std::size_t>(n + 1) * 4);
  expect_ok(from);
  expect_ok(to);
  expect_ok(to->fill_pattern(0x7fffffff, 4));
  KernelArguments arguments;
  arguments.add(*from).add(*to).add(n).add(0.5f);
  const auto stream = gpu_.create_stream();
  expect_ok(stream);
  expect_ok(gpu_.launch(*function, {.grid = {(n + 127u) / 128, 1, 1}, .block = {128, 1, 1}}, arguments, *stream));
  expect_ok(stream->synchronize());
  std::vector<std::byte> bytes(to->bytes());
  expect_ok(to->download(bytes));
  const auto back = unpack(ScalarType::f32, bytes, static_cast<std::size_t>(n + 1));
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) ASSERT_EQ(back[i], values[i] / 2) << i;
  EXPECT_TRUE(std::isnan(back.back())) << "the poison beyond the end is untouched";

  expect_ok(to->fill_async(0, 0, 8, *stream));
  expect_ok(stream->synchronize());
  expect_ok(to->download(bytes));
  EXPECT_EQ(unpack(ScalarType::f32, bytes, 3)[1], 0);
  EXPECT_EQ(unpack(ScalarType::f32, bytes, 3)[2], values[2] / 2);
}

TEST_F(RuntimeOnGpu, ConversionsOfTheHostAreThoseOfTheCard) {
  const auto function = kernel(
      "extern \"C\" __global__ void convert(const float* x, unsigned short* h, unsigned short* b, int* i, int n) {\n"
      "  int k = blockIdx.x * blockDim.x + threadIdx.x;\n"
      "  if (k >= n) return;\n"
      "  asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(h[k]) : \"f\"(x[k]));\n"
      "  asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(b[k]) : \"f\"(x[k]));\n"
      "  asm(\"cvt.rzi.s32.f32 %0, %1;\" : \"=r\"(i[k]) : \"f\"(x[k]));\n"
      "}\n",
      "convert");
  expect_ok(function);
  const int n = 1 << 20;
  std::vector<double> values(n);
  std::mt19937 random(2);
  for (double& v : values) {
    do v = from_bits(ScalarType::f32, random());
    while (std::isnan(v));
  }
  const auto x = gpu_.upload(pack(ScalarType::f32, values));
  const auto h = gpu_.allocate(n * 2), b = gpu_.allocate(n * 2), i = gpu_.allocate(n * 4);
  KernelArguments arguments;
  arguments.add(*x).add(*h).add(*b).add(*i).add(n);
  expect_ok(gpu_.launch(*function, {.grid = {n / 256, 1, 1}, .block = {256, 1, 1}}, arguments, Stream()));
  const auto check = [&](const DeviceBuffer& buffer, ScalarType type) {
    std::vector<std::byte> bytes(buffer.bytes());
    expect_ok(buffer.download(bytes));
    EXPECT_EQ(bytes, pack(type, values)) << name(type);
  };
  check(*h, ScalarType::f16);
  check(*b, ScalarType::bf16);
  check(*i, ScalarType::i32);
}

TEST_F(RuntimeOnGpu, ATensorMapFeedsTheCopyEngine) {
  if (!hopper()) GTEST_SKIP() << "needs a Hopper GPU, found " << gpu_.properties().name;
  // Loads one box that hangs over both edges of a 2-d tensor, and writes it out plainly.
  const auto function = kernel(
      "struct alignas(64) Map { char bytes[128]; };\n"
      "extern \"C\" __global__ void load(const __grid_constant__ Map map, float* out, int x, int y) {\n"
      "  extern __shared__ __align__(128) char shared[];\n"
      "  __shared__ __align__(8) unsigned long long barrier;\n"
      "  unsigned bar = (unsigned)__cvta_generic_to_shared(&barrier), dst = "
      "(unsigned)__cvta_generic_to_shared(shared);\n"
      "  if (threadIdx.x == 0) {\n"
      "    asm volatile(\"mbarrier.init.shared::cta.b64 [%0], 1;\" :: \"r\"(bar));\n"
      "    asm volatile(\"fence.proxy.async.shared::cta;\" ::: \"memory\");\n"
      "    asm volatile(\"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;\" :: \"r\"(bar) : \"memory\");\n"
      "    asm volatile(\"cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes\"\n"
      "                 \" [%0], [%1, {%3, %4}], [%2];\" :: \"r\"(dst), \"l\"(&map), \"r\"(bar), \"r\"(x), \"r\"(y) : "
      "\"memory\");\n"
      "  }\n"
      "  __syncthreads();\n"
      "  asm volatile(\"{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra W; }\" :: "
      "\"r\"(bar) : \"memory\");\n"
      "  out[threadIdx.x] = ((float*)shared)[threadIdx.x];\n"
      "}\n",
      "load");
  expect_ok(function);
  constexpr int columns = 20, rows = 30;
  std::vector<double> values(columns * rows);
  for (std::size_t k = 0; k < values.size(); ++k) values[k] = static_cast<double>(k) + 1;
  const auto tensor = gpu_.upload(pack(ScalarType::f32, values));
  const auto out = gpu_.allocate(1024);
  expect_ok(tensor);
  TensorMapDescription d;
  d.type = ScalarType::f32;
  d.base = tensor->address();
  d.sizes = {columns, rows};
  d.byte_strides = {columns * 4};
  d.box = {16, 16};
  const auto map = gpu_.encode(d);
  expect_ok(map);
  constexpr int x = 12, y = 20;
  KernelArguments arguments;
  arguments.add(*map).add(*out).add(x).add(y);
  expect_ok(gpu_.launch(*function, {.block = {256, 1, 1}, .dynamic_shared_bytes = 1024}, arguments, Stream()));
  expect_ok(gpu_.synchronize());
  std::vector<std::byte> bytes(1024);
  expect_ok(out->download(bytes));
  const auto box = unpack(ScalarType::f32, bytes, 256);
  for (int r = 0; r < 16; ++r)
    for (int c = 0; c < 16; ++c) {
      const bool inside = y + r < rows && x + c < columns;
      ASSERT_EQ(box[static_cast<std::size_t>(r * 16 + c)], inside ? (y + r) * columns + x + c + 1 : 0) << r << " " << c;
    }
}

TEST_F(RuntimeOnGpu, ClustersAndLargeSharedMemoryLaunch) {
  if (!hopper()) GTEST_SKIP() << "needs a Hopper GPU, found " << gpu_.properties().name;
  const auto function = kernel(
      "extern \"C\" __global__ void ranks(int* out) {\n"
      "  extern __shared__ int s[];\n"
      "  unsigned rank; asm volatile(\"mov.u32 %0, %%cluster_ctarank;\" : \"=r\"(rank));\n"
      "  s[50000] = rank;\n"
      "  out[blockIdx.x] = s[50000];\n"
      "}\n",
      "ranks");
  expect_ok(function);
  const auto out = gpu_.allocate(8 * 4);
  KernelArguments arguments;
  arguments.add(*out);
  const LaunchConfig config{
      .grid = {8, 1, 1}, .block = {32, 1, 1}, .cluster = {2, 1, 1}, .dynamic_shared_bytes = 220'000};
  expect_ok(gpu_.launch(*function, config, arguments, Stream()));
  expect_ok(gpu_.synchronize());
  std::vector<std::byte> bytes(32);
  expect_ok(out->download(bytes));
  EXPECT_EQ(unpack(ScalarType::i32, bytes, 8), (std::vector<double>{0, 1, 0, 1, 0, 1, 0, 1}));

  const auto clusters = gpu_.max_active_clusters(*function, config);
  expect_ok(clusters);
  EXPECT_GT(*clusters, 0);
  EXPECT_LE(*clusters, gpu_.properties().sm_count / 2);
  EXPECT_EQ(gpu_.max_active_blocks_per_sm(*function, config).value(), 1);
  LaunchConfig excessive = config;
  excessive.dynamic_shared_bytes = 240'000;
  EXPECT_THAT(gpu_.launch(*function, excessive, arguments, Stream()).error().format(), HasSubstr("a block on"));
  const auto attributes = function->attributes();
  expect_ok(attributes);
  EXPECT_GT(attributes->registers, 0);
  EXPECT_EQ(attributes->max_dynamic_shared_bytes, 220'000);
}

TEST_F(RuntimeOnGpu, MeasuringAndReplayingTakeTheTimeThatPasses) {
  const auto function = kernel(
      "extern \"C\" __global__ void wait(unsigned long long ns, int* count) {\n"
      "  unsigned long long begin, now;\n"
      "  asm volatile(\"mov.u64 %0, %%globaltimer;\" : \"=l\"(begin));\n"
      "  do asm volatile(\"mov.u64 %0, %%globaltimer;\" : \"=l\"(now)); while (now - begin < ns);\n"
      "  atomicAdd(count, 1);\n"
      "}\n",
      "wait");
  expect_ok(function);
  auto count = gpu_.allocate(4);
  expect_ok(count->fill(0));
  KernelArguments arguments;
  arguments.add(std::uint64_t{2'000'000}).add(*count);
  const auto work = [&](const Stream& stream) { return gpu_.launch(*function, {}, arguments, stream); };
  const auto measured = gpu_.measure({.warmups = 1, .repeats = 5}, work);
  expect_ok(measured);
  EXPECT_GT(measured->median_ms, 1.8);
  EXPECT_LT(measured->median_ms, 4);

  const auto graph = gpu_.capture([&](const Stream& stream) -> Result<void> {
    for (int i = 0; i < 3; ++i)
      if (auto ok = work(stream); !ok) return ok;
    return {};
  });
  expect_ok(graph);
  expect_ok(graph->launch(Stream()));
  expect_ok(gpu_.synchronize());
  std::array<std::byte, 4> bytes{};
  expect_ok(count->download(bytes));
  EXPECT_EQ(unpack(ScalarType::i32, bytes, 1)[0], 1 + 5 + 3) << "capturing runs nothing, replaying runs all";
}

TEST_F(RuntimeOnGpu, WrongBinariesAndNamesAreErrors) {
  const std::vector<std::byte> junk(100, std::byte{7});
  EXPECT_THAT(gpu_.load(junk).error().format(), HasSubstr("failed to load a binary of 100 bytes"));
  const auto function = kernel("extern \"C\" __global__ void only() {}", "other");
  ASSERT_FALSE(function);
  EXPECT_THAT(function.error().format(), HasSubstr("find the kernel 'other'"));
  EXPECT_FALSE(gpu_.allocate(std::size_t{1} << 60));
  EXPECT_TRUE(gpu_.allocate(0));
}

}  // namespace
}  // namespace pipethreader::runtime
