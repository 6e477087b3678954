#include "base/functions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace pipethreader {
namespace {

double of(Function f, std::vector<double> operands, bool integers = false) { return evaluate(f, operands, integers); }

TEST(Functions, NamesAreReadBack) {
  for (int i = 0; i <= static_cast<int>(Function::cos); ++i) {
    const auto f = static_cast<Function>(i);
    EXPECT_EQ(function_named(info(f).name), f);
  }
  EXPECT_EQ(function_named("softplus"), std::nullopt);
  EXPECT_EQ(info(Function::select).operands, 3);
  EXPECT_EQ(info(Function::le).symbol, "<=");
  EXPECT_TRUE(info(Function::le).gives_boolean);
  EXPECT_FALSE(info(Function::max).gives_boolean);
}

TEST(Functions, IntegersDivideTowardsMinusInfinity) {
  for (int a = -20; a <= 20; ++a)
    for (int b : {-7, -3, -1, 1, 2, 5}) {
      const double q = of(Function::div, {double(a), double(b)}, true);
      const double r = of(Function::mod, {double(a), double(b)}, true);
      EXPECT_EQ(q, std::floor(double(a) / b));
      EXPECT_EQ(q * b + r, a);
      EXPECT_TRUE(r == 0 || (r < 0) == (b < 0));
      EXPECT_LT(std::fabs(r), std::abs(b));
    }
  EXPECT_EQ(of(Function::div, {7, 2}), 3.5);
}

TEST(Functions, ConditionsAreZeroAndOne) {
  EXPECT_EQ(of(Function::lt, {1, 2}), 1);
  EXPECT_EQ(of(Function::ge, {1, 2}), 0);
  EXPECT_EQ(of(Function::logical_and, {1, 0}), 0);
  EXPECT_EQ(of(Function::logical_or, {1, 0}), 1);
  EXPECT_EQ(of(Function::logical_not, {0}), 1);
  EXPECT_EQ(of(Function::select, {1, 5, 6}), 5);
  EXPECT_EQ(of(Function::select, {0, 5, 6}), 6);
}

TEST(Functions, RealFunctions) {
  EXPECT_DOUBLE_EQ(of(Function::exp2, {3}), 8);
  EXPECT_DOUBLE_EQ(of(Function::log2, {8}), 3);
  EXPECT_DOUBLE_EQ(of(Function::rsqrt, {4}), 0.5);
  EXPECT_DOUBLE_EQ(of(Function::sigmoid, {0}), 0.5);
  EXPECT_DOUBLE_EQ(of(Function::erf, {0.5}), std::erf(0.5));
  EXPECT_EQ(of(Function::floor, {-1.5}), -2);
  EXPECT_EQ(of(Function::neg, {2}), -2);
  EXPECT_EQ(of(Function::abs, {-2}), 2);
  EXPECT_EQ(of(Function::exp, {-std::numeric_limits<double>::infinity()}), 0);
  EXPECT_EQ(of(Function::sigmoid, {-std::numeric_limits<double>::infinity()}), 0);
}

TEST(Functions, MinimumAndMaximumPassOverNan) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(of(Function::max, {nan, 2}), 2);
  EXPECT_EQ(of(Function::min, {2, nan}), 2);
}

}  // namespace
}  // namespace pipethreader
