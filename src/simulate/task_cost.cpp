#include "simulate/task_cost.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "task/rewrite.h"

namespace pipethreader::simulate {

using namespace kernel;
using device::Demand;
using device::Move;
using device::Resource;
using task::Task;
using task::TaskId;
using task::TaskKind;

namespace {

// How often a guarded statement is taken to run: guards exist to be false most of the time.
constexpr double guard_share = 0.25;
constexpr int threads = layout::threads_of_group;

std::size_t at(auto id) { return static_cast<std::size_t>(id.index); }

class Costing {
 public:
  Costing(const task::Graph& graph, const partition::Partition& partition, const partition::Assignment& assignment,
          const device::Device& device)
      : graph_(graph),
        kernel_(graph.kernel),
        partition_(partition),
        assignment_(assignment),
        device_(device),
        axes_(kernel_.exprs.size()) {}

  TaskCosts run() {
    TaskCosts costs;
    costs.tasks.resize(graph_.tasks.size());
    costs.fetches.resize(graph_.tasks.size());
    for (std::size_t i = 0; i < graph_.tasks.size(); ++i) {
      const Task& t = graph_.tasks[i];
      switch (t.kind) {
        case TaskKind::load:
          if (assignment_[*t.writes].staged) {
            costs.tasks[i] = copy(t);
            costs.fetches[i] = fetch(t);
          } else {
            costs.tasks[i] = load(t);
          }
          break;
        case TaskKind::slice:
          costs.tasks[i] = fetch(t);
          costs.tasks[i].cycles += device_.iteration.kept_cycles;
          break;
        case TaskKind::mma:
          costs.tasks[i] = mma(TaskId(i));
          break;
        default:
          costs.tasks[i] = elementwise(t);
          break;
      }
    }
    return costs;
  }

 private:
  using Axes = std::vector<AxisId>;

  // The tiled axes an expression varies over, without those its own reductions bind.
  const Axes& axes_of(ExprId id) {
    auto& slot = axes_[at(id)];
    if (slot) return *slot;
    const Expr& e = kernel_[id];
    Axes found;
    const auto insert = [&](AxisId a) {
      if (graph_.tiled.contains(a) && std::find(found.begin(), found.end(), a) == found.end()) found.push_back(a);
    };
    if (e.kind == Expr::Kind::axis) insert(e.axis);
    for (const ExprId arg : e.args) {
      const Axes inner = axes_of(arg);
      for (const AxisId a : inner) {
        if (e.kind != Expr::Kind::reduce || std::find(e.axes.begin(), e.axes.end(), a) == e.axes.end()) insert(a);
      }
    }
    slot = std::move(found);
    return *slot;
  }

  // Elements that the threads of one lane hold together, copies included.
  double elements(Axes axes) {
    if (axes.empty()) return threads;
    std::sort(axes.begin(), axes.end());
    const auto known = elements_.find(axes);
    if (known != elements_.end()) return known->second;
    const double count = threads * layout_of(axes).registers();
    elements_.emplace(axes, count);
    return count;
  }

  layout::Layout layout_of(const Axes& axes) const {
    return partition::domain_layout(graph_, partition_, assignment_, axes);
  }

  static int lane_copies(const layout::Layout& layout) {
    int copies = 1;
    for (const layout::Digit& d : layout.digits) {
      if (d.place == layout::Place::lane && d.dim == layout::replicated) copies *= d.extent;
    }
    return copies;
  }

  double tile_bytes(ValueId v, bool whole) const {
    double count = bits(kernel_[v].type) / 8.0;
    for (const AxisId a : graph_.tiled_axes(v)) count *= whole ? partition_.extent(a) : partition_.local(a);
    return count;
  }

  TaskCost finish(TaskCost cost) const {
    const Demand busy = device_.busy_cycles(cost.demand);
    cost.cycles = 0;
    for (const Resource r : device::all_resources()) {
      if (r != Resource::dram && std::isfinite(busy[r])) cost.cycles = std::max(cost.cycles, busy[r]);
    }
    cost.register_ports = cost.cycles > 0 ? busy[Resource::register_ports] / cost.cycles : 0;
    return cost;
  }

  TaskCost copy(const Task& t) const {
    TaskCost cost;
    cost.bytes = tile_bytes(*t.writes, true) * assignment_[*t.writes].shared->parts;
    cost.demand[Resource::l2] = cost.bytes;
    cost = finish(cost);
    cost.cycles /= device_.throughput.l2_alone_factor;
    cost.latency = device_.latency.bulk_load;
    const partition::SharedTile& tile = *assignment_[*t.writes].shared;
    // A box is as wide as the swizzle; one narrower than a line of memory moves it no faster.
    const int row = tile.cols * bits(kernel_[*t.writes].type) / 8;
    const int box = std::min(device_.memory.line_bytes, row & -row);
    if (tile.own_rows() > 1) cost.cycles *= static_cast<double>(device_.memory.line_bytes) / box;
    cost.instructions = std::max(1, row / box) * tile.parts;
    const device::Unit* unit = device_.unit(device::UnitKind::copy);
    cost.issue = cost.instructions * (unit == nullptr ? 1 : unit->issue_cycles);
    return cost;
  }

  TaskCost fetch(const Task& t) {
    TaskCost cost;
    if (!assignment_[*t.writes].in_registers) return cost;
    const double bytes = elements(graph_.tiled_axes(*t.writes)) * bits(kernel_[*t.writes].type) / 8.0;
    cost.demand = device_[Move::load_shared] * (bytes / 16);
    cost = finish(cost);
    cost.latency = device_.latency.shared_load;
    return cost;
  }

  TaskCost load(const Task& t) {
    TaskCost cost;
    const double bytes = elements(graph_.tiled_axes(*t.writes)) * bits(kernel_[*t.writes].type) / 8.0;
    cost.demand = device_[Move::load_global] * (bytes / 16);
    cost = finish(cost);
    cost.bytes = tile_bytes(*t.writes, true);
    cost.latency = device_.latency.global_load;
    return cost;
  }

  TaskCost mma(TaskId id) const {
    const task::Product p = partition::oriented(graph_, assignment_, id);
    const ScalarType type = kernel_[p.a].type;
    const device::MmaShape* shape = device_.find_mma(type, kernel_[p.b].type, ScalarType::f32);
    TaskCost cost;
    if (shape == nullptr) return cost;
    const auto parts = [](int extent, int step) { return (extent + step - 1) / step; };
    const int n = partition_.local(p.n);
    const int columns = parts(n, shape->n_max);
    cost.instructions = parts(partition_.local(p.m), shape->m) * columns * parts(partition_.local(p.k), shape->k);
    const bool registers = assignment_.products.at(id).a_in_registers;
    // Narrow products wait for their operands from shared memory.
    const double words = (registers ? 0 : shape->m) + static_cast<double>(n) / columns;
    const double operands = words * shape->k * bits(type) / 8 / device_.rate_per_cycle(Resource::shared_memory);
    const double tensor = shape->cycles(n, registers) / columns;
    // Operands that stream from shared memory hold the tensor core up now and then, though both could go at once.
    const double each = std::max(tensor, operands) + device_.throughput.operand_share * std::min(tensor, operands);
    cost.cycles = cost.instructions * each / device_.throughput.tensor_share;
    cost.demand[Resource::tensor] = cost.cycles;
    cost.latency = device_.latency.mma;
    const device::Unit* unit = device_.unit(device::UnitKind::tensor);
    cost.issue = cost.instructions * (unit == nullptr ? 1 : unit->issue_cycles);
    return cost;
  }

  TaskCost elementwise(const Task& t) {
    const Statement& statement = kernel_[t.statement];
    Axes domain;
    ExprId expr;
    std::optional<ExprId> guard;
    bool accumulate = false;
    if (const auto* carry = std::get_if<Carry>(&statement.node)) {
      expr = carry->init;
      domain = graph_.tiled_axes(carry->target);
    } else if (const auto* assign = std::get_if<Assign>(&statement.node)) {
      expr = assign->expr;
      guard = assign->when;
      accumulate = assign->accumulate;
      domain = graph_.tiled_axes(assign->target);
    } else {
      const auto& store = std::get<Store>(statement.node);
      expr = store.expr;
      guard = store.when;
      for (const ExprId index : store.indices) {
        for (const AxisId a : axes_of(index)) {
          if (std::find(domain.begin(), domain.end(), a) == domain.end()) domain.push_back(a);
        }
      }
    }
    TaskCost cost;
    double depth = 0;
    partial_ = t.writes && assignment_.is_partial(*t.writes);
    cost.demand = walk(expr, domain, false, depth);
    if (accumulate) cost.demand += function(Function::add, kernel_[expr].type) * elements(domain);
    if (t.kind == TaskKind::store) {
      store(t, domain, cost);
    } else if (t.writes && assignment_[*t.writes].scratch) {
      const double bytes = elements(domain) * bits(kernel_[*t.writes].type) / 8.0;
      cost.demand += device_[Move::store_shared] * (bytes / 4);  // fragments are scattered: 4 bytes at a time
      depth += device_.latency.shared_store + device_.barriers.named_cycles + device_.barriers.proxy_fence_cycles;
    }
    if (guard && t.kind != TaskKind::store) {
      double guard_depth = 0;
      cost.demand = cost.demand * guard_share;
      cost.demand += walk(*guard, axes_of(*guard), false, guard_depth);
      depth = depth * guard_share + guard_depth;
    }
    cost = finish(cost);
    cost.latency = depth;
    return cost;
  }

  void store(const Task& t, const Axes& domain, TaskCost& cost) {
    const auto& node = std::get<Store>(kernel_[t.statement].node);
    const double size = bits(kernel_[node.tensor].type) / 8.0;
    double bytes = size;
    for (const AxisId a : domain) bytes *= partition_.local(a);
    Demand move = device_[Move::store_global] * (bytes / 16);
    move[Resource::issue] = device_[Move::store_global][Resource::issue] * (bytes / 4);
    cost.demand += move;
    cost.bytes = bytes * partition_.all_lanes();
  }

  Demand function(Function f, ScalarType type) const {
    if (const Demand* d = device_.find_function(f, device::operand_class(type))) return *d;
    if (const Demand* d = device_.find_function(f, device::OperandClass::f32)) return *d;
    return {};
  }

  Demand conversion(ScalarType from, ScalarType to) const {
    if (const Demand* d = device_.find_conversion(from, to)) return *d;
    return {};
  }

  // Demand of everything below an expression; `depth` becomes the latency of its longest chain. What varies over fewer
  // axes than the domain is computed once for each of its own elements. A product that only feeds a sum is part of it.
  Demand walk(ExprId id, const Axes& domain, bool fused, double& depth) {
    const Expr& e = kernel_[id];
    depth = 0;
    Demand sum;
    if (e.kind == Expr::Kind::reduce) return reduction(e, domain, depth);
    if (task::is_read_elsewhere(kernel_, id)) {
      depth = device_.latency.shared_load;
      return device_[Move::load_shared] * (elements(axes_of(id)) * bits(e.type) / 8.0 / 4);  // 4 bytes at a time
    }
    if (e.kind == Expr::Kind::value || e.kind == Expr::Kind::access) return sum;  // indices cost next to nothing
    if (axes_of(id).empty() && is_integer(e.type)) return sum;                    // uniform
    const bool sums = e.kind == Expr::Kind::call && (e.function == Function::add || e.function == Function::sub);
    // Of two products the larger one.
    std::optional<ExprId> part;
    for (const ExprId arg : e.args) {
      const Expr& a = kernel_[arg];
      const bool product = a.kind == Expr::Kind::call && a.function == Function::mul && is_floating(a.type);
      if (sums && product && (!part || elements(axes_of(arg)) > elements(axes_of(*part)))) part = arg;
    }
    for (const ExprId arg : e.args) {
      double below = 0;
      sum += walk(arg, domain, part == arg, below);
      depth = std::max(depth, below);
    }
    const double count = elements(axes_of(id));
    if (e.kind == Expr::Kind::call && !fused) {
      const ScalarType type = e.type == ScalarType::boolean ? kernel_[e.args[0]].type : e.type;
      const Demand one = function(e.function, type);
      sum += one * count;
      depth += one[Resource::special] > 0 ? device_.latency.special : device_.latency.arithmetic;
    } else if (e.kind == Expr::Kind::convert) {
      sum += conversion(kernel_[e.args[0]].type, e.type) * count;
      depth += device_.latency.arithmetic;
    }
    return sum;
  }

  Demand reduction(const Expr& e, const Axes& outer, double& depth) {
    Axes domain = outer;
    for (const AxisId a : e.axes) {
      if (graph_.tiled.contains(a) && std::find(domain.begin(), domain.end(), a) == domain.end()) domain.push_back(a);
    }
    Demand sum = walk(e.args[0], domain, false, depth);
    const Function combine = e.reduce == ReduceOp::sum ? Function::add : Function::max;
    const Demand one = function(combine, e.type);
    sum += one * elements(domain);
    const layout::Layout full = layout_of(domain);
    std::vector<int> kept;
    for (std::size_t i = 0; i < outer.size(); ++i) kept.push_back(static_cast<int>(i));
    const layout::Layout result = layout::slice(full, kept);
    const int steps =
        partial_ ? 0 : std::bit_width(static_cast<unsigned>(lane_copies(result) / std::max(1, lane_copies(full)))) - 1;
    const double moved = static_cast<double>(threads) * result.registers() * std::max(0, steps);
    sum += device_[Move::shuffle] * moved;
    sum += one * moved;
    depth += std::max(0, steps) * (device_.latency.shuffle + device_.latency.arithmetic);
    return sum;
  }

  const task::Graph& graph_;
  const Kernel& kernel_;
  const partition::Partition& partition_;
  const partition::Assignment& assignment_;
  const device::Device& device_;
  std::vector<std::optional<Axes>> axes_;
  std::map<Axes, double> elements_;
  bool partial_ = false;  // the current sum stays in shares: no thread gives another its own
};

}  // namespace

TaskCosts task_costs(const task::Graph& graph, const partition::Partition& partition,
                     const partition::Assignment& assignment, const device::Device& device) {
  return Costing(graph, partition, assignment, device).run();
}

}  // namespace pipethreader::simulate
