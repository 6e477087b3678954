#include <algorithm>
#include <map>

#include "commands.h"
#include "driver/report.h"
#include "driver/run.h"
#include "runtime/npy.h"
#include "watchdog.h"

namespace pipethreader::tool {

namespace {

struct Options {
  KernelOptions kernel;
  std::string on = "gpu";
  std::uint64_t seed = 1;
  std::vector<std::string> sizes, inputs, outputs, scalars, ranges;
  bool no_check = false;
};

Result<std::vector<oracle::Range>> ranges_of(const std::vector<std::string>& texts) {
  std::vector<oracle::Range> ranges;
  for (const std::string& text : texts) {
    const auto [name, range] = split(text, "--range", "NAME=LOW:HIGH");
    const std::size_t colon = range.find(':');
    if (colon == std::string::npos) throw UsageError{fmt::format("--range takes NAME=LOW:HIGH, found '{}'", text)};
    const auto low = bindings({name + "=" + range.substr(0, colon)}, "--range");
    const auto high = bindings({name + "=" + range.substr(colon + 1)}, "--range");
    ranges.push_back({name, low[0].value, high[0].value});
  }
  return ranges;
}

template <class List>
std::string names_of(const List& list) {
  std::vector<std::string> names;
  for (const auto& item : list) names.push_back(item.name);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

Result<void> set_scalars(const Options& options, const kernel::Kernel& kernel, oracle::Inputs& inputs) {
  for (const kernel::Binding& given : bindings(options.scalars, "--set")) {
    const auto found =
        std::find_if(kernel.scalars.begin(), kernel.scalars.end(), [&](const auto& s) { return s.name == given.name; });
    if (found == kernel.scalars.end()) {
      return fail("'{}' has no scalar '{}'; its scalars are {}", kernel.name, given.name, names_of(kernel.scalars));
    }
    inputs.scalars[static_cast<std::size_t>(found - kernel.scalars.begin())] = round_to(found->type, given.value);
  }
  return {};
}

Result<std::size_t> tensor_named(const kernel::Kernel& kernel, const std::string& name, bool output) {
  for (std::size_t t = 0; t < kernel.tensors.size(); ++t) {
    if (kernel.tensors[t].name == name && kernel.tensors[t].output == output) return t;
  }
  return fail("'{}' has no {} '{}'; its tensors are {}", kernel.name, output ? "output" : "input", name,
              names_of(kernel.tensors));
}

Result<void> read_inputs(const Options& options, const kernel::Kernel& kernel, oracle::Inputs& inputs) {
  for (const std::string& text : options.inputs) {
    const auto [name, path] = split(text, "--input", "NAME=FILE.npy");
    const auto tensor = tensor_named(kernel, name, false);
    if (!tensor) return tl::unexpected(tensor.error());
    runtime::NpyExpectation expectation;
    expectation.type = kernel.tensors[*tensor].type;
    expectation.shape = inputs.tensors[*tensor].shape;
    auto array = runtime::read_npy(path, expectation);
    if (!array) return tl::unexpected(array.error());
    inputs.tensors[*tensor].values = std::move(array->values);
  }
  return {};
}

Result<void> write_results(const Options& options, const kernel::Kernel& kernel, const oracle::Inputs& inputs,
                           const driver::OutputValues& outputs) {
  for (const std::string& text : options.outputs) {
    const auto [name, path] = split(text, "--output", "NAME=FILE.npy");
    const auto tensor = tensor_named(kernel, name, true);
    if (!tensor) return tl::unexpected(tensor.error());
    std::size_t place = 0;
    for (std::size_t t = 0; t < *tensor; ++t) place += kernel.tensors[t].output ? 1 : 0;
    runtime::NpyArray array;
    array.shape = oracle::shape_of(kernel, kernel::TensorId(*tensor), inputs.sizes);
    array.type = kernel.tensors[*tensor].type;
    array.values = outputs[place];
    if (auto done = runtime::write_npy(path, array); !done) return done;
  }
  return {};
}

Result<oracle::Inputs> inputs_of(const Options& options, const kernel::Kernel& kernel) {
  const auto sizes = driver::all_sizes(kernel, tool::sizes(options.sizes, "--size"));
  if (!sizes) return tl::unexpected(sizes.error());
  const auto ranges = ranges_of(options.ranges);
  if (!ranges) return tl::unexpected(ranges.error());
  auto inputs = oracle::random_inputs(kernel, *sizes, options.seed, *ranges);
  if (!inputs) return inputs;
  if (auto done = set_scalars(options, kernel, *inputs); !done) return tl::unexpected(done.error());
  if (auto done = read_inputs(options, kernel, *inputs); !done) return tl::unexpected(done.error());
  return inputs;
}

Result<driver::OutputValues> on_cpu(const Options& options, const driver::Compiled& compiled,
                                    const oracle::Inputs& inputs) {
  interpret::RunOptions how;
  how.seed = options.seed;
  auto done = driver::run_cpu(compiled.plan, compiled.kernel, inputs, how);
  if (!done) return tl::unexpected(done.error());
  const int size = compiled.plan.variants[done->variant].source.launch.cluster;
  fmt::print("  {:<12}in the interpreter: {} instructions in {} {}\n", "ran", done->report.steps, done->report.clusters,
             size > 1                     ? fmt::format("clusters of {} blocks", size)
             : done->report.clusters == 1 ? "block"
                                          : "blocks");
  return std::move(done->outputs);
}

Result<driver::OutputValues> on_gpu(const driver::Compiled& compiled, const oracle::Inputs& inputs) {
  const auto gpu = driver::open_gpu();
  if (!gpu) return tl::unexpected(gpu.error());
  auto prepared = driver::GpuRun::prepare(*gpu, compiled.plan, compiled.kernel, inputs);
  if (!prepared) return tl::unexpected(prepared.error());
  if (!prepared->has_work()) {
    fmt::print("  {:<12}nothing: there is no work at these sizes\n", "ran");
    return prepared->outputs();
  }
  Watchdog watchdog;
  watchdog.begin(describe(compiled.plan.choices));
  if (auto done = prepared->launch(*gpu, runtime::Stream()); !done) return tl::unexpected(done.error());
  if (auto done = gpu->synchronize(); !done) return tl::unexpected(done.error());
  auto outputs = prepared->outputs();
  if (!outputs) return outputs;
  watchdog.begin(describe(compiled.plan.choices));
  const auto timing = gpu->measure({}, [&](const runtime::Stream& stream) { return prepared->launch(*gpu, stream); });
  watchdog.begin("");
  if (!timing) return tl::unexpected(timing.error());
  fmt::print("  {:<12}on {}: {:.1f} us, the median of {} launches\n", "ran", gpu->properties().name,
             timing->median_ms * 1000, timing->samples_ms.size());
  return outputs;
}

// Sizes that the files of inputs have for dims that stand alone in a shape, beside those of the command line. All must
// agree.
Result<void> take_sizes_of_files(Options& options, const kernel::Kernel& kernel) {
  struct Known {
    std::int64_t size = 0;
    std::string place;
  };
  std::map<std::string, Known> known;
  for (const auto& [given, option] : {std::pair(&options.kernel.dims, "--dim"), std::pair(&options.sizes, "--size")}) {
    for (const kernel::Binding& b : tool::sizes(*given, option))
      known.try_emplace(b.name, Known{static_cast<std::int64_t>(b.value), option});
  }
  for (const std::string& text : options.inputs) {
    const auto [name, path] = split(text, "--input", "NAME=FILE.npy");
    const auto index = tensor_named(kernel, name, false);
    if (!index) return tl::unexpected(index.error());
    const kernel::Tensor& tensor = kernel.tensors[*index];
    const auto shape = runtime::read_npy_shape(path);
    if (!shape) return tl::unexpected(shape.error());
    if (shape->size() != tensor.shape.size()) {
      return fail_at(
          path, {},
          fmt::format("the array has rank {}, but '{}' has rank {}", shape->size(), name, tensor.shape.size()));
    }
    for (std::size_t i = 0; i < shape->size(); ++i) {
      const kernel::Expr& extent = kernel[tensor.shape[i]];
      if (extent.kind != kernel::Expr::Kind::dim) continue;
      const std::string& dim = kernel[extent.dim].name;
      const Known here = {(*shape)[i], fmt::format("axis {} of '{}'", i + 1, path)};
      const auto [found, fresh] = known.try_emplace(dim, here);
      if (fresh) options.sizes.push_back(fmt::format("{}={}", dim, here.size));
      if (found->second.size == here.size) continue;
      return fail("dim '{}' is {} by {}, but {} by {}", dim, found->second.size, found->second.place, here.size,
                  here.place);
    }
  }
  return {};
}

// `not_dynamic`: why the sizes of this run have become the kernel's; empty: they have not.
int run(Options options, const driver::Environment& environment, const std::string& not_dynamic = {}) {
  no_repeats(options.inputs, "--input");
  no_repeats(options.outputs, "--output");
  no_repeats(options.scalars, "--set");
  no_repeats(options.ranges, "--range");
  sizes_once(options.kernel.dims, options.sizes);
  const bool gpu = options.on == "gpu";
  options.kernel.assemble = gpu;
  if (gpu) {  // say at once when there is no card
    if (const auto card = driver::open_gpu(); !card) return report(card.error());
  }
  const std::string card = gpu ? device_of_card() : "";
  auto request = options.kernel.request(environment, card.empty() ? "h100" : card);
  if (!request) return report(request.error());
  if (!gpu) request->candidates = 1;
  if (auto done = take_sizes_of_files(options, request->kernel); !done) return report(done.error());
  const auto compiled = driver::compile(*request, environment, progress());
  if (!compiled && !options.sizes.empty()) {
    // What must stay on chip whole needs its size when it is compiled: the sizes of this run become fixed.
    for (std::string& size : options.sizes) options.kernel.dims.push_back(std::move(size));
    options.sizes.clear();
    return run(std::move(options), environment, compiled.error().diagnostics.front().message);
  }
  if (!compiled) return report(compiled.error());
  if (!not_dynamic.empty())
    fmt::print("  {:<12}for the sizes of this run, since with dynamic dims: {}\n", "compiled", not_dynamic);
  warn(compiled->warnings);
  const auto inputs = inputs_of(options, compiled->kernel);
  if (!inputs) return report(inputs.error());
  const auto variant = driver::variant_for(compiled->plan, compiled->kernel, inputs->sizes, inputs->scalars);
  if (!variant) return report(variant.error());
  fmt::print("{} for {}: {}\n", compiled->plan.kernel, compiled->plan.device,
             driver::specialisation(compiled->plan.variants[*variant].program));
  const auto outputs = gpu ? on_gpu(*compiled, *inputs) : on_cpu(options, *compiled, *inputs);
  if (!outputs) return report(outputs.error());
  if (auto done = write_results(options, compiled->kernel, *inputs, *outputs); !done) return report(done.error());
  if (options.no_check) return Exit::ok;
  const auto checked = driver::check(compiled->kernel, *inputs, *outputs, options.seed);
  if (!checked) return report(checked.error());
  fmt::print("  {:<12}against the oracle, {}\n", "checked", checked->format());
  return checked->ok() ? Exit::ok : Exit::wrong_results;
}

}  // namespace

void add_run(CLI::App& app, const driver::Environment& environment, Commands& commands) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("run", "run a kernel and compare its results with the oracle");
  options->kernel.declare(*command);
  command->add_option("--on", options->on, "where: gpu, or cpu (the interpreter); gpu if not given")
      ->check(CLI::IsMember({"gpu", "cpu"}));
  command->add_option("--size", options->sizes, "a dynamic dim's size at this run")
      ->allow_extra_args(false)
      ->type_name("NAME=SIZE");
  command->add_option("--seed", options->seed, "of random inputs and of the interpreter's order")
      ->check([](const std::string& text) {
        const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
        return digits ? std::string() : fmt::format("takes a whole number, 0 or more, found '{}'", text);
      })
      ->type_name("NUMBER");
  command->add_option("--input", options->inputs, "an input tensor from a file; others are random")
      ->allow_extra_args(false)
      ->type_name("NAME=FILE.npy");
  command->add_option("--output", options->outputs, "write an output tensor to a file")
      ->allow_extra_args(false)
      ->type_name("NAME=FILE.npy");
  command->add_option("--set", options->scalars, "a scalar's value")->allow_extra_args(false)->type_name("NAME=VALUE");
  command->add_option("--range", options->ranges, "where an input's random values lie")
      ->allow_extra_args(false)
      ->type_name("NAME=LOW:HIGH");
  command->add_flag("--no-check", options->no_check, "do not compare with the oracle");
  commands[command] = [options, &environment] { return run(*options, environment); };
}

}  // namespace pipethreader::tool
