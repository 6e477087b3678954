// Recursive descent over the tokens of one file; drives an Assembler per kernel. After the first fault of syntax the
// rest of the file counts as ended, so that no loop here needs to know of faults; faults of names do not stop it.
#pragma once

#include <string>
#include <vector>

#include "kernel/assembler.h"
#include "kernel/lexer.h"

namespace pipethreader::kernel {

class Parser {
 public:
  Parser(std::vector<Token> tokens, std::string file, Reporter& reporter)
      : tokens_(std::move(tokens)), file_(std::move(file)), reporter_(reporter) {}

  std::vector<Kernel> file();

 private:
  // tokens
  [[nodiscard]] const Token& peek(std::size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  [[nodiscard]] bool at_end() const { return peek().kind == Token::Kind::end; }
  [[nodiscard]] bool is(std::string_view word) const { return peek().is(word); }
  Token take();
  bool accept(std::string_view word);
  void expect(std::string_view word);
  [[nodiscard]] SourceSpan missing_place() const;
  void fail_expected(std::string_view what);
  void stop() { at_ = tokens_.size() - 1; }
  std::string new_name(std::string_view what);  // refuses words of the language
  std::string old_name(std::string_view what);
  [[nodiscard]] std::uint32_t assigned_later(const std::string& name) const;
  bool enter(SourceSpan span);  // one level deeper; false, and the file ends, when too deep

  // kernels (parser.cpp)
  Kernel kernel();
  void parameters();
  void outputs();
  ScalarType type();
  std::vector<ExprId> shape();
  void declarations();
  void option();
  void require();
  void parallel();
  void inner();
  std::vector<StatementId> block();
  void statement();
  void carry();
  void loop();
  void combine(Loop& loop);
  void assignment();
  Assembler::Target target();
  ExprId target_index();

  // expressions (parse_expression.cpp)
  ExprId expression();
  ExprId size();  // an extent: an expression without comparisons
  ExprId binary(int binding);
  ExprId unary();
  ExprId primary();
  ExprId reduction();
  ExprId name_or_call();
  std::vector<ExprId> list(std::string_view close);

  std::vector<Token> tokens_;
  std::string file_;
  Reporter& reporter_;
  Assembler* assembler_ = nullptr;  // of the kernel being parsed
  bool in_shape_ = false;           // unknown names introduce dims
  std::size_t at_ = 0;
  int depth_ = 0;
};

[[nodiscard]] bool is_reserved(std::string_view word);

}  // namespace pipethreader::kernel
