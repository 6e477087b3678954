#include <gtest/gtest.h>

#include "kernel/domain.h"
#include "kernel/kernel.h"
#include "kernel/types.h"

namespace pipethreader::kernel {
namespace {

Result<Kernel> checked(const std::string& text) {
  auto kernels = parse(text, "k.stask");
  if (!kernels) return tl::unexpected(kernels.error());
  return check(kernels->front());
}

std::string problem(const std::string& text) {
  const auto result = checked(text);
  return result ? "" : result.error().format();
}

ScalarType value_type(const std::string& body, const std::string& value) {
  const auto k = checked(
      "kernel f(A: f16[M,N], B: bf16[M,N], S: f32[M,N], E: f8e4m3[M,N], I: i32[M], J: i8[M,N], p: bool, h: f16) -> (O: "
      "f32[M]) {\n"
      "  option n: i32 = 2;  option eps: f32 = 1e-5;\n  parallel m: M;\n" +
      body + "\n  O[m] = 0;\n}");
  EXPECT_TRUE(k) << k.error().format();
  if (!k) return ScalarType::boolean;
  for (const Value& v : k->values)
    if (v.name == value) return v.type;
  ADD_FAILURE() << "no value " << value;
  return ScalarType::boolean;
}

ScalarType type_of(const std::string& expression) {
  return value_type("  x[m,q] = " + expression + " * A[m,q];\n  y[m,q] = " + expression + ";", "y");
}

TEST(Types, WhatHoldsWhat) {
  EXPECT_TRUE(holds(ScalarType::f32, ScalarType::f16));
  EXPECT_TRUE(holds(ScalarType::f32, ScalarType::bf16));
  EXPECT_TRUE(holds(ScalarType::f32, ScalarType::tf32));
  EXPECT_TRUE(holds(ScalarType::tf32, ScalarType::f16));
  EXPECT_FALSE(holds(ScalarType::bf16, ScalarType::f16));
  EXPECT_FALSE(holds(ScalarType::f16, ScalarType::bf16));
  EXPECT_TRUE(holds(ScalarType::f16, ScalarType::f8e5m2));
  EXPECT_TRUE(holds(ScalarType::f16, ScalarType::f8e4m3));
  EXPECT_TRUE(holds(ScalarType::bf16, ScalarType::f8e4m3));
  EXPECT_TRUE(holds(ScalarType::f8e4m3, ScalarType::f4e2m1));
  EXPECT_TRUE(holds(ScalarType::i32, ScalarType::u8));
  EXPECT_FALSE(holds(ScalarType::i8, ScalarType::u8));
  EXPECT_TRUE(holds(ScalarType::f16, ScalarType::i8));
  EXPECT_FALSE(holds(ScalarType::f32, ScalarType::i32));
  EXPECT_FALSE(holds(ScalarType::i32, ScalarType::f16));
}

TEST(Types, WhereOperandsMeet) {
  EXPECT_EQ(promote(ScalarType::f16, ScalarType::f16), ScalarType::f16);
  EXPECT_EQ(promote(ScalarType::f16, ScalarType::bf16), ScalarType::f32);
  EXPECT_EQ(promote(ScalarType::f16, ScalarType::f32), ScalarType::f32);
  EXPECT_EQ(promote(ScalarType::f16, ScalarType::i32), ScalarType::f16);
  EXPECT_EQ(promote(ScalarType::f8e4m3, ScalarType::f8e5m2), ScalarType::f16);
  EXPECT_EQ(promote(ScalarType::tf32, ScalarType::f32), ScalarType::f32);
  EXPECT_EQ(promote(ScalarType::tf32, ScalarType::bf16), ScalarType::tf32);
  EXPECT_EQ(promote(ScalarType::i8, ScalarType::u8), ScalarType::i32);
}

TEST(Types, Elementwise) {
  EXPECT_EQ(type_of("A[m,q] * A[m,q]"), ScalarType::f16);
  EXPECT_EQ(type_of("A[m,q] * 2"), ScalarType::f16);
  EXPECT_EQ(type_of("A[m,q] * 0.5"), ScalarType::f16);
  EXPECT_EQ(type_of("A[m,q] / N"), ScalarType::f16);
  EXPECT_EQ(type_of("A[m,q] * q"), ScalarType::f16);
  EXPECT_EQ(type_of("A[m,q] + eps"), ScalarType::f16);
  EXPECT_EQ(type_of("A[m,q] + B[m,q]"), ScalarType::f32);
  EXPECT_EQ(type_of("exp(A[m,q])"), ScalarType::f16);
  EXPECT_EQ(type_of("A[m,q] * (1.0 / N)"), ScalarType::f16);
  EXPECT_EQ(type_of("S[m,q] + A[m,q]"), ScalarType::f32);
  EXPECT_EQ(type_of("E[m,q] + E[m,q]"), ScalarType::f32);
  EXPECT_EQ(type_of("max(E[m,q], 0)"), ScalarType::f8e4m3);
  EXPECT_EQ(type_of("J[m,q] + 1"), ScalarType::i32);
  EXPECT_EQ(type_of("max(J[m,q], 1)"), ScalarType::i8);
  EXPECT_EQ(type_of("exp(I[m]) + A[m,q]"), ScalarType::f32);
  EXPECT_EQ(type_of("select(A[m,q] > 0, A[m,q], 0)"), ScalarType::f16);
  EXPECT_EQ(value_type("  y[m,q] = A[m,q] > 0;", "y"), ScalarType::boolean);
  EXPECT_EQ(value_type("  y = h * 3;", "y"), ScalarType::f16);
  EXPECT_EQ(value_type("  y = 3;", "y"), ScalarType::f32);
  EXPECT_EQ(value_type("  y[m] = I[m] + 1;", "y"), ScalarType::i32);
  EXPECT_EQ(value_type("  y: bf16 = 0;", "y"), ScalarType::bf16);
}

TEST(Types, ReductionsAndCarriedValues) {
  EXPECT_EQ(value_type("  y[m] = sum[q: N] A[m,q];", "y"), ScalarType::f32);
  EXPECT_EQ(value_type("  y[m] = max[q: N] A[m,q];", "y"), ScalarType::f32);
  EXPECT_EQ(value_type("  y[m] = sum[q: N] J[m,q] * J[m,q];", "y"), ScalarType::i32);
  EXPECT_EQ(value_type("  carry y = 0;", "y"), ScalarType::f32);
  EXPECT_EQ(value_type("  carry y: f16 = 0;", "y"), ScalarType::f16);
  EXPECT_EQ(value_type("  carry y: i32 = 0;", "y"), ScalarType::i32);
}

// The type of the multiplication that is the body of the one sum.
ScalarType product_type(const std::string& body) {
  const auto k = checked("kernel f(A: f16[M,N], B: f16[M,N]) -> (O: f32[M]) {\n  parallel m: M;\n  O[m] = sum[q: N] " +
                         body + ";\n}");
  EXPECT_TRUE(k) << k.error().format();
  ScalarType found = ScalarType::boolean;
  for (const Expr& e : k->exprs)
    if (e.kind == Expr::Kind::call && e.function == Function::mul && (*k)[e.args[0]].kind == Expr::Kind::access)
      found = e.type;
  return found;
}

TEST(Types, ProductsUnderSumAreExact) {
  EXPECT_EQ(product_type("A[m,q] * B[m,q]"), ScalarType::f32);
  EXPECT_EQ(product_type("A[m,q] * B[m,q] / N"), ScalarType::f32);
  EXPECT_EQ(product_type("(A[m,q] * B[m,q] - 1)"), ScalarType::f32);
  EXPECT_EQ(product_type("select(q > 2, A[m,q] * B[m,q], 0)"), ScalarType::f32);
  EXPECT_EQ(product_type("abs(A[m,q] * B[m,q])"), ScalarType::f16);
  EXPECT_EQ(product_type("f16(A[m,q] * B[m,q])"), ScalarType::f16);
  // the operands keep their types: they are what the tensor core takes
  const auto k =
      checked("kernel f(A: f16[M,N]) -> (O: f32[M]) {\n  parallel m: M;\n  O[m] = sum[q: N] A[m,q] * A[m,q];\n}");
  for (const Expr& e : k->exprs)
    if (e.kind == Expr::Kind::access) {
      EXPECT_EQ(e.type, ScalarType::f16);
    }
}

TEST(Types, LiteralsTakeTheTypeTheyMeet) {
  const auto k = checked("kernel f(A: f16[M]) -> (O: f16[M]) {\n  parallel m: M;\n  O[m] = A[m] * 2 + 0.5;\n}");
  ASSERT_TRUE(k) << k.error().format();
  for (const Expr& e : k->exprs)
    if (e.kind == Expr::Kind::literal) {
      EXPECT_EQ(e.type, ScalarType::f16);
    }
}

TEST(Types, WholeNumberArithmeticOfLiteralsStays) {
  const auto k = checked("kernel f(A: f32[M]) -> (O: f32[M]) {\n  parallel m: M;\n  O[m] = A[m] * (1 / 2);\n}");
  ASSERT_TRUE(k) << k.error().format();
  for (const Expr& e : k->exprs)
    if (e.kind == Expr::Kind::call && e.function == Function::div) {
      EXPECT_EQ(e.type, ScalarType::i32);
    }
}

TEST(Types, OperandTypeOfAComparison) {
  const auto k = checked(
      "kernel f(A: f16[M], B: bf16[M]) -> (O: f32[M]) {\n  parallel m: M;\n  O[m] = select(A[m] < B[m], 1, 0);\n}");
  ASSERT_TRUE(k) << k.error().format();
  for (const Expr& e : k->exprs)
    if (e.kind == Expr::Kind::call && e.function == Function::lt) {
      EXPECT_EQ(operand_type(*k, e), ScalarType::f32);
    }
}

// --- bounds ----------------------------------------------------------------------------------------------------

std::string bounds(const std::string& tensors, const std::string& body) {
  return problem("kernel f(" + tensors + "\n" + body + "\n}");
}

TEST(Bounds, GroupedHeads) {
  const std::string tensors = "K: f16[G,T]) -> (O: f32[H,T]) {\n";
  const std::string store = "  parallel h: H, t: T;\n  O[h,t] = K[h/(H/G),t];";
  EXPECT_EQ(bounds(tensors, "  require H % G == 0;\n" + store), "");
  EXPECT_EQ(bounds(tensors, "  require 0 == H % G;\n" + store), "");
  EXPECT_NE(bounds(tensors, "  require G > 0 && H >= G;\n" + store), "");
  EXPECT_EQ(bounds("K: f16[G,T]) -> (O: f32[G*R,T]) {\n", "  parallel h: G*R, t: T;\n  O[h,t] = K[h/R,t];"), "");
  EXPECT_EQ(bounds("K: f16[R,T]) -> (O: f32[G*R,T]) {\n", "  parallel h: G*R, t: T;\n  O[h,t] = K[h % R,t];"), "");
  // two levels of groups
  const std::string two = "K: f16[R,T], L: f16[G,T]) -> (O: f32[H,T]) {\n";
  const std::string levels = "  require H % G == 0;\n  require G % R == 0;\n  parallel h: H, t: T;\n";
  EXPECT_EQ(bounds(two, levels + "  O[h,t] = K[h/(H/G)/(G/R),t] + L[h/(H/G),t];"), "");
  EXPECT_EQ(bounds(two, levels + "  O[h,t] = K[h/(H/R),t];"), "");
  EXPECT_NE(bounds(two, levels + "  O[h,t] = K[h/(G/R),t];"), "");
}

TEST(Bounds, SplitAxes) {
  const std::string tensors = "X: f16[C*L]) -> (O: f32[C,L]) {\n  parallel c: C, l: L;\n";
  EXPECT_EQ(bounds(tensors, "  O[c,l] = X[c*L + l];"), "");
  EXPECT_NE(bounds(tensors, "  O[c,l] = X[c*L + l + 1];"), "");
  EXPECT_NE(bounds(tensors, "  O[c,l] = X[l*L + c];"), "");
  EXPECT_EQ(bounds("X: f16[C,L]) -> (O: f32[C*L]) {\n  parallel i: C*L;\n", "  O[i] = X[i/L,i % L];"), "");
  EXPECT_EQ(bounds("X: f16[C,L,K]) -> (O: f32[C*L*K]) {\n  parallel i: C*L*K;\n", "  O[i] = X[i/(L*K),i/K % L,i % K];"),
            "");
  EXPECT_EQ(bounds("X: f16[(C + 15) / 16,16]) -> (O: f32[C]) {\n  parallel i: C;\n", "  O[i] = X[i/16,i % 16];"), "");
  EXPECT_NE(bounds("X: f16[C / 16,16]) -> (O: f32[C]) {\n  parallel i: C;\n", "  O[i] = X[i/16,i % 16];"), "");
}

TEST(Bounds, WindowsWithAGuard) {
  const std::string head = "X: f16[H,W]) -> (Y: f32[P,Q]) {\n  parallel p: P, q: Q;\n";
  const auto window = [&](const std::string& where) {
    return bounds(head, "  Y[p,q] = sum[r: 3, s: 3 where " + where + "] X[p*2 + r - 1,q*2 + s - 1];");
  };
  EXPECT_EQ(window("p*2 + r >= 1 && p*2 + r - 1 < H && q*2 + s >= 1 && q*2 + s <= W"), "");
  EXPECT_NE(window("p*2 + r - 1 < H && q*2 + s >= 1 && q*2 + s <= W"), "");
  EXPECT_NE(window("p*2 + r >= 1 && p*2 + r - 1 <= H && q*2 + s >= 1 && q*2 + s <= W"), "");
  EXPECT_NE(window("p*2 + r >= 1 && p*2 + r - 1 < H && q*2 + s >= 1 || q*2 + s <= W"), "");
}

// A condition that is the very bound counts, though the sign of an option is not known.
TEST(Bounds, WindowsSpreadByAnOption) {
  const std::string head = "X: f16[L]) -> (Y: f32[L]) {\n  option dil: i32 = 5;\n  parallel l: L;\n";
  const auto window = [&](const std::string& where, const std::string& index) {
    return bounds(head, "  Y[l] = sum[r: 3 where " + where + "] X[" + index + "];");
  };
  EXPECT_EQ(window("l + r*dil - 5 >= 0 && l + r*dil - 5 < L", "l + r*dil - 5"), "");
  EXPECT_EQ(window("l + r*dil >= dil && l + r*dil < L + dil", "l + r*dil - dil"), "");
  EXPECT_EQ(window("l + (r-1)*dil >= 0 && l + (r-1)*dil < L", "l + r*dil - dil"), "");
  EXPECT_NE(window("l + r*dil - 5 >= 0 && l + r*dil - 5 <= L", "l + r*dil - 5"), "");
  EXPECT_NE(window("l + r*dil - 4 >= 0 && l + r*dil - 5 < L", "l + r*dil - 5"), "");
}

TEST(Bounds, WindowsByRequirement) {
  const std::string head = "X: f16[H]) -> (Y: f32[P]) {\n";
  const std::string body = "  parallel p: P;\n  Y[p] = sum[r: 3] X[p*2 + r];";
  EXPECT_EQ(bounds(head, "  require H >= 2*P + 1;\n" + body), "");
  EXPECT_NE(bounds(head, "  require H >= 2*P;\n" + body), "");
  EXPECT_EQ(bounds("X: f16[H]) -> (Y: f32[H - 2]) {\n",
                   "  require H >= 2;\n  parallel p: H - 2;\n  Y[p] = sum[r: 3] X[p + r];"),
            "");
}

TEST(Bounds, StaticSizes) {
  EXPECT_EQ(bounds("X: f16[15]) -> (Y: f32[7]) {\n  parallel p: 7;\n", "  Y[p] = sum[r: 3] X[p*2 + r];"), "");
  EXPECT_NE(bounds("X: f16[14]) -> (Y: f32[7]) {\n  parallel p: 7;\n", "  Y[p] = sum[r: 3] X[p*2 + r];"), "");
  EXPECT_EQ(bounds("X: f16[3]) -> (Y: f32[10]) {\n  parallel p: 10;\n", "  Y[p] = X[p/4];"), "");
  EXPECT_NE(bounds("X: f16[3]) -> (Y: f32[10]) {\n  parallel p: 10;\n", "  Y[p] = X[p/3];"), "");
  EXPECT_EQ(bounds("X: f16[3]) -> (Y: f32[0]) {\n  parallel p: 0;\n", "  Y[p] = X[p + 100];"), "");
}

TEST(Bounds, GuardsCount) {
  const std::string head = "X: f16[M]) -> (Y: f32[M]) {\n  parallel m: M;\n";
  EXPECT_EQ(bounds(head, "  Y[m] = select(m > 0, X[m - 1], 0);"), "");
  EXPECT_EQ(bounds(head, "  Y[m] = select(m == 0, 0, X[m - 1]);") == "", false);  // m != 0 gives no order
  EXPECT_EQ(bounds(head, "  Y[m] = select(m < 1, 0, X[m - 1]);"), "");
  EXPECT_EQ(bounds(head, "  Y[m] = X[m - 1] when m >= 1;"), "");
  EXPECT_EQ(bounds(head, "  Y[m] = select(!(m < 1 || m > 5), X[m - 1], 0);"), "");
  EXPECT_EQ(bounds(head, "  Y[m] = select(m > 0 && X[m - 1] > 0, 1, 0);"), "");
  EXPECT_EQ(bounds(head, "  carry y = 0;\n  for j: M where j < m { y += sum[j] X[j + 1]; }\n  Y[m] = y;"), "");
  EXPECT_NE(bounds(head, "  carry y = 0;\n  for j: M where j <= m { y += sum[j] X[j + 1]; }\n  Y[m] = y;"), "");
}

TEST(Bounds, ValuesAtOtherIndices) {
  const std::string head =
      "X: f16[M,D]) -> (Y: f32[M,D]) {\n  require D % 2 == 0;\n  parallel m: M;  inner d: D;\n  x[m,d] = X[m,d];\n";
  EXPECT_EQ(bounds(head, "  Y[m,d] = x[m,(d + D/2) % D];"), "");
  EXPECT_NE(bounds(head, "  Y[m,d] = x[m,d + D/2];"), "");
  EXPECT_EQ(bounds(head, "  Y[m,d] = sum[e: D] x[m,e];"), "");
  EXPECT_NE(bounds(head, "  Y[m,d] = sum[e: M] x[m,e];"), "");
}

TEST(Bounds, StoresThatTellPointsApart) {
  const auto store = [](const std::string& shape, const std::string& indices, const std::string& when = "") {
    return bounds("X: f16[M,N]) -> (Y: f32[" + shape + "]) {\n  require L > 0;\n  parallel m: M, n: N;\n",
                  "  Y[" + indices + "] = X[m,n]" + when + ";");
  };
  EXPECT_EQ(store("M,N,L", "m,n,0"), "");
  EXPECT_EQ(store("N*L,M", "n*L,m"), "");
  EXPECT_EQ(store("M*N,L", "m*N + n,0"), "");
  EXPECT_EQ(store("M*N,L", "n*M + m,0"), "");
  EXPECT_EQ(store("M,N,L", "M - 1 - m,n,0"), "");
  EXPECT_EQ(store("M,M + N,L", "m,m + n,0"), "");
  EXPECT_EQ(store("M,N,L", "m/L,n,m % L"), "");
  EXPECT_EQ(store("M,N,L,7", "m/L/7,n,m % L,m/L % 7"), "");
  EXPECT_NE(store("M + N,L", "m + n,0"), "");
  EXPECT_NE(store("M*N,L", "m*n,0"), "");
  EXPECT_NE(store("M,N,L", "m/2,n,0"), "");
  EXPECT_NE(store("M,N,L", "m/L,n,m % 2"), "");
  EXPECT_NE(store("M*N + N,L", "m*(N - 1) + n,0", " when N > 1"), "");
}

TEST(Bounds, RequirementsOfEquality) {
  EXPECT_EQ(bounds("X: f16[T]) -> (Y: f32[S]) {\n", "  require T == S;\n  parallel i: S;\n  Y[i] = X[i];"), "");
  EXPECT_EQ(bounds("X: f16[T]) -> (Y: f32[S]) {\n", "  require S == T;\n  parallel i: S;\n  Y[i] = X[i];"), "");
  EXPECT_EQ(bounds("X: f16[T]) -> (Y: f32[S]) {\n", "  require T >= S;\n  parallel i: S;\n  Y[i] = X[i];"), "");
  EXPECT_EQ(bounds("X: f16[64]) -> (Y: f32[S]) {\n", "  require S <= 64;\n  parallel i: S;\n  Y[i] = X[i];"), "");
  EXPECT_NE(bounds("X: f16[T]) -> (Y: f32[S]) {\n", "  require S >= T;\n  parallel i: S;\n  Y[i] = X[i];"), "");
}

// What the prover accepts is true: compared with every point of small domains.
TEST(Bounds, ProofsHoldOnSmallSizes) {
  const std::vector<std::string> indices = {"i",           "i + 1",       "i - 1",     "i*2",           "i/2",
                                            "i % 2",       "i + j",       "i*N + j",   "j*M + i",       "(i + j) / 2",
                                            "i - j",       "j - i",       "i/N",       "(i*N + j) % M", "M - 1 - i",
                                            "(i + 1) % M", "i*2 + j - 1", "N - i + j", "(i*2 + 1)/2"};
  const std::vector<std::string> wheres = {
      "true", "j <= i", "i < j", "i + j < M", "i > 0", "i*2 < N", "i*2 + j >= 1 && i*2 + j <= M"};
  const std::vector<std::string> shapes = {"M", "N", "M*N", "(M + 1) / 2"};
  int proved = 0;
  for (const std::string& index : indices)
    for (const std::string& where : wheres)
      for (const std::string& shape : shapes) {
        const auto k = checked("kernel f(Z: f16[M,N], X: f16[" + shape +
                               "]) -> (Y: f32[M,N]) {\n  parallel i: M, j: N;\n"
                               "  Y[i,j] = select(" +
                               where + ", X[" + index + "], 0);\n}");
        if (!k) continue;
        ++proved;
        const Expr& select = (*k)[std::get<Store>((*k)[k->body[0]].node).expr];
        const ExprId access = (*k)[select.args[1]].args[0];
        Kernel at = *k;  // axes as dims 2 and 3, to evaluate with evaluate_size
        for (Expr& e : at.exprs)
          if (e.kind == Expr::Kind::axis) {
            e.dim = DimId(e.axis == k->parallel[0] ? 2u : 3u);
            e.kind = Expr::Kind::dim;
          }
        at.dims.resize(4);
        for (std::int64_t m = 0; m < 5; ++m)
          for (std::int64_t n = 0; n < 5; ++n)
            for (std::int64_t i = 0; i < m; ++i)
              for (std::int64_t j = 0; j < n; ++j) {
                const std::vector<std::int64_t> sizes = {m, n, i, j};
                if (evaluate_size(at, select.args[0], sizes) == 0) continue;
                const std::int64_t x = evaluate_size(at, access, sizes);
                ASSERT_GE(x, 0) << index << " where " << where << " in " << shape;
                ASSERT_LT(x, evaluate_size(at, k->tensors[1].shape[0], sizes))
                    << index << " where " << where << " in " << shape;
              }
      }
  EXPECT_GT(proved, 40);
}

TEST(Domain, LargeNumbersAreNeverTrusted) {
  EXPECT_NE(bounds("X: f16[M]) -> (Y: f32[M]) {\n  parallel m: M;\n",
                   "  Y[m] = X[m*9007199254740991*9007199254740991*9007199254740991];"),
            "");
}

// --- kernels that were edited after parsing ---------------------------------------------------------------------

TEST(Checker, FindsWhatNoTextCanHold) {
  const auto k =
      parse("kernel f(A: f16[M,N]) -> (C: f32[M]) {\n  parallel m: M;\n  x[m] = sum[k: N] A[m,k];\n  C[m] = x[m];\n}",
            "k.stask");
  ASSERT_TRUE(k);
  Kernel swapped = k->front();
  std::swap(swapped.body[0], swapped.body[1]);
  EXPECT_NE(check(swapped).error().format().find("'x' has no value yet"), std::string::npos);
  Kernel unbound = k->front();
  for (Expr& e : unbound.exprs)
    if (e.kind == Expr::Kind::reduce) e.axes.clear();
  EXPECT_NE(check(unbound).error().format().find("axis 'k' is used outside its loop or reduction"), std::string::npos);
}

TEST(Checker, AcceptsOrdinaryForms) {
  EXPECT_EQ(
      problem("kernel two(A: f16[M,N]) -> (C: f32[M], D: f32[M]) {\n  parallel m: M;\n  carry s[m] = 0, t[m] = 0;\n"
              "  for j: N { s[m] += sum[j] A[m,j]; }\n  mean[m] = s[m] / N;\n"
              "  for j: N { e[m,j] = A[m,j] - mean[m]; t[m] += sum[j] e[m,j] * e[m,j]; }\n"
              "  C[m] = mean[m];\n  D[m] = t[m];\n}"),
      "");
  EXPECT_EQ(problem("kernel nested(A: f16[M,N,K]) -> (C: f32[M]) {\n  parallel m: M;\n  carry s[m] = 0;\n"
                    "  for j: N {\n    carry t[m] = -inf;\n    for k: K { t[m] = max(t[m], max[k, j] A[m,j,k]); }\n    "
                    "s[m] += t[m];\n  }\n"
                    "  C[m] = s[m];\n}"),
            "");
  EXPECT_EQ(problem("kernel out(A: f16[M,N]) -> (C: f16[M,N], T: f32[]) {\n  for i: M { C[i,j] = A[i,j]; }\n"
                    "  T[] = sum[i: M, j: N] A[i,j];\n}"),
            "");
  EXPECT_EQ(problem("kernel mask(A: f16[M,N], keep: bool[M,N]) -> (C: f32[M]) {\n  parallel m: M;\n"
                    "  C[m] = sum[j: N where keep[m,j]] A[m,j];\n}"),
            "");
  EXPECT_EQ(
      problem("kernel lengths(A: f16[M,N], length: i32[M]) -> (C: f32[M]) {\n  parallel m: M;\n  carry s[m] = 0;\n"
              "  for j: N where j < length[m] { s[m] += sum[j] A[m,j]; }\n  C[m] = s[m];\n}"),
      "");
}

}  // namespace
}  // namespace pipethreader::kernel
