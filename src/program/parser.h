// The parser of device programs. After the first failure it stands at the end of the text, where every reader returns
// at once; so readers need not look at failures, and the first one is what the caller gets.
#pragma once

#include <charconv>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "program/expr_builder.h"
#include "program/lexer.h"
#include "program/program.h"

namespace pipethreader::program {

class Parser {
 public:
  Parser(Tokens tokens, const std::string& file);
  Result<Program> run();

 private:
  // Tokens.
  [[nodiscard]] const Token& peek() const { return tokens_.list[at_]; }
  [[nodiscard]] bool at_end() const { return peek().kind == Token::Kind::end; }
  [[nodiscard]] bool sees(std::string_view text) const;  // a word or symbol
  bool take(std::string_view text);
  void expect(std::string_view text);
  std::string word(std::string_view what);
  std::int64_t integer(std::string_view what);
  int small(std::string_view what);
  void fail_here(std::string message, std::string hint = {});
  void fail_at_token(const Token& token, std::string message, std::string hint = {});

  // Names. Each space maps a name to its index.
  template <class Tag>
  struct Names {
    std::string_view kind;
    std::map<std::string, Id<Tag>, std::less<>> ids;
  };
  template <class Tag>
  std::string declare(Names<Tag>& names, Id<Tag> id);
  template <class Tag>
  Id<Tag> use(const Names<Tag>& names);

  // Declarations (parse.cpp).
  void declaration();
  void read_param(bool dim);
  void read_tensor(bool output);
  void read_map();
  void read_ring();
  void read_buffer();
  void read_barrier();
  void read_vars();
  void read_layout();
  layout::Layout layout_value();
  std::vector<int> integers();
  void read_fragment();
  void read_role();
  Swizzle swizzle();
  layout::Stairs stairs();
  ScalarType type();
  void claim_value_name(const std::string& name, const Token& token);
  void resolve_roles();

  // Expressions (parse_expr.cpp).
  ExprId expression(int outer = 0);
  ExprId unary();
  ExprId primary();
  ExprId number(bool negative);
  ExprId named();
  ExprId call(Function function, std::vector<ExprId> args);
  std::vector<ExprId> arguments(std::string_view close);
  int coordinate();

  // Instructions (parse_instr.cpp).
  Block block();
  void instruction(Block& into);
  void attach_comment(Instr& instr, const Token& last);
  BufferRef buffer_ref();
  int lag();
  Access access();
  Operand operand();
  BufferId scratch();
  const layout::Layout& domain();
  template <class Op>
  Op read();

  Tokens tokens_;
  std::string file_;
  std::size_t at_ = 0;
  std::optional<Error> error_;
  Program program_;
  ExprBuilder build_{program_};
  Names<ProgramParamTag> params_{"param", {}};
  Names<ProgramVarTag> vars_{"var", {}};
  Names<ProgramFragmentTag> fragments_{"fragment", {}};
  Names<ProgramTensorTag> tensors_{"tensor", {}};
  Names<ProgramMapTag> maps_{"tensor map", {}};
  Names<ProgramBufferTag> buffers_{"buffer", {}};
  Names<ProgramRingTag> rings_{"ring", {}};
  Names<ProgramBarrierTag> barriers_{"barrier", {}};
  Names<ProgramRoleTag> roles_{"role", {}};
  Names<struct LayoutTag> layout_names_{"layout", {}};
  std::vector<layout::Layout> layouts_;
  std::vector<Token> fragment_roles_;  // roles are declared after the fragments that name them
};

template <class Tag>
std::string Parser::declare(Names<Tag>& names, Id<Tag> id) {
  const Token token = peek();
  const std::string name = word(fmt::format("a name for the {}", names.kind));
  if (error_) return name;
  if (!names.ids.emplace(name, id).second)
    fail_at_token(token, fmt::format("there is already a {} '{}'", names.kind, name));
  return name;
}

template <class Tag>
Id<Tag> Parser::use(const Names<Tag>& names) {
  const Token token = peek();
  const std::string name = word(fmt::format("the name of a {}", names.kind));
  if (error_) return {};
  const auto at = names.ids.find(name);
  if (at != names.ids.end()) return at->second;
  std::string known;
  for (const auto& [other, id] : names.ids) known += (known.empty() ? "" : ", ") + other;
  fail_at_token(token, fmt::format("there is no {} '{}'", names.kind, name),
                known.empty() ? "none is declared" : "declared are: " + known);
  return {};
}

}  // namespace pipethreader::program
