// What the assembler makes of emitted sources. Needs no card, but the run-time compiler; skipped, with the reason,
// where that is missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "emit/emit.h"
#include "program/legalise.h"
#include "runtime/nvrtc.h"
#include "support/instruction_programs.h"
#include "support/programs.h"

namespace pipethreader::emit {
namespace {

class EmitCompile : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto nvrtc = runtime::Nvrtc::open();
    if (!nvrtc) GTEST_SKIP() << nvrtc.error().format();
    nvrtc_ = std::move(*nvrtc);
  }

  runtime::CompiledKernel compile(const program::Program& program) {
    const auto placed = program::legalise(program, 232448);
    EXPECT_TRUE(placed) << placed.error().format();
    const auto source = emit_unproved(*placed);
    EXPECT_TRUE(source) << source.error().format();
    runtime::CompileRequest request;
    request.name = source->entry + ".cu";
    request.source = source->text;
    auto compiled = nvrtc_.compile(request);
    EXPECT_TRUE(compiled) << compiled.error().format();
    return compiled ? *std::move(compiled) : runtime::CompiledKernel{};
  }

  runtime::Nvrtc nvrtc_;
};

// Tensor-core instructions (HGMMA) of a cubin: of 16 bytes each, the low 12 bits are the operation.
int tensor_core_instructions(const std::vector<std::byte>& cubin) {
  int count = 0;
  for (std::size_t at = 0; at + 16 <= cubin.size(); at += 16) {
    std::uint16_t low = 0;
    std::memcpy(&low, cubin.data() + at, sizeof low);
    count += (low & 0xfff) == 0x9f0 ? 1 : 0;
  }
  return count;
}

class ExampleCompiles : public EmitCompile {};

TEST_P(ExampleCompiles, WithoutSpillsOrSerialisedProducts) {
  const runtime::CompiledKernel kernel = compile(test::example_program(GetParam()));
  EXPECT_FALSE(kernel.report.spills()) << kernel.log;
  EXPECT_EQ(kernel.report.stack_bytes, 0) << kernel.log;
  EXPECT_FALSE(kernel.report.serialised) << kernel.log;
  EXPECT_FALSE(kernel.report.ignored_register_budget) << kernel.log;
  const std::string text = test::example_text(GetParam());
  if (text.find("mma ") == std::string::npos) {
    EXPECT_EQ(tensor_core_instructions(kernel.cubin), 0);
  } else {
    EXPECT_GE(tensor_core_instructions(kernel.cubin), 4);
  }
  // The assembler puts in a wait where a branch joins a product's result with another value: once, before the loop.
  if (GetParam() != "matmul") {
    EXPECT_FALSE(kernel.report.injected_waits) << kernel.log;
  }
}

INSTANTIATE_TEST_SUITE_P(Examples, ExampleCompiles, ::testing::ValuesIn(test::example_programs()),
                         [](const auto& example) { return example.param; });

class InstructionCompiles : public EmitCompile {};

TEST_P(InstructionCompiles, WithoutSpills) {
  for (const auto& instruction : test::instruction_programs()) {
    if (instruction.name != GetParam()) continue;
    const auto program = program::parse(instruction.text, instruction.name);
    ASSERT_TRUE(program) << program.error().format();
    const runtime::CompiledKernel kernel = compile(*program);
    EXPECT_FALSE(kernel.report.spills()) << kernel.log;
    EXPECT_FALSE(kernel.report.serialised) << kernel.log;
  }
}

std::vector<std::string> instruction_names() {
  std::vector<std::string> names;
  for (const auto& instruction : test::instruction_programs()) names.push_back(instruction.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Instructions, InstructionCompiles, ::testing::ValuesIn(instruction_names()),
                         [](const auto& instruction) { return instruction.param; });

}  // namespace
}  // namespace pipethreader::emit
