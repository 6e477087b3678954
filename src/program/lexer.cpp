#include "program/lexer.h"

#include <array>
#include <cctype>
#include <string_view>

#include "program/text.h"

namespace pipethreader::program {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

class Lexer {
 public:
  Lexer(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  Result<Tokens> run() {
    Tokens result;
    while (true) {
      skip_space(result);
      Token token{Token::Kind::end, "", {line_, column()}};
      if (at_ == text_.size()) {
        result.list.push_back(token);
        return result;
      }
      if (is_identifier_start(peek())) {
        token.kind = Token::Kind::word;
        token.text = take_while(is_identifier_part);
      } else if (is_digit(peek())) {
        token.kind = Token::Kind::number;
        token.text = number();
      } else if (peek() == '"') {
        token.kind = Token::Kind::string;
        if (!string(token.text)) return fail_at(file_, token.span, "this string does not end");
      } else if (symbol(token.text)) {
        token.kind = Token::Kind::symbol;
      } else {
        return fail_at(file_, token.span, fmt::format("unexpected character '{}'", peek()));
      }
      result.list.push_back(std::move(token));
    }
  }

 private:
  [[nodiscard]] char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  [[nodiscard]] std::uint32_t column() const { return static_cast<std::uint32_t>(at_ - line_start_ + 1); }

  template <class Predicate>
  std::string take_while(Predicate&& accepts) {
    const std::size_t begin = at_;
    while (at_ < text_.size() && accepts(text_[at_])) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  void skip_space(Tokens& result) {
    while (at_ < text_.size()) {
      if (peek() == '\n') {
        ++at_;
        ++line_;
        line_start_ = at_;
      } else if (std::isspace(static_cast<unsigned char>(peek())) != 0) {
        ++at_;
      } else if (peek() == '/' && peek(1) == '/') {
        at_ += peek(2) == ' ' ? 3 : 2;
        result.comments[line_] = take_while([](char c) { return c != '\n' && c != '\r'; });
      } else {
        return;
      }
    }
  }

  // Digits, a fraction, an exponent, and a type as suffix: 1, 0.5, 1e-05, 2.0_f16. The dots of "0 .. 4" stay outside.
  std::string number() {
    std::string text = take_while(is_digit);
    if (peek() == '.' && is_digit(peek(1))) {
      text += text_[at_++];
      text += take_while(is_digit);
    }
    const std::size_t sign = peek(1) == '-' || peek(1) == '+' ? 2 : 1;
    if (peek() == 'e' && is_digit(peek(sign))) {
      text += text_.substr(at_, sign);
      at_ += sign;
      text += take_while(is_digit);
    }
    if (peek() == '_') text += take_while(is_identifier_part);
    return text;
  }

  bool string(std::string& text) {
    for (++at_; at_ < text_.size() && peek() != '\n'; ++at_) {
      if (peek() == '"') {
        ++at_;
        return true;
      }
      if (peek() == '\\') ++at_;
      text += peek();
    }
    return false;
  }

  bool symbol(std::string& text) {
    static constexpr std::array<std::string_view, 26> symbols = {"..", "+=", "<=", ">=", "==", "!=", "&&", "||", "+",
                                                                 "-",  "*",  "/",  "%",  "<",  ">",  "!",  "=",  "(",
                                                                 ")",  "[",  "]",  "{",  "}",  ",",  ":",  "."};
    for (const std::string_view s : symbols)
      if (text_.substr(at_).starts_with(s)) {
        text = s;
        at_ += s.size();
        return true;
      }
    return false;
  }

  std::string_view text_;
  const std::string& file_;
  std::size_t at_ = 0;
  std::size_t line_start_ = 0;
  std::uint32_t line_ = 1;
};

}  // namespace

Result<Tokens> tokenize(const std::string& text, const std::string& file) { return Lexer(text, file).run(); }

}  // namespace pipethreader::program
