#include "simulate/trace.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "schedule/ring_uses.h"
#include "simulate/trips.h"

namespace pipethreader::simulate {

using namespace kernel;
using schedule::Entry;
using schedule::Item;
using schedule::LoopTree;
using schedule::Part;
using schedule::stage_of;

namespace {

class Unroller {
 public:
  Unroller(const task::Graph& graph, const partition::Partition& partition, const partition::Assignment& assignment,
           const schedule::Program& program, std::int64_t limit)
      : graph_(graph), partition_(partition), assignment_(assignment), program_(program), limit_(limit) {}

  Traces run(int work_items) {
    fills_.assign(program_.rings.size(), 0);
    cursors_.assign(program_.rings.size(), 0);
    for (int item = 0; item < work_items; ++item) {
      computer(program_.computer, {}, 0, 0, 0);
      advance({}, 1);
      copier(program_.copier, -1);
      traces_.computer.push_back({Step::Kind::end});
    }
    return std::move(traces_);
  }

 private:
  std::int64_t trips(const LoopTree& loop) {
    const auto known = trips_.find(loop.statement);
    if (known != trips_.end()) return traces_.loops[known->second].simulated;
    LoopTime time;
    time.axis = loop.axis;
    const Trips trips = trips_of(graph_, partition_, loop.axis, loop.statement);
    time.trips = trips.mean;
    time.most = trips.most;
    if (loop.stages == 1) {
      const std::vector<double> shares = shares_of_lanes(graph_, partition_, loop.axis, loop.statement);
      time.passed = std::accumulate(shares.begin(), shares.end(), 0.0) / static_cast<double>(shares.size());
      if (time.passed < 1) {
        traces_.passing.clear();
        for (const double share : shares) {
          const bool mean = program_.changes_places || time.passed <= 0;
          traces_.passing.push_back(mean ? 1 : share / time.passed);
        }
      }
    }
    time.simulated = std::min(limit_, static_cast<std::int64_t>(std::ceil(time.trips)));
    trips_[loop.statement] = traces_.loops.size();
    traces_.loops.push_back(time);
    return time.simulated;
  }

  void copier(const std::vector<Item>& items, std::int64_t iteration) {
    std::vector<std::size_t> filled(program_.rings.size(), 0);
    for (const Item& item : items) {
      if (const auto* loop = std::get_if<LoopTree>(&item.node)) {
        const std::int64_t count = trips(*loop);
        for (std::int64_t n = 0; n < count; ++n) copier(loop->body, n);
        continue;
      }
      const auto& entry = std::get<Entry>(item.node);
      const std::size_t r = *program_.ring_of(*graph_[entry.task].writes);
      const auto& plan = program_.rings[r];
      if (filled[r] == 0) traces_.copier.push_back({Step::Kind::acquire, entry.task, iteration, r, fills_[r]});
      traces_.copier.push_back({Step::Kind::copy, entry.task, iteration, r, fills_[r]});
      if (++filled[r] < plan.values.size()) continue;
      filled[r] = 0;
      ++fills_[r];
    }
  }

  // The items whose stage is in [low, high], for the iteration that stage 0 is in.
  void computer(const std::vector<Item>& items, const std::vector<kernel::StatementId>& level, int low, int high,
                std::int64_t iteration) {
    const std::vector<schedule::RingUse> uses = schedule::ring_uses(graph_, assignment_, program_, items, level);
    for (std::size_t i = 0; i < items.size(); ++i) {
      const int stage = stage_of(items[i]);
      if (stage < low || stage > high) continue;
      const std::int64_t mine = iteration - stage;
      const auto slot = [&](std::size_t r) { return cursors_[r] + (level.empty() ? 0 : mine); };
      for (const schedule::RingUse& use : uses) {
        if (use.first == i) traces_.computer.push_back({Step::Kind::full, {}, mine, use.ring, slot(use.ring)});
      }
      if (const auto* loop = std::get_if<LoopTree>(&items[i].node)) {
        walk(*loop, level);
      } else {
        const auto& entry = std::get<Entry>(items[i].node);
        if (entry.part == Part::move) continue;  // a register each: lost in what stands around it
        const Step::Kind kind = entry.part == Part::issue  ? Step::Kind::issue
                                : entry.part == Part::wait ? Step::Kind::wait
                                                           : Step::Kind::run;
        traces_.computer.push_back({kind, entry.task, level.empty() ? -1 : mine, 0, 0, 1, 1, part_});
      }
      for (const schedule::RingUse& use : uses) {
        if (use.last == i) traces_.computer.push_back({Step::Kind::release, {}, mine, use.ring, slot(use.ring)});
      }
    }
  }

  void walk(const LoopTree& loop, std::vector<kernel::StatementId> level) {
    const std::int64_t count = trips(loop);
    const std::size_t index = trips_.at(loop.statement);
    level.push_back(loop.statement);
    const double outside = part_;
    part_ *= traces_.loops[index].passed;
    for (std::int64_t n = 0; count > 0 && n < count + loop.stages - 1; ++n) {
      traces_.computer.push_back({Step::Kind::begin, {}, n, 0, static_cast<std::int64_t>(index), loop.stages});
      const int low = n < count ? 0 : 1;
      const int high = n > 0 ? loop.stages - 1 : 0;
      computer(loop.body, level, low, high, n);
    }
    part_ = outside;
    traces_.computer.push_back({Step::Kind::begin, {}, -1, 0, static_cast<std::int64_t>(index)});  // the loop is over
    advance(level, count);
  }

  void advance(const std::vector<kernel::StatementId>& level, std::int64_t count) {
    for (std::size_t r = 0; r < program_.rings.size(); ++r) {
      if (program_.rings[r].level == level) cursors_[r] += count;
    }
  }

  const task::Graph& graph_;
  const partition::Partition& partition_;
  const partition::Assignment& assignment_;
  const schedule::Program& program_;
  std::int64_t limit_;
  Traces traces_;
  double part_ = 1;  // what a mean lane does of the current loop
  std::map<StatementId, std::size_t> trips_;
  std::vector<std::int64_t> fills_;    // by ring: slots the copier has filled
  std::vector<std::int64_t> cursors_;  // by ring: the computing lanes' place at the start of the current loop
};

}  // namespace

Traces unroll(const task::Graph& graph, const partition::Partition& partition, const partition::Assignment& assignment,
              const schedule::Program& program, std::int64_t trips_limit, int work_items) {
  return Unroller(graph, partition, assignment, program, std::max<std::int64_t>(1, trips_limit)).run(work_items);
}

}  // namespace pipethreader::simulate
