// The public API over the driver.
#include <algorithm>

#include "driver/compiler.h"
#include "driver/report.h"
#include "driver/run.h"
#include "pipethreader/pipethreader.h"

namespace pipethreader {

namespace {

std::vector<kernel::Binding> bindings_of(const auto& map) {
  std::vector<kernel::Binding> result;
  for (const auto& [name, value] : map) result.push_back({name, static_cast<double>(value)});
  return result;
}

driver::Environment environment_for(const CompileOptions& options) {
  std::vector<std::filesystem::path> data(options.data.begin(), options.data.end());
  const auto program = driver::running_program();
  if (!program.empty()) data.push_back(program.parent_path() / "../share/pipethreader");
  if (!options.installed_data.empty()) data.emplace_back(options.installed_data);
  return driver::read_environment(program, std::move(data));
}

Result<kernel::Kernel> pick(std::vector<kernel::Kernel> kernels, const std::string& name) {
  for (kernel::Kernel& k : kernels) {
    if (name.empty() || k.name == name) return kernel::check(std::move(k));
  }
  return fail("there is no kernel '{}' in this text", name);
}

}  // namespace

struct CompiledKernel::State {
  driver::Compiled compiled;
};

Result<kernel::Kernel> load(const std::string& path, const std::string& kernel_name) {
  return driver::load_kernel(path, kernel_name);
}

Result<kernel::Kernel> parse(const std::string& text, const std::string& kernel_name) {
  auto kernels = kernel::parse(text, "");
  if (!kernels) return tl::unexpected(kernels.error());
  return pick(std::move(*kernels), kernel_name);
}

Result<CompiledKernel> compile(const kernel::Kernel& kernel, const CompileOptions& options) {
  const driver::Environment environment = environment_for(options);
  driver::CompileRequest request;
  auto checked = kernel::check(kernel);
  if (!checked) return tl::unexpected(checked.error());
  request.kernel = std::move(*checked);
  request.dims = bindings_of(options.dims);
  request.options = bindings_of(options.options);
  request.assemble = options.machine_code;
  request.use_cache = options.use_cache;
  auto found = device::find_device(options.device, environment.device_folders());
  if (!found) return tl::unexpected(found.error());
  request.device = std::move(*found);
  auto compiled = driver::compile(request, environment);
  if (!compiled) return tl::unexpected(compiled.error());
  return CompiledKernel(std::make_shared<const CompiledKernel::State>(CompiledKernel::State{std::move(*compiled)}));
}

const std::string& CompiledKernel::name() const { return state_->compiled.plan.kernel; }
const std::string& CompiledKernel::source() const { return state_->compiled.plan.best().source.text; }
std::span<const std::byte> CompiledKernel::cubin() const { return state_->compiled.plan.best().cubin; }
const std::string& CompiledKernel::generic_reason() const { return state_->compiled.plan.generic_reason(); }
std::string CompiledKernel::report() const { return driver::report_text(state_->compiled); }
std::string CompiledKernel::report_json() const { return driver::report_json(state_->compiled); }

namespace {

Result<driver::OutputValues> on_gpu(const driver::Compiled& compiled, const oracle::Inputs& inputs, RunResult& result) {
  const auto gpu = driver::open_gpu();
  if (!gpu) return tl::unexpected(gpu.error());
  auto prepared = driver::GpuRun::prepare(*gpu, compiled.plan, compiled.kernel, inputs);
  if (!prepared) return tl::unexpected(prepared.error());
  if (auto done = prepared->launch(*gpu, runtime::Stream()); !done) return tl::unexpected(done.error());
  if (auto done = gpu->synchronize(); !done) return tl::unexpected(done.error());
  auto outputs = prepared->outputs();
  if (!outputs || !prepared->has_work()) return outputs;
  const auto timing = gpu->measure({}, [&](const runtime::Stream& stream) { return prepared->launch(*gpu, stream); });
  if (!timing) return tl::unexpected(timing.error());
  result.microseconds = timing->median_ms * 1000;
  return outputs;
}

Result<driver::OutputValues> execute(const driver::Compiled& compiled, const oracle::Inputs& inputs,
                                     const RunOptions& options, RunResult& result) {
  if (options.where == Where::gpu) return on_gpu(compiled, inputs, result);
  interpret::RunOptions how;
  how.seed = options.seed;
  auto done = driver::run_cpu(compiled.plan, compiled.kernel, inputs, how);
  if (!done) return tl::unexpected(done.error());
  return std::move(done->outputs);
}

Result<oracle::Inputs> random_inputs(const kernel::Kernel& kernel, const RunOptions& options) {
  const auto sizes = driver::all_sizes(kernel, bindings_of(options.sizes));
  if (!sizes) return tl::unexpected(sizes.error());
  auto inputs = oracle::random_inputs(kernel, *sizes, options.seed);
  if (!inputs) return inputs;
  for (const auto& setting : options.scalars) {
    const auto found = std::find_if(kernel.scalars.begin(), kernel.scalars.end(),
                                    [&](const auto& s) { return s.name == setting.first; });
    if (found == kernel.scalars.end()) return fail("'{}' has no scalar '{}'", kernel.name, setting.first);
    inputs->scalars[static_cast<std::size_t>(found - kernel.scalars.begin())] = round_to(found->type, setting.second);
  }
  return inputs;
}

void keep_outputs(const kernel::Kernel& kernel, const oracle::Inputs& inputs, driver::OutputValues outputs,
                  RunResult& result) {
  std::size_t place = 0;
  for (std::size_t t = 0; t < kernel.tensors.size(); ++t) {
    if (!kernel.tensors[t].output) continue;
    result.outputs[kernel.tensors[t].name] = {oracle::shape_of(kernel, kernel::TensorId(t), inputs.sizes),
                                              std::move(outputs[place++])};
  }
}

Result<void> take_inputs(const kernel::Kernel& kernel, const std::map<std::string, Array>& given,
                         oracle::Inputs& inputs) {
  for (std::size_t t = 0; t < kernel.tensors.size(); ++t) {
    const kernel::Tensor& tensor = kernel.tensors[t];
    if (tensor.output) continue;
    const auto found = given.find(tensor.name);
    if (found == given.end()) return fail("the input '{}' is missing", tensor.name);
    if (found->second.shape != inputs.tensors[t].shape) {
      return fail("the input '{}' must have shape [{}], found [{}]", tensor.name,
                  fmt::join(inputs.tensors[t].shape, ", "), fmt::join(found->second.shape, ", "));
    }
    if (found->second.values.size() != inputs.tensors[t].values.size()) {
      return fail("the input '{}' must have {} values, found {}", tensor.name, inputs.tensors[t].values.size(),
                  found->second.values.size());
    }
    for (std::size_t i = 0; i < found->second.values.size(); ++i)
      inputs.tensors[t].values[i] = round_to(tensor.type, found->second.values[i]);
  }
  return {};
}

}  // namespace

Result<RunResult> CompiledKernel::run(const std::map<std::string, Array>& given, const RunOptions& options) const {
  const kernel::Kernel& kernel = state_->compiled.kernel;
  for (const kernel::Scalar& scalar : kernel.scalars) {
    if (!options.scalars.contains(scalar.name)) return fail("the scalar '{}' is missing", scalar.name);
  }
  auto inputs = random_inputs(kernel, options);
  if (!inputs) return tl::unexpected(inputs.error());
  if (auto done = take_inputs(kernel, given, *inputs); !done) return tl::unexpected(done.error());
  RunResult result;
  auto outputs = execute(state_->compiled, *inputs, options, result);
  if (!outputs) return tl::unexpected(outputs.error());
  keep_outputs(kernel, *inputs, std::move(*outputs), result);
  return result;
}

Result<RunResult> CompiledKernel::run_random(const RunOptions& options) const {
  const kernel::Kernel& kernel = state_->compiled.kernel;
  const auto inputs = random_inputs(kernel, options);
  if (!inputs) return tl::unexpected(inputs.error());
  RunResult result;
  auto outputs = execute(state_->compiled, *inputs, options, result);
  if (!outputs) return tl::unexpected(outputs.error());
  const auto checked = driver::check(kernel, *inputs, *outputs, options.seed);
  if (!checked) return tl::unexpected(checked.error());
  result.correct = checked->ok();
  result.check = checked->format();
  keep_outputs(kernel, *inputs, std::move(*outputs), result);
  return result;
}

}  // namespace pipethreader
