#include <algorithm>
#include <thread>

#include "oracle/oracle.h"
#include "oracle/tiles.h"

namespace pipethreader::oracle {
namespace {

Range default_range(ScalarType type, bool scalar) {
  if (type == ScalarType::boolean) return {"", 0, 1};
  if (is_integer(type)) return {"", type == ScalarType::u8 || type == ScalarType::u4 ? 0.0 : -3.0, 3};
  return scalar ? Range{"", 0.1, 1} : Range{"", -1, 1};
}

// One call of next() each.
double draw(Random& random, ScalarType type, const Range& range) {
  if (is_integer(type) || type == ScalarType::boolean)
    return static_cast<double>(
        random.between(static_cast<std::int64_t>(range.low), static_cast<std::int64_t>(range.high)));
  return round_to(type, range.low + (range.high - range.low) * random.uniform());
}

// Each parameter has its own stream, by name: adding a parameter does not change the others.
std::uint64_t stream(std::uint64_t seed, const std::string& name) {
  std::uint64_t hash = 0xcbf29ce484222325u ^ seed;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

// Large tensors by all cores. The values are those of one stream, whatever their number: each piece begins where the
// stream is by then.
void fill(std::vector<double>& values, std::uint64_t seed, ScalarType type, const Range& range) {
  constexpr std::size_t smallest_piece = std::size_t{1} << 16;
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  const std::size_t step = std::max(smallest_piece, values.size() / cores + 1);
  const auto piece = [&](std::size_t begin, std::size_t end) {
    Random random(seed);
    random.skip(begin);
    for (std::size_t i = begin; i < end; ++i) values[i] = draw(random, type, range);
  };
  std::vector<std::jthread> threads;
  for (std::size_t begin = step; begin < values.size(); begin += step)
    threads.emplace_back(piece, begin, std::min(values.size(), begin + step));
  piece(0, std::min(values.size(), step));
}

const Range* range_named(const std::vector<Range>& ranges, const std::string& name) {
  for (const Range& range : ranges)
    if (range.name == name) return &range;
  return nullptr;
}

Result<void> check_ranges(const kernel::Kernel& kernel, const std::vector<Range>& ranges) {
  for (const Range& range : ranges) {
    bool known = false;
    for (const auto& tensor : kernel.tensors) known = known || (tensor.name == range.name && !tensor.output);
    for (const auto& scalar : kernel.scalars) known = known || scalar.name == range.name;
    if (!known) return fail("no input is named '{}'", range.name);
    if (!(range.low <= range.high))
      return fail("the range of '{}' is empty: {} to {}", range.name, range.low, range.high);
  }
  return {};
}

}  // namespace

Result<Inputs> random_inputs(const kernel::Kernel& kernel, const std::vector<std::int64_t>& sizes, std::uint64_t seed,
                             const std::vector<Range>& ranges) {
  if (auto checked = check_ranges(kernel, ranges); !checked) return tl::unexpected(checked.error());
  if (sizes.size() != kernel.dims.size()) return fail("expected {} sizes, found {}", kernel.dims.size(), sizes.size());
  Inputs inputs;
  inputs.sizes = sizes;
  for (std::size_t t = 0; t < kernel.tensors.size(); ++t) {
    const kernel::Tensor& tensor = kernel.tensors[t];
    TensorData data;
    data.shape = shape_of(kernel, kernel::TensorId(t), sizes);
    if (!tensor.output) {
      std::size_t size = 1;
      for (const std::int64_t extent : data.shape) size *= static_cast<std::size_t>(std::max<std::int64_t>(0, extent));
      const Range* named = range_named(ranges, tensor.name);
      data.values.resize(size);
      fill(data.values, stream(seed, tensor.name), tensor.type,
           named != nullptr ? *named : default_range(tensor.type, false));
    }
    inputs.tensors.push_back(std::move(data));
  }
  for (const kernel::Scalar& scalar : kernel.scalars) {
    const Range* named = range_named(ranges, scalar.name);
    Random random(stream(seed, scalar.name));
    inputs.scalars.push_back(draw(random, scalar.type, named != nullptr ? *named : default_range(scalar.type, true)));
  }
  return inputs;
}

}  // namespace pipethreader::oracle
