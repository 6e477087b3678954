// Questions about expressions that several stages ask.
#pragma once

#include <functional>
#include <vector>

#include "kernel/kernel.h"

namespace pipethreader::kernel {

// The axes an expression depends on by name: those it uses and no reduction inside binds. Parallel axes that a value
// depends on without listing them are not among them. In the order of first use.
[[nodiscard]] std::vector<AxisId> free_axes(const Kernel& kernel, ExprId expr);

// Calls `visit` for the expression and everything below it, parents first.
void visit_exprs(const Kernel& kernel, ExprId root, const std::function<void(ExprId)>& visit);

// Whether an expression is fixed by dims, options and integers alone.
[[nodiscard]] bool is_static(const Kernel& kernel, ExprId expr);

// Quasi-affine: sums of axes times static factors, floor-divided by or modulo static divisors.
[[nodiscard]] bool is_quasi_affine(const Kernel& kernel, ExprId expr);

}  // namespace pipethreader::kernel
