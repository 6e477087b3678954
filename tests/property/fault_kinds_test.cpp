// The kinds of fault that pipelining compilers of tiles are known to have, one test each. Every case goes through all
// stages, is proved, is interpreted under several orders of its asynchronous work, and is compared with the oracle.
#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/compiler.h"
#include "driver/report.h"
#include "interpret/interpret.h"
#include "oracle/oracle.h"
#include "program/walk.h"

namespace pipethreader {
namespace {

using driver::Choices;
using driver::Forced;
using kernel::Binding;
using schedule::Overlap;
using ::testing::HasSubstr;

constexpr Overlap overlaps[] = {Overlap::serial, Overlap::deferred, Overlap::delayed};
constexpr partition::Order orders[] = {partition::Order::single, partition::Order::persistent,
                                       partition::Order::dynamic};

const device::Device& h100() {
  static const device::Device device = [] {
    auto loaded = device::load_device(PIPETHREADER_SOURCE_DIR "/devices/h100.toml");
    EXPECT_TRUE(loaded) << loaded.error().format();
    return std::move(*loaded);
  }();
  return device;
}

std::string library(const std::string& name) {
  std::ifstream in(std::string(PIPETHREADER_SOURCE_DIR) + "/kernels/" + name + ".stask");
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_FALSE(text.str().empty()) << name;
  return text.str();
}

Choices choices(int row, int column, int stream, int lanes, Overlap overlap, int depth) {
  Choices c;
  c.partition.row = row;
  c.partition.column = column;
  c.partition.stream = stream;
  c.partition.lanes = lanes;
  c.schedule.overlap = overlap;
  c.schedule.depth = depth;
  return c;
}

// A kernel taken as far as its proof. Dims that are not fixed stay dynamic.
class Subject {
 public:
  Subject(const std::string& text, std::vector<Binding> fixed, Choices how) : choices_(how) {
    auto kernels = kernel::parse(text, "kernel.stask");
    auto checked = kernels ? kernel::check(kernels->front()) : tl::unexpected(kernels.error());
    auto special = checked ? kernel::specialise(*checked, fixed, {}) : tl::unexpected(checked.error());
    if (!special) {
      ADD_FAILURE() << special.error().format();
      return;
    }
    kernel_ = std::move(*special);
    program_ = lower(choices_);
  }

  [[nodiscard]] bool ready() const { return program_.has_value(); }
  [[nodiscard]] const std::string& generic_reason() const { return program_->generic_reason; }
  [[nodiscard]] const program::Program& program() const { return *program_; }

  using Edit = std::function<void(oracle::Inputs&)>;

  // Runs at these sizes of the dynamic dims under several seeds; every element is within the oracle's bound.
  void expect_right(const std::vector<Binding>& sizes = {}, const Edit& edit = {}, std::uint64_t seeds = 4) {
    if (!ready()) return;
    std::vector<std::int64_t> all;
    for (const kernel::Dim& dim : kernel_.dims) {
      std::int64_t size = dim.size.value_or(-1);
      for (const Binding& given : sizes) {
        if (given.name == dim.name) size = static_cast<std::int64_t>(given.value);
      }
      ASSERT_GE(size, 0) << "no size for " << dim.name;
      all.push_back(size);
    }
    auto inputs = oracle::random_inputs(kernel_, all, 1 + static_cast<std::uint64_t>(all[0]));
    ASSERT_TRUE(inputs) << inputs.error().format();
    if (edit) edit(*inputs);
    const auto expected = oracle::evaluate(kernel_, *inputs, oracle::Partition::fixed(16));
    ASSERT_TRUE(expected) << expected.error().format();
    const program::Program* program = fitting(*inputs);
    if (program == nullptr) return;
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) run_once(*program, *inputs, *expected, seed);
  }

 private:
  std::optional<program::Program> lower(const Choices& how) const {
    auto lowered = driver::lower_kernel(kernel_, h100(), how);
    if (!lowered) {
      ADD_FAILURE() << driver::describe(how) << "\n" << lowered.error().format() << "\n" << kernel::print(kernel_);
      return std::nullopt;
    }
    const auto proved = driver::prove_and_print(lowered->program);
    if (!proved) {
      ADD_FAILURE() << driver::describe(how) << "\n" << proved.error().format() << program::print(lowered->program);
      return std::nullopt;
    }
    return std::move(lowered->program);
  }

  [[nodiscard]] interpret::Arguments arguments(const program::Program& program, const oracle::Inputs& inputs) const {
    interpret::Arguments result;
    for (const program::Param& param : program.params) {
      double value = 0;
      for (std::size_t i = 0; i < kernel_.dims.size(); ++i)
        if (kernel_.dims[i].name == param.name) value = static_cast<double>(inputs.sizes[i]);
      for (std::size_t i = 0; i < kernel_.scalars.size(); ++i)
        if (kernel_.scalars[i].name == param.name) value = inputs.scalars[i];
      result.params.push_back(value);
    }
    for (std::size_t t = 0; t < kernel_.tensors.size(); ++t)
      result.tensors.push_back(kernel_.tensors[t].output ? std::vector<double>{} : inputs.tensors[t].values);
    return result;
  }

  // The program that takes these sizes: what needs sizes that divide has another without the copy engine.
  const program::Program* fitting(const oracle::Inputs& inputs) {
    const auto params = arguments(*program_, inputs).params;
    for (const program::ExprId requirement : program_->requirements) {
      if (program::evaluate(*program_, requirement, params) != 0) continue;
      if (!plain_) {
        Choices how = choices_;
        how.bulk = false;
        plain_ = lower(how);
      }
      return plain_ ? &*plain_ : nullptr;
    }
    return &*program_;
  }

  void run_once(const program::Program& program, const oracle::Inputs& inputs, const oracle::Outputs& expected,
                std::uint64_t seed) const {
    interpret::Arguments given = arguments(program, inputs);
    interpret::RunOptions options;
    options.seed = seed;
    options.interleaving = seed % 2 == 0 ? interpret::Interleaving::adversarial : interpret::Interleaving::random;
    const std::string what =
        fmt::format("{}, sizes {}, seed {}", driver::describe(choices_), fmt::join(inputs.sizes, " "), seed);
    const auto ran = interpret::run(program, given, options);
    ASSERT_TRUE(ran) << what << "\n" << ran.error().format() << "\n" << program::print(program);
    std::vector<std::vector<double>> actual;
    for (std::size_t t = 0; t < kernel_.tensors.size(); ++t)
      if (kernel_.tensors[t].output) actual.push_back(given.tensors[t]);
    const auto report = oracle::compare(expected, actual);
    ASSERT_TRUE(report) << what << "\n" << report.error().format();
    EXPECT_TRUE(report->ok()) << what << "\n" << report->format() << "\n" << kernel::print(kernel_);
  }

  kernel::Kernel kernel_;
  Choices choices_;
  std::optional<program::Program> program_, plain_;
};

void expect_right(const std::string& text, const std::vector<Binding>& fixed, const Choices& how,
                  const Subject::Edit& edit = {}, std::uint64_t seeds = 4) {
  Subject(text, fixed, how).expect_right({}, edit, seeds);
}

constexpr const char* product = R"(
kernel f(A: f16[M,K], B: f16[N,K]) -> (C: f32[M,N]) {
  parallel m: M, n: N;
  carry c[m,n] = 0;
  for k: K { c[m,n] += sum[k] A[m,k] * B[n,k]; }
  C[m,n] = c[m,n];
})";

// Attention with the mask that ends with the last key: query i sees the keys j <= i + T - S. With more queries than
// keys the first ones see none.
constexpr const char* end_aligned = R"(
kernel f(Q: f16[S,D], K: f16[T,D], V: f16[T,D]) -> (O: f16[S,D]) {
  parallel i: S;  inner d: D;
  carry m[i] = -inf, l[i] = 0, o[i,d] = 0;
  for j: T where j + S <= i + T {
    s[i,j] = sum[k: D] Q[i,k] * K[j,k];
    n[i]   = max(m[i], max[j] s[i,j]);
    p[i,j] = f16(exp2(s[i,j] - n[i]));
    a[i]   = exp2(m[i] - n[i]);
    l[i]   = l[i] * a[i] + sum[j] p[i,j];
    o[i,d] = o[i,d] * a[i];
    o[i,d] += sum[j] p[i,j] * V[j,d];
    m[i]   = n[i];
  }
  O[i,d] = f16(select(l[i] == 0, 0, o[i,d] / l[i]));
})";

// --- trip counts and phases ----------------------------------------------------------------------------------------

TEST(FaultKinds, TripCountsAroundTheDepthOfTheRing) {
  for (const Overlap overlap : overlaps) {
    for (const int depth : {1, 2, 3, 4}) {
      Subject subject(product, {{"M", 64}, {"N", 32}}, choices(64, 32, 16, 1, overlap, depth));  // K is dynamic
      for (int trips = 0; trips <= depth + 2; ++trips)
        for (const int more : {0, 8}) subject.expect_right({{"K", trips * 16.0 + more}}, {}, 2);
    }
  }
}

TEST(FaultKinds, TripCountsThatDependOnTheBlock) {
  const std::vector<Binding> heads = {{"B", 1}, {"H", 2}, {"G", 1}, {"D", 16}};
  const auto with = [&](double queries, double keys) {
    std::vector<Binding> all = heads;
    all.push_back({"S", queries});
    all.push_back({"T", keys});
    return all;
  };
  const std::pair<double, double> sizes[] = {{1, 1}, {64, 64}, {65, 33}, {130, 130}, {40, 100}, {128, 1}};
  for (const Overlap overlap : overlaps) {
    const Choices how = choices(64, 64, 32, 1, overlap, 2);
    for (const auto& [queries, keys] : sizes) expect_right(library("flash_attention"), with(queries, keys), how, {}, 2);
    if (overlap == Overlap::delayed) continue;  // of dynamic sizes the proof does not see that all lanes agree
    Subject subject(library("flash_attention"), heads, how);
    for (const auto& [queries, keys] : sizes) subject.expect_right({{"S", queries}, {"T", keys}}, {}, 2);
  }
}

TEST(FaultKinds, PhasesAcrossPersistentTiles) {
  // 2 blocks share 9 items, so that slots and phases run on from tile to tile at every remainder of the period.
  for (const auto order : {partition::Order::persistent, partition::Order::dynamic}) {
    for (const int depth : {2, 3}) {
      for (int trips = 1; trips <= 2 * depth + 1; ++trips) {
        Choices how = choices(64, 16, 16, 1, Overlap::deferred, depth);
        how.partition.order = order;
        expect_right(product, {{"M", 192}, {"N", 48}, {"K", trips * 16.0}}, how, {}, 2);
        how.partition.cluster = 2;
        expect_right(product, {{"M", 384}, {"N", 32}, {"K", trips * 16.0}}, how, {}, 2);
      }
    }
  }
}

TEST(FaultKinds, PhasesAcrossPersistentTilesOfUnequalLength) {
  for (const auto order : orders) {
    for (const Overlap overlap : overlaps) {
      Choices how = choices(128, 64, 16, 2, overlap, 3);
      how.partition.order = order;
      expect_right(library("flash_attention"), {{"B", 1}, {"H", 3}, {"G", 1}, {"S", 300}, {"T", 300}, {"D", 16}}, how,
                   {}, 2);
    }
  }
}

// --- slots and buffers ---------------------------------------------------------------------------------------------

TEST(FaultKinds, SlotsThatAYoungerIterationWouldOverwrite) {
  for (const Overlap overlap : overlaps) {
    for (const int depth : {1, 2}) {  // what a delayed reader needs and the depth does not give is refused or deepened
      Choices how = choices(64, 64, 16, 1, overlap, depth);
      expect_right(end_aligned, {{"S", 64}, {"T", 160}, {"D", 32}}, how, {}, 8);
    }
  }
}

TEST(FaultKinds, StagingBuffersThatAreUsedAgain) {
  for (const auto order : orders) {
    for (const int lanes : {1, 2}) {
      Choices how = choices(64 * lanes, 32, 32, lanes, Overlap::deferred, 2);
      how.partition.order = order;
      how.schedule.staged_stores = true;
      expect_right(library("matmul"), {{"M", 320}, {"N", 96}, {"K", 64}}, how, {}, 8);
    }
  }
}

TEST(FaultKinds, LanesThatShareAnOperandSlot) {
  for (const int lanes : {2, 3}) {
    for (const bool turns : {false, true}) {
      Choices how = choices(64 * lanes, 64, 16, lanes, Overlap::delayed, 2);
      how.schedule.turns = turns;
      expect_right(end_aligned, {{"S", 64.0 * lanes}, {"T", 160}, {"D", 16}}, how, {}, 8);
    }
  }
}

TEST(FaultKinds, AValueReadAndThenWrittenInTheSameIteration) {
  // m is read as it was, then written, then read as it is; p is written while the product may still read the one
  // before.
  const char* running = R"(
kernel f(Q: f16[M,D], A: f16[T,D], B: f16[T,E]) -> (O: f32[M,E], C: f32[M]) {
  parallel i: M;  inner e: E;
  carry o[i,e] = 0, m[i] = -inf, c[i] = 0;
  for j: T {
    s[i,j] = sum[k: D] Q[i,k] * A[j,k];
    n[i]   = max(m[i], max[j] s[i,j]);
    a[i]   = exp2(m[i] - n[i]);
    c[i]   = c[i] * a[i] + sum[j] exp2(s[i,j] - n[i]);
    m[i]   = n[i];
    p[i,j] = f16(exp2(s[i,j] - m[i]));
    o[i,e] = o[i,e] * a[i];
    o[i,e] += sum[j] p[i,j] * B[j,e];
  }
  O[i,e] = o[i,e];
  C[i] = c[i];
})";
  for (const Overlap overlap : overlaps) {
    for (const int lanes : {1, 2})
      expect_right(running, {{"M", 64.0 * lanes}, {"T", 100}, {"D", 16}, {"E", 24}},
                   choices(64 * lanes, 64, 16, lanes, overlap, 2));
  }
}

// --- tiles ---------------------------------------------------------------------------------------------------------

TEST(FaultKinds, ColumnsThatAreNoMultipleOf16) {
  for (const int columns : {1, 8, 20, 24, 40, 56, 100, 120}) {
    expect_right(product, {{"M", 64}, {"N", static_cast<double>(columns)}, {"K", 64}},
                 choices(64, 128, 32, 1, Overlap::deferred, 2), {}, 2);
  }
}

TEST(FaultKinds, OddTiles) {
  for (const int column : {24, 48, 80, 96}) {
    for (const int stream : {48, 80, 16}) {
      expect_right(product, {{"M", 70}, {"N", 200}, {"K", 240}}, choices(64, column, stream, 1, Overlap::deferred, 2),
                   {}, 2);
    }
  }
  for (const char* name : {"matmul_b_rows", "matmul_a_columns", "matmul_a_columns_b_rows"}) {
    std::string text = library("matmul");
    text = text.substr(text.find(std::string("kernel ") + name));
    text = text.substr(0, text.find("\n}") + 3);
    for (const int tile : {48, 80, 96})
      expect_right(text, {{"M", 72}, {"N", 104}, {"K", 168}}, choices(64, tile, tile, 1, Overlap::deferred, 2), {}, 2);
  }
}

TEST(FaultKinds, OddBlocksOfKeys) {
  for (const int stream : {24, 48, 80, 96}) {
    for (const Overlap overlap : overlaps)
      expect_right(end_aligned, {{"S", 70}, {"T", 150}, {"D", 48}}, choices(64, 64, stream, 1, overlap, 2), {}, 2);
  }
}

TEST(FaultKinds, RowsThatLanesCouldPermute) {
  // Every element tells its row and column, so that a permutation shows.
  const char* text = R"(
kernel f(A: f16[M,K], B: f16[N,K], R: f32[M]) -> (C: f32[M,N], S: f32[M]) {
  parallel m: M;  inner n: N;
  c[m,n] = sum[k: K] A[m,k] * B[n,k];
  x[m]   = max[n] c[m,n];
  C[m,n] = c[m,n] + 1000 * m + n + R[m];
  S[m]   = x[m] + R[m] + m;
})";
  for (const int lanes : {1, 2, 3}) {
    for (const int each : {64, 128})
      expect_right(text, {{"M", 400}, {"N", 40}, {"K", 32}}, choices(each * lanes, 64, 32, lanes, Overlap::deferred, 2),
                   {}, 2);
  }
}

TEST(FaultKinds, ReductionsWhoseWidthDoesNotDivideTheThreads) {
  const char* rows = R"(
kernel f(X: f32[M,N]) -> (S: f32[M], H: f32[M], L: f32[M]) {
  parallel m: M;
  S[m] = sum[n: N] X[m,n];
  H[m] = max[n: N] X[m,n];
  L[m] = min[n: N] X[m,n];
})";
  for (const int width : {1, 2, 3, 5, 7, 31, 33, 96, 100, 127, 129, 130, 255, 257, 1000, 1025, 2049}) {
    expect_right(rows, {{"M", 3}, {"N", static_cast<double>(width)}}, choices(64, 64, 64, 1, Overlap::serial, 1), {},
                 2);
  }
}

TEST(FaultKinds, ReplicatedFragmentsAreAddedOnce) {
  // r is the same in all threads of a row, and t in all rows: summing them again must not count the copies.
  const char* text = R"(
kernel f(A: f16[M,K], B: f16[N,K], W: f32[N]) -> (C: f32[M], D: f32[M]) {
  parallel m: M;  inner n: N;
  c[m,n] = sum[k: K] A[m,k] * B[n,k];
  r[m]   = sum[n] c[m,n];
  C[m]   = sum[n] (r[m] + W[n]);
  D[m]   = sum[n] W[n] + r[m];
})";
  for (const int lanes : {1, 2}) {
    for (const int columns : {8, 16, 40, 64})
      expect_right(text, {{"M", 130}, {"N", static_cast<double>(columns)}, {"K", 32}},
                   choices(64 * lanes, 64, 32, lanes, Overlap::serial, 2), {}, 2);
  }
}

TEST(FaultKinds, RowVectorsThatCannotBeCopiedInBulk) {
  // Vectors along the streamed axis beside operands that the copy engine loads: w begins off 16 bytes, v is strided.
  const char* text = R"(
kernel f(A: f16[M,K], B: f16[N,K], w: f32[H,K+1], v: f16[K,H]) -> (C: f32[H,M,N]) {
  parallel h: H, m: M, n: N;
  carry c[m,n] = 0;
  for k: K {
    x[m,k] = f16(A[m,k] * w[h,k+1] + v[k,h]);
    c[m,n] += sum[k] x[m,k] * B[n,k];
  }
  C[h,m,n] = c[m,n];
})";
  for (const int k : {24, 40, 72, 100}) {
    for (const Overlap overlap : overlaps) {
      for (const int lanes : {1, 2}) {
        Subject subject(text, {{"H", 3}, {"M", 64.0 * lanes}, {"N", 32}, {"K", static_cast<double>(k)}},
                        choices(64 * lanes, 32, 16, lanes, overlap, 2));
        ASSERT_TRUE(subject.ready());
        EXPECT_EQ(subject.generic_reason().empty(), k % 8 == 0) << k << subject.generic_reason();
        subject.expect_right();
      }
    }
  }
  const char* bias = R"(
kernel f(A: f16[M,K], B: f16[K,N], b: f16[N]) -> (C: f16[M,N]) {
  parallel m: M, n: N;
  C[m,n] = f16(sum[k: K] A[m,k] * B[k,n] + b[n]);
})";
  for (const int n : {24, 36, 37})
    expect_right(bias, {{"M", 64}, {"N", static_cast<double>(n)}, {"K", 48}},
                 choices(64, 32, 16, 1, Overlap::deferred, 2));
}

// --- masks ---------------------------------------------------------------------------------------------------------

TEST(FaultKinds, RowsWithNothingToAttendTo) {
  const std::pair<double, double> sizes[] = {{200, 40}, {130, 1}, {70, 69}, {64, 0}, {40, 200}};
  for (const Overlap overlap : overlaps) {
    for (const int lanes : {1, 2}) {
      const Choices how = choices(64 * lanes, 64, 32, lanes, overlap, 2);
      for (const auto& [queries, keys] : sizes)
        expect_right(end_aligned, {{"S", queries}, {"T", keys}, {"D", 16}}, how, {}, 2);
      if (overlap == Overlap::delayed) continue;  // of dynamic sizes the proof does not see that all lanes agree
      Subject subject(end_aligned, {{"D", 16}}, how);
      for (const auto& [queries, keys] : sizes) subject.expect_right({{"S", queries}, {"T", keys}}, {}, 2);
    }
  }
}

// --- what must be found --------------------------------------------------------------------------------------------

driver::CompileRequest request_for(const std::string& name, std::vector<Binding> dims) {
  driver::CompileRequest request;
  auto kernel = driver::load_kernel(std::string(PIPETHREADER_SOURCE_DIR) + "/kernels/" + name + ".stask");
  EXPECT_TRUE(kernel) << kernel.error().format();
  request.kernel = std::move(*kernel);
  request.dims = std::move(dims);
  request.device = h100();
  request.candidates = 1;
  request.assemble = false;
  request.use_cache = false;
  return request;
}

TEST(FaultKinds, OrdinaryHeadDimsHaveALayout) {
  for (const int d : {16, 24, 32, 40, 48, 64, 72, 80, 96, 112, 128, 160, 176, 192, 256}) {
    SCOPED_TRACE(fmt::format("head dim {}", d));
    const auto compiled = driver::compile(
        request_for("flash_attention",
                    {{"B", 1}, {"H", 2}, {"G", 1}, {"S", 200}, {"T", 200}, {"D", static_cast<double>(d)}}),
        {});
    ASSERT_TRUE(compiled) << compiled.error().format();
    EXPECT_EQ(compiled->plan.generic_reason(), "");
    Subject subject(library("flash_attention"),
                    {{"B", 1}, {"H", 2}, {"G", 1}, {"S", 200}, {"T", 200}, {"D", static_cast<double>(d)}},
                    compiled->plan.choices);
    subject.expect_right({}, {}, 1);
  }
}

TEST(FaultKinds, CompileTimeDoesNotExplodeWithTheTile) {
  using clock = std::chrono::steady_clock;
  const auto spent = [](int row, int column, int stream, int lanes, std::size_t& bytes) {
    auto kernels = kernel::parse(library("flash_attention"), "");
    const auto kernel = kernel::specialise(*kernel::check(kernels->front()),
                                           {{"B", 1}, {"H", 1}, {"G", 1}, {"S", 512}, {"T", 512}, {"D", 128}}, {});
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 3; ++i) {
      const auto begin = clock::now();
      const auto lowered =
          driver::lower_kernel(*kernel, h100(), choices(row, column, stream, lanes, Overlap::delayed, 2));
      EXPECT_TRUE(lowered) << lowered.error().format();
      const auto printed = driver::prove_and_print(lowered->program);
      EXPECT_TRUE(printed) << printed.error().format();
      bytes = printed->source.text.size();
      best = std::min(best, std::chrono::duration<double>(clock::now() - begin).count());
    }
    return best;
  };
  std::size_t small_bytes = 0, large_bytes = 0;
  const double small = spent(64, 64, 32, 1, small_bytes), large = spent(192, 256, 128, 3, large_bytes);
  // Four times the elements a thread. Linear, with room for a busy machine; what explodes takes the square and more.
  EXPECT_LT(large, 12 * small + 1) << small << " s and " << large << " s";
  EXPECT_LT(large_bytes, 6 * small_bytes);
}

TEST(FaultKinds, NothingBecomesGenericWithoutAReason) {
  // Specialised means that the copy engine fills rings for the computing lanes; all else must say why it does not.
  const auto copies_in_bulk = [](const program::Program& p) {
    bool found = false;
    program::for_each_instr(p, [&](program::RoleId, const program::Instr& instr, const program::Path&) {
      found = found || std::holds_alternative<program::CopyBulk>(instr.op);
    });
    return found;
  };
  for (const int k : {64, 71, 72}) {
    for (const int n : {64, 63}) {
      const auto compiled = driver::compile(
          request_for("matmul", {{"M", 64}, {"N", static_cast<double>(n)}, {"K", static_cast<double>(k)}}), {});
      ASSERT_TRUE(compiled) << compiled.error().format();
      const bool specialised = compiled->plan.generic_reason().empty();
      EXPECT_EQ(specialised, k % 8 == 0) << k;
      EXPECT_EQ(specialised, copies_in_bulk(compiled->plan.best().program)) << k;
      const std::string report = driver::report_text(*compiled);
      EXPECT_THAT(report,
                  HasSubstr(specialised ? "matmul for h100: specialised" : "matmul for h100: generic: 'A' is not"));
    }
  }
  // A dynamic one says it of its second variant.
  const auto dynamic = driver::compile(request_for("matmul", {}), {});
  ASSERT_TRUE(dynamic) << dynamic.error().format();
  ASSERT_EQ(dynamic->plan.variants.size(), 2u);
  EXPECT_THAT(driver::report_text(*dynamic), HasSubstr("otherwise   generic: "));
}

// --- numbers -------------------------------------------------------------------------------------------------------

TEST(FaultKinds, ConversionsOfWhatHasNoPlaceInTheType) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> special = {
      0.0,   -0.0,   inf,    -inf,    nan,    65504,     65519.9,       65520,         -65520,  65536,     1e30,
      -1e30, 3.3e38, 3.4e38, -3.4e38, 6e-8,   2.9e-8,    1e-20,         -1e-40,        1.4e-45, 448,       464,
      465,   57344,  61440,  61441,   2.5e-9, 1.0009765, 1.00048828125, 1.00146484375, 1,       1.00390625};
  for (const char* type : {"f16", "bf16", "f8e4m3"}) {
    SCOPED_TRACE(type);
    const std::string text = fmt::format(
        "kernel f(X: f32[N]) -> (Y: {0}[N], Z: f32[N]) {{\n  parallel n: N;\n  y[n] = {0}(X[n]);\n  Y[n] = y[n];\n"
        "  Z[n] = f32(y[n]);\n}}\n",
        type);
    expect_right(text, {{"N", static_cast<double>(special.size())}}, choices(64, 64, 64, 1, Overlap::serial, 1),
                 [&](oracle::Inputs& inputs) {
                   for (std::size_t i = 0; i < special.size(); ++i)
                     inputs.tensors[0].values[i] = round_to(ScalarType::f32, special[i]);
                 });
  }
}

TEST(FaultKinds, InfAndNaNThroughAProduct) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  // Rows beyond the tensor's end are filled in, and must not spoil what is there; what is there spreads as it must.
  expect_right(product, {{"M", 70}, {"N", 40}, {"K", 40}}, choices(64, 32, 32, 1, Overlap::deferred, 2),
               [&](oracle::Inputs& inputs) {
                 inputs.tensors[0].values[0] = inf;
                 inputs.tensors[0].values[5 * 40 + 3] = nan;
                 inputs.tensors[1].values[39 * 40 + 39] = -inf;
               });
}

}  // namespace
}  // namespace pipethreader
