#include "task/canonical.h"

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>

#include "task/explicit_axes.h"
#include "task/rewrite.h"

namespace pipethreader::task {

using namespace kernel;

namespace {

std::size_t at(auto id) { return static_cast<std::size_t>(id.index); }

template <class Set>
bool meet(const Set& a, const Set& b) {
  return std::any_of(a.begin(), a.end(), [&](const auto& x) { return b.contains(x); });
}

bool commutes(const Expr& e) {
  if (e.kind != Expr::Kind::call) return false;
  switch (e.function) {
    case Function::add:
    case Function::mul:
    case Function::min:
    case Function::max:
    case Function::eq:
    case Function::ne:
    case Function::logical_and:
    case Function::logical_or:
      return true;
    default:
      return false;
  }
}

// What an expression looks like without its names and without an order of what may change places: a number that is the
// same for all spellings.
class Fingerprints {
 public:
  Fingerprints(const Kernel& kernel, const std::map<AxisId, int>& ranks)
      : k_(kernel), ranks_(ranks), known_(kernel.exprs.size()) {}

  std::uint64_t of(ExprId id) {
    if (!known_[at(id)]) known_[at(id)] = make(k_[id]);
    return *known_[at(id)];
  }

  std::uint64_t of(AxisId axis) const {
    const auto rank = ranks_.find(axis);
    const int place = rank == ranks_.end() ? -1 : rank->second;
    return mix(static_cast<std::uint64_t>(k_[axis].kind) + 11, static_cast<std::uint64_t>(place + 1));
  }

  std::uint64_t of(ValueId value) const {
    std::uint64_t all = mix(static_cast<std::uint64_t>(k_[value].type) + 7, k_[value].carried ? 1 : 0);
    for (const AxisId a : k_[value].axes) all = mix(all, of(a));
    return all;
  }

  static std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    std::uint64_t x = a * 0x9e3779b97f4a7c15ULL + b + 0x7f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  }

 private:
  std::uint64_t make(const Expr& e) {
    std::uint64_t all = mix(static_cast<std::uint64_t>(e.kind), static_cast<std::uint64_t>(e.type));
    std::vector<std::uint64_t> args;
    for (const ExprId arg : e.args) args.push_back(of(arg));
    Function function = e.function;
    switch (e.kind) {
      case Expr::Kind::literal:
        return mix(all, std::bit_cast<std::uint64_t>(e.number));
      case Expr::Kind::axis:
        return mix(all, of(e.axis));
      case Expr::Kind::dim:
        return mix(all, static_cast<std::uint64_t>(k_[e.dim].size.value_or(-1)));
      case Expr::Kind::value:
        all = mix(all, of(e.value));
        break;
      case Expr::Kind::reduce:
        all = mix(all, static_cast<std::uint64_t>(e.reduce));
        break;
      case Expr::Kind::call:
        if (function == Function::gt || function == Function::ge) {  // a > b is b < a
          function = function == Function::gt ? Function::lt : Function::le;
          std::swap(args[0], args[1]);
        }
        if (commutes(e)) std::sort(args.begin(), args.end());
        all = mix(all, static_cast<std::uint64_t>(function));
        break;
      default:
        break;
    }
    for (const std::uint64_t arg : args) all = mix(all, arg);
    return all;
  }

  const Kernel& k_;
  const std::map<AxisId, int>& ranks_;  // of parallel axes
  std::vector<std::optional<std::uint64_t>> known_;
};

// --- parallel axes ---------------------------------------------------------------------------------------------------

class ParallelOrder {
 public:
  explicit ParallelOrder(const Kernel& kernel) : k_(kernel) {}

  std::vector<AxisId> run() {
    collect(k_.body);
    for (const Expr& e : k_.exprs) {
      if (e.kind == Expr::Kind::access) note(e.args, read_);
    }
    for (auto* places : {&stored_, &read_}) {
      for (auto& [axis, list] : *places) std::sort(list.begin(), list.end());
    }
    std::vector<AxisId> order = k_.parallel;
    std::stable_sort(order.begin(), order.end(), [&](AxisId a, AxisId b) {
      return std::tie(stored_[a], read_[a]) < std::tie(stored_[b], read_[b]);
    });
    return order;
  }

 private:
  // The number of the index; of an index of several axes, those with a factor move further.
  using Places = std::map<AxisId, std::vector<std::pair<std::size_t, bool>>>;

  void collect(const std::vector<StatementId>& body) {
    for (const StatementId id : body) {
      if (const auto* store = std::get_if<Store>(&k_[id].node)) note(store->indices, stored_);
      if (const auto* loop = std::get_if<Loop>(&k_[id].node)) collect(loop->body);
    }
  }

  void note(const std::vector<ExprId>& indices, Places& places) const {
    for (std::size_t i = 0; i < indices.size(); ++i) {
      for (const AxisId a : axes_of(k_, indices[i])) places[a].emplace_back(i, !has_factor(indices[i], a));
    }
  }

  bool has_factor(ExprId id, AxisId axis) const {
    const Expr& e = k_[id];
    const auto has = [&](ExprId arg) { return axes_of(k_, arg).contains(axis); };
    if (e.kind == Expr::Kind::call && e.function == Function::mul) return has(id);
    return std::any_of(e.args.begin(), e.args.end(), [&](ExprId arg) { return has_factor(arg, axis); });
  }

  const Kernel& k_;
  Places stored_, read_;
};

// --- operands --------------------------------------------------------------------------------------------------------

class OperandOrder {
 public:
  OperandOrder(Kernel& kernel, const std::map<AxisId, int>& ranks)
      : k_(kernel), ranks_(ranks), fingerprints_(kernel, ranks) {}

  void run() {
    std::set<ExprId> summed;
    for (const Expr& e : k_.exprs) {
      if (e.kind == Expr::Kind::reduce && e.reduce == ReduceOp::sum) summed.insert(without_widening(e.args[0]));
    }
    for (std::size_t i = 0; i < k_.exprs.size(); ++i) {
      Expr& e = k_.exprs[i];
      if (!commutes(e)) continue;
      const bool product = e.function == Function::mul && summed.contains(ExprId(i));
      const bool index = is_integer(e.type);
      if (!product && !index && !(makes_tasks(e.args[0]) && makes_tasks(e.args[1]))) continue;
      const auto key = [&](std::size_t side) {
        return index ? as_index(e.args[side]) : as_operand(e.args[side], e.args[1 - side], product);
      };
      if (key(1) < key(0)) std::swap(e.args[0], e.args[1]);
    }
  }

 private:
  using Key = std::tuple<std::vector<int>, int, int, std::uint64_t>;

  ExprId without_widening(ExprId id) const {
    while (k_[id].kind == Expr::Kind::convert && k_[id].type == ScalarType::f32) id = k_[id].args[0];
    return id;
  }

  // Loads and reductions are steps of their own, in the order in which the expression has them.
  bool makes_tasks(ExprId id) const {
    const Expr& e = k_[id];
    return e.kind == Expr::Kind::access || e.kind == Expr::Kind::reduce ||
           std::any_of(e.args.begin(), e.args.end(), [&](ExprId arg) { return makes_tasks(arg); });
  }

  // Of a product the side that has the rows of its result comes first: those axes stand first. Else what reads the
  // larger tile, then what is loaded as it is.
  Key as_operand(ExprId id, ExprId other, bool product) {
    return {product ? own_axes(id, other) : std::vector<int>{}, -most_axes(id),
            k_[id].kind == Expr::Kind::access ? 0 : 1, fingerprints_.of(id)};
  }

  int most_axes(ExprId id) const {
    const Expr& e = k_[id];
    const bool leaf = e.kind == Expr::Kind::access || e.kind == Expr::Kind::reduce || e.kind == Expr::Kind::value;
    if (leaf) return static_cast<int>(axes_of(k_, id).size());
    int most = 0;
    for (const ExprId arg : e.args) most = std::max(most, most_axes(arg));
    return most;
  }

  // What walks in steps, then single axes, then numbers.
  Key as_index(ExprId id) {
    const Expr& e = k_[id];
    const int kind = e.kind == Expr::Kind::axis      ? 1
                     : e.kind == Expr::Kind::dim     ? 2
                     : e.kind == Expr::Kind::literal ? 3
                                                     : 0;
    const auto found = e.kind == Expr::Kind::axis ? ranks_.find(e.axis) : ranks_.end();
    return {{}, kind, found == ranks_.end() ? none : found->second, fingerprints_.of(id)};
  }

  // The places of parallel axes, in front of how many others there are.
  std::vector<int> own_axes(ExprId id, ExprId other) const {
    const std::set<AxisId> theirs = axes_of(k_, other);
    std::vector<int> own;
    for (const AxisId a : axes_of(k_, id)) {
      if (theirs.contains(a)) continue;
      const auto found = ranks_.find(a);
      own.push_back(found == ranks_.end() ? none : found->second);
    }
    if (own.empty()) own.push_back(none);
    std::sort(own.begin(), own.end());
    return own;
  }

  static constexpr int none = 1 << 20;
  Kernel& k_;
  const std::map<AxisId, int>& ranks_;
  Fingerprints fingerprints_;
};

// --- statements ------------------------------------------------------------------------------------------------------

class StatementOrder {
 public:
  StatementOrder(Kernel& kernel, const std::map<AxisId, int>& ranks) : k_(kernel), fingerprints_(kernel, ranks) {}

  void run() { k_.body = ordered(k_.body, false); }

 private:
  struct Uses {
    std::set<ValueId> reads, writes;
    std::set<TensorId> stores;
  };
  // What goes first: a loop, what is over more than the parallel axes, what leaves less behind, the smaller number.
  using Key = std::tuple<int, int, int, double, std::uint64_t>;

  std::vector<StatementId> ordered(const std::vector<StatementId>& body, bool in_loop) {
    std::vector<StatementId> left = body;
    std::vector<Uses> uses;
    std::vector<Key> keys;
    for (const StatementId id : left) {
      if (auto* loop = std::get_if<Loop>(&k_.statements[at(id)].node)) {
        loop->body = ordered(loop->body, true);
        if (loop->combine) loop->combine->body = ordered(loop->combine->body, false);
      }
      uses.emplace_back();
      collect(id, uses.back());
      keys.push_back(key(id, in_loop));
    }
    std::vector<StatementId> order;
    while (!left.empty()) {
      std::size_t best = left.size();
      for (std::size_t i = 0; i < left.size(); ++i) {
        if ((best < left.size() && keys[best] <= keys[i]) || !free(uses, i)) continue;
        best = i;
      }
      order.push_back(left[best]);
      const auto place = static_cast<std::ptrdiff_t>(best);
      left.erase(left.begin() + place);
      uses.erase(uses.begin() + place);
      keys.erase(keys.begin() + place);
    }
    return order;
  }

  // Needs nothing of what stands before it, and spoils nothing that those need.
  static bool free(const std::vector<Uses>& uses, std::size_t i) {
    return std::none_of(uses.begin(), uses.begin() + static_cast<std::ptrdiff_t>(i), [&](const Uses& before) {
      return meet(before.writes, uses[i].reads) || meet(before.writes, uses[i].writes) ||
             meet(before.reads, uses[i].writes) || meet(before.stores, uses[i].stores);
    });
  }

  void read(const std::optional<ExprId>& expr, Uses& uses) const {
    if (expr) uses.reads.merge(values_of(k_, *expr));
  }

  void collect(StatementId id, Uses& uses) const {
    const Statement& s = k_[id];
    if (const auto* carry = std::get_if<Carry>(&s.node)) {
      read(carry->init, uses);
      uses.writes.insert(carry->target);
    } else if (const auto* assign = std::get_if<Assign>(&s.node)) {
      read(assign->expr, uses);
      read(assign->when, uses);
      if (assign->accumulate || assign->when) uses.reads.insert(assign->target);
      uses.writes.insert(assign->target);
    } else if (const auto* store = std::get_if<Store>(&s.node)) {
      for (const ExprId index : store->indices) read(index, uses);
      read(store->expr, uses);
      read(store->when, uses);
      uses.stores.insert(store->tensor);
    } else {
      const auto& loop = std::get<Loop>(s.node);
      read(loop.where, uses);
      for (const StatementId inner : loop.body) collect(inner, uses);
      if (!loop.combine) return;
      for (const StatementId inner : loop.combine->body) collect(inner, uses);
    }
  }

  Key key(StatementId id, bool in_loop) {
    const Statement& s = k_[id];
    if (const auto* carry = std::get_if<Carry>(&s.node)) {
      const Expr& init = k_[carry->init];
      const double first = init.kind == Expr::Kind::literal ? init.number : 0;
      return {1, 0, others(k_[carry->target].axes), first, print({carry->init}, carry->target)};
    }
    if (const auto* assign = std::get_if<Assign>(&s.node)) {
      const auto& axes = k_[assign->target].axes;
      const bool wide = others(axes) > 0 || reduces(assign->expr);
      std::vector<ExprId> parts = {assign->expr};
      if (assign->when) parts.push_back(*assign->when);
      return {1, in_loop && wide ? 0 : 1, others(axes), 0, print(parts, assign->target)};
    }
    if (const auto* store = std::get_if<Store>(&s.node)) {
      std::vector<ExprId> parts = store->indices;
      parts.push_back(store->expr);
      return {1, 1, static_cast<int>(store->indices.size()), 0, print(parts, {})};
    }
    return {0, 0, 0, 0, loop_print(std::get<Loop>(s.node))};
  }

  std::uint64_t print(const std::vector<ExprId>& parts, std::optional<ValueId> target) {
    std::uint64_t all = target ? fingerprints_.of(*target) : 0;
    for (const ExprId part : parts) all = Fingerprints::mix(all, fingerprints_.of(part));
    return all;
  }

  std::uint64_t loop_print(const Loop& loop) {
    std::uint64_t all = fingerprints_.of(k_[loop.axis].extent);
    if (loop.where) all = Fingerprints::mix(all, fingerprints_.of(*loop.where));
    for (const StatementId id : loop.body) all = Fingerprints::mix(all, std::get<4>(key(id, true)));
    return all;
  }

  // Axes that are not parallel.
  int others(const std::vector<AxisId>& axes) const {
    return static_cast<int>(
        std::count_if(axes.begin(), axes.end(), [&](AxisId a) { return k_[a].kind != AxisKind::parallel; }));
  }

  bool reduces(ExprId id) const {
    const Expr& e = k_[id];
    return e.kind == Expr::Kind::reduce ||
           std::any_of(e.args.begin(), e.args.end(), [&](ExprId arg) { return reduces(arg); });
  }

  Kernel& k_;
  Fingerprints fingerprints_;
};

// --- numbers ---------------------------------------------------------------------------------------------------------

// Gives axes and values the numbers of their first appearance, parallel axes in front.
class Renumbering {
 public:
  explicit Renumbering(Kernel& kernel) : k_(kernel) {}

  void run() {
    for (const AxisId a : k_.parallel) see(a);
    visit(k_.body);
    for (std::size_t i = 0; i < k_.axes.size(); ++i) see(AxisId(i));
    for (std::size_t i = 0; i < k_.values.size(); ++i) see(ValueId(i));
    std::vector<Axis> axes(k_.axes.size());
    for (const auto& [old, fresh] : axes_) axes[at(fresh)] = std::move(k_.axes[at(old)]);
    k_.axes = std::move(axes);
    std::vector<Value> values(k_.values.size());
    for (const auto& [old, fresh] : values_) values[at(fresh)] = std::move(k_.values[at(old)]);
    k_.values = std::move(values);
    for (AxisId& a : k_.parallel) a = axes_.at(a);
    for (Value& v : k_.values) renumber(v.axes);
    for (Expr& e : k_.exprs) {
      if (e.kind == Expr::Kind::axis) e.axis = axes_.at(e.axis);
      if (e.kind == Expr::Kind::value) e.value = values_.at(e.value);
      renumber(e.axes);
    }
    for (Statement& s : k_.statements) std::visit([&](auto& node) { renumber(node); }, s.node);
  }

 private:
  void see(AxisId a) { axes_.try_emplace(a, axes_.size()); }
  void see(ValueId v) { values_.try_emplace(v, values_.size()); }

  void see_target(ValueId v) {
    see(v);
    for (const AxisId a : k_[v].axes) see(a);
  }

  void visit(ExprId id) {
    const Expr& e = k_[id];
    if (e.kind == Expr::Kind::axis) see(e.axis);
    for (const AxisId a : e.axes) see(a);
    for (const ExprId arg : e.args) visit(arg);
  }

  void visit(const std::vector<StatementId>& body) {
    for (const StatementId id : body) {
      const Statement& s = k_[id];
      if (const auto* carry = std::get_if<Carry>(&s.node)) {
        see_target(carry->target);
        visit(carry->init);
      } else if (const auto* assign = std::get_if<Assign>(&s.node)) {
        see_target(assign->target);
        visit(assign->expr);
        if (assign->when) visit(*assign->when);
      } else if (const auto* store = std::get_if<Store>(&s.node)) {
        for (const ExprId index : store->indices) visit(index);
        visit(store->expr);
        if (store->when) visit(*store->when);
      } else {
        const auto& loop = std::get<Loop>(s.node);
        see(loop.axis);
        if (loop.where) visit(*loop.where);
        visit(loop.body);
        if (!loop.combine) continue;
        for (const auto& [carried, other] : sorted(*loop.combine)) see(other);
        visit(loop.combine->body);
      }
    }
  }

  std::vector<std::pair<ValueId, ValueId>> sorted(const Combine& combine) const {
    std::vector<std::pair<ValueId, ValueId>> pairs;
    for (std::size_t i = 0; i < combine.carried.size(); ++i) pairs.emplace_back(combine.carried[i], combine.others[i]);
    std::sort(pairs.begin(), pairs.end(),
              [&](const auto& a, const auto& b) { return values_.at(a.first) < values_.at(b.first); });
    return pairs;
  }

  void renumber(std::vector<AxisId>& axes) const {
    for (AxisId& a : axes) a = axes_.at(a);
  }
  void renumber(Carry& carry) const { carry.target = values_.at(carry.target); }
  void renumber(Assign& assign) const { assign.target = values_.at(assign.target); }
  void renumber(Store&) const {}
  void renumber(Loop& loop) const {
    loop.axis = axes_.at(loop.axis);
    if (!loop.combine) return;
    const auto pairs = sorted(*loop.combine);
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      loop.combine->carried[i] = values_.at(pairs[i].first);
      loop.combine->others[i] = values_.at(pairs[i].second);
    }
  }

  Kernel& k_;
  std::map<AxisId, AxisId> axes_;
  std::map<ValueId, ValueId> values_;
};

}  // namespace

Kernel canonical(Kernel written) {
  written.parallel = ParallelOrder(written).run();
  Renumbering(written).run();
  // What values depend on is said by now in the order of the numbers.
  Kernel kernel = with_explicit_axes(std::move(written));
  std::map<AxisId, int> ranks;
  for (const AxisId a : kernel.parallel) ranks.emplace(a, static_cast<int>(ranks.size()));
  OperandOrder(kernel, ranks).run();
  StatementOrder(kernel, ranks).run();
  Renumbering(kernel).run();
  return kernel;
}

}  // namespace pipethreader::task
