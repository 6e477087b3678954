// Loops split into parts: the two kernels, what cannot be split, and that the results are the oracle's.
#include "task/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/compiler.h"
#include "driver/run.h"
#include "support/compiled/run_kernel.h"

namespace pipethreader {
namespace {

using ::testing::HasSubstr;

const char* const product = R"(
kernel product(A: f16[40,1024], B: f16[72,1024], bias: f32[72]) -> (C: f16[40,72]) {
  parallel m: 40, n: 72;
  carry c[m,n] = 0;
  for k: 1024 where k != 5 { c[m,n] += sum[k] A[m,k] * B[n,k]; }
  C[m,n] = f16(max(c[m,n] + bias[n], 0));
})";

// A row's maximum and the sum of exponentials below it, with the way to combine them.
const char* const softmax_sum = R"(
kernel softmax_sum(X: f32[24,512]) -> (Y: f32[24]) {
  parallel i: 24;
  carry m[i] = -inf, l[i] = 0;
  for j: 512 {
    n[i] = max(m[i], max[j] X[i,j]);
    l[i] = l[i] * exp2(m[i] - n[i]) + sum[j] exp2(X[i,j] - n[i]);
    m[i] = n[i];
  } combine (m2, l2) {
    n[i] = max(m[i], m2[i]);
    l[i] = l[i] * exp2(m[i] - n[i]) + l2[i] * exp2(m2[i] - n[i]);
    m[i] = n[i];
  }
  Y[i] = m[i] + log2(l[i]);
})";

std::string why_not(const std::string& text, int parts) {
  const auto halves = task::split(test::checked(text), parts);
  return halves ? "it can" : halves.error().format();
}

TEST(Split, LeavesTheStateOfEachPartAndJoinsIt) {
  const auto halves = task::split(test::checked(product), 4);
  ASSERT_TRUE(halves) << halves.error().format();
  const std::string parts = kernel::print(halves->parts);
  EXPECT_THAT(parts, HasSubstr("c_parts: f32[4,40,72]"));
  EXPECT_THAT(parts, HasSubstr("for k: 256 where part*256 + k != 5 {"));
  EXPECT_THAT(parts, HasSubstr("A[m,part*256 + k]"));
  const std::string join = kernel::print(halves->join);
  EXPECT_THAT(join, HasSubstr("c_parts[3,m,n]"));
  EXPECT_THAT(join, HasSubstr("-> (C: f16[40,72])"));
}

TEST(Split, WhatCannotBeSplitSaysWhy) {
  EXPECT_THAT(why_not(product, 3), HasSubstr("3 parts do not divide its loop of 1024"));
  EXPECT_THAT(why_not(R"(kernel k(A: f16[M,64]) -> (C: f32[M]) { parallel m: M; C[m] = sum[k: 64] f32(A[m,k]); })", 2),
              HasSubstr("its dim 'M' is dynamic"));
  EXPECT_THAT(
      why_not(R"(kernel k(A: f32[8]) -> (C: f32[8]) { parallel m: 8; C[m] = A[m]; })", 2),
      HasSubstr("test.stask:1:53: error: 'k' cannot be split: it has no loop\n  hint: leave out --force split"));
  std::string without = softmax_sum;
  without.resize(without.find("combine"));
  without += "\n Y[i] = m[i] + log2(l[i]);\n}";
  EXPECT_THAT(why_not(without, 2), HasSubstr("its loop has no `combine`"));
  EXPECT_THAT(why_not(R"(
    kernel k(A: f16[64,1024], B: f16[64,1024], s: f32[64]) -> (C: f32[64,64]) {
      parallel m: 64, n: 64;
      t[m] = s[m] * 2;
      carry c[m,n] = 0;
      for k: 1024 { c[m,n] += sum[k] f16(A[m,k] * t[m]) * B[n,k]; }
      C[m,n] = c[m,n] * t[m];
    })",
                      2),
              HasSubstr("'t' is needed behind its loop"));
}

class SplitKernel : public ::testing::TestWithParam<std::tuple<const char*, int>> {};

// Through the driver: compiled, kept in the cache's form, read back, and run.
TEST_P(SplitKernel, AgreesWithTheOracle) {
  const auto [text, parts] = GetParam();
  driver::CompileRequest request;
  request.kernel = test::checked(text);
  request.device = *device::load_device(PIPETHREADER_SOURCE_DIR "/devices/h100.toml");
  request.forced = {{"split", std::to_string(parts)}};
  request.candidates = 1;
  request.assemble = false;
  request.use_cache = false;
  const auto compiled = driver::compile(request, {});
  ASSERT_TRUE(compiled) << compiled.error().format();
  EXPECT_EQ(compiled->plan.choices.split, parts);
  const auto plan = driver::unpack(driver::pack(compiled->plan));
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->joins.size(), 1U);
  const auto inputs = oracle::random_inputs(compiled->kernel, {}, 3);
  ASSERT_TRUE(inputs);
  const auto run = driver::run_cpu(*plan, compiled->kernel, *inputs);
  ASSERT_TRUE(run) << run.error().format();
  const auto check = driver::check(compiled->kernel, *inputs, run->outputs, 3);
  ASSERT_TRUE(check) << check.error().format();
  EXPECT_TRUE(check->ok()) << check->format();
}

INSTANTIATE_TEST_SUITE_P(All, SplitKernel,
                         ::testing::Combine(::testing::Values(product, softmax_sum), ::testing::Values(2, 4, 8)));

}  // namespace
}  // namespace pipethreader
