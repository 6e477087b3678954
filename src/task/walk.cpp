#include "task/walk.h"

#include <algorithm>

#include "task/products.h"
#include "task/rewrite.h"

namespace pipethreader::task {

using namespace kernel;

namespace {

constexpr std::int64_t shortest = 4;
constexpr std::size_t most_lengths = 3;  // of one axis

class Splitter {
 public:
  Splitter(Kernel& kernel, AxisId axis, std::int64_t length) : kernel_(kernel), axis_(axis), length_(length) {}

  void run(std::int64_t extent) {
    const auto place = std::find(kernel_.parallel.begin(), kernel_.parallel.end(), axis_);
    if (extent == length_) {
      kernel_.parallel.erase(place);
    } else {
      Axis blocks = kernel_[axis_];
      blocks.name += "_block";
      blocks.extent = number(extent / length_);
      block_ = add_axis(kernel_, std::move(blocks));
      *place = block_;
    }
    Axis& walked = kernel_.axes[static_cast<std::size_t>(axis_.index)];
    walked.kind = AxisKind::streamed;
    walked.extent = number(length_);
    Loop loop;
    loop.axis = axis_;
    loop.body = statements(kernel_.body);
    kernel_.body = {add_statement(kernel_, {loop, kernel_[axis_].span})};
  }

 private:
  ExprId number(std::int64_t value) { return literal(kernel_, static_cast<double>(value), ScalarType::i32); }
  ExprId integer(Function f, ExprId a, ExprId b) { return call(kernel_, f, ScalarType::i32, {a, b}); }

  std::vector<StatementId> statements(const std::vector<StatementId>& body) {
    std::vector<StatementId> out;
    for (const StatementId id : body) {
      Statement s = kernel_[id];
      if (auto* carry = std::get_if<Carry>(&s.node)) {
        carry->init = expression(carry->init);
      } else if (auto* assign = std::get_if<Assign>(&s.node)) {
        assign->expr = expression(assign->expr);
        if (assign->when) assign->when = expression(*assign->when);
      } else if (auto* store = std::get_if<Store>(&s.node)) {
        for (ExprId& index : store->indices) index = expression(index);
        store->expr = expression(store->expr);
        if (store->when) store->when = expression(*store->when);
      } else {
        auto& loop = std::get<Loop>(s.node);
        if (loop.where) loop.where = expression(*loop.where);
        loop.body = statements(loop.body);
      }
      out.push_back(add_statement(kernel_, s));
    }
    return out;
  }

  bool is_axis(ExprId id) const { return kernel_[id].kind == Expr::Kind::axis && kernel_[id].axis == axis_; }

  ExprId expression(ExprId id) {
    if (is_axis(id)) return whole(id);
    Expr e = kernel_[id];
    const bool divides = e.kind == Expr::Kind::call && (e.function == Function::div || e.function == Function::mod) &&
                         is_axis(e.args[0]);
    if (divides) {
      const auto by = static_size(kernel_, e.args[1]);
      if (by && *by > 0) return e.function == Function::div ? quotient(e.args[0], *by) : remainder(e.args[0], *by);
    }
    bool changed = false;
    for (ExprId& arg : e.args) {
      if (e.kind == Expr::Kind::value && is_axis(arg)) continue;  // a value's own axis: its element of this step
      const ExprId next = expression(arg);
      changed = changed || next != arg;
      arg = next;
    }
    return changed ? add_expr(kernel_, std::move(e)) : id;
  }

  ExprId whole(ExprId step) {
    if (!block_.valid()) return step;
    return integer(Function::add, integer(Function::mul, axis_expr(kernel_, block_), number(length_)), step);
  }

  // (block * length + step) / by
  ExprId quotient(ExprId step, std::int64_t by) {
    if (length_ % by == 0) {
      const ExprId inside = by == 1 ? step : integer(Function::div, step, number(by));
      if (!block_.valid()) return length_ == by ? number(0) : inside;
      const ExprId blocks = integer(Function::mul, axis_expr(kernel_, block_), number(length_ / by));
      return length_ == by ? axis_expr(kernel_, block_) : integer(Function::add, blocks, inside);
    }
    if (by % length_ == 0) {
      return block_.valid() ? integer(Function::div, axis_expr(kernel_, block_), number(by / length_)) : number(0);
    }
    return integer(Function::div, whole(step), number(by));
  }

  ExprId remainder(ExprId step, std::int64_t by) {
    if (length_ % by == 0) return integer(Function::mod, step, number(by));
    if (by % length_ == 0 && block_.valid()) {
      const ExprId block = integer(Function::mod, axis_expr(kernel_, block_), number(by / length_));
      return integer(Function::add, integer(Function::mul, block, number(length_)), step);
    }
    return integer(Function::mod, whole(step), number(by));
  }

  Kernel& kernel_;
  AxisId axis_;
  AxisId block_;
  std::int64_t length_;
};

bool can_walk(const Kernel& kernel, const std::set<AxisId>& tiled, AxisId axis) {
  return !tiled.contains(axis) && static_extent(kernel, axis).value_or(0) > 1;
}

}  // namespace

Result<Kernel> walked(Kernel kernel, const std::set<AxisId>& tiled, const Walk& walk) {
  for (const AxisId axis : kernel.parallel) {
    if (kernel[axis].name != walk.axis) continue;
    if (!can_walk(kernel, tiled, axis)) {
      const bool is_tiled = tiled.contains(axis);
      return fail_at(kernel.file, kernel[axis].span,
                     fmt::format("axis '{}' cannot be walked: {}", walk.axis,
                                 is_tiled ? "it is tiled" : "it needs a fixed size of more than 1"),
                     is_tiled ? "walk a parallel axis that no product has as rows or columns, nor memory as its last"
                              : "fix its size with --dim");
    }
    const std::int64_t extent = *static_extent(kernel, axis);
    if (walk.length < 2 || extent % walk.length != 0) {
      return fail_at(kernel.file, kernel[axis].span,
                     fmt::format("a walk of {} steps does not divide axis '{}' of {}", walk.length, walk.axis, extent),
                     "force a walk that divides it, of 2 steps or more");
    }
    Splitter(kernel, axis, walk.length).run(extent);
    return kernel;
  }
  std::vector<std::string> names;
  for (const AxisId axis : kernel.parallel) names.push_back(kernel[axis].name);
  return fail_at(kernel.file, {}, fmt::format("there is no parallel axis '{}' to walk", walk.axis),
                 fmt::format("the parallel axes of '{}' are: {}", kernel.name, fmt::join(names, ", ")));
}

std::vector<Walk> possible_walks(const Kernel& kernel, const std::set<AxisId>& tiled) {
  std::vector<Walk> found;
  for (const AxisId axis : kernel.parallel) {
    if (!can_walk(kernel, tiled, axis)) continue;
    std::int64_t length = *static_extent(kernel, axis);
    for (std::size_t i = 0; i < most_lengths && length >= shortest; ++i) {
      found.push_back({kernel[axis].name, static_cast<int>(length)});
      if (length % 2 != 0) break;
      length /= 2;
    }
  }
  return found;
}

}  // namespace pipethreader::task
