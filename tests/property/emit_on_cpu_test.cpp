// Emitted kernels executed on the CPU: the printed source, with its device functions replaced by a machine that knows
// the PTX ISA (tests/support/cuda_on_cpu), against plain loops. Skipped where there is no C++ compiler to build with.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "emit/emit.h"
#include "program/legalise.h"
#include "runtime/host_array.h"
#include "support/cuda_on_cpu/tensor_map.h"
#include "support/programs.h"
#include "support/reference.h"

namespace pipethreader::emit {
namespace {

using interpret::Arguments;

constexpr std::int64_t kSharedLimit = 232448;
constexpr int kUnits = 3;  // "execution units" that a persistent grid fills

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// Product functions are made for each source: "mma_64x128x16_f16_registers_tb" becomes an instance of issue_product.
std::string product_functions(const std::string& source) {
  std::string text;
  const std::string start = "__device__ __forceinline__ void mma_64x";
  for (std::size_t at = 0; (at = source.find(start, at)) != std::string::npos; at += start.size()) {
    const std::size_t from = source.find("mma_64x", at);
    const std::string name = source.substr(from, source.find('(', from) - from);
    const auto has = [&](const std::string& part) { return name.find(part) != std::string::npos ? "true" : "false"; };
    text += fmt::format("template <class... A> void {}(A&&... a) {{ issue_product<{}, {}, {}, {}, {}>(a...); }}\n",
                        name, std::stoi(name.substr(7)), has("_bf16"), has("_registers"), has("_ta"), has("_tb"));
  }
  return text;
}

// The kernel alone, and an entry that runs some blocks of its grid.
std::string cpu_source(const CudaSource& cuda) {
  std::string kernel = cuda.text.substr(cuda.text.find("extern \"C\" __global__"));
  kernel = replaced(kernel, "extern __shared__ __align__(1024) unsigned char shared_memory[];", "");
  kernel = replaced(kernel, "const __grid_constant__ TensorMap ", "const TensorMap& ");
  std::string arguments;
  for (std::size_t i = 0; i < cuda.arguments.size(); ++i) {
    const Argument& argument = cuda.arguments[i];
    std::string type = "const TensorMap";
    if (argument.kind == Argument::Kind::param) type = is_floating(argument.type) ? "float" : "int";
    if (argument.kind == Argument::Kind::counter) type = "unsigned*";
    if (argument.kind == Argument::Kind::tensor)
      type = bits(argument.type) == 32         ? (is_floating(argument.type) ? "float*" : "int*")
             : bits(argument.type) == 16       ? "unsigned short*"
             : argument.type == ScalarType::i8 ? "signed char*"
                                               : "unsigned char*";
    arguments += fmt::format("{}*static_cast<{}*>(a[{}])", i > 0 ? ", " : "", type, i);
  }
  return fmt::format(
      "#include \"{}/tests/support/cuda_on_cpu/cuda_on_cpu.h\"\n{}\n{}\n"
      "extern \"C\" const char* run_blocks(void** a, unsigned grid, unsigned first, unsigned count, unsigned seed) {{\n"
      "  static std::string failure;\n"
      "  failure = cpu::run([a] {{ {}({}); }}, grid, first, count, {}, {}, {}, seed);\n"
      "  return failure.c_str();\n"
      "}}\n",
      PIPETHREADER_SOURCE_DIR, product_functions(cuda.text), kernel, cuda.entry, arguments, cuda.launch.threads,
      cuda.launch.cluster, cuda.launch.shared_bytes);
}

class Library {
 public:
  using Run = const char* (*)(void**, unsigned, unsigned, unsigned, unsigned);

  explicit Library(const std::string& source) {
    std::string pattern = (std::filesystem::temp_directory_path() / "emit_on_cpu_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    const auto file = folder_ / "kernel.cpp";
    std::ofstream(file) << source;
    const std::string command = fmt::format("g++ -std=c++20 -O1 -w -shared -fPIC -o {0}/kernel.so {1} > {0}/log 2>&1",
                                            folder_.string(), file.string());
    if (std::system(command.c_str()) != 0) {
      std::ifstream log(folder_ / "log");
      error_ = {std::istreambuf_iterator<char>(log), {}};
      return;
    }
    handle_ = dlopen((folder_ / "kernel.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) error_ = dlerror();
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() {
    if (handle_ != nullptr) dlclose(handle_);
    std::filesystem::remove_all(folder_);
  }
  [[nodiscard]] const std::string& error() const { return error_; }
  [[nodiscard]] Run run() const { return reinterpret_cast<Run>(dlsym(handle_, "run_blocks")); }

 private:
  std::filesystem::path folder_;
  void* handle_ = nullptr;
  std::string error_;
};

// The arguments of one launch, in memory.
class Launch {
 public:
  Launch(const program::Program& program, const CudaSource& cuda, const Arguments& arguments) {
    for (std::size_t t = 0; t < program.tensors.size(); ++t) {
      const program::Tensor& tensor = program.tensors[t];
      std::vector<double> values = arguments.tensors[t];
      if (tensor.output) {
        std::size_t count = 1;
        for (const auto extent : tensor.shape)
          count *= static_cast<std::size_t>(program::evaluate(program, extent, arguments.params));
        values.assign(count, std::nan(""));  // poison
      }
      memory_.push_back(runtime::pack(tensor.type, values));
      addresses_.push_back(memory_.back().data());
    }
    for (std::size_t m = 0; m < program.maps.size(); ++m) maps_.push_back(map(program, cuda, m, arguments.params));
    ints_.reserve(cuda.arguments.size());
    floats_.reserve(cuda.arguments.size());
    for (const Argument& a : cuda.arguments) {
      const auto i = static_cast<std::size_t>(a.index);
      switch (a.kind) {
        case Argument::Kind::tensor:
          pointers_.push_back(&addresses_[i]);
          break;
        case Argument::Kind::param:
          if (is_floating(a.type)) {
            floats_.push_back(static_cast<float>(arguments.params[i]));
            pointers_.push_back(&floats_.back());
          } else {
            ints_.push_back(static_cast<int>(arguments.params[i]));
            pointers_.push_back(&ints_.back());
          }
          break;
        case Argument::Kind::map:
          pointers_.push_back(&maps_[i]);
          break;
        case Argument::Kind::counter:
          pointers_.push_back(&counter_address_);
          break;
      }
    }
  }

  [[nodiscard]] void** pointers() { return pointers_.data(); }
  [[nodiscard]] unsigned counter() const { return counter_; }
  [[nodiscard]] std::vector<double> tensor(std::size_t t, ScalarType type, std::size_t count) const {
    return runtime::unpack(type, memory_[t], count);
  }

 private:
  TensorMap map(const program::Program& program, const CudaSource& cuda, std::size_t m,
                const std::vector<double>& params) {
    const program::TensorMap& from = program.maps[m];
    const ScalarType type = program[from.tensor].type;
    TensorMap result;
    result.base = reinterpret_cast<unsigned char*>(memory_[static_cast<std::size_t>(from.tensor.index)].data());
    result.element_bytes = bits(type) / 8;
    result.swizzle = program::swizzle_bytes(from.swizzle);
    for (const auto& dim : from.dims) {
      result.extents.push_back(program::evaluate(program, dim.extent, params));
      result.byte_strides.push_back(program::evaluate(program, dim.stride, params) * result.element_bytes);
    }
    for (const Argument& a : cuda.arguments)
      if (a.kind == Argument::Kind::map && a.index == static_cast<int>(m)) {
        result.steps = a.steps;
        for (std::size_t d = 0; d < a.box.size(); ++d) result.box.push_back((a.box[d] + a.steps[d] - 1) / a.steps[d]);
      }
    return result;
  }

  std::vector<std::vector<std::byte>> memory_;
  std::vector<void*> addresses_;
  std::vector<TensorMap> maps_;
  std::vector<int> ints_;
  std::vector<float> floats_;
  std::vector<void*> pointers_;
  unsigned counter_ = 0;
  unsigned* counter_address_ = &counter_;
};

// Blocks of `single` programs run in small batches, all others at once.
std::string run_all(const Library& library, const CudaSource& cuda, const program::Program& program, Launch& launch,
                    const std::vector<double>& params, unsigned seed) {
  const auto grid = static_cast<unsigned>(cuda.launch.grid(program, params, kUnits));
  const bool single = cuda.launch.order == program::WorkOrder::single;
  const unsigned batch = single ? static_cast<unsigned>(2 * cuda.launch.cluster) : grid;
  for (unsigned first = 0; first < grid; first += batch) {
    const std::string failure = library.run()(launch.pointers(), grid, first, std::min(batch, grid - first), seed);
    if (!failure.empty()) return failure;
  }
  return {};
}

class EmittedOnCpu : public ::testing::TestWithParam<std::string> {};

TEST_P(EmittedOnCpu, ComputesTheReference) {
  if (std::system("g++ --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no g++ to build the emitted source with";
  const auto program = program::legalise(test::example_program(GetParam()), kSharedLimit);
  ASSERT_TRUE(program) << program.error().format();
  const auto cuda = emit_unproved(*program);
  ASSERT_TRUE(cuda) << cuda.error().format();
  const Library library(cpu_source(*cuda));
  ASSERT_EQ(library.error(), "");
  for (const std::vector<double>& params : test::sizes_for(GetParam()))
    for (unsigned seed = 0; seed < 4; ++seed) {
      SCOPED_TRACE(fmt::format("sizes {}, seed {}", fmt::join(params, " "), seed));
      const Arguments arguments = test::random_arguments(*program, params, seed + 11);
      Launch launch(*program, *cuda, arguments);
      ASSERT_EQ(run_all(library, *cuda, *program, launch, params, seed), "");
      EXPECT_EQ(launch.counter(), 0U) << "a launch leaves its counter as it found it";
      const std::vector<test::Expected> expected = test::reference(GetParam(), arguments);
      for (std::size_t t = 0; t < program->tensors.size(); ++t) {
        if (!program->tensors[t].output) continue;
        const auto found = launch.tensor(t, program->tensors[t].type, expected.size());
        for (std::size_t i = 0; i < found.size(); ++i)
          ASSERT_TRUE(std::fabs(found[i] - expected[i].value) <= expected[i].error)
              << "element " << i << ": " << found[i] << ", expected " << expected[i].value << " +- "
              << expected[i].error;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Examples, EmittedOnCpu, ::testing::ValuesIn(test::example_programs()),
                         [](const auto& example) { return example.param; });

}  // namespace
}  // namespace pipethreader::emit
