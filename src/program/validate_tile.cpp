// Static well-formedness of products, reductions and moves between layouts.
#include <algorithm>
#include <numeric>

#include "program/checker.h"
#include "program/expr_builder.h"

namespace pipethreader::program {
namespace {

std::int64_t volume(const layout::Layout& layout) {
  return std::accumulate(layout.shape.begin(), layout.shape.end(), std::int64_t{1}, std::multiplies<>());
}

bool is_accumulator(const layout::Layout& layout, int rows, int cols) {
  return rows % 64 == 0 && cols > 0 && cols % 8 == 0 && layout == layout::mma_accumulator(rows, cols);
}

// Whether reducing to `target` joins elements of several warps: a warp digit of the domain lies in a reduced dim.
bool crosses_warps(const layout::Layout& domain, const layout::Layout& target) {
  const auto replicated_warps = [](const layout::Layout& l) {
    int extent = 1;
    for (const layout::Digit& d : l.digits)
      if (d.place == layout::Place::warp && d.dim == layout::replicated) extent *= d.extent;
    return extent;
  };
  return replicated_warps(target) > replicated_warps(domain);
}

// Whether every element of `to` is already in some lane of the same warp.
bool stays_in_warps(const layout::Layout& from, const layout::Layout& to) {
  for (int warp = 0; warp < layout::warps_of_group; ++warp) {
    std::set<std::vector<int>> held;
    const auto each = [&](const layout::Layout& l, auto&& visit) {
      for (int lane = 0; lane < layout::lanes_of_warp; ++lane)
        for (int reg = 0; reg < l.registers(); ++reg) visit(l.coordinates(warp * layout::lanes_of_warp + lane, reg));
    };
    each(from, [&](std::vector<int> at) { held.insert(std::move(at)); });
    bool all = true;
    each(to, [&](const std::vector<int>& at) { all = all && held.contains(at); });
    if (!all) return false;
  }
  return true;
}

}  // namespace

std::int64_t Checker::elements(BufferId buffer) const {
  return static_cast<std::int64_t>(p_[buffer].rows) * p_[buffer].cols;
}

void Checker::shared_operand(const Operand& operand, int rows, int k, std::string_view what) {
  const Buffer& b = p_[operand.buffer.buffer];
  lag(operand.buffer);
  check(b.swizzle != Swizzle::none && !b.stairs, Rule::mma_operand, "buffer {} is not swizzled, or has stairs", b.name);
  const int has_rows = operand.transposed ? b.cols : b.rows;
  const int has_k = operand.transposed ? b.rows : b.cols;
  check(has_rows >= rows && has_k >= k, Rule::mma_shape, "{} is {} x {}, the product needs {} x {}", what, has_rows,
        has_k, rows, k);
  for (const auto& origin : {operand.origin, operand.k_origin}) {
    if (origin) integer(*origin, "an origin"), uniform(*origin, "an origin");
  }
}

void Checker::register_operand(const Operand& operand, int rows, int k, const Scope& scope) {
  const Fragment& f = p_[operand.fragment];
  owned(operand.fragment, scope);
  check(!operand.transposed && !operand.origin && !operand.k_origin, Rule::mma_operand,
        "fragment {} is transposed or has an origin; registers have neither", f.name);
  check(is_accumulator(f.layout, rows, k), Rule::mma_shape, "fragment {} lies on {}, expected {}", f.name,
        shown(f.layout), shown(layout::mma_accumulator(rows, k)));
}

void Checker::op(const Mma& x, Scope& scope) {
  computing(scope);
  owned(x.accumulator, scope);
  const Fragment& acc = p_[x.accumulator];
  const auto& shape = acc.layout.shape;
  const bool known = shape.size() == 2 && acc.type == ScalarType::f32 && shape[1] <= 256 &&
                     is_accumulator(acc.layout, shape[0], shape[1]);
  if (!check(known, Rule::mma_accumulator, "fragment {} is {} on {}", acc.name, name(acc.type), shown(acc.layout)))
    return;
  if (!check(x.k >= 16 && x.k % 16 == 0, Rule::mma_shape, "the depth is {}", x.k)) return;
  if (x.accumulate) boolean(*x.accumulate, "accumulate"), uniform(*x.accumulate, "accumulate");

  const ScalarType a = x.a.in_registers ? p_[x.a.fragment].type : p_[x.a.buffer.buffer].type;
  if (!check(!x.b.in_registers, Rule::mma_operand, "the second is fragment {}",
             x.b.in_registers ? p_[x.b.fragment].name : ""))
    return;
  const ScalarType b = p_[x.b.buffer.buffer].type;
  check(a == b && (a == ScalarType::f16 || a == ScalarType::bf16), Rule::mma_operand, "found {} and {}", name(a),
        name(b));
  if (x.a.in_registers) {
    register_operand(x.a, shape[0], x.k, scope);
  } else {
    shared_operand(x.a, shape[0], x.k, "the first operand");
  }
  shared_operand(x.b, shape[1], x.k, "the second operand");
}

void Checker::op(const Reduce& x, Scope& scope) {
  computing(scope);
  owned(x.target, scope);
  value(x.value, x.domain);
  const Fragment& target = p_[x.target];
  const ScalarType types[] = {target.type, p_[x.value].type};
  check(call_type(Function::add, types) == target.type || types[0] == types[1], Rule::value_type,
        "'{}' is {}, fragment {} is {}", shown(x.value), name(types[1]), target.name, name(types[0]));

  const int rank = static_cast<int>(x.domain.shape.size());
  std::vector<int> shape;
  std::set<int> distinct;
  for (const int dim : x.kept) {
    if (!check(dim >= 0 && dim < rank && distinct.insert(dim).second, Rule::reduce_shape, "dim {} is kept of {} dims",
               dim, rank))
      return;
    shape.push_back(x.domain.shape[static_cast<std::size_t>(dim)]);
  }
  std::optional<layout::Layout> expected = layout::slice(x.domain, x.kept);
  if (x.residual) {
    shape.push_back(x.residual->extent);
    expected = layout::slice_with_residual(x.domain, x.kept, x.residual->stride, x.residual->extent);
    if (!check(expected.has_value(), Rule::reduce_shape, "a residual of {} x {} does not fit the last dim of {}",
               x.residual->stride, x.residual->extent, shown(x.domain)))
      return;
  }
  if (!check(target.layout.shape == shape, Rule::reduce_shape, "fragment {} is [{}], expected [{}]", target.name,
             fmt::join(target.layout.shape, ", "), fmt::join(shape, ", ")))
    return;
  std::vector<int> same(shape.size());
  std::iota(same.begin(), same.end(), 0);
  check(layout::register_map(*expected, target.layout, same).has_value(), Rule::reduce_layout,
        "fragment {} lies on {}, expected {}", target.name, shown(target.layout), shown(*expected));
  if (!crosses_warps(x.domain, *expected)) return;
  const std::int64_t needed = 4 * volume(target.layout) * p_[scope.role].instances;
  check(x.scratch.valid() && p_[x.scratch].type == ScalarType::f32 && elements(x.scratch) >= needed,
        Rule::reduce_scratch, "{} f32 are needed", needed);
}

void Checker::op(const Relayout& x, Scope& scope) {
  computing(scope);
  owned(x.target, scope);
  owned(x.source, scope);
  const Fragment& to = p_[x.target];
  const Fragment& from = p_[x.source];
  if (!check(to.layout.shape == from.layout.shape && to.type == from.type, Rule::relayout_shape,
             "{} is {} [{}], {} is {} [{}]", from.name, name(from.type), fmt::join(from.layout.shape, ", "), to.name,
             name(to.type), fmt::join(to.layout.shape, ", ")))
    return;
  if (!x.scratch.valid()) {
    check(stays_in_warps(from.layout, to.layout), Rule::relayout_scratch, "from {} to {} without scratch", from.name,
          to.name);
    return;
  }
  const std::int64_t needed = volume(to.layout) * p_[scope.role].instances;
  check(p_[x.scratch].type == to.type && elements(x.scratch) >= needed, Rule::relayout_scratch,
        "{} elements of {} are needed", needed, name(to.type));
}

}  // namespace pipethreader::program
