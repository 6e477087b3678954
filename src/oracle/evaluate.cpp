#include "oracle/machine.h"
#include "oracle/oracle.h"

namespace pipethreader::oracle {
namespace {

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
