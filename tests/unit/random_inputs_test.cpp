// Large random inputs are drawn by all cores; each is one stream of numbers, whatever the number of cores.
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernel/kernel.h"
#include "oracle/oracle.h"

namespace pipethreader::oracle {
namespace {

// splitmix64 from the FNV-1a hash of seed and name, written down anew.
std::uint64_t number(std::uint64_t seed, const std::string& name, std::uint64_t index) {
  std::uint64_t z = 0xcbf29ce484222325u ^ seed;
  for (const char c : name) z = (z ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  z += (index + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

TEST(RandomInputs, OfALargeTensorAreOneStream) {
  const auto kernels = kernel::parse(
      "kernel k(A: f32[N], I: i32[N]) -> (O: f32[N]) {\n  parallel i: N;\n  O[i] = A[i] + f32(I[i]);\n}\n", "k.stask");
  ASSERT_TRUE(kernels) << kernels.error().format();
  for (const std::int64_t size : {0, 1, 65'536, 65'537, 1'000'003}) {
    const auto inputs = random_inputs(kernels->front(), {size}, 7, {{"A", -2, 1}});
    ASSERT_TRUE(inputs) << inputs.error().format();
    std::vector<double> floats, integers;
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(size); ++i) {
      floats.push_back(round_to(ScalarType::f32, -2 + 3 * (static_cast<double>(number(7, "A", i) >> 11) * 0x1p-53)));
      integers.push_back(static_cast<double>(number(7, "I", i) % 7) - 3);
    }
    EXPECT_TRUE(inputs->tensors[0].values == floats) << size;
    EXPECT_TRUE(inputs->tensors[1].values == integers) << size;
  }
}

}  // namespace
}  // namespace pipethreader::oracle
