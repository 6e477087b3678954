#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "kernel/kernel.h"

namespace pipethreader::kernel {
namespace {

std::string around(const std::string& expression) {
  return "kernel f(A: f16[M,N], B: f16[N], a: f32, b: f32, c: f32, p: bool) -> (C: f32[M,N]) {\n"
         "  parallel m: M, n: N;\n  C[m,n] = " +
         expression + ";\n}\n";
}

std::string reprinted(const std::string& text) {
  const auto result = parse(text, "k.stask");
  EXPECT_TRUE(result) << text << (result ? "" : result.error().format());
  return result ? print(result->front()) : "";
}

// What is written as the printer writes it comes back unchanged.
TEST(Printer, NormalFormsStay) {
  for (const char* e : {"a + b * c",
                        "(a + b) * c",
                        "a - (b - c)",
                        "a - b - c",
                        "a / (b * c)",
                        "a / b * c",
                        "-a * b",
                        "-(a * b)",
                        "-(2.0)",
                        "-(-2)",
                        "-2",
                        "-inf",
                        "a - -1.5",
                        "1e-05",
                        "0.1",
                        "16777217",
                        "3000000000",
                        "1e+20",
                        "select(a < b && !p || a == c, 0, 1)",
                        "!(a < b)",
                        "select(p, 1, 0)",
                        "(a < b) == (b < c)",
                        "(sum[k: N] a) * b",
                        "a * (sum[k: N] b * c)",
                        "a + sum[k: N] b * c",
                        "sum[k: N] (a + b)",
                        "sum[k: N] max[l: M] a",
                        "-(sum[k: N] a)",
                        "sum[k: N, l: M where k < l] A[l,k]",
                        "exp(sum[k: N] a)",
                        "f16(a * b)",
                        "max(a, max[k: N] B[k])",
                        "A[m,n]",
                        "A[m,(n + 1) % N]",
                        "A[m,n*2/2]",
                        "A[m,n/(M/N)]"})
    EXPECT_EQ(reprinted(around(e)), around(e));
}

TEST(Printer, WholeKernel) {
  const std::string text =
      "kernel f(A: f16[M,N], W: f16[N], t: f32) -> (C: f32[M], D: f32[]) {\n"
      "  option causal: bool = true;\n"
      "  option window: i32 = -1;\n"
      "  option eps: f32 = 1e-05;\n"
      "  require M % N == 0;\n"
      "  parallel m: M;\n"
      "  inner q: N;\n"
      "  carry x[m]: i32 = 0;\n"
      "  carry y[m] = -inf;\n"
      "  for ordered j: N where causal && j <= m {\n"
      "    w[m,j]: f16 = A[m,j];\n"
      "    x[m] += 1 when y[m] > 0;\n"
      "    y[m] = max(y[m], max[j] w[m,j]);\n"
      "  } combine (x2, y2) {\n"
      "    x[m] = x[m] + x2[m];\n"
      "    y[m] = max(y[m], y2[m]);\n"
      "  }\n"
      "  v[m,q] = A[m,q] * W[q];\n"
      "  C[m] = y[m] + sum[q] v[m,q] when m > 0;\n"
      "  D[] = t;\n"
      "}\n";
  EXPECT_EQ(reprinted(text), text);
}

TEST(Printer, LongHeadersTakeALineForEachParameter) {
  const std::string text =
      "kernel long_name(A: f16[AAAAAAAAAAAAAAAA,BBBBBBBBBBBBBBBBBBB],\n"
      "                 B: f16[AAAAAAAAAAAAAAAA,BBBBBBBBBBBBBBBBBBB])\n"
      "                 -> (C: f16[AAAAAAAAAAAAAAAA,BBBBBBBBBBBBBBBBBBB]) {\n"
      "  parallel a: AAAAAAAAAAAAAAAA, b: BBBBBBBBBBBBBBBBBBB;\n"
      "  C[a,b] = A[a,b] + B[a,b];\n"
      "}\n";
  EXPECT_EQ(reprinted(text), text);
}

TEST(Printer, InferredAxesAreDeclared) {
  const std::string text = reprinted(
      "kernel f(A: f16[M,N]) -> (C: f32[M,N]) { parallel m: M; s[m] = sum[n: N] A[m,n]; C[m,n] = A[m,n] * s[m]; }");
  EXPECT_NE(text.find("  inner n: N;\n"), std::string::npos) << text;
  EXPECT_EQ(reprinted(text), text);
}

// The library prints to a text that parses, prints and checks the same.
TEST(Printer, TheLibraryIsStable) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(PIPETHREADER_SOURCE_DIR) + "/kernels")) {
    std::ifstream in(entry.path());
    std::stringstream text;
    text << in.rdbuf();
    const auto kernels = parse(text.str(), entry.path().filename());
    ASSERT_TRUE(kernels) << kernels.error().format();
    for (const Kernel& k : *kernels) {
      ++count;
      EXPECT_EQ(reprinted(print(k)), print(k));
      const auto checked = check(k);
      ASSERT_TRUE(checked) << checked.error().format();
      const auto again = parse(print(*checked), "again");
      ASSERT_TRUE(again) << again.error().format();
      const auto checked_again = check(again->front());
      ASSERT_TRUE(checked_again) << checked_again.error().format();
      EXPECT_EQ(print(*checked_again), print(*checked));
    }
  }
  EXPECT_GE(count, 15);
}

// Random expression trees survive: the text groups as the tree does.
class RandomExpression {
 public:
  explicit RandomExpression(unsigned seed) : random_(seed) {}

  std::string make(int depth) {
    if (depth == 0) return leaf();
    const std::string x = "(" + make(depth - 1) + ")";
    const std::string y = "(" + make(depth - 1) + ")";
    static const std::vector<std::string> binary = {" + ", " - ", " * ", " / ", " % ", " < ", " && ", " || ", " == "};
    switch (random_() % 6) {
      case 0:
        return "-" + x;
      case 1:
        return "max" + ("(" + x + ", " + y + ")");
      case 2:
        return "sum[k" + std::to_string(names_++) + ": N] " + x;
      default:
        return x + binary[random_() % binary.size()] + y;
    }
  }

 private:
  std::string leaf() {
    static const std::vector<std::string> leaves = {"a", "b", "2", "-2", "0.5", "inf", "A[m,n]", "m", "M"};
    return leaves[random_() % leaves.size()];
  }
  std::mt19937 random_;
  int names_ = 0;
};

// Written out with every operator's operands in parentheses.
std::string grouped(const Kernel& k, ExprId id) {
  const Expr& e = k[id];
  std::string text = fmt::format("{}:{}:{}", static_cast<int>(e.kind), static_cast<int>(e.function), e.number);
  for (ExprId a : e.args) text += "(" + grouped(k, a) + ")";
  return text;
}

TEST(Printer, RandomExpressionsKeepTheirGrouping) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    const std::string text = around(RandomExpression(seed).make(4));
    const auto first = parse(text, "k.stask");
    ASSERT_TRUE(first) << text << first.error().format();
    const auto second = parse(print(first->front()), "k.stask");
    ASSERT_TRUE(second) << print(first->front()) << second.error().format();
    const auto expr = [](const Kernel& k) { return grouped(k, std::get<Store>(k[k.body[0]].node).expr); };
    EXPECT_EQ(expr(first->front()), expr(second->front())) << text << print(first->front());
  }
}

}  // namespace
}  // namespace pipethreader::kernel
