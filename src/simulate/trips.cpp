#include "simulate/trips.h"

#include <algorithm>
#include <cmath>

#include "task/affine.h"
#include "task/products.h"

namespace pipethreader::simulate {

using namespace kernel;

namespace {

constexpr int samples = 48;
constexpr std::int64_t assumed_size = 4096;  // of a dynamic dim

class Counter {
 public:
  Counter(const task::Graph& graph, const partition::Partition& partition, AxisId axis)
      : graph_(graph), kernel_(graph.kernel), partition_(partition), axis_(axis) {}

  Trips run(const std::optional<ExprId>& where) {
    const double tile = partition_.extent(axis_);
    const double all = std::ceil(size(axis_) / tile);
    const Trips same = {all, all};
    if (!where) return same;
    const task::Conjunction condition = task::conjunction(kernel_, *where, graph_.tiled);
    Trips trips;
    for (int s = 0; s < samples; ++s) {
      share_ = (s + 0.5) / samples;
      double first = 0, last = all;
      for (const task::Linear& form : condition.inequalities) {
        const auto found = form.axes.find(axis_);
        if (found == form.axes.end()) continue;
        const auto rest = largest(form);
        if (!rest) return same;
        const double factor = static_cast<double>(found->second);
        if (factor < 0) {
          last = std::min(last, std::floor(std::floor(*rest / -factor) / tile) + 1);
        } else {
          first = std::max(first, std::floor(std::ceil(-*rest / factor) / tile));
        }
      }
      trips.mean += std::max(0.0, last - first);
      trips.most = std::max(trips.most, last - first);
    }
    trips.mean /= samples;
    return trips;
  }

  // Of the tiles that a block walks, those in which each lane's rows have a point.
  std::vector<double> shares_of_lanes(const std::optional<ExprId>& where) {
    const double together = run(where).mean;
    std::vector<double> shares;
    for (lane_ = 0; lane_ < partition_.lanes; ++lane_)
      shares.push_back(together > 0 ? std::min(1.0, run(where).mean / together) : 1);
    return shares;
  }

 private:
  // Where the sampled work item's tile of an axis starts: each tile is as likely, also one that the axis ends in.
  double origin(AxisId a) const {
    const double tile = partition_.extent(a);
    const double start = std::floor(share_ * std::ceil(size(a) / tile)) * tile;
    return a == partition_.split && lane_ >= 0 ? start + lane_ * partition_.local(a) : start;
  }

  double size(AxisId a) const {
    std::vector<std::int64_t> sizes;
    for (const Dim& dim : kernel_.dims) sizes.push_back(dim.size.value_or(assumed_size));
    return static_cast<double>(evaluate_size(kernel_, kernel_[a].extent, sizes));
  }

  // The largest value over the tile of everything but the axis itself.
  std::optional<double> largest(const task::Linear& form) const {
    double value = static_cast<double>(form.constant);
    for (const auto& [a, factor] : form.axes) {
      if (a == axis_) continue;
      const int extent = lane_ >= 0 ? partition_.local(a) : partition_.extent(a);
      value += static_cast<double>(factor) * (origin(a) + (factor > 0 ? extent - 1 : 0));
    }
    for (const auto& [factor, expr] : form.uniform) {
      const auto known = evaluate(expr);
      if (!known) return std::nullopt;
      value += static_cast<double>(factor) * *known;
    }
    return value;
  }

  std::optional<double> evaluate(ExprId id) const {
    const Expr& e = kernel_[id];
    switch (e.kind) {
      case Expr::Kind::literal:
        return e.number;
      case Expr::Kind::axis:
        return origin(e.axis);
      case Expr::Kind::dim:
        return static_cast<double>(kernel_[e.dim].size.value_or(assumed_size));
      case Expr::Kind::call: {
        std::vector<double> args;
        for (const ExprId arg : e.args) {
          const auto value = evaluate(arg);
          if (!value) return std::nullopt;
          args.push_back(*value);
        }
        return pipethreader::evaluate(e.function, args, true);
      }
      default:
        return std::nullopt;
    }
  }

  const task::Graph& graph_;
  const Kernel& kernel_;
  const partition::Partition& partition_;
  AxisId axis_;
  double share_ = 0.5;
  int lane_ = -1;  // whose rows count; -1: those of all
};

}  // namespace

Trips trips_of(const task::Graph& graph, const partition::Partition& partition, AxisId axis, StatementId loop) {
  return Counter(graph, partition, axis).run(std::get<Loop>(graph.kernel[loop].node).where);
}

std::vector<double> shares_of_lanes(const task::Graph& graph, const partition::Partition& partition, AxisId axis,
                                    StatementId loop) {
  if (partition.lanes == 1) return {1};
  return Counter(graph, partition, axis).shares_of_lanes(std::get<Loop>(graph.kernel[loop].node).where);
}

}  // namespace pipethreader::simulate
