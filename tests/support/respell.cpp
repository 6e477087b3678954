#include "support/respell.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <variant>

namespace pipethreader::test {

using namespace kernel;

namespace {

std::size_t at(auto id) { return static_cast<std::size_t>(id.index); }

// What a statement reads and writes, those inside it included.
struct Uses {
  std::set<ValueId> reads, writes;
  std::set<TensorId> stores;
};

class Respeller {
 public:
  Respeller(const Kernel& kernel, std::uint64_t seed) : k_(kernel), random_(seed) {}

  Respelled run(const Spelling& spelling) {
    // The order in which each name comes is what numbers it; the name itself says nothing.
    if (spelling.operands) operands();
    if (spelling.sides) sides();
    if (spelling.statements) {
      k_.body = statements(k_.body);
      for (Statement& s : k_.statements) {
        if (auto* loop = std::get_if<Loop>(&s.node); loop != nullptr && loop->combine) order(*loop->combine);
      }
    }
    if (spelling.parameters) parameters();
    if (spelling.axes) axes();
    if (spelling.names) names();
    return {print(k_), names_};
  }

 private:
  template <class T>
  void shuffle(std::vector<T>& list) {
    for (std::size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[random_() % i]);
  }
  bool toss() { return random_() % 2 == 1; }

  // --- names ---

  void rename(std::string& name, char first) {
    const std::string fresh = fmt::format("{}{}z", first, numbers_.back());
    numbers_.pop_back();
    names_[fresh] = name;
    name = fresh;
  }

  void names() {
    numbers_.resize(1 + k_.dims.size() + k_.axes.size() + k_.tensors.size() + k_.scalars.size() + k_.options.size() +
                    k_.values.size());
    std::iota(numbers_.begin(), numbers_.end(), 100);
    shuffle(numbers_);
    rename(k_.name, 'k');
    for (Dim& dim : k_.dims) rename(dim.name, 'U');
    for (Axis& axis : k_.axes) rename(axis.name, 'u');
    for (Tensor& tensor : k_.tensors) rename(tensor.name, 'T');
    for (Scalar& scalar : k_.scalars) rename(scalar.name, 'w');
    for (Option& option : k_.options) rename(option.name, 'o');
    for (Value& value : k_.values) rename(value.name, 'v');
  }

  // --- order ---

  void axes() {
    shuffle(k_.parallel);
    // Inner axes are printed in the order of their numbers.
    std::vector<AxisId> inner;
    for (std::size_t i = 0; i < k_.axes.size(); ++i) {
      if (k_.axes[i].kind == AxisKind::inner) inner.emplace_back(i);
    }
    std::vector<AxisId> other = inner;
    shuffle(other);
    std::map<AxisId, AxisId> moved;
    for (std::size_t i = 0; i < inner.size(); ++i) moved[inner[i]] = other[i];
    const std::vector<Axis> before = k_.axes;
    for (const auto& [from, to] : moved) k_.axes[at(to)] = before[at(from)];
    const auto renumber = [&](AxisId& axis) {
      if (const auto found = moved.find(axis); found != moved.end()) axis = found->second;
    };
    for (Expr& e : k_.exprs) {
      if (e.kind == Expr::Kind::axis) renumber(e.axis);
      for (AxisId& axis : e.axes) renumber(axis);
    }
    for (Value& value : k_.values) {
      for (AxisId& axis : value.axes) renumber(axis);
    }
    for (Statement& s : k_.statements) {
      if (auto* loop = std::get_if<Loop>(&s.node)) renumber(loop->axis);
    }
  }

  void parameters() {
    const auto outputs = std::stable_partition(k_.tensors.begin(), k_.tensors.end(), [](auto& t) { return !t.output; });
    const auto inputs = static_cast<std::size_t>(outputs - k_.tensors.begin());
    std::vector<std::size_t> first(inputs), second(k_.tensors.size() - inputs);
    std::iota(first.begin(), first.end(), std::size_t{0});
    std::iota(second.begin(), second.end(), inputs);
    shuffle(first);
    shuffle(second);
    first.insert(first.end(), second.begin(), second.end());
    std::vector<Tensor> tensors;
    std::vector<TensorId> moved(first.size());
    for (const std::size_t old : first) {
      moved[old] = TensorId(tensors.size());
      tensors.push_back(k_.tensors[old]);
    }
    k_.tensors = std::move(tensors);
    for (Expr& e : k_.exprs) {
      if (e.kind == Expr::Kind::access) e.tensor = moved[at(e.tensor)];
    }
    for (Statement& s : k_.statements) {
      if (auto* store = std::get_if<Store>(&s.node)) store->tensor = moved[at(store->tensor)];
    }
  }

  static bool commutes(const Expr& e) {
    if (e.kind != Expr::Kind::call) return false;
    static const std::set<Function> known = {Function::add, Function::mul,         Function::min,       Function::max,
                                             Function::eq,  Function::logical_and, Function::logical_or};
    return known.contains(e.function);
  }

  void operands() {
    for (Expr& e : k_.exprs) {
      if (commutes(e) && toss()) std::swap(e.args[0], e.args[1]);
    }
  }

  void sides() {
    static const std::map<Function, Function> other = {{Function::lt, Function::gt},
                                                       {Function::gt, Function::lt},
                                                       {Function::le, Function::ge},
                                                       {Function::ge, Function::le}};
    for (Expr& e : k_.exprs) {
      const auto found = other.find(e.function);
      if (e.kind != Expr::Kind::call || found == other.end() || !toss()) continue;
      e.function = found->second;
      std::swap(e.args[0], e.args[1]);
    }
  }

  void read(ExprId id, Uses& uses) const {
    const Expr& e = k_[id];
    if (e.kind == Expr::Kind::value) uses.reads.insert(e.value);
    for (const ExprId arg : e.args) read(arg, uses);
  }

  Uses uses_of(StatementId id) const {
    Uses uses;
    collect(id, uses);
    return uses;
  }

  void collect(StatementId id, Uses& uses) const {
    const Statement& s = k_[id];
    if (const auto* carry = std::get_if<Carry>(&s.node)) {
      read(carry->init, uses);
      uses.writes.insert(carry->target);
    } else if (const auto* assign = std::get_if<Assign>(&s.node)) {
      read(assign->expr, uses);
      if (assign->when) read(*assign->when, uses);
      if (assign->accumulate || assign->when) uses.reads.insert(assign->target);
      uses.writes.insert(assign->target);
    } else if (const auto* store = std::get_if<Store>(&s.node)) {
      for (const ExprId index : store->indices) read(index, uses);
      read(store->expr, uses);
      if (store->when) read(*store->when, uses);
      uses.stores.insert(store->tensor);
    } else {
      const auto& loop = std::get<Loop>(s.node);
      if (loop.where) read(*loop.where, uses);
      for (const StatementId inner : loop.body) collect(inner, uses);
    }
  }

  static bool meet(const auto& a, const auto& b) {
    return std::any_of(a.begin(), a.end(), [&](const auto& x) { return b.contains(x); });
  }

  static bool independent(const Uses& a, const Uses& b) {
    return !meet(a.writes, b.reads) && !meet(a.writes, b.writes) && !meet(a.reads, b.writes) &&
           !meet(a.stores, b.stores);
  }

  // The names of the other state stand in the order of the carries.
  void order(Combine& combine) const {
    Combine ordered;
    for (const StatementId id : k_.body) {
      const auto* carry = std::get_if<Carry>(&k_[id].node);
      const auto found = carry == nullptr ? combine.carried.end()
                                          : std::find(combine.carried.begin(), combine.carried.end(), carry->target);
      if (found == combine.carried.end()) continue;
      ordered.carried.push_back(*found);
      ordered.others.push_back(combine.others[static_cast<std::size_t>(found - combine.carried.begin())]);
    }
    combine.carried = ordered.carried;
    combine.others = ordered.others;
  }

  // Another order in which each statement still comes behind those that it needs.
  std::vector<StatementId> statements(std::vector<StatementId> left) {
    std::vector<StatementId> order;
    for (const StatementId id : left) {
      if (auto* loop = std::get_if<Loop>(&k_.statements[at(id)].node)) loop->body = statements(loop->body);
    }
    while (!left.empty()) {
      std::vector<std::size_t> free;
      for (std::size_t i = 0; i < left.size(); ++i) {
        const Uses own = uses_of(left[i]);
        const bool first = std::all_of(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(i),
                                       [&](StatementId before) { return independent(uses_of(before), own); });
        if (first) free.push_back(i);
      }
      const std::size_t chosen = free[random_() % free.size()];
      order.push_back(left[chosen]);
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(chosen));
    }
    return order;
  }

  Kernel k_;
  std::mt19937_64 random_;
  std::vector<int> numbers_;  // not taken yet
  std::map<std::string, std::string> names_;
};

}  // namespace

Respelled respell(const Kernel& kernel, std::uint64_t seed, const Spelling& spelling) {
  return Respeller(kernel, seed).run(spelling);
}

}  // namespace pipethreader::test
