// Emitted kernels executed on the CPU: the printed source, with its device functions replaced by a machine that knows
// the PTX ISA (tests/support/cuda_on_cpu), against plain loops and the interpreter. Skipped where there is no C++
// compiler to build with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>

#include "emit/emit.h"
#include "interpret/interpret.h"
#include "program/legalise.h"
#include "runtime/host_array.h"
#include "support/cuda_on_cpu/emitted.h"
#include "support/instruction_programs.h"
#include "support/programs.h"
#include "support/reference.h"

namespace pipethreader::emit {
namespace {

using interpret::Arguments;
using test::CpuLaunch;
using test::CpuLibrary;

constexpr std::int64_t kSharedLimit = 232448;

struct Emitted {
  program::Program program;
  CudaSource cuda;
};

Emitted emitted(const program::Program& program) {
  const auto placed = program::legalise(program, kSharedLimit);
  if (!placed) throw std::runtime_error(placed.error().format());
  auto cuda = emit_unproved(*placed);
  if (!cuda) throw std::runtime_error(cuda.error().format());
  return {*placed, *std::move(cuda)};
}

program::Program parsed(const test::InstructionProgram& instruction) {
  auto program = program::parse(instruction.text, instruction.name);
  if (!program) throw std::runtime_error(program.error().format());
  if (const auto valid = program::validate(*program); !valid) throw std::runtime_error(valid.error().format());
  return *std::move(program);
}

std::size_t output_of(const program::Program& program) {
  for (std::size_t t = 0; t < program.tensors.size(); ++t)
    if (program.tensors[t].output) return t;
  throw std::runtime_error("no output");
}

// All programs in one library, built once: most of the time of building goes into what they share. A test that runs
// alone builds its own program only.
class OnCpu : public ::testing::TestWithParam<std::string> {
 protected:
  static void build(const std::string& wanted) {
    const bool alone = ::testing::UnitTest::GetInstance()->test_to_run_count() == 1;
    std::vector<std::string> sources;
    for (const std::string& name : test::example_programs()) {
      if (!alone || name == wanted) sources.push_back(add(name, test::example_program(name)));
    }
    for (const test::InstructionProgram& instruction : test::instruction_programs()) {
      if (!alone || instruction.name == wanted) sources.push_back(add(instruction.name, parsed(instruction)));
    }
    library() = std::make_unique<CpuLibrary>(sources);
  }

  void SetUp() override {
    if (!test::has_compiler()) GTEST_SKIP() << "no g++ to build the emitted source with";
    if (!library()) build(GetParam());
    ASSERT_EQ(library()->error(), "");
  }

  static std::unique_ptr<CpuLibrary>& library() {
    static std::unique_ptr<CpuLibrary> one;
    return one;
  }
  static std::map<std::string, Emitted>& programs() {
    static std::map<std::string, Emitted> all;
    return all;
  }

 private:
  static std::string add(const std::string& name, const program::Program& program) {
    const auto [entry, fresh] = programs().emplace(name, emitted(program));
    return fresh ? test::cpu_source(entry->second.cuda) : std::string();
  }
};

class ExampleOnCpu : public OnCpu {};

TEST_P(ExampleOnCpu, ComputesTheReference) {
  const Emitted& example = programs().at(GetParam());
  for (const std::vector<double>& params : test::sizes_for(GetParam()))
    for (const unsigned seed : {0U, 2U}) {
      SCOPED_TRACE(fmt::format("sizes {}, seed {}", fmt::join(params, " "), seed));
      const Arguments arguments = test::random_arguments(example.program, params, seed + 11);
      CpuLaunch launch(example.program, example.cuda, arguments);
      ASSERT_EQ(library()->run(example.program, example.cuda, launch.pointers(), params, seed), "");
      EXPECT_EQ(launch.counter(), 0U) << "a launch leaves its counter as it found it";
      const std::vector<test::Expected> expected = test::reference(GetParam(), arguments);
      const std::size_t t = output_of(example.program);
      const auto found = launch.tensor(t, example.program.tensors[t].type, expected.size());
      for (std::size_t i = 0; i < found.size(); ++i)
        ASSERT_TRUE(std::fabs(found[i] - expected[i].value) <= expected[i].error)
            << "element " << i << ": " << found[i] << ", expected " << expected[i].value << " +- " << expected[i].error;
    }
}

INSTANTIATE_TEST_SUITE_P(Examples, ExampleOnCpu, ::testing::ValuesIn(test::example_programs()),
                         [](const auto& example) { return example.param; });

class InstructionOnCpu : public OnCpu {};

TEST_P(InstructionOnCpu, DoesWhatTheInterpreterDoes) {
  test::InstructionProgram instruction;
  for (const auto& candidate : test::instruction_programs())
    if (candidate.name == GetParam()) instruction = candidate;
  const Emitted& one = programs().at(GetParam());
  const std::size_t t = output_of(one.program);
  const ScalarType type = one.program.tensors[t].type;
  for (const unsigned seed : {0U, 1U, 2U}) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Arguments arguments = test::instruction_arguments(one.program, instruction, seed);
    CpuLaunch launch(one.program, one.cuda, arguments);
    ASSERT_EQ(library()->run(one.program, one.cuda, launch.pointers(), instruction.params, seed), "");
    EXPECT_EQ(launch.counter(), 0U);
    const auto report = interpret::run(one.program, arguments);
    ASSERT_TRUE(report) << report.error().format();
    const std::vector<double>& expected = arguments.tensors[t];
    const auto found = launch.tensor(t, type, expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_TRUE(test::agree(type, found[i], expected[i], instruction.ulps))
          << "element " << i << ": " << found[i] << ", expected " << expected[i];
  }
}

std::vector<std::string> instruction_names() {
  std::vector<std::string> names;
  for (const auto& instruction : test::instruction_programs()) names.push_back(instruction.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Instructions, InstructionOnCpu, ::testing::ValuesIn(instruction_names()),
                         [](const auto& instruction) { return instruction.param; });

// The machine notices what is wrong with a source; else the tests above would show nothing.
class SpoiltSource : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_compiler()) GTEST_SKIP() << "no g++ to build the emitted source with";
  }

  // What a run says after every `from` of the matrix product has become `to`: a failure, or "wrong".
  static std::string run(const std::string& from, const std::string& to, unsigned seed = 0) {
    Emitted matmul = emitted(test::example_program("matmul"));
    const std::string text = test::replaced(matmul.cuda.text, from, to);
    EXPECT_TRUE(text != matmul.cuda.text) << "nothing reads " << from;
    matmul.cuda.text = text;
    const CpuLibrary library({test::cpu_source(matmul.cuda)});
    EXPECT_EQ(library.error(), "");
    const std::vector<double> params = {128, 128, 256};
    const Arguments arguments = test::random_arguments(matmul.program, params, 3);
    CpuLaunch launch(matmul.program, matmul.cuda, arguments);
    const std::string failure = library.run(matmul.program, matmul.cuda, launch.pointers(), params, seed);
    if (!failure.empty()) return failure;
    const auto expected = test::reference("matmul", arguments);
    const auto found = launch.tensor(2, ScalarType::f16, expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      if (!(std::fabs(found[i] - expected[i].value) <= expected[i].error)) return "wrong";
    return "right";
  }
};

TEST_F(SpoiltSource, IsNoticed) {
  EXPECT_THAT(run("if (thread == 0) arrive(", "if (thread == 200) arrive("), ::testing::HasSubstr("deadlock"));
  EXPECT_THAT(run("AB_phase ^ 1", "AB_phase"), ::testing::HasSubstr("deadlock"));
  EXPECT_EQ(run("b_matrix + 2", "b_matrix + 4"), "wrong");
  EXPECT_EQ(run("mma_wait<1>", "mma_wait<3>"), "wrong");
  // Without its wait, and waiting for the phase before, a reader runs ahead of late copies: it reads what is not there
  // yet and frees slots that are being filled.
  const auto not_ready = ::testing::AnyOf(::testing::Eq("wrong"), ::testing::HasSubstr("more arrivals than"),
                                          ::testing::HasSubstr("bulk copies are under way"));
  EXPECT_THAT(run("wait_barrier(shared + AB_full", "(void)(shared + AB_full", 2), not_ready);
  EXPECT_THAT(run("AB_full + AB_slot * 8, AB_phase)", "AB_full + AB_slot * 8, AB_phase ^ 1)", 2), not_ready);
  // With early copies, too: the producer is not ahead of readers that do not wait for it.
  EXPECT_NE(run("AB_full + AB_slot * 8, AB_phase)", "AB_full + AB_slot * 8, AB_phase ^ 1)", 3), "right");
  // And what is stricter than needed is right.
  EXPECT_EQ(run("mma_wait<1>", "mma_wait<0>", 2), "right");
}

}  // namespace
}  // namespace pipethreader::emit
