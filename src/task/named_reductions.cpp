#include "task/named_reductions.h"

#include "task/rewrite.h"

namespace pipethreader::task {

using namespace kernel;

namespace {

class Namer {
 public:
  explicit Namer(Kernel& kernel) : kernel_(kernel) {}

  std::vector<StatementId> body(const std::vector<StatementId>& statements) {
    std::vector<StatementId> out;
    for (const StatementId id : statements) {
      Statement statement = kernel_[id];
      if (auto* loop = std::get_if<Loop>(&statement.node)) {
        loop->body = body(loop->body);
      } else if (auto* carry = std::get_if<Carry>(&statement.node)) {
        carry->init = named(carry->init, kernel_[carry->target].name, statement.span, out);
      } else if (auto* assign = std::get_if<Assign>(&statement.node)) {
        assign->expr = named(assign->expr, kernel_[assign->target].name, statement.span, out);
        if (assign->when) assign->when = named(*assign->when, kernel_[assign->target].name, statement.span, out);
      } else if (auto* store = std::get_if<Store>(&statement.node)) {
        store->expr = named(store->expr, kernel_[store->tensor].name, statement.span, out);
        if (store->when) store->when = named(*store->when, kernel_[store->tensor].name, statement.span, out);
      }
      kernel_.statements[static_cast<std::size_t>(id.index)] = std::move(statement);
      out.push_back(id);
    }
    return out;
  }

 private:
  ExprId named(ExprId id, const std::string& stem, SourceSpan span, std::vector<StatementId>& out) {
    Expr e = kernel_[id];
    const bool reduces = e.kind == Expr::Kind::reduce;
    if (reduces) around_.push_back(id);
    for (ExprId& arg : e.args) arg = named(arg, stem, span, out);
    if (reduces) around_.pop_back();
    if (e.args != kernel_[id].args) id = add_expr(kernel_, e);
    return reduces && !around_.empty() ? value_of(id, stem, span, out) : id;
  }

  // Its points are those that the reductions around it see.
  ExprId value_of(ExprId reduce, const std::string& stem, SourceSpan span, std::vector<StatementId>& out) {
    Expr e = kernel_[reduce];
    for (const ExprId outer : around_) {
      if (kernel_[outer].args.size() < 2) continue;
      const ExprId where = kernel_[outer].args[1];
      if (e.args.size() < 2)
        e.args.push_back(where);
      else
        e.args[1] = call(kernel_, Function::logical_and, ScalarType::boolean, {where, e.args[1]});
    }
    const ExprId whole = add_expr(kernel_, e);
    const std::set<AxisId> axes = axes_of(kernel_, whole);
    for (const AxisId a : axes) {
      AxisKind& kind = kernel_.axes[static_cast<std::size_t>(a.index)].kind;
      if (kind == AxisKind::reduced) kind = AxisKind::inner;
    }
    Assign assign;
    assign.target = add_value(kernel_, stem + "_part", e.type, {axes.begin(), axes.end()});
    assign.expr = whole;
    out.push_back(add_statement(kernel_, {assign, span}));
    return value_expr(kernel_, assign.target);
  }

  Kernel& kernel_;
  std::vector<ExprId> around_;  // reductions that the expression stands in, outermost first
};

}  // namespace

Kernel with_named_reductions(Kernel kernel) {
  kernel.body = Namer(kernel).body(kernel.body);
  return kernel;
}

}  // namespace pipethreader::task
