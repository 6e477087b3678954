#include "oracle/oracle.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace pipethreader::oracle {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

kernel::Kernel kernel_of(const std::string& text) {
  auto parsed = kernel::parse(text, "test.stask");
  if (!parsed) {
    ADD_FAILURE() << parsed.error().format();
    return {};
  }
  auto checked = kernel::check(parsed->front());
  if (!checked) {
    ADD_FAILURE() << checked.error().format();
    return {};
  }
  return *checked;
}

// An input tensor with the given values.


Outputs run(const kernel::Kernel& kernel, const Inputs& inputs, const Partition& partition = Partition::whole()) {
  auto outputs = evaluate(kernel, inputs, partition);
  if (!outputs) {
    ADD_FAILURE() << outputs.error().format();
    return {};
  }
  return *outputs;
}

Inputs random(const kernel::Kernel& kernel, std::vector<std::int64_t> sizes, std::uint64_t seed = 1) {
  auto inputs = random_inputs(kernel, sizes, seed);
  if (!inputs) {
    ADD_FAILURE() << inputs.error().format();
    return {};
  }
  return *inputs;
}

constexpr const char* kFlashAttention = R"(
kernel flash_attention(Q: f16[B,H,S,D], K: f16[B,G,T,D], V: f16[B,G,T,D], scale: f32) -> (O: f16[B,H,S,D]) {
  option causal: bool = true;
  require G > 0;  require H % G == 0;
  parallel b: B, h: H, i: S;
  inner d: D;
  carry m[i] = -inf, l[i] = 0, o[i,d] = 0;
  for j: T where !causal || j <= i {
    s[i,j] = sum[k: D] Q[b,h,i,k] * K[b,h/(H/G),j,k];
    x[i]   = max(m[i], max[j] s[i,j] * scale);
    n[i]   = select(x[i] - m[i] > 8, x[i], m[i]);
    p[i,j] = f16(exp2(s[i,j] * scale - n[i]));
    a[i]   = exp2(m[i] - n[i]);
    l[i]   = l[i] * a[i] + sum[j] p[i,j];
    o[i,d] = o[i,d] * a[i] when a[i] != 1;
    o[i,d] += sum[j] p[i,j] * V[b,h/(H/G),j,d];
    m[i]   = n[i];
  }
  O[b,h,i,d] = f16(select(l[i] == 0, 0, o[i,d] / l[i]));
}
)";

TEST(Oracle, FlashAttentionIsSoftmaxAttention) {
  const auto kernel = kernel_of(kFlashAttention);
  const std::int64_t B = 1, H = 2, S = 9, D = 8, G = 1, T = 11;
  const Inputs inputs = random(kernel, {B, H, S, D, G, T});
  for (const Partition& partition : {Partition::whole(), Partition::one(), Partition::fixed(4), Partition::ragged(3)}) {
    const Outputs outputs = run(kernel, inputs, partition);
    ASSERT_EQ(outputs.tensors.size(), 1u);
    const auto at = [&](std::size_t t, std::int64_t h, std::int64_t i, std::int64_t d) {
      return inputs.tensors[t].values[static_cast<std::size_t>((h * inputs.tensors[t].shape[2] + i) * D + d)];
    };
    for (std::int64_t h = 0; h < H; ++h)
      for (std::int64_t i = 0; i < S; ++i) {
        std::vector<double> weight;
        double total = 0;
        for (std::int64_t j = 0; j <= i; ++j) {
          double s = 0;
          for (std::int64_t k = 0; k < D; ++k) s += at(0, h, i, k) * at(1, 0, j, k);
          weight.push_back(std::exp2(s * inputs.scalars[0]));
          total += weight.back();
        }
        for (std::int64_t d = 0; d < D; ++d) {
          double o = 0;
          for (std::int64_t j = 0; j <= i; ++j) o += weight[static_cast<std::size_t>(j)] * at(2, 0, j, d);
          const std::size_t k = static_cast<std::size_t>((h * S + i) * D + d);
          const double bound = outputs.tensors[0].bounds[k];
          EXPECT_NEAR(outputs.tensors[0].data.values[k], o / total, bound + 0x1p-11);
          EXPECT_LT(bound, 4e-3);
          EXPECT_EQ(outputs.tensors[0].written[k], 1);
        }
      }
  }
}

}  // namespace
}  // namespace pipethreader::oracle
