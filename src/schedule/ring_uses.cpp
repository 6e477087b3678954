#include "schedule/ring_uses.h"

#include <algorithm>

namespace pipethreader::schedule {

using kernel::ValueId;
using task::TaskKind;

bool reads(const task::Graph& graph, const partition::Assignment& assignment, const Item& item, const RingPlan& ring,
           Part end) {
  if (const auto* loop = std::get_if<LoopTree>(&item.node)) {
    return std::any_of(loop->body.begin(), loop->body.end(),
                       [&](const Item& inner) { return reads(graph, assignment, inner, ring, end); });
  }
  const auto& entry = std::get<Entry>(item.node);
  const task::Task& t = graph[entry.task];
  const auto held = [&](ValueId v) {  // a slice of a kept value is read from that value's slot
    const ValueId source = assignment[v].kept.value_or(v);
    return std::find(ring.values.begin(), ring.values.end(), source) != ring.values.end();
  };
  if (t.kind == TaskKind::load || t.kind == TaskKind::slice) return held(*t.writes);
  if (!t.product || entry.part != end) return false;
  const task::Product p = partition::oriented(graph, assignment, entry.task);
  return (held(p.a) && !assignment.products.at(entry.task).a_in_registers) || held(p.b);
}

namespace {

// What is fetched into registers has arrived when somebody has computed with it. Until then the slot must be held, and
// who gives it back right after the fetch waits for that alone: better after the first sTasks that need it, unless a
// product stands between.
std::size_t after_arrival(const task::Graph& graph, const std::vector<Item>& body, const RingPlan& ring,
                          std::size_t fetch) {
  const auto straight = [&](std::size_t i) -> const Entry* {
    const auto* entry = std::get_if<Entry>(&body[i].node);
    const bool plain = entry != nullptr && entry->stage == stage_of(body[fetch]) && entry->part == Part::whole &&
                       (graph[entry->task].kind == TaskKind::map || graph[entry->task].kind == TaskKind::load);
    return plain ? entry : nullptr;
  };
  const Entry* first = straight(fetch);
  if (first == nullptr || graph[first->task].kind != TaskKind::load) return fetch;
  std::size_t last = fetch;
  for (const ValueId value : ring.values) {
    std::size_t reader = fetch;
    for (std::size_t i = fetch + 1; i < body.size() && reader == fetch; ++i) {
      const Entry* entry = straight(i);
      if (entry == nullptr) return fetch;
      const auto& reads = graph[entry->task].reads;
      if (std::find(reads.begin(), reads.end(), value) != reads.end()) reader = i;
    }
    if (reader == fetch) return fetch;
    last = std::max(last, reader);
  }
  return last;
}

RingUse use_of(const task::Graph& graph, const partition::Assignment& assignment, const std::vector<Item>& body,
               const RingPlan& ring) {
  RingUse use{0, body.size(), body.size()};
  for (std::size_t i = 0; i < body.size(); ++i) {
    if (reads(graph, assignment, body[i], ring, Part::issue) &&
        (use.first == body.size() || stage_of(body[i]) < stage_of(body[use.first])))
      use.first = i;
    if (reads(graph, assignment, body[i], ring, Part::wait) &&
        (use.last == body.size() || stage_of(body[i]) >= stage_of(body[use.last])))
      use.last = i;
  }
  if (use.last < body.size()) use.last = after_arrival(graph, body, ring, use.last);
  return use;
}

}  // namespace

std::vector<RingUse> ring_uses(const task::Graph& graph, const partition::Assignment& assignment,
                               const Program& program, const std::vector<Item>& body,
                               const std::vector<kernel::StatementId>& level) {
  std::vector<RingUse> uses;
  for (std::size_t r = 0; r < program.rings.size(); ++r) {
    if (program.rings[r].level != level) continue;
    uses.push_back(use_of(graph, assignment, body, program.rings[r]));
    uses.back().ring = r;
  }
  return uses;
}

namespace {

// The copier's entries for two values of a stretch without a loop between them: whoever waits for what is copied last
// needs no loop to go on.
bool filled_together(const task::Graph& graph, const std::vector<Item>& items, ValueId a, ValueId b) {
  int found = 0;
  for (const Item& item : items) {
    if (const auto* loop = std::get_if<LoopTree>(&item.node)) {
      if (found == 1) return false;
      if (filled_together(graph, loop->body, a, b)) return true;
    } else {
      const ValueId value = *graph[std::get<Entry>(item.node).task].writes;
      found += value == a || value == b ? 1 : 0;
    }
  }
  return found == 2;
}

// Whether all uses stand in one iteration, without a loop between them.
bool used_together(const std::vector<Item>& body, const RingUse& a, const RingUse& b) {
  const std::size_t first = std::min(a.first, b.first);
  const std::size_t last = std::max(a.last, b.last);
  for (std::size_t i = first; i < body.size() && i <= last; ++i) {
    const auto* entry = std::get_if<Entry>(&body[i].node);
    if (entry == nullptr || entry->stage != 0) return false;
  }
  return last < body.size();
}

void join_tiles(const task::Graph& graph, const partition::Assignment& assignment, Program& program,
                const std::vector<Item>& body, std::vector<kernel::StatementId>& level) {
  const auto bits_of = [&](ValueId v) { return assignment[v].shared->elements() * bits(graph.kernel[v].type); };
  const auto home_of = [&](ValueId value, const RingPlan& from) {
    const RingUse use = use_of(graph, assignment, body, {{value}, 1, level, false, from.multicast});
    return std::find_if(program.rings.begin(), program.rings.end(), [&](const RingPlan& to) {
      return &to != &from && to.level == level && to.multicast == from.multicast && !to.values.empty() &&
             !assignment[to.values[0]].in_registers && bits_of(value) <= bits_of(to.values[0]) &&
             used_together(body, use, use_of(graph, assignment, body, to)) &&
             filled_together(graph, program.copier, value, to.values[0]);
    });
  };
  for (RingPlan& from : program.rings) {
    if (from.level != level || !assignment[from.values[0]].in_registers) continue;
    const std::vector<ValueId> fetched = from.values;
    for (const ValueId value : fetched) {
      const auto home = home_of(value, from);
      if (home == program.rings.end()) continue;
      home->values.push_back(value);
      std::erase(from.values, value);
    }
  }
  for (const Item& item : body) {
    const auto* loop = std::get_if<LoopTree>(&item.node);
    if (loop == nullptr) continue;
    level.push_back(loop->statement);
    join_tiles(graph, assignment, program, loop->body, level);
    level.pop_back();
  }
}

}  // namespace

void join_tiles(const task::Graph& graph, const partition::Assignment& assignment, Program& program) {
  std::vector<kernel::StatementId> level;
  join_tiles(graph, assignment, program, program.computer, level);
  std::erase_if(program.rings, [](const RingPlan& ring) { return ring.values.empty(); });
}

}  // namespace pipethreader::schedule
