#include "base/functions.h"

#include <array>
#include <cassert>
#include <cmath>

namespace pipethreader {
namespace {

constexpr bool same = false;
constexpr bool boolean = true;

constexpr std::array kFunctions = {
#define FUNCTION(id, operands, symbol, result) FunctionInfo{#id, operands, symbol, result},
#include "base/functions.def"
#undef FUNCTION
};

double floor_div(double a, double b) { return std::floor(a / b); }

// The remainder has the divisor's sign: a == b * floor(a / b) + a % b.
double floor_mod(double a, double b) {
  const double r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r + 0.0;
}

double truth(bool value) { return value ? 1 : 0; }

}  // namespace

const FunctionInfo& info(Function function) { return kFunctions[static_cast<std::size_t>(function)]; }

std::optional<Function> function_named(std::string_view name) {
  for (std::size_t i = 0; i < kFunctions.size(); ++i)
    if (kFunctions[i].name == name) return static_cast<Function>(i);
  return std::nullopt;
}

double evaluate(Function function, std::span<const double> operands, bool integers) {
  assert(operands.size() == static_cast<std::size_t>(info(function).operands));
  const double a = operands[0];
  const double b = operands.size() > 1 ? operands[1] : 0;
  switch (function) {
    case Function::neg:
      return -a;
    case Function::add:
      return a + b;
    case Function::sub:
      return a - b;
    case Function::mul:
      return a * b;
    case Function::div:
      return integers ? floor_div(a, b) : a / b;
    case Function::mod:
      return floor_mod(a, b);
    case Function::lt:
      return truth(a < b);
    case Function::le:
      return truth(a <= b);
    case Function::gt:
      return truth(a > b);
    case Function::ge:
      return truth(a >= b);
    case Function::eq:
      return truth(a == b);
    case Function::ne:
      return truth(a != b);
    case Function::logical_and:
      return truth(a != 0 && b != 0);
    case Function::logical_or:
      return truth(a != 0 || b != 0);
    case Function::logical_not:
      return truth(a == 0);
    case Function::select:
      return a != 0 ? b : operands[2];
    case Function::min:
      return std::fmin(a, b);
    case Function::max:
      return std::fmax(a, b);
    case Function::abs:
      return std::fabs(a);
    case Function::exp:
      return std::exp(a);
    case Function::exp2:
      return std::exp2(a);
    case Function::log:
      return std::log(a);
    case Function::log2:
      return std::log2(a);
    case Function::sqrt:
      return std::sqrt(a);
    case Function::rsqrt:
      return 1.0 / std::sqrt(a);
    case Function::tanh:
      return std::tanh(a);
    case Function::sigmoid:
      return 1.0 / (1.0 + std::exp(-a));
    case Function::erf:
      return std::erf(a);
    case Function::floor:
      return std::floor(a);
    case Function::sin:
      return std::sin(a);
    case Function::cos:
      return std::cos(a);
  }
  return 0;
}

}  // namespace pipethreader
