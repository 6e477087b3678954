#include "partition/partial_sums.h"

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
  Finder(const task::Graph& graph, Assignment& assignment) : graph_(graph), result_(assignment) {}

  void find(const std::vector<task::Node>& nodes) {
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      const auto* loop = std::get_if<task::LoopNode>(&nodes[n].item);
      if (loop == nullptr) continue;
      find(loop->body);
      for (const task::Node& node : loop->body) {
        const auto* id = std::get_if<TaskId>(&node.item);
        if (id != nullptr && graph_[*id].kind == TaskKind::reduce) consider_partial(*id, *loop, nodes, n);
      }
    }
  }

 private:
  Place& at(ValueId v) { return result_.values[static_cast<std::size_t>(v.index)]; }

  // `nodes[place]` is the loop, the reduction stands in its body.
  void consider_partial(TaskId id, const task::LoopNode& loop, const std::vector<task::Node>& nodes,
                        std::size_t place) {
    const Task& reduction = graph_[id];
    const auto& assign = std::get<Assign>(graph_.kernel[reduction.statement].node);
    const Expr& reduce = graph_.kernel[assign.expr];
    if (reduce.reduce != ReduceOp::sum) return;
    // t = sum; v = v * f + t, or v += sum
    const ValueId term = *reduction.writes;
    std::optional<ValueId> sum;
    std::set<TaskId> own = {id};
    if (reduction.accumulates) {
      sum = term;
    } else {
      const auto users = readers(graph_.root, term);
      if (users.size() != 1 || !directly_in(loop, *users.begin())) return;
      sum = linear_sum(*users.begin(), term);
      own.insert(*users.begin());
    }
    if (!sum || writers(*sum).size() != 2) return;
    // Nothing else in the loop reads it, nothing between its start at 0 and the loop does, nobody before.
    std::optional<std::size_t> start;
    for (std::size_t i = 0; i < place; ++i) {
      const auto* task = std::get_if<TaskId>(&nodes[i].item);
      if (task != nullptr && graph_[*task].writes == sum && task::sets_zero(graph_.kernel, graph_[*task].statement))
        start = i;
      if (!readers({nodes[i]}, *sum).empty()) return;
    }
    if (!start) return;
    for (const TaskId user : readers(loop.body, *sum)) {
      if (!own.contains(user)) return;
    }
    const auto& where = std::get<Loop>(graph_.kernel[loop.statement].node).where;
    if (where && task::values_of(graph_.kernel, *where).contains(*sum)) return;
    make_partial(loop, *sum, term, reduce);
  }

  void make_partial(const task::LoopNode& loop, ValueId sum, ValueId term, const Expr& reduce) {
    const std::vector<AxisId> rows = graph_.tiled_axes(sum);
    if (rows.size() != 1 || graph_.tiled_axes(term) != rows || at(sum).scratch || at(term).scratch) return;
    std::vector<AxisId> domain = rows;
    for (const AxisId a : reduce.axes) {
      if (graph_.tiled.contains(a)) domain.push_back(a);
    }
    const auto known =
        std::find_if(result_.domains.begin(), result_.domains.end(), [&](const auto& d) { return d.first == domain; });
    if (known == result_.domains.end()) return;
    const std::vector<int> kept = {0};
    const auto layout = layout::slice_with_residual(known->second, kept, share_stride, shares);
    if (!layout) return;
    for (const ValueId v : {sum, term}) {
      at(v).axes = {rows[0], partial_dim};
      at(v).layout = *layout;
    }
    result_.partial.push_back({loop.statement, sum});
  }

  static bool directly_in(const task::LoopNode& loop, TaskId id) {
    return std::any_of(loop.body.begin(), loop.body.end(), [&](const task::Node& node) {
      const auto* own = std::get_if<TaskId>(&node.item);
      return own != nullptr && *own == id;
    });
  }

  // The value v when the task is v = v * f + term or v += term, with f free of both.
  std::optional<ValueId> linear_sum(TaskId id, ValueId term) const {
    const Kernel& k = graph_.kernel;
    const auto* assign = std::get_if<Assign>(&k[graph_[id].statement].node);
    if (assign == nullptr || graph_[id].kind != TaskKind::map || assign->when) return std::nullopt;
    const auto is = [&](ExprId e, ValueId v) { return k[e].kind == Expr::Kind::value && k[e].value == v; };
    const ValueId sum = assign->target;
    if (assign->accumulate) return is(assign->expr, term) ? std::optional(sum) : std::nullopt;
    const Expr& e = k[assign->expr];
    if (e.kind != Expr::Kind::call || e.function != Function::add) return std::nullopt;
    for (int side = 0; side < 2; ++side) {
      if (!is(e.args[static_cast<std::size_t>(side)], term)) continue;
      const ExprId other = e.args[static_cast<std::size_t>(1 - side)];
      if (is(other, sum)) return sum;
      const Expr& product = k[other];
      if (product.kind != Expr::Kind::call || product.function != Function::mul) continue;
      for (int factor = 0; factor < 2; ++factor) {
        const ExprId f = product.args[static_cast<std::size_t>(1 - factor)];
        const auto read = task::values_of(k, f);
        if (is(product.args[static_cast<std::size_t>(factor)], sum) && !read.contains(sum) && !read.contains(term))
          return sum;
      }
    }
    return std::nullopt;
  }

  std::set<TaskId> readers(const std::vector<task::Node>& nodes, ValueId value) const {
    std::set<TaskId> found;
    for (const task::Node& node : nodes) {
      if (const auto* id = std::get_if<TaskId>(&node.item)) {
        const Task& t = graph_[*id];
        const bool reads = std::find(t.reads.begin(), t.reads.end(), value) != t.reads.end();
        if (reads || (t.accumulates && t.writes == value)) found.insert(*id);
      } else {
        found.merge(readers(std::get<task::LoopNode>(node.item).body, value));
      }
    }
    return found;
  }

  std::vector<TaskId> writers(ValueId value) const {
    std::vector<TaskId> found;
    for (std::size_t i = 0; i < graph_.tasks.size(); ++i) {
      if (graph_.tasks[i].writes == value) found.emplace_back(i);
    }
    return found;
  }

  const task::Graph& graph_;
  Assignment& result_;
};

}  // namespace

void keep_sums_in_shares(const task::Graph& graph, Assignment& assignment) {
  Finder(graph, assignment).find(graph.root);
}

}  // namespace pipethreader::partition
