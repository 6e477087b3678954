// The sProgram: for every lane a tree of sequences and loops over sTasks, each with its unit and its stage, and the
// barrier-sTasks that wait for asynchronous ones. A loop with two stages is software-pipelined: a stage-1 task of
// iteration n runs beside the stage-0 tasks of iteration n + 1.
//
// Only the primitives of Composer build one: append and wait (propagate is the partition's).
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "partition/assignment.h"
#include "partition/partition.h"
#include "task/graph.h"

namespace pipethreader::schedule {

enum class Part : std::uint8_t {
  whole,    // a blocking sTask, or the copy of an asynchronous load
  issue,    // an asynchronous sTask starts
  wait,     // the barrier-sTask: `task` has finished
  prepare,  // a blocking sTask whose result goes beside its registers, which a product may still be reading
  move,     // and into them
};

struct Entry {
  task::TaskId task;
  Part part = Part::whole;
  int stage = 0;
};

struct Item;
struct LoopTree {
  kernel::AxisId axis;
  kernel::StatementId statement;
  int stages = 1;
  std::vector<Item> body;
};
struct Item {
  std::variant<Entry, LoopTree> node;
};

[[nodiscard]] inline int stage_of(const Item& item) {
  const auto* entry = std::get_if<Entry>(&item.node);
  return entry == nullptr ? 0 : entry->stage;
}

// Loads whose tiles are filled and freed together.
struct RingPlan {
  std::vector<kernel::ValueId> values;
  int depth = 2;
  std::vector<kernel::StatementId> level;  // the loops around it, outermost first
  bool innermost = false;                  // no loop stands in the last of these: as deep as the choice says
  bool multicast = false;                  // the blocks of a cluster read the same tiles and copy them for each other
};

struct Program {
  std::vector<Item> copier;    // entries are loads
  std::vector<Item> computer;  // what every computing lane runs on its share of the rows
  std::vector<RingPlan> rings;
  bool turns = false;          // computing lanes take turns on the tensor core
  bool staged_stores = false;  // results leave through shared memory and the copy engine
  // In every step of a walk the lanes have other rows, so that each has its share of the longest loops.
  bool changes_places = false;

  [[nodiscard]] std::optional<std::size_t> ring_of(kernel::ValueId value) const;  // index into `rings`
};

// The registers that Part::prepare writes and Part::move reads, as a value of their own; and whose they are.
[[nodiscard]] inline kernel::ValueId prepared(const task::Graph& graph, kernel::ValueId value) {
  return kernel::ValueId(graph.kernel.values.size() + static_cast<std::size_t>(value.index));
}
[[nodiscard]] inline kernel::ValueId owner(const task::Graph& graph, kernel::ValueId value) {
  return kernel::ValueId(static_cast<std::size_t>(value.index) % graph.kernel.values.size());
}

// How a loop overlaps what it runs.
enum class Overlap : std::uint8_t {
  serial,    // every product is waited for where it is used
  deferred,  // products that only accumulate are waited for in the next iteration
  delayed,   // products that only accumulate run one iteration later, under the next one's arithmetic
};

struct Choice {
  Overlap overlap = Overlap::deferred;
  int depth = 0;  // slots of rings inside loops; 0: as many as fit, up to 4
  int outer = 1;  // slots of rings outside loops; with 2, the next work item's tiles arrive during this one
  bool turns = false;
  bool staged_stores = false;
  bool operator==(const Choice&) const = default;
};

// Builds a program by the primitives only; refuses what breaks a dependence.
class Composer {
 public:
  Composer(const task::Graph& graph, const partition::Partition& partition, const partition::Assignment& assignment);

  // Opens and closes a loop in both lanes.
  void open(kernel::AxisId axis, kernel::StatementId statement, int stages);
  void close();
  // append(task, unit, lane, stage): the unit follows from the task; loads go to the copier's lane.
  void append(task::TaskId task, Part part, int stage);
  // wait(task): the computing lane waits until `task` has finished.
  void wait(task::TaskId task, int stage) { append(task, Part::wait, stage); }

  [[nodiscard]] Program finish(const Choice& choice);

 private:
  std::vector<Item>& body(bool copier);
  [[nodiscard]] bool alike_in_cluster(const task::Task& load) const;
  [[nodiscard]] bool copied_since_loop(kernel::ValueId value);
  [[nodiscard]] bool changes_places() const;

  const task::Graph& graph_;
  const partition::Partition& partition_;
  const partition::Assignment& assignment_;
  Program program_;
  std::vector<LoopTree> open_computer_;
  std::vector<LoopTree> open_copier_;
  std::map<kernel::StatementId, int> stages_;  // of every loop
  std::set<kernel::StatementId> around_;       // loops with a loop inside
};

// The greedy policy: in each body a list schedule that issues asynchronous tasks as early as their operands allow,
// longest way to the end first, and waits as late as possible.
[[nodiscard]] Result<Program> greedy(const task::Graph& graph, const partition::Partition& partition,
                                     const partition::Assignment& assignment, const Choice& choice);

[[nodiscard]] std::string print(const task::Graph& graph, const Program& program);

}  // namespace pipethreader::schedule
