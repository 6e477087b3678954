#include "interpret/number.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

namespace pipethreader::interpret {
namespace {

float round_to_f16(float value) {
  const float magnitude = std::fabs(value);
  if (!(magnitude < 65520.0f)) return std::isnan(value) ? value : std::copysign(INFINITY, value);
  if (magnitude < 0x1p-14f) return std::copysign((magnitude + 0.5f) - 0.5f, value);  // multiples of 2^-24
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  return std::bit_cast<float>((bits + 0xfffu + ((bits >> 13) & 1u)) & ~0x1fffu);
}

float round_to_bf16(float value) {
  if (std::isnan(value)) return value;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7fffu + ((bits >> 16) & 1u)) & ~0xffffu);
}

template <class Operation>
void each(const float* const* args, std::size_t count, float* out, Operation operation) {
  const float* a = args[0];
  for (std::size_t i = 0; i < count; ++i) out[i] = operation(a[i]);
}

template <class Operation>
void each_pair(const float* const* args, std::size_t count, float* out, Operation operation) {
  const float* a = args[0];
  const float* b = args[1];
  for (std::size_t i = 0; i < count; ++i) out[i] = operation(a[i], b[i]);
}

template <class Operation>
void each_pair(const std::int64_t* const* args, std::size_t count, std::int64_t* out, Operation operation) {
  const std::int64_t* a = args[0];
  const std::int64_t* b = args[1];
  for (std::size_t i = 0; i < count; ++i) out[i] = operation(a[i], b[i]);
}

template <class Compare>
void compare(const float* a, const float* b, std::size_t count, std::int64_t* out, Compare holds) {
  for (std::size_t i = 0; i < count; ++i) out[i] = holds(a[i], b[i]) ? 1 : 0;
}

// Two's complement, so that nothing is undefined; overflow is checked on the result.
std::int64_t wrap(std::uint64_t value) { return static_cast<std::int64_t>(value); }

std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return wrap(0 - static_cast<std::uint64_t>(a));
  const std::int64_t q = a / b;
  return a % b != 0 && ((a % b < 0) != (b < 0)) ? q - 1 : q;
}

std::int64_t floor_mod(std::int64_t a, std::int64_t b) {
  if (b == 0 || b == -1) return 0;
  const std::int64_t r = a % b;
  return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
}

}  // namespace

void round_floats(ScalarType type, std::span<float> values) {
  switch (type) {
    case ScalarType::f32:
    case ScalarType::f64:
      return;
    case ScalarType::f16:
      std::ranges::transform(values, values.begin(), round_to_f16);
      return;
    case ScalarType::bf16:
      std::ranges::transform(values, values.begin(), round_to_bf16);
      return;
    default:
      for (float& value : values) value = static_cast<float>(round_to(type, value));
  }
}

void apply_floats(Function function, const float* const* args, std::size_t count, float* out) {
  switch (function) {
    case Function::neg:
      return each(args, count, out, [](float a) { return -a; });
    case Function::add:
      return each_pair(args, count, out, [](float a, float b) { return a + b; });
    case Function::sub:
      return each_pair(args, count, out, [](float a, float b) { return a - b; });
    case Function::mul:
      return each_pair(args, count, out, [](float a, float b) { return a * b; });
    case Function::div:
      return each_pair(args, count, out, [](float a, float b) { return a / b; });
    case Function::mod:
      return each_pair(args, count, out, [](float a, float b) { return a - b * std::floor(a / b); });
    case Function::min:
      return each_pair(args, count, out, smaller);
    case Function::max:
      return each_pair(args, count, out, larger);
    case Function::abs:
      return each(args, count, out, [](float a) { return std::fabs(a); });
    case Function::exp:
      return each(args, count, out, [](float a) { return std::exp(a); });
    case Function::exp2:
      return each(args, count, out, [](float a) { return std::exp2(a); });
    case Function::log:
      return each(args, count, out, [](float a) { return std::log(a); });
    case Function::log2:
      return each(args, count, out, [](float a) { return std::log2(a); });
    case Function::sqrt:
      return each(args, count, out, [](float a) { return std::sqrt(a); });
    case Function::rsqrt:
      return each(args, count, out, [](float a) { return 1.0f / std::sqrt(a); });
    case Function::tanh:
      return each(args, count, out, [](float a) { return std::tanh(a); });
    case Function::sigmoid:
      return each(args, count, out, [](float a) { return 1.0f / (1.0f + std::exp(-a)); });
    case Function::erf:
      return each(args, count, out, [](float a) { return std::erf(a); });
    case Function::floor:
      return each(args, count, out, [](float a) { return std::floor(a); });
    case Function::sin:
      return each(args, count, out, [](float a) { return std::sin(a); });
    case Function::cos:
      return each(args, count, out, [](float a) { return std::cos(a); });
    case Function::lt:
    case Function::le:
    case Function::gt:
    case Function::ge:
    case Function::eq:
    case Function::ne:
    case Function::logical_and:
    case Function::logical_or:
    case Function::logical_not:
    case Function::select:
      assert(false && "gives a boolean, or is evaluated by its caller");
  }
}

void compare_floats(Function function, const float* a, const float* b, std::size_t count, std::int64_t* out) {
  switch (function) {
    case Function::lt:
      return compare(a, b, count, out, [](float x, float y) { return x < y; });
    case Function::le:
      return compare(a, b, count, out, [](float x, float y) { return x <= y; });
    case Function::gt:
      return compare(a, b, count, out, [](float x, float y) { return x > y; });
    case Function::ge:
      return compare(a, b, count, out, [](float x, float y) { return x >= y; });
    case Function::eq:
      return compare(a, b, count, out, [](float x, float y) { return x == y; });
    case Function::ne:
      return compare(a, b, count, out, [](float x, float y) { return x != y; });
    default:
      assert(false && "no comparison");
  }
}

void apply_integers(Function function, const std::int64_t* const* args, std::size_t count, std::int64_t* out) {
  using Integer = std::int64_t;
  using Bits = std::uint64_t;
  const auto unary = [&](auto operation) {
    for (std::size_t i = 0; i < count; ++i) out[i] = operation(args[0][i]);
  };
  switch (function) {
    case Function::neg:
      return unary([](Integer a) { return wrap(0 - static_cast<Bits>(a)); });
    case Function::abs:
      return unary([](Integer a) { return a < 0 ? wrap(0 - static_cast<Bits>(a)) : a; });
    case Function::floor:
      return unary([](Integer a) { return a; });
    case Function::logical_not:
      return unary([](Integer a) { return static_cast<Integer>(a == 0); });
    case Function::add:
      return each_pair(args, count, out,
                       [](Integer a, Integer b) { return wrap(static_cast<Bits>(a) + static_cast<Bits>(b)); });
    case Function::sub:
      return each_pair(args, count, out,
                       [](Integer a, Integer b) { return wrap(static_cast<Bits>(a) - static_cast<Bits>(b)); });
    case Function::mul:
      return each_pair(args, count, out,
                       [](Integer a, Integer b) { return wrap(static_cast<Bits>(a) * static_cast<Bits>(b)); });
    case Function::div:
      return each_pair(args, count, out, floor_div);
    case Function::mod:
      return each_pair(args, count, out, floor_mod);
    case Function::min:
      return each_pair(args, count, out, [](Integer a, Integer b) { return std::min(a, b); });
    case Function::max:
      return each_pair(args, count, out, [](Integer a, Integer b) { return std::max(a, b); });
    case Function::lt:
      return each_pair(args, count, out, [](Integer a, Integer b) { return static_cast<Integer>(a < b); });
    case Function::le:
      return each_pair(args, count, out, [](Integer a, Integer b) { return static_cast<Integer>(a <= b); });
    case Function::gt:
      return each_pair(args, count, out, [](Integer a, Integer b) { return static_cast<Integer>(a > b); });
    case Function::ge:
      return each_pair(args, count, out, [](Integer a, Integer b) { return static_cast<Integer>(a >= b); });
    case Function::eq:
      return each_pair(args, count, out, [](Integer a, Integer b) { return static_cast<Integer>(a == b); });
    case Function::ne:
      return each_pair(args, count, out, [](Integer a, Integer b) { return static_cast<Integer>(a != b); });
    case Function::logical_and:
      return each_pair(args, count, out, [](Integer a, Integer b) { return static_cast<Integer>(a != 0 && b != 0); });
    case Function::logical_or:
      return each_pair(args, count, out, [](Integer a, Integer b) { return static_cast<Integer>(a != 0 || b != 0); });
    case Function::select:
      for (std::size_t i = 0; i < count; ++i) out[i] = args[0][i] != 0 ? args[1][i] : args[2][i];
      return;
    default:
      assert(false && "leaves the integers");
  }
}

bool is_comparison(Function function) {
  switch (function) {
    case Function::lt:
    case Function::le:
    case Function::gt:
    case Function::ge:
    case Function::eq:
    case Function::ne:
      return true;
    default:
      return false;
  }
}

bool is_logic(Function function) {
  return function == Function::logical_and || function == Function::logical_or || function == Function::logical_not;
}

}  // namespace pipethreader::interpret
