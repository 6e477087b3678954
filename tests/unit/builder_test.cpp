#include "kernel/builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <sstream>

namespace pipethreader::kernel::build {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr ScalarType f16 = ScalarType::f16;
constexpr ScalarType f32 = ScalarType::f32;

std::string from_library(const std::string& name) {
  std::ifstream in(std::string(PIPETHREADER_SOURCE_DIR) + "/kernels/" + name + ".stask");
  std::stringstream text;
  text << in.rdbuf();
  const auto kernels = parse(text.str(), name + ".stask");
  EXPECT_TRUE(kernels) << kernels.error().format();
  return print(kernels->front());
}

std::string printed(Builder& k) {
  const auto kernel = k.finish();
  if (!kernel) return kernel.error().format();
  EXPECT_TRUE(check(*kernel)) << check(*kernel).error().format();
  return print(*kernel);
}

TEST(Builder, Matmul) {
  Builder k("matmul");
  const Term M = k.dim("M"), N = k.dim("N"), K = k.dim("K");
  const Tensor A = k.input("A", f16, {M, K}), B = k.input("B", f16, {N, K});
  const Tensor C = k.output("C", f16, {M, N});
  const Axis m = k.parallel("m", M), n = k.parallel("n", N), r = k.axis("k", K);
  C(m, n) = convert(f16, sum(r, A(m, r) * B(n, r)));
  EXPECT_EQ(printed(k), from_library("matmul"));
}

TEST(Builder, FlashAttention) {
  Builder b("flash_attention");
  const Term B = b.dim("B"), H = b.dim("H"), G = b.dim("G"), S = b.dim("S"), T = b.dim("T"), D = b.dim("D");
  const Tensor Q = b.input("Q", f16, {B, H, S, D}), K = b.input("K", f16, {B, G, T, D}),
               V = b.input("V", f16, {B, G, T, D});
  const Tensor O = b.output("O", f16, {B, H, S, D});
  const Term scale = b.scalar("scale", f32), causal = b.option("causal", true);
  b.require(H % G == 0);
  const Axis n_ = b.parallel("b", B), h = b.parallel("h", H), i = b.parallel("i", S), d = b.inner("d", D);
  const Axis j = b.axis("j", T), c = b.axis("k", D);
  const Value m = b.value("m"), l = b.value("l"), o = b.value("o"), s = b.value("s"), x = b.value("x"),
              n = b.value("n"), e = b.value("e"), a = b.value("a");
  b.carry(m(i), -kInf);
  b.carry(l(i), 0);
  b.carry(o(i, d), 0);
  b.loop(j, {.where = !causal || j <= i}, [&] {
    s(i, j) = sum(c, Q(n_, h, i, c) * K(n_, h / (H / G), j, c));
    x(i) = max(m(i), reduce_max(j, s(i, j) * scale));
    n(i) = select(x(i) - m(i) > 8, x(i), m(i));
    e(i, j) = exp2(s(i, j) * scale - n(i));
    a(i) = exp2(m(i) - n(i));
    l(i) = l(i) * a(i) + sum(j, e(i, j));
    o(i, d) = (o(i, d) * a(i)).when(a(i) != 1);
    o(i, d) += sum(j, convert(f16, e(i, j)) * V(n_, h / (H / G), j, d));
    m(i) = n(i);
  });
  O(n_, h, i, d) = convert(f16, select(l(i) == 0, 0, o(i, d) / l(i)));
  EXPECT_EQ(printed(b), from_library("flash_attention"));
}

TEST(Builder, CombineAndTypesAndNewAxes) {
  Builder k("f");
  const Term M = k.dim("M"), N = k.dim("N");
  const Tensor A = k.input("A", f16, {M, N});
  const Tensor C = k.output("C", f32, {M}), D = k.output("D", f32, {}), E = k.output("E", f16, {M, N});
  const Axis m = k.parallel("m", M), j = k.axis("j", N), q = k.axis("q");
  const Value x = k.value("x", f32), y = k.value("y"), w = k.value("w", f16);
  k.carry(x(m), 0);
  k.loop(j, {.where = j > 0, .ordered = true, .others = {y}, .combine = [&] { x(m) = x(m) + y(m); }},
         [&] { x(m) += sum(j, A(m, j)); });
  w(m, q) = A(m, q) * 2.0;
  C(m) = x(m);
  E(m, q) = w(m, q);
  const Axis r = k.axis("r", M), t = k.axis("t", N);
  const auto kernel = [&] {
    D() = reduce(ReduceOp::sum, {r, t}, A(r, t), r < t);
    return k.finish();
  }();
  ASSERT_TRUE(kernel) << kernel.error().format();
  EXPECT_EQ(
      print(*kernel),
      "kernel f(A: f16[M,N]) -> (C: f32[M], D: f32[], E: f16[M,N]) {\n"
      "  parallel m: M;\n  inner q: N;\n  carry x[m]: f32 = 0;\n"
      "  for ordered j: N where j > 0 {\n    x[m] += sum[j] A[m,j];\n  } combine (y) {\n    x[m] = x[m] + y[m];\n  }\n"
      "  w[m,q]: f16 = A[m,q] * 2.0;\n  C[m] = x[m];\n  E[m,q] = w[m,q];\n"
      "  D[] = sum[r: M, t: N where r < t] A[r,t];\n}\n");
}

TEST(Builder, NumbersAreWrittenAsInTheText) {
  Builder k("f");
  const Tensor A = k.input("A", f16, {4});
  const Tensor C = k.output("C", f32, {4});
  const Axis m = k.parallel("m", 4);
  C(m) = A(m) * -2 + select(true, -kInf, -(-Term(1))) - std::int64_t{3000000000};
  EXPECT_THAT(print(*k.finish()), testing::HasSubstr("A[m] * -2 + select(true, -inf, -(-1)) - 3000000000;"));
}

TEST(Builder, TermsMayBeUsedAgain) {
  Builder k("f");
  const Tensor A = k.input("A", f16, {4});
  const Tensor C = k.output("C", f32, {4});
  const Axis m = k.parallel("m", 4);
  const Term two = 2;
  const Term square = A(m) * A(m);
  C(m) = f32 == f32 ? square * two + convert(f32, square) * two : two;
  const auto checked = check(*k.finish());
  ASSERT_TRUE(checked);
  int f16_literals = 0;
  int f32_literals = 0;
  for (const Expr& e : checked->exprs) {
    if (e.kind != Expr::Kind::literal) continue;
    f16_literals += e.type == ScalarType::f16 ? 1 : 0;
    f32_literals += e.type == ScalarType::f32 ? 1 : 0;
  }
  EXPECT_EQ(f16_literals, 1);  // each use of `two` took the type it met
  EXPECT_EQ(f32_literals, 1);
}

std::string problem(const std::function<void(Builder&)>& make) {
  Builder k("f");
  make(k);
  const auto kernel = k.finish();
  return kernel ? "" : kernel.error().format();
}

TEST(Builder, NameErrors) {
  EXPECT_THAT(problem([](Builder& k) { k.dim("two words"); }), testing::StartsWith("error: 'two words' is not a name"));
  EXPECT_THAT(problem([](Builder& k) { k.dim("sum"); }), testing::StartsWith("error: 'sum' is a word of the language"));
  EXPECT_THAT(problem([](Builder& k) { k.input("A", f16, {k.dim("A")}); }),
              testing::StartsWith("error: 'A' already names a dim"));
  EXPECT_THAT(problem([](Builder& k) { k.value("x")() = k.value("y")() + 1; }),
              testing::StartsWith("error: 'y' is not defined"));
  EXPECT_THAT(problem([](Builder& k) { k.input("A", f16, {4})(0) = 1; }),
              testing::StartsWith("error: 'A' is an input and cannot be assigned"));
  EXPECT_THAT(problem([](Builder& k) { k.loop(k.axis("j"), [] {}); }),
              testing::StartsWith("error: the range of axis 'j' cannot be inferred"));
}

TEST(Builder, HugeTermsAreRefused) {
  EXPECT_THAT(problem([](Builder& k) {
                Term x = 1;
                for (int i = 0; i < 100; ++i) x = x + x;
                k.value("y")() = x;
              }),
              testing::StartsWith("error: nested deeper than 2250 levels"));
  EXPECT_THAT(problem([](Builder& k) {
                Term x = 1;
                for (int i = 0; i < 2300; ++i) x = x + 1;
                k.value("y")() = x;
              }),
              testing::StartsWith("error: nested deeper than 2250 levels"));
}

}  // namespace
}  // namespace pipethreader::kernel::build
