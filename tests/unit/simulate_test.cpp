// The timing simulator: what must hold of any timeline, and how it answers to the schedule.
#include <map>

#include <gtest/gtest.h>

#include "driver/candidates.h"
#include "driver/compiler.h"
#include "driver/pipeline.h"
#include "simulate/timeline.h"
#include "simulate/trips.h"

namespace pipethreader::simulate {
namespace {

const std::string root = PIPETHREADER_SOURCE_DIR;

struct Simulated {
  driver::Lowered lowered;
  Timeline timeline;
};

Simulated simulated(const std::string& file, const std::vector<kernel::Binding>& dims, const driver::Forced& forced,
                    std::int64_t trips = 8) {
  static const device::Device device = *device::load_device(root + "/devices/h100.toml");
  auto kernel = kernel::specialise(*driver::load_kernel(root + "/kernels/" + file), dims, {});
  EXPECT_TRUE(kernel) << kernel.error().format();
  driver::Choices choices;
  EXPECT_TRUE(driver::force(choices, forced));
  auto lowered = driver::lower_kernel(*kernel, device, choices);
  EXPECT_TRUE(lowered) << lowered.error().format();
  Timeline timeline =
      simulate(lowered->graph, lowered->partition, lowered->assignment, lowered->schedule, device, trips);
  return {std::move(*lowered), std::move(timeline)};
}

const std::vector<kernel::Binding> square = {{"M", 4096}, {"N", 4096}, {"K", 4096}};

double mean_cycles(const Simulated& s) { return s.timeline.work_cycles; }

TEST(Timeline, EveryProductFollowsItsCopiesAndUnitsDoNotOverlapThemselves) {
  const Simulated s = simulated("matmul.stask", square, {{"depth", "3"}});
  ASSERT_FALSE(s.timeline.stuck);
  std::map<std::int64_t, double> loaded;
  for (const Span& span : s.timeline.spans) {
    EXPECT_LE(span.start, span.end);
    if (span.unit == task::UnitKind::copy_engine) loaded[span.iteration] = std::max(loaded[span.iteration], span.end);
  }
  int products = 0;
  std::map<int, double> busy_until;
  for (const Span& span : s.timeline.spans) {
    if (span.kind != Span::Kind::work) continue;
    if (span.unit == task::UnitKind::tensor_core) {
      ++products;
      EXPECT_GE(span.start, loaded.at(span.iteration));
    } else if (span.unit == task::UnitKind::cuda_cores) {
      EXPECT_GE(span.start, busy_until[span.lane] - 1e-3) << "a lane does one thing at a time";
      busy_until[span.lane] = span.end;
    }
  }
  EXPECT_EQ(products, 8 * 2) << "one a lane and simulated trip";
}

TEST(Timeline, TheSteadyStateDoesNotDependOnHowMuchIsSimulated) {
  const Simulated few = simulated("matmul.stask", square, {{"depth", "3"}}, 8);
  const Simulated many = simulated("matmul.stask", square, {{"depth", "3"}}, 32);
  EXPECT_NEAR(mean_cycles(few) / mean_cycles(many), 1, 0.05);
  EXPECT_EQ(few.timeline.loops.at(0).trips, 64);
}

TEST(Timeline, NoScheduleBeatsItsTensorCore) {
  for (const char* depth : {"1", "2", "4"}) {
    const Simulated s = simulated("matmul.stask", square, {{"depth", depth}});
    EXPECT_GE(s.timeline.work_cycles, s.timeline.busy[device::Resource::tensor]);
  }
}

TEST(Timeline, DeeperRingsAreNotSlower) {
  const double one = mean_cycles(simulated("matmul.stask", square, {{"overlap", "serial"}, {"depth", "1"}}));
  const double two = mean_cycles(simulated("matmul.stask", square, {{"overlap", "serial"}, {"depth", "2"}}));
  const double four = mean_cycles(simulated("matmul.stask", square, {{"overlap", "serial"}, {"depth", "4"}}));
  EXPECT_GT(one, two * 1.2) << "one slot exposes every copy";
  EXPECT_GE(two, four * 0.999);
}

TEST(Timeline, OverlapPaysWhereArithmeticStandsBetweenProducts) {
  const std::vector<kernel::Binding> dims = {{"B", 1}, {"H", 1}, {"G", 1}, {"S", 4096}, {"T", 4096}, {"D", 128}};
  const driver::Forced one = {{"row", "64"}, {"stream", "128"}, {"lanes", "1"}, {"depth", "2"}};
  driver::Forced serial = one, delayed = one;
  serial.emplace_back("overlap", "serial");
  delayed.emplace_back("overlap", "delayed");
  EXPECT_GT(mean_cycles(simulated("flash_attention.stask", dims, serial)),
            mean_cycles(simulated("flash_attention.stask", dims, delayed)));
}

TEST(Timeline, EveryKernelOfTheLibraryHasOne) {
  const std::map<std::string, std::vector<kernel::Binding>> all = {
      {"softmax.stask", {{"M", 64}, {"N", 1000}}},
      {"rms_norm.stask", {{"M", 64}, {"N", 5000}}},
      {"gated_ffn.stask", {{"M", 512}, {"N", 512}, {"K", 512}}},
      {"matmul_bias_relu.stask", {}},
      {"chunk_state.stask", {{"B", 1}, {"C", 2}, {"L", 256}, {"H", 8}, {"P", 64}, {"G", 1}, {"N", 128}}},
  };
  for (const auto& [file, dims] : all) {
    const Simulated s = simulated(file, dims, {{"column", "64"}});
    EXPECT_FALSE(s.timeline.stuck) << file;
    EXPECT_GT(s.timeline.work_cycles, 0) << file;
    EXPECT_FALSE(s.timeline.spans.empty()) << file;
  }
}

TEST(Trips, AMaskThatCutsATriangleHalvesThem) {
  const Simulated s =
      simulated("flash_attention.stask", {{"B", 1}, {"H", 1}, {"G", 1}, {"S", 8192}, {"T", 8192}, {"D", 64}},
                {{"row", "64"}, {"stream", "64"}, {"lanes", "1"}});
  const double trips = s.timeline.loops.at(0).trips;
  EXPECT_NEAR(trips, 64.5, 2);
}

}  // namespace
}  // namespace pipethreader::simulate
