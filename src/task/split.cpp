#include "task/split.h"

#include <algorithm>
#include <map>

#include "task/canonical.h"
#include "task/graph.h"
#include "task/products.h"
#include "task/rewrite.h"
#include "task/streaming.h"

namespace pipethreader::task {

using namespace kernel;

namespace {

class Splitter {
 public:
  // Every long sum of the kernel is a loop, and every value names all its axes.
  Splitter(Kernel kernel, std::int64_t parts) : kernel_(std::move(kernel)), parts_(parts) {}

  Result<Split> run() {
    if (auto done = find_loop(); !done) return tl::unexpected(done.error());
    if (auto done = find_state(); !done) return tl::unexpected(done.error());
    Split result{first(), {}};
    auto second = this->second();
    if (!second) return tl::unexpected(second.error());
    result.join = std::move(*second);
    return result;
  }

 private:
  Error cannot(SourceSpan span, const std::string& why, const std::string& hint = "leave out --force split") const {
    return Error(Diagnostic{kernel_.file, span, fmt::format("'{}' cannot be split: {}", kernel_.name, why), hint});
  }

  Result<void> find_loop() {
    for (std::size_t i = 0; i < kernel_.body.size(); ++i) {
      if (!std::holds_alternative<Loop>(kernel_[kernel_.body[i]].node)) continue;
      if (place_) return tl::unexpected(cannot(kernel_[kernel_.body[i]].span, "it has several loops"));
      place_ = i;
    }
    if (!place_) return tl::unexpected(cannot(kernel_[kernel_.body.back()].span, "it has no loop"));
    const Loop& loop = this->loop();
    const SourceSpan span = kernel_[kernel_.body[*place_]].span;
    const auto extent = static_extent(kernel_, loop.axis);
    if (!extent) return tl::unexpected(cannot(span, "the size of its loop is dynamic", "fix it with --dim"));
    if (parts_ < 2 || *extent % parts_ != 0)
      return tl::unexpected(cannot(span, fmt::format("{} parts do not divide its loop of {}", parts_, *extent),
                                   "force a split that divides it"));
    if (loop.ordered) return tl::unexpected(cannot(span, "its loop is ordered"));
    for (const StatementId id : loop.body) {
      if (std::holds_alternative<Assign>(kernel_[id].node)) continue;
      return tl::unexpected(cannot(kernel_[id].span, "its loop does more than assign values"));
    }
    length_ = *extent / parts_;
    return {};
  }

  const Loop& loop() const { return std::get<Loop>(kernel_[kernel_.body[*place_]].node); }

  // What the loop changes and had before: each must be a sum, or all are combined by `combine`.
  Result<void> find_state() {
    const SourceSpan span = kernel_[kernel_.body[*place_]].span;
    std::set<ValueId> before;
    for (std::size_t i = 0; i < *place_; ++i) {
      if (const auto target = target_of(kernel_.body[i])) before.insert(*target);
    }
    std::map<ValueId, int> writes;
    std::set<ValueId> sums;
    for (const StatementId id : loop().body) {
      const auto& assign = std::get<Assign>(kernel_[id].node);
      ++writes[assign.target];
      const Expr& e = kernel_[assign.expr];
      const bool sum = assign.accumulate && !assign.when && e.kind == Expr::Kind::reduce && e.reduce == ReduceOp::sum;
      if (sum && std::find(e.axes.begin(), e.axes.end(), loop().axis) != e.axes.end()) sums.insert(assign.target);
    }
    for (const auto& [value, count] : writes) {
      if (before.contains(value)) state_.push_back(value);
    }
    if (state_.empty()) return tl::unexpected(cannot(span, "its loop leaves nothing behind"));
    for (const ValueId v : state_) {
      for (const AxisId a : kernel_.parallel) {
        const auto& axes = kernel_[v].axes;
        if (std::find(axes.begin(), axes.end(), a) == axes.end())
          return tl::unexpected(
              cannot(span, fmt::format("'{}' does not vary over '{}'", kernel_[v].name, kernel_[a].name)));
      }
    }
    if (loop().combine) {
      for (const ValueId v : state_) {
        const auto& carried = loop().combine->carried;
        if (std::find(carried.begin(), carried.end(), v) == carried.end())
          return tl::unexpected(cannot(span, fmt::format("its `combine` says nothing of '{}'", kernel_[v].name)));
      }
      return {};
    }
    for (const ValueId v : state_) {
      if (!sums.contains(v) || writes[v] != 1 || read_in_loop(v) || !starts_at_zero(v))
        return tl::unexpected(
            cannot(span, fmt::format("'{}' is no plain sum from 0, and its loop has no `combine`", kernel_[v].name),
                   "say how two states become one: `combine (...) { ... }` after the loop"));
    }
    return {};
  }

  bool read_in_loop(ValueId v) const {
    if (loop().where && values_of(kernel_, *loop().where).contains(v)) return true;
    return std::any_of(loop().body.begin(), loop().body.end(), [&](StatementId id) {
      const auto& assign = std::get<Assign>(kernel_[id].node);
      return values_of(kernel_, assign.expr).contains(v) ||
             (assign.when && values_of(kernel_, *assign.when).contains(v));
    });
  }

  bool starts_at_zero(ValueId v) const {
    return std::all_of(kernel_.body.begin(), kernel_.body.begin() + static_cast<std::ptrdiff_t>(*place_),
                       [&](StatementId id) { return target_of(id) != v || sets_zero(kernel_, id); });
  }

  std::optional<ValueId> target_of(StatementId id) const {
    if (const auto* assign = std::get_if<Assign>(&kernel_[id].node)) return assign->target;
    if (const auto* carry = std::get_if<Carry>(&kernel_[id].node)) return carry->target;
    return std::nullopt;
  }

  ExprId number(Kernel& k, std::int64_t value) const { return literal(k, static_cast<double>(value), ScalarType::i32); }

  // part * length + k, where k is an index; a value's own axis stays.
  ExprId shifted(Kernel& k, ExprId id, AxisId part) const {
    const Expr e = k[id];
    if (e.kind == Expr::Kind::axis && e.axis == loop().axis) {
      const ExprId start = call(k, Function::mul, ScalarType::i32, {axis_expr(k, part), number(k, length_)});
      return call(k, Function::add, ScalarType::i32, {start, id});
    }
    Expr copy = e;
    bool changed = false;
    for (ExprId& arg : copy.args) {
      const bool own = e.kind == Expr::Kind::value && k[arg].kind == Expr::Kind::axis;
      const ExprId next = own ? arg : shifted(k, arg, part);
      changed = changed || next != arg;
      arg = next;
    }
    return changed ? add_expr(k, std::move(copy)) : id;
  }

  std::string workspace(ValueId v) const { return kernel_[v].name + "_parts"; }

  Tensor workspace_of(Kernel& k, ValueId v, bool output) const {
    Tensor tensor;
    tensor.name = workspace(v);
    tensor.type = k[v].type;
    tensor.output = output;
    tensor.shape.push_back(number(k, parts_));
    for (const AxisId a : k[v].axes) tensor.shape.push_back(k[a].extent);
    return tensor;
  }

  Kernel first() const {
    Kernel k = kernel_;
    k.name += "_parts";
    std::erase_if(k.tensors, [](const Tensor& t) { return t.output; });
    Axis axis;
    axis.name = "part";
    axis.kind = AxisKind::parallel;
    axis.extent = number(k, parts_);
    const AxisId part = add_axis(k, std::move(axis));
    k.parallel.insert(k.parallel.begin(), part);
    k.axes[static_cast<std::size_t>(loop().axis.index)].extent = number(k, length_);
    Loop loop = this->loop();
    loop.combine.reset();
    if (loop.where) loop.where = shifted(k, *loop.where, part);
    for (StatementId& id : loop.body) {
      Statement s = k[id];
      auto& assign = std::get<Assign>(s.node);
      assign.expr = shifted(k, assign.expr, part);
      if (assign.when) assign.when = shifted(k, *assign.when, part);
      id = add_statement(k, std::move(s));
    }
    k.body.resize(*place_);
    k.body.push_back(add_statement(k, {loop, kernel_[kernel_.body[*place_]].span}));
    for (const ValueId v : state_) {
      k.tensors.push_back(workspace_of(k, v, true));
      Store store;
      store.tensor = TensorId(k.tensors.size() - 1);
      store.indices.push_back(axis_expr(k, part));
      for (const AxisId a : k[v].axes) store.indices.push_back(axis_expr(k, a));
      store.expr = value_expr(k, v);
      k.body.push_back(add_statement(k, {store, {}}));
    }
    return k;
  }

  // --- the second kernel ---

  // The values' latest names.
  using Names = std::map<ValueId, ValueId>;

  static ExprId renamed(Kernel& k, ExprId expr, const Names& names) {
    return rewrite(k, expr, [&](ExprId id) {
      const Expr e = k[id];
      if (e.kind != Expr::Kind::value || !names.contains(e.value)) return id;
      return value_expr(k, names.at(e.value));
    });
  }

  Result<Kernel> second() const {
    Kernel k = kernel_;
    k.name += "_join";
    k.body.clear();
    const auto inputs = static_cast<std::size_t>(
        std::count_if(k.tensors.begin(), k.tensors.end(), [](const Tensor& t) { return !t.output; }));
    std::vector<Tensor> outputs(k.tensors.begin() + static_cast<std::ptrdiff_t>(inputs), k.tensors.end());
    k.tensors.resize(inputs);
    std::map<ValueId, TensorId> places;
    for (const ValueId v : state_) {
      k.tensors.push_back(workspace_of(k, v, false));
      places[v] = TensorId(k.tensors.size() - 1);
    }
    k.tensors.insert(k.tensors.end(), outputs.begin(), outputs.end());
    Names names;
    for (std::int64_t p = 0; p < parts_; ++p) {
      Names part;
      for (const ValueId v : state_) {
        part[v] = add_value(k, kernel_[v].name + "_part", kernel_[v].type, kernel_[v].axes);
        Expr access;
        access.kind = Expr::Kind::access;
        access.type = kernel_[v].type;
        access.tensor = places[v];
        access.args.push_back(number(k, p));
        for (const AxisId a : kernel_[v].axes) access.args.push_back(axis_expr(k, a));
        assign(k, part[v], add_expr(k, access));
      }
      if (p == 0) {
        names = part;
      } else if (loop().combine) {
        combine(k, names, part);
      } else {
        for (const ValueId v : state_) {
          const ExprId sum = call(k, Function::add, kernel_[v].type, {value_expr(k, names[v]), value_expr(k, part[v])});
          names[v] = add_value(k, kernel_[v].name, kernel_[v].type, kernel_[v].axes);
          assign(k, names[v], sum);
        }
      }
    }
    if (auto done = behind_loop(k, names, static_cast<std::int32_t>(state_.size()), inputs); !done)
      return tl::unexpected(done.error());
    return k;
  }

  static void assign(Kernel& k, ValueId target, ExprId expr) {
    Assign a;
    a.target = target;
    a.expr = expr;
    k.body.push_back(add_statement(k, {a, {}}));
  }

  // One more part: the statements of `combine` on values of their own.
  void combine(Kernel& k, Names& names, const Names& part) const {
    const Combine& combine = *loop().combine;
    Names known = names;
    for (std::size_t i = 0; i < combine.carried.size(); ++i) {
      if (part.contains(combine.carried[i])) known[combine.others[i]] = part.at(combine.carried[i]);
    }
    for (const StatementId id : combine.body) {
      Assign a = std::get<Assign>(kernel_[id].node);
      a.expr = renamed(k, a.expr, known);
      if (a.when) a.when = renamed(k, *a.when, known);
      const Value& old = kernel_[a.target];
      const ValueId fresh = add_value(k, old.name, old.type, old.axes);
      if (a.accumulate || a.when) assign(k, fresh, value_expr(k, known.at(a.target)));
      known[a.target] = fresh;
      a.target = fresh;
      k.body.push_back(add_statement(k, {a, {}}));
    }
    for (auto& [value, name] : names) name = known.at(value);
  }

  Result<void> behind_loop(Kernel& k, const Names& names, std::int32_t more_tensors, std::size_t inputs) const {
    std::set<ValueId> given;
    for (const auto& [value, name] : names) given.insert(value);
    for (std::size_t i = *place_ + 1; i < kernel_.body.size(); ++i) {
      Statement s = kernel_[kernel_.body[i]];
      std::vector<ExprId*> exprs;
      if (auto* assign = std::get_if<Assign>(&s.node)) {
        exprs.push_back(&assign->expr);
        if (assign->when) exprs.push_back(&*assign->when);
        if (names.contains(assign->target))
          return tl::unexpected(
              cannot(s.span, fmt::format("'{}' changes behind its loop", kernel_[assign->target].name)));
      } else if (auto* store = std::get_if<Store>(&s.node)) {
        exprs.push_back(&store->expr);
        if (store->when) exprs.push_back(&*store->when);
        for (ExprId& index : store->indices) exprs.push_back(&index);
        if (static_cast<std::size_t>(store->tensor.index) >= inputs)
          store->tensor = TensorId(static_cast<std::size_t>(store->tensor.index + more_tensors));
      }
      for (ExprId* expr : exprs) {
        for (const ValueId v : values_of(kernel_, *expr)) {
          if (!given.contains(v))
            return tl::unexpected(cannot(s.span, fmt::format("'{}' is needed behind its loop", kernel_[v].name)));
        }
        *expr = renamed(k, *expr, names);
      }
      if (const auto* assign = std::get_if<Assign>(&s.node)) given.insert(assign->target);
      k.body.push_back(add_statement(k, std::move(s)));
    }
    return {};
  }

  const Kernel kernel_;
  std::int64_t parts_;
  std::optional<std::size_t> place_;  // of the loop in the body
  std::int64_t length_ = 0;           // of a part
  std::vector<ValueId> state_;
};

}  // namespace

Result<Split> split(const Kernel& specialised, int parts) {
  for (const Dim& dim : specialised.dims) {
    if (dim.size) continue;
    return fail_at(specialised.file, specialised[specialised.body.front()].span,
                   fmt::format("'{}' cannot be split: its dim '{}' is dynamic", specialised.name, dim.name),
                   fmt::format("fix it with --dim {}=...", dim.name));
  }
  const Kernel whole = canonical(specialised);
  auto streamed = stream(whole, choose_tiled(whole), Limits{});
  if (!streamed) return tl::unexpected(streamed.error());
  return Splitter(std::move(*streamed), parts).run();
}

}  // namespace pipethreader::task
