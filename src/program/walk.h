// Ways through a program's instructions: depth first in program order, with the path to each; the blocks and the
// expressions of one instruction. Used by whoever looks at or changes programs without meaning any one instruction.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "program/program.h"

namespace pipethreader::program {

// From a role's body to an instruction: at each level which instruction, and below it which of its blocks.
struct Step {
  int index = 0;
  int branch = 0;  // of the instruction at `index`; 0 at the last step
  bool operator==(const Step&) const = default;
};
using Path = std::vector<Step>;

// "consumer.0.3.1": indices of instructions; the second block of an if is marked "else".
[[nodiscard]] std::string print(const Program& program, RoleId role, const Path& path);

[[nodiscard]] std::string_view text_name(const Instr& instr);

// The blocks an instruction holds: the body of a loop, both branches of an if.
[[nodiscard]] std::vector<Block*> blocks(Instr& instr);
[[nodiscard]] std::vector<const Block*> blocks(const Instr& instr);

// The instruction at a path; null when there is none.
[[nodiscard]] Instr* find(Block& body, const Path& path);
[[nodiscard]] const Instr* find(const Block& body, const Path& path);

// visit(instr, path) for every instruction, an outer one before those it holds. The visitor may change the instruction
// but not the block it stands in.
template <class AnyBlock, class Visitor>
void for_each(AnyBlock& body, Visitor&& visit, Path& path) {
  path.push_back({});
  for (std::size_t i = 0; i < body.size(); ++i) {
    path.back() = {static_cast<int>(i), 0};
    visit(body[i], std::as_const(path));
    const auto inner = blocks(body[i]);
    for (std::size_t branch = 0; branch < inner.size(); ++branch) {
      path.back().branch = static_cast<int>(branch);
      for_each(*inner[branch], visit, path);
    }
  }
  path.pop_back();
}
template <class AnyBlock, class Visitor>
void for_each(AnyBlock& body, Visitor&& visit) {
  Path path;
  for_each(body, visit, path);
}

// visit(role id, instr, path) for every instruction of every role.
template <class AnyProgram, class Visitor>
void for_each_instr(AnyProgram& program, Visitor&& visit) {
  for (std::size_t r = 0; r < program.roles.size(); ++r)
    for_each(program.roles[r].body, [&](auto& instr, const Path& path) { visit(RoleId(r), instr, path); });
}

// visit(expr id) for every expression an instruction itself has (not those of its blocks); a visitor that takes
// ExprId& may replace it.
template <class AnyInstr, class Visitor>
void for_each_expr(AnyInstr& instr, Visitor&& visit) {
  const auto optional = [&](auto& e) {
    if (e) visit(*e);
  };
  const auto all = [&](auto& list) {
    for (auto& e : list) visit(e);
  };
  const auto access = [&](auto& a) {
    all(a.indices);
    optional(a.guard);
  };
  std::visit(
      [&](auto& op) {
        using Op = std::remove_cvref_t<decltype(op)>;
        if constexpr (std::is_same_v<Op, ForWork>) visit(op.count);
        if constexpr (std::is_same_v<Op, For>) visit(op.begin), visit(op.end);
        if constexpr (std::is_same_v<Op, If>) visit(op.condition);
        if constexpr (std::is_same_v<Op, IfAny>) visit(op.predicate);
        if constexpr (std::is_same_v<Op, Let> || std::is_same_v<Op, Map> || std::is_same_v<Op, Reduce>) visit(op.value);
        if constexpr (std::is_same_v<Op, CopyBulk>) all(op.coordinates);
        if constexpr (std::is_same_v<Op, CopyPlain> || std::is_same_v<Op, LoadGlobal>) access(op.source);
        if constexpr (std::is_same_v<Op, StoreGlobal>) access(op.target);
        if constexpr (std::is_same_v<Op, LoadShared> || std::is_same_v<Op, StoreShared>) visit(op.row), visit(op.col);
        if constexpr (std::is_same_v<Op, BulkStore>) visit(op.row), all(op.coordinates);
        if constexpr (std::is_same_v<Op, Mma>) {
          for (auto* operand : {&op.a, &op.b}) optional(operand->origin), optional(operand->k_origin);
          optional(op.accumulate);
        }
        if constexpr (std::is_same_v<Op, BarrierSync> || std::is_same_v<Op, BarrierArrive>) optional(op.index);
      },
      instr.op);
}

// visit(expr) for `root` and everything it is made of; shared parts are visited once for each use.
template <class Visitor>
void for_each_part(const Program& program, ExprId root, Visitor&& visit) {
  const Expr& e = program[root];
  visit(e);
  for (const ExprId arg : e.args) for_each_part(program, arg, visit);
}

// visit(fragment) for every fragment that an expression reads.
template <class Visitor>
void for_each_fragment(const Program& program, ExprId root, Visitor&& visit) {
  for_each_part(program, root, [&](const Expr& part) {
    if (part.kind == Expr::Kind::fragment) visit(part.fragment);
  });
}

// visit(fragment) for every fragment that an instruction itself reads (not those of its blocks).
template <class Visitor>
void for_each_fragment_read(const Program& program, const Instr& instr, Visitor&& visit) {
  for_each_expr(instr, [&](const ExprId expr) { for_each_fragment(program, expr, visit); });
  std::visit(
      [&](const auto& op) {
        using Op = std::remove_cvref_t<decltype(op)>;
        if constexpr (std::is_same_v<Op, StoreGlobal> || std::is_same_v<Op, StoreShared> ||
                      std::is_same_v<Op, Relayout>)
          visit(op.source);
        if constexpr (std::is_same_v<Op, Reduce>)
          if (op.accumulate) visit(op.target);
        if constexpr (std::is_same_v<Op, Mma>) {
          visit(op.accumulator);
          for (const auto* operand : {&op.a, &op.b})
            if (operand->in_registers) visit(operand->fragment);
        }
      },
      instr.op);
}

}  // namespace pipethreader::program
