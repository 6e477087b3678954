#include "interpret/uniform.h"

#include <array>
#include <cassert>

#include "interpret/number.h"

namespace pipethreader::interpret {

using program::Expr;
using program::ExprId;

std::int64_t Uniforms::integer(ExprId id) const {
  const Expr& e = (*program)[id];
  if (is_floating(e.type)) return static_cast<std::int64_t>(round_to(ScalarType::i64, real(id)));
  switch (e.kind) {
    case Expr::Kind::constant:
      return static_cast<std::int64_t>(e.number);
    case Expr::Kind::param:
      return static_cast<std::int64_t>(params[static_cast<std::size_t>(e.param.index)]);
    case Expr::Kind::var:
      return vars[static_cast<std::size_t>(e.var.index)];
    case Expr::Kind::instance:
      return instance;
    case Expr::Kind::cluster_rank:
      return cluster_rank;
    case Expr::Kind::convert:
      return held_as_float(*program, e.args[0]) ? static_cast<std::int64_t>(round_to(e.type, real(e.args[0])))
                                                : checked(e, integer(e.args[0]));
    case Expr::Kind::call:
      return checked(e, integer_call(e));
    case Expr::Kind::coord:
    case Expr::Kind::fragment:
      break;
  }
  faults->raise(FaultKind::unsupported, "a uniform expression uses a coordinate or a fragment");
  return 0;
}

std::int64_t Uniforms::integer_call(const Expr& e) const {
  if (is_comparison(e.function) && (held_as_float(*program, e.args[0]) || held_as_float(*program, e.args[1]))) {
    const float a = real(e.args[0]);
    const float b = real(e.args[1]);
    std::int64_t out = 0;
    compare_floats(e.function, &a, &b, 1, &out);
    return out;
  }
  if (e.function == Function::select) return truth(e.args[0]) ? integer(e.args[1]) : integer(e.args[2]);
  std::array<std::int64_t, 3> values{};
  std::array<const std::int64_t*, 3> args{};
  for (std::size_t i = 0; i < e.args.size(); ++i) {
    values[i] = is_logic(e.function) ? truth(e.args[i]) : integer(e.args[i]);
    args[i] = &values[i];
  }
  std::int64_t out = 0;
  apply_integers(e.function, args.data(), 1, &out);
  return out;
}

std::int64_t Uniforms::checked(const Expr& e, std::int64_t value) const {
  const auto held = static_cast<double>(value);
  if (e.type != ScalarType::i64 && e.type != ScalarType::boolean && round_to(e.type, held) != held)
    faults->raise(FaultKind::overflow, fmt::format("{} does not fit {}", value, name(e.type)));
  return value;
}

float Uniforms::real(ExprId id) const {
  const Expr& e = (*program)[id];
  if (!is_floating(e.type)) return static_cast<float>(integer(id));
  switch (e.kind) {
    case Expr::Kind::constant:
      return static_cast<float>(e.number);
    case Expr::Kind::param:
      return static_cast<float>(params[static_cast<std::size_t>(e.param.index)]);
    case Expr::Kind::convert: {
      float value = real(e.args[0]);
      round_floats(e.type, {&value, 1});
      return value;
    }
    case Expr::Kind::call:
      return real_call(e);
    default:
      faults->raise(FaultKind::unsupported, "a uniform expression uses a coordinate or a fragment");
      return 0;
  }
}

float Uniforms::real_call(const Expr& e) const {
  if (e.function == Function::select) return truth(e.args[0]) ? real(e.args[1]) : real(e.args[2]);
  std::array<float, 3> values{};
  std::array<const float*, 3> args{};
  for (std::size_t i = 0; i < e.args.size(); ++i) {
    values[i] = real(e.args[i]);
    args[i] = &values[i];
  }
  float out = 0;
  apply_floats(e.function, args.data(), 1, &out);
  round_floats(e.type, {&out, 1});
  return out;
}

bool Uniforms::truth(ExprId id) const { return held_as_float(*program, id) ? real(id) != 0 : integer(id) != 0; }

}  // namespace pipethreader::interpret
