#include "schedule/order.h"

#include <algorithm>
#include <map>
#include <set>

namespace pipethreader::schedule {

using kernel::ValueId;
using task::Task;
using task::TaskId;
using task::TaskKind;

namespace {

struct Step {
  Entry entry;
  std::size_t source = 0;  // place in the body as written
  std::set<ValueId> reads;
  std::set<ValueId> writes;
  std::optional<ValueId> accumulator;  // an issue that only adds to it
  std::optional<ValueId> exclusive;    // registers that a product reads: nobody else may even read them until its wait
};

bool touches(const std::set<ValueId>& a, const std::set<ValueId>& b, std::optional<ValueId> except) {
  return std::any_of(a.begin(), a.end(), [&](ValueId v) { return v != except && b.contains(v); });
}

// Whether the two may not change places: one writes what the other reads or writes. Products adding to one accumulator
// keep their order by being issued in order; a wait for one does not stand against the issue of the next.
bool conflict(const Step& x, const Step& y) {
  const auto relaxed = [](const Step& wait, const Step& issue) {
    return wait.entry.part == Part::wait && issue.entry.part == Part::issue && issue.accumulator &&
           wait.writes.contains(*issue.accumulator) && wait.entry.task != issue.entry.task;
  };
  const std::optional<ValueId> except = relaxed(x, y) ? y.accumulator : relaxed(y, x) ? x.accumulator : std::nullopt;
  return touches(x.writes, y.reads, except) || touches(x.writes, y.writes, except) ||
         touches(x.reads, y.writes, except);
}

bool excludes(const Step& x, const Step& y) {
  return (x.exclusive && y.reads.contains(*x.exclusive)) || (y.exclusive && x.reads.contains(*y.exclusive));
}

class BodyOrder {
 public:
  BodyOrder(const task::Graph& graph, const partition::Assignment& assignment, const std::vector<TaskId>& tasks,
            bool in_loop, Overlap overlap)
      : graph_(graph), assignment_(assignment), tasks_(tasks), in_loop_(in_loop), overlap_(overlap) {
    for (std::size_t i = 0; i < tasks.size(); ++i) add(tasks[i], i);
    read_before_products();
    number();
    stages();
    prepare_operands();
  }

  std::vector<Entry> run() {
    const std::size_t n = steps_.size();
    std::vector<std::vector<std::size_t>> before(n), after(n);
    for (std::size_t x = 0; x < n; ++x) {
      for (std::size_t y = x + 1; y < n; ++y) edge(x, y, before, after);
    }
    if (impossible_) return {};
    std::vector<int> height(n, 0);  // longest way to the end, in steps that take time
    bool grows = true;
    for (std::size_t round = 0; grows && round < n; ++round) {  // one round, but for what a later stage does first
      grows = false;
      for (std::size_t x = n; x-- > 0;) {
        for (const std::size_t y : after[x]) {
          if (height[x] > height[y]) continue;
          height[x] = height[y] + 1;
          grows = true;
        }
      }
    }
    std::vector<std::size_t> open(n);  // steps that have to go before
    for (std::size_t x = 0; x < n; ++x) open[x] = before[x].size();
    std::vector<Entry> order;
    std::vector<bool> done(n, false);
    while (order.size() < n) {
      std::optional<std::size_t> best;
      for (std::size_t x = 0; x < n; ++x) {
        if (!done[x] && open[x] == 0 && (!best || better(x, *best, height))) best = x;
      }
      if (!best) return {};  // a cycle: this choice of stages is not possible
      done[*best] = true;
      for (const std::size_t y : after[*best]) --open[y];
      if (steps_[*best].entry.part == Part::issue) issued_[steps_[*best].entry.task] = order.size();
      order.push_back(steps_[*best].entry);
    }
    return order;
  }

 private:
  void add(TaskId id, std::size_t source) {
    const Task& t = graph_[id];
    const partition::Place* written = t.writes ? &assignment_[*t.writes] : nullptr;
    // Read by products only, straight from its ring.
    if ((t.kind == TaskKind::load || t.kind == TaskKind::slice) && !written->in_registers) return;
    Step step;
    step.entry = {id, Part::whole, 0};
    step.source = source;
    for (const ValueId v : t.reads) {
      const partition::Place& place = assignment_[v];
      if (place.in_registers || place.scratch) step.reads.insert(v);
    }
    if (t.writes) step.writes.insert(*t.writes);
    if (t.accumulates) step.reads.insert(*t.writes);
    if (t.kind != TaskKind::mma) {
      steps_.push_back(step);
      return;
    }
    const task::Product p = task_product(id);
    const bool registers = assignment_.products.at(id).a_in_registers;
    step.reads.clear();
    if (registers || assignment_[p.a].scratch) step.reads.insert(p.a);
    if (assignment_[p.b].scratch) step.reads.insert(p.b);
    if (registers) step.exclusive = p.a;
    Step wait = step;
    step.entry.part = Part::issue;
    if (t.accumulates) {
      step.reads.insert(*t.writes);
      step.accumulator = *t.writes;
    }
    wait.entry.part = Part::wait;
    steps_.push_back(step);
    steps_.push_back(wait);
  }

  // What does not depend on a product with operands in registers goes before it, wherever it was written: readers of
  // those registers would otherwise have to wait for the product.
  void read_before_products() {
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      if (steps_[i].entry.part != Part::issue || !steps_[i].exclusive) continue;
      std::vector<Step> free;
      std::vector<Step> bound = {steps_[i]};
      for (std::size_t y = i + 1; y < steps_.size(); ++y) {
        const Step& step = steps_[y];
        const bool depends = step.entry.part != Part::whole ||
                             std::any_of(bound.begin(), bound.end(), [&](const Step& b) { return conflict(b, step); });
        (depends ? bound : free).push_back(step);
      }
      std::copy(free.begin(), free.end(), steps_.begin() + static_cast<std::ptrdiff_t>(i));
      std::copy(bound.begin(), bound.end(), steps_.begin() + static_cast<std::ptrdiff_t>(i + free.size()));
      i += free.size();
    }
  }

  void number() {
    for (std::size_t i = 0; i < steps_.size(); ++i) steps_[i].source = i;
  }

  // The next operand of a product that runs one iteration later is computed beside the registers that it still reads,
  // and moved there when it is over: so the arithmetic runs under the product.
  void prepare_operands() {
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      if (steps_[i].entry.part != Part::issue || steps_[i].entry.stage == 0 || !steps_[i].exclusive) continue;
      const ValueId operand = *steps_[i].exclusive;
      const auto writes = [&](const Step& s) { return s.writes.contains(operand); };
      if (std::count_if(steps_.begin(), steps_.end(), writes) != 1 || read_elsewhere(operand)) continue;
      const auto writer = std::find_if(steps_.begin(), steps_.end(), writes);
      const bool computed = graph_[writer->entry.task].kind == TaskKind::map && writer->entry.part == Part::whole;
      const bool read_before = std::any_of(steps_.begin(), writer + 1, [&](const Step& s) {
        return s.reads.contains(operand) && s.entry.part == Part::whole;
      });
      if (!computed || read_before || writer->entry.stage != 0) continue;
      const ValueId next = prepared(graph_, operand);
      Step move = *writer;
      move.entry.part = Part::move;
      move.reads = {next};
      move.writes = {operand};
      writer->entry.part = Part::prepare;
      writer->writes = {next};
      for (Step& s : steps_) {
        if (s.entry.part == Part::whole && s.reads.erase(operand) > 0) s.reads.insert(next);
      }
      steps_.insert(writer + 1, move);
      number();
    }
  }

  bool read_elsewhere(ValueId value) const {
    std::size_t here = 0, all = 0;
    const auto reads = [&](const Task& t) { return std::find(t.reads.begin(), t.reads.end(), value) != t.reads.end(); };
    for (const Task& t : graph_.tasks) all += reads(t) ? 1 : 0;
    for (const TaskId id : tasks_) here += reads(graph_[id]) ? 1 : 0;
    return all != here;
  }

  task::Product task_product(TaskId id) const { return partition::oriented(graph_, assignment_, id); }

  // A product whose result nothing else in the body reads or writes, other products that add to it aside.
  bool sink(const Step& issue) const {
    // Operand registers written while an older product may read them make the assembler serialise the groups.
    if (!issue.accumulator || assignment_.products.at(issue.entry.task).a_in_registers) return false;
    return std::all_of(steps_.begin(), steps_.end(), [&](const Step& other) {
      if (other.entry.part != Part::whole) return true;
      return !other.reads.contains(*issue.accumulator);
    });
  }

  // A map that rescales the accumulator is allowed when products are delayed; it is not when they are deferred.
  bool only_rescaled(const Step& issue) const {
    if (!issue.accumulator) return false;
    return std::all_of(steps_.begin(), steps_.end(), [&](const Step& other) {
      if (other.entry.part != Part::whole || !other.reads.contains(*issue.accumulator)) return true;
      return other.source < issue.source && other.writes.contains(*issue.accumulator) && other.writes.size() == 1;
    });
  }

  void stages() {
    if (!in_loop_ || overlap_ == Overlap::serial) return;
    for (Step& step : steps_) {
      if (step.entry.part != Part::issue) continue;
      const bool delay = overlap_ == Overlap::delayed && only_rescaled(step);
      const bool defer = overlap_ == Overlap::deferred && sink(step);
      for (Step& other : steps_) {
        if (other.entry.task != step.entry.task) continue;
        if (delay || (defer && other.entry.part == Part::wait)) other.entry.stage = 1;
      }
    }
  }

  // x stands before y in the body as written.
  void edge(std::size_t x, std::size_t y, std::vector<std::vector<std::size_t>>& before,
            std::vector<std::vector<std::size_t>>& after) {
    const Step& a = steps_[x];
    const Step& b = steps_[y];
    const bool same_task = a.entry.task == b.entry.task;
    if (!same_task && !conflict(a, b) && !excludes(a, b)) return;
    const auto put = [&](std::size_t p, std::size_t q) {
      before[q].push_back(p);
      after[p].push_back(q);
    };
    if (a.entry.stage == b.entry.stage) put(x, y);
    if (!in_loop_) return;
    if (a.entry.stage > b.entry.stage) impossible_ = true;  // b would run before a
    // Of the next iteration's x and this iteration's y: in one body when y is one stage later than x.
    if (b.entry.stage == a.entry.stage + 1) put(y, x);
    // Of the next iteration's y and this iteration's x (x later in stage): both orders conflict, x first.
    if (a.entry.stage == b.entry.stage + 1) put(x, y);
  }

  int rank(const Step& step) const {
    const Task& t = graph_[step.entry.task];
    if (step.entry.part == Part::issue) return 0;
    if (t.kind == TaskKind::load || t.kind == TaskKind::slice) return 1;
    return step.entry.part == Part::wait ? 3 : 2;
  }

  bool better(std::size_t x, std::size_t y, const std::vector<int>& height) const {
    const Step& a = steps_[x];
    const Step& b = steps_[y];
    if (rank(a) != rank(b)) return rank(a) < rank(b);
    if (a.entry.part == Part::wait) {  // groups finish in the order they were issued; older iterations first
      if (a.entry.stage != b.entry.stage && (issued_at(a) < 0 || issued_at(b) < 0))
        return a.entry.stage > b.entry.stage;
      return issued_at(a) < issued_at(b);
    }
    if (a.entry.part == Part::issue) {
      if (a.entry.stage != b.entry.stage) return a.entry.stage < b.entry.stage;  // its result is needed first
      return height[x] != height[y] ? height[x] > height[y] : a.source < b.source;
    }
    return a.source < b.source;
  }

  // The place in the order where the task was issued in this body; -1: in the body before.
  long issued_at(const Step& wait) const {
    const auto found = issued_.find(wait.entry.task);
    return found == issued_.end() ? -1 : static_cast<long>(found->second);
  }

  const task::Graph& graph_;
  const partition::Assignment& assignment_;
  const std::vector<TaskId>& tasks_;
  bool in_loop_;
  Overlap overlap_;
  std::vector<Step> steps_;
  std::map<TaskId, std::size_t> issued_;
  bool impossible_ = false;
};

}  // namespace

std::vector<Entry> order_body(const task::Graph& graph, const partition::Assignment& assignment,
                              const std::vector<TaskId>& tasks, bool in_loop, Overlap overlap) {
  // Where the dependences do not allow the overlap, the next weaker one.
  std::vector<Entry> order = BodyOrder(graph, assignment, tasks, in_loop, overlap).run();
  if (order.empty() && !tasks.empty() && overlap != Overlap::serial) {
    return order_body(graph, assignment, tasks, in_loop, static_cast<Overlap>(static_cast<int>(overlap) - 1));
  }
  return order;
}

}  // namespace pipethreader::schedule
