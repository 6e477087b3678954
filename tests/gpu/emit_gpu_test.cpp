// Emitted kernels on the card: every example against plain loops, every instruction against the interpreter. Outputs
// are poisoned before each launch, and each kernel runs several times, so that a forgotten counter or phase shows.
// Skipped, with the driver's reason, where there is no Hopper card.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "emit/emit.h"
#include "interpret/interpret.h"
#include "program/legalise.h"
#include "runtime/driver.h"
#include "runtime/host_array.h"
#include "runtime/nvrtc.h"
#include "support/instruction_programs.h"
#include "support/programs.h"
#include "support/reference.h"

namespace pipethreader::emit {
namespace {

using interpret::Arguments;
using runtime::DeviceBuffer;
using runtime::Gpu;

constexpr int kLaunches = 3;

runtime::TensorSwizzle swizzle_of(program::Swizzle swizzle) {
  switch (swizzle) {
    case program::Swizzle::bytes32:
      return runtime::TensorSwizzle::bytes_32;
    case program::Swizzle::bytes64:
      return runtime::TensorSwizzle::bytes_64;
    case program::Swizzle::bytes128:
      return runtime::TensorSwizzle::bytes_128;
    case program::Swizzle::none:
      break;
  }
  return runtime::TensorSwizzle::none;
}

template <class T>
T need(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().format());
  return *std::move(result);
}
void need(const Result<void>& result) {
  if (!result) throw std::runtime_error(result.error().format());
}

class OnGpu : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto gpu = Gpu::open(0);
    if (!gpu) GTEST_SKIP() << gpu.error().format();
    gpu_ = std::move(*gpu);
    if (gpu_.properties().compute_major != 9) GTEST_SKIP() << gpu_.properties().name << " is no Hopper card";
    auto nvrtc = runtime::Nvrtc::open();
    if (!nvrtc) GTEST_SKIP() << nvrtc.error().format();
    nvrtc_ = std::move(*nvrtc);
  }

  // Compiles and keeps a program for the launches of one test.
  void prepare(const program::Program& program) {
    program_ = need(program::legalise(program, gpu_.properties().shared_bytes_per_block));
    cuda_ = need(emit_unproved(program_));
    runtime::CompileRequest request;
    request.name = cuda_.entry + ".cu";
    request.source = cuda_.text;
    const auto compiled = need(nvrtc_.compile(request));
    function_ = need(need(gpu_.load(compiled.cubin)).function(cuda_.entry));
  }

  // The output after one launch on poisoned memory.
  std::vector<double> launch(const Arguments& arguments) {
    std::vector<DeviceBuffer> tensors;
    std::size_t output = 0, count = 1;
    for (std::size_t t = 0; t < program_.tensors.size(); ++t) {
      const program::Tensor& tensor = program_.tensors[t];
      std::vector<double> values = arguments.tensors[t];
      if (tensor.output) {
        output = t;
        for (const auto extent : tensor.shape)
          count *= static_cast<std::size_t>(program::evaluate(program_, extent, arguments.params));
        values.assign(count, is_floating(tensor.type) ? std::nan("") : 99);
      }
      tensors.push_back(need(gpu_.upload(runtime::pack(tensor.type, values))));
    }
    if (!counter_) counter_ = need(gpu_.upload(runtime::pack(ScalarType::i32, std::vector<double>{0})));
    runtime::KernelArguments list;
    for (const Argument& argument : cuda_.arguments) add(list, argument, arguments, tensors);

    runtime::LaunchConfig config;
    config.grid.x = static_cast<unsigned>(cuda_.launch.grid(program_, arguments.params, gpu_.properties().sm_count));
    config.block.x = static_cast<unsigned>(cuda_.launch.threads);
    config.cluster.x = static_cast<unsigned>(cuda_.launch.cluster);
    config.dynamic_shared_bytes = static_cast<std::size_t>(cuda_.launch.shared_bytes);
    const runtime::Stream stream = need(gpu_.create_stream());
    need(gpu_.launch(function_, config, list, stream));
    need(stream.synchronize());
    std::vector<std::byte> bytes(tensors[output].bytes());
    need(tensors[output].download(bytes));
    return runtime::unpack(program_.tensors[output].type, bytes, count);
  }

  Gpu gpu_;
  runtime::Nvrtc nvrtc_;
  program::Program program_;
  CudaSource cuda_;

 private:
  void add(runtime::KernelArguments& list, const Argument& argument, const Arguments& arguments,
           const std::vector<DeviceBuffer>& tensors) {
    const auto i = static_cast<std::size_t>(argument.index);
    switch (argument.kind) {
      case Argument::Kind::tensor:
        list.add(tensors[i]);
        return;
      case Argument::Kind::param:
        if (is_floating(argument.type))
          list.add(static_cast<float>(arguments.params[i]));
        else
          list.add(static_cast<std::int32_t>(arguments.params[i]));
        return;
      case Argument::Kind::map:
        list.add(need(gpu_.encode(description(argument, arguments.params, tensors))));
        return;
      case Argument::Kind::counter:
        list.add(*counter_);
        return;
    }
  }

  [[nodiscard]] runtime::TensorMapDescription description(const Argument& argument, const std::vector<double>& params,
                                                          const std::vector<DeviceBuffer>& tensors) const {
    const program::TensorMap& map = program_.maps[static_cast<std::size_t>(argument.index)];
    runtime::TensorMapDescription result;
    result.type = argument.type;
    result.base = tensors[static_cast<std::size_t>(map.tensor.index)].address();
    result.swizzle = swizzle_of(map.swizzle);
    for (std::size_t d = 0; d < map.dims.size(); ++d) {
      // The driver encodes no dim of extent 0; nothing is read of one.
      const auto at_least = [&](std::int64_t least, program::ExprId size, int bytes) {
        return static_cast<std::uint64_t>(std::max(least, program::evaluate(program_, size, params) * bytes));
      };
      result.sizes.push_back(at_least(1, map.dims[d].extent, 1));
      if (d > 0) result.byte_strides.push_back(at_least(16, map.dims[d].stride, bits(argument.type) / 8));
      result.box.push_back(static_cast<std::uint32_t>(argument.box[d]));
      result.element_strides.push_back(static_cast<std::uint32_t>(argument.steps[d]));
    }
    return result;
  }

  runtime::Function function_;
  std::optional<DeviceBuffer> counter_;
};

class ExampleOnGpu : public OnGpu {};

TEST_P(ExampleOnGpu, ComputesTheReference) {
  prepare(test::example_program(GetParam()));
  for (const std::vector<double>& params : test::sizes_for(GetParam())) {
    SCOPED_TRACE(fmt::format("sizes {}", fmt::join(params, " ")));
    const Arguments arguments = test::random_arguments(program_, params, 5);
    const std::vector<test::Expected> expected = test::reference(GetParam(), arguments);
    for (int repeat = 0; repeat < kLaunches; ++repeat) {
      const std::vector<double> found = launch(arguments);
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i)
        ASSERT_TRUE(std::fabs(found[i] - expected[i].value) <= expected[i].error)
            << "element " << i << ": " << found[i] << ", expected " << expected[i].value << " +- " << expected[i].error;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Examples, ExampleOnGpu, ::testing::ValuesIn(test::example_programs()),
                         [](const auto& example) { return example.param; });

class InstructionOnGpu : public OnGpu {};

TEST_P(InstructionOnGpu, DoesWhatTheInterpreterDoes) {
  for (const test::InstructionProgram& instruction : test::instruction_programs()) {
    if (instruction.name != GetParam()) continue;
    prepare(need(program::parse(instruction.text, instruction.name)));
    Arguments arguments = test::instruction_arguments(program_, instruction, 1);
    std::vector<std::vector<double>> found;
    for (int repeat = 0; repeat < kLaunches; ++repeat) found.push_back(launch(arguments));
    const auto report = interpret::run(program_, arguments);
    ASSERT_TRUE(report) << report.error().format();
    for (std::size_t t = 0; t < program_.tensors.size(); ++t) {
      if (!program_.tensors[t].output) continue;
      const std::vector<double>& expected = arguments.tensors[t];
      for (const std::vector<double>& one : found) {
        ASSERT_EQ(one.size(), expected.size());
        for (std::size_t i = 0; i < one.size(); ++i)
          ASSERT_TRUE(test::agree(program_.tensors[t].type, one[i], expected[i], instruction.ulps))
              << "element " << i << ": " << one[i] << ", expected " << expected[i];
      }
    }
  }
}

std::vector<std::string> instruction_names() {
  std::vector<std::string> names;
  for (const auto& instruction : test::instruction_programs()) names.push_back(instruction.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Instructions, InstructionOnGpu, ::testing::ValuesIn(instruction_names()),
                         [](const auto& instruction) { return instruction.param; });

}  // namespace
}  // namespace pipethreader::emit
