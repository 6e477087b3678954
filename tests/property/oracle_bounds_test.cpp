// The bounds against programs that really compute in f32 and f16: written here directly, with tiles, any order of
// additions and truncating sums, as a GPU does. Right ones are within the bounds; wrong ones are not.
#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "base/scalar_type.h"
#include "kernel/kernel.h"
#include "oracle/oracle.h"

namespace pipethreader {
namespace {

float truncated(double value) {
  float rounded = static_cast<float>(value);
  if (std::fabs(static_cast<double>(rounded)) > std::fabs(value)) rounded = std::nextafterf(rounded, 0.0f);
  return rounded;
}

float half(float value) { return static_cast<float>(round_to(ScalarType::f16, value)); }

kernel::Kernel kernel_of(const char* text) {
  auto parsed = kernel::parse(text, "test.stask");
  EXPECT_TRUE(parsed) << parsed.error().format();
  auto checked = kernel::check(parsed->front());
  EXPECT_TRUE(checked) << checked.error().format();
  return *checked;
}

enum class Fault { none, drops_a_term, repeats_a_term, wrong_row, half_accumulator };

constexpr const char* kMatmul = R"(
kernel matmul(A: f16[M,K], B: f16[K,N]) -> (C: f32[M,N]) {
  parallel i: M, j: N;
  carry acc[i,j] = 0;
  for k: K { acc[i,j] += sum[k] A[i,k] * B[k,j]; }
  C[i,j] = acc[i,j];
}
)";

std::vector<double> matmul_on_f32(const oracle::Inputs& in, std::mt19937& random, Fault fault) {
  const auto M = static_cast<std::size_t>(in.sizes[0]), K = static_cast<std::size_t>(in.sizes[1]),
             N = static_cast<std::size_t>(in.sizes[2]);
  std::vector<std::size_t> order(K);
  for (std::size_t k = 0; k < K; ++k) order[k] = k;
  std::shuffle(order.begin(), order.end(), random);
  std::vector<double> c;
  for (std::size_t i = 0; i < M; ++i)
    for (std::size_t j = 0; j < N; ++j) {
      float sum = 0;
      const std::size_t terms = K - (fault == Fault::drops_a_term ? 1 : 0);
      const std::size_t row = fault == Fault::wrong_row ? (i + 1) % M : i;
      for (std::size_t n = 0; n < terms; ++n) {
        const double product = in.tensors[0].values[row * K + order[n]] * in.tensors[1].values[order[n] * N + j];
        sum = truncated(static_cast<double>(sum) + product);
        if (n == 0 && fault == Fault::repeats_a_term) sum = truncated(static_cast<double>(sum) + product);
        if (fault == Fault::half_accumulator) sum = half(sum);
      }
      c.push_back(sum);
    }
  return c;
}

std::int64_t wrong_elements(const oracle::Outputs& expected, const std::vector<double>& actual) {
  const auto report = oracle::compare(expected, {actual});
  EXPECT_TRUE(report) << report.error().format();
  return report->wrong;
}

TEST(OracleBounds, HoldForMatmulThatTruncatesInAnyOrder) {
  const kernel::Kernel kernel = kernel_of(kMatmul);
  std::mt19937 random(1);
  for (const std::int64_t K : {1, 2, 7, 16, 33, 64, 200, 1000, 5000}) {
    const oracle::Inputs inputs =
        *oracle::random_inputs(kernel, {5, K, 6}, static_cast<std::uint64_t>(K), {{"A", -1, 1}});
    for (const auto& partition : {oracle::Partition::whole(), oracle::Partition::one(), oracle::Partition::fixed(16)}) {
      const oracle::Outputs expected = *oracle::evaluate(kernel, inputs, partition);
      for (int round = 0; round < 5; ++round)
        EXPECT_EQ(wrong_elements(expected, matmul_on_f32(inputs, random, Fault::none)), 0) << "K " << K;
      // Of 30 elements.
      EXPECT_GT(wrong_elements(expected, matmul_on_f32(inputs, random, Fault::wrong_row)), 20) << "K " << K;
      if (K > 1000) continue;  // one term of thousands may be smaller than what their additions may lose
      EXPECT_GT(wrong_elements(expected, matmul_on_f32(inputs, random, Fault::drops_a_term)), 20) << "K " << K;
      EXPECT_GT(wrong_elements(expected, matmul_on_f32(inputs, random, Fault::repeats_a_term)), 20) << "K " << K;
      if (K < 16) continue;
      EXPECT_GT(wrong_elements(expected, matmul_on_f32(inputs, random, Fault::half_accumulator)), 20) << "K " << K;
    }
  }
}

TEST(OracleBounds, HoldForPositiveSumsWhoseTruncationsAddUp) {
  const kernel::Kernel kernel = kernel_of(kMatmul);
  std::mt19937 random(2);
  for (const std::int64_t K : {16, 300, 4000}) {
    const oracle::Inputs inputs = *oracle::random_inputs(kernel, {3, K, 3}, 5, {{"A", 0.25, 1}, {"B", 0.25, 1}});
    const oracle::Outputs expected = *oracle::evaluate(kernel, inputs, oracle::Partition::whole());
    // A tensor core truncates once per 16 terms; the f64 sums inside a step stand for its wide adder.
    std::vector<double> actual;
    for (std::size_t i = 0; i < 3; ++i)
      for (std::size_t j = 0; j < 3; ++j) {
        float sum = 0;
        for (std::size_t first = 0; first < static_cast<std::size_t>(K); first += 16) {
          double step = sum;
          for (std::size_t k = first; k < std::min<std::size_t>(first + 16, static_cast<std::size_t>(K)); ++k)
            step += inputs.tensors[0].values[i * static_cast<std::size_t>(K) + k] * inputs.tensors[1].values[k * 3 + j];
          sum = truncated(step);
        }
        actual.push_back(sum);
      }
    EXPECT_EQ(wrong_elements(expected, actual), 0) << "K " << K;
  }
}

constexpr const char* kAttention = R"(
kernel attention(Q: f16[S,D], K: f16[T,D], V: f16[T,D], scale: f32) -> (O: f16[S,D]) {
  parallel i: S;
  inner d: D;
  carry m[i] = -inf, l[i] = 0, o[i,d] = 0;
  for j: T where j <= i + T - S {
    s[i,j] = sum[k: D] Q[i,k] * K[j,k];
    x[i]   = max(m[i], max[j] s[i,j] * scale);
    n[i]   = select(x[i] - m[i] > 8, x[i], m[i]);
    p[i,j] = f16(exp2(s[i,j] * scale - n[i]));
    a[i]   = exp2(m[i] - n[i]);
    l[i]   = l[i] * a[i] + sum[j] p[i,j];
    o[i,d] = o[i,d] * a[i] when a[i] != 1;
    o[i,d] += sum[j] p[i,j] * V[j,d];
    m[i]   = n[i];
  }
  O[i,d] = f16(select(l[i] == 0, 0, o[i,d] / l[i]));
}
)";

enum class AttentionFault { none, stale_sum, no_rescale, unmasked, last_key_lost };

// Tiles of `tile` keys from the last to the first, in f32, with eager maxima instead of lazy ones.
std::vector<double> attention_on_f32(const oracle::Inputs& in, std::size_t tile, AttentionFault fault) {
  const auto S = static_cast<std::size_t>(in.sizes[0]), D = static_cast<std::size_t>(in.sizes[1]),
             T = static_cast<std::size_t>(in.sizes[2]);
  const auto at = [&](std::size_t tensor, std::size_t row, std::size_t d) {
    return static_cast<float>(in.tensors[tensor].values[row * D + d]);
  };
  const float scale = static_cast<float>(in.scalars[0]);
  std::vector<double> result;
  for (std::size_t i = 0; i < S; ++i) {
    std::size_t keys = i + T - S + 1;
    if (fault == AttentionFault::unmasked) keys = T;
    if (fault == AttentionFault::last_key_lost) keys -= 1;
    float m = -INFINITY, l = 0;
    std::vector<float> o(D, 0);
    for (std::size_t t = (keys + tile - 1) / tile; t-- > 0;) {
      std::vector<float> s;
      float top = m;
      for (std::size_t j = t * tile; j < std::min(keys, (t + 1) * tile); ++j) {
        float sum = 0;
        for (std::size_t k = 0; k < D; ++k)
          sum =
              truncated(static_cast<double>(sum) + static_cast<double>(at(0, i, k)) * static_cast<double>(at(1, j, k)));
        s.push_back(sum);
        top = std::max(top, sum * scale);
      }
      const float a = std::exp2(m - top);
      if (fault != AttentionFault::stale_sum) l *= a;
      if (fault != AttentionFault::no_rescale)
        for (float& value : o) value *= a;
      for (std::size_t j = 0; j < s.size(); ++j) {
        const float p = half(std::exp2(std::fma(s[j], scale, -top)));
        l += p;
        for (std::size_t d = 0; d < D; ++d)
          o[d] = truncated(static_cast<double>(o[d]) +
                           static_cast<double>(p) * static_cast<double>(at(2, t * tile + j, d)));
      }
      m = top;
    }
    for (std::size_t d = 0; d < D; ++d) result.push_back(half(l == 0 ? 0 : o[d] / l));
  }
  return result;
}

TEST(OracleBounds, HoldForAttentionInF32WithOtherMaximaAndTiles) {
  const kernel::Kernel kernel = kernel_of(kAttention);
  std::int64_t elements = 0;
  for (const double reach : {1.0, 4.0})
    for (const std::int64_t T : {9, 40, 130}) {
      const std::int64_t S = std::min<std::int64_t>(T, 9), D = 16;
      const oracle::Inputs inputs = *oracle::random_inputs(kernel, {S, D, T}, static_cast<std::uint64_t>(T),
                                                           {{"Q", -reach, reach}, {"scale", 0.5, 1.5}});
      const oracle::Outputs expected = *oracle::evaluate(kernel, inputs, oracle::Partition::fixed(16));
      elements += S * D;
      for (const std::size_t tile : {16u, 32u, 64u})
        EXPECT_EQ(wrong_elements(expected, attention_on_f32(inputs, tile, AttentionFault::none)), 0) << "T " << T;
      for (const AttentionFault fault : {AttentionFault::unmasked, AttentionFault::last_key_lost}) {
        if (fault == AttentionFault::last_key_lost && reach > 1)
          continue;  // one key of a peaked softmax weighs nothing
        EXPECT_GT(wrong_elements(expected, attention_on_f32(inputs, 16, fault)), S * D / 3)
            << "T " << T << " fault " << static_cast<int>(fault) << " reach " << reach;
      }
      if (T < 40) continue;
      for (const AttentionFault fault : {AttentionFault::stale_sum, AttentionFault::no_rescale}) {
        EXPECT_GT(wrong_elements(expected, attention_on_f32(inputs, 16, fault)), S * D / 3)
            << "T " << T << " fault " << static_cast<int>(fault) << " reach " << reach;
      }
    }
  EXPECT_GT(elements, 0);
}

}  // namespace
}  // namespace pipethreader
