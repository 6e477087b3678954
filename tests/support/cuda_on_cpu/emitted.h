// Builds emitted sources for the machine of cuda_on_cpu.h, as one library, and launches them. For tests that include
// emit/, program/, interpret/ and runtime/ headers themselves.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "emit/emit.h"
#include "interpret/interpret.h"
#include "runtime/host_array.h"
#include "support/cuda_on_cpu/tensor_map.h"

namespace pipethreader::test {

using emit::Argument;
using emit::CudaSource;

constexpr int units_on_cpu = 3;  // "execution units" that a persistent grid fills

[[nodiscard]] inline bool has_compiler() { return std::system("g++ --version > /dev/null 2>&1") == 0; }

inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// Product functions are made for each source: "mma_64x128x16_f16_registers_tb" becomes an instance of issue_product.
inline std::string product_functions(const std::string& source) {
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

// The kernel alone, and an entry that runs some blocks of its grid, in a namespace of their own.
inline std::string cpu_source(const CudaSource& cuda) {
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
      "namespace of_{0} {{\n{1}\n{2}\n}}\n"
      "extern \"C\" const char* run_{0}(void** a, unsigned grid, unsigned first, unsigned count, unsigned seed) {{\n"
      "  static std::string failure;\n"
      "  failure = cpu::run([a] {{ of_{0}::{0}({3}); }}, grid, first, count, {4}, {5}, {6}, seed);\n"
      "  return failure.c_str();\n"
      "}}\n",
      cuda.entry, product_functions(cuda.text), kernel, arguments, cuda.launch.threads, cuda.launch.cluster,
      cuda.launch.shared_bytes);
}

class CpuLibrary {
 public:
  using Run = const char* (*)(void**, unsigned, unsigned, unsigned, unsigned);

  explicit CpuLibrary(const std::vector<std::string>& sources) {
    std::string pattern = (std::filesystem::temp_directory_path() / "emit_on_cpu_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    const auto file = folder_ / "kernel.cpp";
    std::ofstream out(file);
    out << fmt::format("#include \"{}/tests/support/cuda_on_cpu/cuda_on_cpu.h\"\n", PIPETHREADER_SOURCE_DIR);
    for (const std::string& source : sources) out << source;
    out.close();
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
  CpuLibrary(const CpuLibrary&) = delete;
  CpuLibrary& operator=(const CpuLibrary&) = delete;
  ~CpuLibrary() {
    if (handle_ != nullptr) dlclose(handle_);
    std::filesystem::remove_all(folder_);
  }
  [[nodiscard]] const std::string& error() const { return error_; }
  // Runs the whole grid: blocks of `single` programs in small batches, all others at once. Gives what went wrong.
  [[nodiscard]] std::string run(const program::Program& program, const CudaSource& cuda, void** pointers,
                                const std::vector<double>& params, unsigned seed) const {
    const auto run_blocks = reinterpret_cast<Run>(dlsym(handle_, ("run_" + cuda.entry).c_str()));
    if (run_blocks == nullptr) return "no such kernel";
    const auto grid = static_cast<unsigned>(cuda.launch.grid(program, params, units_on_cpu));
    const bool single = cuda.launch.order == program::WorkOrder::single;
    const unsigned batch = single ? static_cast<unsigned>(2 * cuda.launch.cluster) : grid;
    for (unsigned first = 0; first < grid; first += batch) {
      const std::string failure = run_blocks(pointers, grid, first, std::min(batch, grid - first), seed);
      if (!failure.empty()) return failure;
    }
    return {};
  }

 private:
  std::filesystem::path folder_;
  void* handle_ = nullptr;
  std::string error_;
};

// The arguments of one launch, in memory.
class CpuLaunch {
 public:
  CpuLaunch(const program::Program& program, const CudaSource& cuda, const interpret::Arguments& arguments) {
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

}  // namespace pipethreader::test
