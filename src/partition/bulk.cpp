#include "partition/bulk.h"

#include <algorithm>
#include <numeric>

#include "task/affine.h"
#include "task/products.h"
#include "task/rewrite.h"

namespace pipethreader::partition {

using namespace kernel;

namespace {

constexpr int rank_limit = 5;

std::optional<std::int64_t> known_size(const Kernel& kernel, ExprId expr) {
  const auto form = task::linear(kernel, expr, {});
  if (!form || !form->uniform.empty() || !form->axes.empty()) return std::nullopt;
  return form->constant;
}

struct Split {  // index = outer * extent(axis) + axis
  ExprId outer;
};

// The part of a nest c*L + l with l < L that stands before the axis.
std::optional<Split> split_nest(Kernel& kernel, const task::Linear& form, AxisId axis) {
  if (form.constant != 0 || form.uniform.size() != 1) return std::nullopt;
  const auto [coefficient, expr] = form.uniform[0];
  const auto extent = known_size(kernel, kernel[axis].extent);
  if (extent && *extent > 0 && coefficient % *extent == 0) {
    const std::int64_t times = coefficient / *extent;
    const ExprId factor = task::literal(kernel, static_cast<double>(times), ScalarType::i32);
    return Split{coefficient == *extent ? expr : task::call(kernel, Function::mul, ScalarType::i32, {expr, factor})};
  }
  const Expr e = kernel[expr];
  if (coefficient == 1 && e.kind == Expr::Kind::call && e.function == Function::mul) {
    for (int side = 0; side < 2; ++side) {
      if (task::same_expr(kernel, e.args[static_cast<std::size_t>(side)], kernel[axis].extent)) {
        return Split{e.args[static_cast<std::size_t>(1 - side)]};
      }
    }
  }
  return std::nullopt;
}

class Viewer {
 public:
  Viewer(Kernel& kernel, const std::set<AxisId>& tiled, TensorId tensor, const std::vector<ExprId>& indices)
      : kernel_(kernel), tiled_(tiled), tensor_(tensor), indices_(indices) {}

  BulkAnswer run() {
    const int element_bits = bits(kernel_[tensor_].type);
    if (element_bits < 8) return no("elements narrower than a byte");
    std::vector<ExprId> inner;  // sizes of the dims further in
    std::set<AxisId> seen;
    for (std::size_t i = indices_.size(); i-- > 0;) {
      if (const std::string reason = add(i, inner, seen); !reason.empty()) return no(reason);
      inner.push_back(kernel_[tensor_].shape[i]);
    }
    if (view_.dims.empty() || !view_.dims[0].stride.empty() || view_.dims[0].step != 1 ||
        (!view_.dims[0].axis && !seen.empty())) {
      return no("the contiguous dim is not indexed by a tiled axis alone");
    }
    if (const ExprId first = view_.dims[0].coordinate; !view_.dims[0].exact) {
      // The tile's origin is a multiple of 16 elements; what is added to it must not move it off.
      const auto form = task::linear(kernel_, first, tiled_);
      std::int64_t apart = form->constant;
      for (const auto& [factor, expr] : form->uniform) apart = std::gcd(apart, factor * divisor(expr));
      if (apart * element_bits / 8 % 16 != 0)
        return no("a window moves along the contiguous dim by less than 16 bytes");
    }
    merge_uniform();
    if (view_.dims.size() > rank_limit)
      return no(fmt::format("{} dims, the copy engine has {}", view_.dims.size(), rank_limit));
    for (std::size_t d = 1; d < view_.dims.size(); ++d) {
      std::int64_t known = view_.dims[d].stride_factor * element_bits / 8;
      bool dynamic = false;
      for (const ExprId s : view_.dims[d].stride) {
        const auto size = known_size(kernel_, s);
        if (size)
          known *= std::max<std::int64_t>(1, *size);
        else
          dynamic = true;
      }
      if (known % 16 == 0) continue;
      if (!dynamic) return no(fmt::format("a stride of {} bytes is no multiple of 16", known));
      view_.aligned.emplace_back(view_.dims[d].stride, view_.dims[d].stride_factor);
    }
    view_.tensor = tensor_;
    return {view_, {}};
  }

 private:
  BulkAnswer no(const std::string& reason) const {
    return {std::nullopt, fmt::format("'{}' is not copied in bulk: {}", kernel_[tensor_].name, reason)};
  }

  // A number that divides an integer expression, whatever its axes are.
  std::int64_t divisor(ExprId id) const {
    const Expr& e = kernel_[id];
    if (const auto size = task::static_size(kernel_, id)) return *size;
    if (e.kind != Expr::Kind::call) return 1;
    if (e.function == Function::mul) return divisor(e.args[0]) * divisor(e.args[1]);
    if (e.function == Function::add || e.function == Function::sub)
      return std::gcd(divisor(e.args[0]), divisor(e.args[1]));
    return 1;
  }

  // An axis may be longer than the tensor, where a `where` keeps it inside.
  ExprId shorter(ExprId axis, ExprId tensor) {
    const auto a = task::static_size(kernel_, axis), t = task::static_size(kernel_, tensor);
    if (task::same_expr(kernel_, axis, tensor) || (a && t && *a <= *t)) return axis;
    if (a && t) return tensor;
    return task::call(kernel_, Function::min, ScalarType::i32, {axis, tensor});
  }

  std::string add(std::size_t i, const std::vector<ExprId>& inner, std::set<AxisId>& seen) {
    const ExprId index = indices_[i];
    const ExprId size = kernel_[tensor_].shape[i];
    const auto form = task::linear(kernel_, index, tiled_);
    if (!form) return "an index is not affine in the tiled axes";
    BulkDim dim;
    dim.stride = inner;
    dim.extent = size;
    dim.coordinate = index;
    if (form->axes.empty()) {
      view_.dims.push_back(dim);
      return {};
    }
    if (form->axes.size() > 1) return "an index mixes several tiled axes";
    const auto [axis, coefficient] = *form->axes.begin();
    if (coefficient < 1) return "an index runs backwards";
    if (!seen.insert(axis).second) return "a tiled axis stands in two indices";
    dim.axis = axis;
    if (coefficient == 1 && form->uniform.empty() && form->constant == 0) {
      dim.extent = shorter(kernel_[axis].extent, size);
      dim.coordinate = task::axis_expr(kernel_, axis);
      view_.dims.push_back(dim);
      return {};
    }
    if (const auto split = coefficient == 1 ? split_nest(kernel_, *form, axis) : std::nullopt) {
      dim.extent = kernel_[axis].extent;
      dim.coordinate = task::axis_expr(kernel_, axis);
      view_.dims.push_back(dim);
      BulkDim outer;
      outer.stride = inner;
      outer.stride.push_back(kernel_[axis].extent);
      outer.extent = task::call(kernel_, Function::div, ScalarType::i32, {size, kernel_[axis].extent});
      outer.coordinate = split->outer;
      view_.dims.push_back(outer);
      return {};
    }
    dim.step = static_cast<int>(coefficient);
    dim.exact = false;
    view_.dims.push_back(dim);
    return {};
  }

  // Uniform dims that follow each other become one, as long as there are too many.
  void merge_uniform() {
    for (std::size_t d = 1; d + 1 < view_.dims.size() && view_.dims.size() > rank_limit;) {
      BulkDim& low = view_.dims[d];
      BulkDim& high = view_.dims[d + 1];
      if (low.axis || high.axis || high.stride.size() < low.stride.size()) {
        ++d;
        continue;
      }
      // high's stride is low's stride times low's extent, as both index whole dims.
      low.coordinate = task::call(
          kernel_, Function::add, ScalarType::i32,
          {task::call(kernel_, Function::mul, ScalarType::i32, {high.coordinate, low.extent}), low.coordinate});
      low.extent = task::call(kernel_, Function::mul, ScalarType::i32, {high.extent, low.extent});
      view_.dims.erase(view_.dims.begin() + static_cast<std::ptrdiff_t>(d) + 1);
    }
  }

  Kernel& kernel_;
  const std::set<AxisId>& tiled_;
  TensorId tensor_;
  const std::vector<ExprId>& indices_;
  BulkView view_;
};

}  // namespace

BulkAnswer bulk_view(Kernel& kernel, const std::set<AxisId>& tiled, TensorId tensor,
                     const std::vector<ExprId>& indices) {
  return Viewer(kernel, tiled, tensor, indices).run();
}

}  // namespace pipethreader::partition
