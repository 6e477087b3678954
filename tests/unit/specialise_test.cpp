#include <gtest/gtest.h>

#include "kernel/kernel.h"

namespace pipethreader::kernel {
namespace {

Kernel checked(const std::string& text) {
  const auto kernels = parse(text, "k.stask");
  EXPECT_TRUE(kernels) << kernels.error().format();
  auto k = check(kernels->front());
  EXPECT_TRUE(k) << k.error().format();
  return *k;
}

std::string specialised(const std::string& text, const std::vector<Binding>& dims,
                        const std::vector<Binding>& options = {}) {
  const auto k = specialise(checked(text), dims, options);
  return k ? print(*k) : k.error().format();
}

const std::string attention =
    "kernel f(Q: f16[H,S], K: f16[G,T]) -> (O: f32[H,S]) {\n"
    "  option causal: bool = true;\n  require H % G == 0;\n  parallel h: H, i: S;\n  carry o[i] = 0;\n"
    "  for j: T where !causal || j <= i {\n    o[i] += sum[j] K[h/(H/G),j];\n  }\n  O[h,i] = o[i] + Q[h,i];\n}";

TEST(Specialise, OptionsFold) {
  EXPECT_NE(specialised(attention, {}).find("for j: T where j <= i {"), std::string::npos);
  EXPECT_NE(specialised(attention, {}, {{"causal", 0}}).find("for j: T {"), std::string::npos);
  EXPECT_NE(specialised(attention, {}, {{"causal", 0}}).find("option causal: bool = false;"), std::string::npos);
}

TEST(Specialise, DimsFoldWhereverTheyStand) {
  const std::string text = specialised(attention, {{"H", 8}, {"G", 2}, {"S", 100}});
  EXPECT_NE(text.find("Q: f16[8,100], K: f16[2,T]"), std::string::npos) << text;
  EXPECT_NE(text.find("parallel h: 8, i: 100;"), std::string::npos) << text;
  EXPECT_NE(text.find("K[h/4,j]"), std::string::npos) << text;
  EXPECT_EQ(text.find("require"), std::string::npos) << text;
}

TEST(Specialise, ADivisorOfOneVanishes) {
  EXPECT_NE(specialised(attention, {{"H", 8}, {"G", 8}}).find("K[h,j]"), std::string::npos);
}

TEST(Specialise, QuotientsOfASingleBlockVanish) {
  EXPECT_NE(specialised(attention, {{"H", 8}, {"G", 1}}).find("K[0,j]"), std::string::npos);
  const std::string text =
      "kernel f(A: f16[N,L]) -> (C: f16[M]) {\n  require M <= L && N > 0;\n  parallel m: M;\n  C[m] = A[m/L,m % L];\n}";
  EXPECT_NE(specialised(text, {{"M", 16}, {"L", 16}}).find("A[0,m]"), std::string::npos);
  EXPECT_NE(specialised(text, {{"M", 16}, {"L", 17}}).find("A[0,m]"), std::string::npos);
  EXPECT_NE(specialised(text, {{"L", 17}}).find("A[m/17,m % 17]"), std::string::npos);
}

TEST(Specialise, RequirementsOfDimsStillFreeStay) {
  EXPECT_NE(specialised(attention, {{"G", 2}}).find("require H % 2 == 0;"), std::string::npos);
}

TEST(Specialise, StaticAndDynamicDimsInTheTable) {
  const auto k = specialise(checked(attention), {{"S", 64}}, {});
  ASSERT_TRUE(k);
  int known = 0;
  for (const Dim& d : k->dims) known += d.size.has_value() ? 1 : 0;
  EXPECT_EQ(known, 1);
  EXPECT_EQ(k->dims[1].name, "S");
  EXPECT_EQ(k->dims[1].size, 64);
}

TEST(Specialise, ZeroIsASize) {
  EXPECT_NE(specialised(attention, {{"T", 0}}).find("for j: 0 where"), std::string::npos);
  EXPECT_NE(specialised(attention, {{"H", 0}, {"G", 2}}).find("parallel h: 0"), std::string::npos);
}

TEST(Specialise, ConstantConditionsVanish) {
  const std::string text =
      "kernel f(A: f16[M,N]) -> (C: f32[M]) {\n  option a: bool = true;\n  option b: bool = false;\n  parallel m: M;\n"
      "  carry x[m] = 0;\n  x[m] = 1 when a;\n  x[m] = 2 when b;\n  for j: N where b { x[m] += sum[j] A[m,j]; }\n"
      "  y[m] = sum[j: N where a] A[m,j];\n  z[m] = select(a, x[m], 7) + select(b || !a, 5, y[m]);\n  C[m] = z[m] when "
      "a && m > 0;\n}";
  EXPECT_EQ(
      specialised(text, {}),
      "kernel f(A: f16[M,N]) -> (C: f32[M]) {\n  option a: bool = true;\n  option b: bool = false;\n  parallel m: M;\n"
      "  carry x[m] = 0.0;\n  x[m] = 1.0;\n  y[m] = sum[j: N] A[m,j];\n  z[m] = x[m] + y[m];\n  C[m] = z[m] when m > "
      "0;\n}\n");
}

TEST(Specialise, WhatIsLeftOfASelectKeepsItsType) {
  const std::string text =
      "kernel f(A: f16[M], B: f32[M]) -> (C: f16[M]) {\n  option a: bool = true;\n  parallel m: M;\n"
      "  C[m] = f16(select(a, A[m], B[m]) * A[m]);\n}";
  EXPECT_NE(specialised(text, {}).find("f16(f32(A[m]) * A[m])"), std::string::npos) << specialised(text, {});
}

TEST(Specialise, NumericOptions) {
  const std::string text =
      "kernel f(A: f16[M]) -> (C: f16[M]) {\n  option shift: i32 = 1;\n  option eps: f32 = 0.5;\n  require shift >= "
      "0;\n  parallel m: M;\n"
      "  C[m] = select(m >= shift, A[m - shift], 0) + eps;\n}";
  EXPECT_NE(specialised(text, {}, {{"shift", 0}, {"eps", 0.25}}).find("C[m] = select(m >= 0, A[m], 0.0) + 0.25;"),
            std::string::npos)
      << specialised(text, {}, {{"shift", 0}, {"eps", 0.25}});
  EXPECT_NE(specialised(text, {}, {{"shift", -1}}).find("`require shift >= 0` does not hold with shift=-1"),
            std::string::npos);
}

// A specialised kernel is a kernel: it prints, parses, checks, and specialises to itself.
TEST(Specialise, GivesAKernel) {
  const auto k = specialise(checked(attention), {{"H", 8}, {"G", 2}, {"S", 100}, {"T", 7}}, {{"causal", 1}});
  ASSERT_TRUE(k);
  const Kernel again = checked(print(*k));
  EXPECT_EQ(print(again), print(*k));
  EXPECT_EQ(print(*specialise(again, {}, {})), print(*k));
}

TEST(Specialise, NegativeSizesAreFound) {
  auto kernels = parse("kernel f(A: f16[M - 2]) -> (C: f16[M]) {\n  parallel m: M;\n  C[m] = 1;\n}", "k.stask");
  ASSERT_TRUE(kernels);
  Kernel k = kernels->front();  // not checked: check() would ask for `require M >= 2`
  for (Expr& e : k.exprs) e.type = ScalarType::i32;
  const auto result = specialise(k, {{"M", 1}}, {});
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().format().find("'A' would have the size -1"), std::string::npos);
}

TEST(EvaluateSize, FloorsAsTheLanguageDoes) {
  const Kernel k = checked(
      "kernel f(A: f16[(M + 15) / 16,M % 7,max(M, 3),min(M, 3)]) -> (C: f16[M]) {\n  parallel m: M;\n  C[m] = 1;\n}");
  const auto size = [&](int i, std::int64_t m) {
    return evaluate_size(k, k.tensors[0].shape[static_cast<std::size_t>(i)], {m});
  };
  EXPECT_EQ(size(0, 0), 0);
  EXPECT_EQ(size(0, 17), 2);
  EXPECT_EQ(size(1, 20), 6);
  EXPECT_EQ(size(2, 2), 3);
  EXPECT_EQ(size(3, 2), 2);
}

}  // namespace
}  // namespace pipethreader::kernel
