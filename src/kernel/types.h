// The types' rules: what holds what, and the type in which operands meet.
#pragma once

#include <optional>

#include "kernel/kernel.h"

namespace pipethreader::kernel {

// Whether every number of `from` is one of `to`; an integer type never holds a floating one.
[[nodiscard]] bool holds(ScalarType to, ScalarType from);

// The type in which two operands meet: the wider one, or the narrowest type that holds both (f16 with bf16: f32).
// An integer with a floating operand takes that one's type.
[[nodiscard]] ScalarType promote(ScalarType a, ScalarType b);

// There is no arithmetic in types of 8 bits and fewer: they widen to f32 or i32.
[[nodiscard]] ScalarType arithmetic_type(ScalarType type);

// The type in which the operands of a call are taken (of comparisons too, whose result is bool): operands of other
// types are converted to it, which loses nothing but for integers of more bits than the type's mantissa.
[[nodiscard]] ScalarType operand_type(const Kernel& checked, const Expr& call);

}  // namespace pipethreader::kernel
