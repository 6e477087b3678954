// Expressions of the text form: they become exactly what is written, nothing is simplified.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "program/parser.h"
#include "program/text.h"

namespace pipethreader::program {
namespace {

constexpr std::array kFunctions = {
#define FUNCTION(id, operands, symbol, result) Function::id,
#include "base/functions.def"
#undef FUNCTION
};

std::optional<Function> infix(const Token& token) {
  if (token.kind != Token::Kind::symbol) return std::nullopt;
  for (const Function f : kFunctions)
    if (info(f).operands == 2 && info(f).symbol == token.text) return f;
  return std::nullopt;
}

// "0.5_f16" is 0.5 and f16; without a suffix whole numbers are i32, the others f32.
struct Literal {
  std::string digits;
  std::string suffix;
};

Literal split(const std::string& text) {
  const std::size_t at = text.find('_');
  if (at == std::string::npos) return {text, ""};
  return {text.substr(0, at), text.substr(at + 1)};
}

}  // namespace

ExprId Parser::expression(int outer) {
  ExprId left = unary();
  while (const auto f = infix(peek())) {
    const int own = precedence(*f);
    if (own < std::max(outer, 1)) break;
    ++at_;
    const ExprId right = expression(own + 1);
    if (error_) return {};
    left = call(*f, {left, right});
  }
  return left;
}

ExprId Parser::call(Function function, std::vector<ExprId> args) {
  if (error_) return {};
  Expr e{Expr::Kind::call};
  std::vector<ScalarType> types;
  for (const ExprId arg : args) types.push_back(program_[arg].type);
  e.type = call_type(function, types);
  e.function = function;
  e.args = std::move(args);
  return build_.intern(std::move(e));
}

ExprId Parser::unary() {
  if (take("-")) {
    const bool is_number =
        peek().kind == Token::Kind::number || split(peek().text).digits == "inf" || split(peek().text).digits == "nan";
    return is_number ? number(true) : call(Function::neg, {unary()});
  }
  if (take("!")) return call(Function::logical_not, {unary()});
  return primary();
}

ExprId Parser::primary() {
  if (take("(")) {
    const ExprId inner = expression();
    expect(")");
    return inner;
  }
  if (peek().kind == Token::Kind::number) return number(false);
  if (peek().kind == Token::Kind::word) return named();
  fail_here("expected an expression");
  return {};
}

ExprId Parser::number(bool negative) {
  const Token token = peek();
  const auto [digits, suffix] = split(token.text);
  const bool special = digits == "inf" || digits == "nan";
  const bool whole = !special && digits.find_first_of(".e") == std::string::npos;
  ScalarType type = whole ? ScalarType::i32 : ScalarType::f32;
  if (!suffix.empty()) {
    const auto named_type = scalar_type(suffix);
    if (!named_type || (!whole && !is_floating(*named_type))) {
      fail_here(fmt::format("'{}' is no type for this number", suffix));
      return {};
    }
    type = *named_type;
  }
  Expr e{Expr::Kind::constant, type};
  if (special) {
    e.number = digits == "inf" ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else {
    std::from_chars(digits.data(), digits.data() + digits.size(), e.number);
  }
  if (negative) e.number = is_floating(type) ? std::copysign(e.number, -1) : -e.number;
  ++at_;
  return build_.intern(std::move(e));
}

std::vector<ExprId> Parser::arguments(std::string_view close) {
  std::vector<ExprId> args;
  while (!take(close) && !error_) {
    if (!args.empty()) expect(",");
    args.push_back(expression());
  }
  return args;
}

int Parser::coordinate() {
  const std::string& text = peek().text;
  int dim = 0;
  const auto [end, code] = std::from_chars(text.data() + 1, text.data() + text.size(), dim);
  if (peek().kind != Token::Kind::word || text.size() < 2 || text[0] != 'c' || code != std::errc{} ||
      end != text.data() + text.size()) {
    fail_here("expected a coordinate: c0, c1, ...");
    return 0;
  }
  ++at_;
  return dim;
}

ExprId Parser::named() {
  const Token token = peek();
  const std::string& text = token.text;
  if (take("instance")) return build_.instance();
  if (take("cluster_rank")) return build_.cluster_rank();
  if (take("true")) return build_.truth(true);
  if (take("false")) return build_.truth(false);
  if (const auto head = split(text).digits; head == "inf" || head == "nan") return number(false);
  if (const auto type = scalar_type(text)) {
    ++at_;
    expect("(");
    Expr e{Expr::Kind::convert, *type};
    e.args = {expression()};
    expect(")");
    return error_ ? ExprId{} : build_.intern(std::move(e));
  }
  if (const auto function = function_named(text)) {
    ++at_;
    expect("(");
    std::vector<ExprId> args = arguments(")");
    if (!error_ && static_cast<int>(args.size()) != info(*function).operands)
      fail_at_token(token, fmt::format("{} takes {} operands, found {}", text, info(*function).operands, args.size()));
    return call(*function, std::move(args));
  }
  if (is_reserved(text) && text[0] == 'c' && text.size() > 1 && text[1] >= '0' && text[1] <= '9')
    return build_.coord(coordinate());
  if (const auto at = params_.ids.find(text); at != params_.ids.end() && take(text)) return build_.param(at->second);
  if (const auto at = vars_.ids.find(text); at != vars_.ids.end() && take(text)) return build_.var(at->second);
  if (const auto at = fragments_.ids.find(text); at != fragments_.ids.end() && take(text)) {
    expect("[");
    std::vector<int> dims;
    while (!take("]") && !error_) {
      if (!dims.empty()) expect(",");
      dims.push_back(coordinate());
    }
    return error_ ? ExprId{} : build_.fragment(at->second, std::move(dims));
  }
  fail_here("expected an expression; there is no param, var or fragment of this name");
  return {};
}

}  // namespace pipethreader::program
