// The driver: compiling to plans, the cache of plans, which variant a launch takes, running and checking.
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/compiler.h"
#include "driver/report.h"
#include "driver/run.h"

namespace pipethreader::driver {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string root = PIPETHREADER_SOURCE_DIR;

kernel::Kernel kernel_of(const std::string& file, const std::string& name = {}) {
  auto kernel = load_kernel(root + "/kernels/" + file, name);
  EXPECT_TRUE(kernel) << kernel.error().format();
  return *kernel;
}

device::Device h100() { return *device::load_device(root + "/devices/h100.toml"); }

// Source only, no cache, and small tiles so that small sizes have edges.
CompileRequest request_for(const std::string& file, std::vector<kernel::Binding> dims) {
  CompileRequest request;
  request.kernel = kernel_of(file);
  request.dims = std::move(dims);
  request.device = h100();
  request.forced = {{"row", "64"}, {"column", "64"}, {"stream", "32"}, {"lanes", "1"}};
  request.candidates = 1;
  request.assemble = false;
  request.use_cache = false;
  return request;
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "pipethreader-driver-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::string path() const { return path_; }

 private:
  std::string path_;
};

Check run_and_check(const Compiled& compiled, const std::vector<kernel::Binding>& sizes) {
  const auto all = all_sizes(compiled.kernel, sizes);
  EXPECT_TRUE(all) << all.error().format();
  const auto inputs = oracle::random_inputs(compiled.kernel, *all, 7);
  EXPECT_TRUE(inputs) << inputs.error().format();
  const auto run = run_cpu(compiled.plan, compiled.kernel, *inputs);
  EXPECT_TRUE(run) << run.error().format();
  const auto checked = check(compiled.kernel, *inputs, run->outputs, 7);
  EXPECT_TRUE(checked) << checked.error().format();
  return *checked;
}

// Rows of no elements, heads of no width: nothing is read that is not there.
TEST(Compile, DimsOfZeroReadNothing) {
  const std::pair<const char*, std::vector<kernel::Binding>> all[] = {
      {"rms_norm.stask", {{"M", 3}, {"N", 0}}},
      {"softmax.stask", {{"M", 3}, {"N", 0}}},
      {"matmul.stask", {{"M", 5}, {"N", 7}, {"K", 0}}},
      {"flash_attention.stask", {{"B", 1}, {"H", 1}, {"G", 1}, {"S", 4}, {"T", 8}, {"D", 0}}},
      {"flash_attention.stask", {{"B", 1}, {"H", 1}, {"G", 1}, {"S", 4}, {"T", 0}, {"D", 16}}},
      {"attention_decode.stask", {{"B", 1}, {"G", 1}, {"R", 4}, {"T", 8}, {"D", 0}}},
  };
  for (const auto& [file, dims] : all) {
    CompileRequest request = request_for(file, dims);
    request.forced.clear();
    const auto compiled = compile(request, {});
    ASSERT_TRUE(compiled) << file << compiled.error().format();
    const auto inputs = oracle::random_inputs(compiled->kernel, *all_sizes(compiled->kernel, {}), 1);
    ASSERT_TRUE(inputs) << file;
    const auto run = run_cpu(compiled->plan, compiled->kernel, *inputs);
    ASSERT_TRUE(run) << file << ": " << run.error().format();
    const auto checked = check(compiled->kernel, *inputs, run->outputs, 1);
    ASSERT_TRUE(checked) << file;
    EXPECT_TRUE(checked->ok()) << file << ": " << checked->format();
  }
}

TEST(Compile, SaysWhereAProductIsComputedAgain) {
  const std::string text = R"(
kernel rows(X: f16[M,64], W: f16[N,64]) -> (Y: f16[M,N]) {
  parallel m: M;
  s[m,n] = sum[k: 64] X[m,k] * W[n,k];
  top[m] = max[n] s[m,n];
  total[m] = sum[n] exp(s[m,n] - top[m]);
  Y[m,n] = f16(exp(s[m,n] - top[m]) / total[m]);
})";
  const auto note_at = [&](double n) {
    CompileRequest request = request_for("matmul.stask", {{"N", n}});
    request.kernel = *kernel::check(kernel::parse(text, "rows.stask")->front());
    const auto compiled = compile(request, {});
    EXPECT_TRUE(compiled) << compiled.error().format();
    return compiled ? compiled->plan.note : "";
  };
  EXPECT_EQ(note_at(128), "");
  EXPECT_THAT(note_at(1024), HasSubstr("3 products are computed for 1 in the kernel"));
}

TEST(Compile, GivesAProvedProgramAndItsSource) {
  const auto compiled = compile(request_for("matmul.stask", {{"M", 70}, {"N", 72}, {"K", 40}}), {});
  ASSERT_TRUE(compiled) << compiled.error().format();
  EXPECT_FALSE(compiled->from_cache);
  EXPECT_EQ(compiled->plan.generic_reason(), "");
  EXPECT_THAT(compiled->plan.best().source.text, HasSubstr("wgmma"));
  EXPECT_FALSE(compiled->plan.assembled());
  const Check checked = run_and_check(*compiled, {});
  EXPECT_EQ(checked.report.compared, 70 * 72);
  EXPECT_EQ(checked.report.wrong, 0);
}

TEST(Compile, ADynamicKernelTakesAllSizesAndFallsBackWhereTheCopyEngineCannot) {
  const auto compiled = compile(request_for("matmul.stask", {}), {});
  ASSERT_TRUE(compiled) << compiled.error().format();
  ASSERT_EQ(compiled->plan.variants.size(), 2u);
  EXPECT_FALSE(compiled->plan.variants[0].program.requirements.empty());
  EXPECT_TRUE(compiled->plan.variants[1].program.requirements.empty());
  // Sizes in the order of the dims: M, K, N.
  EXPECT_EQ(*variant_for(compiled->plan, compiled->kernel, {65, 40, 64}, {}), 0u);
  EXPECT_EQ(*variant_for(compiled->plan, compiled->kernel, {65, 41, 64}, {}), 1u);
  for (const double k : {0.0, 1.0, 40.0, 41.0}) {
    EXPECT_EQ(run_and_check(*compiled, {{"M", 65}, {"N", 8}, {"K", k}}).report.wrong, 0) << "K = " << k;
  }
  // No rows: nothing to do, nothing written.
  EXPECT_EQ(run_and_check(*compiled, {{"M", 0}, {"N", 8}, {"K", 16}}).report.compared, 0);
}

TEST(Compile, TheSecondTimeTheAnswerComesFromTheCache) {
  const TemporaryFolder folder;
  Environment environment;
  environment.cache = folder.path();
  CompileRequest request = request_for("matmul.stask", {{"M", 64}, {"N", 64}, {"K", 64}});
  request.use_cache = true;
  const auto first = compile(request, environment);
  const auto second = compile(request, environment);
  ASSERT_TRUE(first && second);
  EXPECT_FALSE(first->from_cache);
  EXPECT_TRUE(second->from_cache);
  EXPECT_EQ(first->plan.best().source.text, second->plan.best().source.text);
  EXPECT_EQ(run_and_check(*second, {}).report.wrong, 0);
  request.dims[0].value = 65;
  EXPECT_FALSE(compile(request, environment)->from_cache);
  request.forced.emplace_back("depth", "3");
  EXPECT_FALSE(compile(request, environment)->from_cache);
}

TEST(Compile, ACacheThatCannotBeWrittenIsAWarning) {
  Environment environment;
  environment.cache = "/proc/nowhere";
  CompileRequest request = request_for("matmul.stask", {{"M", 64}, {"N", 64}, {"K", 64}});
  request.use_cache = true;
  const auto compiled = compile(request, environment);
  ASSERT_TRUE(compiled) << compiled.error().format();
  EXPECT_EQ(compiled->warnings.size(), 1u);
}

// Choices that bend a ranked candidate have no prediction; they must not pass for the fastest.
TEST(Compile, WhatIsPredictedGoesBeforeWhatIsNot) {
  CompileRequest request = request_for("matmul.stask", {{"M", 1024}, {"N", 1024}, {"K", 1024}});
  request.forced = {{"row", "128"}, {"column", "256"}, {"stream", "64"}, {"overlap", "delayed"}, {"staged", "on"}};
  request.candidates = 4;
  request.assemble = true;
  const auto compiled = compile(request, {});
  ASSERT_TRUE(compiled) << compiled.error().format();
  if (!compiled->plan.assembled()) GTEST_SKIP() << compiled->plan.no_machine_code;
  const auto& tried = compiled->plan.candidates;
  const auto chosen =
      std::find_if(tried.begin(), tried.end(), [&](const Tried& t) { return t.choices == compiled->plan.choices; });
  ASSERT_NE(chosen, tried.end());
  EXPECT_GT(chosen->predicted_us, 0);
  EXPECT_TRUE(std::any_of(tried.begin(), tried.end(), [](const Tried& t) { return t.predicted_us == 0; }));
}

TEST(Compile, TheSmallestIntegerIsSpelledAsC) {
  const auto parsed =
      kernel::parse("kernel k(A: i32[M,N]) -> (O: i32[M]) { parallel m: M; O[m] = max[n: N] A[m,n]; }", "");
  ASSERT_TRUE(parsed) << parsed.error().format();
  CompileRequest request = request_for("softmax.stask", {});
  request.kernel = *kernel::check(parsed->front());
  request.forced.clear();
  const auto compiled = compile(request, {});
  ASSERT_TRUE(compiled) << compiled.error().format();
  const std::string& source = compiled->plan.best().source.text;
  EXPECT_NE(source.find("(-2147483647 - 1)"), std::string::npos);
  EXPECT_EQ(source.find("2147483648"), std::string::npos);
}

TEST(Plan, KeepsNamesThatAreWordsOfTheProgramText) {
  const auto parsed = kernel::parse(
      "kernel k(on: f32[role], set: f32) -> (O: f32[role]) { parallel i: role; O[i] = on[i] * set; }", "k.stask");
  ASSERT_TRUE(parsed) << parsed.error().format();
  CompileRequest request = request_for("softmax.stask", {});
  request.kernel = *kernel::check(parsed->front());
  request.forced.clear();
  const auto compiled = compile(request, {});
  ASSERT_TRUE(compiled) << compiled.error().format();
  const auto again = unpack(pack(compiled->plan));
  ASSERT_TRUE(again);
  const program::Program& program = again->best().program;
  ASSERT_EQ(program.params.size(), 2);
  EXPECT_EQ(program.params[0].name, "role");
  EXPECT_EQ(program.params[1].name, "set");
  EXPECT_EQ(program.tensors[0].name, "on");
}

TEST(Plan, PacksAndUnpacksToTheSame) {
  auto compiled = compile(request_for("matmul.stask", {}), {});
  ASSERT_TRUE(compiled) << compiled.error().format();
  Plan& plan = compiled->plan;
  plan.variants[0].cubin = {std::byte{0}, std::byte{10}, std::byte{255}};
  plan.variants[1].cubin = {std::byte{7}};
  plan.variants[0].assembler.registers = 168;
  plan.variants[1].fault = "16 bytes of registers are spilled";
  const std::string text = pack(plan);
  const auto again = unpack(text);
  ASSERT_TRUE(again);
  EXPECT_EQ(pack(*again), text);
  EXPECT_EQ(again->variants[0].cubin, plan.variants[0].cubin);
  EXPECT_EQ(again->variants[1].cubin, plan.variants[1].cubin);
  EXPECT_EQ(again->choices, plan.choices);
  const std::vector<double> params = {65, 64, 40};
  const auto grid = [&](const Plan& p) { return p.best().source.launch.grid(p.best().program, params, 132); };
  EXPECT_EQ(grid(*again), grid(plan));
}

TEST(Plan, WhatCannotBeReadIsNothing) {
  const auto compiled = compile(request_for("matmul.stask", {{"M", 64}, {"N", 64}, {"K", 64}}), {});
  ASSERT_TRUE(compiled) << compiled.error().format();
  const std::string text = pack(compiled->plan);
  ASSERT_TRUE(unpack(text));
  for (const std::size_t cut : {std::size_t{0}, std::size_t{5}, std::size_t{20}, std::size_t{40}, text.size() / 2}) {
    EXPECT_FALSE(unpack(text.substr(0, cut))) << cut;
  }
  std::string other = text;
  other.replace(other.find("\"version\":"), 10, "\"version\":9");
  EXPECT_FALSE(unpack(other));
}

TEST(Choices, ForcedOnesStandAndUnknownOnesAreNamed) {
  Choices choices;
  ASSERT_TRUE(
      force(choices, {{"row", "192"}, {"lanes", "3"}, {"overlap", "serial"}, {"order", "dynamic"}, {"bulk", "off"}}));
  EXPECT_EQ(choices.partition.row, 192);
  EXPECT_EQ(choices.partition.lanes, 3);
  EXPECT_EQ(choices.schedule.overlap, schedule::Overlap::serial);
  EXPECT_EQ(choices.partition.order, partition::Order::dynamic);
  EXPECT_FALSE(choices.bulk);
  EXPECT_THAT(force(choices, {{"rows", "1"}}).error().format(), HasSubstr("known are split, row, column"));
  EXPECT_THAT(force(choices, {{"row", "many"}}).error().format(), HasSubstr("a number from 1 to 1024, found 'many'"));
  EXPECT_THAT(force(choices, {{"overlap", "later"}}).error().format(), HasSubstr("serial, deferred, delayed"));
}

TEST(Choices, AreDescribedInTheWordsThatForceThem) {
  const std::string all =
      "split=4 row=64 column=32 stream=16 lanes=1 overlap=serial depth=1 order=persistent share=sums teams=h:2 "
      "blocks=2 "
      "outer=2 raster=8 band=3 cluster=g:2 walk=c:8 hold=on turns=on staged=on pass=off bulk=off";
  Forced forced;
  std::istringstream in(all);
  for (std::string word; in >> word;)
    forced.emplace_back(word.substr(0, word.find('=')), word.substr(word.find('=') + 1));
  Choices choices;
  ASSERT_TRUE(force(choices, forced));
  EXPECT_EQ(describe(choices), all);
  EXPECT_EQ(describe({}, false), "element=1024 stream=64 order=single");
}

TEST(Sizes, EachDimHasExactlyOne) {
  auto fixed = kernel::specialise(kernel_of("matmul.stask"), {{"K", 64}}, {});
  ASSERT_TRUE(fixed);
  EXPECT_EQ(*all_sizes(*fixed, {{"M", 3}, {"N", 5}}), (std::vector<std::int64_t>{3, 64, 5}));
  EXPECT_THAT(all_sizes(*fixed, {{"M", 3}}).error().format(), HasSubstr("no size for N"));
  EXPECT_THAT(all_sizes(*fixed, {{"M", 3}, {"N", 5}, {"K", 65}}).error().format(), HasSubstr("fixed at 64"));
  EXPECT_THAT(all_sizes(*fixed, {{"X", 3}}).error().format(), HasSubstr("no dim 'X'"));
}

TEST(Sizes, WhatAKernelRequiresIsChecked) {
  const kernel::Kernel k = kernel_of("flash_attention.stask");
  EXPECT_FALSE(all_sizes(k, {{"B", 1}, {"H", 3}, {"G", 2}, {"S", 4}, {"T", 4}, {"D", 16}}));
  EXPECT_TRUE(all_sizes(k, {{"B", 1}, {"H", 4}, {"G", 2}, {"S", 4}, {"T", 4}, {"D", 16}}));
}

TEST(Check, FindsAWrongElementAndSamplesLargeProblems) {
  const auto fixed = kernel::specialise(kernel_of("matmul.stask"), {{"M", 33}, {"N", 9}, {"K", 16}}, {});
  const auto inputs = oracle::random_inputs(*fixed, *all_sizes(*fixed, {}), 3);
  const auto exact = oracle::evaluate(*fixed, *inputs, oracle::Partition::whole());
  ASSERT_TRUE(exact);
  OutputValues outputs = {exact->tensors[0].values};
  EXPECT_TRUE(check(*fixed, *inputs, outputs, 1)->report.ok());
  const auto sampled = check(*fixed, *inputs, outputs, 1, 1000);
  EXPECT_GT(sampled->sampled_points, 0);
  EXPECT_LT(sampled->report.compared, 33 * 9);
  EXPECT_TRUE(sampled->report.ok());
  EXPECT_EQ(sampled->report.unwritten, 0);
  EXPECT_THAT(sampled->format(), Not(HasSubstr("not written")));
  outputs[0][40] += 1;
  EXPECT_EQ(check(*fixed, *inputs, outputs, 1)->report.wrong, 1);
}

kernel::Kernel outer() {
  return *kernel::check(kernel::parse("kernel outer(A: f16[M], B: f16[N]) -> (O: f16[M,N]) {\n  parallel i: M, j: N;\n"
                                      "  O[i,j] = f16(f32(A[i]) * B[j]);\n}\n",
                                      "")
                            ->front());
}

TEST(Expected, IsOfAnyNumberOfOutputs) {
  const kernel::Kernel kernel = outer();
  const auto inputs = oracle::random_inputs(kernel, {300000, 300000}, 3);  // 9e10 elements
  auto expected = Expected::evaluate(kernel, *inputs, 1, 1e4);
  ASSERT_TRUE(expected) << expected.error().format();
  const oracle::OutputTensor& out = expected->outputs().tensors[0];
  ASSERT_TRUE(out.sample);
  OutputValues values;
  for (auto& some = values.emplace_back(); const std::int64_t at : *out.sample) {
    const auto a = inputs->tensors[0].values[static_cast<std::size_t>(at / 300000)];
    const auto b = inputs->tensors[1].values[static_cast<std::size_t>(at % 300000)];
    some.push_back(round_to(ScalarType::f16, a * b));
  }
  for (const double off : {0.0, 0.5, 0.0}) {
    values[0].back() += off;
    const auto checked = expected->check(values);
    ASSERT_TRUE(checked) << checked.error().format();
    EXPECT_EQ(checked->report.compared, static_cast<std::int64_t>(values[0].size()));
    EXPECT_EQ(checked->report.wrong, off == 0 ? 0 : 1);
    EXPECT_EQ(checked->cause_unknown, off != 0);
    EXPECT_GT(checked->sampled_points, 0);
    values[0].back() -= off;
  }
}

TEST(Expected, DependenceOnTilesIsSaidEachTime) {
  const auto kernel = kernel::check(kernel::parse("kernel halving(A: f32[N]) -> (S: f32[]) {\n  carry s = 0;\n"
                                                  "  for j: N { s = s * 0.5 + sum[j] A[j]; }\n  S[] = s;\n}\n",
                                                  "")
                                        ->front());
  ASSERT_TRUE(kernel) << kernel.error().format();
  const auto inputs = oracle::random_inputs(*kernel, {40}, 3);
  auto expected = Expected::evaluate(*kernel, *inputs, 1);
  ASSERT_TRUE(expected) << expected.error().format();
  const OutputValues right = {expected->outputs().tensors[0].values};
  for (int i = 0; i < 2; ++i) EXPECT_THAT(expected->check(right)->cause, HasSubstr("depends on how its loops are cut"));
  EXPECT_THAT(expected->check({{77}})->format(), HasSubstr("cause "));
}

TEST(Sizes, OutputsThatAreNotHeldMayBeLargerThanTheMemory) {
  const std::vector<kernel::Binding> sizes = {{"M", 4e6}, {"N", 4e6}};
  EXPECT_THAT(all_sizes(outer(), sizes).error().format(), HasSubstr("the tensors of 'outer' at these sizes take"));
  EXPECT_TRUE(all_sizes(outer(), sizes, Held::inputs));
}

TEST(Work, CountsTheOperationsOfAProduct) {
  const auto fixed = kernel::specialise(kernel_of("matmul.stask"), {{"M", 32}, {"N", 8}, {"K", 16}}, {});
  EXPECT_EQ(product_flops(*fixed, {32, 16, 8}), 2.0 * 32 * 16 * 8);
  EXPECT_EQ(work_of(*fixed, {32, 16, 8}).points, 32 * 8);
  EXPECT_EQ(product_flops(kernel_of("matmul.stask"), {32, 16, 8}), 2.0 * 32 * 16 * 8);
}

TEST(Work, CountsThePointsThatALoopKeeps) {
  const auto flops = [](double queries, double keys, bool causal) {
    const auto fixed = kernel::specialise(kernel_of("flash_attention.stask"),
                                          {{"B", 2}, {"H", 4}, {"G", 2}, {"S", queries}, {"T", keys}, {"D", 16}},
                                          {{"causal", causal ? 1.0 : 0.0}});
    EXPECT_TRUE(fixed);
    return product_flops(*fixed, *all_sizes(*fixed, {}));
  };
  // Two products for each pair of a query and a key that it sees, over D, in each head of each batch.
  const auto expected = [](double pairs) { return 2.0 * 2 * 16 * pairs * 2 * 4; };
  EXPECT_EQ(flops(40, 40, false), expected(40 * 40));
  EXPECT_EQ(flops(40, 40, true), expected(40 * 41 / 2));
  EXPECT_EQ(flops(40, 8, true), expected(8 * 9 / 2 + 32 * 8));  // the last queries see all keys
  EXPECT_EQ(flops(8, 40, true), expected(8 * 9 / 2));
  EXPECT_EQ(flops(0, 40, true), 0);
  EXPECT_EQ(flops(1, 1, true), expected(1));
}

TEST(Work, IsNotKnownWhereItDependsOnData) {
  const auto kernel = kernel::check(
      kernel::parse("kernel f(A: f16[M,K], B: f16[N,K], last: f32) -> (C: f32[M,N]) {\n  parallel m: M, n: N;\n  carry "
                    "c[m,n] = 0;\n"
                    "  for k: K where k <= last { c[m,n] += sum[k] A[m,k] * B[n,k]; }\n  C[m,n] = c[m,n];\n}\n",
                    "")
          ->front());
  ASSERT_TRUE(kernel) << kernel.error().format();
  EXPECT_EQ(product_flops(*kernel, {8, 8, 8}), std::nullopt);
}

TEST(Report, SaysWhatWasChosenAndIsWrittenWhole) {
  const TemporaryFolder folder;
  const auto compiled = compile(request_for("matmul.stask", {{"M", 64}, {"N", 64}, {"K", 64}}), {});
  ASSERT_TRUE(compiled);
  EXPECT_THAT(report_text(*compiled), HasSubstr("matmul for h100: specialised"));
  EXPECT_THAT(report_text(*compiled), HasSubstr("row=64 column=64 stream=32 lanes=1"));
  const auto written = write_outputs(*compiled, folder.path() + "/new/folder");
  ASSERT_TRUE(written) << written.error().format();
  EXPECT_EQ(written->size(), 3u);
  for (const std::string& path : *written) EXPECT_GT(std::filesystem::file_size(path), 100u) << path;
  EXPECT_THAT(write_outputs(*compiled, "/proc/nowhere").error().format(), HasSubstr("/proc/nowhere"));
}

}  // namespace
}  // namespace pipethreader::driver
