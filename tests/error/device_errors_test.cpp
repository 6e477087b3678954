// Every fact of a device file is required: leaving any one out, or giving it another type, is an error at a place.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/device.h"

namespace pipethreader::device {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

struct Line {
  std::size_t number = 0;  // from 1
  std::string table;       // the header above it, "" for the top
  std::string key;         // empty for headers, comments and blank lines
  std::string text;
};

std::vector<Line> lines_of(const std::string& name) {
  std::ifstream stream(fs::path(PIPETHREADER_SOURCE_DIR) / "devices" / (name + ".toml"));
  std::vector<Line> lines;
  std::string text;
  std::string table;
  while (std::getline(stream, text)) {
    if (text.starts_with("[")) table = text;
    const std::size_t equals = text.find(" = ");
    const bool is_field = equals != std::string::npos && !text.starts_with("#") && !text.starts_with("[");
    lines.push_back({lines.size() + 1, table, is_field ? text.substr(0, equals) : "", text});
  }
  return lines;
}

std::string joined(const std::vector<Line>& lines) {
  std::string text;
  for (const Line& line : lines) text += line.text + "\n";
  return text;
}

std::string error_of(const std::string& text) {
  const Result<Device> device = parse_device(text, "test.toml");
  return device ? "" : device.error().format();
}

// One line of h100.toml replaced, found by how it starts.
std::string with(const std::string& start, const std::string& replacement) {
  std::vector<Line> lines = lines_of("h100");
  for (Line& line : lines) {
    if (line.text.starts_with(start)) {
      line.text = replacement;
      return joined(lines);
    }
  }
  ADD_FAILURE() << "no line starts with " << start;
  return {};
}

// Optional by nature: further conversions than the required ones.
bool is_optional(const Line& line) {
  if (!line.table.starts_with("[conversions")) return false;
  const bool extra_row = line.table == "[conversions.tf32]" || line.table.starts_with("[conversions.f8");
  return extra_row || line.key.starts_with("f8") || line.key == "tf32";
}

TEST(DeviceErrors, EachMissingKeyIsNamedWithItsTable) {
  const std::vector<Line> lines = lines_of("h100");
  std::size_t tried = 0;
  for (const Line& line : lines) {
    if (line.key.empty() || is_optional(line)) continue;
    std::vector<Line> rest = lines;
    rest[line.number - 1].text = "";
    const std::string error = error_of(joined(rest));
    EXPECT_THAT(error, HasSubstr("no '" + line.key + "'")) << line.number;
    EXPECT_THAT(error, testing::StartsWith("test.toml:")) << line.number;
    EXPECT_THAT(error, HasSubstr(line.table)) << line.number;
    ++tried;
  }
  EXPECT_GT(tried, 250U);
}

TEST(DeviceErrors, EachFieldOfAnotherTypeIsNamedAtItsLine) {
  const std::vector<Line> lines = lines_of("h100");
  for (const Line& line : lines) {
    if (line.key.empty()) continue;
    std::vector<Line> changed = lines;
    changed[line.number - 1].text = line.key + " = 1979-05-27";
    const std::string error = error_of(joined(changed));
    EXPECT_THAT(error, HasSubstr("test.toml:" + std::to_string(line.number) + ":")) << line.text;
    EXPECT_THAT(error, HasSubstr("'" + line.key + "'")) << line.text;
    EXPECT_THAT(error, HasSubstr("expected ")) << line.text;
  }
}

TEST(DeviceErrors, EachTableThatIsMissingIsNamed) {
  for (const std::string table :
       {"clock",        "threads", "registers",  "memory",    "units",     "mma",         "resources",
        "interference", "latency", "throughput", "iteration", "work_item", "barriers",    "cluster",
        "bulk_copy",    "launch",  "assembler",  "faults",    "functions", "conversions", "moves"}) {
    std::vector<Line> rest;
    for (const Line& line : lines_of("h100")) {
      const bool inside = line.table.starts_with("[" + table + "]") || line.table.starts_with("[[" + table + "]]") ||
                          line.table.starts_with("[" + table + ".") || line.table.starts_with("[[" + table + ".");
      if (!inside) rest.push_back(line);
    }
    EXPECT_THAT(error_of(joined(rest)), HasSubstr("the file has no '" + table + "'"));
  }
}

TEST(DeviceErrors, UnknownKeysAreNamedAtTheirLine) {
  const std::vector<Line> lines = lines_of("h100");
  std::string table = "none";
  for (const Line& line : lines) {
    if (line.key.empty() || line.table == table) continue;  // once a table
    table = line.table;
    std::vector<Line> changed = lines;
    changed[line.number - 1].text += "\nsurprise = { issue = 1 }";
    const std::string error = error_of(joined(changed));
    EXPECT_THAT(error, HasSubstr("test.toml:" + std::to_string(line.number + 1) + ":1: error: unknown key 'surprise'"));
  }
}

TEST(DeviceErrors, AllFindingsAreReportedInTheOrderOfTheFile) {
  std::vector<Line> lines = lines_of("h100");
  for (Line& line : lines) {
    if (line.text.starts_with("burst_ghz")) line.text = "burst_ghz = 0";
    if (line.text.starts_with("rank_max")) line.text = "rank_max = -1";
  }
  const Result<Device> device = parse_device(joined(lines), "test.toml");
  ASSERT_FALSE(device);
  ASSERT_EQ(device.error().diagnostics.size(), 2U);
  EXPECT_THAT(device.error().diagnostics[0].message,
              HasSubstr("'burst_ghz' in [clock] is 0 (an integer): expected a number above 0"));
  EXPECT_THAT(device.error().diagnostics[1].message,
              HasSubstr("'rank_max' in [bulk_copy] is -1 (an integer): expected an integer, 0 or more"));
}

TEST(DeviceErrors, WordsOutsideTheirSet) {
  EXPECT_THAT(error_of(with("kind = \"copy\"", "kind = \"mover\"")),
              HasSubstr("'kind' in [[units]] is 'mover' (a string): expected one of copy, tensor, alu, link"));
  EXPECT_THAT(error_of(with("a = \"f16\"", "a = \"half\"")), HasSubstr("'a' in [[mma]] is 'half' (a string)"));
  EXPECT_THAT(error_of(with("source = ", "source = \"luck\"")), HasSubstr("expected one of tensor, fma, integer"));
  EXPECT_THAT(error_of(with("tensor = { scope", "tensor = { scope = \"rack\", rate = 1 }")),
              HasSubstr("expected one of execution_unit, device"));
}

TEST(DeviceErrors, DemandsNameIssueAndOnlyResources) {
  EXPECT_THAT(error_of(with("exp2 = ", "exp2 = { special = 1 }")),
              HasSubstr("'exp2' of [functions.f32] has no 'issue'"));
  EXPECT_THAT(error_of(with("exp2 = ", "exp2 = { speciall = 1, issue = 1 }")),
              HasSubstr("unknown key 'speciall' in 'exp2' of [functions.f32]"));
  EXPECT_THAT(error_of(with("exp2 = ", "exp2 = { special = -1, issue = 1 }")),
              HasSubstr("expected a number, 0 or more"));
}

TEST(DeviceErrors, RegisterBudgetsThatWouldHang) {
  EXPECT_THAT(error_of(with("producer = 40", "producer = 48")),
              HasSubstr("producer 48 + 2 consumers of 232 is more than the 3 x 168 taken at launch"));
  EXPECT_THAT(error_of(with("producer = 40", "producer = 39")),
              HasSubstr("'producer' is 39: expected a multiple of the granularity 8"));
  EXPECT_THAT(
      error_of(with("launch = 128", "launch = 136")),
      HasSubstr("4 warpgroups of 128 threads with 136 registers each need more than the 65536 registers of a unit"));
}

TEST(DeviceErrors, UnitsThatContradictThemselves) {
  EXPECT_THAT(error_of(with("is_async = true", "is_async = false")),
              HasSubstr("unit 'TMA' has is_async = false and completion 'barrier'"));
  EXPECT_THAT(error_of(with("name = \"TMA\"", "name = \"TensorCore\"")), HasSubstr("two units are named 'TensorCore'"));
}

TEST(DeviceErrors, NumbersThatContradictOthers) {
  EXPECT_THAT(error_of(with("threads = 128", "threads = 1")),
              HasSubstr("'threads' is 1: expected the 32 of a warp or the 128 of a warpgroup"));
  EXPECT_THAT(error_of(with("n_max = 256", "n_max = 4")), HasSubstr("'n_max' is 4: expected no less than 'n_min', 8"));
  EXPECT_THAT(error_of(with("n_max = 256", "n_max = 250")),
              HasSubstr("'n_max' is 250: expected a multiple of 'n_step', 8"));
  EXPECT_THAT(error_of(with("shared_bytes_per_unit", "shared_bytes_per_unit = 9223372036854775807")),
              HasSubstr("'shared_bytes_per_unit' in [memory] is 9223372036854775807 (an integer): expected an integer "
                        "from 0 to 1073741824"));
  EXPECT_THAT(
      error_of(with("shared_bytes_per_block", "shared_bytes_per_block = 233000")),
      HasSubstr("'shared_bytes_per_block' is 233000: with the 1024 reserved it is more than the 233472 of a unit"));
  EXPECT_THAT(error_of(with("per_block_max", "per_block_max = 1000")),
              HasSubstr("'per_block_max' is 1000: expected a multiple of the 32 threads of a warp"));
  EXPECT_THAT(error_of(with("per_unit_max", "per_unit_max = 512")),
              HasSubstr("'per_unit_max' is 512: expected room for a block of 1024 threads"));
  EXPECT_THAT(error_of(with("reallocation_max", "reallocation_max = 8")),
              HasSubstr("'reallocation_max' is 8: expected no less than 'reallocation_min', 24"));
}

TEST(DeviceErrors, NumbersOutOfRange) {
  EXPECT_THAT(error_of(with("execution_units", "execution_units = 0")), HasSubstr("expected an integer, 1 or more"));
  EXPECT_THAT(error_of(with("execution_units", "execution_units = 99999999999")),
              HasSubstr("expected an integer, 2147483647 at most"));
  EXPECT_THAT(error_of(with("burst_ghz", "burst_ghz = nan")), HasSubstr("expected a number above 0"));
  EXPECT_THAT(error_of(with("burst_ghz", "burst_ghz = inf")), HasSubstr("expected a number above 0"));
  EXPECT_THAT(error_of(with("tensor_share", "tensor_share = 0")),
              HasSubstr("'tensor_share' in [throughput] is 0 (an integer): expected a number above 0, 1 at most"));
  EXPECT_THAT(error_of(with("lane_share", "lane_share = 1.01")), HasSubstr("expected a number above 0, 1 at most"));
  EXPECT_THAT(error_of(with("hidden_share", "hidden_share = 3")), HasSubstr("expected a number from 0 to 1"));
  EXPECT_THAT(error_of(with("hidden_share", "hidden_share = -0.1")), HasSubstr("expected a number from 0 to 1"));
  EXPECT_THAT(error_of(with("l2_band_share", "l2_band_share = nan")), HasSubstr("expected a number from 0 to 1"));
  EXPECT_THAT(error_of(with("uncoordinated_factor", "uncoordinated_factor = 0.5")),
              HasSubstr("'uncoordinated_factor' in [work_item] is 0.5 (a number): expected a number, 1 or more"));
  EXPECT_THAT(error_of(with("cost_factor", "cost_factor = inf")), HasSubstr("expected a number, 1 or more"));
  EXPECT_THAT(error_of(with("spilled_bytes_as_time", "spilled_bytes_as_time = 0")),
              HasSubstr("expected a number above 0"));
  EXPECT_THAT(error_of(with("line_bytes", "line_bytes = 0")), HasSubstr("expected an integer, 1 or more"));
  EXPECT_THAT(error_of(with("swizzle_bytes", "swizzle_bytes = [32, \"64\"]")), HasSubstr("an array of integers"));
  EXPECT_THAT(error_of(with("name = \"h100\"", "name = \"\"")), HasSubstr("a string that is not empty"));
}

TEST(DeviceErrors, FilesThatAreNotToml) {
  EXPECT_THAT(error_of("name = \"h100\"\nname = \"h200\"\n"), HasSubstr("test.toml:2:"));
  EXPECT_THAT(error_of("name = "), HasSubstr("test.toml:1:"));
  EXPECT_THAT(error_of(std::string("\x7f"
                                   "ELF\0\1\2\xff\xfe",
                                   9)),
              HasSubstr("a device description is a TOML file"));
  EXPECT_THAT(error_of("a = " + std::string(100000, '[')), HasSubstr("test.toml:1:"));
  EXPECT_THAT(error_of(""), HasSubstr("the file has no 'name'"));
  const std::string whole = joined(lines_of("h100"));
  for (const std::size_t length : {whole.size() / 4, whole.size() / 2, whole.size() - 20}) {
    EXPECT_THAT(error_of(whole.substr(0, length)), HasSubstr("test.toml:"));
  }
}

TEST(DeviceErrors, UnknownNamesListTheKnown) {
  const fs::path folders[] = {fs::path(PIPETHREADER_SOURCE_DIR) / "devices", "no/such/folder"};
  for (const std::string name : {"h300", "", "../devices/h100", "/etc/passwd"}) {
    const Result<Device> device = find_device(name, folders);
    ASSERT_FALSE(device) << name;
    EXPECT_THAT(device.error().format(), HasSubstr("no device '" + name + "': expected one of h100, h200"));
  }
  const Result<Device> nowhere = find_device("h100", {});
  ASSERT_FALSE(nowhere);
  EXPECT_THAT(nowhere.error().format(), HasSubstr("looked in no folder"));
}

TEST(DeviceErrors, FilesThatCannotBeRead) {
  for (const std::string path : {"no/such/device.toml", PIPETHREADER_SOURCE_DIR}) {
    const Result<Device> device = load_device(path);
    ASSERT_FALSE(device) << path;
    EXPECT_THAT(device.error().format(), HasSubstr(path + ": error: no such device description"));
  }
}

}  // namespace
}  // namespace pipethreader::device
