#include "oracle/machine.h"

#include <algorithm>

namespace pipethreader::oracle {
namespace {

std::size_t position(int index) { return static_cast<std::size_t>(index); }

bool is_part(std::int64_t total, const Sample& sample) { return sample.points > 0 && sample.points < total; }

// The numbers of the points to evaluate, in increasing order.
std::vector<std::int64_t> sampled(std::int64_t total, const Sample& sample) {
  std::vector<std::int64_t> points;
  if (is_part(total, sample)) {
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

}  // namespace

Machine::Machine(const Program& program, const Inputs& inputs, const Partition& partition)
    : program_(program), partition_(partition), evaluator_(program, inputs) {
  output_of_tensor_.assign(program.tensors.size(), -1);
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    const TensorNode& tensor = program.tensors[t];
    if (!tensor.output) continue;
    output_of_tensor_[t] = static_cast<int>(outputs_.tensors.size());
    outputs_.tensors.push_back({kernel::TensorId(t), tensor.name, tensor.type, tensor.shape, {}, {}, {}, {}});
  }
}

// For every element of the outputs.
void Machine::make_room() {
  for (OutputTensor& output : outputs_.tensors) {
    std::size_t size = 1;
    for (const std::int64_t extent : output.shape) size *= static_cast<std::size_t>(extent);
    output.values.assign(size, 0);
    output.bounds.assign(size, 0);
    output.written.assign(size, 0);
  }
}

void Machine::put(std::size_t output, const Element& element) {
  if (!samples_.empty()) return samples_[output].push_back(element);
  OutputTensor& tensor = outputs_.tensors[output];
  const auto at = static_cast<std::size_t>(element.at);
  tensor.values[at] = element.number.value;
  tensor.bounds[at] = element.number.error;
  tensor.written[at] = 1;
}

// The elements that were written, as the last store left them.
void Machine::keep_sample() {
  for (std::size_t t = 0; t < samples_.size(); ++t) {
    std::vector<Element>& elements = samples_[t];
    std::ranges::stable_sort(elements, {}, &Element::at);
    OutputTensor& output = outputs_.tensors[t];
    output.sample.emplace();
    for (std::size_t i = 0; i < elements.size(); ++i) {
      if (i + 1 < elements.size() && elements[i + 1].at == elements[i].at) continue;
      output.sample->push_back(elements[i].at);
      output.values.push_back(elements[i].number.value);
      output.bounds.push_back(elements[i].number.error);
    }
    output.written.assign(output.values.size(), 1);
    elements = {};
  }
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
  if (is_part(total, sample)) {
    samples_.resize(outputs_.tensors.size());
  } else {
    make_room();
  }
  const std::vector<std::int64_t> points = sampled(total, sample);
  for (std::size_t first = 0; first < points.size() && !evaluator_.error(); first += block)
    run_block(std::span(points).subspan(first, std::min(block, points.size() - first)));
  if (evaluator_.error()) return tl::unexpected(*evaluator_.error());
  keep_sample();
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

}  // namespace pipethreader::oracle
