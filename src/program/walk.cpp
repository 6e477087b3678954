#include "program/walk.h"

namespace pipethreader::program {
namespace {

template <class BlockPointer, class AnyInstr>
std::vector<BlockPointer> blocks_of(AnyInstr& instr) {
  if (auto* op = std::get_if<ForWork>(&instr.op)) return {&op->body};
  if (auto* op = std::get_if<For>(&instr.op)) return {&op->body};
  if (auto* op = std::get_if<If>(&instr.op)) return {&op->then, &op->otherwise};
  if (auto* op = std::get_if<IfAny>(&instr.op)) return {&op->then};
  return {};
}

template <class AnyInstr, class AnyBlock>
AnyInstr* find_in(AnyBlock& body, const Path& path) {
  AnyBlock* block = &body;
  AnyInstr* found = nullptr;
  for (const Step& step : path) {
    if (block == nullptr || step.index < 0 || static_cast<std::size_t>(step.index) >= block->size()) return nullptr;
    found = &(*block)[static_cast<std::size_t>(step.index)];
    const auto inner = blocks(*found);
    const auto branch = static_cast<std::size_t>(step.branch);
    block = branch < inner.size() ? inner[branch] : nullptr;
  }
  return found;
}

}  // namespace

std::string print(const Program& program, RoleId role, const Path& path) {
  std::string text = program[role].name;
  const Block* block = &program[role].body;
  for (std::size_t i = 0; i < path.size(); ++i) {
    text += fmt::format(".{}", path[i].index);
    if (block == nullptr || static_cast<std::size_t>(path[i].index) >= block->size()) return text + "(missing)";
    const Instr& instr = (*block)[static_cast<std::size_t>(path[i].index)];
    const auto inner = blocks(instr);
    const auto branch = static_cast<std::size_t>(path[i].branch);
    block = branch < inner.size() ? inner[branch] : nullptr;
    if (i + 1 == path.size()) {
      text += fmt::format(" {}", text_name(instr));
    } else if (path[i].branch == 1) {
      text += ".else";
    }
  }
  return text;
}

std::string_view text_name(const Instr& instr) {
  static constexpr std::string_view names[] = {
#define INSTRUCTION(type, text) text,
#include "program/instructions.def"
#undef INSTRUCTION
      "nothing"};
  return names[instr.op.index()];
}

std::vector<Block*> blocks(Instr& instr) { return blocks_of<Block*>(instr); }
std::vector<const Block*> blocks(const Instr& instr) { return blocks_of<const Block*>(instr); }

Instr* find(Block& body, const Path& path) { return find_in<Instr>(body, path); }
const Instr* find(const Block& body, const Path& path) { return find_in<const Instr>(body, path); }

}  // namespace pipethreader::program
