#include "task/affine.h"

#include "task/rewrite.h"

namespace pipethreader::task {

using namespace kernel;

namespace {

Linear scaled(Linear form, std::int64_t factor) {
  for (auto& [axis, coefficient] : form.axes) coefficient *= factor;
  for (auto& [coefficient, expr] : form.uniform) coefficient *= factor;
  form.constant *= factor;
  return form;
}

Linear sum(Linear a, const Linear& b) {
  for (const auto& [axis, coefficient] : b.axes) {
    if ((a.axes[axis] += coefficient) == 0) a.axes.erase(axis);
  }
  a.uniform.insert(a.uniform.end(), b.uniform.begin(), b.uniform.end());
  a.constant += b.constant;
  return a;
}

bool is_constant(const Linear& form) { return form.axes.empty() && form.uniform.empty(); }

}  // namespace

std::optional<Linear> linear(const Kernel& kernel, ExprId id, const std::set<AxisId>& tiled) {
  const Expr& e = kernel[id];
  Linear form;
  if (e.kind == Expr::Kind::literal) {
    form.constant = static_cast<std::int64_t>(e.number);
    return form;
  }
  if (e.kind == Expr::Kind::dim && kernel[e.dim].size) {
    form.constant = *kernel[e.dim].size;
    return form;
  }
  if (e.kind == Expr::Kind::axis && tiled.contains(e.axis)) {
    form.axes[e.axis] = 1;
    return form;
  }
  if (e.kind == Expr::Kind::call && (e.function == Function::add || e.function == Function::sub ||
                                     e.function == Function::mul || e.function == Function::neg)) {
    const auto a = linear(kernel, e.args[0], tiled);
    if (!a) return std::nullopt;
    if (e.function == Function::neg) return scaled(*a, -1);
    const auto b = linear(kernel, e.args[1], tiled);
    if (!b) return std::nullopt;
    if (e.function == Function::add) return sum(*a, *b);
    if (e.function == Function::sub) return sum(*a, scaled(*b, -1));
    if (is_constant(*a)) return scaled(*b, a->constant);
    if (is_constant(*b)) return scaled(*a, b->constant);
  }
  for (const AxisId axis : axes_of(kernel, id)) {
    if (tiled.contains(axis)) return std::nullopt;
  }
  if (!values_of(kernel, id).empty() || e.kind == Expr::Kind::access) return std::nullopt;
  form.uniform.emplace_back(1, id);
  return form;
}

Conjunction conjunction(const Kernel& kernel, ExprId condition, const std::set<AxisId>& tiled) {
  Conjunction result;
  const std::function<void(ExprId)> visit = [&](ExprId id) {
    const Expr& e = kernel[id];
    if (e.kind == Expr::Kind::literal && e.number != 0) return;
    if (e.kind != Expr::Kind::call) {
      result.opaque.push_back(id);
      return;
    }
    if (e.function == Function::logical_and) {
      visit(e.args[0]);
      visit(e.args[1]);
      return;
    }
    const bool comparison = e.function == Function::lt || e.function == Function::le || e.function == Function::gt ||
                            e.function == Function::ge || e.function == Function::eq;
    if (!comparison || is_floating(kernel[e.args[0]].type) || is_floating(kernel[e.args[1]].type)) {
      result.opaque.push_back(id);
      return;
    }
    const auto a = linear(kernel, e.args[0], tiled);
    const auto b = linear(kernel, e.args[1], tiled);
    if (!a || !b) {
      result.opaque.push_back(id);
      return;
    }
    const auto at_least_zero = [&](const Linear& high, const Linear& low, std::int64_t slack) {
      Linear form = sum(high, scaled(low, -1));
      form.constant -= slack;
      result.inequalities.push_back(form);
    };
    switch (e.function) {
      case Function::lt:
        at_least_zero(*b, *a, 1);
        break;
      case Function::le:
        at_least_zero(*b, *a, 0);
        break;
      case Function::gt:
        at_least_zero(*a, *b, 1);
        break;
      case Function::ge:
        at_least_zero(*a, *b, 0);
        break;
      default:
        at_least_zero(*b, *a, 0);
        at_least_zero(*a, *b, 0);
        break;
    }
  };
  visit(condition);
  return result;
}

}  // namespace pipethreader::task
