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

}  // namespace

std::vector<RingUse> ring_uses(const task::Graph& graph, const partition::Assignment& assignment,
                               const Program& program, const std::vector<Item>& body,
                               const std::vector<kernel::StatementId>& level) {
  std::vector<RingUse> uses;
  for (std::size_t r = 0; r < program.rings.size(); ++r) {
    const RingPlan& ring = program.rings[r];
    if (ring.level != level) continue;
    RingUse use{r, body.size(), body.size()};
    for (std::size_t i = 0; i < body.size(); ++i) {
      if (reads(graph, assignment, body[i], ring, Part::issue) &&
          (use.first == body.size() || stage_of(body[i]) < stage_of(body[use.first])))
        use.first = i;
      if (reads(graph, assignment, body[i], ring, Part::wait) &&
          (use.last == body.size() || stage_of(body[i]) >= stage_of(body[use.last])))
        use.last = i;
    }
    if (use.last < body.size()) use.last = after_arrival(graph, body, ring, use.last);
    uses.push_back(use);
  }
  return uses;
}

}  // namespace pipethreader::schedule
