#include "partition/assignment.h"

#include <algorithm>

#include "partition/bulk.h"
#include "partition/partial_sums.h"
#include "partition/stairs.h"
#include "task/affine.h"
#include "task/products.h"
#include "task/rewrite.h"

namespace pipethreader::partition {

using namespace kernel;
using layout::Layout;
using task::Task;
using task::TaskId;
using task::TaskKind;

namespace {

constexpr int alignment = 128;  // bytes: where the copy engine can begin to write shared memory
// Of one tile: far more than threads can hold in registers, or shared memory. Code is written out for each register.
constexpr std::int64_t most_bytes = 4 << 20;

bool contains(const std::vector<AxisId>& axes, AxisId axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

std::vector<int> extents(const Partition& partition, const std::vector<AxisId>& axes) {
  std::vector<int> shape;
  for (const AxisId a : axes) shape.push_back(partition.local(a));
  return shape;
}

// The loop conditions that hold where a task stands, and the loops around it.
struct Context {
  std::vector<std::pair<AxisId, std::optional<ExprId>>> loops;
};

class Assigner {
 public:
  Assigner(const task::Graph& graph, const Partition& partition) : graph_(graph), partition_(partition) {}

  Result<Assignment> run() {
    if (auto done = check_sizes(); !done) return tl::unexpected(done.error());
    result_.values.resize(graph_.kernel.values.size());
    visit(graph_.root, {});
    for (const auto& [id, context] : order_) {
      if (graph_[id].product) orient(id);
    }
    for (const auto& [id, context] : order_) {
      if (graph_[id].product) {
        if (auto done = place_product(id, context); !done) return tl::unexpected(done.error());
      }
    }
    for (const auto& [id, context] : order_) {
      if (graph_[id].kind == TaskKind::serial_reduce) place_conditions(graph_[id], context);
    }
    for (const auto& [id, context] : order_) place_others(id, context);
    cut_stairs();
    for (std::size_t i = 0; i < result_.values.size(); ++i) finish(ValueId(i));
    keep_sums_in_shares(graph_, result_);
    if (partition_.apart.valid()) {
      if (auto done = check_teams(); !done) return tl::unexpected(done.error());
    }
    return std::move(result_);
  }

 private:
  // What no block could hold is refused before anything is worked out, or code written, for so many elements.
  Result<void> check_sizes() const {
    for (const Task& task : graph_.tasks) {
      if (!task.writes) continue;
      const Value& value = graph_.kernel[*task.writes];
      std::int64_t bytes = std::max(1, bits(value.type) / 8);
      std::string shape;
      for (const AxisId a : graph_.tiled_axes(*task.writes)) {
        bytes = std::min(bytes, most_bytes) * partition_.extent(a);
        shape += fmt::format("{}{}:{}", shape.empty() ? "" : " ", graph_.kernel[a].name, partition_.extent(a));
      }
      if (bytes <= most_bytes) continue;
      return fail_at(graph_.kernel.file, graph_.kernel[task.statement].span,
                     fmt::format("a tile of '{}' ({}) is larger than any block can hold", value.name, shape),
                     "fix smaller sizes of its inner and reduced axes with --dim, or stream one: `for j: SIZE`");
    }
    return {};
  }

  // Each team's tile begins where the copy engine can put it, and products can read it.
  Result<void> check_teams() const {
    for (std::size_t i = 0; i < result_.values.size(); ++i) {
      const Place& place = result_.values[i];
      const std::string& name = graph_.kernel.values[i].name;
      if (place.scratch) return fail("teams would write '{}' to shared memory one over the other", name);
      if (!place.shared || place.shared->parts == 1) continue;
      const std::int64_t row_bytes = std::int64_t{place.shared->cols} * bits(graph_.kernel.values[i].type) / 8;
      const int own = place.shared->own_rows();
      if (own * row_bytes % alignment != 0 || (own > 1 && own % 8 != 0))
        return fail("the tiles of teams of '{}' do not begin at multiples of {} bytes", name, alignment);
    }
    return {};
  }

  void visit(const std::vector<task::Node>& nodes, const Context& context) {
    for (const task::Node& node : nodes) {
      if (const auto* id = std::get_if<TaskId>(&node.item)) {
        order_.emplace_back(*id, context);
        const Task& t = graph_[*id];
        if (t.kind == TaskKind::load) loads_[*t.writes] = {*id, context};
        if (t.kind == TaskKind::slice) at(*t.writes).kept = t.reads[0];
      } else {
        const auto& loop = std::get<task::LoopNode>(node.item);
        Context inner = context;
        const auto& where = std::get<Loop>(graph_.kernel[loop.statement].node).where;
        if (where) {
          for (const ValueId v : task::values_of(graph_.kernel, *where)) at(v).in_registers = true;
        }
        inner.loops.emplace_back(loop.axis, where);
        visit(loop.body, inner);
      }
    }
  }

  Place& at(ValueId v) { return result_.values[static_cast<std::size_t>(v.index)]; }
  bool loaded(ValueId v) const { return loads_.contains(v) || result_.values[static_cast<std::size_t>(v.index)].kept; }

  static std::optional<ExprId> where_of(const Context& context, AxisId axis) {
    for (const auto& [a, where] : context.loops) {
      if (a == axis) return where;
    }
    return std::nullopt;
  }

  bool masks_points(const Context& context, AxisId k) const {
    return masking(graph_, partition_, k, where_of(context, k)).conditioned;
  }

  // Which of the product's free axes makes the accumulator's rows.
  void orient(TaskId id) {
    const task::Product& p = *graph_[id].product;
    ProductPlace place;
    const auto known = std::find_if(result_.domains.begin(), result_.domains.end(),
                                    [&](const auto& d) { return contains(d.first, p.m) && contains(d.first, p.n); });
    AxisId rows = p.m;
    if (known != result_.domains.end()) {
      rows = known->first[0];
    } else if (p.n == partition_.row) {
      rows = p.n;
    } else if (p.m != partition_.row && loaded(p.a) && !loaded(p.b)) {
      rows = p.n;  // keep the computed operand in registers
    }
    place.swapped = rows == p.n;
    const AxisId cols = place.swapped ? p.m : p.n;
    if (known == result_.domains.end()) add_domain(rows, cols);
    result_.products[id] = place;
  }

  void add_domain(AxisId rows, AxisId cols) {
    result_.domains.push_back({{rows, cols}, layout::mma_accumulator(partition_.local(rows), partition_.local(cols))});
  }

  Result<void> place_product(TaskId id, const Context& context) {
    const task::Product p = oriented(graph_, result_, id);
    ProductPlace& place = result_.products[id];
    const bool masked = masks_points(context, p.k);
    const bool a_computed = !loaded(p.a);
    if (a_computed || masked || held(p.a, context)) {
      const auto known = std::find_if(result_.domains.begin(), result_.domains.end(),
                                      [&](const auto& d) { return contains(d.first, p.m) && contains(d.first, p.k); });
      if (known == result_.domains.end()) {
        if (partition_.local(p.m) % 64 == 0) {
          add_domain(p.m, p.k);
          place.a_in_registers = true;
        }
      } else {
        place.a_in_registers = known->first[0] == p.m;
      }
    }
    if (place.a_in_registers) {
      at(p.a).in_registers = true;
      if (!a_computed) stage(p.a);
    } else {
      in_shared(p.a);
    }
    in_shared(p.b);
    return {};
  }

  // Whether the operand is loaded outside a loop that the product stands in, and shall stay in registers meanwhile.
  bool held(ValueId v, const Context& context) const {
    const auto load = loads_.find(v);
    return partition_.choice.hold && load != loads_.end() && load->second.second.loops.size() < context.loops.size();
  }

  void in_shared(ValueId v) {
    if (loaded(v)) {
      stage(v);
    } else {
      at(v).in_registers = true;
      in_scratch(v);
    }
  }

  void stage(ValueId v) {
    if (at(v).kept) return stage(*at(v).kept);
    at(v).staged = true;
    at(v).shared = loaded_tile(v);
  }

  SharedTile tile_of(const std::vector<AxisId>& axes, bool whole) const {
    SharedTile tile;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      // Shared memory is one for all lanes: tiles are whole there.
      const int extent = whole ? partition_.extent(axes[i]) : partition_.local(axes[i]);
      if (i + 1 == axes.size()) {
        tile.column = axes[i];
        tile.cols = extent;
      } else {
        tile.row_axes.push_back(axes[i]);
        tile.rows *= extent;
      }
    }
    return tile;
  }

  SharedTile loaded_tile(ValueId v) const {
    SharedTile tile = tile_of(graph_.tiled_axes(v), true);
    if (!tile.column.valid()) tile.cols = alignment * 8 / bits(graph_.kernel[v].type);
    const StatementId load = graph_[loads_.at(v).first].statement;
    if (differs_in_teams(graph_, partition_, std::get<Assign>(graph_.kernel[load].node).expr)) {
      tile.parts = partition_.choice.teams;
      tile.rows *= tile.parts;
    }
    return tile;
  }
  SharedTile computed_tile(ValueId v) const { return tile_of(graph_.tiled_axes(v), true); }

  // Loads in loops that no product reads from shared memory, and vectors and single numbers outside of loops, whose
  // latency nothing else would hide: through a ring when the copy engine can do it.
  void place_others(TaskId id, const Context& context) {
    const Task& t = graph_[id];
    if (t.kind == TaskKind::load) {
      Place& place = at(*t.writes);
      const std::size_t axes = graph_.tiled_axes(*t.writes).size();
      const bool worthwhile = context.loops.empty() ? axes <= 1 : axes > 0;
      if (!place.staged && !place.scratch && partition_.has_products && worthwhile) {
        const auto& access = graph_.kernel[std::get<Assign>(graph_.kernel[t.statement].node).expr];
        Kernel scratch = graph_.kernel;
        const BulkAnswer answer = bulk_view(scratch, graph_.tiled, access.tensor, access.args);
        const std::int64_t row_bytes =
            axes == 0 ? alignment : partition_.extent(graph_.tiled_axes(*t.writes).back()) * bits(access.type) / 8;
        if (answer.view && answer.view->aligned.empty() && row_bytes % 16 == 0 && exact(*answer.view)) stage(*t.writes);
      }
      return;
    }
    if (t.kind == TaskKind::slice) {
      stage(t.reads[0]);
      return;
    }
    for (const ValueId v : t.reads) {
      const bool operand = t.product && (v == t.product->a || v == t.product->b);
      if (!operand && t.kind != TaskKind::serial_reduce) at(v).in_registers = true;
      if (t.kind == TaskKind::serial_reduce) serial_operand(t, v);
    }
    if (t.writes) at(*t.writes).in_registers = true;
    // Registers hold what a value is at its own axes; at other places it is read from shared memory.
    for (const ValueId v : task::read_elsewhere(graph_.kernel, graph_.kernel[t.statement])) in_scratch(v);
  }

  void in_scratch(ValueId v) {
    at(v).scratch = true;
    at(v).shared = computed_tile(v);
  }

  // Of tiles that are kept for a walk and read by threads alone.
  void cut_stairs() {
    std::map<ValueId, std::vector<std::optional<ExprId>>> conditions;
    std::set<ValueId> read_by_products;
    for (const auto& [id, context] : order_) {
      const Task& t = graph_[id];
      if (t.kind != TaskKind::slice) continue;
      const auto whole = graph_.kept.find(at(t.reads[0]).shared->column);
      conditions[t.reads[0]].push_back(whole == graph_.kept.end() ? std::nullopt : where_of(context, whole->second));
      if (!at(*t.writes).in_registers) read_by_products.insert(t.reads[0]);
    }
    for (const auto& [value, wheres] : conditions) {
      SharedTile& tile = *at(value).shared;
      if (!read_by_products.contains(value) && !at(value).in_registers)
        tile.stairs = stairs(graph_, partition_, tile, graph_.kernel[value].type, wheres);
    }
  }

  bool exact(const BulkView& view) const {
    return std::all_of(view.dims.begin(), view.dims.end(), [](const BulkDim& d) { return d.exact; });
  }

  // So are the data of conditions about what it walks through.
  void place_conditions(const Task& t, const Context& context) {
    const auto& reduce = graph_.kernel[std::get<Assign>(graph_.kernel[t.statement].node).expr];
    for (const AxisId axis : reduce.axes) {
      const auto where = where_of(context, axis);
      if (!where) continue;
      for (const ValueId v : task::values_of(graph_.kernel, *where)) {
        if (!at(v).kept && !at(v).staged) serial_operand(t, v);
      }
    }
  }

  // A computed value that a serial reduction walks through index by index is read from shared memory.
  void serial_operand(const Task& t, ValueId v) {
    const auto& reduce = graph_.kernel[std::get<Assign>(graph_.kernel[t.statement].node).expr];
    const bool walked = std::any_of(reduce.axes.begin(), reduce.axes.end(),
                                    [&](AxisId a) { return contains(graph_.kernel[v].axes, a); });
    at(v).in_registers = true;
    if (walked) in_scratch(v);
  }

  void finish(ValueId v) {
    Place& place = at(v);
    place.axes = graph_.tiled_axes(v);
    for (const auto& [id, product] : result_.products) {  // products want [M, K] and [M, N]
      const task::Product p = oriented(graph_, result_, id);
      if (product.a_in_registers && p.a == v) place.axes = {p.m, p.k};
      if (graph_[id].writes == v) place.axes = {p.m, p.n};
    }
    if (place.in_registers) place.layout = domain_layout(graph_, partition_, result_, place.axes);
  }

  const task::Graph& graph_;
  const Partition& partition_;
  Assignment result_;
  std::vector<std::pair<TaskId, Context>> order_;
  std::map<ValueId, std::pair<TaskId, Context>> loads_;
};

}  // namespace

std::int64_t SharedTile::elements() const {
  return stairs ? stairs->elements(rows / stairs->rows) : std::int64_t{rows} * cols;
}

Layout domain_layout(const task::Graph& graph, const Partition& partition, const Assignment& assignment,
                     const std::vector<AxisId>& axes) {
  if (axes.empty()) return layout::replicated_over_threads({});
  // A slice of a known domain that holds all the axes.
  for (const auto& [known, domain] : assignment.domains) {
    std::vector<int> kept;
    for (const AxisId a : axes) {
      const auto found = std::find(known.begin(), known.end(), a);
      if (found == known.end()) break;
      kept.push_back(static_cast<int>(found - known.begin()));
    }
    if (kept.size() == axes.size()) return layout::slice(domain, kept);
  }
  if (partition.has_products && axes.size() == 2 && contains(axes, partition.row) && partition.row.valid()) {
    const AxisId other = axes[0] == partition.row ? axes[1] : axes[0];
    const Layout rows = layout::mma_accumulator(partition.local(partition.row), partition.local(other));
    const int row_dim = axes[0] == partition.row ? 0 : 1;
    const std::vector<int> kept = {row_dim == 0 ? 0 : 1, row_dim == 0 ? 1 : 0};
    return layout::slice(rows, kept);
  }
  const auto& kernel = graph.kernel;
  int vector = 8;
  for (const auto& tensor : kernel.tensors)
    vector = std::min(vector, std::max(1, 128 / std::max(8, bits(tensor.type))));
  if (!partition.has_products) {
    // The widest tile of the kernel gives the layout; smaller ones are its slices.
    std::vector<AxisId> all;
    for (std::size_t i = 0; i < kernel.values.size(); ++i) {
      const auto mine = graph.tiled_axes(ValueId(i));
      if (mine.size() > all.size()) all = mine;
    }
    const bool inside = std::all_of(axes.begin(), axes.end(), [&](AxisId a) { return contains(all, a); });
    if (inside) {
      const Layout whole = layout::blocked(extents(partition, all), vector);
      std::vector<int> kept;
      for (const AxisId a : axes) kept.push_back(static_cast<int>(std::find(all.begin(), all.end(), a) - all.begin()));
      return layout::slice(whole, kept);
    }
  }
  return layout::blocked(extents(partition, axes), vector);
}

task::Product oriented(const task::Graph& graph, const Assignment& assignment, TaskId task) {
  task::Product p = *graph[task].product;
  if (assignment.products.at(task).swapped) {
    std::swap(p.a, p.b);
    std::swap(p.m, p.n);
  }
  return p;
}

Masking masking(const task::Graph& graph, const Partition& partition, AxisId axis, const std::optional<ExprId>& where) {
  Masking result;
  const auto extent = task::static_extent(graph.kernel, axis);
  result.ragged = !extent || *extent == 0 || *extent % partition.extent(axis) != 0;
  if (where) {
    const task::Conjunction c = task::conjunction(graph.kernel, *where, graph.tiled);
    result.conditioned = !c.inequalities.empty() || !c.opaque.empty();
  }
  return result;
}

Result<Assignment> assign(const task::Graph& graph, const Partition& partition) {
  return Assigner(graph, partition).run();
}

std::string print(const task::Graph& graph, const Partition& partition, const Assignment& assignment) {
  std::string text = fmt::format("assignment {}\n", graph.kernel.name);
  for (std::size_t i = 0; i < assignment.values.size(); ++i) {
    const Place& place = assignment.values[i];
    const Value& value = graph.kernel.values[i];
    std::string where;
    if (place.staged) where += fmt::format(" ring[{}, {}]", place.shared->rows, place.shared->cols);
    if (assignment.is_partial(ValueId(i))) where += " partial";
    if (place.scratch) where += fmt::format(" shared[{}, {}]", place.shared->rows, place.shared->cols);
    if (place.in_registers) where += " registers " + layout::print(place.layout);
    text += fmt::format("  {}: {}{}\n", value.name, name(value.type), where.empty() ? " unused" : where);
  }
  for (const auto& [id, place] : assignment.products) {
    const task::Product p = oriented(graph, assignment, id);
    text += fmt::format("  product rows {} columns {} over {}: a {} from {}, b {} from shared\n",
                        graph.kernel[p.m].name, graph.kernel[p.n].name, graph.kernel[p.k].name, graph.kernel[p.a].name,
                        place.a_in_registers ? "registers" : "shared", graph.kernel[p.b].name);
  }
  (void)partition;
  return text;
}

}  // namespace pipethreader::partition
