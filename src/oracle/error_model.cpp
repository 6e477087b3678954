#include "oracle/error_model.h"

#include <algorithm>
#include <array>
#include <cfenv>

namespace pipethreader::oracle {
namespace {

constexpr double kUlp = 0x1p-23;  // one unit in the last place of f32, relative, at its largest

// The errors of functions as a GPU evaluates them in f32, as a relative part, a part relative and growing with the
// argument's size (the argument is scaled by log2 e first), and an absolute part.
struct FunctionError {
  Function function;
  double relative;
  double per_argument;
  double absolute;
};

// Sources: [G] CUDA C++ programming guide, "Mathematical functions": maximum errors of intrinsic and standard
// functions.
//          [P] PTX ISA, the `.approx` instructions: ex2, lg2, rcp, rsqrt, sqrt, tanh, sin, cos.
constexpr std::array kFunctionErrors = {
    FunctionError{Function::div, 2 * kUlp, 0, 0},             // [G] __fdividef: 2 ulp; [P] div.approx
    FunctionError{Function::exp, 2 * kUlp, 1.173 * kUlp, 0},  // [G] __expf: 2 + floor(|1.173 x|) ulp
    FunctionError{Function::exp2, 2 * kUlp, 0, 0},            // [G] exp2f: 2 ulp; [P] ex2.approx: 2^-22.5
    FunctionError{Function::log, 3 * kUlp, 0, 0x1p-21},       // [G] __logf: 2^-21.41 absolute near 1, 3 ulp elsewhere
    FunctionError{Function::log2, 2 * kUlp, 0, 0x1p-21},      // [G] __log2f: 2^-22 absolute near 1, 2 ulp elsewhere
    FunctionError{Function::sqrt, 3 * kUlp, 0, 0},   // [G] sqrtf without -prec-sqrt: 3 ulp; [P] sqrt.approx: 2^-23
    FunctionError{Function::rsqrt, 2 * kUlp, 0, 0},  // [G] rsqrtf: 2 ulp; [P] rsqrt.approx: 2^-22.9
    FunctionError{Function::tanh, 0x1p-10, 0, 0},    // [P] tanh.approx: 2^-10.987
    FunctionError{Function::sigmoid, 6 * kUlp, 1.173 * kUlp, 0},  // 1 / (1 + exp(-x)): exp, an addition, a division
    FunctionError{Function::erf, 8 * kUlp, 0, 0x1p-21},           // [G] erff: 2 ulp; a polynomial with ex2.approx: more
    FunctionError{Function::sin, 2 * kUlp, 0x1p-21,
                  0x1p-21},  // [G] __sinf: 2^-21.41 absolute in [-pi, pi], grows outside
    FunctionError{Function::cos, 2 * kUlp, 0x1p-21,
                  0x1p-21},  // [G] __cosf: 2^-21.19 absolute in [-pi, pi], grows outside
};

FunctionError error_of(Function function) {
  for (const FunctionError& entry : kFunctionErrors)
    if (entry.function == function) return entry;
  return {function, 0, 0, 0};
}

// Evaluated in a 16-bit type, a function is off by at most 2 ulp of that type (packed half functions: [P] 2^-9.9 for
// ex2.approx.f16x2). In f64 nothing is charged but f64's own roundings.
double function_error(Function function, ScalarType type, double argument, double value) {
  if (type == ScalarType::f64) return 4 * unit_roundoff(type) * std::fabs(value);
  const FunctionError entry = error_of(function);
  double relative = entry.relative + entry.per_argument * std::fabs(argument);
  if (bits(type) <= 16) relative += 4 * unit_roundoff(type);
  const double tiny = underflow(type, unit_roundoff(type));
  return relative * std::fabs(value) + entry.absolute + (value != 0 ? tiny : 0);
}

double value_of(Function function, double a) {
  const std::array<double, 1> operand = {a};
  return evaluate(function, operand, false);
}

// `error` if the value is finite and the error a number; otherwise certain or unknown.
Number finish(double value, double error, bool operands_bounded) {
  if (!std::isfinite(value)) return {value, certain_if(operands_bounded)};
  return {value, error >= 0 ? error : kInfinity};
}

double basic_rounding(double value, double rounding, double tiny) {
  return std::isfinite(value) && value != 0 ? std::max(rounding * std::fabs(value), rounding > 0 ? tiny : 0) : 0;
}

bool is_exactly(const Number& x, double value) { return x.error == 0 && std::fabs(x.value) == value; }

Number multiply(const Number& a, const Number& b, ScalarType type, double rounding) {
  const bool bounded = a.error < kInfinity && b.error < kInfinity;
  const double value = a.value * b.value;
  if (!std::isfinite(value)) {
    // An infinity times a number that may be 0, or of either sign, is not certain.
    const bool sure = std::fabs(a.value) > a.error && std::fabs(b.value) > b.error;
    return {value, certain_if(bounded && (sure || (a.error == 0 && b.error == 0)))};
  }
  if (is_exactly(a, 0) || is_exactly(b, 0)) return {value, bounded ? 0 : kInfinity};
  if (is_exactly(a, 1) || is_exactly(b, 1)) rounding = 0;
  const double error = std::fabs(a.value) * b.error + std::fabs(b.value) * a.error + a.error * b.error;
  return finish(value, error + basic_rounding(std::fabs(value) + error, rounding, underflow(type, rounding)), bounded);
}

Number divide(const Number& a, const Number& b, ScalarType type) {
  const bool bounded = a.error < kInfinity && b.error < kInfinity;
  const double value = a.value / b.value;
  const double room = std::fabs(b.value) - b.error;
  if (room <= 0 && b.error > 0) return {value, kInfinity};
  if (!std::isfinite(value)) {
    const bool sure = a.error == 0 || std::fabs(a.value) > a.error;
    return {value, certain_if(bounded && sure)};
  }
  if (std::isinf(b.value)) return {value, certain_if(bounded)};
  const double error = (a.error + std::fabs(value) * b.error) / room;
  return finish(value, error + function_error(Function::div, type, 0, std::fabs(value) + error), bounded);
}

Number modulo(const Number& a, const Number& b) {
  const std::array<double, 2> operands = {a.value, b.value};
  return {evaluate(Function::mod, operands, false), a.error == 0 && b.error == 0 ? 0 : kInfinity};
}

// 0 when the comparison cannot come out otherwise, 1 when it can.
Number compare(Function function, const Number& a, const Number& b) {
  const std::array<double, 2> operands = {a.value, b.value};
  const double value = evaluate(function, operands, false);
  const double error = a.error + b.error;
  if (error == 0) return {value, 0};
  if (error == kInfinity) return {value, 1};
  if (!std::isfinite(a.value) || !std::isfinite(b.value)) return {value, 0};
  return {value, std::fabs(a.value - b.value) <= error ? 1.0 : 0.0};
}

Number logical(Function function, const Number& a, const Number& b) {
  const std::array<double, 2> operands = {a.value, b.value};
  const double value = evaluate(function, operands, false);
  const bool decisive = function == Function::logical_or;  // the operand value that settles the result alone
  const bool settled = (a.error == 0 && (a.value != 0) == decisive) || (b.error == 0 && (b.value != 0) == decisive);
  return {value, settled || (a.error == 0 && b.error == 0) ? 0.0 : 1.0};
}

double distance(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double d = std::fabs(a - b);
  return std::isnan(d) ? kInfinity : d;
}

Number choose(const Number& condition, const Number& yes, const Number& no) {
  const Number& taken = condition.value != 0 ? yes : no;
  const Number& other = condition.value != 0 ? no : yes;
  if (condition.error == 0) return taken;
  return {taken.value, std::max(taken.error, distance(taken.value, other.value) + other.error)};
}

Number extremum(Function function, const Number& a, const Number& b) {
  const std::array<double, 2> operands = {a.value, b.value};
  const double value = evaluate(function, operands, false);
  if (std::isnan(a.value) || std::isnan(b.value)) return {value, std::max(a.error, b.error)};
  const double sign = function == Function::max ? 1 : -1;
  const double upper = std::max(sign * a.value + a.error, sign * b.value + b.error);
  const double lower = std::max(sign * a.value - a.error, sign * b.value - b.error);
  const double error = std::max(distance(upper, sign * value), distance(sign * value, lower));
  return {value, error};
}

bool is_monotone(Function function) { return function != Function::sin && function != Function::cos; }

// A function of one argument: the image of the argument's interval (its ends, as the function is monotone there; sine
// and cosine move by no more than their argument), and the function's own error.
Number unary(Function function, ScalarType type, const Number& a) {
  const double value = value_of(function, a.value);
  if (a.error == kInfinity) return {value, kInfinity};
  if (!std::isfinite(a.value)) return {value, 0};
  double error = a.error;
  if (is_monotone(function) && a.error > 0) {
    error = std::max(distance(value_of(function, a.value + a.error), value),
                     distance(value, value_of(function, a.value - a.error)));
  }
  if (std::isnan(value))
    return {value, a.error == 0 || std::isnan(value_of(function, a.value + a.error)) ? 0 : kInfinity};
  if (!std::isfinite(value)) return {value, error == 0 ? 0 : kInfinity};
  if (function == Function::floor) return {value, error};
  const bool exact = a.value == 0 && a.error == 0;  // exp 0, tanh 0, sqrt 0 and their like are exact
  return finish(value, error + (exact ? 0 : function_error(function, type, a.value, std::fabs(value) + error)), true);
}

}  // namespace

// Up to the crossing every addition is charged with the whole sum of magnitudes: n terms, n - 1 additions, any order.
// Long sums are charged less, as no program adds thousands of terms into one accumulator with one sign of rounding
// error: tensor cores truncate, but once per 16 terms (n / 16); the other roundings are to nearest and independent, and
// stay below 8 sqrt(n) (Higham and Mary, "A new approach to probabilistic rounding error analysis", SIAM J. Sci.
// Comput. 41(5), 2019: with 8 the bound fails with probability 2 exp(-32) an addition).
double sum_roundings(double terms) {
  if (terms <= 1) return 0;
  return std::min(terms - 1, 8 * std::sqrt(terms) + terms / 16);
}

Number apply(Function function, ScalarType type, double rounding, const Number* operands) {
  const Number& a = operands[0];
  switch (function) {
    case Function::neg:
      return {-a.value, a.error};
    case Function::abs:
      return {std::fabs(a.value), a.error};
    case Function::add:
    case Function::sub: {
      const Number& b = operands[1];
      const double value = function == Function::add ? a.value + b.value : a.value - b.value;
      const bool bounded = a.error < kInfinity && b.error < kInfinity;
      const bool unchanged = is_exactly(a, 0) || is_exactly(b, 0);
      const double error = a.error + b.error;
      return finish(value, error + basic_rounding(std::fabs(value) + error, unchanged ? 0 : rounding, kTiny), bounded);
    }
    case Function::mul:
      return multiply(a, operands[1], type, rounding);
    case Function::div:
      return divide(a, operands[1], type);
    case Function::mod:
      return modulo(a, operands[1]);
    case Function::lt:
    case Function::le:
    case Function::gt:
    case Function::ge:
    case Function::eq:
    case Function::ne:
      return compare(function, a, operands[1]);
    case Function::logical_and:
    case Function::logical_or:
      return logical(function, a, operands[1]);
    case Function::logical_not:
      return {a.value == 0 ? 1.0 : 0.0, a.error};
    case Function::select:
      return choose(a, operands[1], operands[2]);
    case Function::min:
    case Function::max:
      return extremum(function, a, operands[1]);
    default:
      return unary(function, type, a);
  }
}

Number narrow(ScalarType type, Number number, bool step) {
  const double value = round_value(type, number.value);
  if (number.error == 0) return {value, 0};
  if (number.error == kInfinity) return {value, kInfinity};
  if (!std::isfinite(number.value)) return {value, 0};
  const double error = std::max(distance(round_value(type, number.value + number.error), value),
                                distance(value, round_value(type, number.value - number.error)));
  if (!step || !std::isfinite(error) || !is_floating(type)) return {value, error};
  const double ulp = 2 * unit_roundoff(type) * std::fabs(value);
  const double smallest = type == ScalarType::f16 ? 0x1p-24 : kTiny;  // subnormal steps; f8 types: by their error only
  return {value, std::max(error, number.error + std::max(ulp, smallest))};
}

Number settle_overflow(ScalarType type, Number number) {
  const double value = round_value(type, number.value);
  if (!std::isfinite(number.value)) return {value, number.error};
  const bool sure = round_value(type, number.value - std::copysign(number.error, value)) == value;
  return {value, sure ? 0 : kInfinity};
}

bool widens(ScalarType from, ScalarType to) {
  if (from == to || to == ScalarType::f64) return true;
  if (to == ScalarType::f32) return from != ScalarType::f64;
  return !is_floating(from) && is_floating(to) && bits(from) < 8;
}

}  // namespace pipethreader::oracle
