#include "kernel/analysis.h"

#include <algorithm>

namespace pipethreader::kernel {
namespace {

void collect(const Kernel& k, ExprId id, std::vector<AxisId>& bound, std::vector<AxisId>& found) {
  const Expr& e = k[id];
  const auto has = [](const std::vector<AxisId>& list, AxisId a) {
    return std::find(list.begin(), list.end(), a) != list.end();
  };
  if (e.kind == Expr::Kind::axis && !has(bound, e.axis) && !has(found, e.axis)) found.push_back(e.axis);
  const std::size_t outer = bound.size();
  bound.insert(bound.end(), e.axes.begin(), e.axes.end());
  for (ExprId arg : e.args) collect(k, arg, bound, found);
  bound.resize(outer);
}

}  // namespace

std::vector<AxisId> free_axes(const Kernel& kernel, ExprId expr) {
  std::vector<AxisId> bound;
  std::vector<AxisId> found;
  collect(kernel, expr, bound, found);
  return found;
}

void visit_exprs(const Kernel& kernel, ExprId root, const std::function<void(ExprId)>& visit) {
  visit(root);
  for (ExprId arg : kernel[root].args) visit_exprs(kernel, arg, visit);
}

bool is_static(const Kernel& kernel, ExprId expr) {
  const Expr& e = kernel[expr];
  switch (e.kind) {
    case Expr::Kind::literal:
    case Expr::Kind::dim:
    case Expr::Kind::option:
      return true;
    case Expr::Kind::call:
      return std::all_of(e.args.begin(), e.args.end(), [&](ExprId a) { return is_static(kernel, a); });
    default:
      return false;
  }
}

bool is_quasi_affine(const Kernel& kernel, ExprId expr) {
  const Expr& e = kernel[expr];
  if (e.kind == Expr::Kind::axis || e.kind == Expr::Kind::scalar || is_static(kernel, expr)) return true;
  if (e.kind != Expr::Kind::call) return false;
  switch (e.function) {
    case Function::neg:
      return is_quasi_affine(kernel, e.args[0]);
    case Function::add:
    case Function::sub:
      return is_quasi_affine(kernel, e.args[0]) && is_quasi_affine(kernel, e.args[1]);
    case Function::mul:
      return is_quasi_affine(kernel, e.args[0]) && is_quasi_affine(kernel, e.args[1]) &&
             (is_static(kernel, e.args[0]) || is_static(kernel, e.args[1]));
    case Function::div:
    case Function::mod:
      return is_quasi_affine(kernel, e.args[0]) && is_static(kernel, e.args[1]);
    default:
      return false;
  }
}

}  // namespace pipethreader::kernel
