// Map functions on vectors of lanes: fast loops for the common finite case of the frequent functions, and apply() for
// everything else and for lanes that are infinite, NaN or unknown.
#include <algorithm>
#include <array>

#include "oracle/evaluator.h"

namespace pipethreader::oracle {
namespace {

// Operands as plain arrays of `count`, so that loops have one shape.
const double* spread(const double* data, bool shared, std::size_t count, Arena& arena) {
  if (!shared) return data;
  double* result = arena.allocate<double>(count);
  std::fill_n(result, count, *data);
  return result;
}

const double* errors_or_zero(const Lanes& lanes, std::size_t count, Arena& arena) {
  if (lanes.errors != nullptr) return spread(lanes.errors, lanes.shared, count, arena);
  double* result = arena.allocate<double>(count);
  std::fill_n(result, count, 0.0);
  return result;
}

struct Arrays {
  const double* a;
  const double* b;
  const double* a_error;
  const double* b_error;
  double* value;
  double* error;
};

void exact_values(Function function, bool integers, std::size_t n, const Arrays& x) {
  switch (function) {
    case Function::add:
      for (std::size_t i = 0; i < n; ++i) x.value[i] = x.a[i] + x.b[i];
      return;
    case Function::sub:
      for (std::size_t i = 0; i < n; ++i) x.value[i] = x.a[i] - x.b[i];
      return;
    case Function::mul:
      for (std::size_t i = 0; i < n; ++i) x.value[i] = x.a[i] * x.b[i];
      return;
    case Function::div:
      if (integers)
        for (std::size_t i = 0; i < n; ++i) x.value[i] = std::floor(x.a[i] / x.b[i]);
      else
        for (std::size_t i = 0; i < n; ++i) x.value[i] = x.a[i] / x.b[i];
      return;
    case Function::lt:
      for (std::size_t i = 0; i < n; ++i) x.value[i] = x.a[i] < x.b[i] ? 1 : 0;
      return;
    case Function::le:
      for (std::size_t i = 0; i < n; ++i) x.value[i] = x.a[i] <= x.b[i] ? 1 : 0;
      return;
    default:
      for (std::size_t i = 0; i < n; ++i) {
        const std::array<double, 2> operands = {x.a[i], x.b[i]};
        x.value[i] = evaluate(function, operands, integers);
      }
  }
}

// The fast loops. Each leaves a wrong or infinite error at lanes that are not plain finite numbers; the caller redoes
// those. Returns false for functions without one.
bool fast_bounds(Function function, ScalarType type, double u, std::size_t n, const Arrays& x) {
  switch (function) {
    case Function::add:
    case Function::sub: {
      const double tiny = u > 0 ? kTiny : 0;
      const double sign = function == Function::add ? 1 : -1;
      for (std::size_t i = 0; i < n; ++i) {
        const double v = x.a[i] + sign * x.b[i];
        const double e = x.a_error[i] + x.b_error[i];
        x.value[i] = v;
        const bool rounds = v != 0 || e > 0;  // 0 + 0 is exact
        x.error[i] = e + (rounds ? u * (std::fabs(v) + e) + tiny : 0);
      }
      return true;
    }
    case Function::mul: {
      const double tiny = underflow(type, u);
      for (std::size_t i = 0; i < n; ++i) {
        const double v = x.a[i] * x.b[i];
        const double a = std::fabs(x.a[i]), b = std::fabs(x.b[i]);
        const double e = a * x.b_error[i] + b * x.a_error[i] + x.a_error[i] * x.b_error[i];
        const bool rounds = !(x.a_error[i] == 0 && (a == 1 || a == 0)) && !(x.b_error[i] == 0 && (b == 1 || b == 0));
        x.value[i] = v;
        x.error[i] = e + (rounds ? std::max(u * (std::fabs(v) + e), tiny) : 0);
      }
      return true;
    }
    default:
      return false;
  }
}

bool is_comparison(Function function) { return function >= Function::lt && function <= Function::ne; }

// The number of a lane's operands, then the general path.
Number slow(const Node& node, const Lanes* operands, std::size_t lane) {
  std::array<Number, 3> numbers;
  for (std::size_t k = 0; k < node.args.size(); ++k) numbers[k] = {operands[k].value(lane), operands[k].error(lane)};
  const bool same =
      node.args.size() == 2 && operands[0].tag(lane) != 0 && operands[0].tag(lane) == operands[1].tag(lane);
  if (same && std::isfinite(numbers[0].value)) {
    // The very same number twice: whatever its error is, it cancels.
    if (node.function == Function::sub) return {0, 0};
    if (is_comparison(node.function)) numbers[0].error = numbers[1].error = 0;
  }
  if (node.integer && node.type != ScalarType::boolean) {
    std::array<double, 3> values{};
    bool certain = true;
    for (std::size_t k = 0; k < node.args.size(); ++k) {
      values[k] = numbers[k].value;
      certain = certain && numbers[k].error == 0;
    }
    if (certain) return {evaluate(node.function, std::span(values.data(), node.args.size()), true), 0};
  }
  return apply(node.function, node.type, node.rounding, numbers.data());
}

// Which operand's number the result is, where that is certain: select's branch, the clear winner of min and max.
const std::uint64_t* result_tags(const Node& node, const Lanes* operands, std::size_t count, Arena& arena) {
  if (!node.passes) return nullptr;
  std::uint64_t* tags = arena.allocate<std::uint64_t>(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (node.function == Function::select) {
      const bool sure = operands[0].error(i) == 0;
      const std::uint64_t yes = operands[1].tag(i), no = operands[2].tag(i);
      tags[i] = sure ? (operands[0].value(i) != 0 ? yes : no) : (yes == no ? yes : 0);
      continue;
    }
    const double a = operands[0].value(i), b = operands[1].value(i);
    const bool sure = !(std::fabs(a - b) <= operands[0].error(i) + operands[1].error(i));
    const bool first = (a > b) == (node.function == Function::max);
    tags[i] = operands[0].tag(i) == operands[1].tag(i) || (sure && first) ? operands[0].tag(i)
              : sure                                                      ? operands[1].tag(i)
                                                                          : 0;
  }
  return tags;
}

}  // namespace

Lanes map_lanes(const Node& node, const Lanes* operands, std::size_t count, Arena& arena) {
  double* values = arena.allocate<double>(count);
  const std::size_t arity = node.args.size();
  if (node.exact && arity == 2) {
    const Arrays arrays{spread(operands[0].values, operands[0].shared, count, arena),
                        spread(operands[1].values, operands[1].shared, count, arena),
                        nullptr,
                        nullptr,
                        values,
                        nullptr};
    exact_values(node.function, node.integer && node.type != ScalarType::boolean, count, arrays);
    return {values, nullptr, result_tags(node, operands, count, arena), false};
  }
  double* errors = arena.allocate<double>(count);
  const bool may_share_tags = arity == 2 && operands[0].tags != nullptr && operands[1].tags != nullptr;
  bool fast = false;
  if (arity == 2 && !may_share_tags && !node.integer) {
    const Arrays arrays{spread(operands[0].values, operands[0].shared, count, arena),
                        spread(operands[1].values, operands[1].shared, count, arena),
                        errors_or_zero(operands[0], count, arena),
                        errors_or_zero(operands[1], count, arena),
                        values,
                        errors};
    fast = fast_bounds(node.function, node.type, node.rounding, count, arrays);
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (fast && errors[i] < kInfinity) continue;
    const Number number = slow(node, operands, i);
    values[i] = number.value;
    errors[i] = number.error;
  }
  return {values, node.exact ? nullptr : errors, result_tags(node, operands, count, arena), false};
}

}  // namespace pipethreader::oracle
