// Makes a Program of a kernel: the tables, then statement by statement, with what surrounds each expression.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "oracle/program.h"

namespace pipethreader::oracle {

// What surrounds an expression.
struct Context {
  AxisSet bound;         // axes with a current index
  AxisSet reduced;       // of those, bound by a reduction around here
  bool product = false;  // a factor of a product that enters a sum
  bool final = false;    // its value is what a store writes
};

class Builder {
 public:
  Builder(const kernel::Kernel& kernel, const std::vector<std::int64_t>& sizes, const std::vector<double>& scalars)
      : kernel_(kernel), sizes_(sizes), scalars_(scalars) {}

  Result<Program> build();

 private:
  void add_tables();
  void find_loosely_scaled();
  bool is_product_with(kernel::ExprId id, kernel::ValueId value) const;
  bool is_rescaled_sum(const kernel::Assign& node) const;
  bool accumulates(kernel::ValueId target, kernel::ExprId from, bool plus) const;
  void enter_state(const std::vector<kernel::StatementId>& ids);
  int statement(kernel::StatementId id);
  std::vector<int> body(const std::vector<kernel::StatementId>& ids);
  int assign(const kernel::Assign& node, SourceSpan span);
  int carry(const kernel::Carry& node, SourceSpan span);
  int store(const kernel::Store& node, SourceSpan span);
  int loop(const kernel::Loop& node, SourceSpan span);

  int expr(kernel::ExprId id, const Context& context);
  void complete_call(Node& node, const kernel::Expr& e, const Context& context);
  void complete_reduce(Node& node, const kernel::Expr& e, const Context& context);
  void complete_value(Node& node, const kernel::Expr& e, const Context& context);
  int add(Node node);
  int call(Function function, std::vector<int> args);
  int axis_node(int axis);
  int mask(const AxisSet& bound);
  int statement_mask(const AxisSet& axes);

  AxisSet free_axes(kernel::ExprId id) const;
  bool depends_on_state(kernel::ExprId id) const;
  bool loosely_scaled(kernel::ExprId id) const;
  void visit_assignments(const std::vector<kernel::StatementId>& ids, const auto& visit) const;
  void fail_once(SourceSpan span, std::string message);

  const kernel::Kernel& kernel_;
  const std::vector<std::int64_t>& sizes_;
  const std::vector<double>& scalars_;
  Program program_;
  std::vector<bool> state_dependent_;  // by value: follows from state that an enclosing loop carries
  std::vector<bool> loosely_scaled_;   // by value: see find_loosely_scaled
  std::set<int> defined_;              // values assigned so far
  int condition_ = -1;                 // the conjunction of the enclosing `where`s
  int loop_ = -1;                      // the innermost loop being built
  std::map<std::pair<int, std::vector<int>>, int> mask_values_;  // (loop, axes) -> value
  int target_ = -1;                                              // of the assignment being built
  bool reads_target_ = false;
  std::optional<Error> error_;
};

inline void Builder::visit_assignments(const std::vector<kernel::StatementId>& ids, const auto& visit) const {
  for (const kernel::StatementId id : ids) {
    const auto& node = kernel_[id].node;
    if (const auto* assign = std::get_if<kernel::Assign>(&node))
      visit(assign->target, assign->expr, assign->accumulate);
    if (const auto* carry = std::get_if<kernel::Carry>(&node)) visit(carry->target, carry->init, false);
    if (const auto* loop = std::get_if<kernel::Loop>(&node)) {
      visit_assignments(loop->body, visit);
      if (loop->combine) visit_assignments(loop->combine->body, visit);
    }
  }
}

}  // namespace pipethreader::oracle
