// The program as its users run it: every command once, on small kernels and without a GPU.
#include <algorithm>
#include <chrono>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/npy.h"
#include "support/program_runner.h"

namespace pipethreader {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kernels = std::string(PIPETHREADER_SOURCE_DIR) + "/kernels/";

class Cli : public ::testing::Test {
 protected:
  support::Outcome run(std::vector<std::string> arguments) { return program_(arguments); }
  support::ProgramRunner program_{PIPETHREADER_PROGRAM};
};

std::vector<std::string> with(std::vector<std::string> first, const std::vector<std::string>& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

const std::vector<std::string> small = {"--dim",  "M=70",    "--dim",   "N=24",    "--dim",     "K=40",    "--force",
                                        "row=64", "--force", "lanes=1", "--force", "column=32", "--force", "stream=32"};

TEST_F(Cli, HelpNamesTheCommandsAndTheExitStatuses) {
  const auto help = run({"--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* command : {"compile", "run", "explain", "verify", "tune", "bench", "devices", "cache", "dump"}) {
    EXPECT_THAT(help.out, HasSubstr(command));
    EXPECT_EQ(run({command, "--help"}).status, 0) << command;
  }
  EXPECT_THAT(help.out, HasSubstr("Exit status"));
  EXPECT_EQ(run({"--version"}).status, 0);
}

TEST_F(Cli, CompileWritesSourceProgramAndReport) {
  const auto done = run(with({"compile", kernels + "matmul.stask", "--source-only", "--out", "made/here"}, small));
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.out, StartsWith("matmul for h100: specialised"));
  for (const char* name : {"matmul.cu", "matmul.program", "matmul.report.json"}) {
    EXPECT_TRUE(std::filesystem::exists(program_.path("made/here/") + name)) << name;
  }
  // What was written verifies by itself.
  const auto verified = run({"verify", "made/here/matmul.program"});
  EXPECT_EQ(verified.status, 0) << verified.err;
  EXPECT_THAT(verified.out, HasSubstr("matmul: proved"));
}

// Machine code is looked at with --source-only, too, so that both choose the same schedule; it is not kept.
TEST_F(Cli, SourceOnlyLeavesOutTheMachineCodeAndNothingElse) {
  const std::vector<std::string> command = {
      "compile", kernels + "matmul.stask", "--no-cache", "--dim", "M=512", "--dim", "N=512", "--dim", "K=512"};
  const auto full = run(with(command, {"--out", "full"}));
  const auto source = run(with(command, {"--out", "source", "--source-only"}));
  ASSERT_EQ(full.status, 0) << full.err;
  ASSERT_EQ(source.status, 0) << source.err;
  EXPECT_THAT(source.out, HasSubstr("machine     none: source only, as asked"));
  EXPECT_FALSE(std::filesystem::exists(program_.path("source/matmul.cubin")));
  if (!std::filesystem::exists(program_.path("full/matmul.cubin"))) GTEST_SKIP() << full.out;
  EXPECT_THAT(source.out, HasSubstr("assemble"));
  const auto choices = [](const std::string& out) {
    const std::size_t at = out.find("choices");
    return out.substr(at, out.find('\n', at) - at);
  };
  EXPECT_EQ(choices(source.out), choices(full.out));
  program_.set("PIPETHREADER_NVRTC", "/nowhere/libnvrtc.so");
  EXPECT_THAT(run(with(command, {"--source-only"})).out,
              HasSubstr("no run-time compiler was found, so the schedule was chosen without its machine code"));
}

TEST_F(Cli, TheReportAsJson) {
  const auto done = run(with({"compile", kernels + "matmul.stask", "--source-only", "--json"}, small));
  ASSERT_EQ(done.status, 0) << done.err;
  const auto json = nlohmann::json::parse(done.out);
  EXPECT_EQ(json.at("kernel"), "matmul");
  EXPECT_EQ(json.at("specialised"), true);
  EXPECT_EQ(json.at("dims").at("M"), 70);
}

TEST_F(Cli, TheSecondCompilationIsQuick) {
  const auto command = with({"compile", kernels + "matmul.stask", "--source-only"}, small);
  ASSERT_EQ(run(command).status, 0);
  // The best of a few: the machine may be busy. The bar for a release build on a quiet one is 50 ms.
  auto best = std::chrono::steady_clock::duration::max();
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const auto again = run(command);
    best = std::min(best, std::chrono::steady_clock::now() - start);
    EXPECT_THAT(again.out, HasSubstr("cache"));
  }
  EXPECT_LT(best, std::chrono::milliseconds(1500));
}

TEST_F(Cli, RunOnTheCpuComparesWithTheOracle) {
  const auto done = run(with({"run", kernels + "matmul.stask", "--on", "cpu"}, small));
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("matmul for h100: specialised"));
  EXPECT_THAT(done.out, HasSubstr("against the oracle"));
}

TEST_F(Cli, ADynamicKernelTakesItsSizesWhenItRuns) {
  const std::vector<std::string> force = {"--force", "row=64",    "--force", "lanes=1",
                                          "--force", "column=32", "--force", "stream=32"};
  for (const char* k : {"40", "41", "0"}) {
    const auto done = run(with({"run", kernels + "matmul.stask", "--on", "cpu", "--size", "M=70", "--size", "N=24",
                                "--size", std::string("K=") + k},
                               force));
    EXPECT_EQ(done.status, 0) << done.out << done.err;
    EXPECT_THAT(done.out, HasSubstr(std::string(k) == "41" ? "generic: " : "specialised"));
  }
}

TEST_F(Cli, InputsAndOutputsAreNpyFiles) {
  const std::string kernel = program_.file("scale.stask",
                                           "kernel scale(X: f32[N], factor: f32) -> (Y: f32[N]) {\n"
                                           "  parallel n: N;\n  Y[n] = factor * X[n];\n}\n");
  ASSERT_TRUE(runtime::write_npy(program_.path("x.npy"), {{3}, ScalarType::f32, {1, -2, 0.5}}));
  const auto done = run(
      {"run", kernel, "--on", "cpu", "--dim", "N=3", "--set", "factor=4", "--input", "X=x.npy", "--output", "Y=y.npy"});
  ASSERT_EQ(done.status, 0) << done.err;
  const auto result = runtime::read_npy(program_.path("y.npy"));
  ASSERT_TRUE(result) << result.error().format();
  EXPECT_EQ(result->values, (std::vector<double>{4, -8, 2}));
}

TEST_F(Cli, FilesOfInputsGiveTheSizesOfDims) {
  const std::string kernel = program_.file("masked.stask",
                                           "kernel masked(X: f32[B,2*T], mask: f32[T]) -> (Y: f32[B,T]) {\n"
                                           "  parallel b: B, t: T;\n  Y[b,t] = mask[t] * X[b,t];\n}\n");
  ASSERT_TRUE(runtime::write_npy(program_.path("x.npy"), {{1, 4}, ScalarType::f32, {1, 2, 3, 4}}));
  ASSERT_TRUE(runtime::write_npy(program_.path("m.npy"), {{2}, ScalarType::f32, {0, 1}}));
  const auto done =
      run({"run", kernel, "--on", "cpu", "--input", "X=x.npy", "--input", "mask=m.npy", "--output", "Y=y.npy"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(runtime::read_npy(program_.path("y.npy"))->values, (std::vector<double>{0, 2}));
}

TEST_F(Cli, ARunThatNeedsItsSizesWhenCompilingSaysWhy) {
  const auto done = run({"run", kernels + "flash_attention.stask", "--on", "cpu", "--size", "B=1", "--size", "H=1",
                         "--size", "G=1", "--size", "S=8", "--size", "T=8", "--size", "D=16"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(
      done.out,
      StartsWith("  compiled    for the sizes of this run, since with dynamic dims: this statement needs all of "
                 "the inner axis 'd' at once"));
}

TEST_F(Cli, RangesMoveTheRandomInputs) {
  const std::string kernel =
      program_.file("copy.stask", "kernel copy(X: f32[N]) -> (Y: f32[N]) {\n  parallel n: N;\n  Y[n] = X[n];\n}\n");
  const auto done = run({"run", kernel, "--on", "cpu", "--dim", "N=50", "--range", "X=5:6", "--output", "Y=y.npy"});
  ASSERT_EQ(done.status, 0) << done.err;
  const auto result = runtime::read_npy(program_.path("y.npy"));
  ASSERT_TRUE(result);
  for (const double v : result->values) EXPECT_TRUE(v >= 5 && v <= 6) << v;
}

TEST_F(Cli, ExplainShowsTableChartPageAndTrace) {
  const auto done = run({"explain", kernels + "matmul.stask", "--html", "t.html", "--trace", "t.json", "--dim", "M=256",
                         "--dim", "N=256", "--dim", "K=1024"});
  ASSERT_EQ(done.status, 0) << done.err;
  for (const char* text : {"mma", "TensorCore", "A steady iteration over", "ring depths", "load",
                           "\n  item bound by   ", "\n  launch bound by ", "Candidates:", ": chosen"})
    EXPECT_THAT(done.out, HasSubstr(text));
  EXPECT_GT(std::filesystem::file_size(program_.path("t.html")), 1000u);
  const auto trace = run({"cache", "size"});
  EXPECT_EQ(trace.status, 0);
  EXPECT_TRUE(std::filesystem::exists(program_.path("t.json")));
}

// What `explain` prints of its choice is what `--force` takes, and gives the same schedule.
TEST_F(Cli, PrintedChoicesAreForcedBack) {
  const std::vector<std::vector<std::string>> commands = {
      {"matmul.stask", "--dim", "M=2048", "--dim", "N=2048", "--dim", "K=2048"},
      {"matmul.stask", "--dim", "M=64", "--dim", "N=64", "--dim", "K=4096", "--force", "split=8"},
      {"matmul.stask", "--dim", "M=512", "--dim", "N=512", "--dim", "K=512", "--force", "bulk=off turns=on"},
      {"softmax.stask", "--dim", "M=4096", "--dim", "N=1000"},
      {"softmax.stask", "--dim", "N=1000", "--force", "element=3000"},
      {"flash_attention.stask", "--dim", "B=1", "--dim", "H=4", "--dim", "G=4", "--dim", "S=512", "--dim", "T=512",
       "--dim", "D=64", "--force", "pass=off lanes=2"},
      {"chunk_state.stask", "--dim", "B=2", "--dim", "C=2", "--dim", "H=8", "--dim", "G=1", "--dim", "L=256", "--dim",
       "P=64", "--dim", "N=128", "--force", "walk=h:4"},
  };
  const auto schedule = [](const std::string& out) { return out.substr(0, out.find("\nCandidates:")); };
  for (std::vector<std::string> command : commands) {
    command[0] = kernels + command[0];
    command.insert(command.begin(), "explain");
    const auto first = run(command);
    ASSERT_EQ(first.status, 0) << first.err;
    const std::string head = "  choices     ";
    const std::size_t at = first.out.find(head);
    ASSERT_NE(at, std::string::npos) << first.out;
    const std::string choices = first.out.substr(at + head.size(), first.out.find('\n', at) - at - head.size());
    const auto last = std::find(command.begin(), command.end(), "--force");
    command.erase(last, command.end());
    const auto again = run(with(command, {"--force", choices}));
    EXPECT_EQ(again.status, 0) << choices << again.err;
    EXPECT_EQ(schedule(again.out), schedule(first.out)) << choices;
  }
}

TEST_F(Cli, CandidatesThatAreAlikeAreShownOnce) {
  const auto done = run({"explain", kernels + "softmax.stask", "--dim", "M=4096", "--dim", "N=4096"});
  ASSERT_EQ(done.status, 0) << done.err;
  const std::size_t end = done.out.find(": chosen");
  ASSERT_NE(end, std::string::npos) << done.out;
  const std::size_t begin = done.out.rfind("element=", end);
  ASSERT_NE(begin, std::string::npos) << done.out;
  EXPECT_EQ(done.out.find(done.out.substr(begin, end - begin) + ":", end), std::string::npos) << done.out;
}

TEST_F(Cli, VerifyProvesAKernel) {
  const auto done = run(with({"verify", kernels + "matmul.stask"}, small));
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("proved"));
}

TEST_F(Cli, DumpPrintsEachStage) {
  const std::pair<const char*, const char*> stages[] = {
      {"kernel", "kernel matmul("}, {"task", "tensor_core"},       {"partition", "tiles"}, {"layout", "product rows"},
      {"schedule", "sprogram"},     {"program", "program matmul"}, {"cuda", "__global__"}};
  for (const auto& [stage, text] : stages) {
    const auto done = run(with({"dump", kernels + "matmul.stask", "--stage", stage}, small));
    EXPECT_EQ(done.status, 0) << stage << done.err;
    EXPECT_THAT(done.out, HasSubstr(text)) << stage;
  }
}

TEST_F(Cli, DevicesListsWhatThereIs) {
  const auto done = run({"devices"});
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("NVIDIA H100 SXM"));
  EXPECT_THAT(done.out, HasSubstr("h200"));
  EXPECT_THAT(done.out, HasSubstr("run-time compiler"));
}

TEST_F(Cli, TheCacheIsListedAndCleared) {
  program_.set("PIPETHREADER_NVRTC", "/nowhere/libnvrtc.so");  // else machine code is kept beside the plan
  ASSERT_EQ(run(with({"compile", kernels + "matmul.stask", "--source-only"}, small)).status, 0);
  EXPECT_THAT(run({"cache", "list"}).out, HasSubstr("plan matmul"));
  EXPECT_THAT(run({"cache", "size"}).out, HasSubstr(program_.path("cache")));
  EXPECT_THAT(run({"cache", "clear"}).out, HasSubstr("1 files removed"));
  EXPECT_EQ(run({"cache", "list"}).out, "");
}

}  // namespace
}  // namespace pipethreader
