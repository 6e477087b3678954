// The printed source of two examples against reviewed files. After a change that is meant: read the new text (its path
// is in the message) and copy it over the old one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "emit/emit.h"
#include "program/legalise.h"
#include "support/programs.h"

namespace pipethreader::emit {
namespace {

class EmitGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(EmitGolden, PrintsTheReviewedSource) {
  const auto program = program::legalise(test::example_program(GetParam()), 232448);
  ASSERT_TRUE(program) << program.error().format();
  const auto source = emit_unproved(*program);
  ASSERT_TRUE(source) << source.error().format();
  const std::string name = "emit_" + GetParam() + ".cu";
  std::ifstream file(std::filesystem::path(PIPETHREADER_SOURCE_DIR) / "tests/golden" / name, std::ios::binary);
  const std::string reviewed{std::istreambuf_iterator<char>(file), {}};
  if (source->text == reviewed) return;
  const auto actual = std::filesystem::temp_directory_path() / name;
  std::ofstream(actual, std::ios::binary) << source->text;
  std::size_t line = 1;
  for (std::size_t i = 0; i < std::min(reviewed.size(), source->text.size()) && reviewed[i] == source->text[i]; ++i)
    line += reviewed[i] == '\n' ? 1 : 0;
  FAIL() << "tests/golden/" << name << " differs from line " << line << "; what is printed now: " << actual;
}

INSTANTIATE_TEST_SUITE_P(Examples, EmitGolden, ::testing::Values("matmul", "bulk_epilogue"),
                         [](const auto& example) { return example.param; });

}  // namespace
}  // namespace pipethreader::emit
