// Control flow: frames of the instruction tree, work items, loops and branches, and a witness's decisions.
#include <algorithm>

#include "interpret/cluster.h"

namespace pipethreader::interpret {

using namespace program;

const Instr* Cluster::current(Actor& actor) {
  while (!actor.frames.empty()) {
    Frame& frame = actor.frames.back();
    if (frame.next < frame.block->size()) return &(*frame.block)[frame.next];
    const bool again = frame.work != nullptr   ? enter_item(actor, frame)
                       : frame.loop != nullptr ? next_trip(actor, frame)
                                               : false;
    if (again)
      frame.next = 0;
    else
      actor.frames.pop_back();
  }
  return nullptr;
}

bool Cluster::next_trip(Actor& actor, Frame& frame) {
  std::int64_t& value = actor.vars[at(frame.loop->var)];
  value += frame.loop->step;
  if (frame.by_decision) return decide(actor);
  return frame.loop->step > 0 ? value < frame.end : value > frame.end;
}

bool Cluster::enter_item(Actor& actor, Frame& frame) {
  if (launch_.replay()) {
    if (!decide(actor)) return false;
    actor.vars[at(frame.work->item)] = static_cast<std::int64_t>(frame.item++);
    if (actor.index == 0) ++items_;
    return true;
  }
  const std::vector<std::int64_t>& items = items_of(frame.work->order, uniforms(actor).integer(frame.work->count));
  if (frame.item >= items.size()) return false;
  actor.vars[at(frame.work->item)] = items[frame.item++];
  if (actor.index == 0) ++items_;
  return true;
}

// All roles ask for the same, item after item.
const std::vector<std::int64_t>& Cluster::items_of(WorkOrder order, std::int64_t count) {
  const auto [known, added] = item_lists_.try_emplace({order, count});
  if (added) known->second = plan_.items(order, count, index_);
  return known->second;
}

// Whether an expression follows from constants, the instance and the cluster rank: then no decision is needed for it.
bool Cluster::known(const Actor& actor, ExprId id) const {
  const Expr& e = program_[id];
  if (e.kind == Expr::Kind::param) return false;
  if (e.kind == Expr::Kind::var) return actor.var_known[at(e.var)];
  return std::ranges::all_of(e.args, [&](ExprId arg) { return known(actor, arg); });
}

bool Cluster::decide(Actor& actor) {
  const std::vector<std::vector<std::int64_t>>& decisions = *launch_.options.decisions;
  if (actor.index >= decisions.size()) return false;
  const std::vector<std::int64_t>& mine = decisions[actor.index];
  return actor.next_decision < mine.size() && mine[actor.next_decision++] != 0;
}

Step Cluster::execute(Actor& actor, const Instr&, const ForWork& op) {
  Frame frame{&op.body};
  frame.work = &op;
  actor.var_known[at(op.item)] = false;
  if (enter_item(actor, frame)) actor.frames.push_back(frame);
  return Step::advanced;
}

Step Cluster::execute(Actor& actor, const Instr&, const For& op) {
  Frame frame{&op.body};
  frame.loop = &op;
  const Uniforms values = uniforms(actor);
  std::int64_t& value = actor.vars[at(op.var)];
  value = values.integer(op.begin);
  frame.end = values.integer(op.end);
  frame.by_decision = launch_.replay() && !(known(actor, op.begin) && known(actor, op.end));
  actor.var_known[at(op.var)] = !frame.by_decision;
  const bool enter = frame.by_decision ? decide(actor) : (op.step > 0 ? value < frame.end : value > frame.end);
  if (enter) actor.frames.push_back(frame);
  return Step::advanced;
}

Step Cluster::execute(Actor& actor, const Instr&, const If& op) {
  const bool decided = launch_.replay() && !known(actor, op.condition);
  const bool holds = decided ? decide(actor) : uniforms(actor).truth(op.condition);
  const program::Block& chosen = holds ? op.then : op.otherwise;
  if (!chosen.empty()) actor.frames.push_back({&chosen});
  return Step::advanced;
}

Step Cluster::execute(Actor& actor, const Instr&, const Let& op) {
  actor.vars[at(op.var)] = uniforms(actor).integer(op.value);
  actor.var_known[at(op.var)] = known(actor, op.value);
  return Step::advanced;
}

// The body runs in every warp that holds an element of `domain` where the predicate is true.
Step Cluster::execute(Actor& actor, const Instr&, const IfAny& op) {
  unsigned warps = 0xf;
  if (launch_.numbers()) {
    const Code& code = launch_.code.compile({op.predicate}, op.domain.shape);
    const std::vector<std::uint8_t>& holders = launch_.warps_of(op.domain);
    Evaluation evaluation(code, uniforms(actor), fragments_to_read(actor, code));
    warps = 0;
    for (std::size_t begin = 0; begin < code.elements; begin += chunk_elements) {
      const std::size_t count = std::min(chunk_elements, code.elements - begin);
      evaluation.load(begin, count);
      for (std::size_t k = 0; k < count; ++k)
        if (evaluation.truth(0, k)) warps |= holders[begin + k];
    }
  }
  if (warps == 0) return Step::advanced;
  actor.active_warps = warps;
  actor.conditional = true;
  for (const Instr& instr : op.then) {
    if (const auto* map = std::get_if<Map>(&instr.op))
      execute(actor, instr, *map);
    else
      faults_.raise(FaultKind::unsupported, "an if_any holds something else than maps");
    faults_.add_place(fmt::format("{} at {}", name_of(actor), launch_.place(&instr)));
  }
  actor.active_warps = 0xf;
  actor.conditional = false;
  return Step::advanced;
}

Step Cluster::execute(Actor&, const Instr&, const std::monostate&) { return Step::advanced; }

}  // namespace pipethreader::interpret
