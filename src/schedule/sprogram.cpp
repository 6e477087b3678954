#include "schedule/sprogram.h"

#include <algorithm>
#include <cassert>

#include "schedule/ring_uses.h"
#include "task/affine.h"
#include "task/rewrite.h"

namespace pipethreader::schedule {

using kernel::AxisId;
using kernel::StatementId;
using kernel::ValueId;
using task::Task;
using task::TaskId;
using task::TaskKind;

std::optional<std::size_t> Program::ring_of(ValueId value) const {
  for (std::size_t r = 0; r < rings.size(); ++r) {
    if (std::find(rings[r].values.begin(), rings[r].values.end(), value) != rings[r].values.end()) return r;
  }
  return std::nullopt;
}

Composer::Composer(const task::Graph& graph, const partition::Partition& partition,
                   const partition::Assignment& assignment)
    : graph_(graph), partition_(partition), assignment_(assignment) {}

std::vector<Item>& Composer::body(bool copier) {
  if (copier) return open_copier_.empty() ? program_.copier : open_copier_.back().body;
  return open_computer_.empty() ? program_.computer : open_computer_.back().body;
}

void Composer::open(AxisId axis, StatementId statement, int stages) {
  LoopTree tree;
  tree.axis = axis;
  tree.statement = statement;
  tree.stages = stages;
  stages_[statement] = stages;
  if (!open_computer_.empty()) around_.insert(open_computer_.back().statement);
  open_computer_.push_back(tree);
  tree.stages = 1;
  open_copier_.push_back(tree);
}

void Composer::close() {
  assert(!open_computer_.empty());
  LoopTree computer = std::move(open_computer_.back());
  open_computer_.pop_back();
  LoopTree copier = std::move(open_copier_.back());
  open_copier_.pop_back();
  body(false).push_back({std::move(computer)});
  if (!copier.body.empty()) body(true).push_back({std::move(copier)});
}

namespace {

// The products that read a staged value, and whether computing lanes fetch it into registers.
std::vector<TaskId> readers(const task::Graph& graph, ValueId value) {
  std::vector<TaskId> found;
  for (std::size_t i = 0; i < graph.tasks.size(); ++i) {
    const Task& t = graph.tasks[i];
    if (t.product && (t.product->a == value || t.product->b == value)) found.push_back(TaskId(i));
  }
  return found;
}

// How many tiles of a loop the lane with the most rows' worth of them has more than the one with the least.
int tiles_apart(const task::Graph& graph, const partition::Partition& partition, const task::LoopNode& loop) {
  const auto& where = std::get<kernel::Loop>(graph.kernel[loop.statement].node).where;
  if (!where) return 0;
  const auto inequalities = task::conjunction(graph.kernel, *where, graph.tiled).inequalities;
  const bool depends = std::any_of(inequalities.begin(), inequalities.end(), [&](const task::Linear& form) {
    return form.axes.contains(partition.split) && form.axes.contains(loop.axis);
  });
  const int rows = partition.extent(partition.split) - partition.local(partition.split);
  return depends ? rows / partition.extent(loop.axis) : 0;
}

}  // namespace

// Whether the blocks of a cluster read the same tiles of a value equally often: neither where it lies nor a loop around
// it depends on which of them it is.
bool Composer::alike_in_cluster(const Task& load) const {
  const auto differs = [&](kernel::ExprId e) { return partition::differs_in_cluster(graph_, partition_, e); };
  return !differs(std::get<kernel::Assign>(graph_.kernel[load.statement].node).expr) &&
         std::none_of(open_copier_.begin(), open_copier_.end(), [&](const LoopTree& loop) {
           const auto& where = std::get<kernel::Loop>(graph_.kernel[loop.statement].node).where;
           return where && differs(*where);
         });
}

// Whether the copier copies the value without a loop behind it: whoever waits for a ring with another value must not
// need that loop to go on.
bool Composer::copied_since_loop(ValueId value) {
  const std::vector<Item>& items = body(true);
  for (auto item = items.rbegin(); item != items.rend(); ++item) {
    const auto* entry = std::get_if<Entry>(&item->node);
    if (entry == nullptr) return false;
    if (graph_[entry->task].writes == value) return true;
  }
  return false;
}

void Composer::append(TaskId id, Part part, int stage) {
  const Task& t = graph_[id];
  if (t.kind != TaskKind::load || !assignment_[*t.writes].staged) {
    body(false).push_back({Entry{id, part, stage}});
    return;
  }
  const partition::Place& place = assignment_[*t.writes];
  body(true).push_back({Entry{id, Part::whole, 0}});
  if (place.in_registers) body(false).push_back({Entry{id, part, stage}});
  const bool shared_by_cluster =
      partition_.choice.cluster > 1 && alike_in_cluster(t) && place.shared->rows % (8 * partition_.choice.cluster) == 0;
  std::vector<StatementId> level;
  for (const LoopTree& loop : open_copier_) level.push_back(loop.statement);
  for (RingPlan& ring : program_.rings) {
    const partition::Place& other = assignment_[ring.values[0]];
    if (ring.level == level && copied_since_loop(ring.values[0]) && ring.multicast == shared_by_cluster &&
        other.in_registers == place.in_registers && readers(graph_, ring.values[0]) == readers(graph_, *t.writes)) {
      ring.values.push_back(*t.writes);
      return;
    }
  }
  program_.rings.push_back({{*t.writes}, 1, level, false, shared_by_cluster});
}

// Where lanes pass over different tiles of a loop inside a walk, no registers keep a lane's rows from one step to the
// next, and rings are deep enough that a lane with few tiles can be ahead of one with many.
bool Composer::changes_places() const {
  if (graph_.walk.axis.empty() || partition_.lanes == 1 || partition_.split != partition_.row) return false;
  const auto shared = [&](const std::vector<kernel::AxisId>& axes) {
    return std::find(axes.begin(), axes.end(), partition_.split) != axes.end();
  };
  bool uneven = false;
  const auto visit = [&](const auto& self, const std::vector<task::Node>& nodes, bool inside) -> bool {
    return std::all_of(nodes.begin(), nodes.end(), [&](const task::Node& node) {
      if (const auto* id = std::get_if<TaskId>(&node.item)) {
        const auto& written = graph_[*id].writes;
        const bool holds = written && assignment_[*written].in_registers && shared(assignment_[*written].axes);
        return inside || !holds;
      }
      const auto& loop = std::get<task::LoopNode>(node.item);
      const int apart = tiles_apart(graph_, partition_, loop);
      uneven = uneven || apart > 0;
      return self(self, loop.body, true) &&
             std::all_of(program_.rings.begin(), program_.rings.end(), [&](const RingPlan& ring) {
               return ring.level.empty() || ring.level.back() != loop.statement || ring.depth >= apart;
             });
    });
  };
  return visit(visit, graph_.root, false) && uneven;
}

// Tiles that last for a whole loop inside need not run further ahead than the next.
int wanted_depth(const RingPlan& ring, const Choice& choice) {
  if (ring.level.empty()) return choice.outer;
  return ring.innermost ? choice.depth : std::min(choice.depth, 2);
}

Program Composer::finish(const Choice& choice) {
  assert(open_computer_.empty());
  join_tiles(graph_, assignment_, program_);
  for (RingPlan& ring : program_.rings) {
    // A loop whose iterations overlap needs the tiles of all that run at once.
    const int least = ring.level.empty() ? 1 : stages_.at(ring.level.back());
    ring.innermost = !ring.level.empty() && !around_.contains(ring.level.back());
    ring.depth = std::max(least, wanted_depth(ring, choice));
  }
  program_.turns = choice.turns && partition_.all_lanes() > 1;
  program_.staged_stores = choice.staged_stores;
  program_.changes_places = changes_places();
  return std::move(program_);
}

namespace {

void print_items(const task::Graph& graph, const std::vector<Item>& items, int indent, std::string& text) {
  static constexpr const char* parts[] = {"", "issue ", "wait ", "prepare ", "move "};
  static constexpr const char* kinds[] = {"load", "map", "reduce", "serial_reduce", "mma", "store", "slice"};
  static constexpr const char* units[] = {"copy_engine", "tensor_core", "cuda_cores"};
  const std::string pad(static_cast<std::size_t>(indent) * 2, ' ');
  for (const Item& item : items) {
    if (const auto* entry = std::get_if<Entry>(&item.node)) {
      const Task& t = graph[entry->task];
      std::string what = kinds[static_cast<int>(t.kind)];
      if (t.writes) {
        what += " " + graph.kernel[*t.writes].name;
      } else {
        what += " " + graph.kernel[std::get<kernel::Store>(graph.kernel[t.statement].node).tensor].name;
      }
      text += fmt::format("{}{}{} @ {} stage {}\n", pad, parts[static_cast<int>(entry->part)], what,
                          units[static_cast<int>(t.unit)], entry->stage);
    } else {
      const auto& loop = std::get<LoopTree>(item.node);
      text += fmt::format("{}for {} stages {}\n", pad, graph.kernel[loop.axis].name, loop.stages);
      print_items(graph, loop.body, indent + 1, text);
    }
  }
}

}  // namespace

std::string print(const task::Graph& graph, const Program& program) {
  std::string text = fmt::format("sprogram {}\n", graph.kernel.name);
  for (const RingPlan& ring : program.rings) {
    text += "ring";
    for (const ValueId v : ring.values) text += " " + graph.kernel[v].name;
    text += fmt::format(" depth {}{}\n", ring.depth, ring.multicast ? " multicast" : "");
  }
  if (program.turns) text += "turns on tensor_core\n";
  if (program.staged_stores) text += "stores through shared memory\n";
  if (program.changes_places) text += "lanes change places\n";
  if (!program.copier.empty()) {
    text += "lane copier\n";
    print_items(graph, program.copier, 1, text);
  }
  text += "lane computer\n";
  print_items(graph, program.computer, 1, text);
  return text;
}

}  // namespace pipethreader::schedule
