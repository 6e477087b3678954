// The closed list of map functions (functions.def): a new function is one line there, its f64 meaning in
// functions.cpp and its spelling in the emitters.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace pipethreader {

enum class Function : std::uint8_t {
#define FUNCTION(id, operands, symbol, result) id,
#include "base/functions.def"
#undef FUNCTION
};

struct FunctionInfo {
  std::string_view name;
  int operands;
  std::string_view symbol;  // infix or prefix operator; empty: printed as a call
  bool gives_boolean;
};

[[nodiscard]] const FunctionInfo& info(Function function);
[[nodiscard]] std::optional<Function> function_named(std::string_view name);

// The exact (f64) meaning. Booleans are 0 and 1. `integers`: div and mod floor.
[[nodiscard]] double evaluate(Function function, std::span<const double> operands, bool integers);

}  // namespace pipethreader
