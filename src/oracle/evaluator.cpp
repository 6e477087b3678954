#include "oracle/evaluator.h"

#include <algorithm>

namespace pipethreader::oracle {
namespace {

using Kind = kernel::Expr::Kind;

std::size_t position(int index) { return static_cast<std::size_t>(index); }

}  // namespace

Evaluator::Evaluator(const Program& program, const Inputs& inputs)
    : program_(program), inputs_(inputs), storages_(program.values.size()) {
  for (const AxisNode& axis : program.axes) spans_.push_back({0, axis.extent});
}

void Evaluator::fail_once(SourceSpan span, std::string message) {
  if (!error_) error_ = Error(Diagnostic{program_.file, span, std::move(message), {}});
}

void Evaluator::lay_out(int value, std::size_t points) {
  const LocalValue& local = program_.values[position(value)];
  Storage& s = storage(value);
  s.first.clear();
  s.length.clear();
  s.per_point = 1;
  for (const int axis : local.axes) {
    s.first.push_back(span(axis).first);
    s.length.push_back(span(axis).length);
    s.per_point *= static_cast<std::size_t>(span(axis).length);
  }
  const std::size_t size = points * s.per_point;
  s.values.resize(size);
  s.errors.resize(size);
  if (local.tagged) s.tags.resize(size);
  if (local.accumulates) s.magnitudes.resize(size);
  if (local.accumulates) s.terms.resize(size);
  s.defined.assign(size, 0);
}

// An expression whose axes do not vary is evaluated once for all lanes.
Lanes Evaluator::evaluate(int index, const Points& points) {
  const Node& node = program_.nodes[position(index)];
  const bool shared = (node.free & points.varying).none();
  Points one = points;
  if (shared) one.count = 1;
  Lanes lanes = evaluate_lanes(node, shared ? one : points);
  lanes.shared = shared;
  if (noise_ && lanes.errors != nullptr) {
    const std::size_t count = shared ? 1 : points.count;
    double* values = arena_.allocate<double>(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = perturbed({lanes.values[i], lanes.errors[i]}).value;
    lanes.values = values;
    lanes.errors = nullptr;
  }
  return lanes;
}

Number Evaluator::perturbed(Number number) {
  if (!noise_ || !std::isfinite(number.value) || !(number.error > 0)) return {number.value, noise_ ? 0 : number.error};
  // Just less than allowed: the bounds are of first order in the roundings.
  const double error = (1 - 0x1p-12) * number.error;
  return {number.value + (noise_->next() % 2 == 0 ? error : -error), 0};
}

Lanes Evaluator::evaluate_lanes(const Node& node, const Points& points) {
  switch (node.kind) {
    case Kind::literal:
    case Kind::option:
    case Kind::dim:
    case Kind::scalar:
      return constant(node);
    case Kind::axis:
      return {points.columns[node.axis], nullptr, nullptr, false};
    case Kind::access:
      return access(node, points);
    case Kind::value:
      return local(node, points);
    case Kind::call:
      return call(node, points);
    case Kind::convert:
      return convert(node, points);
    case Kind::reduce:
      return reduce(node, points);
  }
  return {};
}

Lanes Evaluator::constant(const Node& node) {
  return {&node.number, node.exact ? nullptr : &node.error, nullptr, true};
}

const std::int64_t* Evaluator::addresses(const std::vector<int>& indices, const std::int64_t* first,
                                         const std::int64_t* length, std::size_t rank, const Points& points,
                                         SourceSpan where, const std::string& name, bool* shared) {
  const std::size_t n = points.count;
  double* sum = arena_.allocate<double>(n);  // in f64, which vectorises and is exact up to 2^53
  double stride = 1, base = 0;
  bool outside = false, varies = false;
  for (std::size_t k = rank; k-- > 0; stride *= static_cast<double>(length[k])) {
    const Lanes index = evaluate(indices[k], points);
    const double low = static_cast<double>(first[k]), high = static_cast<double>(first[k] + length[k]);
    base -= low * stride;
    if (index.shared || n == 1) {
      outside = outside || !(index.values[0] >= low && index.values[0] < high);
      base += index.values[0] * stride;
      continue;
    }
    const double* at = index.values;
    int strays = 0;
    for (std::size_t i = 0; i < n; ++i) strays |= static_cast<int>(at[i] < low) | static_cast<int>(at[i] >= high);
    outside = outside || strays != 0;
    if (varies)
      for (std::size_t i = 0; i < n; ++i) sum[i] += at[i] * stride;
    else
      for (std::size_t i = 0; i < n; ++i) sum[i] = at[i] * stride;
    varies = true;
  }
  if (outside) {
    fail_once(where, fmt::format("'{}' is accessed outside its bounds", name));
    return nullptr;
  }
  *shared = !varies;
  std::int64_t* result = arena_.allocate<std::int64_t>(n);
  if (!varies) result[0] = static_cast<std::int64_t>(base);
  if (varies)
    for (std::size_t i = 0; i < n; ++i) result[i] = static_cast<std::int64_t>(sum[i] + base);
  return result;
}

namespace {

Lanes undefined_lanes(std::size_t count, Arena& arena) {
  double* values = arena.allocate<double>(count);
  std::fill_n(values, count, std::numeric_limits<double>::quiet_NaN());
  return {values, nullptr, nullptr, false};
}

}  // namespace

Lanes Evaluator::access(const Node& node, const Points& points) {
  const TensorNode& tensor = program_.tensors[position(node.tensor)];
  const std::vector<std::int64_t> zeros(tensor.shape.size(), 0);
  bool shared = false;
  const std::int64_t* at = addresses(node.args, zeros.data(), tensor.shape.data(), tensor.shape.size(), points,
                                     node.span, tensor.name, &shared);
  if (at == nullptr) return undefined_lanes(points.count, arena_);
  const std::vector<double>& data = inputs_.tensors[position(node.tensor)].values;
  double* values = arena_.allocate<double>(points.count);
  if (shared)
    std::fill_n(values, points.count, data[static_cast<std::size_t>(at[0])]);
  else
    for (std::size_t i = 0; i < points.count; ++i) values[i] = data[static_cast<std::size_t>(at[i])];
  return {values, nullptr, nullptr, false};
}

Lanes Evaluator::local(const Node& node, const Points& points) {
  const LocalValue& value = program_.values[position(node.value)];
  const Storage& s = storage(node.value);
  const std::size_t n = points.count;
  bool shared = false;
  const std::int64_t* inner =
      addresses(node.args, s.first.data(), s.length.data(), s.first.size(), points, node.span, value.name, &shared);
  if (inner == nullptr) return undefined_lanes(n, arena_);
  std::int64_t* at = arena_.allocate<std::int64_t>(n);
  const double* point = points.columns[kPoint];
  const bool one_point = !points.varying.test(kPoint);
  for (std::size_t i = 0; i < n; ++i)
    at[i] = static_cast<std::int64_t>(point[one_point ? 0 : i]) * static_cast<std::int64_t>(s.per_point) +
            inner[shared ? 0 : i];
  double* values = arena_.allocate<double>(n);
  double* errors = node.exact ? nullptr : arena_.allocate<double>(n);
  std::uint64_t* tags = value.tagged ? arena_.allocate<std::uint64_t>(n) : nullptr;
  bool defined = true;
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t k = static_cast<std::size_t>(at[i]);
    values[i] = s.values[k];
    defined = defined && s.defined[k] != 0;
  }
  if (errors != nullptr)
    for (std::size_t i = 0; i < n; ++i) errors[i] = s.errors[static_cast<std::size_t>(at[i])];
  if (tags != nullptr)
    for (std::size_t i = 0; i < n; ++i) tags[i] = s.tags[static_cast<std::size_t>(at[i])];
  if (!defined) fail_once(node.span, fmt::format("'{}' is used at a point where it is undefined", value.name));
  return {values, errors, tags, false};
}

Points Evaluator::restrict(const Points& points, int condition, const std::uint32_t** kept) {
  *kept = nullptr;
  if (condition < 0) return points;
  const Lanes holds = evaluate(condition, points);
  std::uint32_t* lanes = arena_.allocate<std::uint32_t>(points.count);
  std::size_t count = 0;
  for (std::size_t i = 0; i < points.count; ++i) {
    lanes[count] = static_cast<std::uint32_t>(i);
    count += holds.value(i) != 0 ? 1 : 0;
  }
  if (count == points.count) return points;
  *kept = lanes;
  return subset(points, lanes, count);
}

Points Evaluator::subset(const Points& points, const std::uint32_t* lanes, std::size_t count) {
  Points result = points;
  result.count = count;
  result.columns = arena_.allocate<const double*>(kPoint + 1);
  std::copy_n(points.columns, kPoint + 1, result.columns);
  for (int axis = 0; axis <= kPoint; ++axis) {
    if (!points.varying.test(position(axis)) || points.columns[axis] == nullptr) continue;
    double* column = arena_.allocate<double>(count);
    for (std::size_t i = 0; i < count; ++i) column[i] = points.columns[axis][lanes[i]];
    result.columns[axis] = column;
  }
  return result;
}

namespace {

// `part`'s lanes at the places `lanes` of `whole`.
void scatter(const Lanes& part, const std::uint32_t* lanes, std::size_t count, double* values, double* errors,
             std::uint64_t* tags) {
  for (std::size_t i = 0; i < count; ++i) {
    values[lanes[i]] = part.value(i);
    errors[lanes[i]] = part.error(i);
    tags[lanes[i]] = part.tag(i);
  }
}

}  // namespace

Lanes Evaluator::call(const Node& node, const Points& points) {
  Lanes operands[3];
  const bool is_select = node.function == Function::select;
  if (is_select && program_.nodes[position(node.args[0])].exact) {
    // The condition is certain: each branch is evaluated only where it is taken, as the other may be undefined there.
    const Lanes condition = evaluate(node.args[0], points);
    if (condition.shared) {
      Lanes taken = evaluate(node.args[condition.values[0] != 0 ? 1 : 2], points);
      if (!taken.shared || points.count == 1) return taken;
    }
    const std::size_t n = points.count;
    double* values = arena_.allocate<double>(n);
    double* errors = arena_.allocate<double>(n);
    std::uint64_t* tags = arena_.allocate<std::uint64_t>(n);
    std::uint32_t* lanes = arena_.allocate<std::uint32_t>(n);
    for (const bool branch : {true, false}) {
      std::size_t count = 0;
      for (std::size_t i = 0; i < n; ++i)
        if ((condition.value(i) != 0) == branch) lanes[count++] = static_cast<std::uint32_t>(i);
      if (count == 0) continue;
      const Points some = subset(points, lanes, count);
      scatter(evaluate(node.args[branch ? 1 : 2], some), lanes, count, values, errors, tags);
    }
    return {values, node.exact ? nullptr : errors, node.passes ? tags : nullptr, false};
  }
  for (std::size_t k = 0; k < node.args.size(); ++k) operands[k] = evaluate(node.args[k], points);
  return map_lanes(node, operands, points.count, arena_);
}

Lanes Evaluator::convert(const Node& node, const Points& points) {
  const ScalarType from = program_.nodes[position(node.args[0])].type;
  const Lanes operand = evaluate(node.args[0], points);
  const std::size_t n = points.count;
  if (from != node.type && widens(from, node.type) && !operand.shared)
    return {operand.values, operand.errors, nullptr, false};
  double* values = arena_.allocate<double>(n);
  double* errors = arena_.allocate<double>(n);
  for (std::size_t i = 0; i < n; ++i) {
    const Number number = {operand.value(i), operand.error(i)};
    const Number result = from == node.type         ? settled(node.type, number)
                          : widens(from, node.type) ? number
                                                    : narrow(node.type, number, node.step);
    values[i] = result.value;
    errors[i] = result.error;
  }
  return {values, node.exact ? nullptr : errors, nullptr, false};
}

}  // namespace pipethreader::oracle
