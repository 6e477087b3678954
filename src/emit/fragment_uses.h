// Which fragments an instruction reads.
#pragma once

#include <type_traits>
#include <variant>

#include "program/walk.h"

namespace pipethreader::emit {

template <class Visit>
void each_fragment_read(const program::Program& program, const program::Instr& instr, const Visit& visit) {
  using namespace program;
  for_each_expr(instr, [&](const ExprId expr) {
    for_each_part(program, expr, [&](const Expr& part) {
      if (part.kind == Expr::Kind::fragment) visit(part.fragment);
    });
  });
  std::visit(
      [&](const auto& op) {
        using Op = std::decay_t<decltype(op)>;
        if constexpr (std::is_same_v<Op, StoreGlobal> || std::is_same_v<Op, StoreShared> ||
                      std::is_same_v<Op, Relayout>)
          visit(op.source);
        if constexpr (std::is_same_v<Op, Reduce>)
          if (op.accumulate) visit(op.target);
        if constexpr (std::is_same_v<Op, Mma>) {
          visit(op.accumulator);
          if (op.a.in_registers) visit(op.a.fragment);
          if (op.b.in_registers) visit(op.b.fragment);
        }
      },
      instr.op);
}

}  // namespace pipethreader::emit
