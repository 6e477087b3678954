// How busy units were: work that is known over time that is measured.
#include "driver/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pipethreader::driver {
namespace {

using ::testing::HasSubstr;

const std::string root = PIPETHREADER_SOURCE_DIR;

struct Explained {
  device::Device device;
  Staged staged;
  simulate::Timeline timeline;
};

Explained matmul(std::vector<kernel::Binding> dims) {
  CompileRequest request;
  request.kernel = *load_kernel(root + "/kernels/matmul.stask");
  request.dims = std::move(dims);
  request.device = *device::load_device(root + "/devices/h200.toml");
  request.forced = {{"row", "128"}, {"column", "128"}, {"lanes", "2"}, {"order", "persistent"}, {"cluster", "1"}};
  auto staged = compile_stages(request);
  EXPECT_TRUE(staged) << staged.error().format();
  const Lowered& l = staged->lowered;
  auto timeline = simulate::simulate(l.graph, l.partition, l.assignment, l.schedule, request.device, 8);
  return {request.device, std::move(*staged), std::move(timeline)};
}

// "TensorCore  62%  31%": the two numbers of a line.
std::pair<int, int> loads(const std::string& table, const std::string& unit) {
  int predicted = -1, measured = -1;
  const std::size_t at = table.find(unit);
  EXPECT_NE(at, std::string::npos) << table;
  if (at == std::string::npos) return {predicted, measured};
  EXPECT_EQ(std::sscanf(table.c_str() + at + unit.size(), "%d%%%d%%", &predicted, &measured), 2) << table;
  return {predicted, measured};
}

TEST(ExplainMeasured, DividesTheWorkByTheTime) {
  const Explained e = matmul({{"M", 4096}, {"N", 4096}, {"K", 4096}});
  const double items = 32 * 32;
  const double as_predicted =
      items / e.device.execution_units * e.timeline.work_cycles / e.device.clock.burst_ghz / 1000;
  const auto same = explain_measured(e.staged, e.device, e.timeline, as_predicted);
  ASSERT_TRUE(same) << same.error().format();
  const auto [predicted, measured] = loads(*same, "TensorCore");
  EXPECT_EQ(predicted, measured);
  EXPECT_GT(predicted, 20);
  const auto slower = explain_measured(e.staged, e.device, e.timeline, 2 * as_predicted);
  ASSERT_TRUE(slower);
  EXPECT_NEAR(loads(*slower, "TensorCore").second, predicted / 2.0, 1);
}

TEST(ExplainMeasured, NeedsFixedSizes) {
  const Explained e = matmul({{"N", 4096}, {"K", 4096}});
  const auto table = explain_measured(e.staged, e.device, e.timeline, 100);
  ASSERT_FALSE(table);
  EXPECT_THAT(table.error().format(), HasSubstr("axis 'm' is dynamic, fix it with --dim"));
}

}  // namespace
}  // namespace pipethreader::driver
