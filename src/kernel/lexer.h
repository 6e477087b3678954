// Text to tokens. Every token knows its place; what is no token is reported there and ends the list.
#pragma once

#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "kernel/messages.h"

namespace pipethreader::kernel {

struct Token {
  enum class Kind : std::uint8_t { end, name, integer, number, symbol };
  Kind kind = Kind::end;
  std::string_view text;  // a part of the lexed text
  double number = 0;
  SourceSpan span;

  [[nodiscard]] bool is(std::string_view word) const {
    return (kind == Kind::symbol || kind == Kind::name) && text == word;
  }
};

// The list always ends with one `end` token.
[[nodiscard]] std::vector<Token> lex(std::string_view text, Reporter& reporter);

}  // namespace pipethreader::kernel
