#include "device/device.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pipethreader::device {
namespace {

namespace fs = std::filesystem;

const fs::path kDevices = fs::path(PIPETHREADER_SOURCE_DIR) / "devices";

Device load(const std::string& name) {
  const fs::path folders[] = {kDevices};
  Result<Device> device = find_device(name, folders);
  if (!device) {
    ADD_FAILURE() << device.error().format();
    return {};
  }
  return *device;
}

TEST(Device, EveryShippedDeviceLoads) {
  const fs::path folders[] = {kDevices};
  const std::vector<std::string> names = known_devices(folders);
  EXPECT_THAT(names, testing::IsSupersetOf({"h100", "h200"}));
  for (const std::string& name : names) {
    const Device device = load(name);
    EXPECT_EQ(device.name, name);
    EXPECT_FALSE(device.description.empty());
  }
}

TEST(Device, HoldsTheFactsOfTheFile) {
  const Device h100 = load("h100");
  EXPECT_EQ(h100.architecture, "sm_90a");
  EXPECT_EQ(h100.execution_units, 132);
  EXPECT_EQ(h100.memory.shared_bytes_per_block, 227 * 1024);
  EXPECT_EQ(h100.registers.per_unit, 65536);
  EXPECT_EQ(h100.threads.per_warp * h100.threads.warps_per_group, 128);
  EXPECT_EQ(h100.barriers.named_count, 16);
  EXPECT_THAT(h100.bulk_copy.swizzle_bytes, testing::ElementsAre(32, 64, 128));
  ASSERT_EQ(h100.interference.size(), 1U);
  EXPECT_DOUBLE_EQ(h100.interference[0].cycles, 0.6);
  EXPECT_DOUBLE_EQ(h100.throughput.tensor_share, 0.97);
  EXPECT_DOUBLE_EQ(h100.iteration.overlap_work_cycles, 97);
  EXPECT_DOUBLE_EQ(h100.work_item.direct_store_cycles, 35);
  EXPECT_DOUBLE_EQ(h100.cluster.pays_above, 1.25);
  EXPECT_EQ(h100.assembler.mma_registers, 26);
  EXPECT_DOUBLE_EQ(h100.faults.spilled_bytes_as_time, 900);
}

TEST(Device, FindsUnitsByKind) {
  const Device h100 = load("h100");
  const Unit* copy = h100.unit(UnitKind::copy);
  ASSERT_NE(copy, nullptr);
  EXPECT_TRUE(copy->is_async);
  EXPECT_EQ(copy->completion, Completion::barrier);
  const Unit* tensor = h100.unit(UnitKind::tensor);
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->completion, Completion::fifo_group);
  const Unit* alu = h100.unit(UnitKind::alu);
  ASSERT_NE(alu, nullptr);
  EXPECT_FALSE(alu->is_async);
  EXPECT_EQ(h100.unit(UnitKind::link), nullptr);
}

TEST(Device, FindsProductsByOperandTypes) {
  const Device h100 = load("h100");
  const MmaShape* shape = h100.find_mma(ScalarType::f16, ScalarType::f16, ScalarType::f32);
  ASSERT_NE(shape, nullptr);
  EXPECT_TRUE(shape->allows_n(176));
  EXPECT_TRUE(shape->allows_n(256));
  EXPECT_FALSE(shape->allows_n(180));
  EXPECT_FALSE(shape->allows_n(0));
  EXPECT_FALSE(shape->allows_n(264));
  EXPECT_DOUBLE_EQ(shape->cycles(256, true), 128);
  EXPECT_EQ(h100.find_mma(ScalarType::f16, ScalarType::bf16, ScalarType::f32), nullptr);
  EXPECT_EQ(h100.find_mma(ScalarType::f64, ScalarType::f64, ScalarType::f64), nullptr);
}

// 4096 dense 16-bit operations a cycle and unit, at the boost clock of the data sheet, is its 989 TFLOP/s within the
// difference of the clocks.
TEST(Device, TensorRateAgreesWithTheDataSheet) {
  const Device h100 = load("h100");
  const MmaShape* shape = h100.find_mma(ScalarType::f16, ScalarType::f16, ScalarType::f32);
  ASSERT_NE(shape, nullptr);
  const double per_cycle = 2.0 * shape->m * shape->n_max * shape->k / shape->cycles(shape->n_max, false);
  EXPECT_DOUBLE_EQ(per_cycle, 4096);
  EXPECT_NEAR(per_cycle * h100.execution_units * 1.83e9, 989e12, 1e12);
}

TEST(Device, PreferredRegisterBudgetComesFirst) {
  const Device h100 = load("h100");
  const auto two = h100.find_budget(2);
  ASSERT_TRUE(two);
  EXPECT_EQ(two->producer, 24);
  EXPECT_EQ(two->consumer, 240);
  const auto three = h100.find_budget(3);
  ASSERT_TRUE(three);
  EXPECT_EQ(three->consumer, 160);
  EXPECT_FALSE(h100.find_budget(9));
}

TEST(Device, EveryFunctionHasACostInTheClassesThatHaveIt) {
  const Device h100 = load("h100");
  for (const Function function : {
#define FUNCTION(id, operands, symbol, result) Function::id,
#include "base/functions.def"
#undef FUNCTION
       }) {
    const bool floating = h100.find_function(function, OperandClass::f32) != nullptr;
    const bool integral = h100.find_function(function, OperandClass::i32) != nullptr;
    EXPECT_TRUE(floating || integral) << info(function).name;
    EXPECT_EQ(floating, h100.find_function(function, OperandClass::f16) != nullptr) << info(function).name;
    EXPECT_EQ(floating, h100.find_function(function, OperandClass::bf16) != nullptr) << info(function).name;
  }
  EXPECT_EQ(h100.find_function(Function::exp2, OperandClass::i32), nullptr);
  EXPECT_EQ(h100.find_function(Function::mod, OperandClass::f32), nullptr);
}

TEST(Device, ClassesOfOperands) {
  EXPECT_EQ(operand_class(ScalarType::f32), OperandClass::f32);
  EXPECT_EQ(operand_class(ScalarType::tf32), OperandClass::f32);
  EXPECT_EQ(operand_class(ScalarType::f8e4m3), OperandClass::f32);
  EXPECT_EQ(operand_class(ScalarType::f16), OperandClass::f16);
  EXPECT_EQ(operand_class(ScalarType::bf16), OperandClass::bf16);
  EXPECT_EQ(operand_class(ScalarType::i32), OperandClass::i32);
  EXPECT_EQ(operand_class(ScalarType::boolean), OperandClass::i32);
}

TEST(Device, BusyCyclesDivideByTheRate) {
  const Device h100 = load("h100");
  // exp2 of a 128 x 128 tile takes as long as a 128 x 128 x 128 product.
  const Demand exponentials = *h100.find_function(Function::exp2, OperandClass::f32) * (128.0 * 128.0);
  EXPECT_DOUBLE_EQ(h100.busy_cycles(exponentials)[Resource::special], 1024);
  EXPECT_DOUBLE_EQ(h100.bound_cycles(exponentials), 1024);
  const MmaShape* shape = h100.find_mma(ScalarType::f16, ScalarType::f16, ScalarType::f32);
  ASSERT_NE(shape, nullptr);
  EXPECT_DOUBLE_EQ(2 * 8 * shape->cycles(128, true), 1024);
}

TEST(Device, DeviceWideRatesAreShared) {
  const Device h200 = load("h200");
  EXPECT_NEAR(h200.rate_per_cycle(Resource::dram), 3.9e12 / (132 * 1.95e9), 1e-9);
  EXPECT_DOUBLE_EQ(h200.rate_per_cycle(Resource::shared_memory), 128);
}

TEST(Device, ArithmeticSlowsTheTensorPipeOnlyWhenBothAreUsed) {
  const Device h100 = load("h100");
  const Demand multiply = *h100.find_function(Function::mul, OperandClass::f32) * 12800.0;  // 100 cycles
  EXPECT_DOUBLE_EQ(h100.bound_cycles(multiply), 100);
  Demand both = multiply;
  both[Resource::tensor] = 1000;
  EXPECT_DOUBLE_EQ(h100.bound_cycles(both), 1060);
  Demand with_exponentials = *h100.find_function(Function::exp2, OperandClass::f32) * 1600.0;
  with_exponentials[Resource::tensor] = 1000;
  EXPECT_DOUBLE_EQ(h100.bound_cycles(with_exponentials), 1000);
}

TEST(Device, DigestFollowsTheText) {
  std::ifstream stream(kDevices / "h100.toml");
  const std::string text((std::istreambuf_iterator<char>(stream)), {});
  const Result<Device> once = parse_device(text, "a.toml");
  const Result<Device> renamed_file = parse_device(text, "b.toml");
  const Result<Device> changed = parse_device(text + "# a comment\n", "a.toml");
  ASSERT_TRUE(once && renamed_file && changed);
  EXPECT_EQ(once->digest, renamed_file->digest);
  EXPECT_NE(once->digest, changed->digest);
  EXPECT_NE(load("h100").digest, load("h200").digest);
}

// A device with nothing of what Hopper has still loads; demands that it cannot meet take forever.
TEST(Device, ImpossibleDeviceLoads) {
  std::ifstream stream(kDevices / "h100.toml");
  std::string text;
  std::string line;
  std::string table;
  while (std::getline(stream, line)) {
    if (line.starts_with("[")) table = line;
    if (table == "[[mma]]" || table == "[[units]]" || table == "[[interference]]" || table == "[[registers.budgets]]")
      continue;
    if (line.starts_with("shared_bytes_per_block")) line = "shared_bytes_per_block = 0";
    if (line.starts_with("shared_memory = { scope")) line = "shared_memory = { scope = \"execution_unit\", rate = 0 }";
    if (line.starts_with("execution_units")) line += "\nmma = []\nunits = []\ninterference = []";
    if (line.starts_with("per_unit = 65536")) line += "\nbudgets = []";
    text += line + "\n";
  }
  const Result<Device> device = parse_device(text, "bare.toml");
  ASSERT_TRUE(device) << device.error().format();
  EXPECT_EQ(device->unit(UnitKind::tensor), nullptr);
  EXPECT_FALSE(device->find_budget(2));
  EXPECT_EQ(device->memory.shared_bytes_per_block, 0);
  Demand demand;
  demand[Resource::shared_memory] = 1;
  EXPECT_TRUE(std::isinf(device->bound_cycles(demand)));
  EXPECT_DOUBLE_EQ(device->bound_cycles(Demand{}), 0);
}

TEST(Device, APathIsANameToo) {
  const Result<Device> device = find_device((kDevices / "h200.toml").string(), {});
  ASSERT_TRUE(device) << device.error().format();
  EXPECT_EQ(device->name, "h200");
}

}  // namespace
}  // namespace pipethreader::device
