// How much work a kernel is, and the check of its outputs.
#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "driver/run.h"
#include "task/products.h"
#include "task/rewrite.h"

namespace pipethreader::driver {

using namespace kernel;

namespace {

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

  // Calls visit(expression, axes around it) for every expression of the statements, from the inside of loops too.
  void walk(const std::vector<StatementId>& body, std::set<AxisId> around,
            const std::function<void(ExprId, const std::set<AxisId>&)>& visit) const {
    for (const StatementId id : body) {
      const auto& node = kernel_[id].node;
      std::set<AxisId> inner = around;
      if (const auto* loop = std::get_if<Loop>(&node)) {
        inner.insert(loop->axis);
        walk(loop->body, inner, visit);
      } else if (const auto* carry = std::get_if<Carry>(&node)) {
        const auto& axes = kernel_[carry->target].axes;
        inner.insert(axes.begin(), axes.end());
        deeper(carry->init, inner, visit);
      } else if (const auto* assign = std::get_if<Assign>(&node)) {
        const auto& axes = kernel_[assign->target].axes;
        inner.insert(axes.begin(), axes.end());
        deeper(assign->expr, inner, visit);
      } else {
        const auto& store = std::get<Store>(node);
        for (const ExprId index : store.indices) {
          const auto axes = task::axes_of(kernel_, index);
          inner.insert(axes.begin(), axes.end());
        }
        deeper(store.expr, inner, visit);
      }
    }
  }

 private:
  void deeper(ExprId id, const std::set<AxisId>& around,
              const std::function<void(ExprId, const std::set<AxisId>&)>& visit) const {
    visit(id, around);
    const Expr& e = kernel_[id];
    std::set<AxisId> inner = around;
    if (e.kind == Expr::Kind::reduce) inner.insert(e.axes.begin(), e.axes.end());
    if (e.kind == Expr::Kind::access || e.kind == Expr::Kind::value) return;
    for (const ExprId arg : e.args) deeper(arg, inner, visit);
  }

  const Kernel& kernel_;
  const std::vector<std::int64_t>& sizes_;
};

}  // namespace

Work work_of(const Kernel& kernel, const std::vector<std::int64_t>& sizes) {
  const Counter counter(kernel, sizes);
  const std::set<AxisId> parallel(kernel.parallel.begin(), kernel.parallel.end());
  Work work;
  work.points = counter.volume(parallel);
  counter.walk(kernel.body, parallel,
               [&](ExprId, const std::set<AxisId>& axes) { work.operations += counter.volume(axes); });
  return work;
}

double product_flops(const Kernel& kernel, const std::vector<std::int64_t>& sizes) {
  const Counter counter(kernel, sizes);
  const std::set<AxisId> parallel(kernel.parallel.begin(), kernel.parallel.end());
  double flops = 0;
  counter.walk(kernel.body, parallel, [&](ExprId id, const std::set<AxisId>& around) {
    if (kernel[id].kind != Expr::Kind::reduce || !task::product_shape(kernel, id)) return;
    // What the product does not vary over, it is not computed again for.
    std::set<AxisId> axes = task::axes_of(kernel, id);
    axes.insert(kernel[id].axes.begin(), kernel[id].axes.end());
    for (const AxisId a : around) {
      if (kernel[a].kind == AxisKind::streamed || kernel[a].kind == AxisKind::parallel) axes.insert(a);
    }
    flops += 2 * counter.volume(axes);
  });
  return flops;
}

std::string Check::format() const {
  if (sampled_points == 0) return report.format();
  oracle::Report sampled = report;
  sampled.unwritten = 0;  // of a sample, what was not evaluated counts as that
  return fmt::format("at {} sampled points: {}", sampled_points, sampled.format());
}

Result<Check> check(const Kernel& kernel, const oracle::Inputs& inputs, const OutputValues& outputs, std::uint64_t seed,
                    double budget) {
  const Work work = work_of(kernel, inputs.sizes);
  Check result;
  if (work.operations > budget && work.points > 1) {
    const double each = std::max(1.0, work.operations / work.points);
    result.sampled_points = std::max<std::int64_t>(4, static_cast<std::int64_t>(budget / each));
  }
  const auto expected = oracle::evaluate(kernel, inputs, oracle::Partition::fixed(64), {result.sampled_points, seed});
  if (!expected) return tl::unexpected(expected.error());
  auto report = oracle::compare(*expected, outputs);
  if (!report) return tl::unexpected(report.error());
  result.report = std::move(*report);
  return result;
}

}  // namespace pipethreader::driver
