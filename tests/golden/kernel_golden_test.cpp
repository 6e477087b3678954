// The kernel stage's dumps, compared with reviewed files in tests/golden/kernel: checked, or specialised with the
// bindings named here. A difference shows the new text; copy it over only after reading it.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "kernel/kernel.h"

namespace pipethreader::kernel {
namespace {

std::string read(const std::string& path) {
  std::ifstream in(std::string(PIPETHREADER_SOURCE_DIR) + "/" + path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string dump(const std::string& name, const std::vector<Binding>& dims, const std::vector<Binding>& options) {
  const auto kernels = parse(read("kernels/" + name + ".stask"), name + ".stask");
  if (!kernels) return kernels.error().format();
  const auto checked = check(kernels->front());
  if (!checked) return checked.error().format();
  const auto special = specialise(*checked, dims, options);
  return special ? print(*special) : special.error().format();
}

TEST(KernelGolden, Matmul) { EXPECT_EQ(dump("matmul", {}, {}), read("tests/golden/kernel/matmul.txt")); }

TEST(KernelGolden, FlashAttentionStatic) {
  EXPECT_EQ(dump("flash_attention", {{"B", 4}, {"H", 16}, {"G", 4}, {"S", 4096}, {"T", 4096}, {"D", 128}}, {}),
            read("tests/golden/kernel/flash_attention_static.txt"));
}

TEST(KernelGolden, FlashAttentionDynamicFull) {
  EXPECT_EQ(dump("flash_attention", {{"D", 64}}, {{"causal", 0}}),
            read("tests/golden/kernel/flash_attention_dynamic_full.txt"));
}

TEST(KernelGolden, ChunkScan) {
  EXPECT_EQ(dump("chunk_scan", {{"L", 256}, {"H", 80}, {"G", 1}, {"P", 64}, {"N", 128}}, {}),
            read("tests/golden/kernel/chunk_scan.txt"));
}

TEST(KernelGolden, Conv2dStatic) {
  EXPECT_EQ(dump("conv2d", {{"R", 3}, {"S", 3}}, {{"stride", 2}}), read("tests/golden/kernel/conv2d_stride.txt"));
}

TEST(KernelGolden, AttentionDecode) {
  EXPECT_EQ(dump("attention_decode", {}, {}), read("tests/golden/kernel/attention_decode.txt"));
}

}  // namespace
}  // namespace pipethreader::kernel
