// One statement over some of its elements: what it makes of them, and the writing of it.
#include <algorithm>
#include <cmath>

#include "oracle/machine.h"

namespace pipethreader::oracle {
namespace {

std::size_t position(int index) { return static_cast<std::size_t>(index); }

}  // namespace

void Machine::run_lanes(const StatementNode& statement, const Points& lanes) {
  const std::uint32_t* kept = nullptr;
  Points points = evaluator_.restrict(lanes, statement.active, &kept);
  if (points.count == 0) return;
  const Lanes* when = nullptr;
  Lanes condition;
  if (statement.when >= 0) {
    // Elements whose condition is surely false keep their value and are not evaluated.
    const Lanes holds = evaluator_.evaluate(statement.when, points);
    std::uint32_t* may = evaluator_.arena().allocate<std::uint32_t>(points.count);
    std::size_t count = 0;
    for (std::size_t i = 0; i < points.count; ++i)
      if (holds.value(i) != 0 || holds.error(i) > 0) may[count++] = static_cast<std::uint32_t>(i);
    if (count == 0) return;
    if (count < points.count) points = evaluator_.subset(points, may, count);
    condition = evaluator_.evaluate(statement.when, points);
    when = &condition;
  }
  if (statement.kind == StatementNode::Kind::store) {
    const Lanes result = evaluator_.evaluate(statement.expr, points);
    if (!evaluator_.error()) write_tensor(statement, points, result, when);
    return;
  }
  const Update update = statement.accumulate ? accumulation(statement, points) : assignment(statement, points);
  if (!evaluator_.error()) write_value(statement, points, update, when);
}

Machine::Update Machine::assignment(const StatementNode& statement, const Points& points) {
  const Lanes result = evaluator_.evaluate(statement.expr, points);
  Update update = allocate_update(points.count);
  const Storage& storage = evaluator_.storage(statement.target);
  const bool accumulates = program_.values[position(statement.target)].accumulates;
  const std::size_t* places = places_of(statement, points);
  for (std::size_t i = 0; i < points.count; ++i) {
    update.numbers[i] = {result.value(i), result.error(i)};
    update.tags[i] = result.tag(i);
    if (!accumulates) continue;
    update.terms[i] = result.value(i) != 0 ? 1 : 0;  // what is added to 0 is not rounded
    update.magnitudes[i] = std::fabs(result.value(i));
    if (!statement.rescale || storage.defined[places[i]] == 0) continue;
    update.terms[i] = storage.terms[places[i]];
    update.magnitudes[i] = rescaled(storage.magnitudes[places[i]], storage.values[places[i]], result.value(i));
  }
  return update;
}

// The magnitude of a sum whose value was scaled from `from` to `to`.
double Machine::rescaled(double magnitude, double from, double to) {
  if (from == to) return magnitude;
  const double scaled = from != 0 ? magnitude * std::fabs(to / from) : std::max(magnitude, std::fabs(to));
  return std::isfinite(scaled) ? scaled : std::fabs(to);
}

// The roundings of the additions are charged as those of one sum over all tiles so far: what the longer sum costs more
// than the one that was there before.
Machine::Update Machine::accumulation(const StatementNode& statement, const Points& points) {
  const Node& root = program_.nodes[position(statement.expr)];
  const bool sums = root.kind == kernel::Expr::Kind::reduce && root.reduce == kernel::ReduceOp::sum;
  const Fold* folds = sums ? evaluator_.fold(root, points) : nullptr;
  const Lanes added = sums ? Lanes{} : evaluator_.evaluate(statement.expr, points);
  const Lanes base = statement.base >= 0 ? evaluator_.evaluate(statement.base, points) : Lanes{};
  Update update = allocate_update(points.count);
  const Storage& storage = evaluator_.storage(statement.target);
  const std::size_t* places = places_of(statement, points);
  const double rounding = statement.accumulate_rounding;
  for (std::size_t i = 0; i < points.count; ++i) {
    const std::size_t at = places[i];
    if (storage.defined[at] == 0) {
      evaluator_.fail_once(statement.span, fmt::format("'{}' is updated at a point where it is undefined",
                                                       program_.values[position(statement.target)].name));
      return update;
    }
    const Fold terms = sums ? folds[i] : Fold{added.value(i), std::fabs(added.value(i)), added.error(i), 0, 0, 1};
    const Number old =
        statement.base >= 0 ? Number{base.value(i), base.error(i)} : Number{storage.values[at], storage.errors[at]};
    const double before = storage.terms[at];
    const double magnitude = before > 0 ? rescaled(storage.magnitudes[at], storage.values[at], old.value) : 0;
    update.tags[i] = 0;
    update.terms[i] = before + terms.terms;
    update.magnitudes[i] = magnitude + terms.magnitude + terms.error;
    const Number operands[2] = {old, {terms.value, terms.error}};
    Number sum = apply(Function::add, ScalarType::f64, 0, operands);
    if (std::isfinite(sum.value) && rounding > 0 && update.magnitudes[i] > 0)
      sum.error += rounding * std::max(0.0, sum_roundings(update.terms[i]) * update.magnitudes[i] -
                                                sum_roundings(before) * magnitude) +
                   kTiny;
    update.numbers[i] = evaluator_.perturbed(sum);
  }
  return update;
}

Machine::Update Machine::allocate_update(std::size_t count) {
  Arena& arena = evaluator_.arena();
  return {arena.allocate<Number>(count), arena.allocate<std::uint64_t>(count), arena.allocate<double>(count),
          arena.allocate<double>(count)};
}

// What a number of the expression's type becomes in a place of type `type`.
Number Machine::stored(const StatementNode& statement, ScalarType type, Number number) const {
  if (statement.expr_type == type || widens(statement.expr_type, type)) return evaluator_.settled(type, number);
  return narrow(type, number, false);
}

// Where the target's elements lie in its storage, lane by lane.
const std::size_t* Machine::places_of(const StatementNode& statement, const Points& points) {
  const LocalValue& value = program_.values[position(statement.target)];
  const Storage& storage = evaluator_.storage(statement.target);
  Arena& arena = evaluator_.arena();
  double* sum = arena.allocate<double>(points.count);
  std::fill_n(sum, points.count, 0.0);
  double stride = 1;
  const auto add = [&](int axis, std::int64_t first) {
    const double* index = points.columns[axis];
    const double low = static_cast<double>(first);
    if (points.varying.test(position(axis)))
      for (std::size_t i = 0; i < points.count; ++i) sum[i] += (index[i] - low) * stride;
    else
      for (std::size_t i = 0; i < points.count; ++i) sum[i] += (index[0] - low) * stride;
  };
  for (std::size_t k = value.axes.size(); k-- > 0; stride *= static_cast<double>(storage.length[k]))
    add(value.axes[k], storage.first[k]);
  add(kPoint, 0);
  std::size_t* places = arena.allocate<std::size_t>(points.count);
  for (std::size_t i = 0; i < points.count; ++i)
    places[i] = static_cast<std::size_t>(static_cast<std::int64_t>(sum[i]));
  return places;
}

void Machine::write_value(const StatementNode& statement, const Points& points, const Update& update,
                          const Lanes* when) {
  const LocalValue& value = program_.values[position(statement.target)];
  const Storage& storage = evaluator_.storage(statement.target);
  const std::size_t* places = places_of(statement, points);
  for (std::size_t i = 0; i < points.count; ++i) {
    Write write = {places[i], stored(statement, value.type, update.numbers[i]), update.tags[i], update.terms[i],
                   update.magnitudes[i]};
    if (when != nullptr && when->error(i) > 0) {
      if (storage.defined[write.at] == 0) {
        evaluator_.fail_once(statement.span,
                             fmt::format("'{}' is updated at a point where it is undefined", value.name));
        return;
      }
      const Number old = {storage.values[write.at], storage.errors[write.at]};
      const Number branches[3] = {{when->value(i), when->error(i)}, write.number, old};
      write.number = apply(Function::select, value.type, 0, branches);
      write.tag = 0;
    }
    if (statement.reads_target)
      pending_.push_back(write);
    else
      commit(statement.target, write);
  }
}

void Machine::commit(int target, const Write& write) {
  Storage& storage = evaluator_.storage(target);
  storage.values[write.at] = write.number.value;
  storage.errors[write.at] = write.number.error;
  if (!storage.tags.empty()) storage.tags[write.at] = write.tag != 0 ? write.tag : evaluator_.next_tag();
  if (!storage.terms.empty()) storage.terms[write.at] = write.terms;
  if (!storage.magnitudes.empty()) storage.magnitudes[write.at] = write.magnitude;
  storage.defined[write.at] = 1;
}

void Machine::write_tensor(const StatementNode& statement, const Points& points, const Lanes& lanes,
                           const Lanes* when) {
  const TensorNode& tensor = program_.tensors[position(statement.target)];
  const std::size_t output = position(output_of_tensor_[position(statement.target)]);
  const std::vector<std::int64_t> zeros(tensor.shape.size(), 0);
  bool shared = false;
  const std::int64_t* at = evaluator_.addresses(statement.indices, zeros.data(), tensor.shape.data(),
                                                tensor.shape.size(), points, statement.span, tensor.name, &shared);
  if (at == nullptr) return;
  for (std::size_t i = 0; i < points.count; ++i) {
    Number number = stored(statement, tensor.type, {lanes.value(i), lanes.error(i)});
    // Where the condition is within its error, the element may be written or not: nothing can be said about it.
    const bool unsure = when != nullptr && when->error(i) > 0;
    if (unsure) number.error = kInfinity;
    put(output, {at[shared ? 0 : i], number});
  }
}

}  // namespace pipethreader::oracle
