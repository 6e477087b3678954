#include "search/search.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "partition/assignment.h"
#include "search/resources.h"
#include "simulate/task_cost.h"
#include "simulate/timeline.h"
#include "task/graph.h"
#include "task/products.h"
#include "task/rewrite.h"

namespace pipethreader::search {

using partition::Order;
using schedule::Overlap;

namespace {

constexpr int most_lanes = 4;                 // on an execution unit: registers of more threads hold too little
constexpr std::int64_t barrier_bytes = 2048;  // room for the barriers that lowering adds
constexpr int depth_limit = 4;
constexpr int depth_limit_in_walks = 6;  // lanes with few tiles run ahead of those with many
constexpr int trips_limit = 8;           // of a loop that are simulated

class Ranking {
 public:
  Ranking(const task::Graph& graph, const device::Device& device, const Options& options)
      : graph_(graph), device_(device), options_(options) {
    products_ = graph.has_products();
    uneven_ = !partition::uneven_axes(graph).empty();
    if (products_) teams_along_ = partition::axes_of_teams(graph);
  }

  Result<std::vector<Candidate>> run() {
    for (const partition::Choice& choice : products_ ? product_choices() : element_choices()) {
      auto cut = partition::propagate(graph_, choice);
      if (!cut) {
        last_ = cut.error();
        continue;
      }
      // Different wishes may end in the same tiles.
      if (choice.share_sums && !cut->sums) continue;
      if (!seen_.insert({cut->tile, cut->lanes, choice.share_sums, static_cast<int>(choice.order)}).second) continue;
      try_schedules(*cut);
      share_units(choice);
      form_teams(choice);
      // Blocks that copy for each other only help where copies are the limit.
      if (!copies_limit_) continue;
      partition::Choice wide = choice;
      wide.cluster = 2;
      if (auto clustered = partition::propagate(graph_, wide)) try_schedules(*clustered);
    }
    if (found_.empty()) {
      if (!last_.diagnostics.empty()) return tl::unexpected(last_);
      return fail(
          "no tiles of '{}' fit {}: the smallest needs {} registers a thread and {} bytes of shared memory; the device "
          "has {} and {}",
          graph_.kernel.name, device_.name, least_registers_, least_shared_, device_.registers.per_thread_max,
          device_.memory.shared_bytes_per_block);
    }
    return std::move(found_);
  }

 private:
  void try_schedules(partition::Partition cut) {
    copies_limit_ = false;
    if (uneven_ && graph_.walk.length == 1) cut.choice.band = band_for_l2(graph_, cut, device_);
    const auto assignment = partition::assign(graph_, cut);
    if (!assignment) {
      last_ = assignment.error();
      return;
    }
    partition::Partition held = cut;
    held.choice.hold = true;
    const auto other = partition::assign(graph_, held);
    if (other && other->products != assignment->products) try_overlaps(held, *other, *assignment);
    try_overlaps(cut, *assignment, *assignment);
  }

  // What products save that find operands in registers is less than what the simulation is off by: `timed` is where
  // they find them in shared memory, so that both take as long, and the first is taken.
  void try_overlaps(const partition::Partition& cut, const partition::Assignment& assignment,
                    const partition::Assignment& timed) {
    // Of the schedules of these tiles that take as long: what leaves lanes more room where memory is the limit, then
    // the stronger overlap, then results through the copy engine.
    const auto first = static_cast<std::ptrdiff_t>(found_.size());
    for (const Overlap overlap : {Overlap::delayed, Overlap::deferred, Overlap::serial}) {
      if (!products_ && overlap != Overlap::serial) continue;
      if (products_ && cut.choice.order != Order::single) {
        consider(cut, assignment, timed, overlap, true, 1);
        consider(cut, assignment, timed, overlap, true, 2);
        consider(cut, assignment, timed, overlap, false, 2);
      }
      consider(cut, assignment, timed, overlap, false, 1);
    }
    std::stable_sort(found_.begin() + first, found_.end(), [](const Candidate& a, const Candidate& b) {
      return std::pair(a.predicted_us, a.compute_us) < std::pair(b.predicted_us, b.compute_us);
    });
  }

  std::vector<partition::Choice> product_choices() const {
    std::vector<partition::Choice> choices;
    for (const Order order : {Order::persistent, Order::dynamic, Order::single}) {
      if (uneven_ != (order == Order::dynamic) && order != Order::single) continue;
      for (const int lanes : {2, 1, 3, 4}) {
        for (const int rows : {64, 128}) {
          if (lanes == 4 && rows > 64) continue;  // registers of so many threads hold no more
          for (const int column : {256, 128, 192, 64, 32}) {
            for (const int stream : {64, 128, 160, 96, 32, 16}) {
              partition::Choice c;
              c.lanes = lanes;
              c.row = rows * lanes;
              c.column = column;
              c.stream = stream;
              c.order = order;
              c.raster = std::max(1, 2048 / c.row);
              choices.push_back(c);
            }
          }
        }
      }
      if (partition::lane_sums(graph_)) share_sums(order, choices);
    }
    return choices;
  }

  // Teams of lanes that share what is alike along an axis. In a walk that is shared already, from step to step.
  void form_teams(partition::Choice choice) {
    if (!products_ || choice.share_sums || graph_.walk.length > 1) return;
    for (const kernel::AxisId axis : teams_along_) {
      choice.apart = graph_.kernel[axis].name;
      for (choice.teams = 2; choice.teams * choice.lanes <= most_lanes; choice.teams *= 2)
        if (auto cut = partition::propagate(graph_, choice)) try_schedules(*cut);
    }
  }

  // Blocks that stay on a unit together, each with work of its own.
  void share_units(partition::Choice choice) {
    if (!products_ || choice.order == Order::single || choice.share_sums) return;
    for (choice.blocks = 2; choice.blocks * choice.lanes <= most_lanes; ++choice.blocks)
      if (auto cut = partition::propagate(graph_, choice)) try_schedules(*cut);
  }

  // Where rows are few, lanes take parts of the sums.
  static void share_sums(Order order, std::vector<partition::Choice>& choices) {
    for (const int lanes : {2, 4}) {
      for (const int row : {64, 128}) {
        for (const int column : {256, 128, 64}) {
          for (const int stream : {128, 256, 64}) {
            partition::Choice c;
            c.lanes = lanes;
            c.share_sums = true;
            c.row = row;
            c.column = column;
            c.stream = stream;
            c.order = order;
            c.raster = std::max(1, 2048 / c.row);
            choices.push_back(c);
          }
        }
      }
    }
  }

  // Wide tiles of few rows or tall ones of many, where there are loops over tiles.
  std::vector<partition::Choice> element_choices() const {
    const bool streams = std::any_of(graph_.tiled.begin(), graph_.tiled.end(), [&](kernel::AxisId a) {
      return graph_.kernel[a].kind == kernel::AxisKind::streamed;
    });
    std::vector<partition::Choice> choices;
    for (const int element : {1024, 2048, 4096, 8192, 512}) {
      for (int stream = element; stream >= 32; stream /= 2) {
        partition::Choice c;
        c.lanes = 1;
        c.element = element;
        c.stream = stream;
        choices.push_back(c);
        if (!streams) break;
      }
    }
    return choices;
  }

  std::int64_t tile_bytes(const partition::Partition& cut, kernel::ValueId value) const {
    std::int64_t bytes = bits(graph_.kernel[value].type) / 8;
    for (const kernel::AxisId a : graph_.tiled_axes(value)) bytes *= cut.extent(a);
    return bytes;
  }

  // What lanes that share sums hand to the first.
  std::int64_t handed_bytes(const partition::Partition& cut) const {
    if (!cut.sums) return 0;
    std::int64_t bytes = 0;
    for (const kernel::ValueId v : cut.sums->values) {
      bytes += tile_bytes(cut, v) * (cut.lanes - 1);
    }
    return bytes;
  }

  // What results need that leave through shared memory: the stored tiles outside loops over tiles.
  std::int64_t staged_bytes(const partition::Partition& cut, const std::vector<task::Node>& nodes) const {
    std::int64_t bytes = 0;
    for (const task::Node& node : nodes) {
      const auto* loop = std::get_if<task::LoopNode>(&node.item);
      if (loop != nullptr && !graph_.tiled.contains(loop->axis)) bytes += staged_bytes(cut, loop->body);
      const auto* id = std::get_if<task::TaskId>(&node.item);
      if (id == nullptr || graph_[*id].kind != task::TaskKind::store || graph_[*id].reads.empty()) continue;
      bytes += tile_bytes(cut, graph_[*id].reads[0]) * cut.choice.teams;
    }
    return bytes;
  }

  void consider(const partition::Partition& cut, const partition::Assignment& assignment,
                const partition::Assignment& timed, Overlap overlap, bool staged, int outer) {
    Candidate candidate;
    candidate.walk = graph_.walk;
    candidate.schedule.staged_stores = staged;
    candidate.partition = cut.choice;
    candidate.partition.lanes = cut.lanes;
    candidate.schedule.overlap = overlap;
    candidate.schedule.depth = 2;
    candidate.schedule.outer = outer;
    auto program = schedule::greedy(graph_, cut, assignment, candidate.schedule);
    if (!program) return;
    const bool kept = keeps_slots(*program, assignment);
    if (outer > 1 && !kept) return;
    const int stages = deepest(program->computer);
    // A stronger overlap that ends in the same schedule is not a candidate of its own.
    if (overlap != Overlap::serial && products_) {
      if (stages == 1) return;
      schedule::Choice weaker = candidate.schedule;
      weaker.overlap = static_cast<Overlap>(static_cast<int>(overlap) - 1);
      const auto other = schedule::greedy(graph_, cut, assignment, weaker);
      if (other && schedule::print(graph_, *other) == schedule::print(graph_, *program)) return;
    }
    candidate.registers = live_registers(graph_, cut, assignment, *program) + device_.assembler.address_registers +
                          (stages > 1 ? device_.assembler.overlap_registers : 0);
    SharedNeed need = shared_need(graph_, assignment, *program);
    if (staged) need.fixed += staged_bytes(cut, graph_.root);
    need.fixed += handed_bytes(cut);
    const std::int64_t room = device_.shared_bytes(cut.choice.blocks) - barrier_bytes - need.fixed;
    const std::int64_t limit = graph_.walk.length > 1 ? depth_limit_in_walks : depth_limit;
    int depth = need.per_depth == 0 ? 1 : static_cast<int>(std::min(limit, room / need.per_depth));
    candidate.shared_bytes = need.fixed + std::max(1, depth) * need.per_depth;
    note_least(candidate);
    if (room < 0 || depth < stages || candidate.registers > register_limit(cut)) return;
    // One instruction of a product needs its registers before budgets are moved.
    if (widest_accumulator(assignment) + device_.assembler.mma_registers > device_.registers.per_unit / threads_of(cut))
      return;
    candidate.schedule.depth = depth;
    // A slot that is free once registers hold what came is filled for the next work item as early as a second one.
    schedule::Choice like = candidate.schedule;
    if (!kept) like.outer = 2;
    program = schedule::greedy(graph_, cut, timed, like);
    if (!program) return;
    predict(candidate, cut, timed, *program);
    found_.push_back(candidate);
  }

  // Whether loops read slots that are filled outside of them: all that are not fetched into registers at once.
  bool keeps_slots(const schedule::Program& program, const partition::Assignment& assignment) const {
    const auto reads = [&](const auto& product, kernel::ValueId v, bool in_registers) {
      const task::Product p = partition::oriented(graph_, assignment, product.first);
      return in_registers ? p.a == v && product.second.a_in_registers
                          : p.b == v || (p.a == v && !product.second.a_in_registers);
    };
    const auto held = [&](kernel::ValueId v) {
      const auto& products = assignment.products;
      return std::ranges::any_of(products, [&](const auto& p) { return reads(p, v, true); }) &&
             std::ranges::none_of(products, [&](const auto& p) { return reads(p, v, false); });
    };
    return std::ranges::any_of(program.rings, [&](const schedule::RingPlan& ring) {
      return ring.level.empty() && !std::ranges::all_of(ring.values, held);
    });
  }

  void note_least(const Candidate& c) {
    if (least_registers_ == 0 || c.registers < least_registers_) {
      least_registers_ = c.registers;
      least_shared_ = c.shared_bytes;
    }
  }

  static int deepest(const std::vector<schedule::Item>& items) {
    int stages = 1;
    for (const schedule::Item& item : items) {
      if (const auto* loop = std::get_if<schedule::LoopTree>(&item.node)) {
        stages = std::max({stages, loop->stages, deepest(loop->body)});
      }
    }
    return stages;
  }

  static int threads_of(const partition::Partition& cut) { return 128 * (cut.all_lanes() + 1) * cut.choice.blocks; }

  int widest_accumulator(const partition::Assignment& assignment) const {
    int widest = 0;
    for (const auto& [id, product] : assignment.products)
      widest = std::max(widest, assignment[*graph_[id].writes].layout.registers());
    return widest;
  }

  int register_limit(const partition::Partition& cut) const {
    std::optional<device::RegisterBudget> budget;
    if (cut.shares_registers()) budget = device_.find_budget(cut.all_lanes(), 0, cut.choice.blocks);
    return budget ? budget->consumer : device_.registers.per_thread_max;
  }

  // Of 32 bits, by a thread in one work item.
  int registers_stored(const partition::Assignment& assignment) const {
    int count = 0;
    for (const task::Task& t : graph_.tasks) {
      if (t.kind != task::TaskKind::store || t.reads.empty()) continue;
      const kernel::ValueId value = t.reads[0];
      count += assignment[value].layout.registers() * bits(graph_.kernel[value].type) / 32;
    }
    return count;
  }

  // Cycles of one work item in each block of a unit, by what one alone takes and how long the units are busy with all.
  double per_wave(const partition::Partition& cut, double alone, double busy) const {
    const device::WorkItem& w = device_.work_item;
    // Blocks that stay wait for each other the more, the nearer they are to what the units can do.
    if (cut.has_products && cut.choice.blocks > 1 && cut.choice.order != Order::single)
      return w.staying_blocks_factor *
             std::pow(std::pow(alone, w.staying_blocks_exponent) + std::pow(busy, w.staying_blocks_exponent),
                      1 / w.staying_blocks_exponent);
    // What is not the limit still costs a little where it cannot hide.
    return std::max(alone, busy) + w.hidden_share * std::min(alone, busy);
  }

  // The largest of computing, L2 and device memory, in waves of blocks, plus the launch.
  void predict(Candidate& candidate, const partition::Partition& cut, const partition::Assignment& assignment,
               const schedule::Program& program) {
    constexpr int in_a_row = 2;  // the second work item's copies begin during the first
    const int simulated = cut.choice.order == Order::single ? 1 : in_a_row;
    const simulate::Timeline timeline =
        simulate::simulate(graph_, cut, assignment, program, device_, trips_limit, simulated);
    const double items = partition::work_items(graph_, cut, options_.dynamic_size);
    const int threads = 128 * (cut.all_lanes() + (program.copier.empty() ? 0 : 1));
    double together = cut.choice.blocks;
    if (cut.choice.blocks == 1 && cut.choice.order == Order::single && (cut.all_lanes() == 1 || !cut.has_products)) {
      const double by_shared =
          static_cast<double>(device_.memory.shared_bytes_per_unit) /
          static_cast<double>(candidate.shared_bytes + device_.memory.shared_bytes_reserved + barrier_bytes);
      const double by_registers =
          static_cast<double>(device_.registers.per_unit) / (threads * std::max(32, candidate.registers));
      together = std::clamp(std::floor(std::min(by_shared, by_registers)), 1.0, 8.0);
    }
    double per_item = timeline.work_cycles;
    switch (cut.choice.order) {
      case partition::Order::single:
        per_item += together > 1 ? device_.launch.block_cycles : device_.launch.lone_block_cycles;
        break;
      case partition::Order::persistent:
        break;
      case partition::Order::dynamic:
        per_item += device_.launch.next_work_cycles;
        break;
    }
    if (cut.has_products && !candidate.schedule.staged_stores)
      per_item += device_.work_item.direct_store_cycles * registers_stored(assignment) * graph_.walk.length *
                  (program.changes_places ? device_.work_item.apart_store_share : 1);
    if (candidate.schedule.staged_stores) {  // the copy engine stores while the next tile is computed
      const simulate::TaskCosts costs = simulate::task_costs(graph_, cut, assignment, device_);
      for (std::size_t t = 0; t < graph_.tasks.size(); ++t) {
        if (graph_.tasks[t].kind == task::TaskKind::store)
          per_item -= device_.work_item.staged_store_share * costs.tasks[t].cycles * graph_.walk.length;
      }
    }
    if (cut.sums) {  // the first lane reads what the others write, 8 bytes a thread at a time
      device::Demand moves = device_[device::Move::store_shared];
      moves += device_[device::Move::load_shared];
      moves = moves * (static_cast<double>(handed_bytes(cut)) / 8);
      per_item += graph_.walk.length * (device_.bound_cycles(moves) + 2 * device_.barriers.named_cycles);
    }
    if (cut.choice.cluster > 1) per_item *= device_.cluster.cost_factor;
    copies_limit_ = copies_limit_ || timeline.busy[device::Resource::l2] > device_.cluster.pays_above * per_item;
    const double busy = device_.bound_cycles(timeline.demand);
    const double units = device_.execution_units;
    const double slots = units * together;
    const double waves = uneven_ ? std::max(1.0, items / slots) : std::ceil(items / slots);
    const double clock = device_.clock.burst_ghz * 1e3;  // cycles in a microsecond
    double compute = waves * per_wave(cut, per_item, busy * together) / clock;
    // Nothing ends before the longest work item.
    double longest = per_item;
    for (const simulate::LoopTime& loop : timeline.loops)
      longest += std::max(0.0, loop.most - loop.trips) * loop.cycles_per_trip * graph_.walk.length;
    if (uneven_) compute = std::max(compute, longest / clock);
    compute += timeline.start_cycles / clock;
    // Blocks that share a unit by chance overlap worse than lanes that are scheduled.
    if (cut.has_products && together > 1 && cut.choice.order == Order::single)
      compute *= device_.work_item.uncoordinated_factor;
    if (cut.has_products && cut.all_lanes() > 1 && cut.choice.blocks == 1 && !program.changes_places) {
      const bool serial = candidate.schedule.overlap == Overlap::serial;
      if (ragged(cut) || (serial && (uneven_ || cut.all_lanes() == 2)))
        compute *= device_.work_item.serial_factor;
      else if (serial && computes_operands(assignment))
        compute *= device_.work_item.many_serial_factor;
    }
    const double l2 = items * timeline.bytes / (device_.rate_per_cycle(device::Resource::l2) * units) / clock;
    double tensors = 0;
    for (const kernel::Tensor& t : graph_.kernel.tensors) tensors += tensor_bytes(t);
    const double dram = tensors / (device_.rate_per_cycle(device::Resource::dram) * units) / clock;
    candidate.predicted_us = alike(std::max({compute, l2, dram}) + device_.launch.kernel_microseconds);
    candidate.compute_us = alike(compute + device_.launch.kernel_microseconds);
    candidate.bound = compute >= l2 && compute >= dram
                          ? (busy * together >= per_item ? "busy units" : "latency of a work item")
                      : l2 >= dram ? "L2 to execution units"
                                   : "device memory";
  }

  bool computes_operands(const partition::Assignment& assignment) const {
    return std::any_of(assignment.products.begin(), assignment.products.end(), [&](const auto& product) {
      const kernel::ValueId a = partition::oriented(graph_, assignment, product.first).a;
      return product.second.a_in_registers && !assignment[a].staged;
    });
  }

  // A loop ends in a tile that is cut, so that each iteration asks whether it is that one.
  bool ragged(const partition::Partition& cut) const {
    return std::any_of(graph_.tiled.begin(), graph_.tiled.end(), [&](kernel::AxisId a) {
      return graph_.kernel[a].kind == kernel::AxisKind::streamed &&
             task::static_extent(graph_.kernel, a).value_or(1) % cut.extent(a) != 0;
    });
  }

  // Smaller differences say nothing: of what is alike, the first is taken.
  static double alike(double us) {
    constexpr double step = 0.005;
    return std::exp(std::round(std::log(us) / step) * step);
  }

  double tensor_bytes(const kernel::Tensor& tensor) const {
    std::vector<std::int64_t> sizes;
    for (const kernel::Dim& d : graph_.kernel.dims) sizes.push_back(d.size.value_or(options_.dynamic_size));
    double bytes = bits(tensor.type) / 8.0;
    for (const kernel::ExprId s : tensor.shape)
      bytes *= static_cast<double>(kernel::evaluate_size(graph_.kernel, s, sizes));
    return bytes;
  }

  struct Key {
    std::vector<int> tile;
    int lanes;
    bool share_sums;
    int order;
    auto operator<=>(const Key&) const = default;
  };

  const task::Graph& graph_;
  const device::Device& device_;
  const Options& options_;
  bool products_ = false;
  bool uneven_ = false;
  std::vector<kernel::AxisId> teams_along_;
  bool copies_limit_ = false;  // some schedule of the current tiles waits for L2
  std::set<Key> seen_;
  std::vector<Candidate> found_;
  Error last_;
  int least_registers_ = 0;
  std::int64_t least_shared_ = 0;
};

}  // namespace

Result<std::vector<Candidate>> rank(const kernel::Kernel& specialised, const device::Device& device,
                                    const Options& options) {
  const auto graph = task::build(specialised);
  if (!graph) return tl::unexpected(graph.error());
  auto found = Ranking(*graph, device, options).run();
  if (!found) return found;
  for (const task::Graph& walked : task::useful_walks(specialised)) {
    const auto more = Ranking(walked, device, options).run();
    if (more) found->insert(found->end(), more->begin(), more->end());
  }
  std::stable_sort(found->begin(), found->end(),
                   [](const Candidate& a, const Candidate& b) { return a.predicted_us < b.predicted_us; });
  return found;
}

}  // namespace pipethreader::search
