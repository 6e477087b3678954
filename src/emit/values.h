// Expressions as C text. Uniform integers become ints. An element's value becomes an int, or a float that holds exactly
// a number of the expression's type (16-bit results are rounded after each operation); two neighbouring 16-bit elements
// become one packed word where the operations have a packed form.
#pragma once

#include <string>
#include <vector>

#include "emit/emission.h"

namespace pipethreader::emit {

// Where an element's expression is evaluated: register `reg` of a tile, or at coordinates given as text.
struct Site {
  const layout::Layout* tile = nullptr;
  int reg = 0;
  std::vector<std::string> coords;
};

[[nodiscard]] std::string coordinate_text(Emission& emission, const Site& site, int dim);
[[nodiscard]] std::string uniform(Emission& emission, program::ExprId id);
[[nodiscard]] std::string value(Emission& emission, program::ExprId id, const Site& site);
// As value(), but the last rounding of a 16-bit result is left to whoever stores it.
[[nodiscard]] std::string unrounded(Emission& emission, program::ExprId id, const Site& site);
// Elements of registers `reg` and `reg` + 1 as one word of two `type`.
[[nodiscard]] std::string pair(Emission& emission, program::ExprId id, const layout::Layout& tile, int reg,
                               ScalarType type);

// Between registers and memory: a register value (float or int) from bits, and bits from a value of that type.
[[nodiscard]] std::string from_bits(Emission& emission, ScalarType type, const std::string& bits);
[[nodiscard]] std::string to_bits(Emission& emission, ScalarType type, const std::string& value);

// Element `reg` of a fragment as a float or int.
[[nodiscard]] std::string element(Emission& emission, program::FragmentId id, int reg);

}  // namespace pipethreader::emit
