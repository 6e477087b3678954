#include "interpret/interpret.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/programs.h"
#include "support/reference.h"

namespace pipethreader::interpret {
namespace {

using test::example_program;

const std::vector<double>& output_of(const program::Program& program, const Arguments& arguments) {
  for (std::size_t t = 0; t < program.tensors.size(); ++t)
    if (program.tensors[t].output) return arguments.tensors[t];
  return arguments.tensors.back();
}

void expect_reference(const std::string& name, const program::Program& program, const Arguments& arguments) {
  const std::vector<test::Expected> expected = test::reference(name, arguments);
  const std::vector<double>& found = output_of(program, arguments);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_TRUE(std::fabs(found[i] - expected[i].value) <= expected[i].error)
        << name << ", element " << i << ": " << found[i] << ", expected " << expected[i].value << " +- "
        << expected[i].error;
}

class Examples : public ::testing::TestWithParam<std::string> {};

TEST_P(Examples, ComputeTheirReference) {
  const program::Program program = example_program(GetParam());
  for (const std::vector<double>& sizes : test::sizes_for(GetParam()))
    for (const Interleaving interleaving : {Interleaving::random, Interleaving::adversarial}) {
      Arguments arguments = test::random_arguments(program, sizes, 7);
      RunOptions options;
      options.interleaving = interleaving;
      const auto report = run(program, arguments, options);
      ASSERT_TRUE(report) << report.error().format();
      EXPECT_EQ(report->unwritten, 0);
      expect_reference(GetParam(), program, arguments);
    }
}

INSTANTIATE_TEST_SUITE_P(All, Examples, ::testing::ValuesIn(test::example_programs()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace pipethreader::interpret
