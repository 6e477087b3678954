#include "simulate/timeline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "simulate/trace.h"

namespace pipethreader::simulate {

using device::Resource;
using task::TaskId;
using task::TaskKind;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double tolerance = 1e-6;
constexpr double slowest_tensor = 0.05;                        // share of its rate: whatever slows it, time goes on
constexpr std::size_t no_span = static_cast<std::size_t>(-1);  // work that is no sTask's

// A group of products in the tensor core's queues.
struct Group {
  int lane = 0;
  TaskId task;
  std::int64_t iteration = -1;
  double total = 0;
  double left = 0;
  double start = -1;
  double done = infinity;  // when its result can be used
};

struct Lane {
  int index = 0;
  const std::vector<Step>* trace = nullptr;
  std::size_t next = 0;
  double work = 0;                       // ALU cycles left of the current sTask
  double ready = 0;                      // does nothing before this time
  double since = -1;                     // waits since; -1: does not wait
  std::size_t span = 0;                  // of the current sTask
  double ports = 0;                      // register ports' share while it works
  std::vector<std::size_t> groups;       // issued and not finished, oldest first
  std::vector<std::int64_t> last_group;  // by task: its latest group
  std::size_t ended = 0;                 // work items

  [[nodiscard]] bool finished(double now) const {
    return next >= trace->size() && work <= 0 && ready <= now + tolerance;
  }
};

class Engine {
 public:
  Engine(const task::Graph& graph, const partition::Partition& partition, const partition::Assignment& assignment,
         const schedule::Program& program, const device::Device& device, std::int64_t trips_limit, int work_items)
      : graph_(graph),
        device_(device),
        program_(program),
        cluster_(partition.choice.cluster),
        costs_(task_costs(graph, partition, assignment, device)),
        traces_(unroll(graph, partition, assignment, program, trips_limit, work_items)) {
    if (!traces_.copier.empty()) add_lane("copier", traces_.copier);
    first_computer_ = static_cast<int>(lanes_.size());
    for (int i = 0; i < partition.all_lanes(); ++i) {
      add_lane(partition.all_lanes() == 1 ? "computer" : fmt::format("computer.{}", i), traces_.computer);
    }
    rings_.resize(program.rings.size());
    for (Ring& ring : rings_) ring.released.assign(lanes_.size(), 0);
    begins_.resize(traces_.loops.size());
    join_neighbours();
    for (const device::Interference& entry : device.interference) {
      if (entry.source == Resource::register_ports && entry.target == Resource::tensor) slowing_ = entry.cycles;
    }
    const device::Unit* tensor = device.unit(device::UnitKind::tensor);
    queue_depth_ = tensor == nullptr || tensor->queue_depth == 0 ? 1 << 20 : tensor->queue_depth;
  }

  Timeline run() {
    // Each event finishes a step or a wait; a run that makes no progress is stuck.
    for (;;) {
      while (settle()) {
      }
      if (std::all_of(lanes_.begin(), lanes_.end(), [&](const Lane& l) { return l.finished(now_); }) && queue_.empty())
        break;
      const double step = next_event();
      if (step == infinity) {
        result_.stuck = true;
        break;
      }
      pass(step);
    }
    finish();
    return std::move(result_);
  }

 private:
  struct Ring {
    std::vector<double> full;            // by slot index: when its bytes are there; grows
    std::vector<std::int64_t> released;  // by lane: slots given back
    std::vector<double> free_at;         // by slot index: when the last lane gave it back
  };

  void add_lane(const std::string& name, const std::vector<Step>& trace) {
    Lane lane;
    lane.index = static_cast<int>(lanes_.size());
    lane.trace = &trace;
    lane.last_group.assign(graph_.tasks.size(), -1);
    lanes_.push_back(std::move(lane));
    result_.lanes.push_back(name);
  }

  const TaskCost& run_cost(TaskId id) const {
    const auto index = static_cast<std::size_t>(id.index);
    const bool staged = graph_[id].kind == TaskKind::load && costs_.tasks[index].instructions > 0;
    return staged ? costs_.fetches[index] : costs_.tasks[index];
  }

  // sTasks that run one after the other are one stretch of code. At best, what limits it is the unit with the most to
  // do in all; what depends on each other keeps it from a part of that gain.
  void join_neighbours() {
    std::vector<Step>& steps = traces_.computer;
    for (std::size_t begin = 0; begin < steps.size();) {
      std::size_t end = begin;
      device::Demand demand;
      double apart = 0;
      for (; end < steps.size() && steps[end].kind == Step::Kind::run; ++end) {
        demand += run_cost(steps[end].task).demand;
        apart += run_cost(steps[end].task).cycles;
      }
      double together = 0;
      const device::Demand busy = device_.busy_cycles(demand);
      for (const Resource r : device::all_resources()) {
        if (r != Resource::dram && std::isfinite(busy[r])) together = std::max(together, busy[r]);
      }
      const double gained = device_.throughput.joined_share;
      for (std::size_t i = begin; i < end && apart > 0; ++i)
        steps[i].share = (gained * together + (1 - gained) * apart) / apart;
      begin = std::max(end, begin + 1);
    }
  }

  std::size_t open(Span span) {
    result_.spans.push_back(span);
    return result_.spans.size() - 1;
  }

  // Lets every lane go on as far as it can at this moment.
  bool settle() {
    bool moved = false;
    for (Lane& lane : lanes_) {
      while (lane.next < lane.trace->size() && lane.work <= 0 && lane.ready <= now_ + tolerance && step(lane))
        moved = true;
    }
    return moved;
  }

  void waited(Lane& lane, const Step& step) {
    if (lane.since >= 0 && now_ > lane.since + 1) {
      result_.spans.push_back(
          {Span::Kind::wait, lane.index, task::UnitKind::cuda_cores, step.task, step.iteration, lane.since, now_});
    }
    lane.since = -1;
  }

  // One step; false when it has to wait.
  bool step(Lane& lane) {
    const Step& s = (*lane.trace)[lane.next];
    if (!possible(lane, s)) {
      if (lane.since < 0) lane.since = now_;
      return false;
    }
    waited(lane, s);
    switch (s.kind) {
      case Step::Kind::acquire:
      case Step::Kind::full:
      case Step::Kind::wait:
        break;
      case Step::Kind::copy:
        copy(lane, s);
        break;
      case Step::Kind::release:
        release(lane, s);
        break;
      case Step::Kind::issue:
        issue(lane, s);
        break;
      case Step::Kind::run:
        start(lane, s);
        break;
      case Step::Kind::end:
        if (lane.ended == ends_.size()) ends_.push_back(now_);
        ends_[lane.ended] = std::max(ends_[lane.ended], now_);
        ++lane.ended;
        break;
      case Step::Kind::begin:
        if (lane.index == static_cast<int>(lanes_.size()) - 1)
          begins_[static_cast<std::size_t>(s.index)].push_back(now_);
        lane.ready = now_ + device_.iteration.wait_cycles + (s.stages - 1) * device_.iteration.overlap_wait_cycles;
        lane.work = device_.iteration.work_cycles + (s.stages - 1) * device_.iteration.overlap_work_cycles;
        lane.ports = 0;
        lane.span = no_span;
        break;
    }
    ++lane.next;
    return true;
  }

  bool possible(const Lane& lane, const Step& s) const {
    switch (s.kind) {
      case Step::Kind::acquire:
        return slot_free(s) <= now_ + tolerance;
      case Step::Kind::full:
        return slot_full(s) <= now_ + tolerance;
      case Step::Kind::wait: {
        const std::int64_t group = lane.last_group[static_cast<std::size_t>(s.task.index)];
        // Waits are for the group of their own iteration; a younger one may be under way already.
        return group < 0 || group_of(lane, s) <= now_ + tolerance;
      }
      default:
        return true;
    }
  }

  double group_of(const Lane& lane, const Step& s) const {
    for (auto g = groups_.rbegin(); g != groups_.rend(); ++g) {
      if (g->lane == lane.index && g->task == s.task && g->iteration == s.iteration) return g->done;
    }
    return 0;
  }

  double slot_free(const Step& s) const {
    const Ring& ring = rings_[s.ring];
    const std::int64_t before = s.index - program_.rings[s.ring].depth;
    if (before < 0) return 0;
    return before < static_cast<std::int64_t>(ring.free_at.size()) ? ring.free_at[static_cast<std::size_t>(before)]
                                                                   : infinity;
  }

  double slot_full(const Step& s) const {
    const auto& full = rings_[s.ring].full;
    return s.index < static_cast<std::int64_t>(full.size()) ? full[static_cast<std::size_t>(s.index)] : infinity;
  }

  void copy(Lane& lane, const Step& s) {
    const TaskCost& cost = costs_.tasks[static_cast<std::size_t>(s.task.index)];
    const double start = std::max(now_, copy_free_);
    copy_free_ = start + cost.cycles;
    const double end = copy_free_ + cost.latency;
    open({Span::Kind::work, lane.index, task::UnitKind::copy_engine, s.task, s.iteration, now_, end});
    Ring& ring = rings_[s.ring];
    const auto index = static_cast<std::size_t>(s.index);
    const double seen = end + device_.barriers.counted_cycles;
    // The slot is full when the last of its values is there.
    auto& parts = partial_[s.ring];
    parts = std::max(parts, seen);
    const auto& values = program_.rings[s.ring].values;
    if (*graph_[s.task].writes == values.back()) {
      if (ring.full.size() <= index) ring.full.resize(index + 1, infinity);
      ring.full[index] = parts;
      parts = 0;
    }
    lane.ready = now_ + cost.issue;
  }

  void release(Lane& lane, const Step& s) {
    Ring& ring = rings_[s.ring];
    ring.released[static_cast<std::size_t>(lane.index)] = s.index + 1;
    std::int64_t all = s.index + 1;
    for (std::size_t i = static_cast<std::size_t>(first_computer_); i < lanes_.size(); ++i)
      all = std::min(all, ring.released[i]);
    while (static_cast<std::int64_t>(ring.free_at.size()) < all)
      ring.free_at.push_back(now_ + device_.barriers.counted_cycles);
    lane.ready = now_ + device_.barriers.counted_arrive_cycles;
  }

  // What the lane does of a task in a loop that lanes pass over in part.
  double part_of(const Lane& lane, const Step& s) const {
    if (s.part >= 1 || traces_.passing.empty()) return s.part;
    const auto own = static_cast<std::size_t>(lane.index - first_computer_) % traces_.passing.size();
    return std::min(1.0, s.part * traces_.passing[own]);
  }

  void issue(Lane& lane, const Step& s) {
    const TaskCost& cost = costs_.tasks[static_cast<std::size_t>(s.task.index)];
    const double cycles = cost.cycles * part_of(lane, s);
    groups_.push_back({lane.index, s.task, s.iteration, cycles, cycles});
    const std::size_t group = groups_.size() - 1;
    lane.groups.push_back(group);
    lane.last_group[static_cast<std::size_t>(s.task.index)] = static_cast<std::int64_t>(group);
    queue_.push_back(group);
    lane.ready = now_ + cost.issue;
    if (cost.instructions <= queue_depth_) return;
    // The queue is full: the lane is held until what is left fits.
    lane.ready = infinity;
    issuing_.push_back({lane.index, group, static_cast<double>(queue_depth_) / cost.instructions});
  }

  void start(Lane& lane, const Step& s) {
    const TaskCost& cost = run_cost(s.task);
    lane.work = cost.cycles * s.share * part_of(lane, s);
    lane.ports = cost.register_ports / std::max(tolerance, s.share);
    lane.ready = now_ + cost.latency;
    if (cost.cycles + cost.latency <= 0) return;
    lane.span = open(
        {Span::Kind::work, lane.index, task::UnitKind::cuda_cores, s.task, s.iteration, now_, now_ + cost.latency});
  }

  // --- time ---

  std::size_t working() const {
    return static_cast<std::size_t>(
        std::count_if(lanes_.begin(), lanes_.end(), [](const Lane& l) { return l.work > 0; }));
  }

  // How fast the arithmetic of each working lane goes.
  double work_rate() const {
    const auto lanes = static_cast<double>(std::max<std::size_t>(1, working()));
    return std::min(device_.throughput.lane_share, device_.throughput.all_lanes_share / lanes);
  }

  double tensor_rate() const {
    double ports = 0;
    for (const Lane& lane : lanes_) {
      if (lane.work > 0) ports += lane.ports * work_rate();
    }
    return std::max(slowest_tensor, 1 - slowing_ * ports);
  }

  double next_event() const {
    double step = infinity;
    const auto until = [&](double time) {
      if (time > now_ + tolerance && time < infinity) step = std::min(step, time - now_);
    };
    for (const Lane& lane : lanes_) {
      if (lane.work > 0)
        step = std::min(step, lane.work / work_rate());
      else
        until(lane.ready);
      if (lane.next >= lane.trace->size() || lane.work > 0) continue;
      const Step& s = (*lane.trace)[lane.next];
      if (s.kind == Step::Kind::acquire) until(slot_free(s));
      if (s.kind == Step::Kind::full) until(slot_full(s));
      if (s.kind == Step::Kind::wait) until(group_of(lane, s));
    }
    if (queue_.empty()) return step;
    // The tensor core works on the oldest group.
    const Group& group = groups_[queue_.front()];
    step = std::min(step, group.left / tensor_rate());
    for (const Issuing& i : issuing_) {
      if (i.group == queue_.front())
        step = std::min(step, std::max(tolerance, (group.left - group.total * i.share) / tensor_rate()));
    }
    return step;
  }

  void pass(double step) {
    const double rate = work_rate();
    std::optional<std::size_t> active;
    if (!queue_.empty()) {
      active = queue_.front();
      if (groups_[*active].start < 0) groups_[*active].start = now_;
      groups_[*active].left -= tensor_rate() * step;
    }
    now_ += step;
    for (Lane& lane : lanes_) {
      if (lane.work <= 0) continue;
      lane.work -= step * rate;
      if (lane.work > tolerance) continue;
      lane.work = 0;
      if (lane.span == no_span) continue;
      // The last results of a long sTask arrive later than their last instruction is issued.
      const Span& span = result_.spans[lane.span];
      lane.ready = std::max(lane.ready, now_ + std::min(device_.latency.last_result, span.end - span.start));
      result_.spans[lane.span].end = lane.ready;
    }
    if (active && groups_[*active].left <= tolerance) {
      Group& group = groups_[*active];
      group.left = 0;
      group.done = now_ + device_.latency.mma;
      open({Span::Kind::work, group.lane, task::UnitKind::tensor_core, group.task, group.iteration, group.start, now_});
      queue_.erase(queue_.begin());
    }
    for (std::size_t i = issuing_.size(); i-- > 0;) {
      const Group& group = groups_[issuing_[i].group];
      if (group.left > group.total * issuing_[i].share + tolerance) continue;
      lanes_[static_cast<std::size_t>(issuing_[i].lane)].ready = now_;
      issuing_.erase(issuing_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  // --- results ---

  void finish() {
    result_.cycles = now_;
    for (Span& span : result_.spans)
      result_.cycles = std::max(result_.cycles, span.kind == Span::Kind::work ? span.end : 0);
    std::stable_sort(result_.spans.begin(), result_.spans.end(),
                     [](const Span& a, const Span& b) { return a.start < b.start; });
    result_.work_cycles = ends_.size() > 1 ? ends_.back() - ends_[ends_.size() - 2] : result_.cycles;
    if (ends_.size() > 1) result_.start_cycles = std::max(0.0, ends_.front() - result_.work_cycles);
    result_.loops = traces_.loops;
    for (std::size_t i = 0; i < result_.loops.size(); ++i) measure(result_.loops[i], begins_[i]);
    result_.work_cycles += beyond(program_.computer);
    add_up();
  }

  // The steady state: the mean over the second half of the iterations of the loop's first run.
  void measure(LoopTime& loop, const std::vector<double>& begins) {
    const auto count = static_cast<std::size_t>(loop.simulated);
    if (begins.size() < 2 || count == 0) return;
    const std::size_t last = std::min(count, begins.size() - 1);
    const std::size_t half = last > 2 ? last / 2 : 0;
    if (last > half) loop.cycles_per_trip = (begins[last] - begins[half]) / static_cast<double>(last - half);
    const std::size_t shown = last / 2;  // copies for later iterations are still under way
    loop.steady_start = begins[shown];
    loop.steady_end = begins[std::min(shown + 1, begins.size() - 1)];
  }

  // The time of trips that were not simulated: of loops in loops, in every trip of the outer one.
  double beyond(const std::vector<schedule::Item>& items) const {
    double cycles = 0;
    for (const schedule::Item& item : items) {
      const auto* loop = std::get_if<schedule::LoopTree>(&item.node);
      if (loop == nullptr) continue;
      for (const LoopTime& time : result_.loops) {
        if (time.axis != loop->axis) continue;
        cycles += time.trips * beyond(loop->body);
        cycles += std::max(0.0, time.trips - static_cast<double>(time.simulated)) * time.cycles_per_trip;
      }
    }
    return cycles;
  }

  // How often each sTask runs in one mean work item, by the loops around it.
  void add_up() {
    const auto visit = [&](const auto& self, const std::vector<schedule::Item>& items, double times,
                           bool copier) -> void {
      for (const schedule::Item& item : items) {
        if (const auto* loop = std::get_if<schedule::LoopTree>(&item.node)) {
          double trips = 1;
          for (const LoopTime& time : result_.loops) {
            if (time.axis == loop->axis) trips = time.trips * (copier ? 1 : time.passed);
          }
          self(self, loop->body, times * trips, copier);
          continue;
        }
        const auto& entry = std::get<schedule::Entry>(item.node);
        if (entry.part == schedule::Part::wait || entry.part == schedule::Part::move) continue;
        const auto index = static_cast<std::size_t>(entry.task.index);
        const bool fetch = !copier && graph_[entry.task].kind == TaskKind::load && costs_.tasks[index].instructions > 0;
        const TaskCost& cost = fetch ? costs_.fetches[index] : costs_.tasks[index];
        double share = static_cast<double>(lanes_.size()) - first_computer_;
        double blocks = 1;  // that a copy serves
        if (copier) {
          if (program_.rings[*program_.ring_of(*graph_[entry.task].writes)].multicast) blocks = cluster_;
          share = 1 / blocks;
        }
        result_.demand += cost.demand * (times * share);
        result_.bytes += cost.bytes * times / blocks;
      }
    };
    visit(visit, program_.copier, 1, true);
    visit(visit, program_.computer, 1, false);
    result_.busy = device_.busy_cycles(result_.demand);
  }

  struct Issuing {
    int lane = 0;
    std::size_t group = 0;
    double share = 1;  // of the group that may be left when the lane goes on
  };

  const task::Graph& graph_;
  const device::Device& device_;
  const schedule::Program& program_;
  double cluster_;  // blocks
  TaskCosts costs_;
  Traces traces_;
  std::vector<Lane> lanes_;
  int first_computer_ = 0;
  std::vector<Ring> rings_;
  std::map<std::size_t, double> partial_;
  std::vector<Group> groups_;
  std::vector<std::size_t> queue_;  // unfinished groups, oldest first
  std::vector<Issuing> issuing_;
  std::vector<double> ends_;                 // by work item: when the last lane was through
  std::vector<std::vector<double>> begins_;  // by loop: when the last lane began each iteration, and left it
  double now_ = 0;
  double copy_free_ = 0;
  double slowing_ = 0;
  int queue_depth_ = 0;
  Timeline result_;
};

}  // namespace

std::string task_name(const task::Graph& graph, TaskId id) {
  static constexpr const char* kinds[] = {"load", "", "reduce", "reduce", "mma", "store", "fetch"};
  const task::Task& t = graph[id];
  const std::string kind = kinds[static_cast<int>(t.kind)];
  const std::string name = t.writes ? graph.kernel[*t.writes].name
                                    : graph.kernel[std::get<kernel::Store>(graph.kernel[t.statement].node).tensor].name;
  return kind.empty() ? name : kind + " " + name;
}

Timeline simulate(const task::Graph& graph, const partition::Partition& partition,
                  const partition::Assignment& assignment, const schedule::Program& program,
                  const device::Device& device, std::int64_t trips_limit, int work_items) {
  return Engine(graph, partition, assignment, program, device, trips_limit, work_items).run();
}

}  // namespace pipethreader::simulate
