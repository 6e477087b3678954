#include "kernel/types.h"

#include <array>

namespace pipethreader::kernel {
namespace {

// Narrowest first.
constexpr std::array kFloating = {ScalarType::f4e2m1, ScalarType::f8e4m3, ScalarType::f8e5m2, ScalarType::f16,
                                  ScalarType::bf16,   ScalarType::tf32,   ScalarType::f32,    ScalarType::f64};
constexpr std::array kInteger = {ScalarType::u4, ScalarType::i4,  ScalarType::u8,
                                 ScalarType::i8, ScalarType::i32, ScalarType::i64};

}  // namespace

bool holds(ScalarType to, ScalarType from) {
  if (to == from) return true;
  if (to == ScalarType::boolean || from == ScalarType::boolean) return false;
  const bool range = lowest_finite(to) <= lowest_finite(from) && largest_finite(to) >= largest_finite(from);
  if (is_integer(to)) return is_integer(from) && range;
  // A floating type holds the integers that its mantissa reaches.
  if (is_integer(from))
    return range && -lowest_finite(from) <= 1 / unit_roundoff(to) && largest_finite(from) <= 1 / unit_roundoff(to);
  return range && unit_roundoff(to) <= unit_roundoff(from) && smallest_positive(to) <= smallest_positive(from);
}

ScalarType promote(ScalarType a, ScalarType b) {
  if (a == b) return a;
  if (is_floating(a) && is_floating(b) && (holds(a, b) || holds(b, a))) return holds(a, b) ? a : b;
  if (is_floating(a) != is_floating(b)) return is_floating(a) ? a : b;
  if (is_integer(a)) {
    for (ScalarType t : kInteger)
      if (holds(t, a) && holds(t, b)) return t;
    return ScalarType::i64;
  }
  for (ScalarType t : kFloating)  // tf32 is a format of the tensor core, nothing that others meet in
    if (t != ScalarType::tf32 && holds(t, a) && holds(t, b)) return t;
  return ScalarType::f64;
}

ScalarType arithmetic_type(ScalarType type) {
  if (type == ScalarType::boolean || bits(type) > 8) return type;
  return is_integer(type) ? ScalarType::i32 : ScalarType::f32;
}

ScalarType operand_type(const Kernel& checked, const Expr& call) {
  const bool compares = info(call.function).gives_boolean;
  if (!compares) return call.type;
  ScalarType type = checked[call.args[0]].type;
  for (ExprId arg : call.args) type = promote(type, checked[arg].type);
  return type;
}

}  // namespace pipethreader::kernel
