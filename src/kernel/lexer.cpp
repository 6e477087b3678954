#include "kernel/lexer.h"

#include <array>
#include <charconv>
#include <cmath>

namespace pipethreader::kernel {
namespace {

constexpr std::array<std::string_view, 26> kSymbols = {
    // longest first
    "->", "+=", "<=", ">=", "==", "!=", "&&", "||", "(", ")", "[", "]", "{",
    "}",  ",",  ";",  ":",  "=",  "<",  ">",  "+",  "-", "*", "/", "%", "!"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }

class Lexer {
 public:
  Lexer(std::string_view text, Reporter& reporter) : text_(text), reporter_(reporter) {}

  std::vector<Token> run() {
    while (skip_blanks() && next()) {
    }
    tokens_.push_back({Token::Kind::end, {}, 0, place()});
    return std::move(tokens_);
  }

 private:
  [[nodiscard]] SourceSpan place() const { return {line_, static_cast<std::uint32_t>(at_ - line_start_ + 1)}; }
  [[nodiscard]] char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }

  // False at the end of the text.
  bool skip_blanks() {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '\n') {
        ++line_;
        line_start_ = at_ + 1;
      } else if (c == '/' && peek(1) == '/') {
        while (at_ + 1 < text_.size() && text_[at_ + 1] != '\n') ++at_;
      } else if (c != ' ' && c != '\t' && c != '\r') {
        return true;
      }
    }
    return false;
  }

  bool next() {
    const char c = peek();
    if (is_name_start(c)) return push(Token::Kind::name, name_length());
    if (is_digit(c) || (c == '.' && is_digit(peek(1)))) return number();
    for (std::string_view symbol : kSymbols)
      if (text_.substr(at_, symbol.size()) == symbol) return push(Token::Kind::symbol, symbol.size());
    const auto byte = static_cast<unsigned char>(c);
    const bool printable = byte > ' ' && byte < 0x7f;
    reporter_.report(Message::unexpected_byte, place(),
                     printable ? fmt::format("character '{}'", c) : fmt::format("byte 0x{:02x}", byte));
    return false;
  }

  [[nodiscard]] std::size_t name_length() const {
    std::size_t n = 0;
    while (is_name_part(peek(n))) ++n;
    return n;
  }

  bool number() {
    std::size_t n = 0;
    bool integer = true;
    while (is_digit(peek(n))) ++n;
    if (peek(n) == '.') {
      integer = false;
      for (++n; is_digit(peek(n));) ++n;
    }
    if (peek(n) == 'e' || peek(n) == 'E') {
      integer = false;
      ++n;
      if (peek(n) == '+' || peek(n) == '-') ++n;
    }
    while (is_name_part(peek(n)) || peek(n) == '.') ++n;  // take malformed tails along: the error shows all of it
    const std::string_view word = text_.substr(at_, n);
    double value = 0;
    bool integer_fits = true;
    const auto [end, status] = std::from_chars(word.data(), word.data() + word.size(), value);
    const bool complete = status == std::errc() && end == word.data() + word.size() && std::isfinite(value);
    std::uint64_t whole = 0;
    if (integer)
      integer_fits =
          std::from_chars(word.data(), word.data() + word.size(), whole).ec == std::errc() && whole <= (1ull << 53);
    if (!complete || !integer_fits) {
      reporter_.report(Message::bad_number, place(), word.substr(0, 40));
      return false;
    }
    push(integer ? Token::Kind::integer : Token::Kind::number, n);
    tokens_.back().number = value;
    return true;
  }

  bool push(Token::Kind kind, std::size_t length) {
    tokens_.push_back({kind, text_.substr(at_, length), 0, place()});
    at_ += length;
    return true;
  }

  std::string_view text_;
  Reporter& reporter_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  std::size_t line_start_ = 0;
  std::uint32_t line_ = 1;
};

}  // namespace

std::vector<Token> lex(std::string_view text, Reporter& reporter) { return Lexer(text, reporter).run(); }

}  // namespace pipethreader::kernel
