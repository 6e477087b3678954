// What the program says, and leaves with, when its user errs: a kernel's mistakes with their place (1), wrong command
// lines (2), wrong results never silently, and no internal error for any of it.
#include <filesystem>
#include <fstream>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/compiler.h"
#include "runtime/npy.h"
#include "support/program_runner.h"

namespace pipethreader {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
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
  const std::string attention_ = kernels + "flash_attention.stask";
  const std::vector<std::string> product_ = {"run", matmul_, "--on", "cpu",   "--dim",
                                             "M=8", "--dim", "N=8",  "--dim", "K=8"};
  [[nodiscard]] std::vector<std::string> product_with(const std::string& option, const std::string& value) const {
    auto command = product_;
    command.push_back(option);
    command.push_back(value);
    return command;
  }
};

TEST_F(CliErrors, WrongCommandLines) {
  expect_misuse({}, "subcommand");
  expect_misuse({"fly"}, "there is no command 'fly'; `pipethreader --help` lists them");
  expect_misuse({"compile"}, "FILE");
  expect_misuse({"compile", matmul_, "--speed", "3"}, "--speed");
  expect_misuse({"verify", matmul_, "--size", "N=4"},
                "hint: --size is of `run`, `bench` and `tune`; here, --dim fixes a dim");
  expect_misuse({"compile", matmul_, "--force", "row=64 column"}, "--force takes KEY=VALUE, found 'column'");
  expect_misuse({"compile", matmul_, "--force", "row=64 row=128"}, "--force gives 'row' twice");
  expect_misuse({"compile", matmul_, "--dim", "M"}, "--dim takes NAME=SIZE, found 'M'");
  expect_misuse({"compile", matmul_, "--force", "row=64", "--force", "row=128"}, "--force gives 'row' twice");
  expect_misuse({"run", attention_, "--set", "scale=1", "--set", "scale=2"}, "--set gives 'scale' twice");
  for (const std::string size : {"many", "-1", "1.5", "2147483648", "1e400", "0x10", "nan", "inf", "true", "4096B"}) {
    expect_misuse({"compile", matmul_, "--dim", "M=" + size},
                  "--dim takes a whole number from 0 to 2147483647, found 'M=" + size + "'");
  }
  expect_misuse({"compile", matmul_, "--dim", "M="}, "--dim takes NAME=SIZE, found 'M='");
  expect_misuse({"compile", attention_, "--option", "causal=maybe"},
                "--option takes a number, true or false, found 'causal=maybe'");
  expect_misuse({"explain", matmul_, "--trips", "0"}, "--trips");
  expect_misuse({"compile", matmul_, "--force", "rows=1"}, "known are split, row, column");
  // Without an axis there is nothing to walk: not the same as no walk at all.
  for (const std::string walk : {":8", "h", "h:", "h:1", "h:many"}) {
    expect_misuse({"compile", attention_, "--force", "walk=" + walk},
                  "'walk' must be off or AXIS:STEPS, such as h:8; found '" + walk + "'");
  }
  expect_misuse({"run", matmul_, "--on", "moon"}, "moon");
  expect_misuse({"run", matmul_, "--on", "cpu", "--dim", "M=8", "--dim", "N=8", "--dim", "K=8", "--range", "A=1"},
                "NAME=LOW:HIGH");
  expect_misuse({"dump", matmul_, "--stage", "soup"}, "soup");
  expect_misuse({"cache"}, "subcommand");
  expect_misuse({"cache", "shrink"}, "there is no command 'shrink'; `pipethreader cache --help` lists them");
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
  expect_error({"compile", program_.file("huge.stask", std::string(std::size_t{5} << 20, ' '))},
               "a kernel file may have at most");
}

// One statement, `Y[n] = <expression>;`, on line 3.
std::string kernel_of(const std::string& expression) {
  return "kernel f(X: f32[N]) -> (Y: f32[N]) {\n  parallel n: N;\n  Y[n] = " + expression + ";\n}\n";
}

std::string repeated(const std::string& text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) result += text;
  return result;
}

TEST_F(CliErrors, DeepNestingIsRefusedAtItsPlace) {
  const std::pair<std::string, std::string> kinds[] = {
      {"parentheses", repeated("(", 10'000) + "X[n]" + repeated(")", 10'000)},
      {"minus", repeated("-", 10'000) + "X[n]"},
      {"minus_of", repeated("-(", 10'000) + "X[n]" + repeated(")", 10'000)},
      {"not", "select(" + repeated("!", 10'000) + "(X[n] > 0), 1, 2)"},
      {"select", repeated("select(X[n] > 0, ", 5'000) + "X[n]" + repeated(", 1)", 5'000)},
      {"sum", "X[n]" + repeated(" + X[n]", 10'000)},
  };
  for (const auto& [name, expression] : kinds) {
    const std::string file = program_.file(name + ".stask", kernel_of(expression));
    for (const char* command : {"compile", "explain", "verify"}) expect_error({command, file}, name + ".stask:3:");
  }
  const std::string loops = "kernel f(X: f32[N]) -> (Y: f32[N]) {\n  parallel n: N;\n  carry a[n] = 0;\n" +
                            repeated("for j: N { ", 3'000) + "a[n] += X[n];" + repeated("}", 3'000) +
                            "\n  Y[n] = a[n];\n}\n";
  expect_error({"compile", program_.file("loops.stask", loops)}, "loops.stask:4:");
}

TEST_F(CliErrors, ThousandsOfStatementsCompile) {
  std::string text = "kernel f(X: f32[N]) -> (Y: f32[N]) {\n  parallel n: N;\n  x0[n] = X[n];\n";
  for (int i = 1; i < 5'000; ++i) text += fmt::format("  x{}[n] = x{}[n] + 1;\n", i, i - 1);
  const auto outcome =
      run({"dump", program_.file("long.stask", text + "  Y[n] = x4999[n];\n}\n"), "--stage", "task", "--dim", "N=64"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

// Cut at any byte, a file is refused at a place in it, or is whole. Every cut is read; every 64th goes the whole way.
TEST_F(CliErrors, TruncatedKernels) {
  std::ifstream in(attention_, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  ASSERT_GT(text.size(), 500u);
  for (std::size_t n = 0; n <= text.size(); ++n) {
    const std::string file = program_.file("cut.stask", text.substr(0, n));
    const auto kernel = driver::load_kernel(file);
    if (kernel) {
      EXPECT_GT(n, text.rfind('}')) << n;
    } else {
      for (const Diagnostic& d : kernel.error().diagnostics) EXPECT_TRUE(d.span.known()) << n << ": " << d.format();
    }
    if (n % 64 != 0) continue;
    const auto outcome = run({"compile", file, "--source-only"});
    EXPECT_EQ(outcome.status, kernel ? 0 : 1) << n << outcome.err;
    if (kernel) continue;
    EXPECT_THAT(outcome.err, ContainsRegex("^[^\n]*cut.stask:[0-9]+:[0-9]+: error: ")) << n;
  }
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
  const std::string no_dim = "matmul.stask: error: kernel 'matmul' has no dim 'Q'\n  hint: its dims are: M, K, N";
  expect_error({"compile", matmul_, "--dim", "Q=3"}, no_dim);
  expect_error({"run", matmul_, "--on", "cpu", "--size", "Q=3"}, no_dim);
  expect_error({"compile", matmul_, "--option", "fast=1"}, "fast");
  expect_error(product_with("--set", "speed=1"), "no scalar 'speed'");
  expect_error(product_with("--input", "D=x.npy"), "no input 'D'");
  expect_error(product_with("--input", "A=missing.npy"), "missing.npy");
  expect_error(product_with("--output", "A=x.npy"), "no output 'A'");
  expect_error(product_with("--range", "D=0:1"), "no input is named 'D'");
  // Nothing was compiled: no line says that it was.
  const auto outcome = run({"run", matmul_, "--on", "cpu", "--kernel", "product", "--size", "M=1"});
  EXPECT_EQ(outcome.out, "");
}

TEST_F(CliErrors, WhatIsGivenTwiceOrIsNothing) {
  const std::vector<std::string> sizes = {"run", matmul_, "--on", "cpu", "--size", "M=5", "--size", "N=6"};
  const auto more = [&](const std::string& option, const std::string& text) {
    std::vector<std::string> command = sizes;
    command.insert(command.end(), {option, text});
    return command;
  };
  expect_misuse(more("--size", "M=6"), "--size gives 'M' twice");
  expect_misuse(more("--dim", "M=5"), "'M' is given by --dim and by --size");
  expect_misuse(more("--seed", "-1"), "--seed: takes a whole number, 0 or more, found '-1'");
  expect_misuse(more("--seed", "1.5"), "--seed: takes a whole number, 0 or more, found '1.5'");
  expect_misuse({"compile", matmul_, "--out", ""}, "--out: takes a name, found ''");
  expect_misuse({"explain", matmul_, "--trace", ""}, "--trace: takes a name, found ''");
}

TEST_F(CliErrors, FilesThatHaveNoEnd) {
  if (!std::filesystem::is_character_file("/dev/zero")) GTEST_SKIP() << "no /dev/zero here";
  expect_error(product_with("--input", "A=/dev/zero"), "/dev/zero: error: this is no regular file");
  expect_error({"compile", "/dev/zero"}, "/dev/zero: error: cannot read '/dev/zero': it is a device");
}

TEST_F(CliErrors, FoldersThatAreMissingAreNotMade) {
  const std::string missing = program_.path("missing");
  const std::string reason = "No such file or directory\n  hint: make its folder first";
  const std::vector<std::string> explain = {"explain", matmul_, "--dim", "M=64", "--dim", "N=64", "--dim", "K=64"};
  for (const std::string option : {"--html", "--trace"}) {
    std::vector<std::string> command = explain;
    command.insert(command.end(), {option, missing + "/t"});
    expect_error(command, reason);
  }
  expect_error(product_with("--output", "C=" + missing + "/c.npy"), reason);
  EXPECT_FALSE(std::filesystem::exists(missing));
}

TEST_F(CliErrors, SizesThatAreMissingOrRefused) {
  expect_error({"run", matmul_, "--on", "cpu", "--dim", "M=8"}, "no size for");
  const auto attention = [&](const std::string& heads, const std::string& groups) {
    return std::vector<std::string>{"run",   attention_, "--on",  "cpu", "--dim", "B=1", "--dim", heads,
                                    "--dim", groups,     "--dim", "S=4", "--dim", "T=4", "--dim", "D=16"};
  };
  expect_error(attention("H=3", "G=2"),
               "flash_attention.stask:4:40: error: `require H % G == 0` does not hold with H=3, G=2");
  expect_error(attention("H=4", "G=0"), "divides by zero with H=4, G=0");
  expect_error({"compile", matmul_, "--dim", "M=5", "--dim", "M=6"}, "'M' is given twice");
  expect_error({"compile", attention_, "--option", "causal=2"},
               "flash_attention.stask:4:10: error: option 'causal' is bool");
  expect_error({"compile", attention_, "--dim", "D=1000000"}, "fix a size of at most 256 with --dim");
}

TEST_F(CliErrors, SizesWhoseProductIsTooLarge) {
  for (const char* with : {"--dim", "--size"}) {
    expect_error({"run", matmul_, "--on", "cpu", with, "M=2147483647", with, "N=2147483647", with, "K=2147483647"},
                 "tensor 'A' would have more than 2^48 elements");
    // Few enough to be addressed, too many for any machine: never left to the system, which would end the program.
    expect_error({"run", matmul_, "--on", "cpu", with, "M=2147483647", with, "N=64", with, "K=100000"},
                 "and this machine has");
  }
  const auto outcome = run({"compile", matmul_, "--source-only", "--dim", "M=2147483647", "--dim", "N=64"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

TEST_F(CliErrors, NoSizeAtAllIsNoWork) {
  for (const std::vector<std::string>& sizes :
       std::vector<std::vector<std::string>>{{"M=0", "N=8", "K=8"}, {"M=8", "N=0", "K=8"}, {"M=8", "N=8", "K=0"}}) {
    const auto outcome = run({"run", matmul_, "--on", "cpu", "--dim", sizes[0], "--dim", sizes[1], "--dim", sizes[2]});
    EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  }
}

TEST_F(CliErrors, ForcedTilesThatFitNoLayoutAreRoundedUpOrRefused) {
  for (const std::string row : {"1", "63", "65", "1000"}) {
    for (const char* lanes : {"lanes=1", "lanes=4"}) {
      const auto outcome = run({"verify", matmul_, "--dim", "M=256", "--dim", "N=64", "--dim", "K=64", "--force",
                                "row=" + row, "--force", lanes, "--force", "column=33", "--force", "stream=17"});
      EXPECT_EQ(outcome.status, 0) << row << lanes << outcome.err;
    }
  }
  expect_error({"compile", matmul_, "--force", "row=1024", "--force", "column=1024"}, "bytes have to go");
  expect_error({"compile", matmul_, "--force", "element=64"},
               "'element' is for kernels without products on the tensor core; 'matmul' has some");
  expect_error({"compile", PIPETHREADER_SOURCE_DIR "/kernels/softmax.stask", "--force", "row=64"},
               "'row' is for products on the tensor core; 'softmax' has none: its tiles are element and stream");
  expect_error({"compile", matmul_, "--force", "teams=q:2"}, "there is no parallel axis 'q' without tiles for teams");
  expect_misuse({"compile", matmul_, "--force", "teams=q"}, "must be off or AXIS:TEAMS, such as h:2; found 'q'");
  expect_error({"compile", matmul_, "--dim", "M=512", "--dim", "N=512", "--dim", "K=4096", "--force", "blocks=4",
                "--force", "lanes=3", "--force", "row=192", "--force", "column=64"},
               "need more registers than a launch of so many threads has");
}

// Some candidates fail at once, since they have teams along what is walked; most end at the size of shared memory.
TEST_F(CliErrors, OfCandidatesThatFailTheOneThatGotFurthestSaysWhy) {
  expect_error({"explain",  kernels + "chunk_scan.stask",
                "--dim",    "B=8",
                "--dim",    "C=32",
                "--dim",    "H=64",
                "--dim",    "G=1",
                "--dim",    "L=256",
                "--dim",    "P=64",
                "--dim",    "N=128",
                "--device", "h200",
                "--force",  "walk=h:64 row=256 lanes=4 stream=64 column=64 depth=16"},
               "bytes of shared memory a block, the limit is 232448");
}

TEST_F(CliErrors, DumpPrintsAStageThatWasReachedThoughALaterOneFails) {
  for (const std::string stage : {"task", "partition", "layout", "schedule"}) {
    const auto outcome = run({"dump", matmul_, "--stage", stage, "--force", "row=1024", "--force", "column=1024"});
    EXPECT_EQ(outcome.status, 0) << stage << outcome.err;
    EXPECT_NE(outcome.out, "") << stage;
    EXPECT_THAT(outcome.err, StartsWith("note: a later stage fails: error: program 'matmul' needs"));
  }
  const auto outcome = run({"dump", matmul_, "--stage", "program", "--force", "row=1024", "--force", "column=1024"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, StartsWith("error: program 'matmul' needs"));
}

TEST_F(CliErrors, AKernelThatCannotBeProvedInTimeSaysWhatToDo) {
  // Products of f32 run index by index: with every size dynamic, too many ways through the loops.
  const std::string file = program_.file(
      "wide.stask",
      "kernel f(A: f32[B,L,L], X: f16[B,C*L,H,P], S: f16[B,C,H,P,N], M: f16[B,C*L,N]) -> (Y: f16[B,C*L,H,P]) {\n"
      "  parallel b: B, c: C, h: H, l: L, p: P;\n  carry y[l,p] = sum[n: N] M[b,c*L+l,n] * S[b,c,h,p,n];\n"
      "  for k: L where k <= l {\n    w[l,k] = A[b,l,k];\n    y[l,p] += sum[k] w[l,k] * X[b,c*L+k,h,p];\n  }\n"
      "  Y[b,c*L+l,h,p] = f16(y[l,p]);\n}\n");
  std::vector<std::string> command = {"dump", file, "--stage", "cuda"};
  for (const char* choice : {"row=64", "column=32", "stream=16", "lanes=1", "overlap=serial", "depth=1", "turns=off",
                             "staged=off", "order=single", "raster=1", "cluster=1", "bulk=on"}) {
    command.emplace_back("--force");
    command.emplace_back(choice);
  }
  expect_error(command,
               "wide.stask: error: no schedule of 'f' could be proved within the budget of a proof\n"
               "  hint: fix dims with --dim; dynamic are B, L, C, H, P, N");
}

TEST_F(CliErrors, AKernelWhoseResultDependsOnItsTilesIsToldSo) {
  // Each tile adds the product of the tile before it, so that the last one is left out: no two cuts agree.
  const std::string file = program_.file("cut.stask",
                                         "kernel f(A: f16[M,K], B: f16[N,K]) -> (C: f32[M,N]) {\n"
                                         "  parallel m: M, n: N;\n  carry c[m,n] = 0, last[m,n] = 0;\n"
                                         "  for k: K {\n    c[m,n] = c[m,n] + last[m,n];\n"
                                         "    last[m,n] = sum[k] A[m,k] * B[n,k];\n  }\n  C[m,n] = c[m,n];\n}\n");
  const auto outcome =
      run({"run", file, "--on", "cpu", "--dim", "M=8", "--dim", "N=8", "--dim", "K=240", "--force", "stream=32"});
  EXPECT_EQ(outcome.status, 3) << outcome.err;
  EXPECT_THAT(outcome.out,
              HasSubstr("\n  cause       the result of kernel 'f' depends on how its loops are cut into tiles"));
  // Even where the one tile of a small problem gives what the oracle gives.
  const auto small = run({"run", file, "--on", "cpu", "--dim", "M=8", "--dim", "N=8", "--dim", "K=16"});
  EXPECT_EQ(small.status, 3) << small.out << small.err;
  EXPECT_THAT(small.out,
              AllOf(HasSubstr("0 of 64 elements wrong; largest error: 0.00 of what rounding allows"),
                    HasSubstr("\n  but         right at these sizes only: the result of kernel 'f' depends on "
                              "how its loops are cut into tiles"),
                    Not(HasSubstr("cause"))));
}

TEST_F(CliErrors, DevicesThatCannotBe) {
  std::ifstream in(std::string(PIPETHREADER_SOURCE_DIR) + "/devices/h100.toml");
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  // The line that begins with `key` is replaced.
  const auto with = [&](const std::string& name, const std::string& key, const std::string& line) {
    std::string text = whole;
    const std::size_t at = text.find("\n" + key + " =") + 1;
    EXPECT_NE(at, 0u) << key;
    text.replace(at, text.find('\n', at) - at, line);
    return program_.file(name, text);
  };
  const auto on = [&](const std::string& device, const std::string& error) {
    expect_error({"compile", matmul_, "--dim", "M=64", "--dim", "N=64", "--dim", "K=64", "--device", device}, error);
  };
  on(program_.path("missing.toml"), "no such device description");
  on(program_.folder(), "expected one of h100, h200");
  on(program_.file("empty.toml", ""), "empty.toml:");
  on(program_.file("cut.toml", whole.substr(0, 3000)), "cut.toml:");
  on(with("none.toml", "execution_units", "execution_units = 0"), "'execution_units' is 0");
  on(with("small.toml", "shared_bytes_per_block", "shared_bytes_per_block = 0"), "the limit is 0");
  on(with("other.toml", "architecture", "architecture = \"sm_120\""), "no code generator for 'sm_120'");
  // What a device has none of is written as an empty list.
  const auto without = [&](const std::string& table) {
    std::string text = table + " = []\n" + whole;
    for (std::size_t at; (at = text.find("\n[[" + table + "]]")) != std::string::npos;) {
      const std::size_t next = text.find("\n[", at + 2);
      text.erase(at, (next == std::string::npos ? text.size() : next) - at);
    }
    return program_.file(table + ".toml", text);
  };
  on(without("mma"), "the device 'h100' has no product of f16 and f16 into f32, which 'matmul' needs");
  on(without("units"), "the device 'h100' has no ");
}

TEST_F(CliErrors, InputsThatAreNotWhatTheKernelTakes) {
  const auto saved = [&](const std::string& name, std::vector<std::int64_t> shape, ScalarType type) {
    std::size_t count = 1;
    for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
    EXPECT_TRUE(runtime::write_npy(program_.path(name), {std::move(shape), type, std::vector<double>(count, 1)}));
    return "A=" + program_.path(name);
  };
  const std::string good = saved("good.npy", {8, 8}, ScalarType::f16);
  EXPECT_EQ(run(product_with("--input", good)).status, 0);
  std::ifstream in(program_.path("good.npy"), std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  expect_error(product_with("--input", "A=" + program_.file("header.npy", bytes.substr(0, 20))), "cut short");
  expect_error(product_with("--input", "A=" + program_.file("data.npy", bytes.substr(0, 150))),
               "the file is truncated");
  expect_error(product_with("--input", "A=" + program_.file("more.npy", bytes + "x")), "more than one array");
  expect_error(product_with("--input", "A=" + program_.file("empty.npy", "")), "this is no .npy file");
  expect_error(product_with("--input", saved("f32.npy", {8, 8}, ScalarType::f32)),
               "has dtype '<f4', expected f16 ('<f2')");
  const std::string wide = saved("wide.npy", {8, 9}, ScalarType::f16);
  expect_error(product_with("--input", wide),
               "dim 'K' is 8 by --dim, but 9 by axis 2 of '" + program_.path("wide.npy") + "'");
  expect_error({"run", matmul_, "--on", "cpu", "--size", "K=7", "--input", wide}, "dim 'K' is 7 by --size, but 9 by");
  expect_error({"run", matmul_, "--on", "cpu", "--input", wide, "--input", "B=" + program_.path("good.npy")},
               "dim 'K' is 9 by axis 2 of '" + program_.path("wide.npy") + "', but 8 by axis 2 of '" +
                   program_.path("good.npy") + "'");
  expect_error(product_with("--input", saved("flat.npy", {64}, ScalarType::f16)),
               "flat.npy: error: the array has rank 1, but 'A' has rank 2");
  expect_error(product_with("--input", "A=" + program_.folder()), "Is a directory");
  expect_error(product_with("--input", "A=" + program_.path("missing.npy")), "cannot read");
  expect_misuse(product_with("--input", "A="), "NAME=FILE.npy");
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
  const std::string file = program_.file("file", "x");
  expect_error(to(file), "cannot make the folder '" + file + "'");
  expect_error(to(file + "/inside"), "cannot make the folder '" + file + "/inside'");
  const auto explain = [&](const std::string& option, const std::string& path) {
    return std::vector<std::string>{"explain", matmul_, "--dim", "M=64", "--dim",
                                    "N=64",    "--dim", "K=64",  option, path};
  };
  expect_error(explain("--html", program_.folder()), "cannot write '" + program_.folder() + "': Is a directory");
  expect_error(explain("--trace", "/proc/nowhere"), "cannot write '/proc/nowhere'");
  expect_error(product_with("--output", "C=/proc/nowhere.npy"), "cannot write '/proc/nowhere.npy'");
  expect_error(product_with("--output", "C=" + file + "/c.npy"), "cannot write '" + file + "/c.npy'");
  // The cache's place is no reason to fail.
  program_.set("PIPETHREADER_CACHE", "/proc/nowhere");
  const auto outcome = run(to(program_.path("out")));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("warning: "));
}

// A device is written to, not replaced: /dev/full stays the device that refuses.
TEST_F(CliErrors, AFullDisk) {
  const std::filesystem::path full = "/dev/full";
  if (!std::filesystem::is_character_file(full)) GTEST_SKIP() << "no " << full << " here";
  const std::string reason = "cannot write '/dev/full': No space left on device";
  expect_error({"explain", matmul_, "--dim", "M=64", "--dim", "N=64", "--dim", "K=64", "--html", full}, reason);
  expect_error(product_with("--output", "C=/dev/full"), reason);
  ASSERT_TRUE(std::filesystem::is_character_file(full));
  const std::string command =
      std::string("'") + PIPETHREADER_PROGRAM + "' devices > /dev/full 2>'" + program_.path("full.err") + "'";
  EXPECT_NE(std::system(command.c_str()), 0);  // NOLINT: the command is ours
}

TEST_F(CliErrors, AFullDiskUnderTheOutputFolder) {
  const std::string small = program_.path("small");
  std::filesystem::create_directory(small);
  if (std::system(("mount -t tmpfs -o size=4k tmpfs '" + small + "' 2>/dev/null").c_str()) != 0)  // NOLINT: ours
    GTEST_SKIP() << "no right to mount a small file system here";
  const auto outcome =
      run({"compile", matmul_, "--source-only", "--dim", "M=64", "--dim", "N=64", "--dim", "K=64", "--out", small});
  EXPECT_EQ(std::system(("umount '" + small + "'").c_str()), 0);  // NOLINT: ours
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("cannot write"), HasSubstr("the disk is full")));
}

TEST_F(CliErrors, SuitesAndKernelsAreNotMixed) {
  expect_misuse({"bench"}, "bench takes a kernel FILE, or --suite NAME");
  expect_misuse({"bench", "--suite", "soup"},
                "there is no suite 'soup'; known are attention, ffn, mamba2, matmul, neighbours, rows");
  expect_misuse({"bench", "--suite", "matmul", "--suite", "matmul"}, "--suite gives 'matmul' twice");
  expect_misuse({"bench", matmul_, "--suite", "matmul"}, "FILE excludes --suite");
  for (const std::vector<std::string>& given : {std::vector<std::string>{"--kernel", "matmul"},
                                                {"--dim", "M=8"},
                                                {"--size", "M=8"},
                                                {"--option", "causal=true"},
                                                {"--replay", "2"}}) {
    expect_misuse({"bench", "--suite", "matmul", given[0], given[1]}, given[0] + " excludes --suite");
  }
  expect_misuse({"bench", matmul_, "--out", "rows.json"}, "--out requires --suite");
}

TEST_F(CliErrors, ASuitesFileWithAMistakeHasItsPlace) {
  std::filesystem::create_directory(program_.path("bench"));
  program_.set("PIPETHREADER_DATA", program_.folder());
  const auto with = [&](const std::string& text, const std::string& error) {
    const std::string file = program_.file("bench/suites.toml", text);
    expect_error({"bench", "--suite", "a"}, file + error);
  };
  const std::string row = "[[a]]\nfile = 'matmul.stask'\ndims = ['M', 'N']\n";
  with("[[a", ":1:");
  with("[a]\nfile = 'matmul.stask'\n", ":1:1: error: 'a' is no list of rows: expected tables [[a]]");
  with("a = 3\n", ":1:5: error: 'a' is no list of rows");
  with("[[a]]\ndims = ['M']\nsizes = [[1]]\n", ":1:1: error: a row needs 'file', a string");
  with("[[a]]\nfile = 3\ndims = ['M']\nsizes = [[1]]\n", ":2:8: error: a row needs 'file', a string");
  with("[[a]]\nfile = 'f'\ndims = ['M', 3]\nsizes = [[1, 1]]\n", ":3:8: error: a row needs 'dims', a list of names");
  with(row, ":1:1: error: a row needs 'sizes'");
  with(row + "sizes = []\n", ":4:9: error: a row needs 'sizes'");
  with(row + "sizes = [[1, 2], [3]]\n", ":4:18: error: expected a list of 2 sizes, one for each of 'dims'");
  for (const char* size : {"-1", "2147483648", "1.5", "'8'"})
    with(row + "sizes = [[1, " + size + "]]\n", ":4:14: error: a size must be a whole number from 0 to 2147483647");
  const std::string whole = row + "sizes = [[1, 2]]\n";
  with(whole + "replay = 0\n", ":5:10: error: 'replay' must be a whole number from 1 to 10000");
  with(whole + "options = true\n", ":5:11: error: 'options' must be a table");
  with(whole + "options = { causal = 'no' }\n", ":5:22: error: option 'causal' must be a number, true or false");
  with(whole + "repeat = 3\n", ":5:10: error: unknown key 'repeat'; known are file, kernel");
  // All mistakes at once, in the order of the file; and a good file of one's own goes before the project's.
  with(whole + "zip = 3\n[b]\nfile = 'f'\n",
       ":5:7: error: unknown key 'zip'; known are file, kernel, options, peer, "
       "replay, dims, sizes\n" +
           program_.path("bench/suites.toml") + ":6:1: error: 'b' is no list");
  std::ignore = program_.file("bench/suites.toml", whole);
  expect_misuse({"bench", "--suite", "matmul"}, "there is no suite 'matmul'; known are a\n");
}

TEST_F(CliErrors, WithoutACardTheReasonIsTold) {
  const auto probe = run({"devices", "--gpu"});
  if (probe.status == 0) GTEST_SKIP() << "this machine has a card";
  for (const char* command : {"bench", "tune"}) expect_error({command, matmul_}, "error: ");
  expect_error({"explain", matmul_, "--measure"}, "error: ");
  const auto suite = run({"bench", "--suite", "matmul", "--suite", "rows", "--out", "rows.json"});
  EXPECT_EQ(suite.status, 1);
  EXPECT_EQ(suite.out, "");
  EXPECT_EQ(suite.err, probe.err);
  EXPECT_FALSE(std::filesystem::exists(program_.path("rows.json")));
  const auto outcome = run({"run", matmul_, "--on", "gpu", "--dim", "M=8", "--dim", "N=8", "--dim", "K=8"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, probe.err);
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
