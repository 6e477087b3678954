// Reductions: the term is evaluated at pairs of an outer lane and a point of the reduced axes, many at a time, only
// where every `where` lets it; then the terms of each lane are folded.
#include <algorithm>
#include <array>

#include "oracle/evaluator.h"

namespace pipethreader::oracle {
namespace {

std::size_t position(int index) { return static_cast<std::size_t>(index); }

void fold_sum(Fold& fold, const Lanes& terms, std::size_t first, std::size_t count) {
  if (terms.shared) {
    const double n = static_cast<double>(count);
    fold.value += n * terms.value(0);
    fold.magnitude += n * std::fabs(terms.value(0));
    fold.error += n * terms.error(0);
    fold.terms += static_cast<double>(count);
    return;
  }
  // Four chains each, as additions wait for one another.
  std::array<double, 4> value{}, magnitude{}, error{};
  const double* v = terms.values + first;
  std::size_t i = 0;
  for (; i + 4 <= count; i += 4)
    for (std::size_t k = 0; k < 4; ++k) {
      value[k] += v[i + k];
      magnitude[k] += std::fabs(v[i + k]);
    }
  for (; i < count; ++i) {
    value[0] += v[i];
    magnitude[0] += std::fabs(v[i]);
  }
  if (terms.errors != nullptr) {
    const double* e = terms.errors + first;
    for (i = 0; i + 4 <= count; i += 4)
      for (std::size_t k = 0; k < 4; ++k) error[k] += e[i + k];
    for (; i < count; ++i) error[0] += e[i];
  }
  fold.value += (value[0] + value[1]) + (value[2] + value[3]);
  fold.magnitude += (magnitude[0] + magnitude[1]) + (magnitude[2] + magnitude[3]);
  fold.error += (error[0] + error[1]) + (error[2] + error[3]);
  fold.terms += static_cast<double>(count);
}

void fold_extremum(Fold& fold, const Lanes& terms, std::size_t first, std::size_t count, double sign) {
  for (std::size_t i = first; i < first + count; ++i) {
    const double v = sign * terms.value(i), e = terms.error(i);
    fold.value = std::fmax(fold.value, v);
    fold.upper = std::fmax(fold.upper, v + e);
    fold.lower = std::fmax(fold.lower, v - e);
  }
  fold.terms += static_cast<double>(count);
}

Fold empty_fold(kernel::ReduceOp op, bool boolean) {
  Fold fold;
  if (op != kernel::ReduceOp::sum && !boolean) fold.value = fold.upper = fold.lower = -kInfinity;
  return fold;
}

Number sum_of(const Fold& fold, double term_rounding) {
  if (!std::isfinite(fold.value)) return {fold.value, certain_if(fold.error < kInfinity)};
  double error = fold.error;
  if (fold.terms > 1 && fold.magnitude > 0 && term_rounding > 0)
    error += sum_roundings(fold.terms) * term_rounding * (fold.magnitude + fold.error) + kTiny;
  return {fold.value, error};
}

Number extremum_of(const Fold& fold, double sign) {
  const double up = fold.upper == fold.value ? 0 : fold.upper - fold.value;
  const double down = fold.value == fold.lower ? 0 : fold.value - fold.lower;
  return {sign * fold.value, std::max(up, down)};
}

Number result_of(const Node& node, const Fold& fold) {
  if (node.reduce == kernel::ReduceOp::sum) return sum_of(fold, node.term_rounding);
  return extremum_of(fold, node.reduce == kernel::ReduceOp::max ? 1 : -1);
}

void fold_terms(const Node& node, Fold& fold, const Lanes& terms, std::size_t first, std::size_t count) {
  if (node.reduce == kernel::ReduceOp::sum)
    fold_sum(fold, terms, first, count);
  else
    fold_extremum(fold, terms, terms.shared ? 0 : first, terms.shared ? std::min<std::size_t>(count, 1) : count,
                  node.reduce == kernel::ReduceOp::max ? 1 : -1);
}

}  // namespace

// The pairs (lane, reduced point) for `lanes` outer lanes from `lane`: `count` reduced points from `first` each, lane
// by lane. With one lane, its indices are shared by all pairs.
Points Evaluator::pairs(const Node& node, const Points& outer, std::size_t lane, std::size_t lanes, std::size_t first,
                        std::size_t count) {
  Points points;
  points.count = lanes * count;
  points.columns = arena_.allocate<const double*>(kPoint + 1);
  AxisSet needed;
  for (const int arg : node.args) needed |= program_.nodes[position(arg)].free;
  if (node.active >= 0) needed |= program_.nodes[position(node.active)].free;
  for (int axis = 0; axis <= kPoint; ++axis) {
    points.columns[axis] = outer.columns[axis];
    if (!outer.varying.test(position(axis)) || !needed.test(position(axis)) || outer.columns[axis] == nullptr) continue;
    points.columns[axis] = outer.columns[axis] + lane;
    if (lanes == 1) continue;
    points.varying.set(position(axis));
    if (count == 1) continue;
    double* column = arena_.allocate<double>(points.count);
    for (std::size_t l = 0; l < lanes; ++l) std::fill_n(column + l * count, count, outer.columns[axis][lane + l]);
    points.columns[axis] = column;
  }
  std::size_t stride = 1;
  for (std::size_t k = node.axes.size(); k-- > 0;) {
    const int axis = node.axes[k];
    const std::size_t length = static_cast<std::size_t>(span(axis).length);
    const std::int64_t start = span(axis).first;
    const bool varies = length > 1 && count > 1;
    points.varying.set(position(axis), varies);
    double* column = arena_.allocate<double>(varies ? points.count : 1);
    std::size_t index = first / stride % length, inner = first % stride;
    for (std::size_t i = 0; i < (varies ? count : 1); ++i) {
      column[i] = static_cast<double>(start + static_cast<std::int64_t>(index));
      if (++inner < stride) continue;
      inner = 0;
      if (++index == length) index = 0;
    }
    if (varies)
      for (std::size_t l = 1; l < lanes; ++l) std::copy_n(column, count, column + l * count);
    points.columns[axis] = column;
    stride *= length;
  }
  return points;
}

Lanes Evaluator::reduce(const Node& node, const Points& outer) {
  double* values = arena_.allocate<double>(outer.count);
  double* errors = arena_.allocate<double>(outer.count);
  const Fold* folds = fold(node, outer);
  for (std::size_t i = 0; i < outer.count; ++i) {
    const Number number = result_of(node, folds[i]);
    values[i] = number.value;
    errors[i] = number.error;
  }
  return {values, node.exact ? nullptr : errors, nullptr, false};
}

const Fold* Evaluator::fold(const Node& node, const Points& outer) {
  std::size_t total = 1;
  for (const int axis : node.axes) total *= static_cast<std::size_t>(span(axis).length);
  Fold* all = arena_.allocate<Fold>(outer.count);
  std::fill_n(all, outer.count, empty_fold(node.reduce, node.type == ScalarType::boolean));
  const std::size_t group = total == 0 ? outer.count : std::clamp<std::size_t>(kLanes / total, 1, outer.count);
  // Few long reductions: one lane at a time, so that its indices are shared.
  const std::size_t lanes_at_once = total >= 64 ? 1 : group;
  for (std::size_t lane = 0; lane < outer.count; lane += lanes_at_once) {
    const std::size_t lanes = std::min(lanes_at_once, outer.count - lane);
    const Scratch scratch(arena_);
    Fold* folds = all + lane;
    for (std::size_t first = 0; first < total; first += kLanes) {
      const std::size_t count = std::min(kLanes, total - first);
      const Scratch piece(arena_);
      const std::uint32_t* kept = nullptr;
      const std::uint32_t* kept_by_where = nullptr;
      Points points = pairs(node, outer, lane, lanes, first, count);
      points = restrict(points, node.active, &kept);
      points = restrict(points, node.args.size() > 1 ? node.args[1] : -1, &kept_by_where);
      if (points.count == 0) continue;
      const Lanes terms = evaluate(node.args[0], points);
      if (lanes == 1) {
        fold_terms(node, folds[0], terms, 0, points.count);
        continue;
      }
      // Runs of pairs that belong to the same lane.
      const auto owner = [&](std::size_t i) {
        if (kept_by_where != nullptr) i = kept_by_where[i];
        if (kept != nullptr) i = kept[i];
        return i / count;
      };
      if (kept == nullptr && kept_by_where == nullptr) {
        for (std::size_t l = 0; l < lanes; ++l) fold_terms(node, folds[l], terms, l * count, count);
        continue;
      }
      for (std::size_t i = 0; i < points.count;) {
        const std::size_t l = owner(i);
        std::size_t end = i + 1;
        while (end < points.count && owner(end) == l) ++end;
        fold_terms(node, folds[l], terms, i, end - i);
        i = end;
      }
    }
  }
  return all;
}

}  // namespace pipethreader::oracle
