#include "simulate/trips.h"

#include <algorithm>
#include <cmath>

#include "task/affine.h"
#include "task/products.h"

namespace pipethreader::simulate {

using namespace kernel;

namespace {

constexpr int samples = 16;

class Trips {
 public:
  Trips(const task::Graph& graph, const partition::Partition& partition, AxisId axis)
      : graph_(graph), kernel_(graph.kernel), partition_(partition), axis_(axis) {}

  std::optional<double> run(const std::optional<ExprId>& where) {
    const auto extent = task::static_extent(kernel_, axis_);
    if (!extent) return std::nullopt;
    const double tile = partition_.extent(axis_);
    const double all = std::ceil(static_cast<double>(*extent) / tile);
    if (!where) return all;
    const task::Conjunction condition = task::conjunction(kernel_, *where, graph_.tiled);
    double sum = 0;
    for (int s = 0; s < samples; ++s) {
      share_ = (s + 0.5) / samples;
      double first = 0, last = all;
      for (const task::Linear& form : condition.inequalities) {
        const auto found = form.axes.find(axis_);
        if (found == form.axes.end()) continue;
        const auto rest = largest(form);
        if (!rest) return all;
        const double factor = static_cast<double>(found->second);
        if (factor < 0) {
          last = std::min(last, std::floor(std::floor(*rest / -factor) / tile) + 1);
        } else {
          first = std::max(first, std::floor(std::ceil(-*rest / factor) / tile));
        }
      }
      sum += std::max(0.0, last - first);
    }
    return sum / samples;
  }

 private:
  // Where the sampled work item's tile of an axis starts.
  std::optional<double> origin(AxisId a) const {
    const auto extent = task::static_extent(kernel_, a);
    if (!extent) return std::nullopt;
    const double tile = partition_.extent(a);
    return std::floor(share_ * static_cast<double>(*extent) / tile) * tile;
  }

  // The largest value over the tile of everything but the axis itself.
  std::optional<double> largest(const task::Linear& form) const {
    double value = static_cast<double>(form.constant);
    for (const auto& [a, factor] : form.axes) {
      if (a == axis_) continue;
      const auto start = origin(a);
      if (!start) return std::nullopt;
      value += static_cast<double>(factor) * (*start + (factor > 0 ? partition_.extent(a) - 1 : 0));
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
      case Expr::Kind::dim: {
        const auto& size = kernel_[e.dim].size;
        return size ? std::optional(static_cast<double>(*size)) : std::nullopt;
      }
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
};

}  // namespace

std::optional<double> mean_trips(const task::Graph& graph, const partition::Partition& partition, AxisId axis,
                                 StatementId loop) {
  return Trips(graph, partition, axis).run(std::get<Loop>(graph.kernel[loop].node).where);
}

}  // namespace pipethreader::simulate
