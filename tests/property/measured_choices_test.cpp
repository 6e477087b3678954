// The model against the card: of the candidates that `tune` timed (bench/results/h200-tune.json), the one that is
// chosen without a card is nearly as fast as the fastest.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include <nlohmann/json.hpp>

#include "device/device.h"
#include "driver/candidates.h"
#include "driver/compiler.h"
#include "kernel/kernel.h"

namespace pipethreader {
namespace {

const std::filesystem::path root = PIPETHREADER_SOURCE_DIR;

nlohmann::json measured() {
  std::ifstream file(root / "bench/results/h200-tune.json");
  return nlohmann::json::parse(file).at("kernels");
}

// "kernels/x.stask --dim M=64 --option causal=true --kernel name", specialised.
kernel::Kernel kernel_of(const std::string& command) {
  std::istringstream words(command);
  std::string file, option, value, name;
  std::vector<kernel::Binding> dims, options;
  words >> file;
  while (words >> option >> value) {
    if (option == "--kernel") {
      name = value;
      continue;
    }
    const std::size_t equals = value.find('=');
    const std::string text = value.substr(equals + 1);
    const double number = text == "true" ? 1 : text == "false" ? 0 : std::stod(text);
    (option == "--dim" ? dims : options).push_back({value.substr(0, equals), number});
  }
  const auto loaded = driver::load_kernel((root / file).string(), name);
  EXPECT_TRUE(loaded) << loaded.error().format();
  return *kernel::specialise(*loaded, dims, options);
}

// By what the search multiplies a prediction when it sees the machine code.
double slowdown(const std::string& fault, const device::Faults& faults) {
  double factor = 1;
  if (fault.find("serialised") != std::string::npos) factor += faults.serialised;
  if (fault.find("budgets") != std::string::npos) factor += faults.ignored_budget;
  std::smatch bytes;
  if (std::regex_search(fault, bytes, std::regex("([0-9]+) bytes")))
    factor += faults.spilled + std::stod(bytes[1]) / faults.spilled_bytes_as_time;
  return factor;
}

class MeasuredChoices : public testing::TestWithParam<std::size_t> {};  // which of the kernels

TEST_P(MeasuredChoices, WhatIsChosenIsNearlyTheFastest) {
  const nlohmann::json kernel = measured().at(GetParam());
  SCOPED_TRACE(kernel.at("command"));
  const auto device = device::load_device(root / "devices/h200.toml");
  ASSERT_TRUE(device) << device.error().format();
  const auto candidates = driver::choices_for(kernel_of(kernel.at("command")), *device, {});
  ASSERT_TRUE(candidates) << candidates.error().format();
  // What could not be proved is left out of what is built, and so of what `tune` prints.
  std::map<std::string, nlohmann::json> timed;
  double fastest = 1e30;
  for (const nlohmann::json& row : kernel.at("candidates")) {
    timed[std::regex_replace(row.at("choices").get<std::string>(), std::regex(" pass=off"), "")] = row;
    fastest = std::min(fastest, row.at("measured_us").get<double>());
  }
  std::size_t found = 0;
  double least = 1e30, chosen = 0;
  std::string choices;
  for (const driver::Candidate& c : *candidates) {  // by prediction
    const auto row = timed.find(driver::describe(c.choices));
    if (row == timed.end() || c.predicted_us <= 0) continue;
    ++found;
    const double cost = c.predicted_us * slowdown(row->second.value("fault", ""), device->faults);
    if (cost >= least) continue;
    least = cost;
    chosen = row->second.at("measured_us");
    choices = row->first;
  }
  EXPECT_GT(found, kernel.at("candidates").size() / 2) << "the candidates are others than those that were timed";
  EXPECT_LT(chosen, 1.05 * fastest) << choices;
  RecordProperty("over_the_fastest", std::to_string(chosen / fastest));
}

INSTANTIATE_TEST_SUITE_P(H200, MeasuredChoices, testing::Range<std::size_t>(0, measured().size()));

}  // namespace
}  // namespace pipethreader
