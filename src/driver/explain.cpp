#include "driver/explain.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "simulate/task_cost.h"
#include "task/products.h"

namespace pipethreader::driver {

using simulate::Span;
using simulate::Timeline;
using task::UnitKind;

namespace {

std::string unit_name(const device::Device& device, UnitKind unit) {
  const device::UnitKind kind = unit == UnitKind::copy_engine   ? device::UnitKind::copy
                                : unit == UnitKind::tensor_core ? device::UnitKind::tensor
                                                                : device::UnitKind::alu;
  const device::Unit* found = device.unit(kind);
  return found == nullptr ? "none" : found->name;
}

std::string tile_text(const task::Graph& graph, const partition::Partition& partition, const task::Task& t) {
  std::string text;
  const auto add = [&](kernel::AxisId a) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : " ", graph.kernel[a].name, partition.local(a));
  };
  if (t.product) {
    for (const kernel::AxisId a : {t.product->m, t.product->n, t.product->k}) {
      if (a.valid()) add(a);
    }
  } else if (t.writes) {
    for (const kernel::AxisId a : graph.tiled_axes(*t.writes)) add(a);
  } else if (!t.reads.empty()) {
    for (const kernel::AxisId a : graph.tiled_axes(t.reads[0])) add(a);
  }
  return text;
}

void stages_of(const std::vector<schedule::Item>& items, std::vector<int>& stage) {
  for (const schedule::Item& item : items) {
    if (const auto* loop = std::get_if<schedule::LoopTree>(&item.node)) {
      stages_of(loop->body, stage);
      continue;
    }
    const auto& entry = std::get<schedule::Entry>(item.node);
    if (entry.part != schedule::Part::wait && entry.part != schedule::Part::move)
      stage[static_cast<std::size_t>(entry.task.index)] = entry.stage;
  }
}

std::string tiles_line(const Staged& staged) {
  const Lowered& l = staged.lowered;
  std::string text;
  for (std::size_t i = 0; i < l.partition.tile.size(); ++i) {
    if (l.graph.tiled.contains(kernel::AxisId(i))) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", l.graph.kernel.axes[i].name, l.partition.tile[i]);
    }
  }
  return text;
}

std::string rings_line(const Lowered& l) {
  std::string text;
  for (const schedule::RingPlan& ring : l.schedule.rings) {
    if (!text.empty()) text += ", ";
    for (std::size_t i = 0; i < ring.values.size(); ++i)
      text += (i == 0 ? "" : "+") + l.graph.kernel[ring.values[i]].name;
    text += fmt::format(" {}", ring.depth);
  }
  return text.empty() ? "none" : text;
}

std::string task_table(const Staged& staged, const device::Device& device) {
  const Lowered& l = staged.lowered;
  const auto costs = simulate::task_costs(l.graph, l.partition, l.assignment, device);
  std::vector<int> stage(l.graph.tasks.size(), 0);
  stages_of(l.schedule.computer, stage);
  std::size_t longest = 14;
  for (std::size_t i = 0; i < l.graph.tasks.size(); ++i)
    longest = std::max(longest, simulate::task_name(l.graph, task::TaskId(i)).size());
  const std::size_t names = longest + 2;
  std::string text = fmt::format("  {:<{}}{:<12}{:>6}{:>10}{:>10}  {}\n", "sTask", names, "unit", "stage", "cycles",
                                 "latency", "tile of a lane");
  for (std::size_t i = 0; i < l.graph.tasks.size(); ++i) {
    const task::Task& t = l.graph.tasks[i];
    const simulate::TaskCost& cost = costs.tasks[i];
    const bool by_threads = t.kind == task::TaskKind::load && !l.assignment[*t.writes].staged;
    text += fmt::format("  {:<{}}{:<12}{:>6}{:>10.0f}{:>10.0f}  {}\n", simulate::task_name(l.graph, task::TaskId(i)),
                        names, unit_name(device, by_threads ? UnitKind::cuda_cores : t.unit), stage[i], cost.cycles,
                        cost.latency, tile_text(l.graph, l.partition, t));
  }
  return text;
}

std::string load_table(const Timeline& timeline) {
  std::string text = fmt::format("  {:<16}{:>10}{:>8}\n", "resource", "cycles", "load");
  for (const device::Resource r : device::all_resources()) {
    if (timeline.busy[r] <= 0 || r == device::Resource::dram) continue;
    text += fmt::format("  {:<16}{:>10.0f}{:>7.0f}%\n", device::name(r), timeline.busy[r],
                        100 * timeline.busy[r] / std::max(1.0, timeline.work_cycles));
  }
  return text;
}

// The busiest of some resources, and the share of the time that it is busy.
std::pair<device::Resource, double> busiest(const Timeline& timeline, std::span<const device::Resource> resources) {
  std::pair<device::Resource, double> most = {resources.front(), 0};
  for (const device::Resource r : resources) {
    const double share = timeline.busy[r] / std::max(1.0, timeline.work_cycles);
    if (r != device::Resource::dram && share > most.second) most = {r, share};
  }
  return most;
}

struct UnitLoad {
  std::string unit;
  device::Resource resource;  // its busiest
  double share = 0;           // of the time that it is busy
};

std::vector<UnitLoad> unit_loads(const device::Device& device, const Timeline& timeline, bool copier) {
  using device::Resource;
  static constexpr Resource copies[] = {Resource::l2};
  static constexpr Resource products[] = {Resource::tensor};
  static constexpr Resource arithmetic[] = {Resource::fma, Resource::integer, Resource::special, Resource::convert,
                                            Resource::issue};
  const std::pair<UnitKind, std::span<const Resource>> units[] = {
      {UnitKind::copy_engine, copies}, {UnitKind::tensor_core, products}, {UnitKind::cuda_cores, arithmetic}};
  std::vector<UnitLoad> loads;
  for (const auto& [unit, resources] : units) {
    const auto [resource, share] = busiest(timeline, resources);
    if (share > 0 && (copier || unit != UnitKind::copy_engine))
      loads.push_back({unit_name(device, unit), resource, share});
  }
  return loads;
}

// How busy each unit is: as its busiest resource.
std::string unit_table(const device::Device& device, const Timeline& timeline, bool copier) {
  std::string text = fmt::format("  {:<16}{:>10}  {}\n", "unit", "busy", "with");
  for (const UnitLoad& load : unit_loads(device, timeline, copier))
    text += fmt::format("  {:<16}{:>9.0f}%  {}\n", load.unit, 100 * load.share, device::name(load.resource));
  return text;
}

std::string bound_line(const Timeline& timeline) {
  constexpr double throughout = 0.9;
  const auto [resource, share] = busiest(timeline, device::all_resources());
  if (share <= 0) return "nothing: there is no work";
  if (share >= throughout) return fmt::format("{}, busy {:.0f}% of the time", device::name(resource), 100 * share);
  return fmt::format("latency: {}, the most loaded resource, is busy {:.0f}% of the time and waits for the rest",
                     device::name(resource), 100 * share);
}

// The loop that a person wants to see: the one in which a work item spends most of its time.
const simulate::LoopTime* main_loop(const Timeline& timeline) {
  const simulate::LoopTime* best = nullptr;
  for (const simulate::LoopTime& loop : timeline.loops) {
    if (loop.steady_end <= loop.steady_start) continue;
    if (best == nullptr || loop.trips * loop.cycles_per_trip > best->trips * best->cycles_per_trip) best = &loop;
  }
  return best;
}

// "[mma c(3)==]", so many characters wide. A name of which less than three letters would be left is left out.
std::string box(const std::string& name, std::size_t width) {
  constexpr std::size_t least = 3;
  if (width == 1) return "|";
  std::string inside(width - 2, '=');
  const std::size_t shown = std::min(name.size(), inside.size());
  if (shown == name.size() || shown >= least) inside.replace(0, shown, name, 0, shown);
  return "[" + inside + "]";
}

}  // namespace

std::string gantt(const task::Graph& graph, const Timeline& timeline, double start, double end, int columns) {
  const int label = 24;
  const int width = std::max(40, columns - label - 2);
  const double scale = width / std::max(1.0, end - start);
  std::string text = fmt::format("  {:<{}}", "cycle", label);
  const int marks = 4;
  for (int m = 0; m < marks; ++m) {
    text += fmt::format("{:<{}}", fmt::format("|{:.0f}", (end - start) * m / marks), width / marks);
  }
  text += "\n";
  static constexpr const char* units[] = {"copies", "tensor", "arithmetic"};
  for (int lane = 0; lane < static_cast<int>(timeline.lanes.size()); ++lane) {
    for (const UnitKind unit : {UnitKind::copy_engine, UnitKind::tensor_core, UnitKind::cuda_cores}) {
      // Copies overlap: as many rows as are under way at once.
      std::vector<std::string> rows;
      std::vector<int> used;
      for (const Span& span : timeline.spans) {
        if (span.lane != lane || span.unit != unit || span.kind != Span::Kind::work) continue;
        if (span.end <= start || span.start >= end) continue;
        const int from = std::max(0, static_cast<int>((span.start - start) * scale));
        if (from >= width) continue;
        const int to = std::clamp(static_cast<int>((span.end - start) * scale), from + 1, width);
        std::size_t row = 0;
        // A lane computes one thing after the other; what it shows of a result's latency gives way to the next.
        while (unit != UnitKind::cuda_cores && row < used.size() && used[row] > from) ++row;
        if (row == used.size()) {
          if (row >= 3) continue;
          used.push_back(0);
          rows.emplace_back(static_cast<std::size_t>(width), ' ');
        }
        used[row] = to;
        std::string name = simulate::task_name(graph, span.task);
        if (span.iteration >= 0) name += fmt::format("({})", span.iteration);
        const std::string drawn = box(name, static_cast<std::size_t>(to - from));
        rows[row].replace(static_cast<std::size_t>(from), drawn.size(), drawn);
      }
      for (std::size_t row = 0; row < rows.size(); ++row) {
        const std::string head = row > 0 ? ""
                                         : fmt::format("{} {}", timeline.lanes[static_cast<std::size_t>(lane)],
                                                       units[static_cast<int>(unit)]);
        std::string chart = rows[row];
        chart.erase(chart.find_last_not_of(' ') + 1);
        text += fmt::format("  {:<{}}{}\n", head, label, chart);
      }
    }
  }
  return text;
}

std::string explain_text(const Staged& staged, const device::Device& device, const Timeline& timeline, int columns) {
  const Lowered& l = staged.lowered;
  std::string text = fmt::format("{} on {}: {}\n\n", staged.kernel.name, device.description, specialisation(l.program));
  text += fmt::format("  {:<12}{}\n", "choices", describe(staged.candidate.choices, l.partition.has_products));
  text += fmt::format("  {:<12}{}\n", "tiles", tiles_line(staged));
  text += fmt::format("  {:<12}{}\n", "lanes", fmt::join(timeline.lanes, ", "));
  text += fmt::format("  {:<12}{}\n", "ring depths", rings_line(l));
  text +=
      fmt::format("  {:<12}{} of {} bytes\n", "memory", l.program.shared_bytes, device.memory.shared_bytes_per_block);
  text += "\n" + task_table(staged, device);
  text += fmt::format("\nOne mean work item: {:.0f} cycles, {:.2f} us at {} GHz; {:.0f} bytes of global memory\n",
                      timeline.work_cycles, timeline.work_cycles / device.clock.burst_ghz / 1000,
                      device.clock.burst_ghz, timeline.bytes);
  text += fmt::format("  {:<16}{}\n", "item bound by", bound_line(timeline));
  text += load_table(timeline) + unit_table(device, timeline, !l.schedule.copier.empty());
  if (const simulate::LoopTime* loop = main_loop(timeline)) {
    text += fmt::format(
        "\nA steady iteration over {} ({:.0f} cycles; {:.1f} iterations in the mean; (n) is the iteration):\n",
        l.graph.kernel[loop->axis].name, loop->cycles_per_trip, loop->trips);
    text += gantt(l.graph, timeline, loop->steady_start, loop->steady_end, columns);
  } else {
    text += "\nThe work item:\n" + gantt(l.graph, timeline, 0, timeline.cycles, columns);
  }
  return text;
}

Result<std::string> explain_measured(const Staged& staged, const device::Device& device, const Timeline& timeline,
                                     double measured_us) {
  const Lowered& l = staged.lowered;
  for (const kernel::AxisId a : l.partition.walk) {
    if (task::static_extent(l.graph.kernel, a)) continue;
    return fail("how busy the units were is known for fixed sizes only; axis '{}' is dynamic, fix it with --dim",
                l.graph.kernel[a].name);
  }
  // Cycles of work that an execution unit had in the mean, over the cycles that the launch took.
  const double busy = partition::work_items(l.graph, l.partition, 1) / device.execution_units * timeline.work_cycles;
  const double taken = measured_us * device.clock.burst_ghz * 1000;
  std::string text = fmt::format("  {:<16}{:>10}{:>10}  {}\n", "unit", "predicted", "measured", "with");
  for (const UnitLoad& load : unit_loads(device, timeline, !l.schedule.copier.empty())) {
    text += fmt::format("  {:<16}{:>9.0f}%{:>9.0f}%  {}\n", load.unit, 100 * load.share,
                        100 * load.share * busy / taken, device::name(load.resource));
  }
  return text;
}

std::string explain_candidates(const Plan& plan) {
  const auto chosen = std::find_if(plan.candidates.begin(), plan.candidates.end(),
                                   [&](const Tried& t) { return t.choices == plan.choices; });
  std::vector<Tried> all = plan.candidates;
  std::stable_partition(all.begin(), all.end(), [&](const Tried& t) { return t.choices == plan.choices; });
  std::string text = fmt::format("  {:>12}{:>9}  {}\n", "predicted", "loses", "choices: what became of them");
  if (chosen != plan.candidates.end() && !chosen->bound.empty())
    text =
        fmt::format("  {:<16}{}: the chosen one, all work items together\n", "launch bound by", chosen->bound) + text;
  for (const Tried& t : all) {
    const bool comparable = t.predicted_us > 0 && chosen != plan.candidates.end() && chosen->predicted_us > 0;
    text += fmt::format("  {:>12}{:>9}  {}: {}\n", t.predicted_us > 0 ? fmt::format("{:.1f} us", t.predicted_us) : "-",
                        comparable ? fmt::format("{:.1f}%", 100 * (t.predicted_us / chosen->predicted_us - 1)) : "-",
                        describe(t.choices, has_products(plan)), t.verdict.substr(0, t.verdict.find('\n')));
  }
  return text;
}

}  // namespace pipethreader::driver
