#include "oracle/oracle.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/scalar_type.h"
#include "kernel/kernel.h"

namespace pipethreader::oracle {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::nan("");

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

// Inputs given one by one, in the order of the kernel's tensors; one-dimensional unless a shape is given.
Inputs inputs_of(std::vector<std::int64_t> sizes, std::vector<TensorData> tensors, std::vector<double> scalars = {}) {
  return {std::move(sizes), std::move(tensors), std::move(scalars)};
}

TensorData row(std::vector<double> values) {
  const auto size = static_cast<std::int64_t>(values.size());
  return {{size}, std::move(values)};
}

Outputs run(const kernel::Kernel& kernel, const Inputs& inputs, const Partition& partition = Partition::whole()) {
  auto outputs = evaluate(kernel, inputs, partition);
  if (!outputs) {
    ADD_FAILURE() << outputs.error().format();
    return {{OutputTensor{}}};
  }
  return *outputs;
}

Inputs random(const kernel::Kernel& kernel, const std::vector<std::int64_t>& sizes,
              const std::vector<Range>& ranges = {}) {
  auto inputs = random_inputs(kernel, sizes, 1, ranges);
  if (!inputs) {
    ADD_FAILURE() << inputs.error().format();
    return {};
  }
  return *inputs;
}

const std::vector<double>& values(const Outputs& outputs, std::size_t tensor = 0) {
  return outputs.tensors[tensor].values;
}

const std::vector<double>& bounds(const Outputs& outputs, std::size_t tensor = 0) {
  return outputs.tensors[tensor].bounds;
}

Report report(const Outputs& expected, const std::vector<double>& actual) {
  auto compared = compare(expected, {actual});
  if (!compared) {
    ADD_FAILURE() << compared.error().format();
    return {};
  }
  return *compared;
}

constexpr const char* kFlashAttention = R"(
kernel flash_attention(Q: f16[B,H,S,D], K: f16[B,G,T,D], V: f16[B,G,T,D], scale: f32) -> (O: f16[B,H,S,D]) {
  option causal: bool = true;
  require G > 0;
  require H % G == 0;
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

// Softmax attention written down directly, for one head and one row.
std::vector<double> attention_row(const Inputs& in, std::int64_t query_row, std::int64_t key_head, std::int64_t keys) {
  const std::int64_t D = in.sizes[3], T = in.tensors[1].shape[2];
  const auto at = [&](std::size_t t, std::int64_t r, std::int64_t d) {
    return in.tensors[t].values[static_cast<std::size_t>(r * D + d)];
  };
  std::vector<double> sum(static_cast<std::size_t>(D), 0);
  double total = 0;
  for (std::int64_t j = 0; j < keys; ++j) {
    double s = 0;
    for (std::int64_t k = 0; k < D; ++k) s += at(0, query_row, k) * at(1, key_head * T + j, k);
    const double weight = std::exp2(s * in.scalars[0]);
    total += weight;
    for (std::int64_t d = 0; d < D; ++d) sum[static_cast<std::size_t>(d)] += weight * at(2, key_head * T + j, d);
  }
  for (double& value : sum) value = total > 0 ? value / total : 0;
  return sum;
}

TEST(Oracle, FlashAttentionIsSoftmaxAttention) {
  const auto kernel = kernel_of(kFlashAttention);
  const std::int64_t H = 4, S = 9, D = 8, G = 2, T = 6;  // more queries than keys
  const Inputs inputs = random(kernel, {1, H, S, D, G, T}, {{"Q", -2, 2}, {"scale", 1, 1}});
  for (const Partition& partition : {Partition::whole(), Partition::one(), Partition::fixed(4), Partition::ragged(3)}) {
    const Outputs outputs = run(kernel, inputs, partition);
    EXPECT_THAT(outputs.tensors[0].written, Each(1));
    for (std::int64_t h = 0; h < H; ++h)
      for (std::int64_t i = 0; i < S; ++i) {
        const std::vector<double> expected = attention_row(inputs, h * S + i, h / (H / G), std::min(T, i + 1));
        for (std::int64_t d = 0; d < D; ++d) {
          const auto k = static_cast<std::size_t>((h * S + i) * D + d);
          EXPECT_NEAR(values(outputs)[k], expected[static_cast<std::size_t>(d)], bounds(outputs)[k]);
          EXPECT_LT(bounds(outputs)[k], 4e-3);
        }
      }
  }
}

TEST(Oracle, AMissingKeyIsOutsideTheBound) {
  const auto kernel = kernel_of(kFlashAttention);
  const std::int64_t S = 4, D = 8, T = 40;
  auto specialised = kernel::specialise(kernel, {}, {{"causal", 0}});
  ASSERT_TRUE(specialised) << specialised.error().format();
  const Inputs inputs = random(*specialised, {1, 1, S, D, 1, T});
  const Outputs outputs = run(*specialised, inputs, Partition::fixed(16));
  std::vector<double> right, wrong;
  for (std::int64_t i = 0; i < S; ++i) {
    for (double value : attention_row(inputs, i, 0, T)) right.push_back(round_to(ScalarType::f16, value));
    for (double value : attention_row(inputs, i, 0, T - 1)) wrong.push_back(round_to(ScalarType::f16, value));
  }
  EXPECT_TRUE(report(outputs, right).ok()) << report(outputs, right).format();
  EXPECT_GT(report(outputs, wrong).wrong, static_cast<std::int64_t>(wrong.size()) / 2);
}

constexpr const char* kMatmul = R"(
kernel matmul(A: f16[M,K], B: f16[K,N]) -> (C: f16[M,N]) {
  parallel i: M, j: N;
  carry acc[i,j] = 0;
  for k: K { acc[i,j] += sum[k] A[i,k] * B[k,j]; }
  C[i,j] = f16(acc[i,j]);
}
)";

TEST(Oracle, MatmulAndItsBound) {
  const auto kernel = kernel_of(kMatmul);
  const Inputs inputs = random(kernel, {5, 33, 7});
  const Outputs outputs = run(kernel, inputs, Partition::fixed(8));
  for (std::size_t i = 0; i < 5; ++i)
    for (std::size_t j = 0; j < 7; ++j) {
      double sum = 0, magnitude = 0;
      for (std::size_t k = 0; k < 33; ++k) {
        const double product = inputs.tensors[0].values[i * 33 + k] * inputs.tensors[1].values[k * 7 + j];
        sum += product;
        magnitude += std::fabs(product);
      }
      EXPECT_EQ(values(outputs)[i * 7 + j], round_to(ScalarType::f16, sum));
      // The products are exact; 32 additions may lose two roundoffs each, and the rounding to f16 may flip.
      EXPECT_LE(bounds(outputs)[i * 7 + j],
                2 * unit_roundoff(ScalarType::f16) * std::fabs(sum) + 64 * 0x1p-24 * magnitude);
    }
}

TEST(Oracle, WholeNumbersAreExactButCarryABound) {
  const auto kernel = kernel_of("kernel k(A: f16[N]) -> (S: f32[]) { S[] = sum[i: N] A[i] * A[i]; }");
  const Outputs outputs = run(kernel, inputs_of({3}, {row({1, 2, 3})}));
  EXPECT_EQ(values(outputs)[0], 14);
  EXPECT_NEAR(bounds(outputs)[0], 2 * 2 * 0x1p-24 * 14, 1e-12);  // two additions, two roundoffs each
}

TEST(Oracle, LongSumsAreChargedLessThanTheWorstCase) {
  const auto kernel = kernel_of("kernel k(A: f32[N]) -> (S: f32[]) { S[] = sum[i: N] A[i]; }");
  const std::vector<double> ones(100000, 1);
  const Outputs outputs = run(kernel, inputs_of({100000}, {row(ones)}));
  EXPECT_EQ(values(outputs)[0], 100000);
  EXPECT_LT(bounds(outputs)[0], 0.15 * 1e5 * 1e5 * 0x1p-24);
  EXPECT_GT(bounds(outputs)[0], 8 * std::sqrt(1e5) * 1e5 * 0x1p-24);
}

TEST(Oracle, EmptySizes) {
  const auto matmul = kernel_of(kMatmul);
  EXPECT_THAT(values(run(matmul, random(matmul, {2, 0, 3}))), ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_TRUE(values(run(matmul, random(matmul, {0, 4, 3}))).empty());
  const auto extremes = kernel_of(R"(
    kernel k(A: f32[N]) -> (X: f32[], Y: f32[], Z: f32[]) {
      X[] = max[i: N] A[i];  Y[] = min[i: N] A[i];  Z[] = sum[i: N] A[i];
    })");
  const Outputs outputs = run(extremes, random(extremes, {0}));
  EXPECT_EQ(values(outputs, 0)[0], -kInf);
  EXPECT_EQ(values(outputs, 1)[0], kInf);
  EXPECT_EQ(values(outputs, 2)[0], 0);
  EXPECT_EQ(bounds(outputs, 0)[0], 0);
}

TEST(Oracle, StateWithoutAPointInTheDomainStaysUnchanged) {
  const auto kernel = kernel_of(R"(
    kernel k(A: f32[N]) -> (L: f32[M], C: f32[M]) {
      parallel i: M;
      carry last[i] = 100, c[i] = 0;
      for j: N where j < i {
        last[i] = max[j] A[j] * 0 + 7;
        c[i] += sum[j] A[j];
      }
      L[i] = last[i];
      C[i] = c[i];
    })");
  for (const Partition& partition : {Partition::whole(), Partition::one(), Partition::ragged(1)}) {
    const Outputs outputs = run(kernel, inputs_of({3, 5}, {row({1, 2, 4}), {}, {}}), partition);
    EXPECT_THAT(values(outputs, 0), ElementsAre(100, 7, 7, 7, 7));
    EXPECT_THAT(values(outputs, 1), ElementsAre(0, 1, 3, 7, 7));
  }
}

TEST(Oracle, ReductionsSeeOnlyTheDomainEvenOfNaN) {
  const auto kernel = kernel_of(R"(
    kernel k(A: f32[N]) -> (S: f32[]) {
      carry s = 0;
      for j: N where j % 2 == 0 { s += sum[j] A[j]; }
      S[] = s;
    })");
  EXPECT_EQ(values(run(kernel, inputs_of({4}, {row({1, kNaN, 2, kInf})})))[0], 3);
}

TEST(Oracle, PaddedWindow) {
  const auto kernel = kernel_of(R"(
    kernel k(A: f32[N]) -> (B: f32[N]) {
      parallel i: N;
      B[i] = sum[r: 3 where i + r - 1 >= 0 && i + r - 1 < N] A[i + r - 1];
    })");
  EXPECT_THAT(values(run(kernel, inputs_of({4}, {row({1, 2, 3, 4})}))), ElementsAre(3, 6, 9, 7));
}

TEST(Oracle, WhenKeepsTheOldValue) {
  const auto kernel = kernel_of(R"(
    kernel k(A: f32[N]) -> (B: f32[N]) {
      parallel i: N;
      v[i] = A[i];
      v[i] = 1 / A[i] when A[i] != 0;
      B[i] = v[i] when i != 2;
    })");
  const Outputs outputs = run(kernel, inputs_of({4}, {row({0, 2, 8, 0.5})}));
  EXPECT_EQ(values(outputs)[0], 0);
  EXPECT_EQ(bounds(outputs)[0], 0);
  EXPECT_EQ(values(outputs)[1], 0.5);
  EXPECT_EQ(values(outputs)[3], 2);
  EXPECT_THAT(outputs.tensors[0].written, ElementsAre(1, 1, 0, 1));
  EXPECT_EQ(report(outputs, {0, 0.5, kNaN, 2}).unwritten, 1);
}

TEST(Oracle, AssignmentReadsOldElements) {
  const auto kernel = kernel_of(R"(
    kernel k(A: f32[N]) -> (B: f32[N]) {
      inner d: N;
      v[d] = A[d];
      v[d] = v[N - 1 - d] + 0;
      B[d] = v[d];
    })");
  EXPECT_THAT(values(run(kernel, inputs_of({3}, {row({1, 2, 3})}))), ElementsAre(3, 2, 1));
}

TEST(Oracle, AConditionWithinItsErrorAllowsBothOutcomes) {
  const auto kernel = kernel_of(R"(
    kernel k(A: f32[N], B: f32[N]) -> (C: f32[N]) {
      parallel i: N;
      x[i] = exp(A[i]);
      C[i] = select(x[i] > B[i], 5, 3);
    })");
  const double e = round_to(ScalarType::f32, std::exp(1.0));
  const Outputs outputs = run(kernel, inputs_of({3}, {row({1, 1, 1}), row({e, 2, 3})}));
  EXPECT_EQ(bounds(outputs)[0], 2);  // 3 or 5
  EXPECT_THAT(values(outputs), ElementsAre(::testing::_, 5, 3));
  EXPECT_EQ(bounds(outputs)[1], 0);  // decided
  EXPECT_EQ(bounds(outputs)[2], 0);
}

TEST(Oracle, ANumberMinusItselfIsExactlyZero) {
  const auto kernel = kernel_of(R"(
    kernel k(A: f32[N]) -> (B: f32[N], C: f32[N]) {
      parallel i: N;
      m[i] = exp(A[i]);
      x[i] = exp(A[i] - 5);
      n[i] = max(m[i], x[i]);
      B[i] = exp2(m[i] - n[i]);
      C[i] = exp2(x[i] - n[i]);
    })");
  const Outputs outputs = run(kernel, random(kernel, {4}));
  EXPECT_THAT(values(outputs, 0), Each(1));
  EXPECT_THAT(bounds(outputs, 0), Each(0));
  EXPECT_THAT(bounds(outputs, 1), Each(::testing::Gt(0)));
}

TEST(Oracle, ExactZerosStayExact) {
  const auto kernel = kernel_of(R"(
    kernel k(A: f32[N], B: f32[N]) -> (C: f32[N]) {
      parallel i: N;
      x[i] = exp(B[i]);
      y[i] = A[i] * x[i] + A[i] * B[i];
      C[i] = select(y[i] == 0, 5, 1 / y[i]);
    })");
  const Outputs outputs = run(kernel, inputs_of({2}, {row({0, 1}), row({1, 1}), {}}));
  EXPECT_EQ(values(outputs)[0], 5);
  EXPECT_EQ(bounds(outputs)[0], 0);
  EXPECT_GT(bounds(outputs)[1], 0);
}

TEST(Oracle, ASumOverTilesIsChargedAsOneSumInAnyOrder) {
  const auto kernel = kernel_of(R"(
    kernel k(A: f32[N]) -> (S: f32[]) {
      carry s = 0;
      for j: N { s += sum[j] A[j]; }
      S[] = s;
    })");
  // Alternating terms cancel in their order; in another order the partial sums are large.
  const Inputs inputs = inputs_of({6}, {row({1000, -1000, 1000, -1000, 0, 1000})});
  const double whole = bounds(run(kernel, inputs, Partition::whole()))[0];
  EXPECT_NEAR(whole, 5 * 5000 * 0x1p-24, 1e-9);
  EXPECT_NEAR(bounds(run(kernel, inputs, Partition::one()))[0], whole, whole / 2);
}

TEST(Oracle, ConversionsRoundAndSmallErrorsCanOnlyFlipThem) {
  const auto kernel = kernel_of(R"(
    kernel k(A: f32[N]) -> (B: f16[N], C: bf16[N]) {
      parallel i: N;
      B[i] = f16(A[i]);
      C[i] = bf16(exp(A[i]));
    })");
  const Outputs outputs = run(kernel, inputs_of({4}, {row({0.3f, 70000, 1e-7, -2}), {}, {}}));
  EXPECT_THAT(values(outputs, 0), ElementsAre(round_to(ScalarType::f16, 0.3f), kInf, 0x1p-23, -2));
  EXPECT_THAT(bounds(outputs, 0), Each(0));  // a conversion of an exact number is exact
  for (std::size_t i : {0u, 2u, 3u}) {
    const double step = 2 * unit_roundoff(ScalarType::bf16) * values(outputs, 1)[i];
    EXPECT_THAT(bounds(outputs, 1)[i], ::testing::AnyOf(0, ::testing::Le(step)));
  }
  EXPECT_EQ(values(outputs, 1)[1], kInf);
}

TEST(Oracle, SixteenBitArithmeticIsChargedInItsOwnType) {
  const auto elementwise = kernel_of("kernel k(A: f16[N]) -> (B: f32[N]) { parallel i: N; B[i] = f32(A[i] * A[i]); }");
  const Outputs outputs = run(elementwise, inputs_of({1}, {row({1.5})}));
  EXPECT_NEAR(bounds(outputs)[0], unit_roundoff(ScalarType::f16) * 2.25, 1e-9);
}

TEST(Oracle, SmallSixteenBitResultsAreChargedHalfASubnormalStep) {
  const auto small = kernel_of(R"(
    kernel k(A: f16[N], C: bf16[N]) -> (P: f32[N], Q: f32[N], E: f32[N], S: f32[N], B: f32[N]) {
      parallel i: N;
      P[i] = f32(A[i] * A[i]);
      Q[i] = f32(A[i] / f16(512));
      E[i] = f32(exp(A[i] - f16(17)));
      S[i] = f32(A[i] + A[i]);
      B[i] = f32(C[i] * C[i]);
    })");
  const Outputs outputs = run(small, inputs_of({1}, {row({0x1.4p-13}), row({0x1.4p-13}), {}, {}, {}, {}, {}}));
  for (const std::size_t rounded : {0u, 1u}) {
    EXPECT_GE(bounds(outputs, rounded)[0], 0x1p-25) << rounded;
    EXPECT_LE(bounds(outputs, rounded)[0], 0x1p-24) << rounded;
  }
  EXPECT_GE(bounds(outputs, 2)[0], 0x1p-25);
  EXPECT_LT(bounds(outputs, 3)[0], 0x1p-22);  // sums of 16-bit numbers have no smaller step than they
  EXPECT_LE(bounds(outputs, 4)[0], unit_roundoff(ScalarType::bf16) * 0x1.9p-26 * 1.01);
}

TEST(Oracle, IntegersAreExact) {
  const auto kernel = kernel_of(R"(
    kernel k(A: i32[N]) -> (B: i32[N], S: i32[N]) {
      parallel i: N;
      B[i] = A[i] / 2 + A[i] % 3 - i;
      S[i] = sum[j: N] A[j] * N;
    })");
  const Outputs outputs = run(kernel, inputs_of({3}, {row({-3, 5, 7}), {}, {}}));
  EXPECT_THAT(values(outputs, 0), ElementsAre(-2 + 0 - 0, 2 + 2 - 1, 3 + 1 - 2));
  EXPECT_THAT(values(outputs, 1), Each(27));
  EXPECT_THAT(bounds(outputs, 0), Each(0));
}

TEST(Oracle, SeveralLoopsAndValuesFromBefore) {
  const auto kernel = kernel_of(R"(
    kernel k(X: f32[M,N]) -> (P: f32[M,N]) {
      parallel i: M;
      carry m[i] = -inf, l[i] = 0;
      for j: N {
        n[i] = max(m[i], max[j] X[i,j]);
        l[i] = l[i] * exp(m[i] - n[i]) + sum[j] exp(X[i,j] - n[i]);
        m[i] = n[i];
      }
      for q: N { P[i,q] = exp(X[i,q] - m[i]) / l[i]; }
    })");
  const Inputs inputs = random(kernel, {3, 7});
  for (const Partition& partition : {Partition::whole(), Partition::one(), Partition::fixed(3)}) {
    const Outputs outputs = run(kernel, inputs, partition);
    for (std::size_t i = 0; i < 3; ++i) {
      double total = 0;
      for (std::size_t j = 0; j < 7; ++j) total += std::exp(inputs.tensors[0].values[i * 7 + j]);
      for (std::size_t j = 0; j < 7; ++j)
        EXPECT_NEAR(values(outputs)[i * 7 + j], std::exp(inputs.tensors[0].values[i * 7 + j]) / total,
                    bounds(outputs)[i * 7 + j]);
    }
  }
}

// --- samples ---------------------------------------------------------------------------------------------------------

Outputs sample(const kernel::Kernel& kernel, const Inputs& inputs, const Sample& which) {
  auto outputs = evaluate(kernel, inputs, Partition::fixed(4), which);
  if (!outputs) {
    ADD_FAILURE() << outputs.error().format();
    return {{OutputTensor{}}};
  }
  return *outputs;
}

// The elements of a sample are those of the whole, bounds included; gives how many there are.
std::size_t expect_part_of_whole(const std::string& text, const std::vector<std::int64_t>& sizes, std::int64_t points) {
  const auto kernel = kernel_of(text);
  const Inputs inputs = random(kernel, sizes);
  const Outputs whole = run(kernel, inputs, Partition::fixed(4));
  const Outputs some = sample(kernel, inputs, {.points = points, .seed = 3});
  std::size_t count = 0;
  for (std::size_t t = 0; t < whole.tensors.size(); ++t) {
    const OutputTensor& all = whole.tensors[t];
    const OutputTensor& part = some.tensors[t];
    EXPECT_FALSE(all.sample);
    EXPECT_EQ(part.shape, all.shape);
    if (!part.sample) {
      ADD_FAILURE() << part.name << " is whole";
      return 0;
    }
    EXPECT_TRUE(std::is_sorted(part.sample->begin(), part.sample->end(), std::less_equal<>()));
    EXPECT_EQ(part.values.size(), part.sample->size());
    EXPECT_EQ(part.bounds.size(), part.sample->size());
    EXPECT_EQ(part.written, std::vector<std::uint8_t>(part.sample->size(), 1));
    for (std::size_t i = 0; i < part.sample->size(); ++i) {
      const auto at = static_cast<std::size_t>(part.element(i));
      EXPECT_EQ(all.written[at], 1);
      EXPECT_EQ(part.values[i], all.values[at]);
      EXPECT_EQ(part.bounds[i], all.bounds[at]);
    }
    count += part.sample->size();
  }
  return count;
}

TEST(Sample, IsAPartOfTheWhole) {
  const std::size_t points = expect_part_of_whole(kMatmul, {20, 16, 30}, 25);
  EXPECT_GT(points, 15U);
  EXPECT_LE(points, 25U);
  EXPECT_EQ(expect_part_of_whole(kFlashAttention, {1, 4, 9, 8, 2, 6}, 2), 16U);  // rows of 8
}

TEST(Sample, HasTheElementsThatWereStored) {
  EXPECT_EQ(expect_part_of_whole(R"(
    kernel k(A: f32[M,N]) -> (B: f32[N,M], C: f32[M]) {
      parallel i: M;
      for j: N { B[j,i] = 2 * A[i,j] when j != 1; }
      C[i] = sum[j: N] A[i,j] when i == 0;
    })",
                                 {40, 7}, 2),
            2U * 6 + 1);
}

TEST(Sample, OfAllPointsIsTheWhole) {
  const auto kernel = kernel_of(kMatmul);
  const Inputs inputs = random(kernel, {3, 2, 4});
  EXPECT_FALSE(sample(kernel, inputs, {.points = 12}).tensors[0].sample);
}

TEST(Sample, CostsWhatItsPointsCost) {
  const auto kernel = kernel_of(R"(
    kernel outer(A: f16[M], B: f16[N]) -> (O: f16[M,N,D]) {
      parallel i: M, j: N;
      inner d: D;
      O[i,j,d] = f16(f32(A[i]) * B[j] + d);
    })");
  const std::int64_t M = 100000, N = 100000, D = 4;
  const Inputs inputs = random(kernel, {M, N, D});  // 4e10 elements: more than there is memory for
  const Outputs some = sample(kernel, inputs, {.points = 1000, .seed = 3});
  const OutputTensor& out = some.tensors[0];
  ASSERT_TRUE(out.sample);
  EXPECT_EQ(out.sample->size(), 1000U * 4);
  EXPECT_LE(out.values.capacity() + out.bounds.capacity() + out.written.capacity(), 3U * 8192);
  EXPECT_EQ(out.sample->front(), 0);
  EXPECT_EQ(out.sample->back(), M * N * D - 1);
  std::vector<double> actual = out.values;
  EXPECT_TRUE(report(some, actual).ok());
  actual.back() += 1;
  const Report wrong = report(some, actual);
  EXPECT_EQ(wrong.compared, 4000);
  EXPECT_EQ(wrong.unwritten, 0);
  EXPECT_EQ(wrong.wrong, 1);
  ASSERT_TRUE(wrong.worst);
  EXPECT_THAT(wrong.worst->index, ElementsAre(M - 1, N - 1, D - 1));
}

// --- faults ----------------------------------------------------------------------------------------------------------

TEST(Oracle, AnAccessOutsideATensorIsAnError) {
  auto kernel = kernel_of(R"(
    kernel k(A: f32[N]) -> (S: f32[]) {
      carry s = 0;
      for j: N + 2 where j < N { s += sum[j] A[j]; }
      S[] = s;
    })");
  const Inputs inputs = random(kernel, {4});
  EXPECT_TRUE(evaluate(kernel, inputs, Partition::whole()));
  for (auto& statement : kernel.statements)
    if (auto* loop = std::get_if<kernel::Loop>(&statement.node)) loop->where.reset();
  const auto outputs = evaluate(kernel, inputs, Partition::whole());
  ASSERT_FALSE(outputs);
  EXPECT_THAT(outputs.error().format(), HasSubstr("test.stask:4:46: error: 'A' is accessed outside its bounds"));
}

TEST(Oracle, UseOfAnUndefinedElementIsAnError) {
  auto kernel = kernel_of(R"(
    kernel k(A: f32[N]) -> (S: f32[N]) {
      parallel i: N;
      v[i] = A[i];
      S[i] = v[i];
    })");
  for (auto& statement : kernel.statements)
    if (auto* assign = std::get_if<kernel::Assign>(&statement.node)) {
      kernel::Expr never;
      never.type = ScalarType::boolean;
      kernel.exprs.push_back(never);
      assign->when = kernel::ExprId(kernel.exprs.size() - 1);
    }
  const auto outputs = evaluate(kernel, random(kernel, {2}), Partition::whole());
  ASSERT_FALSE(outputs);
  EXPECT_THAT(outputs.error().format(), HasSubstr("'v' is used at a point where it is undefined"));
}

TEST(Oracle, InputsAreChecked) {
  const auto kernel = kernel_of(R"(
    kernel k(A: f32[N,M]) -> (S: f32[N]) {
      require N % 2 == 0;
      parallel i: N;
      S[i] = sum[j: M] A[i,j];
    })");
  const auto fails_with = [&](const Inputs& inputs, const char* text) {
    const auto outputs = evaluate(kernel, inputs, Partition::whole());
    ASSERT_FALSE(outputs);
    EXPECT_THAT(outputs.error().format(), HasSubstr(text));
  };
  fails_with(inputs_of({2}, {}), "expected 2 sizes");
  fails_with(inputs_of({2, -1}, {}), "dim 'M' has the negative size -1");
  fails_with(inputs_of({3, 1}, {{{3, 1}, {1, 2, 3}}}),
             "test.stask:3:15: error: the sizes do not fulfil this `require`");
  fails_with(inputs_of({2, 1}, {row({1, 2})}), "input 'A' does not have the shape [2, 1]");
  fails_with(inputs_of({2, 1}, {{{2, 1}, {1, 2}}}, {1}), "expected 0 scalars, found 1");
}

// --- partitions ------------------------------------------------------------------------------------------------------

TEST(PartitionIndependence, HoldsForFlashAttention) {
  const auto kernel = kernel_of(kFlashAttention);
  const auto result =
      check_partition_independence(kernel, random(kernel, {1, 2, 23, 8, 1, 31}, {{"Q", -4, 4}, {"scale", 1, 1}}), 5);
  EXPECT_TRUE(result) << result.error().format();
}

std::string why_dependent(const std::string& text, const std::vector<std::int64_t>& sizes) {
  const auto kernel = kernel_of(text);
  const auto result = check_partition_independence(kernel, random(kernel, sizes), 5);
  return result ? "" : result.error().format();
}

TEST(PartitionIndependence, FindsAScaleAppliedOnceATile) {
  EXPECT_THAT(
      why_dependent(R"(
    kernel halving(A: f32[N]) -> (S: f32[]) {
      carry s = 0;
      for j: N { s = s * 0.5 + sum[j] A[j]; }
      S[] = s;
    })",
                    {9}),
      HasSubstr(
          "the result of kernel 'halving' depends on how its loops are cut into tiles: tiles of 1 against the whole"));
}

TEST(PartitionIndependence, FindsDependenceOnTheOrderUnlessOrdered) {
  const std::string simple = R"(
    kernel last(A: f32[N]) -> (S: f32[]) {
      carry s = 0;
      for j: N { s = max[j] f32(j); }
      S[] = s;
    })";
  EXPECT_THAT(why_dependent(simple, {12}), HasSubstr("random order"));
  std::string ordered = simple;
  ordered.replace(ordered.find("for "), 4, "for ordered ");
  EXPECT_EQ(why_dependent(ordered, {12}), "");
}

TEST(PartitionIndependence, FindsAWrongCombine) {
  const std::string text = R"(
    kernel total(A: f32[N]) -> (S: f32[]) {
      carry s = 0;
      for j: N { s += sum[j] A[j]; } combine (t) { s = s + t; }
      S[] = s;
    })";
  EXPECT_EQ(why_dependent(text, {12}), "");
  std::string wrong = text;
  wrong.replace(wrong.find("s + t"), 5, "max(s, t)");
  EXPECT_THAT(why_dependent(wrong, {12}), HasSubstr("combined"));
}

// --- comparison ------------------------------------------------------------------------------------------------------

Outputs expected_row(std::vector<double> expected, std::vector<double> bound) {
  OutputTensor tensor;
  tensor.name = "O";
  tensor.shape = {static_cast<std::int64_t>(expected.size())};
  tensor.values = std::move(expected);
  tensor.written.assign(bound.size(), 1);
  tensor.bounds = std::move(bound);
  return {{tensor}};
}

TEST(Compare, BoundsAreInclusiveAndTheWorstIsReported) {
  const Outputs expected = expected_row({1, 2, 3, 4}, {0.5, 0, 0.25, 0.125});
  EXPECT_TRUE(report(expected, {1.5, 2, 2.75, 4.125}).ok());
  const Report wrong = report(expected, {1.625, 2, 3.5, 4});
  EXPECT_EQ(wrong.compared, 4);
  EXPECT_EQ(wrong.wrong, 2);
  ASSERT_TRUE(wrong.worst);
  EXPECT_THAT(wrong.worst->index, ElementsAre(2));
  EXPECT_EQ(wrong.worst->actual, 3.5);
  EXPECT_EQ(wrong.worst->expected, 3);
  EXPECT_EQ(wrong.worst->bound, 0.25);
  EXPECT_THAT(wrong.format(),
              HasSubstr("2 of 4 elements wrong; worst O[2]: actual 3.5, expected 3, allowed difference 0.25"));
}

TEST(Compare, NaNAndInfinityMustMatch) {
  const Outputs expected = expected_row({kNaN, kInf, -kInf, 1}, {0, 0, 0, 10});
  EXPECT_TRUE(report(expected, {kNaN, kInf, -kInf, 1}).ok());
  EXPECT_EQ(report(expected, {1, kInf, -kInf, 1}).wrong, 1);
  EXPECT_EQ(report(expected, {kNaN, -kInf, -kInf, 1}).wrong, 1);
  EXPECT_EQ(report(expected, {kNaN, 1e300, -kInf, 1}).wrong, 1);
  EXPECT_EQ(report(expected, {kNaN, kInf, kNaN, 1}).wrong, 1);
  EXPECT_EQ(report(expected, {kNaN, kInf, -kInf, kNaN}).wrong, 1);
  EXPECT_EQ(report(expected, {kNaN, kInf, -kInf, kInf}).wrong, 1);
}

TEST(Compare, ElementsWithoutABoundAreCounted) {
  const Report accepted = report(expected_row({1, 2}, {kInf, 0}), {77, 2});
  EXPECT_TRUE(accepted.ok());
  EXPECT_EQ(accepted.unbounded, 1);
}

TEST(Compare, ShapesMustFit) {
  const Outputs expected = expected_row({1, 2}, {0, 0});
  EXPECT_THAT(compare(expected, {{1}}).error().format(), HasSubstr("output 'O' has 2 elements, found 1"));
  EXPECT_THAT(compare(expected, {}).error().format(), HasSubstr("expected 1 outputs, found 0"));
  Outputs some = expected;
  some.tensors[0].shape = {50};
  some.tensors[0].sample = {7, 40};
  EXPECT_TRUE(compare(some, {{1, 2}})->ok());
  EXPECT_THAT(compare(some, {{1, 3}})->worst->index, ElementsAre(40));
  EXPECT_THAT(compare(some, {std::vector<double>(50)}).error().format(),
              HasSubstr("output 'O' is known at 2 elements, found 50"));
}

// --- random inputs ---------------------------------------------------------------------------------------------------

TEST(RandomInputs, AreOfTheTypeAndRangeAndRepeat) {
  const auto kernel = kernel_of(R"(
    kernel k(A: f16[N], I: i32[N], s: f32) -> (O: f32[N]) { parallel i: N; O[i] = f32(A[i]) * s + I[i]; })");
  const auto a = random_inputs(kernel, {1000}, 9, {{"A", 2, 3}});
  ASSERT_TRUE(a);
  for (double value : a->tensors[0].values) {
    EXPECT_EQ(value, round_to(ScalarType::f16, value));
    EXPECT_GE(value, 2);
    EXPECT_LE(value, 3);
  }
  for (double value : a->tensors[1].values) EXPECT_EQ(value, std::trunc(value));
  EXPECT_GT(a->scalars[0], 0);
  EXPECT_EQ(a->tensors[0].values, random_inputs(kernel, {1000}, 9, {{"A", 2, 3}})->tensors[0].values);
  EXPECT_NE(a->tensors[0].values, random_inputs(kernel, {1000}, 10, {{"A", 2, 3}})->tensors[0].values);
  EXPECT_THAT(random_inputs(kernel, {1}, 0, {{"Q", 0, 1}}).error().format(), HasSubstr("no input is named 'Q'"));
  EXPECT_THAT(random_inputs(kernel, {1}, 0, {{"A", 1, 0}}).error().format(), HasSubstr("the range of 'A' is empty"));
}

}  // namespace
}  // namespace pipethreader::oracle
