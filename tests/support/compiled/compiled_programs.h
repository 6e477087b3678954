// Device programs as the compiler makes them: kernels of the library at small sizes, with choices that together use all
// that a schedule can have (overlap, several lanes, turns, staged stores, clusters, persistent and dynamic order). For
// tests that include driver/, interpret/, kernel/, oracle/ and program/ headers themselves.
#pragma once

#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "driver/pipeline.h"
#include "interpret/interpret.h"
#include "kernel/kernel.h"
#include "oracle/oracle.h"
#include "program/program.h"

namespace pipethreader::test {

struct CompiledProgram {
  std::string name;
  kernel::Kernel kernel;  // dims may be dynamic
  program::Program program;
  std::vector<std::vector<std::int64_t>> sizes;  // by DimId: small, with several tiles and ragged edges
};

namespace compiled {

using Sizes = std::vector<std::pair<std::string, std::int64_t>>;

template <class T>
T valid(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().format());
  return *std::move(result);
}

inline kernel::Kernel library(const std::string& stem) {
  const std::string path = PIPETHREADER_SOURCE_DIR "/kernels/" + stem + ".stask";
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return valid(kernel::check(valid(kernel::parse(text, path)).front()));
}

struct Recipe {
  std::string name;
  std::string stem;
  Sizes fixed;               // these dims are static
  std::vector<Sizes> sizes;  // of the others
  driver::Choices choices;
};

using partition::Order;
using schedule::Overlap;

inline driver::Choices choices(int row, int column, int stream, int lanes, Order order, Overlap overlap, int depth) {
  driver::Choices c;
  c.partition.row = row;
  c.partition.column = column;
  c.partition.stream = stream;
  c.partition.lanes = lanes;
  c.partition.order = order;
  c.schedule.overlap = overlap;
  c.schedule.depth = depth;
  return c;
}

inline driver::Choices clustered(driver::Choices c) {
  c.partition.cluster = 2;
  return c;
}
inline driver::Choices beside(const std::string& axis, driver::Choices c) {
  c.partition.along = axis;
  return clustered(std::move(c));
}
inline driver::Choices sharing_sums(driver::Choices c) {
  c.partition.share_sums = true;
  return c;
}
inline driver::Choices turning(driver::Choices c) {
  c.schedule.turns = true;
  return c;
}
inline driver::Choices staged(driver::Choices c) {
  c.schedule.staged_stores = true;
  return c;
}

inline std::vector<Recipe> recipes() {
  const std::vector<Sizes> products = {{{"M", 200}, {"N", 72}, {"K", 104}}, {{"M", 136}, {"N", 136}, {"K", 16}}};
  const std::vector<Sizes> lengths = {{{"S", 200}, {"T", 136}}, {{"S", 72}, {"T", 40}}};
  const Sizes heads = {{"B", 1}, {"H", 2}, {"G", 1}, {"D", 32}};
  return {
      {"product", "matmul", {}, products, choices(128, 64, 32, 2, Order::persistent, Overlap::delayed, 3)},
      {"product_in_turns",
       "matmul",
       {},
       products,
       turning(choices(128, 64, 32, 2, Order::dynamic, Overlap::delayed, 2))},
      {"product_in_a_cluster",
       "matmul",
       {{"M", 256}, {"N", 64}, {"K", 104}},
       {{}},
       clustered(choices(64, 64, 32, 1, Order::persistent, Overlap::deferred, 2))},
      {"product_staged",
       "matmul",
       {{"M", 200}, {"N", 136}, {"K", 72}},
       {{}},
       staged(choices(128, 64, 32, 2, Order::persistent, Overlap::delayed, 2))},
      {"product_of_shared_sums",
       "matmul",
       {},
       products,
       sharing_sums(choices(64, 64, 64, 2, Order::persistent, Overlap::deferred, 2))},
      {"state_beside",
       "chunk_state",
       {{"B", 1}, {"C", 2}, {"G", 1}, {"H", 2}, {"L", 136}, {"P", 32}, {"N", 32}},
       {{}},
       beside("h", choices(64, 32, 32, 1, Order::dynamic, Overlap::serial, 2))},
      {"attention", "flash_attention", heads, lengths, choices(128, 32, 32, 2, Order::persistent, Overlap::delayed, 2)},
      {"attention_in_turns", "flash_attention", heads, lengths,
       turning(choices(128, 32, 48, 2, Order::single, Overlap::delayed, 2))},
      {"attention_staged",
       "flash_attention",
       {{"B", 1}, {"H", 2}, {"G", 2}, {"D", 64}, {"S", 136}, {"T", 136}},
       {{}},
       staged(choices(64, 64, 32, 1, Order::persistent, Overlap::deferred, 3))},
      {"scan",
       "chunk_scan",
       {{"B", 1}, {"C", 2}, {"G", 1}, {"H", 1}, {"L", 136}, {"P", 32}, {"N", 32}},
       {{}},
       choices(64, 32, 32, 1, Order::dynamic, Overlap::delayed, 2)},
      {"gated",
       "gated_ffn",
       {{"M", 256}, {"N", 72}, {"K", 72}},
       {{}},
       clustered(staged(choices(64, 32, 32, 1, Order::persistent, Overlap::delayed, 2)))},
      {"gated_dynamic",
       "gated_ffn",
       {},
       {products[0]},
       choices(64, 32, 32, 1, Order::persistent, Overlap::deferred, 2)},
      {"norm", "rms_norm", {{"N", 136}}, {{{"M", 7}}}, choices(64, 64, 64, 1, Order::persistent, Overlap::serial, 1)},
  };
}

}  // namespace compiled

// Throws std::runtime_error when one does not compile.
inline std::vector<CompiledProgram> compiled_programs() {
  using namespace compiled;
  const device::Device device = valid(device::load_device(PIPETHREADER_SOURCE_DIR "/devices/h100.toml"));
  std::vector<CompiledProgram> programs;
  for (const Recipe& recipe : recipes()) {
    std::vector<kernel::Binding> fixed;
    for (const auto& [name, size] : recipe.fixed) fixed.push_back({name, static_cast<double>(size)});
    CompiledProgram compiled{recipe.name, valid(kernel::specialise(library(recipe.stem), fixed, {})), {}, {}};
    compiled.program = valid(driver::lower_kernel(compiled.kernel, device, recipe.choices)).program;
    for (const Sizes& sizes : recipe.sizes) {
      auto& by_dim = compiled.sizes.emplace_back();
      for (const kernel::Dim& dim : compiled.kernel.dims) {
        std::int64_t size = dim.size.value_or(0);
        for (const auto& [name, value] : sizes) size = name == dim.name ? value : size;
        by_dim.push_back(size);
      }
    }
    programs.push_back(std::move(compiled));
  }
  return programs;
}

// A program's arguments for the inputs of the kernel it was made from; outputs are empty.
inline interpret::Arguments arguments_for(const program::Program& program, const kernel::Kernel& kernel,
                                          const oracle::Inputs& inputs) {
  interpret::Arguments arguments;
  for (const program::Param& param : program.params) {
    double value = 0;
    for (std::size_t i = 0; i < kernel.dims.size(); ++i) {
      if (kernel.dims[i].name == param.name) value = static_cast<double>(inputs.sizes[i]);
    }
    for (std::size_t i = 0; i < kernel.scalars.size(); ++i) {
      if (kernel.scalars[i].name == param.name) value = inputs.scalars[i];
    }
    arguments.params.push_back(value);
  }
  for (std::size_t t = 0; t < kernel.tensors.size(); ++t) {
    arguments.tensors.push_back(kernel.tensors[t].output ? std::vector<double>{} : inputs.tensors[t].values);
  }
  return arguments;
}

// The outputs of a run beside what the oracle says: empty, or what differs.
inline std::string difference(const kernel::Kernel& kernel, const oracle::Outputs& expected,
                              const interpret::Arguments& arguments) {
  std::vector<std::vector<double>> actual;
  for (std::size_t t = 0; t < kernel.tensors.size(); ++t) {
    if (kernel.tensors[t].output) actual.push_back(arguments.tensors[t]);
  }
  const auto report = oracle::compare(expected, actual);
  if (!report) return report.error().format();
  return report->ok() ? std::string() : report->format();
}

}  // namespace pipethreader::test
