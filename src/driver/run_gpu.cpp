#include <algorithm>
#include <span>

#include "driver/run.h"
#include "runtime/host_array.h"

namespace pipethreader::driver {

namespace {

// The copy engine and vector accesses want at least this much behind an address.
constexpr std::size_t least_bytes = 16;

std::size_t elements_of(const std::vector<std::int64_t>& shape) {
  std::size_t count = 1;
  for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(std::max<std::int64_t>(0, extent));
  return count;
}

runtime::TensorSwizzle swizzle_of(program::Swizzle swizzle) {
  switch (swizzle) {
    case program::Swizzle::none:
      return runtime::TensorSwizzle::none;
    case program::Swizzle::bytes32:
      return runtime::TensorSwizzle::bytes_32;
    case program::Swizzle::bytes64:
      return runtime::TensorSwizzle::bytes_64;
    case program::Swizzle::bytes128:
      return runtime::TensorSwizzle::bytes_128;
  }
  return runtime::TensorSwizzle::none;
}

// A dim of extent 0 is never read, but the driver encodes none: it becomes 1.
runtime::TensorMapDescription description(const program::Program& program, const emit::Argument& argument,
                                          const std::vector<double>& params, std::uint64_t base) {
  const program::TensorMap& map = program.maps[static_cast<std::size_t>(argument.index)];
  runtime::TensorMapDescription d;
  d.type = program[map.tensor].type;
  d.base = base;
  d.swizzle = swizzle_of(map.swizzle);
  const auto size = static_cast<std::uint64_t>(bits(d.type)) / 8;
  for (std::size_t i = 0; i < map.dims.size(); ++i) {
    const std::int64_t extent = program::evaluate(program, map.dims[i].extent, params);
    d.sizes.push_back(static_cast<std::uint64_t>(std::max<std::int64_t>(1, extent)));
    if (i > 0) {
      const std::int64_t stride = program::evaluate(program, map.dims[i].stride, params);
      d.byte_strides.push_back(
          std::max<std::uint64_t>(least_bytes, static_cast<std::uint64_t>(std::max<std::int64_t>(0, stride)) * size));
    }
    d.box.push_back(static_cast<std::uint32_t>(argument.box[i]));
    d.element_strides.push_back(static_cast<std::uint32_t>(argument.steps[i]));
  }
  return d;
}

}  // namespace

Result<runtime::Gpu> open_gpu(int ordinal) {
  auto gpu = runtime::Gpu::open(ordinal);
  if (!gpu) return gpu;
  const runtime::GpuProperties& p = gpu->properties();
  if (p.compute_major != 9) {
    return fail("{} has compute capability {}.{}; the compiled kernels run on Hopper (9.0) only", p.name,
                p.compute_major, p.compute_minor);
  }
  return gpu;
}

Result<GpuRun> GpuRun::prepare(const runtime::Gpu& gpu, const Plan& plan, const kernel::Kernel& kernel,
                               const oracle::Inputs& inputs) {
  GpuRun run;
  for (std::size_t t = 0; t < kernel.tensors.size(); ++t) {
    Tensor tensor;
    tensor.name = kernel.tensors[t].name;
    tensor.type = kernel.tensors[t].type;
    tensor.output = kernel.tensors[t].output;
    tensor.elements = elements_of(oracle::shape_of(kernel, kernel::TensorId(t), inputs.sizes));
    auto buffer = gpu.allocate(std::max(least_bytes, runtime::packed_bytes(tensor.type, tensor.elements)));
    if (!buffer) return tl::unexpected(buffer.error());
    tensor.buffer = std::move(*buffer);
    if (!tensor.output) {
      const auto put = [&](std::span<const std::byte> bytes, std::size_t offset) {
        return tensor.buffer.upload(bytes, offset);
      };
      if (auto done = runtime::pack_in_pieces(tensor.type, inputs.tensors[t].values, put); !done)
        return tl::unexpected(done.error());
    }
    run.tensors_.push_back(std::move(tensor));
  }
  if (auto done = run.take(gpu, plan, kernel, inputs); !done) return tl::unexpected(done.error());
  return run;
}

Result<void> GpuRun::take(const runtime::Gpu& gpu, const Plan& plan, const kernel::Kernel& kernel,
                          const oracle::Inputs& inputs) {
  if (!plan.assembled()) {
    return fail_at({}, {}, fmt::format("'{}' has no machine code: {}", plan.kernel, plan.no_machine_code), "");
  }
  const auto variant = variant_for(plan, kernel, inputs.sizes, inputs.scalars);
  if (!variant) return tl::unexpected(variant.error());
  variant_ = *variant;
  if (auto done = poison(); !done) return done;
  launches_.clear();
  workspace_.clear();
  if (auto done = add_launch(gpu, plan.variants[*variant], kernel, inputs); !done) return done;
  for (const Variant& join : plan.joins) {
    if (auto done = add_launch(gpu, join, kernel, inputs); !done) return done;
  }
  return {};
}

Result<void> GpuRun::add_launch(const runtime::Gpu& gpu, const Variant& variant, const kernel::Kernel& kernel,
                                const oracle::Inputs& inputs) {
  auto params = parameters(variant.program, kernel, inputs.sizes, inputs.scalars);
  if (!params) return tl::unexpected(params.error());
  const std::int64_t grid = variant.source.launch.grid(variant.program, *params, gpu.properties().sm_count);
  if (grid > 0x7fffffff)
    return fail("the work of '{}' needs {} blocks; a launch takes at most 2147483647", kernel.name, grid);
  if (grid == 0) return {};
  if (auto done = add_workspace(gpu, variant.program, *params); !done) return done;
  auto module = gpu.load(variant.cubin);
  if (!module) return tl::unexpected(module.error());
  auto function = module->function(variant.source.entry);
  if (!function) return tl::unexpected(function.error());
  Launch launch{std::move(*function), {}, {}, {}};
  launch.config.grid.x = static_cast<unsigned>(grid);
  launch.config.block.x = static_cast<unsigned>(variant.source.launch.threads);
  launch.config.cluster.x = static_cast<unsigned>(variant.source.launch.cluster);
  launch.config.dynamic_shared_bytes = static_cast<std::size_t>(variant.source.launch.shared_bytes);
  launch.config.programmatic_serialization = true;  // it waits by itself before it touches memory
  if (auto done = bind(gpu, variant, *params, launch); !done) return done;
  launches_.push_back(std::move(launch));
  return {};
}

const GpuRun::Tensor* GpuRun::named(const std::string& name) const {
  for (const auto* tensors : {&tensors_, &workspace_}) {
    for (const Tensor& tensor : *tensors) {
      if (tensor.name == name) return &tensor;
    }
  }
  return nullptr;
}

// Room for what a program leaves that is no output of the kernel.
Result<void> GpuRun::add_workspace(const runtime::Gpu& gpu, const program::Program& program,
                                   const std::vector<double>& params) {
  for (const program::Tensor& wanted : program.tensors) {
    if (!wanted.output || named(wanted.name) != nullptr) continue;
    std::vector<std::int64_t> shape;
    for (const program::ExprId extent : wanted.shape) shape.push_back(program::evaluate(program, extent, params));
    Tensor tensor;
    tensor.name = wanted.name;
    tensor.type = wanted.type;
    tensor.elements = elements_of(shape);
    auto buffer = gpu.allocate(std::max(least_bytes, runtime::packed_bytes(tensor.type, tensor.elements)));
    if (!buffer) return tl::unexpected(buffer.error());
    tensor.buffer = std::move(*buffer);
    workspace_.push_back(std::move(tensor));
  }
  return {};
}

Result<void> GpuRun::bind(const runtime::Gpu& gpu, const Variant& variant, const std::vector<double>& params,
                          Launch& launch) {
  const auto buffer_of = [&](program::TensorId id) -> const runtime::DeviceBuffer& {
    return named(variant.program[id].name)->buffer;
  };
  for (const emit::Argument& argument : variant.source.arguments) {
    const auto index = static_cast<std::size_t>(argument.index);
    switch (argument.kind) {
      case emit::Argument::Kind::tensor:
        launch.arguments.add(buffer_of(program::TensorId(index)));
        break;
      case emit::Argument::Kind::param:
        if (argument.type == ScalarType::f32) {
          launch.arguments.add(static_cast<float>(params[index]));
        } else {
          launch.arguments.add(static_cast<std::int32_t>(params[index]));
        }
        break;
      case emit::Argument::Kind::map: {
        const std::uint64_t base = buffer_of(variant.program.maps[index].tensor).address();
        auto encoded = gpu.encode(description(variant.program, argument, params, base));
        if (!encoded) return tl::unexpected(encoded.error());
        launch.arguments.add(*encoded);
        break;
      }
      case emit::Argument::Kind::counter: {
        auto counter = gpu.allocate(least_bytes);
        if (!counter) return tl::unexpected(counter.error());
        if (auto done = counter->fill(0); !done) return done;
        launch.counter = std::move(*counter);
        launch.arguments.add(launch.counter);
        break;
      }
    }
  }
  return {};
}

Result<void> GpuRun::launch(const runtime::Gpu& gpu, const runtime::Stream& stream) {
  for (Launch& one : launches_) {
    if (auto done = gpu.launch(one.function, one.config, one.arguments, stream); !done) return done;
  }
  return {};
}

Result<void> GpuRun::poison() {
  for (Tensor& tensor : tensors_) {
    if (!tensor.output) continue;
    if (auto done = tensor.buffer.fill(0xff); !done) return done;
  }
  return {};
}

Result<std::vector<double>> GpuRun::all_of(const Tensor& tensor) {
  std::vector<std::byte> bytes(runtime::packed_bytes(tensor.type, tensor.elements));
  if (auto done = tensor.buffer.download(bytes); !done) return tl::unexpected(done.error());
  return runtime::unpack(tensor.type, bytes, tensor.elements);
}

Result<OutputValues> GpuRun::outputs() const {
  OutputValues values;
  for (const Tensor& tensor : tensors_) {
    if (!tensor.output) continue;
    auto all = all_of(tensor);
    if (!all) return tl::unexpected(all.error());
    values.push_back(std::move(*all));
  }
  return values;
}

Result<OutputValues> GpuRun::outputs_at(const oracle::Outputs& expected) const {
  OutputValues values;
  for (const oracle::OutputTensor& wanted : expected.tensors) {
    const Tensor& tensor = tensors_[static_cast<std::size_t>(wanted.tensor.index)];
    const auto get = [&](std::span<std::byte> bytes, std::size_t offset) {
      return tensor.buffer.download(bytes, offset);
    };
    auto some = wanted.sample ? runtime::unpack_at(tensor.type, *wanted.sample, get) : all_of(tensor);
    if (!some) return tl::unexpected(some.error());
    values.push_back(std::move(*some));
  }
  return values;
}

std::uint64_t GpuRun::address(kernel::TensorId tensor) const {
  return tensors_[static_cast<std::size_t>(tensor.index)].buffer.address();
}

}  // namespace pipethreader::driver
