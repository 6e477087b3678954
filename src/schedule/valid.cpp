#include "schedule/valid.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

namespace pipethreader::schedule {

using kernel::StatementId;
using kernel::ValueId;
using task::Task;
using task::TaskId;
using task::TaskKind;

namespace {

using Symbol = std::size_t;
using Iteration = std::vector<std::pair<StatementId, int>>;  // of the loops around, outermost first

Symbol combined(Symbol a, Symbol b) { return a ^ (b + 0x9e3779b97f4a7c15ULL + (a << 6U) + (a >> 2U)); }

Symbol symbol_of(TaskId task, const Iteration& at) {
  Symbol s = combined(0x51ed270b, static_cast<Symbol>(task.index));
  for (const auto& [loop, n] : at) s = combined(combined(s, static_cast<Symbol>(loop.index)), static_cast<Symbol>(n));
  return s;
}

// What both runs have in common: values are symbols of the sTask that made them and of what it read.
class Run {
 public:
  Run(const task::Graph& graph, const partition::Assignment& assignment) : graph_(graph), assignment_(assignment) {
    levels(graph.root, {});
  }

  std::vector<std::pair<Symbol, Symbol>> stored;  // by which store and when, and what

 protected:
  // A value that is read from where its load or slice left it, without registers of its own.
  [[nodiscard]] bool direct(ValueId v) const { return made_.contains(v) && !assignment_[v].in_registers; }

  Symbol read(ValueId v, const Iteration& at) { return direct(v) ? as_made(v, at) : values_[v]; }

  // As it lies in shared memory, where a load or a slice gives it.
  Symbol as_made(ValueId v, const Iteration& at) {
    const TaskId maker = made_.at(v);
    Iteration own;
    for (const auto& step : at) {
      const auto& around = level_.at(maker);
      if (std::find(around.begin(), around.end(), step.first) != around.end()) own.push_back(step);
    }
    return made(maker, own);
  }

  // What a load or a slice gives.
  Symbol made(TaskId id, const Iteration& at) {
    Symbol s = symbol_of(id, at);
    if (graph_[id].kind == TaskKind::slice) s = combined(s, read(graph_[id].reads[0], at));
    return s;
  }

  Symbol computed(TaskId id, const Iteration& at) {
    const Task& t = graph_[id];
    if (t.kind == TaskKind::load || t.kind == TaskKind::slice) return made(id, at);
    Symbol s = combined(0x2545f491, static_cast<Symbol>(id.index));
    for (const ValueId v : t.reads) {
      const bool registers = t.kind != TaskKind::mma || (assignment_.products.at(id).a_in_registers &&
                                                         partition::oriented(graph_, assignment_, id).a == v);
      s = combined(s, !registers && made_.contains(v) ? as_made(v, at) : read(v, at));
    }
    if (t.accumulates) s = combined(s, values_[*t.writes]);
    return s;
  }

  void store(TaskId id, const Iteration& at) { stored.emplace_back(symbol_of(id, at), computed(id, at)); }

  const task::Graph& graph_;
  const partition::Assignment& assignment_;
  std::map<ValueId, Symbol> values_;
  std::map<TaskId, std::vector<StatementId>> level_;  // the loops around each sTask

 private:
  void levels(const std::vector<task::Node>& nodes, const std::vector<StatementId>& around) {
    for (const task::Node& node : nodes) {
      if (const auto* id = std::get_if<TaskId>(&node.item)) {
        level_[*id] = around;
        const Task& t = graph_[*id];
        if (t.kind == TaskKind::load || t.kind == TaskKind::slice) made_[*t.writes] = *id;
        continue;
      }
      const auto& loop = std::get<task::LoopNode>(node.item);
      std::vector<StatementId> inside = around;
      inside.push_back(loop.statement);
      levels(loop.body, inside);
    }
  }

  std::map<ValueId, TaskId> made_;
};

class InGraphOrder : public Run {
 public:
  using Run::Run;

  void run(const std::vector<task::Node>& nodes, const Iteration& at, int trips) {
    for (const task::Node& node : nodes) {
      if (const auto* loop = std::get_if<task::LoopNode>(&node.item)) {
        for (int n = 0; n < trips; ++n) {
          Iteration inside = at;
          inside.emplace_back(loop->statement, n);
          run(loop->body, inside, trips);
        }
        continue;
      }
      const TaskId id = std::get<TaskId>(node.item);
      if (graph_[id].kind == TaskKind::store) {
        store(id, at);
      } else if (graph_[id].writes && !direct(*graph_[id].writes)) {
        values_[*graph_[id].writes] = computed(id, at);
      }
    }
  }
};

class AsScheduled : public Run {
 public:
  using Run::Run;

  std::optional<std::string> problem;

  void run(const std::vector<Item>& items, const Iteration& at, int trips, int low = 0, int high = 0) {
    for (const Item& item : items) {
      const int stage = stage_of(item);
      if (problem || stage < low || stage > high) continue;
      Iteration own = at;
      if (!own.empty()) own.back().second -= stage;
      if (const auto* entry = std::get_if<Entry>(&item.node)) {
        execute(*entry, own);
        continue;
      }
      const auto& loop = std::get<LoopTree>(item.node);
      for (int n = 0; trips > 0 && n < trips + loop.stages - 1; ++n) {
        Iteration inside = at;
        inside.emplace_back(loop.statement, n);
        run(loop.body, inside, trips, n < trips ? 0 : 1, n > 0 ? loop.stages - 1 : 0);
      }
    }
  }

 private:
  struct Running {  // a product that nobody has waited for
    Symbol result = 0;
    std::vector<ValueId> reads;
  };

  void fail(TaskId id, std::string_view what) {
    const Task& t = graph_[id];
    problem = fmt::format("the sTask that {} '{}' {}", t.writes ? "gives" : "stores",
                          graph_.kernel[t.writes ? *t.writes : t.reads[0]].name, what);
  }

  [[nodiscard]] bool read_by_products(ValueId v) const {
    return std::any_of(running_.begin(), running_.end(), [&](const auto& r) {
      return std::find(r.second.reads.begin(), r.second.reads.end(), v) != r.second.reads.end();
    });
  }
  [[nodiscard]] bool written_by_products(ValueId v) const {
    return std::any_of(running_.begin(), running_.end(), [&](const auto& r) { return graph_[r.first].writes == v; });
  }

  void execute(const Entry& entry, const Iteration& at) {
    const TaskId id = entry.task;
    const Task& t = graph_[id];
    if (entry.part == Part::wait) {
      const auto found = running_.find(id);
      if (found == running_.end()) return fail(id, "is waited for before it is issued");
      running_.erase(found);
      return;
    }
    if (entry.part != Part::move) {
      for (const ValueId v : t.reads) {
        // Products into one accumulator follow each other in the tensor core.
        if (written_by_products(v) && !(t.kind == TaskKind::mma && v == t.writes))
          return fail(id, "reads a product's result before the wait for it");
      }
    }
    if (t.kind == TaskKind::store) return store(id, at);
    const ValueId target = entry.part == Part::prepare ? prepared(graph_, *t.writes) : *t.writes;
    if (read_by_products(target) || (written_by_products(target) && t.kind != TaskKind::mma))
      return fail(id, "writes what a product still uses");
    if (entry.part == Part::move) {
      aside_.erase(target);
      values_[target] = values_[prepared(graph_, *t.writes)];
      return;
    }
    // What is set aside is what the rest of the iteration reads; products read what they were given.
    std::map<ValueId, Symbol> own;
    if (t.kind != TaskKind::mma) {
      for (const ValueId v : aside_) own[v] = std::exchange(values_[v], values_[prepared(graph_, v)]);
    }
    const Symbol result = computed(id, at);
    for (const auto& [v, symbol] : own) values_[v] = symbol;
    values_[target] = result;
    if (entry.part == Part::prepare) aside_.insert(*t.writes);
    if (entry.part != Part::issue) return;
    if (running_.contains(id)) return fail(id, "is issued again before the wait for it");
    Running product{result, {}};
    const task::Product p = partition::oriented(graph_, assignment_, id);
    if (assignment_.products.at(id).a_in_registers || assignment_[p.a].scratch) product.reads.push_back(p.a);
    if (assignment_[p.b].scratch) product.reads.push_back(p.b);
    running_[id] = std::move(product);
  }

  std::map<TaskId, Running> running_;
  std::set<ValueId> aside_;  // prepared, and not moved into its registers yet
};

void copied(const task::Graph& graph, const std::vector<Item>& items, std::vector<StatementId> around,
            std::map<ValueId, std::vector<StatementId>>& where, std::set<ValueId>& twice) {
  for (const Item& item : items) {
    if (const auto* loop = std::get_if<LoopTree>(&item.node)) {
      around.push_back(loop->statement);
      copied(graph, loop->body, around, where, twice);
      around.pop_back();
      continue;
    }
    const ValueId v = *graph[std::get<Entry>(item.node).task].writes;
    if (!where.emplace(v, around).second) twice.insert(v);
  }
}

int stages_of(const std::vector<Item>& items, StatementId loop) {
  int stages = 1;
  for (const Item& item : items) {
    const auto* tree = std::get_if<LoopTree>(&item.node);
    if (tree == nullptr) continue;
    stages = std::max(stages, tree->statement == loop ? tree->stages : stages_of(tree->body, loop));
  }
  return stages;
}

}  // namespace

Result<void> check_valid(const task::Graph& graph, const partition::Assignment& assignment, const Program& program) {
  const std::string& name = graph.kernel.name;
  for (int trips = 0; trips <= 3; ++trips) {
    InGraphOrder expected(graph, assignment);
    AsScheduled actual(graph, assignment);
    expected.run(graph.root, {}, trips);
    actual.run(program.computer, {}, trips);
    if (actual.problem) return fail("the schedule of '{}' is not valid: {}", name, *actual.problem);
    std::sort(expected.stored.begin(), expected.stored.end());
    std::sort(actual.stored.begin(), actual.stored.end());
    if (expected.stored != actual.stored)
      return fail("the schedule of '{}' is not valid: with {} trips of its loops a store gets another value", name,
                  trips);
  }
  std::map<ValueId, std::vector<StatementId>> where;
  std::set<ValueId> twice;
  copied(graph, program.copier, {}, where, twice);
  for (std::size_t i = 0; i < assignment.values.size(); ++i) {
    const ValueId v(i);
    if (!assignment[v].staged) continue;
    const auto ring = program.ring_of(v);
    const auto at = where.find(v);
    if (!ring || at == where.end() || twice.contains(v) || program.rings[*ring].level != at->second)
      return fail("the schedule of '{}' is not valid: '{}' is not copied once, where its ring is filled", name,
                  graph.kernel[v].name);
    const RingPlan& plan = program.rings[*ring];
    if (plan.depth < (plan.level.empty() ? 1 : stages_of(program.computer, plan.level.back())))
      return fail("the schedule of '{}' is not valid: '{}' has {} slots, fewer than the stages of its loop", name,
                  graph.kernel[v].name, plan.depth);
  }
  return {};
}

}  // namespace pipethreader::schedule
