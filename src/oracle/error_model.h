// The error model: what one rounding, one approximate function and one sum may cost. All constants of the oracle's
// bounds stand in error_model.cpp, each with its source.
//
// A number is a pair: the oracle's f64 value, and a bound on how far a correct program's number may be from it. An
// infinite bound means that nothing is known; a value that is infinite or NaN with a finite bound is certain.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/functions.h"
#include "base/scalar_type.h"

namespace pipethreader::oracle {

struct Number {
  double value = 0;
  double error = 0;
};

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Below this a GPU may flush f32 results to zero.
inline constexpr double kTiny = 0x1p-126;

// What an operation in `type` that rounds by `rounding` may lose where its result is subnormal: half a step of the
// type, and all of what a GPU may flush. Products under a sum round by less than their operands' type does.
[[nodiscard]] inline double underflow(ScalarType type, double rounding) {
  if (rounding == 0) return 0;
  return rounding < unit_roundoff(type) ? kTiny : std::max(kTiny, smallest_positive(type) / 2);
}

// A sum rounds like this at each addition when its terms are products that tensor cores add.
inline constexpr double kTensorCoreRoundings = 2;

// How many roundings of the running sum a sum of n terms is charged.
[[nodiscard]] double sum_roundings(double terms);

// One application of `function`, evaluated in `type`, to operands with errors; the general (slow) path of every
// function. `rounding` is the unit roundoff of the basic operations.
[[nodiscard]] Number apply(Function function, ScalarType type, double rounding, const Number* operands);

// `number` narrowed to `type`. `step`: charge a whole step of the type, as the program may round another number there.
[[nodiscard]] Number narrow(ScalarType type, Number number, bool step);

// Whether every number of `from` is one of `to`.
[[nodiscard]] bool widens(ScalarType from, ScalarType to);

// As round_to, with f32 in line.
[[nodiscard]] inline double round_value(ScalarType type, double value) {
  if (type == ScalarType::f32) return static_cast<double>(static_cast<float>(value));
  return round_to(type, value);
}

[[nodiscard]] Number settle_overflow(ScalarType type, Number number);

// `number`, which a program holds in `type` already, rounded to it; only the oracle moves.
[[nodiscard]] inline Number settle(ScalarType type, Number number) {
  const double value = round_value(type, number.value);
  const double moved = std::fabs(value - number.value);
  if (moved <= std::fabs(number.value)) return {value, number.error + moved};
  return settle_overflow(type, number);
}

// The error of an operation whose value is infinite or NaN: certain if its operands were.
[[nodiscard]] inline double certain_if(bool operands_bounded) { return operands_bounded ? 0 : kInfinity; }

}  // namespace pipethreader::oracle
