// Small tools to read and rebuild expressions of the sTask IR; shared by the passes of task/ and partition/.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "kernel/kernel.h"

namespace pipethreader::task {

// The axes an expression depends on, without those its own reductions bind. An index into a value counts.
[[nodiscard]] std::set<kernel::AxisId> axes_of(const kernel::Kernel& kernel, kernel::ExprId expr);

// The values an expression reads.
[[nodiscard]] std::set<kernel::ValueId> values_of(const kernel::Kernel& kernel, kernel::ExprId expr);

// Whether the expression is a value at another place than its own axes, as x[m, K-1-k] of x[m,k] is.
[[nodiscard]] bool is_read_elsewhere(const kernel::Kernel& kernel, kernel::ExprId expr);

// The values that a statement reads at another place than their own axes.
[[nodiscard]] std::set<kernel::ValueId> read_elsewhere(const kernel::Kernel& kernel,
                                                       const kernel::Statement& statement);

// Structural equality of two expressions of one kernel.
[[nodiscard]] bool same_expr(const kernel::Kernel& kernel, kernel::ExprId a, kernel::ExprId b);

// Rebuilds an expression bottom-up: `replace` sees each rebuilt node's id and may return another. Nodes are shared
// when nothing below them changed.
using Replace = std::function<kernel::ExprId(kernel::ExprId)>;
[[nodiscard]] kernel::ExprId rewrite(kernel::Kernel& kernel, kernel::ExprId expr, const Replace& replace);

// Replaces every use of one axis by another.
[[nodiscard]] kernel::ExprId rename_axis(kernel::Kernel& kernel, kernel::ExprId expr, kernel::AxisId from,
                                         kernel::AxisId to);

[[nodiscard]] kernel::ExprId add_expr(kernel::Kernel& kernel, kernel::Expr expr);
[[nodiscard]] kernel::ExprId literal(kernel::Kernel& kernel, double number, ScalarType type);
[[nodiscard]] kernel::ExprId axis_expr(kernel::Kernel& kernel, kernel::AxisId axis);
[[nodiscard]] kernel::ExprId value_expr(kernel::Kernel& kernel, kernel::ValueId value);  // at its own axes
[[nodiscard]] kernel::ExprId call(kernel::Kernel& kernel, Function function, ScalarType type,
                                  std::vector<kernel::ExprId> args);
[[nodiscard]] kernel::StatementId add_statement(kernel::Kernel& kernel, kernel::Statement statement);
// A new axis, renamed where its name is taken; a new value with a name nobody has yet, made from `stem`.
[[nodiscard]] kernel::AxisId add_axis(kernel::Kernel& kernel, kernel::Axis axis);
[[nodiscard]] kernel::ValueId add_value(kernel::Kernel& kernel, const std::string& stem, ScalarType type,
                                        std::vector<kernel::AxisId> axes);

// Whether the statement sets a value to 0 and does nothing else.
[[nodiscard]] bool sets_zero(const kernel::Kernel& kernel, kernel::StatementId statement);

// The identity of a reduction: 0, -inf, inf.
[[nodiscard]] double identity(kernel::ReduceOp op);

}  // namespace pipethreader::task
