// Cuts the text of a device program into tokens. Comments are kept apart, by line.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/diagnostic.h"

namespace pipethreader::program {

struct Token {
  enum class Kind : std::uint8_t { word, number, string, symbol, end };
  Kind kind = Kind::end;
  std::string text;  // of a string: what is between the quotes
  SourceSpan span;
};

struct Tokens {
  std::vector<Token> list;                        // closed by an `end`
  std::map<std::uint32_t, std::string> comments;  // line: text after "// "
};

[[nodiscard]] Result<Tokens> tokenize(const std::string& text, const std::string& file);

}  // namespace pipethreader::program
