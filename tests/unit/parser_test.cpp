#include <gtest/gtest.h>

#include <limits>

#include "kernel/kernel.h"

namespace pipethreader::kernel {
namespace {

Kernel parsed(const std::string& text) {
  auto result = parse(text, "k.stask");
  EXPECT_TRUE(result) << (result ? "" : result.error().format());
  return result ? std::move(result->front()) : Kernel{};
}

// The right side of the one store.
Kernel with_expression(const std::string& text) {
  return parsed(
      "kernel f(A: f16[M,N], B: f16[N], a: f32, b: f32, c: f32, p: bool) -> (C: f32[M,N]) {\n"
      "  parallel m: M, n: N;\n  C[m,n] = " +
      text + ";\n}");
}

const Expr& root(const Kernel& k) { return k[std::get<Store>(k[k.body.back()].node).expr]; }

// Operators as nested calls: the tree as it was parsed.
std::string tree(const Kernel& k, const Expr& e) {
  if (e.kind == Expr::Kind::scalar) return k[e.scalar].name;
  if (e.kind == Expr::Kind::literal) return fmt::format("{}", e.number);
  std::string text = e.kind == Expr::Kind::reduce ? "reduce"
                     : e.kind == Expr::Kind::call ? std::string(info(e.function).name)
                                                  : "?";
  text += "(";
  for (std::size_t i = 0; i < e.args.size(); ++i) text += (i > 0 ? "," : "") + tree(k, k[e.args[i]]);
  return text + ")";
}

std::string tree(const std::string& text) {
  const Kernel k = with_expression(text);
  return tree(k, root(k));
}

TEST(Parser, OperatorsBindAsInC) {
  EXPECT_EQ(tree("a + b * c"), "add(a,mul(b,c))");
  EXPECT_EQ(tree("a - b - c"), "sub(sub(a,b),c)");
  EXPECT_EQ(tree("a / b * c"), "mul(div(a,b),c)");
  EXPECT_EQ(tree("-a * b"), "mul(neg(a),b)");
  EXPECT_EQ(tree("- - a"), "neg(neg(a))");
  EXPECT_EQ(tree("a < b || b < c && !p"), "logical_or(lt(a,b),logical_and(lt(b,c),logical_not(p)))");
  EXPECT_EQ(tree("a + b <= c"), "le(add(a,b),c)");
  EXPECT_EQ(tree("(a + b) * c"), "mul(add(a,b),c)");
}

TEST(Parser, ReductionsTakeTheProductAfterThem) {
  EXPECT_EQ(tree("sum[k: N] a * b + c"), "add(reduce(mul(a,b)),c)");
  EXPECT_EQ(tree("a + max[k: N] b / c"), "add(a,reduce(div(b,c)))");
  EXPECT_EQ(tree("a * sum[k: N] b * c"), "mul(a,reduce(mul(b,c)))");
  EXPECT_EQ(tree("-sum[k: N] a * b"), "neg(reduce(mul(a,b)))");
  EXPECT_EQ(tree("sum[k: N] max[l: M] a * b"), "reduce(reduce(mul(a,b)))");
  EXPECT_EQ(tree("max(a, max[k: N] b)"), "max(a,reduce(b))");
  EXPECT_EQ(tree("sum[k: N where a < b] c"), "reduce(c,lt(a,b))");
}

TEST(Parser, NumbersKeepTheirKind) {
  const auto literal = [](const std::string& text) {
    const Kernel k = with_expression(text);
    return std::pair(root(k).number, root(k).type);
  };
  EXPECT_EQ(literal("8"), std::pair(8.0, ScalarType::i32));
  EXPECT_EQ(literal("-8"), std::pair(-8.0, ScalarType::i32));
  EXPECT_EQ(literal("3000000000"), std::pair(3e9, ScalarType::i64));
  EXPECT_EQ(literal("8.0"), std::pair(8.0, ScalarType::f32));
  EXPECT_EQ(literal("1e-5"), std::pair(1e-5, ScalarType::f32));
  EXPECT_EQ(literal(".5"), std::pair(0.5, ScalarType::f32));
  EXPECT_EQ(literal("-inf"), std::pair(-std::numeric_limits<double>::infinity(), ScalarType::f32));
  EXPECT_EQ(literal("true"), std::pair(1.0, ScalarType::boolean));
}

TEST(Parser, HeaderAndDeclarations) {
  const Kernel k = parsed(
      "kernel f(X: f16[B,C*L,H], dt: f32[B], t: f32, n: i32) -> (Y: f16[B,C*L,H], Z: f32[]) {\n"
      "  option causal: bool = true; option window: i32 = -1; option eps: f32 = 1e-5;\n"
      "  require H % B == 0; require C > 0 && L > 0;\n"
      "  parallel b: B, c: C; parallel l: L, h: H; inner d: 4;\n"
      "  Y[b,c*L + l,h] = X[b,c*L + l,h];\n  Z[] = 0;\n}");
  ASSERT_EQ(k.dims.size(), 4u);
  EXPECT_EQ(k.dims[1].name, "C");
  ASSERT_EQ(k.tensors.size(), 4u);
  EXPECT_FALSE(k.tensors[1].output);
  EXPECT_TRUE(k.tensors[3].output);
  EXPECT_TRUE(k.tensors[3].shape.empty());
  EXPECT_EQ(k.tensors[0].shape.size(), 3u);
  EXPECT_EQ(evaluate_size(k, k.tensors[0].shape[1], {2, 3, 5, 7}), 15);
  EXPECT_EQ(k.scalars.size(), 2u);
  ASSERT_EQ(k.options.size(), 3u);
  EXPECT_EQ(k.options[0].value, 1);
  EXPECT_EQ(k.options[1].value, -1);
  EXPECT_EQ(k.options[2].value, 1e-5);
  EXPECT_EQ(k.requirements.size(), 2u);
  EXPECT_EQ(k.parallel.size(), 4u);
  EXPECT_EQ(k.axes[4].kind, AxisKind::inner);
}

TEST(Parser, Statements) {
  const Kernel k = parsed(
      "kernel f(A: f16[M,N]) -> (C: f32[M]) {\n  parallel m: M;\n  carry x[m]: i32 = 0, y[m] = -inf;\n"
      "  for ordered j: N where j <= m {\n    w[m,j]: f16 = A[m,j];\n    x[m] += 1 when y[m] > 0;\n"
      "    y[m] = max(y[m], max[j] w[m,j]);\n  } combine (x2, y2) {\n    x[m] = x[m] + x2[m];\n    y[m] = max(y[m], "
      "y2[m]);\n  }\n"
      "  C[m] = y[m] when m > 0;\n}");
  ASSERT_EQ(k.body.size(), 4u);
  const auto& x = k[std::get<Carry>(k[k.body[0]].node).target];
  EXPECT_TRUE(x.carried);
  EXPECT_TRUE(x.typed);
  EXPECT_EQ(x.type, ScalarType::i32);
  const auto& loop = std::get<Loop>(k[k.body[2]].node);
  EXPECT_TRUE(loop.ordered);
  EXPECT_TRUE(loop.where.has_value());
  EXPECT_EQ(k[loop.axis].kind, AxisKind::streamed);
  ASSERT_EQ(loop.body.size(), 3u);
  const auto& w = std::get<Assign>(k[loop.body[0]].node);
  EXPECT_EQ(k[w.target].axes, (std::vector<AxisId>{k.parallel[0], loop.axis}));
  EXPECT_TRUE(std::get<Assign>(k[loop.body[1]].node).accumulate);
  EXPECT_TRUE(std::get<Assign>(k[loop.body[1]].node).when.has_value());
  ASSERT_TRUE(loop.combine.has_value());
  EXPECT_EQ(loop.combine->carried.size(), 2u);
  EXPECT_EQ(k[loop.combine->others[1]].name, "y2");
  EXPECT_TRUE(std::get<Store>(k[k.body[3]].node).when.has_value());
}

TEST(Parser, ANameMeansItsLatestValue) {
  const Kernel k = parsed(
      "kernel f(A: f16[M]) -> (C: f32[M]) {\n  parallel m: M;\n  x[m] = f32(A[m]);\n  x[m] = x[m] * 2;\n  C[m] = "
      "x[m];\n}");
  EXPECT_EQ(k.values.size(), 1u);
}

TEST(Parser, LoopsHaveValuesOfTheirOwn) {
  const Kernel k = parsed(
      "kernel f(A: f16[M,N]) -> (C: f32[M]) {\n  parallel m: M;\n  carry y[m] = 0;\n"
      "  for j: N { x[m] = sum[j] A[m,j]; y[m] += x[m]; }\n"
      "  for j: N { x[m] = max[j] A[m,j]; y[m] += x[m]; }\n  C[m] = y[m];\n}");
  EXPECT_EQ(k.values.size(), 3u);
  EXPECT_EQ(k.axes.size(), 3u);
}

TEST(Parser, NewAxesOnTheLeftTakeTheRangeOfWhatTheyIndex) {
  const Kernel k = parsed(
      "kernel f(A: f16[M,C*N], W: f16[N]) -> (C2: f32[M,N]) {\n  parallel m: M;\n  x[m,q] = A[m,q];\n  y[m,q] = x[m,q] "
      "* 2;\n"
      "  C2[m,r] = W[r] * sum[q] y[m,q];\n}");
  ASSERT_EQ(k.axes.size(), 3u);
  EXPECT_EQ(k.axes[1].kind, AxisKind::inner);
  EXPECT_EQ(k.axes[1].extent, k.tensors[0].shape[1]);
  EXPECT_EQ(k[k.axes[2].extent].dim, DimId(2));
}

TEST(Parser, LoopsAndReductionsMayReuseInnerNames) {
  const Kernel k = parsed(
      "kernel f(A: f16[M,N]) -> (C: f32[M,N]) {\n  parallel m: M;  inner n: N;\n"
      "  r[m] = sum[n: N] A[m,n];\n  carry t[m] = 0;\n  for n: N { t[m] += sum[n] A[m,n]; }\n  C[m,n] = A[m,n] * r[m] "
      "* t[m];\n}");
  EXPECT_EQ(k.axes.size(), 4u);
}

TEST(Parser, SeveralKernelsInAFile) {
  const auto result = parse(
      "kernel a(A: f16[M]) -> (C: f16[M]) { parallel m: M; C[m] = A[m]; }\n// next\n"
      "kernel b(A: f16[M]) -> (C: f16[M]) { parallel m: M; C[m] = A[m]; }\r\n",
      "k.stask");
  ASSERT_TRUE(result) << result.error().format();
  EXPECT_EQ(result->size(), 2u);
  EXPECT_EQ((*result)[1].name, "b");
}

}  // namespace
}  // namespace pipethreader::kernel
