// How much work a kernel is, and the check of its outputs.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "driver/run.h"
#include "task/affine.h"
#include "task/products.h"
#include "task/rewrite.h"

namespace pipethreader::driver {

using namespace kernel;

namespace {

// What stands around an expression: the axes it is computed for, and the conditions of the loops.
struct Around {
  std::set<AxisId> axes;
  std::vector<ExprId> wheres;
};

class Counter {
 public:
  Counter(const Kernel& kernel, const std::vector<std::int64_t>& sizes) : kernel_(kernel), sizes_(sizes) {}

  [[nodiscard]] double extent(AxisId axis) const {
    return static_cast<double>(std::max<std::int64_t>(0, evaluate_size(kernel_, kernel_[axis].extent, sizes_)));
  }

  [[nodiscard]] double volume(const std::set<AxisId>& axes) const {
    double product = 1;
    for (const AxisId a : axes) product *= extent(a);
    return product;
  }

  using Visit = std::function<void(ExprId, const Around&)>;

  // Visits every expression of the statements, from the inside of loops too.
  void walk(const std::vector<StatementId>& body, const Around& around, const Visit& visit) const {
    for (const StatementId id : body) {
      const auto& node = kernel_[id].node;
      Around inner = around;
      if (const auto* loop = std::get_if<Loop>(&node)) {
        inner.axes.insert(loop->axis);
        if (loop->where) inner.wheres.push_back(*loop->where);
        walk(loop->body, inner, visit);
      } else if (const auto* carry = std::get_if<Carry>(&node)) {
        const auto& axes = kernel_[carry->target].axes;
        inner.axes.insert(axes.begin(), axes.end());
        deeper(carry->init, inner, visit);
      } else if (const auto* assign = std::get_if<Assign>(&node)) {
        const auto& axes = kernel_[assign->target].axes;
        inner.axes.insert(axes.begin(), axes.end());
        deeper(assign->expr, inner, visit);
      } else {
        const auto& store = std::get<Store>(node);
        for (const ExprId index : store.indices) {
          const auto axes = task::axes_of(kernel_, index);
          inner.axes.insert(axes.begin(), axes.end());
        }
        deeper(store.expr, inner, visit);
      }
    }
  }

 private:
  void deeper(ExprId id, const Around& around, const Visit& visit) const {
    visit(id, around);
    const Expr& e = kernel_[id];
    Around inner = around;
    if (e.kind == Expr::Kind::reduce) inner.axes.insert(e.axes.begin(), e.axes.end());
    if (e.kind == Expr::Kind::access || e.kind == Expr::Kind::value) return;
    for (const ExprId arg : e.args) deeper(arg, inner, visit);
  }

  const Kernel& kernel_;
  const std::vector<std::int64_t>& sizes_;
};

// The points of the axes in the conditions where all of them hold; nothing when that depends on data, or takes too long
// to count.
class Points {
 public:
  Points(const Kernel& kernel, const Counter& counter, const std::vector<ExprId>& wheres) : counter_(counter) {
    std::set<AxisId> axes;
    for (const ExprId where : wheres) axes.merge(task::axes_of(kernel, where));
    for (const ExprId where : wheres) {
      task::Conjunction condition = task::conjunction(kernel, where, axes);
      known_ = known_ && condition.opaque.empty();
      for (task::Linear& form : condition.inequalities) {
        known_ = known_ && form.uniform.empty();
        forms_.push_back(std::move(form));
      }
    }
    axes_.assign(axes.begin(), axes.end());
    // The longest axis is not gone through point by point.
    std::sort(axes_.begin(), axes_.end(), [&](AxisId a, AxisId b) { return counter.extent(a) < counter.extent(b); });
    all_ = counter.volume(axes);
  }

  [[nodiscard]] std::optional<double> run() {
    if (axes_.empty()) return 1;
    if (all_ == 0) return 0;
    if (!known_ || all_ / counter_.extent(axes_.back()) > most_counted) return std::nullopt;
    return count(0);
  }
  [[nodiscard]] const std::vector<AxisId>& axes() const { return axes_; }

 private:
  static constexpr double most_counted = 4e6;

  double count(std::size_t depth) {
    const auto extent = static_cast<std::int64_t>(counter_.extent(axes_[depth]));
    if (depth + 1 == axes_.size()) return static_cast<double>(last(axes_[depth], extent));
    double sum = 0;
    for (std::int64_t& at = at_[axes_[depth]] = 0; at < extent; ++at) sum += count(depth + 1);
    return sum;
  }

  // How many values of the last axis satisfy every inequality, all others being where they are.
  [[nodiscard]] std::int64_t last(AxisId axis, std::int64_t extent) const {
    std::int64_t low = 0, high = extent - 1;
    for (const task::Linear& form : forms_) {
      std::int64_t rest = form.constant, factor = 0;
      for (const auto& [a, coefficient] : form.axes) {
        if (a == axis)
          factor = coefficient;
        else
          rest += coefficient * at_.at(a);
      }
      if (factor > 0) low = std::max(low, rest >= 0 ? 0 : (-rest + factor - 1) / factor);
      if (factor < 0) high = std::min(high, rest < 0 ? -1 : rest / -factor);
      if (factor == 0 && rest < 0) return 0;
    }
    return std::max<std::int64_t>(0, high - low + 1);
  }

  const Counter& counter_;
  std::vector<AxisId> axes_;  // the longest last
  std::vector<task::Linear> forms_;
  std::map<AxisId, std::int64_t> at_;
  double all_ = 1;
  bool known_ = true;
};

}  // namespace

Work work_of(const Kernel& kernel, const std::vector<std::int64_t>& sizes) {
  const Counter counter(kernel, sizes);
  const std::set<AxisId> parallel(kernel.parallel.begin(), kernel.parallel.end());
  Work work;
  work.points = counter.volume(parallel);
  counter.walk(kernel.body, {parallel, {}},
               [&](ExprId, const Around& around) { work.operations += counter.volume(around.axes); });
  return work;
}

std::optional<double> product_flops(const Kernel& dynamic, const std::vector<std::int64_t>& sizes) {
  std::vector<Binding> all;
  for (std::size_t d = 0; d < dynamic.dims.size(); ++d) {
    if (!dynamic.dims[d].size) all.push_back({dynamic.dims[d].name, static_cast<double>(sizes[d])});
  }
  const auto fixed = specialise(dynamic, all, {});
  if (!fixed) return std::nullopt;
  const Kernel& kernel = *fixed;
  const Counter counter(kernel, sizes);
  const std::set<AxisId> parallel(kernel.parallel.begin(), kernel.parallel.end());
  std::optional<double> flops = 0;
  counter.walk(kernel.body, {parallel, {}}, [&](ExprId id, const Around& around) {
    if (!flops || kernel[id].kind != Expr::Kind::reduce || !task::product_shape(kernel, id)) return;
    // What the product does not vary over, it is not computed again for.
    std::set<AxisId> axes = task::axes_of(kernel, id);
    axes.insert(kernel[id].axes.begin(), kernel[id].axes.end());
    for (const AxisId a : around.axes) {
      if (kernel[a].kind == AxisKind::streamed || kernel[a].kind == AxisKind::parallel) axes.insert(a);
    }
    Points points(kernel, counter, around.wheres);
    for (const AxisId a : points.axes()) axes.erase(a);
    const auto count = points.run();
    flops = count ? std::optional(*flops + 2 * counter.volume(axes) * *count) : std::nullopt;
  });
  return flops;
}

std::string Check::format() const {
  const std::string where = sampled_points == 0 ? "" : "at a sample of points: ";
  std::string more;
  if (cause_unknown)
    more =
        "cause       not looked for at this size; at smaller ones it is tried whether the result depends on how "
        "loops are cut";
  else if (!cause.empty())
    more = (report.ok() ? "but         right at these sizes only: " : "cause       ") + cause;
  return where + report.format() + (more.empty() ? "" : "\n  " + more);
}

Result<Expected> Expected::evaluate(const Kernel& kernel, const oracle::Inputs& inputs, std::uint64_t seed,
                                    double budget) {
  const Work work = work_of(kernel, inputs.sizes);
  Expected expected(kernel, inputs, seed, budget);
  expected.operations_ = work.operations;
  if (work.operations > budget && work.points > 1) {
    const double each = std::max(1.0, work.operations / work.points);
    expected.sampled_points_ = std::max<std::int64_t>(4, static_cast<std::int64_t>(budget / each));
    if (static_cast<double>(expected.sampled_points_) >= work.points) expected.sampled_points_ = 0;
  }
  auto outputs = oracle::evaluate(kernel, inputs, oracle::Partition::fixed(64), {expected.sampled_points_, seed});
  if (!outputs) return tl::unexpected(outputs.error());
  expected.outputs_ = std::move(*outputs);
  return expected;
}

Result<Check> Expected::check(const OutputValues& values) {
  auto report = oracle::compare(outputs_, values);
  if (!report) return tl::unexpected(report.error());
  Check result;
  result.sampled_points = sampled_points_;
  result.report = std::move(*report);
  // A kernel whose result depends on its tiles has no right result, even where the tiles of this run gave the one that
  // was expected. That takes many evaluations to find out: of what is right only where they cost next to nothing.
  if (operations_ > (result.report.ok() ? budget_ / 1000 : budget_ / 20)) {
    result.cause_unknown = !result.report.ok();
  } else {
    result.cause = cause();
  }
  return result;
}

const std::string& Expected::cause() {
  if (!cause_) {
    const auto same = oracle::check_partition_independence(*kernel_, *inputs_, seed_);
    cause_ = same ? std::string() : same.error().diagnostics.front().message;
  }
  return *cause_;
}

Result<Check> check(const Kernel& kernel, const oracle::Inputs& inputs, const OutputValues& outputs, std::uint64_t seed,
                    double budget) {
  auto expected = Expected::evaluate(kernel, inputs, seed, budget);
  if (!expected) return tl::unexpected(expected.error());
  const std::vector<oracle::OutputTensor>& tensors = expected->outputs().tensors;
  if (std::ranges::none_of(tensors, [](const auto& t) { return t.sample.has_value(); }))
    return expected->check(outputs);
  OutputValues some(tensors.size());
  for (std::size_t t = 0; t < tensors.size(); ++t)
    for (const std::int64_t at : *tensors[t].sample) some[t].push_back(outputs[t][static_cast<std::size_t>(at)]);
  return expected->check(some);
}

}  // namespace pipethreader::driver
