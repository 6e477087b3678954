// Expressions, by binding strength:  ||  &&  comparisons  + -  * / %  prefix - !  primary.
// A reduction is a prefix that takes the whole product after it: `max[j] s[i,j] * scale` is max over j of s * scale.
#include <algorithm>
#include <limits>

#include "kernel/parser.h"

namespace pipethreader::kernel {
namespace {

struct Operator {
  std::string_view symbol;
  Function function;
};

constexpr int kAdditive = 3;

// The binary operators of one binding strength, weakest first.
std::vector<Operator> operators(int binding) {
  switch (binding) {
    case 0:
      return {{"||", Function::logical_or}};
    case 1:
      return {{"&&", Function::logical_and}};
    case 2:
      return {{"<", Function::lt},  {"<=", Function::le}, {">", Function::gt},
              {">=", Function::ge}, {"==", Function::eq}, {"!=", Function::ne}};
    case kAdditive:
      return {{"+", Function::add}, {"-", Function::sub}};
    default:
      return {{"*", Function::mul}, {"/", Function::div}, {"%", Function::mod}};
  }
}

constexpr int kComparison = 2;
constexpr int kMultiplicative = 4;

std::string all_functions() {
  std::string text;
  for (int i = 0; i <= static_cast<int>(Function::cos); ++i) {
    const FunctionInfo& f = info(static_cast<Function>(i));
    if (f.symbol.empty()) text += (text.empty() ? "" : ", ") + std::string(f.name);
  }
  return text;
}

std::optional<ReduceOp> reduce_op(const Token& token) {
  if (token.is("sum")) return ReduceOp::sum;
  if (token.is("max")) return ReduceOp::max;
  if (token.is("min")) return ReduceOp::min;
  return std::nullopt;
}

}  // namespace

ExprId Parser::expression() { return binary(0); }

ExprId Parser::size() { return binary(kAdditive); }

ExprId Parser::binary(int binding) {
  if (binding > kMultiplicative) return unary();
  const SourceSpan start = peek().span;
  ExprId left = binary(binding + 1);
  const std::vector<Operator> ops = operators(binding);
  for (bool first = true; !at_end(); first = false) {
    const auto op = std::find_if(ops.begin(), ops.end(), [&](const Operator& o) { return is(o.symbol); });
    if (op == ops.end()) break;
    if (binding == kComparison && !first) {
      reporter_.report(Message::chained_comparison, peek().span);
      stop();
      break;
    }
    take();
    const ExprId right = binary(binding + 1);
    left = assembler_->call(op->function, {left, right}, start);
  }
  return left;
}

ExprId Parser::unary() {
  const SourceSpan span = peek().span;
  const bool negate = is("-");
  if (!negate && !is("!")) return primary();
  take();
  if (!enter(span)) return assembler_->literal(0, ScalarType::i32, span);
  // Only a number right after the sign makes a negative literal; -(2) stays a negation.
  const bool number = peek().kind == Token::Kind::integer || peek().kind == Token::Kind::number || is("inf");
  const ExprId arg = unary();
  --depth_;
  if (negate && number) return assembler_->negative(arg, span);
  return assembler_->call(negate ? Function::neg : Function::logical_not, {arg}, span);
}

ExprId Parser::primary() {
  const Token token = peek();
  if (token.kind == Token::Kind::integer) {
    take();
    const bool wide = token.number > std::numeric_limits<std::int32_t>::max();
    return assembler_->literal(token.number, wide ? ScalarType::i64 : ScalarType::i32, token.span);
  }
  if (token.kind == Token::Kind::number) {
    take();
    return assembler_->literal(token.number, ScalarType::f32, token.span);
  }
  if (accept("inf")) return assembler_->literal(std::numeric_limits<double>::infinity(), ScalarType::f32, token.span);
  if (accept("true")) return assembler_->literal(1, ScalarType::boolean, token.span);
  if (accept("false")) return assembler_->literal(0, ScalarType::boolean, token.span);
  ExprId result = ExprId();
  if (reduce_op(token) && peek(1).is("[")) {
    if (enter(token.span)) result = reduction();
  } else if (token.is("(")) {
    take();
    if (enter(token.span)) result = expression();
    expect(")");
  } else if (token.kind == Token::Kind::name) {
    if (enter(token.span)) result = name_or_call();
  } else {
    fail_expected("an expression");
    return assembler_->literal(0, ScalarType::i32, token.span);
  }
  --depth_;
  return result.valid() ? result : assembler_->literal(0, ScalarType::i32, token.span);
}

std::vector<ExprId> Parser::list(std::string_view close) {
  std::vector<ExprId> items;
  while (!at_end() && !is(close)) {
    items.push_back(expression());
    if (!accept(",")) break;
  }
  expect(close);
  return items;
}

ExprId Parser::name_or_call() {
  const Token token = take();
  const std::string word(token.text);
  if (accept("(")) {
    const std::vector<ExprId> args = list(")");
    if (at_end()) return ExprId();
    if (const auto type = scalar_type(word)) {
      if (args.size() == 1) return assembler_->convert(*type, args[0], token.span);
      reporter_.report(Message::wrong_argument_count, token.span, word, 1, args.size());
      return ExprId();
    }
    const auto function = function_named(word);
    if (function && info(*function).symbol.empty()) return assembler_->call(*function, args, token.span);
    reporter_.report(Message::unknown_function, token.span, word, all_functions());
    return ExprId();
  }
  if (accept("[")) {
    std::vector<ExprId> indices = list("]");
    if (at_end()) return ExprId();
    return assembler_->element(word, std::move(indices), token.span);
  }
  return in_shape_ ? assembler_->dim(word, token.span) : assembler_->named(word, token.span);
}

ExprId Parser::reduction() {
  const Token token = take();
  expect("[");
  assembler_->open_scope();
  std::vector<AxisId> axes;
  while (!at_end()) {
    const SourceSpan span = peek().span;
    if (peek(1).is(":")) {
      const std::string name = new_name("an axis name");
      take();
      const ExprId extent = size();
      axes.push_back(assembler_->axis(name, AxisKind::reduced, extent, span));
    } else if (const auto axis = assembler_->existing_axis(old_name("an axis name"), span)) {
      axes.push_back(*axis);
    }
    if (!accept(",")) break;
  }
  std::optional<ExprId> where;
  if (accept("where")) where = expression();
  expect("]");
  const ExprId body = binary(kMultiplicative);
  assembler_->close_scope();
  for (std::size_t i = 0; i < axes.size(); ++i)
    if (std::find(axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(i), axes[i]) !=
        axes.begin() + static_cast<std::ptrdiff_t>(i))
      reporter_.report(Message::repeated_axis, token.span, std::string(token.text) + "[...]",
                       assembler_->kernel()[axes[i]].name);
  return assembler_->reduce(*reduce_op(token), std::move(axes), body, where, token.span);
}

}  // namespace pipethreader::kernel
