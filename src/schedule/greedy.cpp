#include <algorithm>

#include "schedule/order.h"
#include "schedule/sprogram.h"

namespace pipethreader::schedule {

using task::TaskId;

namespace {

class Greedy {
 public:
  Greedy(const task::Graph& graph, const partition::Partition& partition, const partition::Assignment& assignment,
         const Choice& choice)
      : graph_(graph), assignment_(assignment), choice_(choice), composer_(graph, partition, assignment) {}

  Program run() {
    place(graph_.root, false);
    Choice choice = choice_;
    if (choice.depth == 0) choice.depth = 2;
    return composer_.finish(choice);
  }

 private:
  // Straight stretches between loops are ordered on their own; a loop without inner loops may be pipelined.
  void place(const std::vector<task::Node>& nodes, bool in_loop) {
    const bool pipelined = in_loop && std::none_of(nodes.begin(), nodes.end(), [](const task::Node& n) {
                             return std::holds_alternative<task::LoopNode>(n.item);
                           });
    std::vector<TaskId> straight;
    for (const task::Node& node : nodes) {
      if (const auto* id = std::get_if<TaskId>(&node.item)) {
        straight.push_back(*id);
        continue;
      }
      flush(straight, false);
      const auto& loop = std::get<task::LoopNode>(node.item);
      composer_.open(loop.axis, loop.statement, stages_of(loop.body));
      place(loop.body, true);
      composer_.close();
    }
    flush(straight, pipelined);
  }

  int stages_of(const std::vector<task::Node>& body) const {
    std::vector<TaskId> tasks;
    for (const task::Node& node : body) {
      const auto* id = std::get_if<TaskId>(&node.item);
      if (id == nullptr) return 1;
      tasks.push_back(*id);
    }
    int stages = 1;
    for (const Entry& e : order_body(graph_, assignment_, tasks, true, choice_.overlap))
      stages = std::max(stages, e.stage + 1);
    return stages;
  }

  void flush(std::vector<TaskId>& tasks, bool pipelined) {
    for (const TaskId id : tasks) {  // copies, in the order of the body; their fetches are ordered below
      const task::Task& t = graph_[id];
      if (t.kind == task::TaskKind::load && assignment_[*t.writes].staged && !assignment_[*t.writes].in_registers)
        composer_.append(id, Part::whole, 0);
    }
    for (const Entry& e : order_body(graph_, assignment_, tasks, pipelined, choice_.overlap))
      composer_.append(e.task, e.part, e.stage);
    tasks.clear();
  }

  const task::Graph& graph_;
  const partition::Assignment& assignment_;
  const Choice& choice_;
  Composer composer_;
};

}  // namespace

Result<Program> greedy(const task::Graph& graph, const partition::Partition& partition,
                       const partition::Assignment& assignment, const Choice& choice) {
  return Greedy(graph, partition, assignment, choice).run();
}

}  // namespace pipethreader::schedule
