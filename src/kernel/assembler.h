// What the parser and the builder share: names, scopes and the making of nodes. A front end calls these in the order
// of the text; every name is resolved here, once, and every fault of a name is reported with its place. Shapes, types
// and domains are check()'s.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernel/kernel.h"
#include "kernel/messages.h"

namespace pipethreader::kernel {

struct Symbol {
  enum class Kind : std::uint8_t { dim, axis, tensor, scalar, option, value };
  Kind kind = Kind::dim;
  std::size_t index = 0;
};

[[nodiscard]] std::string_view describe(Symbol::Kind kind);  // "a dim"

class Assembler {
 public:
  Assembler(std::string name, std::string file, Reporter& reporter);

  [[nodiscard]] const Kernel& kernel() const { return kernel_; }
  [[nodiscard]] Reporter& reporter() { return reporter_; }
  [[nodiscard]] std::optional<Symbol> find(const std::string& name) const;

  // --- declarations --------------------------------------------------------------------------------------------
  ExprId dim(const std::string& name, SourceSpan span);  // introduced by its first use in a shape
  void tensor(const std::string& name, ScalarType type, std::vector<ExprId> shape, bool output, SourceSpan span);
  void scalar(const std::string& name, ScalarType type, SourceSpan span);
  void option(const std::string& name, ScalarType type, double value, SourceSpan span);
  AxisId axis(const std::string& name, AxisKind kind, ExprId extent, SourceSpan span);
  void require(ExprId condition) { kernel_.requirements.push_back(condition); }

  // --- expressions ---------------------------------------------------------------------------------------------
  ExprId literal(double number, ScalarType type, SourceSpan span);
  ExprId negative(ExprId number, SourceSpan span);  // the literal -number
  ExprId call(Function function, std::vector<ExprId> args, SourceSpan span);
  ExprId convert(ScalarType type, ExprId arg, SourceSpan span);
  ExprId reduce(ReduceOp op, std::vector<AxisId> axes, ExprId body, std::optional<ExprId> where, SourceSpan span);
  ExprId named(const std::string& name, SourceSpan span);                                 // `m`
  ExprId element(const std::string& name, std::vector<ExprId> indices, SourceSpan span);  // `m[i]`
  std::optional<AxisId> existing_axis(const std::string& name, SourceSpan span);          // `sum[j]`
  // A plain name among the indices on a left side; an unknown one becomes an inner axis whose range the statement
  // must tell.
  ExprId target_index(const std::string& name, SourceSpan span);

  // Lets the parser, which sees the text ahead, say where an unknown name is assigned later (a line, or 0).
  void look_ahead_with(std::function<std::uint32_t(const std::string&)> look) { look_ahead_ = std::move(look); }

  // --- statements, into the innermost open block ---------------------------------------------------------------
  struct Target {
    std::string name;
    std::vector<ExprId> indices;
    std::optional<ScalarType> type;
    SourceSpan span;
  };
  void carry(const Target& target, ExprId init);
  void assign(const Target& target, bool accumulate, ExprId expr, std::optional<ExprId> when);
  void loop(Loop loop, SourceSpan span) { add_statement({std::move(loop), span}); }
  // The values a body carries: declared outside of it and assigned in it.
  [[nodiscard]] std::vector<ValueId> carried_by(const std::vector<StatementId>& body) const;
  // Names the second partial state in the open block; false if the count does not fit.
  bool combine_names(Combine& combine, const std::vector<StatementId>& loop_body, const std::vector<std::string>& names,
                     SourceSpan span);

  void open_scope();
  void close_scope();
  void open_block();
  std::vector<StatementId> close_block();

  Kernel take();

 private:
  bool declare(const std::string& name, Symbol symbol, SourceSpan span);
  [[nodiscard]] bool may_reuse(const Symbol& old, const Symbol& fresh) const;
  void report_unknown(const std::string& name, SourceSpan span);
  [[nodiscard]] std::string axes_in_scope() const;
  ExprId add(Expr expr);
  void add_statement(Statement statement);
  std::optional<std::vector<AxisId>> plain_axes(const Target& target);
  std::optional<ValueId> target_value(const Target& target, const std::vector<AxisId>& axes);
  ValueId new_value(const Target& target, std::vector<AxisId> axes, bool carried);
  void store(const Target& target, TensorId tensor, bool accumulate, ExprId expr, std::optional<ExprId> when);
  void infer_ranges(const Target& target, ExprId expr);
  void candidates(ExprId expr, AxisId axis, std::vector<ExprId>& extents) const;

  using Scope = std::unordered_map<std::string, Symbol>;
  Kernel kernel_;
  Reporter& reporter_;
  std::vector<Scope> scopes_;
  std::unordered_map<std::string, Symbol> ended_;  // names of scopes that were closed
  std::set<std::string> reported_;                 // unknown names of the current statement: told once
  std::vector<std::vector<StatementId>> blocks_;
  std::vector<AxisId> pending_;  // inner axes of the current statement whose range is still unknown
  std::vector<int> depths_;      // of each expression: bounds the recursion of all later walks
  std::function<std::uint32_t(const std::string&)> look_ahead_;
};

// Deepest nesting in the text, and of an expression's tree: in that, a chain of 2000 sums is as deep as it is long.
// Together they bound the recursion of every walk.
inline constexpr int kDeepestNesting = 200;
inline constexpr int kDeepestTree = 2250;

[[nodiscard]] std::string axis_names(const Kernel& kernel, std::span<const AxisId> axes);    // "i,j"
[[nodiscard]] std::string axis_list(const Kernel& kernel, const std::vector<AxisId>& axes);  // "i, j", or "no axis"
[[nodiscard]] bool same_expr(const Kernel& kernel, ExprId a, ExprId b);                      // structural equality

}  // namespace pipethreader::kernel
