#include "driver/run.h"

#include <algorithm>
#include <map>

#include <unistd.h>

namespace pipethreader::driver {

namespace {

// Refused where what is held is more than the machine has: the system would grant the memory and end the program when
// it is used.
Result<void> fits_memory(const kernel::Kernel& kernel, const std::vector<std::int64_t>& sizes, Held held) {
  const double have = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  double bytes = 0;
  for (std::size_t t = 0; t < kernel.tensors.size(); ++t) {
    if (held == Held::inputs && kernel.tensors[t].output) continue;
    double elements = 1;
    for (const std::int64_t extent : oracle::shape_of(kernel, kernel::TensorId(t), sizes))
      elements *= static_cast<double>(extent);
    bytes += elements * sizeof(double);
  }
  if (have <= 0 || bytes <= have) return {};
  return fail_at({}, {},
                 fmt::format("the {} of '{}' at these sizes take {:.1f} GB in f64, and this machine has {:.1f} GB",
                             held == Held::inputs ? "inputs" : "tensors", kernel.name, bytes / 1e9, have / 1e9),
                 "choose smaller sizes, or run where there is more memory");
}

}  // namespace

Result<std::vector<std::int64_t>> all_sizes(const kernel::Kernel& kernel, const std::vector<kernel::Binding>& sizes,
                                            Held held) {
  std::vector<std::string> missing;
  std::vector<std::int64_t> all;
  std::vector<kernel::Binding> bindings;
  for (const kernel::Binding& given : sizes) {
    const auto dim = std::find_if(kernel.dims.begin(), kernel.dims.end(),
                                  [&](const kernel::Dim& d) { return d.name == given.name; });
    if (dim == kernel.dims.end()) return tl::unexpected(kernel::specialise(kernel, {given}, {}).error());
    if (dim->size && *dim->size != static_cast<std::int64_t>(given.value)) {
      return fail("dim '{}' is fixed at {} and cannot be {}", given.name, *dim->size, given.value);
    }
  }
  for (const kernel::Dim& dim : kernel.dims) {
    const auto given =
        std::find_if(sizes.begin(), sizes.end(), [&](const kernel::Binding& b) { return b.name == dim.name; });
    if (!dim.size && given == sizes.end()) {
      missing.push_back(dim.name);
      continue;
    }
    all.push_back(dim.size ? *dim.size : static_cast<std::int64_t>(given->value));
    if (!dim.size) bindings.push_back(*given);
  }
  if (!missing.empty()) {
    return fail_at(
        {}, {}, fmt::format("'{}' has no size for {}", kernel.name, fmt::join(missing, ", ")),
        fmt::format("fix it when compiling with --dim {0}=..., or give it to a dynamic kernel with --size {0}=...",
                    missing[0]));
  }
  // Specialising checks what the kernel requires of its sizes.
  if (auto fixed = kernel::specialise(kernel, bindings, {}); !fixed) return tl::unexpected(fixed.error());
  if (auto fits = fits_memory(kernel, all, held); !fits) return tl::unexpected(fits.error());
  return all;
}

Result<CpuRun> run_cpu(const Plan& plan, const kernel::Kernel& kernel, const oracle::Inputs& inputs,
                       const interpret::RunOptions& options) {
  const auto variant = variant_for(plan, kernel, inputs.sizes, inputs.scalars);
  if (!variant) return tl::unexpected(variant.error());
  std::map<std::string, std::vector<double>> tensors;  // what one launch leaves, the next one reads
  for (std::size_t t = 0; t < kernel.tensors.size(); ++t) {
    if (!kernel.tensors[t].output) tensors[kernel.tensors[t].name] = inputs.tensors[t].values;
  }
  CpuRun run;
  run.variant = *variant;
  std::vector<const program::Program*> launches = {&plan.variants[*variant].program};
  for (const Variant& join : plan.joins) launches.push_back(&join.program);
  for (const program::Program* program : launches) {
    auto params = parameters(*program, kernel, inputs.sizes, inputs.scalars);
    if (!params) return tl::unexpected(params.error());
    interpret::Arguments arguments;
    arguments.params = std::move(*params);
    for (const program::Tensor& tensor : program->tensors)
      arguments.tensors.push_back(tensor.output ? std::vector<double>{} : tensors.at(tensor.name));
    const auto report = interpret::run(*program, arguments, options);
    if (!report) return tl::unexpected(report.error().error());
    if (program == launches.front()) {
      run.report = *report;
    } else {
      run.report.steps += report->steps;
    }
    for (std::size_t t = 0; t < program->tensors.size(); ++t) {
      if (program->tensors[t].output) tensors[program->tensors[t].name] = std::move(arguments.tensors[t]);
    }
  }
  for (const kernel::Tensor& tensor : kernel.tensors) {
    if (tensor.output) run.outputs.push_back(std::move(tensors.at(tensor.name)));
  }
  return run;
}

}  // namespace pipethreader::driver
