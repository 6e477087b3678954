#include "search/resources.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "schedule/ring_uses.h"
#include "task/products.h"
#include "task/rewrite.h"

namespace pipethreader::search {

using kernel::ValueId;
using schedule::Entry;
using schedule::Item;
using schedule::LoopTree;

namespace {

// First and last use of every value on one line of time; a loop is walked once, and what is alive across iterations
// is alive in the whole loop.
class Liveness {
 public:
  Liveness(const task::Graph& graph, const partition::Assignment& assignment)
      : graph_(graph), assignment_(assignment) {}

  int run(const std::vector<Item>& items) {
    walk(items);
    std::vector<int> alive(static_cast<std::size_t>(time_) + 1, 0);
    for (const auto& [value, span] : spans_) {
      const ValueId own = schedule::owner(graph_, value);
      const partition::Place& place = assignment_[own];
      if (!place.in_registers) continue;
      const int words = (place.layout.registers() * bits(graph_.kernel[own].type) + 31) / 32;
      // The result of an elementwise task takes over the registers of an operand that ends there.
      const int last = std::max(span.first, span.second - 1);
      for (int t = span.first; t <= last; ++t) alive[static_cast<std::size_t>(t)] += words;
    }
    return *std::max_element(alive.begin(), alive.end());
  }

 private:
  void use(ValueId value) {
    const auto [found, fresh] = spans_.try_emplace(value, time_, time_);
    if (!fresh) found->second.second = time_;
  }

  void walk(const std::vector<Item>& items) {
    for (const Item& item : items) {
      ++time_;
      if (const auto* entry = std::get_if<Entry>(&item.node)) {
        const task::Task& t = graph_[entry->task];
        if (entry->part != schedule::Part::move) {  // which reads what was prepared
          for (const ValueId v : t.reads) use(v);
        }
        if (!t.writes) continue;
        if (entry->part == schedule::Part::prepare || entry->part == schedule::Part::move)
          use(schedule::prepared(graph_, *t.writes));
        if (entry->part != schedule::Part::prepare) use(*t.writes);
        continue;
      }
      const auto& loop = std::get<LoopTree>(item.node);
      const int begin = time_;
      const std::map<ValueId, std::pair<int, int>> before = spans_;
      walk(loop.body);
      for (auto& [value, span] : spans_) {
        const auto was = before.find(value);
        const bool outside = was != before.end() && span.second > begin;
        if (outside) span.second = time_;
        if (was == before.end() && read_across(loop.body, value)) span = {begin, time_};
      }
      ++time_;
    }
  }

  // A stage-1 entry reads what an earlier iteration's stage 0 wrote.
  bool read_across(const std::vector<Item>& body, ValueId value) const {
    return std::any_of(body.begin(), body.end(), [&](const Item& item) {
      const auto* e = std::get_if<Entry>(&item.node);
      if (e == nullptr || e->stage == 0) return false;
      const task::Task& t = graph_[e->task];
      return std::find(t.reads.begin(), t.reads.end(), value) != t.reads.end();
    });
  }

  const task::Graph& graph_;
  const partition::Assignment& assignment_;
  std::map<ValueId, std::pair<int, int>> spans_;
  int time_ = 0;
};

std::int64_t tile_bytes(const task::Graph& graph, const partition::Assignment& assignment, ValueId value) {
  const partition::SharedTile& tile = *assignment[value].shared;
  const std::int64_t bytes = tile.elements() * bits(graph.kernel[value].type) / 8;
  const std::int64_t step = tile.rows % 8 == 0 ? 1024 : 128;
  return (bytes + step - 1) / step * step;
}

}  // namespace

int live_registers(const task::Graph& graph, const partition::Partition&, const partition::Assignment& assignment,
                   const schedule::Program& program) {
  return Liveness(graph, assignment).run(program.computer);
}

SharedNeed shared_need(const task::Graph& graph, const partition::Assignment& assignment,
                       const schedule::Program& program) {
  SharedNeed need;
  for (const schedule::RingPlan& ring : program.rings) {
    for (const ValueId v : ring.values) {
      if (ring.innermost) {
        need.per_depth += tile_bytes(graph, assignment, v);
      } else {
        need.fixed += ring.depth * tile_bytes(graph, assignment, v);
      }
    }
  }
  for (std::size_t i = 0; i < assignment.values.size(); ++i) {
    if (assignment.values[i].scratch) need.fixed += tile_bytes(graph, assignment, ValueId(i));
  }
  return need;
}

int band_for_l2(const task::Graph& graph, const partition::Partition& partition, const device::Device& device) {
  const kernel::Kernel& k = graph.kernel;
  const std::set<kernel::AxisId> uneven = partition::uneven_axes(graph);
  constexpr std::int64_t assumed = 4096;  // of a dynamic dim that only what is loaded depends on
  const auto size = [&](kernel::AxisId a) {
    return std::max<std::int64_t>(1, task::static_extent(k, a).value_or(assumed));
  };
  const auto even = [&](kernel::AxisId a) {
    return k[a].kind == kernel::AxisKind::parallel && !(uneven.contains(a) && partition.extent(a) > 1);
  };
  std::int64_t tiles = 1;  // of the even axes
  for (const kernel::AxisId a : partition.walk) {
    if (!even(a)) continue;
    if (!task::static_extent(k, a)) return 0;
    tiles *= (size(a) + partition.extent(a) - 1) / partition.extent(a);
  }
  double bytes = 0;  // that one of them loads, all uneven tiles together
  for (const task::Task& t : graph.tasks) {
    if (t.kind != task::TaskKind::load) continue;
    const kernel::Expr& access = k[std::get<kernel::Assign>(k[t.statement].node).expr];
    double part = bits(access.type) / 8.0;
    for (const kernel::ExprId index : access.args) {
      for (const kernel::AxisId a : task::axes_of(k, index))
        part *= static_cast<double>(even(a) ? std::min<std::int64_t>(partition.extent(a), size(a)) : size(a));
    }
    bytes += part;
  }
  const double fit = static_cast<double>(device.memory.l2_bytes) * device.memory.l2_band_share / std::max(1.0, bytes);
  if (fit >= static_cast<double>(tiles)) return 0;
  return static_cast<int>(partition::even_band(tiles, static_cast<std::int64_t>(fit)));
}

}  // namespace pipethreader::search
