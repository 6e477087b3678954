// What depends on carried state, and how: which conversions are charged a whole step, which sums run over all tiles.
#include "oracle/builder.h"

#include <algorithm>

namespace pipethreader::oracle {

using namespace kernel;
using Kind = Expr::Kind;

namespace {

std::size_t position(std::int32_t index) { return static_cast<std::size_t>(index); }

}  // namespace

bool Builder::depends_on_state(ExprId id) const {
  const Expr& e = kernel_[id];
  if (e.kind == Kind::value && state_dependent_[position(e.value.index)]) return true;
  return std::any_of(e.args.begin(), e.args.end(), [&](ExprId arg) { return depends_on_state(arg); });
}

// v += e, v = v + e, v = max(v, e), v = min(v, e).
bool Builder::accumulates(ValueId target, ExprId from, bool plus) const {
  const Expr& e = kernel_[from];
  if (plus) return true;
  if (e.kind != Kind::call || e.args.size() != 2) return false;
  const Expr& first = kernel_[e.args[0]];
  const bool folds = e.function == Function::add || e.function == Function::max || e.function == Function::min;
  return folds && first.kind == Kind::value && first.value == target;
}

// State that a loop only adds to, or takes the maximum of, ends the same for every partition, up to rounding. Other
// state may end with another scale or shift (sums relative to a stale maximum), which divides out later; until it does,
// what follows from it is loosely scaled, and a conversion may round it anywhere within a step.
void Builder::find_loosely_scaled() {
  loosely_scaled_.assign(kernel_.values.size(), false);
  bool changed = true;
  while (changed) {
    changed = false;
    const auto visit = [&](bool in_loop) {
      return [&, in_loop](ValueId target, ExprId from, bool plus) {
        if (loosely_scaled_[position(target.index)]) return;
        const bool state = in_loop && kernel_[target].carried && !accumulates(target, from, plus);
        if (state || loosely_scaled(from)) loosely_scaled_[position(target.index)] = changed = true;
      };
    };
    visit_assignments(kernel_.body, visit(false));
    for (const Statement& statement : kernel_.statements)
      if (const auto* loop = std::get_if<Loop>(&statement.node)) visit_assignments(loop->body, visit(true));
  }
}

bool Builder::loosely_scaled(ExprId id) const {
  const Expr& e = kernel_[id];
  if (e.kind == Kind::value) return loosely_scaled_[position(e.value.index)];
  const bool compares = e.kind == Kind::call && info(e.function).gives_boolean;
  const bool divides = e.kind == Kind::call && e.function == Function::div;
  if (compares) return false;
  if (divides) return loosely_scaled(e.args[0]) != loosely_scaled(e.args[1]);
  return std::any_of(e.args.begin(), e.args.end(), [&](ExprId arg) { return loosely_scaled(arg); });
}

// Marks what follows, in a loop's body, from the state that the loop carries.
void Builder::enter_state(const std::vector<StatementId>& ids) {
  bool changed = true;
  while (changed) {
    changed = false;
    visit_assignments(ids, [&](ValueId target, ExprId from, bool) {
      if (state_dependent_[position(target.index)] || (!kernel_[target].carried && !depends_on_state(from))) return;
      state_dependent_[position(target.index)] = changed = true;
    });
  }
}

// v * e or e * v.
bool Builder::is_product_with(ExprId id, ValueId value) const {
  const Expr& e = kernel_[id];
  if (e.kind != Kind::call || e.function != Function::mul) return false;
  return std::any_of(e.args.begin(), e.args.end(),
                     [&](ExprId arg) { return kernel_[arg].kind == Kind::value && kernel_[arg].value == value; });
}

// v = v * e + sum[...] f or v = v + sum[...] f.
bool Builder::is_rescaled_sum(const Assign& node) const {
  const Expr& e = kernel_[node.expr];
  if (e.kind != Kind::call || e.function != Function::add || !is_floating(e.type)) return false;
  const Expr& base = kernel_[e.args[0]];
  const Expr& added = kernel_[e.args[1]];
  const bool own = base.kind == Kind::value && base.value == node.target;
  return added.kind == Kind::reduce && added.reduce == ReduceOp::sum &&
         (own || is_product_with(e.args[0], node.target));
}

}  // namespace pipethreader::oracle
