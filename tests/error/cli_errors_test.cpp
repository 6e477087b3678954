// What the program says, and leaves with, when its user errs: a kernel's mistakes with their place (1), wrong command
// lines (2), wrong results never silently, and no internal error for any of it.
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/program_runner.h"

namespace pipethreader {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::string kernels = std::string(PIPETHREADER_SOURCE_DIR) + "/kernels/";

class CliErrors : public ::testing::Test {
 protected:
  support::Outcome run(const std::vector<std::string>& arguments) {
    auto outcome = program_(arguments);
    EXPECT_THAT(outcome.err, Not(HasSubstr("internal error")));
    return outcome;
  }
  void expect_misuse(const std::vector<std::string>& arguments, const std::string& text) {
    const auto outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(text));
  }
  void expect_error(const std::vector<std::string>& arguments, const std::string& text) {
    const auto outcome = run(arguments);
    EXPECT_EQ(outcome.status, 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(text));
  }
  support::ProgramRunner program_{PIPETHREADER_PROGRAM};
  const std::string matmul_ = kernels + "matmul.stask";
};

TEST_F(CliErrors, WrongCommandLines) {
  expect_misuse({}, "subcommand");
  expect_misuse({"fly"}, "fly");
  expect_misuse({"compile"}, "FILE");
  expect_misuse({"compile", matmul_, "--speed", "3"}, "--speed");
  expect_misuse({"compile", matmul_, "--dim", "M"}, "--dim takes NAME=VALUE, found 'M'");
  expect_misuse({"compile", matmul_, "--dim", "M=many"}, "--dim takes a number, found 'M=many'");
  expect_misuse({"compile", matmul_, "--dim", "M=-1"}, "whole number");
  expect_misuse({"compile", matmul_, "--dim", "M=1.5"}, "whole number");
  expect_misuse({"compile", matmul_, "--dim", "M=99999999999"}, "whole number");
  expect_misuse({"compile", matmul_, "--force", "rows=1"}, "known are row, column");
  expect_misuse({"run", matmul_, "--on", "moon"}, "moon");
  expect_misuse({"run", matmul_, "--on", "cpu", "--dim", "M=8", "--dim", "N=8", "--dim", "K=8", "--range", "A=1"},
                "NAME=LOW:HIGH");
  expect_misuse({"dump", matmul_, "--stage", "soup"}, "soup");
  expect_misuse({"cache"}, "subcommand");
}

TEST_F(CliErrors, FilesThatAreNoKernels) {
  expect_error({"compile", "missing.stask"}, "missing.stask: error: cannot read");
  expect_error({"compile", program_.folder()}, "cannot read");
  expect_error({"compile", program_.file("empty.stask", "")}, "the file holds no kernel");
  expect_error({"compile", program_.file("cut.stask", "kernel f(X: f32[N")}, "cut.stask:1:");
  expect_error({"compile", program_.file("binary.stask", std::string("\x7f"
                                                                     "ELF\x02\x01\0\0\xff\xfe",
                                                                     10))},
               "binary.stask:1:1: error:");
  std::string deep = "kernel f(X: f32[N]) -> (Y: f32[N]) {\n  parallel n: N;\n  Y[n] = ";
  deep += std::string(100000, '(') + "X[n]" + std::string(100000, ')') + ";\n}\n";
  expect_error({"compile", program_.file("deep.stask", deep)}, "deep.stask:3:");
  expect_error({"compile", program_.file("huge.stask", std::string(std::size_t{5} << 20, ' '))},
               "a kernel file has at most");
}

TEST_F(CliErrors, MistakesInAKernelHaveTheirPlace) {
  const std::string file =
      program_.file("bad.stask", "kernel f(X: f32[N]) -> (Y: f32[N]) {\n  parallel n: N;\n  Y[n] = X[q];\n}\n");
  const auto outcome = run({"compile", file});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, StartsWith(file + ":3:12: error: "));
}

TEST_F(CliErrors, NamesThatAreNotThere) {
  expect_error({"compile", matmul_, "--kernel", "product"}, "it holds matmul, matmul_b_rows");
  expect_error({"compile", matmul_, "--device", "h900"}, "h900");
  expect_error({"compile", matmul_, "--dim", "Q=3"}, "Q");
  expect_error({"compile", matmul_, "--option", "fast=1"}, "fast");
  const std::vector<std::string> small = {"run", matmul_, "--on", "cpu",   "--dim",
                                          "M=8", "--dim", "N=8",  "--dim", "K=8"};
  const auto with = [&](const std::string& option, const std::string& value) {
    auto command = small;
    command.push_back(option);
    command.push_back(value);
    return command;
  };
  expect_error(with("--set", "speed=1"), "no scalar 'speed'");
  expect_error(with("--input", "D=x.npy"), "no input 'D'");
  expect_error(with("--input", "A=missing.npy"), "missing.npy");
  expect_error(with("--output", "A=x.npy"), "no output 'A'");
  expect_error(with("--range", "D=0:1"), "no input is named 'D'");
}

TEST_F(CliErrors, SizesThatAreMissingOrRefused) {
  expect_error({"run", matmul_, "--on", "cpu", "--dim", "M=8"}, "no size for");
  expect_error({"run", kernels + "flash_attention.stask", "--on", "cpu", "--dim", "B=1", "--dim", "H=3", "--dim", "G=2",
                "--dim", "S=4", "--dim", "T=4", "--dim", "D=16"},
               "H");
}

TEST_F(CliErrors, WhatCannotBeWritten) {
  const std::vector<std::string> compile = {"compile", matmul_, "--source-only", "--dim", "M=8",
                                            "--dim",   "N=8",   "--dim",         "K=8",   "--out"};
  const auto to = [&](const std::string& folder) {
    auto command = compile;
    command.push_back(folder);
    return command;
  };
  expect_error(to("/proc/nowhere"), "/proc/nowhere");
  expect_error(to(program_.file("file", "x") + "/inside"), "file");
  if (std::filesystem::exists("/dev/full")) {  // a full disk, as far as standard output goes
    const std::string command =
        std::string("'") + PIPETHREADER_PROGRAM + "' devices > /dev/full 2>'" + program_.path("full.err") + "'";
    EXPECT_NE(std::system(command.c_str()), 0);  // NOLINT: the command is ours
  }
  // The cache's place is no reason to fail.
  program_.set("PIPETHREADER_CACHE", "/proc/nowhere");
  const auto outcome = run(to(program_.path("out")));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("warning: "));
}

TEST_F(CliErrors, WithoutARunTimeCompilerThereIsSourceAndAnExplanation) {
  program_.set("PIPETHREADER_NVRTC", "/nowhere/libnvrtc.so");
  const auto outcome = run({"compile", matmul_, "--dim", "M=8", "--dim", "N=8", "--dim", "K=8"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("machine     none: "));
  EXPECT_TRUE(std::filesystem::exists(program_.path("out/matmul.cu")));
}

TEST_F(CliErrors, AProgramThatCannotBeProvedHasAWitness) {
  auto outcome = run({"dump", matmul_, "--stage", "program", "--dim", "M=64", "--dim", "N=64", "--dim", "K=256",
                      "--force", "row=64", "--force", "lanes=1", "--force", "column=64", "--force", "stream=32"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::string text = outcome.out;
  const std::size_t wait = text.find("mma_wait");
  ASSERT_NE(wait, std::string::npos) << text;
  text.erase(text.rfind('\n', wait), text.find('\n', wait) - text.rfind('\n', wait));
  outcome = run({"verify", program_.file("raced.program", text)});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out, HasSubstr("rejected"));
  EXPECT_THAT(outcome.err, HasSubstr("witness: "));
  EXPECT_THAT(outcome.err, HasSubstr("replayed: "));
}

TEST_F(CliErrors, AProgramsTextWithAMistakeHasItsPlace) {
  const std::string file = program_.file("broken.program", "program f\n\nthis is no declaration\n");
  const auto outcome = run({"verify", file});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, StartsWith(file + ":3:"));
}

}  // namespace
}  // namespace pipethreader
