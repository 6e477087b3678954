// What each stage makes of three kernels at fixed sizes and choices, as reviewed text. The choices are fixed here, so
// that the search may change; recorded anew by scripts/record_golden.sh.
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "driver/compiler.h"

namespace pipethreader::driver {
namespace {

const std::string root = PIPETHREADER_SOURCE_DIR;

struct Kernel {
  std::string name;
  std::vector<kernel::Binding> dims;
  Forced choices;
  bool cuda = false;  // its source too
};

void PrintTo(const Kernel& kernel, std::ostream* out) { *out << kernel.name; }

std::vector<Kernel> kernels() {
  const Forced plain = {{"order", "single"}, {"raster", "1"}, {"cluster", "1"}, {"staged", "off"}};
  const auto with = [&](Forced more) {
    more.insert(more.end(), plain.begin(), plain.end());
    return more;
  };
  return {
      {"matmul",
       {{"M", 256}, {"N", 256}, {"K", 1024}},
       with({{"row", "128"},
             {"column", "128"},
             {"stream", "64"},
             {"lanes", "2"},
             {"overlap", "deferred"},
             {"depth", "3"},
             {"turns", "off"}})},
      {"flash_attention",
       {{"B", 1}, {"H", 2}, {"G", 1}, {"S", 256}, {"T", 256}, {"D", 64}},
       with({{"row", "128"},
             {"stream", "64"},
             {"lanes", "2"},
             {"overlap", "delayed"},
             {"depth", "2"},
             {"turns", "on"}})},
      {"rms_norm",
       {{"M", 64}, {"N", 256}},
       with({{"row", "64"}, {"lanes", "1"}, {"overlap", "serial"}, {"depth", "1"}, {"turns", "off"}}),
       true},
  };
}

std::string read(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// Compares with tests/golden/stages/<kernel>.<stage>.txt, or writes it.
void expect_golden(const std::string& kernel, const std::string& stage, const std::string& found) {
  const std::string path = root + "/tests/golden/stages/" + kernel + "." + stage + ".txt";
  if (std::getenv("PIPETHREADER_RECORD") != nullptr) {
    std::ofstream(path) << found;
    return;
  }
  EXPECT_EQ(read(path), found) << path << " differs; if that is meant, record it with scripts/record_golden.sh and "
                               << "review the difference";
}

class StagesGolden : public ::testing::TestWithParam<Kernel> {};

TEST_P(StagesGolden, AreAsReviewed) {
  const Kernel& kernel = GetParam();
  auto loaded = load_kernel(root + "/kernels/" + kernel.name + ".stask");
  ASSERT_TRUE(loaded) << loaded.error().format();
  CompileRequest request;
  request.kernel = std::move(*loaded);
  request.dims = kernel.dims;
  auto device = device::load_device(root + "/devices/h100.toml");
  ASSERT_TRUE(device) << device.error().format();
  request.device = std::move(*device);
  Choices choices;
  ASSERT_TRUE(force(choices, kernel.choices));
  const auto staged = compile_stages(request, choices);
  ASSERT_TRUE(staged) << staged.error().format();
  const Lowered& l = staged->lowered;
  expect_golden(kernel.name, "task", task::print(l.graph));
  expect_golden(kernel.name, "partition", partition::print(l.graph, l.partition));
  expect_golden(kernel.name, "layout", partition::print(l.graph, l.partition, l.assignment));
  expect_golden(kernel.name, "schedule", schedule::print(l.graph, l.schedule));
  expect_golden(kernel.name, "program", program::print(l.program));
  if (kernel.cuda) expect_golden(kernel.name, "cuda", staged->printed.source.text);
}

INSTANTIATE_TEST_SUITE_P(Kernels, StagesGolden, ::testing::ValuesIn(kernels()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace pipethreader::driver
