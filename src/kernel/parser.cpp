#include "kernel/parser.h"

#include <algorithm>
#include <array>

namespace pipethreader::kernel {
namespace {

constexpr std::size_t kLargestFile = 1 << 20;

std::string found(const Token& token) {
  if (token.kind == Token::Kind::end) return "the end of the file";
  return fmt::format("'{}'", token.text.substr(0, 40));
}

std::string all_types() {
  std::string text;
  for (int i = 0; i <= static_cast<int>(ScalarType::boolean); ++i)
    text += (i > 0 ? ", " : "") + std::string(name(static_cast<ScalarType>(i)));
  return text;
}

}  // namespace

bool is_reserved(std::string_view word) {
  constexpr std::array<std::string_view, 14> words = {"kernel",  "option", "require", "parallel", "inner",
                                                      "carry",   "for",    "ordered", "where",    "when",
                                                      "combine", "true",   "false",   "inf"};
  if (std::find(words.begin(), words.end(), word) != words.end() || word == "sum") return true;
  if (scalar_type(word)) return true;
  const auto function = function_named(word);
  return function && info(*function).symbol.empty();
}

Result<std::vector<Kernel>> parse(const std::string& text, const std::string& file) {
  Reporter reporter(file);
  if (text.size() > kLargestFile) {
    reporter.report(Message::file_too_large, {1, 1}, text.size(), kLargestFile);
    return tl::unexpected(reporter.take());
  }
  std::vector<Token> tokens = lex(text, reporter);
  if (reporter.failed()) return tl::unexpected(reporter.take());
  std::vector<Kernel> kernels = Parser(std::move(tokens), file, reporter).file();
  if (reporter.failed()) return tl::unexpected(reporter.take());
  return kernels;
}

// --- tokens ----------------------------------------------------------------------------------------------------

Token Parser::take() {
  const Token token = peek();
  if (!at_end()) ++at_;
  return token;
}

bool Parser::accept(std::string_view word) {
  if (!is(word)) return false;
  take();
  return true;
}

void Parser::expect(std::string_view word) {
  if (!accept(word)) fail_expected(fmt::format("'{}'", word));
}

// Where something is missing: here, or, when the line ended before, at that end.
SourceSpan Parser::missing_place() const {
  if (at_ == 0 || tokens_[at_ - 1].span.line == peek().span.line) return peek().span;
  const Token& before = tokens_[at_ - 1];
  return {before.span.line, before.span.column + static_cast<std::uint32_t>(before.text.size())};
}

void Parser::fail_expected(std::string_view what) {
  // The end that stop() makes is no fault of its own.
  if (!at_end() || !reporter_.failed()) reporter_.report(Message::expected, missing_place(), what, found(peek()));
  stop();
}

std::string Parser::new_name(std::string_view what) {
  if (peek().kind != Token::Kind::name) {
    fail_expected(what);
    return {};
  }
  const Token token = take();
  if (is_reserved(token.text)) reporter_.report(Message::reserved_name, token.span, token.text);
  return std::string(token.text);
}

std::string Parser::old_name(std::string_view what) {
  if (peek().kind != Token::Kind::name) {
    fail_expected(what);
    return {};
  }
  return std::string(take().text);
}

// The line of the next statement that begins with `name`, if any.
std::uint32_t Parser::assigned_later(const std::string& name) const {
  for (std::size_t i = at_; i + 1 < tokens_.size() && !tokens_[i].is("kernel"); ++i) {
    const Token& before = tokens_[i];
    const Token& token = tokens_[i + 1];
    const bool starts = before.is(";") || before.is("{") || before.is("}") || before.is("carry");
    if (starts && token.kind == Token::Kind::name && token.text == name) return token.span.line;
  }
  return 0;
}

bool Parser::enter(SourceSpan span) {
  if (++depth_ <= kDeepestNesting) return true;
  reporter_.report(Message::too_deep, span, kDeepestNesting);
  stop();
  return false;
}

// --- kernels ---------------------------------------------------------------------------------------------------

std::vector<Kernel> Parser::file() {
  std::vector<Kernel> kernels;
  if (at_end()) reporter_.report(Message::no_kernel, peek().span);
  while (!at_end()) {
    const SourceSpan span = peek().span;
    kernels.push_back(kernel());
    for (std::size_t i = 0; i + 1 < kernels.size(); ++i)
      if (kernels[i].name == kernels.back().name) reporter_.report(Message::duplicate_kernel, span, kernels[i].name);
  }
  return kernels;
}

Kernel Parser::kernel() {
  expect("kernel");
  Assembler assembler(new_name("a kernel name"), file_, reporter_);
  assembler.look_ahead_with([this](const std::string& name) { return assigned_later(name); });
  assembler_ = &assembler;
  parameters();
  expect("->");
  outputs();
  expect("{");
  declarations();
  while (!at_end() && !is("}")) statement();
  expect("}");
  return assembler.take();
}

ScalarType Parser::type() {
  const Token token = peek();
  if (token.kind != Token::Kind::name) {
    fail_expected("a type");
    return ScalarType::f32;
  }
  take();
  const auto found_type = scalar_type(token.text);
  if (!found_type) reporter_.report(Message::unknown_type, token.span, token.text, all_types());
  return found_type.value_or(ScalarType::f32);
}

std::vector<ExprId> Parser::shape() {
  std::vector<ExprId> sizes;
  in_shape_ = true;
  while (!at_end() && !is("]")) {
    sizes.push_back(size());
    if (!accept(",")) break;
  }
  in_shape_ = false;
  expect("]");
  return sizes;
}

void Parser::parameters() {
  expect("(");
  while (!at_end() && !is(")")) {
    const SourceSpan span = peek().span;
    const std::string name = new_name("a parameter name");
    expect(":");
    const ScalarType t = type();
    if (accept("["))
      assembler_->tensor(name, t, shape(), false, span);
    else if (!at_end())
      assembler_->scalar(name, t, span);
    if (!accept(",")) break;
  }
  expect(")");
}

void Parser::outputs() {
  expect("(");
  while (!at_end() && !is(")")) {
    const SourceSpan span = peek().span;
    const std::string name = new_name("an output name");
    expect(":");
    const ScalarType t = type();
    if (accept("["))
      assembler_->tensor(name, t, shape(), true, span);
    else if (!at_end())
      reporter_.report(Message::output_without_shape, span, name, pipethreader::name(t));
    if (!accept(",")) break;
  }
  expect(")");
}

void Parser::declarations() {
  while (!at_end()) {
    if (accept("option"))
      option();
    else if (accept("require"))
      require();
    else if (accept("parallel"))
      parallel();
    else if (accept("inner"))
      inner();
    else
      return;
  }
}

void Parser::option() {
  const SourceSpan span = peek().span;
  const std::string name = new_name("an option name");
  expect(":");
  const ScalarType t = type();
  if (t != ScalarType::boolean && t != ScalarType::i32 && t != ScalarType::f32)
    reporter_.report(Message::type_not_supported, span, pipethreader::name(t), "an option",
                     "options are bool, i32 or f32");
  expect("=");
  const SourceSpan value_span = peek().span;
  const bool negative = accept("-");
  const Token token = take();
  const bool truth = token.is("true") || token.is("false");
  const bool number = token.kind == Token::Kind::number || token.is("inf");
  const bool fits = t == ScalarType::boolean ? truth && !negative
                    : t == ScalarType::i32   ? token.kind == Token::Kind::integer && token.number <= 2147483647.0
                                             : token.kind == Token::Kind::integer || number;
  if (!fits && !at_end())
    reporter_.report(Message::bad_option_value, value_span, name, pipethreader::name(t), found(token));
  double value = token.is("true") ? 1 : token.is("inf") ? std::numeric_limits<double>::infinity() : token.number;
  if (negative) value = -value;
  assembler_->option(name, t, value, span);
  expect(";");
}

void Parser::require() {
  assembler_->require(expression());
  expect(";");
}

void Parser::parallel() {
  do {
    const SourceSpan span = peek().span;
    const std::string name = new_name("an axis name");
    expect(":");
    const ExprId extent = size();
    if (!at_end()) assembler_->axis(name, AxisKind::parallel, extent, span);
  } while (accept(","));
  expect(";");
}

void Parser::inner() {
  do {
    const SourceSpan span = peek().span;
    const std::string name = new_name("an axis name");
    expect(":");
    const ExprId extent = size();
    if (!at_end()) assembler_->axis(name, AxisKind::inner, extent, span);
  } while (accept(","));
  expect(";");
}

// --- statements ------------------------------------------------------------------------------------------------

std::vector<StatementId> Parser::block() {
  expect("{");
  while (!at_end() && !is("}")) statement();
  expect("}");
  return assembler_->close_block();
}

void Parser::statement() {
  for (std::string_view word : {"option", "require", "parallel", "inner"})
    if (is(word)) {
      reporter_.report(Message::late_declaration, peek().span, word);
      return stop();
    }
  if (accept("carry")) return carry();
  if (is("for")) return loop();
  assignment();
}

void Parser::carry() {
  do {
    const Assembler::Target t = target();
    expect("=");
    const ExprId init = expression();
    if (!at_end()) assembler_->carry(t, init);
  } while (accept(","));
  expect(";");
}

void Parser::loop() {
  const SourceSpan span = take().span;
  if (!enter(span)) return;
  Loop loop;
  loop.ordered = accept("ordered");
  const SourceSpan axis_span = peek().span;
  const std::string name = new_name("an axis name");
  expect(":");
  const ExprId extent = size();
  assembler_->open_block();
  loop.axis = assembler_->axis(name, AxisKind::streamed, extent, axis_span);
  if (accept("where")) loop.where = expression();
  loop.body = block();
  if (is("combine")) combine(loop);
  assembler_->loop(std::move(loop), span);
  --depth_;
}

void Parser::combine(Loop& loop) {
  const SourceSpan span = take().span;
  std::vector<std::string> names;
  expect("(");
  while (!at_end() && !is(")")) {
    names.push_back(new_name("a name for the second partial state"));
    if (!accept(",")) break;
  }
  expect(")");
  if (at_end()) return;
  Combine combined;
  assembler_->open_block();
  const bool named = assembler_->combine_names(combined, loop.body, names, span);
  if (!named) stop();
  combined.body = block();
  loop.combine = std::move(combined);
}

Assembler::Target Parser::target() {
  Assembler::Target t;
  t.span = peek().span;
  t.name = new_name("a statement");
  if (accept("[")) {
    while (!at_end() && !is("]")) {
      t.indices.push_back(target_index());
      if (!accept(",")) break;
    }
    expect("]");
  }
  if (accept(":")) t.type = type();
  return t;
}

ExprId Parser::target_index() {
  const bool plain = peek().kind == Token::Kind::name && (peek(1).is(",") || peek(1).is("]"));
  if (!plain || is_reserved(peek().text)) return expression();
  const Token token = take();
  return assembler_->target_index(std::string(token.text), token.span);
}

void Parser::assignment() {
  const Assembler::Target t = target();
  const bool accumulate = accept("+=");
  if (!accumulate) expect("=");
  const ExprId expr = expression();
  std::optional<ExprId> when;
  if (accept("when")) when = expression();
  if (!is(";")) return fail_expected("';'");
  assembler_->assign(t, accumulate, expr, when);
  take();
}

}  // namespace pipethreader::kernel
