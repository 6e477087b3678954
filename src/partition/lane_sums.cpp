#include "partition/lane_sums.h"

#include <algorithm>

#include "task/rewrite.h"

namespace pipethreader::partition {

using namespace kernel;
using task::Task;
using task::TaskId;
using task::TaskKind;

namespace {

class Finder {
 public:
  explicit Finder(const task::Graph& graph) : graph_(graph) {}

  std::optional<LaneSums> run() {
    if (!outside(graph_.root, {}) || loop_ == nullptr || !inside() || !joined_outside()) return std::nullopt;
    return result_;
  }

 private:
  bool tiled(AxisId a) const { return graph_.tiled.contains(a); }

  bool has(const std::vector<AxisId>& axes, AxisId a) const {
    return std::find(axes.begin(), axes.end(), a) != axes.end();
  }

  bool is_partial(ValueId v) const {
    return std::find(result_.values.begin(), result_.values.end(), v) != result_.values.end();
  }

  // One loop over tiles; around it only loops of single steps, beside it only what a lane does by itself.
  bool outside(const std::vector<task::Node>& nodes, const std::vector<StatementId>& around) {
    for (const task::Node& node : nodes) {
      if (const auto* id = std::get_if<TaskId>(&node.item)) {
        beside_.emplace_back(*id, around);
        const TaskKind kind = graph_[*id].kind;
        if (kind == TaskKind::mma || kind == TaskKind::serial_reduce || kind == TaskKind::slice) return false;
        continue;
      }
      const auto& loop = std::get<task::LoopNode>(node.item);
      std::vector<StatementId> inner = around;
      inner.push_back(loop.statement);
      if (!tiled(loop.axis)) {
        if (!outside(loop.body, inner)) return false;
        continue;
      }
      if (loop_ != nullptr) return false;
      loop_ = &loop;
      path_ = inner;
    }
    return true;
  }

  // Over the loop's axis, or a sum over it, or the same in all lanes.
  bool inside() {
    result_.axis = loop_->axis;
    std::vector<TaskId> tasks;
    for (const task::Node& node : loop_->body) {
      const auto* id = std::get_if<TaskId>(&node.item);
      if (id == nullptr) return false;
      tasks.push_back(*id);
    }
    for (const TaskId id : tasks) {
      if (sums(graph_[id])) {
        const ValueId v = *graph_[id].writes;
        if (!is_partial(v)) result_.values.push_back(v);
      }
    }
    if (result_.values.empty()) return false;
    const auto& where = std::get<Loop>(graph_.kernel[loop_->statement].node).where;
    const auto partial = [&](ValueId v) { return is_partial(v); };
    if (where && std::ranges::any_of(task::values_of(graph_.kernel, *where), partial)) return false;
    for (const TaskId id : tasks) {
      const Task& t = graph_[id];
      if (t.kind == TaskKind::serial_reduce || t.kind == TaskKind::slice || t.kind == TaskKind::store) return false;
      if (std::any_of(t.reads.begin(), t.reads.end(), partial)) return false;
      if (sums(t)) continue;
      if (partial(*t.writes)) return false;
      if (!has(graph_.kernel[*t.writes].axes, result_.axis) && t.kind != TaskKind::load && t.kind != TaskKind::map)
        return false;
    }
    for (const ValueId v : result_.values) {
      if (starts_at_zero(v)) result_.from_zero.insert(v);
    }
    return true;
  }

  // The sums start in front of one loop, which may be around the one over tiles, and nothing inside it looks at them.
  bool joined_outside() {
    std::optional<std::size_t> depth;
    const auto partial = [&](ValueId v) { return is_partial(v); };
    for (const auto& [id, around] : beside_) {
      const Task& t = graph_[id];
      if (!t.writes || !partial(*t.writes)) continue;
      const bool on_path = around.size() < path_.size() && std::equal(around.begin(), around.end(), path_.begin());
      if (!on_path || (depth && *depth != around.size())) return false;
      depth = around.size();
    }
    if (!depth) return false;
    result_.loop = path_[*depth];
    return std::none_of(beside_.begin(), beside_.end(), [&](const auto& beside) {
      const Task& t = graph_[beside.first];
      return beside.second.size() > *depth && std::any_of(t.reads.begin(), t.reads.end(), partial);
    });
  }

  // v += sum over the loop's axis.
  bool sums(const Task& t) const {
    if (!t.accumulates || !t.writes || has(graph_.kernel[*t.writes].axes, loop_->axis)) return false;
    if (t.product) return t.product->k == loop_->axis;
    if (t.kind != TaskKind::reduce) return false;
    const Expr& e = graph_.kernel[std::get<Assign>(graph_.kernel[t.statement].node).expr];
    return e.reduce == ReduceOp::sum && has(e.axes, loop_->axis);
  }

  bool starts_at_zero(ValueId v) const {
    return std::all_of(graph_.tasks.begin(), graph_.tasks.end(), [&](const Task& t) {
      return t.writes != v || sums(t) || task::sets_zero(graph_.kernel, t.statement);
    });
  }

  const task::Graph& graph_;
  const task::LoopNode* loop_ = nullptr;                             // over tiles
  std::vector<StatementId> path_;                                    // the loops around it and itself, outermost first
  std::vector<std::pair<TaskId, std::vector<StatementId>>> beside_;  // tasks outside of it, with the loops around them
  LaneSums result_;
};

}  // namespace

std::optional<LaneSums> lane_sums(const task::Graph& graph) { return Finder(graph).run(); }

}  // namespace pipethreader::partition
