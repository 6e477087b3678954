#include "program/expr_builder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace pipethreader::program {
namespace {

class ExprBuilderTest : public testing::Test {
 protected:
  ExprBuilderTest() {
    program.params = {{"n", ScalarType::i32, true}, {"scale", ScalarType::f32, false}};
    program.vars = {{"i"}, {"j"}};
    program.roles = {{"worker"}};
    program.fragments = {{"h", ScalarType::f16, layout::mma_accumulator(64, 8), RoleId(std::size_t{0})}};
    n = build.param(ParamId(std::size_t{0}));
    scale = build.param(ParamId(std::size_t{1}));
    i = build.var(VarId(std::size_t{0}));
    j = build.var(VarId(std::size_t{1}));
    h = build.fragment(FragmentId(std::size_t{0}), {0, 1});
  }
  std::string text(ExprId e) { return print(program, e); }
  ScalarType type(ExprId e) { return program[e].type; }

  Program program;
  ExprBuilder build{program};
  ExprId n, scale, i, j, h;
};

TEST_F(ExprBuilderTest, equal_expressions_are_one) {
  EXPECT_EQ(build.add(i, j), build.add(i, j));
  EXPECT_NE(build.add(i, j), build.sub(i, j));
  EXPECT_EQ(build.constant(3), build.constant(3));
  EXPECT_NE(build.constant(3), build.constant(ScalarType::f32, 3));
  EXPECT_NE(build.constant(ScalarType::f32, 0.0), build.constant(ScalarType::f32, -0.0));
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(build.constant(ScalarType::f32, nan), build.constant(ScalarType::f32, nan));
  ExprBuilder later(program);  // knows what is there already
  const std::size_t before = program.exprs.size();
  EXPECT_EQ(later.add(i, j), build.add(i, j));
  EXPECT_EQ(program.exprs.size(), before);
}

TEST_F(ExprBuilderTest, constants_fold_with_floor_division) {
  EXPECT_TRUE(build.is(build.div(build.constant(-7), 2), -4));
  EXPECT_TRUE(build.is(build.mod(build.constant(-7), 2), 1));
  EXPECT_TRUE(build.is(build.lt(build.constant(1), build.constant(2)), 1));
  EXPECT_EQ(type(build.lt(build.constant(1), build.constant(2))), ScalarType::boolean);
  EXPECT_TRUE(build.is(build.call(Function::exp2, {build.constant(3)}), 8));
  EXPECT_EQ(text(build.div(build.constant(1), 0)), "1 / 0");  // left alone
  EXPECT_EQ(text(build.constant(ScalarType::f16, 0.1)), "0.0999755859375_f16");
}

TEST_F(ExprBuilderTest, integer_identities) {
  EXPECT_EQ(build.add(i, 0), i);
  EXPECT_EQ(build.add(build.constant(0), i), i);
  EXPECT_EQ(build.mul(i, 1), i);
  EXPECT_TRUE(build.is(build.mul(i, 0), 0));
  EXPECT_TRUE(build.is(build.sub(i, i), 0));
  EXPECT_EQ(text(build.add(build.add(i, 3), 4)), "i + 7");
  EXPECT_EQ(text(build.sub(build.add(i, 3), 4)), "i - 1");
  EXPECT_EQ(build.sub(build.add(i, j), i), j);
  EXPECT_EQ(text(build.mul(build.mul(i, 8), 16)), "i * 128");
  EXPECT_EQ(text(build.div(build.mul(i, 128), 64)), "i * 2");
  EXPECT_EQ(text(build.div(build.add(build.mul(i, 64), j), 64)), "i + j / 64");
  EXPECT_EQ(text(build.mod(build.add(j, build.mul(i, 64)), 64)), "j % 64");
  EXPECT_EQ(text(build.div(build.div(i, 4), 8)), "i / 32");
  EXPECT_TRUE(build.is(build.div(build.mod(i, 8), 8), 0));
  EXPECT_TRUE(build.is(build.mod(i, 1), 0));
  EXPECT_EQ(text(build.min(build.min(i, build.constant(5)), build.constant(3))), "min(i, 3)");
  EXPECT_EQ(text(build.ceil_div(n, 64)), "(n + 63) / 64");
}

TEST_F(ExprBuilderTest, logic_identities) {
  const ExprId less = build.lt(i, j);
  EXPECT_EQ(build.logical_and(less, build.truth(true)), less);
  EXPECT_TRUE(build.is(build.logical_and(build.truth(false), less), 0));
  EXPECT_EQ(build.logical_or(less, build.truth(false)), less);
  EXPECT_EQ(text(build.logical_not(less)), "i >= j");
  EXPECT_EQ(build.logical_not(build.logical_not(less)), less);
  EXPECT_TRUE(build.is(build.le(i, i), 1));
  EXPECT_EQ(build.select(build.truth(true), i, j), i);
  EXPECT_EQ(build.select(less, i, i), i);
}

TEST_F(ExprBuilderTest, floating_point_keeps_every_bit) {
  const ExprId zero = build.constant(ScalarType::f32, 0);
  EXPECT_EQ(text(build.mul(scale, zero)), "scale * 0.0");  // NaN and infinities
  EXPECT_EQ(text(build.add(scale, zero)), "scale + 0.0");  // -0
  EXPECT_EQ(text(build.sub(scale, scale)), "scale - scale");
  EXPECT_EQ(build.mul(scale, build.constant(ScalarType::f32, 1)), scale);
  EXPECT_EQ(text(build.logical_not(build.lt(scale, zero))), "!(scale < 0.0)");
  EXPECT_EQ(text(build.eq(scale, scale)), "scale == scale");
}

TEST_F(ExprBuilderTest, types_follow_from_operands) {
  EXPECT_EQ(type(build.mul(h, h)), ScalarType::f16);
  EXPECT_EQ(type(build.mul(h, scale)), ScalarType::f32);
  EXPECT_EQ(type(build.mul(h, build.constant(2))), ScalarType::f16);
  EXPECT_EQ(type(build.add(h, build.constant(ScalarType::bf16, 2))), ScalarType::f32);
  EXPECT_EQ(type(build.call(Function::exp2, {i})), ScalarType::f32);
  EXPECT_EQ(type(build.call(Function::exp2, {h})), ScalarType::f16);
  EXPECT_EQ(type(build.select(build.lt(i, j), h, h)), ScalarType::f16);
  EXPECT_EQ(type(build.add(build.lt(i, j), i)), ScalarType::i32);
  // h * 1.0f is f32: the identity may not change the type.
  EXPECT_EQ(type(build.mul(h, build.constant(ScalarType::f32, 1))), ScalarType::f32);
  EXPECT_EQ(build.convert(ScalarType::f16, h), h);
  EXPECT_EQ(text(build.convert(ScalarType::f32, h)), "f32(h[c0, c1])");
}

TEST_F(ExprBuilderTest, replace_substitutes_and_simplifies) {
  const ExprId e = build.add(build.mul(i, 64), build.mod(j, 8));
  const auto zero_for_i = [&](const Expr& leaf) -> std::optional<ExprId> {
    if (leaf.kind == Expr::Kind::var && leaf.var.index == 0) return build.constant(0);
    return std::nullopt;
  };
  EXPECT_EQ(text(build.replace(e, zero_for_i)), "j % 8");
}

// Random integer trees: the simplified expression has the value of the tree as written, for negative values too.
TEST_F(ExprBuilderTest, simplification_keeps_the_value) {
  std::mt19937 random(11);
  const auto below = [&](int limit) { return static_cast<int>(random() % static_cast<unsigned>(limit)); };
  const Function functions[] = {Function::add, Function::sub, Function::mul,    Function::div,        Function::mod,
                                Function::min, Function::max, Function::select, Function::logical_not};
  for (int round = 0; round < 4000; ++round) {
    const double value = below(41) - 20;
    struct Pair {
      ExprId made;
      double expected;
    };
    std::vector<Pair> pool = {{n, value}};
    for (const int c : {0, 1, 2, 3, 4, 8, -2, 12}) pool.push_back({build.constant(c), static_cast<double>(c)});
    for (int step = 0; step < 8; ++step) {
      const Function f = functions[below(9)];
      std::vector<ExprId> args;
      std::vector<double> numbers;
      for (int k = 0; k < info(f).operands; ++k) {
        const Pair& p = pool[static_cast<std::size_t>(below(static_cast<int>(pool.size())))];
        args.push_back(p.made);
        numbers.push_back(p.expected);
      }
      if ((f == Function::div || f == Function::mod) && numbers[1] == 0) continue;
      const double expected = evaluate(f, numbers, true);
      if (std::abs(expected) > 1e6) continue;
      pool.push_back({build.call(f, args), expected});
      ASSERT_EQ(evaluate(program, pool.back().made, {value, 0}), expected) << text(pool.back().made) << " n=" << value;
    }
  }
}

}  // namespace
}  // namespace pipethreader::program
