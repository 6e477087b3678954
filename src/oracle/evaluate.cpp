// Walks the statements of a program: blocks of points of the parallel axes, loops by tiles, assignments and stores over
// all their elements.
#include <algorithm>
#include <array>
#include <map>
#include <span>

#include "oracle/evaluator.h"
#include "oracle/tiles.h"

namespace pipethreader::oracle {
namespace {

std::size_t position(int index) { return static_cast<std::size_t>(index); }

class Machine {
 public:
  Machine(const Program& program, const Inputs& inputs, const Partition& partition);
  Result<Outputs> run(const Sample& sample);
  void perturb(std::uint64_t seed) { evaluator_.perturb(seed); }

 private:
  void run_block(std::span<const std::int64_t> numbers);
  void run_body(const std::vector<int>& statements);
  void run_statement(const StatementNode& statement);
  void run_loop(const StatementNode& statement);
  void run_tiles(const LoopNode& loop, const std::vector<Tile>& tiles, std::size_t first, std::size_t last);
  void forget_tile(const LoopNode& loop);
  void assign_or_store(const StatementNode& statement);
  void lanes_of(const StatementNode& statement, std::size_t point, std::size_t points, std::size_t first,
                std::size_t count, Points& lanes);
  void run_lanes(const StatementNode& statement, const Points& lanes);
  const std::size_t* places_of(const StatementNode& statement, const Points& points);
  // What a statement makes of the elements of its target, lane by lane.
  struct Update {
    Number* numbers;
    std::uint64_t* tags;
    double* terms;
    double* magnitudes;
  };
  struct Write {
    std::size_t at;
    Number number;
    std::uint64_t tag;
    double terms, magnitude;
  };
  Update allocate_update(std::size_t count);
  Update assignment(const StatementNode& statement, const Points& points);
  Update accumulation(const StatementNode& statement, const Points& points);
  static double rescaled(double magnitude, double from, double to);
  void write_value(const StatementNode& statement, const Points& points, const Update& update, const Lanes* when);
  void commit(int target, const Write& write);
  void write_tensor(const StatementNode& statement, const Points& points, const Lanes& lanes, const Lanes* when);
  Number stored(const StatementNode& statement, ScalarType type, Number number) const;

  const Program& program_;
  const Partition& partition_;
  Evaluator evaluator_;
  Outputs outputs_;
  std::vector<int> output_of_tensor_;
  std::size_t block_points_ = 1;
  std::vector<std::vector<double>> block_columns_;  // by position in program_.parallel, then the point's number
  std::vector<double> block_numbers_;
  std::map<int, Storage> initial_;  // carried values as their `carry` set them, for loops that combine
  std::vector<Write> pending_;      // of an assignment that reads its target at other indices
};

Machine::Machine(const Program& program, const Inputs& inputs, const Partition& partition)
    : program_(program), partition_(partition), evaluator_(program, inputs) {
  output_of_tensor_.assign(program.tensors.size(), -1);
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    const TensorNode& tensor = program.tensors[t];
    if (!tensor.output) continue;
    output_of_tensor_[t] = static_cast<int>(outputs_.tensors.size());
    OutputTensor output{kernel::TensorId(t), tensor.name, tensor.type, {tensor.shape, {}}, {}, {}};
    std::size_t size = 1;
    for (const std::int64_t extent : tensor.shape) size *= static_cast<std::size_t>(extent);
    output.data.values.assign(size, 0);
    output.bounds.assign(size, 0);
    output.written.assign(size, 0);
    outputs_.tensors.push_back(std::move(output));
  }
}

// The numbers of the points to evaluate, in increasing order.
std::vector<std::int64_t> sampled(std::int64_t total, const Sample& sample) {
  std::vector<std::int64_t> points;
  if (sample.points > 0 && sample.points < total) {
    Random random(sample.seed);
    points = {0, total - 1};
    while (static_cast<std::int64_t>(points.size()) < sample.points) points.push_back(random.between(0, total - 1));
    std::ranges::sort(points);
    points.erase(std::unique(points.begin(), points.end()), points.end());
  } else {
    for (std::int64_t point = 0; point < total; ++point) points.push_back(point);
  }
  return points;
}

Result<Outputs> Machine::run(const Sample& sample) {
  std::int64_t total = 1;
  for (const int axis : program_.parallel) total *= program_.axes[position(axis)].extent;
  // As many points at a time as keep the largest value small.
  std::int64_t largest = 1;
  for (const LocalValue& value : program_.values) {
    std::int64_t elements = 1;
    for (const int axis : value.axes) elements *= std::max<std::int64_t>(1, program_.axes[position(axis)].extent);
    largest = std::max(largest, elements);
  }
  const std::size_t block =
      static_cast<std::size_t>(std::clamp<std::int64_t>((std::int64_t{1} << 16) / largest, 1, 256));
  const std::vector<std::int64_t> points = sampled(total, sample);
  for (std::size_t first = 0; first < points.size() && !evaluator_.error(); first += block)
    run_block(std::span(points).subspan(first, std::min(block, points.size() - first)));
  if (evaluator_.error()) return tl::unexpected(*evaluator_.error());
  return std::move(outputs_);
}

void Machine::run_block(std::span<const std::int64_t> numbers) {
  const std::size_t count = numbers.size();
  block_points_ = count;
  block_columns_.assign(program_.parallel.size(), std::vector<double>(count));
  block_numbers_.resize(count);
  for (std::size_t p = 0; p < count; ++p) {
    block_numbers_[p] = static_cast<double>(p);
    std::int64_t rest = numbers[p];
    for (std::size_t k = program_.parallel.size(); k-- > 0;) {
      const std::int64_t extent = program_.axes[position(program_.parallel[k])].extent;
      block_columns_[k][p] = static_cast<double>(rest % extent);
      rest /= extent;
    }
  }
  for (std::size_t axis = 0; axis < program_.axes.size(); ++axis)
    evaluator_.set_span(static_cast<int>(axis), {0, program_.axes[axis].extent});
  for (std::size_t v = 0; v < program_.values.size(); ++v) evaluator_.lay_out(static_cast<int>(v), count);
  for (const LoopNode& loop : program_.loops) forget_tile(loop);
  initial_.clear();
  run_body(program_.body);
}

void Machine::run_body(const std::vector<int>& statements) {
  for (const int index : statements) {
    if (evaluator_.error()) return;
    run_statement(program_.statements[position(index)]);
  }
}

void Machine::run_statement(const StatementNode& statement) {
  if (statement.kind == StatementNode::Kind::loop) return run_loop(statement);
  assign_or_store(statement);
  if (statement.kind == StatementNode::Kind::carry) initial_[statement.target] = evaluator_.storage(statement.target);
}

void Machine::run_loop(const StatementNode& statement) {
  const LoopNode& loop = program_.loops[position(statement.loop)];
  LoopTiles how = partition_.loops;
  for (const auto& [axis, tiles] : partition_.by_axis)
    if (axis.index == loop.axis) how = tiles;
  how.seed += static_cast<std::uint64_t>(loop.axis) * 0x9e37u;
  const std::vector<Tile> tiles = tiles_of(how, program_.axes[position(loop.axis)].extent, loop.ordered);
  const bool split = how.split && loop.combines;
  const std::size_t middle = split ? (tiles.size() + 1) / 2 : tiles.size();
  run_tiles(loop, tiles, 0, middle);
  if (!split) return;
  // The second part starts from the initial state; then `others` is its state, and the carried values are the first's.
  std::vector<Storage> first_part;
  for (const int value : loop.carried) {
    first_part.push_back(evaluator_.storage(value));
    if (initial_.contains(value)) evaluator_.storage(value) = initial_[value];
  }
  run_tiles(loop, tiles, middle, tiles.size());
  for (std::size_t k = 0; k < loop.carried.size(); ++k) {
    evaluator_.storage(loop.others[k]) = evaluator_.storage(loop.carried[k]);
    evaluator_.storage(loop.carried[k]) = std::move(first_part[k]);
  }
  run_body(loop.combine_body);
}

void Machine::run_tiles(const LoopNode& loop, const std::vector<Tile>& tiles, std::size_t first, std::size_t last) {
  for (std::size_t t = first; t < last && !evaluator_.error(); ++t) {
    evaluator_.set_span(loop.axis, {tiles[t].first, tiles[t].length});
    for (const int value : loop.tile_values) evaluator_.lay_out(value, block_points_);
    for (const int value : loop.resets) std::ranges::fill(evaluator_.storage(value).defined, std::uint8_t{0});
    for (const int mask : loop.masks) {
      evaluator_.lay_out(program_.statements[position(mask)].target, block_points_);
      run_statement(program_.statements[position(mask)]);
    }
    run_body(loop.body);
  }
  forget_tile(loop);
}

// Outside its loop a value over the loop's axis has no elements.
void Machine::forget_tile(const LoopNode& loop) {
  evaluator_.set_span(loop.axis, {0, 0});
  for (const int value : loop.tile_values) evaluator_.lay_out(value, block_points_);
  evaluator_.set_span(loop.axis, {0, program_.axes[position(loop.axis)].extent});
}

// The lanes (point, element): `points` points from `point`, `count` elements from `first` each.
void Machine::lanes_of(const StatementNode& statement, std::size_t point, std::size_t points, std::size_t first,
                       std::size_t count, Points& lanes) {
  Arena& arena = evaluator_.arena();
  lanes.count = points * count;
  lanes.columns = arena.allocate<const double*>(kPoint + 1);
  std::fill_n(lanes.columns, kPoint + 1, nullptr);
  const auto by_point = [&](int axis, const std::vector<double>& column) {
    lanes.columns[axis] = column.data() + point;
    if (points == 1) return;
    lanes.varying.set(position(axis));
    if (count == 1) return;
    double* spread = arena.allocate<double>(lanes.count);
    for (std::size_t p = 0; p < points; ++p) std::fill_n(spread + p * count, count, column[point + p]);
    lanes.columns[axis] = spread;
  };
  by_point(kPoint, block_numbers_);
  for (std::size_t k = 0; k < program_.parallel.size(); ++k) by_point(program_.parallel[k], block_columns_[k]);
  std::size_t stride = 1;
  for (std::size_t k = statement.axes.size(); k-- > 0;) {
    const int axis = statement.axes[k];
    const std::size_t length = static_cast<std::size_t>(evaluator_.span(axis).length);
    double* column = arena.allocate<double>(lanes.count);
    for (std::size_t i = 0; i < count; ++i)
      column[i] = static_cast<double>(evaluator_.span(axis).first) + static_cast<double>((first + i) / stride % length);
    for (std::size_t p = 1; p < points; ++p) std::copy_n(column, count, column + p * count);
    lanes.columns[axis] = column;
    lanes.varying.set(position(axis), length > 1 && count > 1);
    stride *= length;
  }
}

void Machine::assign_or_store(const StatementNode& statement) {
  std::size_t elements = 1;
  for (const int axis : statement.axes) elements *= static_cast<std::size_t>(evaluator_.span(axis).length);
  if (elements == 0) return;
  const std::size_t points_at_once =
      elements >= 64 ? 1 : std::clamp<std::size_t>(Evaluator::kLanes / elements, 1, block_points_);
  pending_.clear();
  for (std::size_t point = 0; point < block_points_; point += points_at_once)
    for (std::size_t first = 0; first < elements; first += Evaluator::kLanes) {
      const Scratch scratch(evaluator_.arena());
      Points lanes;
      lanes_of(statement, point, std::min(points_at_once, block_points_ - point), first,
               std::min(Evaluator::kLanes, elements - first), lanes);
      run_lanes(statement, lanes);
      if (evaluator_.error()) return;
    }
  for (const Write& write : pending_) commit(statement.target, write);
  pending_.clear();
}

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
    update.terms[i] = 1;
    update.magnitudes[i] = std::fabs(result.value(i));
    if (!statement.rescale || storage.defined[places[i]] == 0) continue;
    update.terms[i] = storage.terms[places[i]];
    update.magnitudes[i] = rescaled(storage.magnitudes[places[i]], storage.values[places[i]], result.value(i));
  }
  return update;
}

// The magnitude of a sum whose value was scaled from `from` to `to`.
double Machine::rescaled(double magnitude, double from, double to) {
  const double scaled = from != 0 ? magnitude * std::fabs(to / from) : std::fabs(to);
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
    const double before = storage.values[at] == 0 ? 0 : storage.terms[at];
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
  OutputTensor& output = outputs_.tensors[position(output_of_tensor_[position(statement.target)])];
  const std::vector<std::int64_t> zeros(tensor.shape.size(), 0);
  bool shared = false;
  const std::int64_t* at = evaluator_.addresses(statement.indices, zeros.data(), tensor.shape.data(),
                                                tensor.shape.size(), points, statement.span, tensor.name, &shared);
  if (at == nullptr) return;
  for (std::size_t i = 0; i < points.count; ++i) {
    const std::size_t k = static_cast<std::size_t>(at[shared ? 0 : i]);
    const Number number = stored(statement, tensor.type, {lanes.value(i), lanes.error(i)});
    // Where the condition is within its error, the element may be written or not: nothing can be said about it.
    const bool unsure = when != nullptr && when->error(i) > 0;
    output.data.values[k] = number.value;
    output.bounds[k] = unsure ? kInfinity : number.error;
    output.written[k] = 1;
  }
}

Result<void> check_inputs(const kernel::Kernel& kernel, const Inputs& inputs) {
  if (inputs.sizes.size() != kernel.dims.size())
    return fail("expected {} sizes, one for each dim, found {}", kernel.dims.size(), inputs.sizes.size());
  for (std::size_t d = 0; d < kernel.dims.size(); ++d) {
    if (inputs.sizes[d] < 0) return fail("dim '{}' has the negative size {}", kernel.dims[d].name, inputs.sizes[d]);
    if (kernel.dims[d].size && *kernel.dims[d].size != inputs.sizes[d])
      return fail("dim '{}' is {}, found {}", kernel.dims[d].name, *kernel.dims[d].size, inputs.sizes[d]);
  }
  if (inputs.scalars.size() != kernel.scalars.size())
    return fail("expected {} scalars, found {}", kernel.scalars.size(), inputs.scalars.size());
  for (const kernel::ExprId requirement : kernel.requirements)
    if (constant_of(kernel, requirement, inputs.sizes) == 0)
      return fail_at(kernel.file, kernel[requirement].span, "the sizes do not fulfil this `require`");
  for (std::size_t t = 0; t < kernel.tensors.size(); ++t) {
    const std::vector<std::int64_t> shape = shape_of(kernel, kernel::TensorId(t), inputs.sizes);
    std::size_t size = 1;
    for (const std::int64_t extent : shape) {
      if (extent < 0) return fail("tensor '{}' has the negative extent {}", kernel.tensors[t].name, extent);
      size *= static_cast<std::size_t>(extent);
    }
    if (kernel.tensors[t].output) continue;
    if (t >= inputs.tensors.size() || inputs.tensors[t].shape != shape || inputs.tensors[t].values.size() != size)
      return fail("input '{}' does not have the shape [{}]", kernel.tensors[t].name, fmt::join(shape, ", "));
  }
  return {};
}

}  // namespace

std::vector<std::int64_t> shape_of(const kernel::Kernel& kernel, kernel::TensorId tensor,
                                   const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> shape;
  for (const kernel::ExprId extent : kernel[tensor].shape) shape.push_back(constant_of(kernel, extent, sizes));
  return shape;
}

Result<Outputs> evaluate(const kernel::Kernel& kernel, const Inputs& inputs, const Partition& partition,
                         const Sample& sample) {
  if (auto checked = check_inputs(kernel, inputs); !checked) return tl::unexpected(checked.error());
  const Result<Program> program = build_program(kernel, inputs.sizes, inputs.scalars);
  if (!program) return tl::unexpected(program.error());
  return Machine(*program, inputs, partition).run(sample);
}

Result<Outputs> evaluate_perturbed(const kernel::Kernel& kernel, const Inputs& inputs, const Partition& partition,
                                   std::uint64_t seed) {
  if (auto checked = check_inputs(kernel, inputs); !checked) return tl::unexpected(checked.error());
  const Result<Program> program = build_program(kernel, inputs.sizes, inputs.scalars);
  if (!program) return tl::unexpected(program.error());
  Machine machine(*program, inputs, partition);
  machine.perturb(seed);
  return machine.run({});
}

}  // namespace pipethreader::oracle
