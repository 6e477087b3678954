// What printing and parsing of device programs share: words that are no names, and operator precedence.
#pragma once

#include <string_view>

#include "base/functions.h"

namespace pipethreader::program {

[[nodiscard]] bool is_identifier_start(char c);
[[nodiscard]] bool is_identifier_part(char c);

// Keywords, type and function names, coordinates (c0, c1, ...) and number words are reserved in every name space.
[[nodiscard]] bool is_reserved(std::string_view word);

// How tightly an operator binds: || least, unary most. Only for functions with a symbol.
[[nodiscard]] int precedence(Function function);

}  // namespace pipethreader::program
