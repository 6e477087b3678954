// How a kernel is written does not decide its schedule: the library's kernels under other names, and with what has no
// order in another one, get the same choices and the same predicted time.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "device/device.h"
#include "driver/candidates.h"
#include "kernel/kernel.h"
#include "support/respell.h"
#include "task/canonical.h"

namespace pipethreader {
namespace {

using Bindings = std::vector<kernel::Binding>;

struct Case {
  std::string file;
  std::string kernel;  // empty: the only one
  Bindings dims;
  Bindings options;
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << (c.kernel.empty() ? c.file : c.kernel); }

Bindings sizes(const std::vector<std::string>& dims, const std::vector<double>& values) {
  Bindings result;
  for (std::size_t i = 0; i < dims.size(); ++i) result.push_back({dims[i], values.at(i)});
  return result;
}

std::vector<Case> cases() {
  const std::vector<std::string> product = {"M", "N", "K"}, attention = {"B", "H", "G", "S", "T", "D"},
                                 chunks = {"B", "C", "H", "G", "L", "P", "N"};
  const Bindings square = sizes(product, {4096, 4096, 4096}), rows = sizes({"M", "N"}, {8192, 4096});
  return {
      {"matmul", "matmul", square, {}},
      {"matmul", "matmul_b_rows", sizes(product, {8192, 14336, 4096}), {}},
      {"matmul", "matmul_a_columns", square, {}},
      {"matmul", "matmul_a_columns_b_rows", square, {}},
      {"matmul_bf16", "", square, {}},
      {"matmul_batched", "", sizes({"B", "M", "N", "K"}, {16, 1024, 1024, 1024}), {}},
      {"matmul_bias_gelu", "", square, {{"approximate", 1}}},
      {"matmul_bias_relu", "", square, {}},
      {"matmul_softmax_rows", "", sizes({"M", "N", "K", "D"}, {1024, 1024, 64, 64}), {}},
      {"gated_ffn", "", sizes(product, {4096, 14336, 4096}), {}},
      {"flash_attention", "", sizes(attention, {4, 16, 16, 4096, 4096, 128}), {{"causal", 0}}},
      {"flash_attention", "", sizes(attention, {4, 32, 8, 4096, 4096, 64}), {{"causal", 1}}},
      {"flash_attention", "", sizes(attention, {4, 8, 8, 4096, 4096, 256}), {{"causal", 1}}},
      {"attention_decode", "", sizes({"B", "G", "R", "T", "D"}, {1, 8, 4, 8192, 128}), {}},
      {"attention_decode", "", sizes({"B", "G", "R", "T", "D"}, {64, 8, 4, 8192, 128}), {}},
      {"retention", "", sizes({"B", "H", "S", "D", "E"}, {4, 16, 2048, 128, 128}), {}},
      {"chunk_scan", "", sizes(chunks, {8, 32, 64, 1, 256, 64, 128}), {}},
      {"chunk_scan", "", sizes(chunks, {1, 8, 64, 8, 256, 64, 128}), {}},
      {"chunk_state", "", sizes(chunks, {8, 32, 64, 1, 256, 64, 128}), {}},
      {"conv2d", "", sizes({"N", "H", "W", "P", "Q", "C", "F", "R", "S"}, {16, 56, 56, 56, 56, 128, 128, 3, 3}), {}},
      {"softmax", "", rows, {}},
      {"rms_norm", "", rows, {}},
      {"layer_norm", "", rows, {}},
  };
}

kernel::Kernel checked(const std::string& text, const std::string& file, const std::string& name) {
  auto kernels = kernel::parse(text, file);
  EXPECT_TRUE(kernels) << (kernels ? "" : kernels.error().format()) << "\n" << text;
  if (!kernels) return {};
  for (kernel::Kernel& k : *kernels) {
    if (!name.empty() && k.name != name) continue;
    auto done = kernel::check(std::move(k));
    EXPECT_TRUE(done) << (done ? "" : done.error().format()) << "\n" << text;
    return done ? *done : kernel::Kernel{};
  }
  ADD_FAILURE() << "no kernel '" << name << "' in " << file;
  return {};
}

kernel::Kernel library(const Case& c) {
  const std::string path = PIPETHREADER_SOURCE_DIR "/kernels/" + c.file + ".stask";
  std::ifstream file(path, std::ios::binary);
  return checked({std::istreambuf_iterator<char>(file), {}}, path, c.kernel);
}

using Names = std::map<std::string, std::string>;  // new -> old

std::string with_old_names(const std::string& text, const Names& names) {
  static const std::regex word("[A-Za-z][0-9]+z");
  std::string result;
  auto from = text.begin();
  for (std::sregex_iterator found(text.begin(), text.end(), word), end; found != end; ++found) {
    result.append(from, text.begin() + found->position());
    const auto old = names.find(found->str());
    result += old == names.end() ? found->str() : old->second;
    from = text.begin() + found->position() + found->length();
  }
  return result.append(from, text.end());
}

Bindings with_new_names(Bindings bindings, const Names& names) {
  for (kernel::Binding& b : bindings) {
    const auto found = std::find_if(names.begin(), names.end(), [&](const auto& n) { return n.second == b.name; });
    if (found != names.end()) b.name = found->first;
  }
  return bindings;
}

struct Best {
  std::string choices;
  double predicted_us = 0;
};

std::vector<Best> best_of(const kernel::Kernel& kernel, const Bindings& dims, const Bindings& options) {
  static const auto device = device::load_device(PIPETHREADER_SOURCE_DIR "/devices/h200.toml");
  const auto special = kernel::specialise(kernel, dims, options);
  EXPECT_TRUE(special) << (special ? "" : special.error().format());
  if (!special || !device) return {};
  const auto ranked = driver::choices_for(*special, *device, {});
  EXPECT_TRUE(ranked) << (ranked ? "" : ranked.error().format());
  std::vector<Best> best;
  constexpr std::size_t compared = 8;  // machine code decides among the first few
  for (std::size_t i = 0; ranked && i < std::min(compared, ranked->size()); ++i)
    best.push_back(Best{driver::describe((*ranked)[i].choices), (*ranked)[i].predicted_us});
  return best;
}

class Spelling : public testing::TestWithParam<Case> {};

TEST_P(Spelling, DoesNotDecideTheSchedule) {
  const Case& c = GetParam();
  const kernel::Kernel original = library(c);
  const std::vector<Best> expected = best_of(original, c.dims, c.options);
  ASSERT_FALSE(expected.empty());
  const test::Spelling all = {
      .names = true, .axes = true, .parameters = true, .operands = true, .sides = true, .statements = true};
  for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6}) {
    const test::Respelled other = test::respell(original, seed, all);
    const auto best = best_of(checked(other.text, "other.stask", ""), with_new_names(c.dims, other.names),
                              with_new_names(c.options, other.names));
    ASSERT_EQ(best.size(), expected.size()) << other.text;
    for (std::size_t i = 0; i < best.size(); ++i) {
      EXPECT_EQ(with_old_names(best[i].choices, other.names), expected[i].choices) << i << "\n" << other.text;
      EXPECT_NEAR(best[i].predicted_us, expected[i].predicted_us, 1e-6 * expected[i].predicted_us) << i << "\n"
                                                                                                   << other.text;
    }
  }
}

// Names and the order of axes leave nothing behind.
TEST_P(Spelling, EndsInOneForm) {
  const kernel::Kernel original = library(GetParam());
  const std::string expected = kernel::print(task::canonical(original));
  EXPECT_EQ(kernel::print(task::canonical(task::canonical(original))), expected);
  for (const std::uint64_t seed : {1, 2, 3}) {
    const auto other = test::respell(original, seed, {.names = true, .axes = true});
    const kernel::Kernel again = task::canonical(checked(other.text, "other.stask", ""));
    const auto words = [](std::string text) {  // lines are broken by their length
      return std::regex_replace(text, std::regex("\\s+"), " ");
    };
    EXPECT_EQ(words(with_old_names(kernel::print(again), other.names)), words(expected)) << other.text;
  }
}

INSTANTIATE_TEST_SUITE_P(Library, Spelling, testing::ValuesIn(cases()), [](const auto& test) {
  return fmt::format("{}_{}", test.param.kernel.empty() ? test.param.file : test.param.kernel, test.index);
});

// Every kernel of the library is among them.
TEST(SpellingCases, AreTheWholeLibrary) {
  std::set<std::string> known;
  for (const Case& c : cases()) known.insert(c.file);
  for (const auto& entry : std::filesystem::directory_iterator(PIPETHREADER_SOURCE_DIR "/kernels"))
    EXPECT_TRUE(known.contains(entry.path().stem().string())) << entry.path();
}

}  // namespace
}  // namespace pipethreader
