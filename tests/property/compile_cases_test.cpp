// The smallest kernels that showed a fault in the long runs of random ones: each compiles, is proved, and agrees with
// the oracle in the interpreter.
#include <gtest/gtest.h>

#include "device/device.h"
#include "driver/pipeline.h"
#include "interpret/interpret.h"
#include "kernel/kernel.h"
#include "oracle/oracle.h"
#include "program/program.h"
#include "support/compiled/run_kernel.h"

namespace pipethreader {
namespace {

driver::Choices small(int row = 64, int stream = 16) {
  return test::compiled::choices(row, 32, stream, 1, partition::Order::persistent, schedule::Overlap::delayed, 2);
}

// An inner axis longer than the row tile: its rows are one tile.
TEST(CompileCases, InnerRowsStayWhole) {
  const auto run = test::run_kernel(R"(kernel test(A: f16[3,94,16], W: f16[16,32]) -> (O: f32[3,94,32]) {
  parallel b: 3;
  inner i: 94, d: 32;
  y[i,d] = sum[k: 16] A[b,i,k] * W[k,d];
  O[b,i,d] = y[i,d];
})",
                                    {}, small());
  EXPECT_EQ(run.failure, "");
  EXPECT_EQ(run.generic_reason, "");
}

// The condition and the axis' end together leave no point, though both lie in the first tile.
TEST(CompileCases, LoopsWithoutAPointChangeNothing) {
  const std::string text = R"(kernel test(Q: f16[64,16], K: f16[J,16], V: f16[J,16]) -> (O: f32[64,16]) {
  parallel i: 64;
  inner d: 16;
  carry m[i] = -inf, l[i] = 0, o[i,d] = 0;
  for j: J where j >= 5 {
    s[i,j] = sum[k: 16] Q[i,k] * K[j,k];
    n[i] = max(m[i], max[j] s[i,j]);
    p[i,j] = f16(exp(s[i,j] - n[i]));
    a[i] = exp(m[i] - n[i]);
    l[i] = l[i] * a[i] + sum[j] p[i,j];
    o[i,d] = o[i,d] * a[i];
    o[i,d] += sum[j] p[i,j] * V[j,d];
    m[i] = n[i];
  }
  O[i,d] = select(l[i] == 0, 0, o[i,d] / l[i]);
})";
  for (const bool dynamic : {false, true}) {
    for (const double size : {2.0, 5.0, 6.0, 40.0}) {
      EXPECT_EQ(test::run_kernel(text, {{"J", size}}, small(), dynamic).failure, "") << size;
    }
  }
}

// The copy engine's boxes begin at multiples of 16 bytes: a window that moves along the contiguous dim is copied
// otherwise.
TEST(CompileCases, WindowsAlongTheContiguousDimAreNotCopiedInBulk) {
  const std::string text = R"(kernel test(X: f16[16,S], W: f16[3,16,32]) -> (O: f32[S,32]) {
  parallel i: S, d: 32;
  y[i,d] = sum[r: 3, k: 16 where i + STEP * r - STEP >= 0 && i + STEP * r - STEP < S] X[k,i + STEP * r - STEP] * W[r,k,d];
  O[i,d] = y[i,d];
})";
  for (const int step : {1, 8}) {
    std::string own = text;
    for (std::size_t at; (at = own.find("STEP")) != std::string::npos;) own.replace(at, 4, std::to_string(step));
    const auto run = test::run_kernel(own, {{"S", 72}}, small());
    EXPECT_EQ(run.failure, "") << step;
    EXPECT_EQ(run.generic_reason.empty(), step == 8) << run.generic_reason;
  }
}

// Taps of unknown number: channels are what is walked in tiles, and the copy engine takes both operands.
TEST(CompileCases, WindowsOfUnknownSizeAreCopiedInBulk) {
  const auto run = test::run_kernel(
      R"(kernel test(X: f16[S,C], W: f16[R,C,D]) -> (O: f32[S,D]) {
  parallel i: S, d: D;
  y[i,d] = sum[r: R, c: C where i + r - 1 >= 0 && i + r - 1 < S] X[i + r - 1,c] * W[r,c,d];
  O[i,d] = y[i,d];
})",
      {{"S", 72}, {"C", 24}, {"R", 3}, {"D", 40}}, small(), true);
  EXPECT_EQ(run.failure, "");
  EXPECT_EQ(run.generic_reason, "");
}

// What a loop stores hangs on a length that is data.
TEST(CompileCases, StoresUnderConditionsOnData) {
  const auto run = test::run_kernel(R"(kernel test(X: f16[2,70,64], Len: i32[2]) -> (O: f32[2,70,64], P: f32[2,70]) {
  parallel b: 2, i: 70;
  carry t[i] = 0;
  for j: 64 where j < Len[b] + 20 {
    t[i] += sum[j] f32(X[b,i,j]);
    O[b,i,j] = f32(X[b,i,j]) * 2.0;
  }
  P[b,i] = t[i] when t[i] > 0;
})",
                                    {}, small());
  EXPECT_EQ(run.failure, "");
}

// Trip counts of three sizes, asked for in parts, as sums, and with the signs turned, by different roles.
TEST(CompileCases, TripsOfSeveralSizesAreProved) {
  const std::string text = R"(kernel test(A: f16[2,3,S,16], K: f16[2,J,16], V: f16[2,J,32]) -> (O: f16[2,3,S,32]) {
  parallel b: 2, h: 3, i: S;
  inner d: 32;
  carry o[i,d] = 0;
  for j: J where j <= i && i - j < 8 {
    s[i,j] = sum[k: 16] A[b,h,i,k] * K[b,j,k];
    w[i,j] = f16(s[i,j]);
    o[i,d] += sum[j] w[i,j] * V[b,j,d];
  }
  O[b,h,i,d] = f16(o[i,d] * 0.125);
})";
  for (const int row : {64, 128}) {
    for (const double size : {8.0, 72.0, 136.0}) {
      EXPECT_EQ(test::run_kernel(text, {{"S", 136}, {"J", size}}, small(row, 64), true).failure, "") << size;
    }
  }
}

// A condition on data of an axis that lies elsewhere than in the values it holds back: rows without a point keep -inf,
// where a second look would give NaN.
TEST(CompileCases, ConditionsOnDataOfTheRows) {
  const auto run = test::run_kernel(R"(kernel test(X: f16[3,3,16], W: f16[16,32], V: f16[3,16,32], Z: f16[3,3,48],
    Len: i32[3]) -> (O: f32[3,3,16], M: f32[3,3], L: f32[3,3]) {
  parallel b: 3, i: 3;
  inner d: 32, e: 16;
  y[i,d] = sum[k: 16] X[b,i,k] * W[k,d];
  c[i,d] = f16(y[i,d]);
  z[i,e] = sum[k: 32] c[i,k] * V[b,e,k];
  O[b,i,e] = z[i,e];
  carry m[i] = -inf, l[i] = 0;
  for j: 48 where j < Len[b] * 20 {
    n[i] = max(m[i], max[j] f32(Z[b,i,j]));
    l[i] = l[i] * exp(m[i] - n[i]) + sum[j] exp(f32(Z[b,i,j]) - n[i]);
    m[i] = n[i];
  }
  M[b,i] = m[i];
  L[b,i] = l[i];
})",
                                    {}, small());
  EXPECT_EQ(run.failure, "");
}

// Tiles needed before and behind a loop do not come as one: the loop would wait for itself.
TEST(CompileCases, TilesAroundALoopComeOneByOne) {
  driver::Choices choices = small();
  choices.walk = {"h", 4};
  const auto run = test::run_kernel(R"(kernel test(E: f32[4,64], A: f16[64,128], V: f16[4,128,16], R: f16[4,64,16])
    -> (O: f32[4,64,16]) {
  parallel h: 4, i: 64;
  inner d: 16;
  carry y[i,d] = exp(E[h,i]);
  for j: 128 {
    y[i,d] += sum[j] A[i,j] * V[h,j,d];
  }
  r[i] = sum[d] y[i,d];
  O[h,i,d] = y[i,d] * f32(R[h,i,d]) + r[i];
})",
                                    {}, choices);
  EXPECT_EQ(run.failure, "");
}

// How often rings went round in earlier work items makes no difference to a proof: else this takes more states than its
// budget has.
TEST(CompileCases, ProofsDoNotMultiplyWithHistory) {
  const std::string text = R"(kernel test(dA: f32[4,S], St: f16[4,8,E], Cm: f16[4,S,E], C: f16[4,S,S], X: f16[4,S,8],
    W: f16[8,8]) -> (O: f16[4,S,8]) {
  parallel h: 4, i: S;
  inner d: 8, e: 8;
  carry y[i,d] = exp(dA[h,i]) * sum[k: E] Cm[h,i,k] * St[h,d,k];
  for j: S where j <= i {
    w[i,j] = f16(C[h,i,j] * exp(dA[h,i] - dA[h,j]));
    y[i,d] += sum[j] w[i,j] * X[h,j,d];
  }
  c[i,d] = f16(y[i,d] * 0.00390625);
  z[i,e] = sum[k: 8] c[i,k] * W[e,k];
  O[h,i,e] = f16(z[i,e]);
})";
  const driver::Choices choices =
      test::compiled::choices(128, 32, 48, 2, partition::Order::persistent, schedule::Overlap::serial, 3);
  EXPECT_EQ(test::run_kernel(text, {{"S", 64}, {"E", 16}}, choices, true).failure, "");
}

// What a loop leaves out, an operand is zero for: the one that has the axes of the condition, whichever that is. Where
// both have some, the sum runs index by index.
TEST(CompileCases, ConditionsOfALoopReachTheOperandTheyAreAbout) {
  const std::string text = R"(kernel test(X: f16[M,K], Y: f16[B,K]) -> (Z: f32[M,B]) {
  parallel m: M, b: B;
  carry z[m,b] = 0;
  for k: K where CONDITION {
    z[m,b] += sum[k] X[m,k] * Y[b,k];
  }
  Z[m,b] = z[m,b];
})";
  for (const std::string condition : {"k <= b", "k >= b", "k != b", "k <= m && k <= b", "b > 2", "k <= m", "k > 3",
                                      "k <= m || k <= b", "(m + b) % 2 == 0"}) {
    std::string own = text;
    own.replace(own.find("CONDITION"), 9, condition);
    for (const double rows : {2.0, 72.0}) {
      const auto run = test::run_kernel(own, {{"M", rows}, {"B", 24}, {"K", 40}}, small());
      EXPECT_EQ(run.failure, "") << condition;
      const bool both = condition.find("||") != std::string::npos || condition.find('+') != std::string::npos;
      EXPECT_EQ(run.generic_reason.empty(), !both) << condition << ": " << run.generic_reason;
    }
  }
  EXPECT_EQ(test::run_kernel(R"(kernel test(X: f16[64,64], Y: f16[64,8]) -> (Z: f32[64,8]) {
  parallel m: 64, b: 8;
  carry z[m,b] = 0;
  for k: 64 where k <= m {
    z[m,b] += sum[k] Y[k,b] * X[k,m];
  }
  Z[m,b] = z[m,b];
})",
                             {}, small())
                .failure,
            "");
}

// What a loop computes has only the axes that it uses: which points the loop leaves out is nothing that it needs to
// know. The operands of products then are as wide as they are written.
TEST(CompileCases, OperandsOfAMaskedLoopHaveTheAxesTheyUse) {
  const std::string attention = R"(kernel test(Q: f16[H,S,64], K: i8[H,S,64], V: i8[H,S,64], G: f32[H,S])
    -> (O: f32[H,S,64], Z: f32[H,S]) {
  parallel h: H, i: S;
  inner d: 64;
  carry m[i] = -inf, l[i] = 0, z[i] = 0, o[i,d] = 0;
  for j: S where CONDITION {
    g[j] = exp(G[h,j]) * 0.125;
    k[j,d] = f16(K[h,j,d] * g[j]);
    v[j,d] = f16(V[h,j,d] * g[j]);
    s[i,j] = sum[d] Q[h,i,d] * k[j,d];
    n[i] = max(m[i], max[j] s[i,j]);
    p[i,j] = exp(s[i,j] - n[i]);
    a[i] = exp(m[i] - n[i]);
    l[i] = l[i] * a[i] + sum[j] p[i,j];
    z[i] += sum[j] g[j];
    o[i,d] = o[i,d] * a[i] + sum[j] f16(p[i,j]) * v[j,d];
    m[i] = n[i];
  }
  O[h,i,d] = o[i,d] / l[i];
  Z[h,i] = z[i];
})";
  for (const std::string condition : {"j <= i", "j <= i && j > i - 40", "j >= i", "(i + j) % 2 == 0"}) {
    std::string own = attention;
    own.replace(own.find("CONDITION"), 9, condition);
    for (const double size : {1.0, 7.0, 33.0, 65.0, 130.0}) {
      const auto run = test::run_kernel(own, {{"H", 2}, {"S", size}}, small(size > 64 ? 128 : 64, 32), size > 100);
      EXPECT_EQ(run.failure, "") << condition << " " << size;
      EXPECT_EQ(run.generic_reason, "") << condition << " " << size;
    }
  }
}

// Tiles without a point for the rows of one lane may have some for those of another, which reads what the first one
// computes for both.
TEST(CompileCases, LanesThatPassOverATileComputeWhatOthersRead) {
  const std::string text = R"(kernel test(Q: f16[S,64], K: f16[S,64], g: f16[S], V: f16[S,64]) -> (O: f32[S,64]) {
  parallel i: S;
  inner d: 64;
  carry o[i,d] = 0;
  for j: S where j <= i && j > i - 40 {
    k[j,d] = f16(f32(K[j,d]) * f32(g[j]));
    s[i,j] = sum[d] Q[i,d] * k[j,d];
    o[i,d] += sum[j] f16(s[i,j]) * V[j,d];
  }
  O[i,d] = o[i,d];
})";
  for (const auto overlap : {schedule::Overlap::serial, schedule::Overlap::delayed}) {
    const auto choices = test::compiled::choices(128, 64, 16, 2, partition::Order::dynamic, overlap, 3);
    const auto run = test::run_kernel(text, {{"S", 200}}, choices);
    EXPECT_EQ(run.failure, "");
    EXPECT_EQ(run.generic_reason, "");
    if (overlap == schedule::Overlap::serial) {
      EXPECT_NE(run.program.find("rows with points in this tile"), std::string::npos);
    }
  }
}

// What a `where` keeps out of a tensor, the copy engine does not read either.
TEST(CompileCases, LoopsLongerThanTheirTensors) {
  const std::string text = R"(kernel test(Q: f16[S,64], K: f16[T,64], V: f16[T,64]) -> (O: f32[S,64]) {
  parallel i: S;
  inner d: 64;
  carry o[i,d] = 0;
  for j: 2 * T where j < T {
    s[i,j] = sum[d] Q[i,d] * K[j,d];
    o[i,d] += sum[j] f16(s[i,j]) * V[j,d];
  }
  O[i,d] = o[i,d];
})";
  for (const bool dynamic : {false, true}) {
    const auto run = test::run_kernel(text, {{"S", 70}, {"T", 50}}, small(64, 32), dynamic);
    EXPECT_EQ(run.failure, "");
    EXPECT_EQ(run.generic_reason, "");
  }
}

// The same where it is the operand of the sum over the loop's axis: the other one is zero at the points left out.
TEST(CompileCases, OperandsOfAMaskedSumHaveTheAxesTheyUse) {
  const std::string text = R"(kernel test(X: f16[M,K], Y: f16[N,K], g: f32[K]) -> (Z: f32[M,N]) {
  parallel m: M, n: N;
  carry z[m,n] = 0;
  for k: K where CONDITION {
    y[n,k] = f16(Y[n,k] * g[k]);
    z[m,n] += sum[k] X[m,k] * y[n,k];
  }
  Z[m,n] = z[m,n];
})";
  for (const std::string condition :
       {"k <= m", "k <= m && k > m - 40", "k <= n", "k <= m && k <= n", "k <= m || k <= n"}) {
    std::string own = text;
    own.replace(own.find("CONDITION"), 9, condition);
    for (const double rows : {7.0, 130.0}) {
      const auto run = test::run_kernel(own, {{"M", rows}, {"N", 24}, {"K", 72}}, small());
      EXPECT_EQ(run.failure, "") << condition;
      if (condition.find("||") == std::string::npos) {
        EXPECT_EQ(run.generic_reason, "") << condition;
      } else {
        EXPECT_NE(run.generic_reason.find("the sum into 'z' runs index by index"), std::string::npos);
        EXPECT_NE(run.generic_reason.find("`where k <= m || k <= n`"), std::string::npos) << run.generic_reason;
      }
    }
  }
}

// Tiles of one long row, of several rows, of columns, with and without a condition, at ragged sizes.
TEST(CompileCases, ElementTilesOfAnyShape) {
  const std::string row = R"(kernel test(X: f16[M,N], label: i32[M]) -> (L: f32[M], P: f16[M,N]) {
  parallel m: M;
  carry top[m] = -inf, l[m] = 0, hit[m] = 0;
  for n: N where CONDITION {
    t[m] = max(top[m], max[n] X[m,n]);
    l[m] = l[m] * exp(top[m] - t[m]) + sum[n] exp(X[m,n] - t[m]);
    hit[m] += sum[n] select(n == label[m], X[m,n], 0);
    top[m] = t[m];
  }
  L[m] = select(l[m] == 0, 0, top[m] + log(l[m]) - hit[m]);
  for n: N { P[m,n] = f16(X[m,n] - hit[m]); }
})";
  const std::string column = R"(kernel test(X: f16[N,M]) -> (L: f32[M], P: f16[N,M]) {
  parallel m: M;
  carry top[m] = -inf;
  for n: N where CONDITION { top[m] = max(top[m], max[n] X[n,m]); }
  L[m] = sum[k: N] X[k,m];
  for n: N { P[n,m] = f16(select(top[m] == -inf, 0, X[n,m] - top[m])); }
})";
  for (const std::string& text : {row, column}) {
    for (const std::string condition : {"n >= 0", "n <= m", "n % 3 == 0"}) {
      std::string own = text;
      own.replace(own.find("CONDITION"), 9, condition);
      for (const auto& [element, stream] : {std::pair(4096, 4096), {4096, 64}, {512, 512}, {1024, 16}, {100, 100}}) {
        driver::Choices choices;
        choices.partition.lanes = 1;
        choices.partition.element = element;
        choices.partition.stream = stream;
        choices.schedule.overlap = schedule::Overlap::serial;
        for (const double columns : {7.0, 130.0, 1000.0}) {
          const bool dynamic = columns == 130;
          const auto run = test::run_kernel(own, {{"M", 5}, {"N", columns}}, choices, dynamic);
          EXPECT_EQ(run.failure, "") << condition << " " << element << " " << stream << " " << columns;
        }
      }
    }
  }
}

// A sum walks two values, each over an axis of its own, as one axis where they are as long; else one comes from shared
// memory.
TEST(CompileCases, SumsOverTwoComputedValues) {
  const std::string text = R"(kernel test(X: f16[M,K], W: f16[K,D], Y: f16[N,E], g: f32[N]) -> (Z: f32[M,N]) {
  parallel m: M, n: N;
  inner d: D, e: E;
  x[m,d] = sum[k: K] X[m,k] * W[k,d];
  c[m,d] = f16(x[m,d]);
  y[n,e] = f16(Y[n,e] * g[n]);
  Z[m,n] = sum[r: D where r < E] c[m,r] * y[n,r];
})";
  std::string equal = text;
  for (std::size_t at; (at = equal.find('E')) != std::string::npos;) equal.replace(at, 1, "D");
  equal.replace(equal.find(" where r < D"), 12, "");
  const auto run = test::run_kernel(equal, {{"M", 70}, {"N", 33}, {"K", 48}, {"D", 64}}, small());
  EXPECT_EQ(run.failure, "");
  EXPECT_EQ(run.generic_reason, "");
  const auto other = test::run_kernel(text, {{"M", 70}, {"N", 33}, {"K", 50}, {"D", 64}, {"E", 65}}, small());
  EXPECT_EQ(other.failure, "");
  const auto part = test::run_kernel(R"(kernel test(X: f16[M,64], V: f16[32,48]) -> (Z: f32[M,48]) {
  parallel m: M;
  inner d: 64, e: 48;
  c[m,d] = f16(X[m,d] * 2.0);
  Z[m,e] = sum[r: 32] c[m,r] * V[r,e];
})",
                                     {{"M", 70}}, small());
  EXPECT_EQ(part.failure, "");
  const auto chained = test::run_kernel(R"(kernel test(X: f16[M,K], W: f16[K,64], V: f16[64,64]) -> (Z: f32[M,64]) {
  parallel m: M;
  inner d: 64;
  c[m,d] = f16(sum[k: K] X[m,k] * W[k,d]);
  Z[m,d] = sum[r: 64] c[m,r] * V[r,d];
})",
                                        {{"M", 70}, {"K", 50}}, small());
  EXPECT_EQ(chained.failure, "");
}

// A reduction inside an expression has the axes of the condition, also those that its summands lack.
TEST(CompileCases, CountsOfPointsHaveTheAxesOfTheCondition) {
  for (const std::string body : {"l[i] += 2 * sum[j] P[j];", "l[i] = max(l[i], max[j] P[j]);", "l[i] += sum[j] 1;"}) {
    EXPECT_EQ(test::run_kernel("kernel test(P: f32[16]) -> (O: f32[S]) {\n  parallel i: S;\n  carry l[i] = 0;\n"
                               "  for j: 16 where j <= i {\n    " +
                                   body + "\n  }\n  O[i] = l[i];\n}",
                               {{"S", 17}}, small())
                  .failure,
              "")
        << body;
  }
}

// State that begins anew in every iteration has no older value to keep.
TEST(CompileCases, CarriesInsideALoopBeginAnew) {
  EXPECT_EQ(test::run_kernel(R"(kernel test(X: f16[3,4]) -> (O: f32[3]) {
  parallel i: 3;
  carry l[i] = 0;
  for j: 4 where j <= i {
    carry t[i] = 1;
    l[i] += t[i] * sum[j] X[i,j];
  }
  O[i] = l[i];
})",
                             {}, small())
                .failure,
            "");
}

TEST(CompileCases, WalksNameTheirBlocksAnew) {
  driver::Choices choices = small();
  choices.walk = {"h", 2};
  EXPECT_EQ(test::run_kernel(R"(kernel test(X: f16[2,64,64], Y: f16[64,64]) -> (Z: f32[4,2,64,64]) {
  parallel h: 4, h_block: 2, m: 64, n: 64;
  Z[h,h_block,m,n] = sum[k: 64] X[h_block,m,k] * Y[n,k];
})",
                             {}, choices)
                .failure,
            "");
}

TEST(CompileCases, WalksOverNothing) {
  driver::Choices choices = small();
  choices.walk = {"b", 4};
  EXPECT_EQ(test::run_kernel(R"(kernel test(X: f16[4,8,K], Y: f16[8,K]) -> (Z: f32[4,8,8]) {
  parallel b: 4, m: 8, n: 8;
  Z[b,m,n] = sum[k: K] X[b,m,k] * Y[n,k];
})",
                             {{"K", 0}}, choices)
                .failure,
            "");
}

// Overlapping iterations need two slots, whatever was asked for.
TEST(CompileCases, OverlapNeedsTwoSlots) {
  driver::Choices choices = small(64, 32);
  choices.schedule.depth = 1;
  EXPECT_EQ(test::run_kernel(R"(kernel test(A: f16[64,64], V: f16[64,64]) -> (Z: f32[64,64]) {
  parallel m: 64, n: 64;
  carry o[m,n] = 0;
  for j: 64 {
    w[m,j] = f16(exp(A[m,j]));
    o[m,n] += sum[j] w[m,j] * V[j,n];
  }
  Z[m,n] = o[m,n];
})",
                             {}, choices)
                .failure,
            "");
}

constexpr const char* triangle = R"(kernel test(W: f16[B,H,S,S], X: f16[B,H,S,P]) -> (Y: f32[B,H,S,P]) {
  parallel b: B, h: H, l: S, p: P;
  carry y[l,p] = 0;
  for k: S where k <= l {
    w[l,k] = f16(W[b,h,l,k] * 2);
    y[l,p] += sum[k] w[l,k] * X[b,h,k,p];
  }
  Y[b,h,l,p] = y[l,p];
})";

// Every tile of every head once, whatever the bands: also when the last one is smaller, and of unknown size.
TEST(CompileCases, BandsOfEvenAxesCoverAllTiles) {
  for (const bool dynamic : {false, true}) {
    for (const int band : {0, 1, 2, 3, 4, 7}) {
      driver::Choices how = small();
      how.partition.order = partition::Order::dynamic;
      how.partition.band = band;
      const auto run = test::run_kernel(triangle, {{"B", 2}, {"H", 3}, {"S", 130}, {"P", 32}}, how, dynamic);
      EXPECT_EQ(run.failure, "") << band << (dynamic ? " dynamic" : "");
    }
  }
}

// Lanes whose rows have no point in a tile keep their rings going; with sizes at every edge of their tiles.
TEST(CompileCases, LanesPassOverTilesWithoutAPoint) {
  for (const double size : {1.0, 63.0, 64.0, 65.0, 128.0, 129.0, 200.0}) {
    const auto how =
        test::compiled::choices(128, 32, 16, 2, partition::Order::persistent, schedule::Overlap::serial, 2);
    const auto run = test::run_kernel(triangle, {{"B", 1}, {"H", 2}, {"S", size}, {"P", 32}}, how, true);
    EXPECT_EQ(run.failure, "") << size;
    EXPECT_EQ(run.generic_reason, "") << size;
  }
}

// What masks leave unread of a tile that a walk keeps has no memory, and lanes change places where their rings allow.
TEST(CompileCases, KeptTilesHaveMemoryForWhatIsRead) {
  const std::string text = R"(kernel test(A: f16[256,256], X: f16[H,256,16], D: f32[H,256]) -> (O: f32[H,256,16]) {
  parallel h: H, i: 256, p: 16;
  carry y[i,p] = 0;
  for k: 256 where CONDITION {
    w[i,k] = A[i,k] * f16(D[h,k]);
    y[i,p] += sum[k] w[i,k] * X[h,k,p];
  }
  O[h,i,p] = y[i,p];
})";
  struct Case {
    std::string condition, stairs;
  };
  for (const Case& c :
       {Case{"k <= i", "stairs 64 from 0 by 0 to 64 by 64"}, Case{"k >= i", "stairs 64 from 0 by 64 to 256 by 0"},
        Case{"k <= i && i - k < 70", ""}, Case{"k <= 100", "stairs 64 from 0 by 0 to 128 by 0"}}) {
    std::string own = text;
    own.replace(own.find("CONDITION"), 9, c.condition);
    for (const int depth : {2, 3}) {
      driver::Choices how =
          test::compiled::choices(256, 16, 64, 4, partition::Order::dynamic, schedule::Overlap::serial, depth);
      how.walk = {"h", 4};
      const auto run = test::run_kernel(own, {{"H", 8}}, how);
      EXPECT_EQ(run.failure, "") << c.condition;
      EXPECT_EQ(run.generic_reason, "") << c.condition;
      EXPECT_EQ(run.program.find(c.stairs.empty() ? "stairs" : c.stairs) != std::string::npos, !c.stairs.empty())
          << run.program;
      const bool uneven = c.condition.find('i') != std::string::npos;
      EXPECT_EQ(run.program.find("let place") != std::string::npos, uneven && depth == 3) << run.program;
    }
  }
}

// A sum over some of a product's points reads the other product's result one by one, from shared memory.
TEST(CompileCases, ConditionalSumsReadAProductsResult) {
  const std::string text = R"(kernel test(Q: f16[S,D], K: f16[T,D], V: f16[T,D]) -> (O: f32[S,D]) {
  parallel i: S;
  inner d: D;
  carry o[i,d] = 0;
  for j: T where j <= i {
    s[i,j] = sum[k: D] Q[i,k] * K[j,k];
    o[i,d] += sum[j where j > 4] f16(s[i,j]) * V[j,d];
  }
  O[i,d] = o[i,d];
})";
  for (const double size : {3.0, 40.0, 70.0}) {
    const auto run = test::run_kernel(text, {{"S", size}, {"T", 50}, {"D", 16}}, small());
    EXPECT_EQ(run.failure, "") << size;
  }
}

// Registers hold what a value is at its own axes; at other places of an inner axis it comes from shared memory.
TEST(CompileCases, ValuesAreReadAtOtherPlacesOfTheirInnerAxis) {
  const std::string head = "kernel test(A: f32[M,K]) -> (O: f32[M,K]) {\n  parallel m: M;\n  inner k: K, j: K;\n";
  for (const std::string body : {
           "x[m,k] = A[m,k] * 2; O[m,k] = x[m,K-1-k];",
           "x[m,k] = A[m,k] * 2; O[m,k] = x[m,k/2];",
           "x[m,k] = A[m,k] * 2; O[m,k] = x[m,(k+1)%K];",
           "x[m,k] = A[m,k] * 2; O[m,k] = x[m,K-1-k] when k > 2;",
           "x[m,k] = A[m,k] * 2; O[m,j] = x[m,j];",
           "x[m,k] = A[m,k] * 2; O[m,k] = f32(f16(x[m,K-1-k] + x[m,k]));",
           "x[m,k] = A[m,k] * 2; O[m,k] = select(k > 0, x[m,k-1], 0);",
           "x[m,k] = A[m,k] * 2; y[m,k] = x[m,K-1-k] - x[m,k]; O[m,k] = y[m,k] * y[m,k/2];",
           "x[m,k] = A[m,k] * 2; y[m] = sum[k] x[m,K-1-k] * x[m,k]; O[m,k] = y[m];",
           "x[m,k] = A[m,k] * 2; O[m,k] = sum[i: K where i <= k] x[m,K-1-i];",
           "x[m,k] = A[m,k] * 2; O[m,k] = sum[i: K] x[m,(i+k)%K];",
           "x[m,k] = A[m,k] > 0; O[m,k] = select(x[m,K-1-k], 1, 0);",
           "carry x[m,k] = 0; for t: 5 { x[m,k] += sum[t] A[m,k] * t; } O[m,k] = x[m,K-1-k];",
       }) {
    const auto run = test::run_kernel(head + body + "\n}", {{"M", 5}, {"K", 9}}, small());
    EXPECT_EQ(run.failure, "") << body;
  }
}

TEST(CompileCases, ProductsReadResultsOfProductsOverTheSameAxis) {
  const std::string head =
      "kernel test(A: f16[M,K], B: f16[K,K]) -> (O: f16[M,K]) {\n  parallel m: M;\n  inner k: K;\n"
      "  x[m,k] = f16(sum[i: K] A[m,i] * B[i,k]);\n";
  for (const std::string body : {
           "O[m,k] = x[m,K-1-k];",
           "O[m,k] = f16(sum[i: K] x[m,i] * B[i,k]);",
           "O[m,k] = f16(sum[i: K] x[m,K-1-i] * B[i,k]);",
           "y[m,k] = f16(sum[i: K] x[m,i] * B[i,k] + f32(x[m,k])); O[m,k] = f16(sum[i: K] y[m,i] * B[i,k]);",
       }) {
    for (const int lanes : {1, 2}) {
      const auto how = test::compiled::choices(64 * lanes, 32, 16, lanes, partition::Order::persistent,
                                               schedule::Overlap::serial, 1);
      const auto run = test::run_kernel(head + body + "\n}", {{"M", 130}, {"K", 24}}, how);
      EXPECT_EQ(run.failure, "") << body << " " << lanes;
      EXPECT_EQ(run.generic_reason, "") << body;
    }
  }
}

// The largest integer, not the smallest, is what a minimum of integers begins with.
TEST(CompileCases, MinimaOfIntegers) {
  for (const std::string type : {"i32", "i8"}) {
    const std::string text = "kernel test(X: " + type + R"([M,N]) -> (I: i32[M], J: i32[M]) {
  parallel m: M;
  t[m] = max[n: N] X[m,n];
  I[m] = min[n: N] X[m,n];
  J[m] = min[n: N where n > 3] (i32(X[m,n]) - t[m]);
})";
    for (const double size : {5.0, 33.0, 100.0}) {
      EXPECT_EQ(test::run_kernel(text, {{"M", 5}, {"N", size}}, small(), true).failure, "") << type << " " << size;
      EXPECT_EQ(test::run_kernel(text, {{"M", 5}, {"N", size}}, small()).failure, "") << type << " " << size;
    }
  }
}

// A sum that runs index by index over the blocks of a condition on data reads the data index by index too.
TEST(CompileCases, SerialSumsUnderConditionsOnDataOfAnOuterLoop) {
  const std::string text = R"(kernel test(Q: f16[N,D], K: f16[G,B,D], V: f16[G,B,D], on: u8[N,G]) -> (O: f16[N,D]) {
  parallel i: N;
  inner d: D;
  carry l[i] = 0, o[i,d] = 0;
  for g: G where on[i,g] > 100 {
    for b: B {
      p[i,g,b] = exp(0.1 * sum[k: D] Q[i,k] * K[g,b,k]);
      l[i] += sum[g,b] p[i,g,b];
      o[i,d] += sum[g,b] f16(p[i,g,b]) * V[g,b,d];
    }
  }
  O[i,d] = f16(select(l[i] == 0, 0, o[i,d] / l[i]));
})";
  const auto run = test::run_kernel(text, {{"N", 70}, {"D", 16}, {"G", 3}, {"B", 20}}, small());
  EXPECT_EQ(run.failure, "");
}

// State without a point in the tile of any loop around its statement stays what it is.
TEST(CompileCases, StateKeepsTheConditionsOfAllLoopsAround) {
  const std::string text = R"(kernel test(X: f32[N,G,B], on: u8[N,G]) -> (O: f32[N], P: f32[N]) {
  parallel i: N;
  carry l[i] = 0, p[i] = 0;
  for g: G where OUTER {
    for b: B where INNER {
      l[i] = max(l[i], 7);
      p[i] = max(p[i], max[g,b] X[i,g,b]);
    }
  }
  O[i] = l[i];
  P[i] = p[i];
})";
  for (const std::string outer : {"on[i,g] > 100", "g >= i + 2"}) {
    for (const std::string inner : {"b >= 0", "b <= g", "b >= g + 3 && b + 1 > i"}) {
      std::string own = text;
      own.replace(own.find("OUTER"), 5, outer);
      own.replace(own.find("INNER"), 5, inner);
      const auto run = test::run_kernel(own, {{"N", 10}, {"G", 7}, {"B", 20}}, small());
      EXPECT_EQ(run.failure, "") << outer << ", " << inner;
    }
  }
}

// A reduction inside another one is computed as if it had a name.
TEST(CompileCases, ReductionsInsideReductions) {
  const std::string head = "kernel test(A: f16[L,M,K], B: f16[L,K,N]) -> (O: f32[M,N]) {\n  parallel m: M, n: N;\n";
  for (const std::string body : {
           "O[m,n] = max[l: L] sum[k: K] A[l,m,k] * B[l,k,n];",
           "O[m,n] = max[l: L where l > m] sum[k: K] A[l,m,k] * B[l,k,n];",
           "O[m,n] = sum[l: L where l >= 1] sum[k: K where k > l] A[l-1,m,k] * B[l,k,n];",
           "O[m,n] = 1 + max[l: L] min[j: 3] (j + sum[k: K] A[l,m,k] * B[l,K-1-k,n]);",
       }) {
    for (const bool dynamic : {false, true}) {
      const auto run =
          test::run_kernel(head + body + "\n}", {{"L", 4}, {"M", 9}, {"K", 16}, {"N", 20}}, small(), dynamic);
      EXPECT_EQ(run.failure, "") << body << " " << dynamic;
    }
  }
}

TEST(CompileCases, ChainsOfThousandsOfTerms) {
  std::string text = "kernel test(X: f32[M]) -> (Y: f32[M]) {\n  parallel m: M;\n  Y[m] = X[m]";
  for (int term = 1; term < 2000; ++term) text += fmt::format(" + X[m] * {}", term % 7);
  EXPECT_EQ(test::run_kernel(text + ";\n}", {{"M", 70}}, small()).failure, "");
}

// A sum that lanes share is whole in the first one; it goes to shared memory once, where it is read elsewhere.
TEST(CompileCases, SumsThatLanesShareAreReadAtOtherPlaces) {
  auto how = small();
  how.partition.lanes = 2;
  how.partition.share_sums = true;
  const auto run = test::run_kernel(R"(kernel test(P: f16[M,T], V: f16[T,D]) -> (O: f32[M,D]) {
  parallel m: M;
  inner d: D;
  carry o[m,d] = 0;
  for j: T { o[m,d] += sum[j] P[m,j] * V[j,d]; }
  O[m,d] = o[m,D-1-d];
})",
                                    {{"M", 70}, {"T", 200}, {"D", 32}}, how);
  EXPECT_EQ(run.failure, "");
  EXPECT_NE(run.program.find("o_handed"), std::string::npos);
  EXPECT_NE(run.program.find("buffer o_copy"), std::string::npos);
  EXPECT_EQ(run.program.find("buffer o:"), std::string::npos);
}

}  // namespace
}  // namespace pipethreader
