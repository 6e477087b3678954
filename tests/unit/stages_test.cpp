// The middle of the compiler on kernels of the library: what becomes a product, how tiles propagate, what overlaps, and
// what the search refuses.
#include <algorithm>
#include <ctime>

#include <gtest/gtest.h>

#include <set>

#include "driver/compiler.h"
#include "driver/pipeline.h"
#include "search/search.h"
#include "task/streaming.h"

namespace pipethreader {
namespace {

kernel::Kernel library(const std::string& name, const std::vector<kernel::Binding>& dims,
                       const std::vector<kernel::Binding>& options = {}) {
  auto loaded = driver::load_kernel(PIPETHREADER_SOURCE_DIR "/kernels/" + name + ".stask");
  EXPECT_TRUE(loaded) << loaded.error().format();
  auto special = kernel::specialise(*loaded, dims, options);
  EXPECT_TRUE(special) << special.error().format();
  return *special;
}

device::Device h100() { return *device::load_device(PIPETHREADER_SOURCE_DIR "/devices/h100.toml"); }

kernel::Kernel attention(double length, double head) {
  return library("flash_attention", {{"B", 2}, {"H", 4}, {"G", 2}, {"S", length}, {"T", length}, {"D", head}});
}

int count(const task::Graph& graph, task::TaskKind kind) {
  int found = 0;
  for (const task::Task& t : graph.tasks) found += t.kind == kind ? 1 : 0;
  return found;
}

TEST(Task, LongReductionBecomesALoopOnTheTensorCore) {
  const auto graph = task::build(library("matmul", {{"M", 512}, {"N", 512}, {"K", 4096}}));
  ASSERT_TRUE(graph) << graph.error().format();
  EXPECT_EQ(count(*graph, task::TaskKind::mma), 1);
  EXPECT_EQ(count(*graph, task::TaskKind::load), 2);
  EXPECT_TRUE(std::any_of(graph->root.begin(), graph->root.end(),
                          [](const task::Node& n) { return std::holds_alternative<task::LoopNode>(n.item); }));
}

TEST(Task, ProductsOverOneDomainShareALoopAndTheOperand) {
  const auto graph = task::build(library("gated_ffn", {{"M", 512}, {"N", 512}, {"K", 4096}}));
  ASSERT_TRUE(graph) << graph.error().format();
  EXPECT_EQ(count(*graph, task::TaskKind::mma), 2);
  EXPECT_EQ(count(*graph, task::TaskKind::load), 3);  // X once
  int loops = 0;
  for (const task::Node& n : graph->root) loops += std::holds_alternative<task::LoopNode>(n.item) ? 1 : 0;
  EXPECT_EQ(loops, 1);
}

// Though there are more heads: what lies side by side in memory is copied in whole lines.
TEST(Task, ContiguousAxesThatNearlyFillATileAreTiled) {
  for (const double width : {64.0, 48.0}) {
    const auto graph = task::build(
        library("chunk_state", {{"B", 1}, {"C", 2}, {"H", 64}, {"G", 1}, {"L", 256}, {"P", width}, {"N", 128}}));
    ASSERT_TRUE(graph) << graph.error().format();
    std::set<std::string> tiled;
    for (const kernel::AxisId a : graph->tiled) tiled.insert(graph->kernel[a].name);
    EXPECT_EQ(tiled, (std::set<std::string>{"l", "n", "p"})) << width;
  }
}

TEST(Task, PackedTypesAreAClearError) {
  auto parsed = kernel::parse("kernel k(X: i4[8]) -> (Y: f32[8]) {\n  parallel n: 8;\n  Y[n] = X[n];\n}", "k.stask");
  ASSERT_TRUE(parsed) << parsed.error().format();
  const auto checked = kernel::check(parsed->front());
  ASSERT_TRUE(checked) << checked.error().format();
  const auto graph = task::build(*checked);
  ASSERT_FALSE(graph);
  EXPECT_NE(
      graph.error().format().find("k.stask:1:10: error: tensor 'X' has type i4; packed types are not scheduled yet"),
      std::string::npos)
      << graph.error().format();
}

std::string refusal(const std::string& text) {
  const auto parsed = kernel::parse(text, "k.stask");
  EXPECT_TRUE(parsed) << parsed.error().format();
  const auto checked = kernel::check(parsed->front());
  EXPECT_TRUE(checked) << checked.error().format();
  const auto graph = task::build(*checked);
  return graph ? "" : graph.error().format();
}

TEST(Task, TypesWithoutASchedule) {
  const auto hint = [](const std::string& text) { return "\n  hint: " + text; };
  EXPECT_EQ(refusal("kernel k(A: f32[N]) -> (O: f8e5m2[N]) {\n  parallel n: N;\n  O[n] = f8e5m2(A[n]);\n}"),
            "k.stask:1:25: error: output 'O' has type f8e5m2, which can be read and not written yet" +
                hint("use f8e4m3, f16, bf16 or f32") + "\nk.stask:3:10: error: nothing is converted to f8e5m2 yet" +
                hint("use f8e4m3, f16, bf16 or f32"));
  EXPECT_EQ(
      refusal("kernel k(A: i64[N]) -> (O: i32[N]) {\n  parallel n: N;\n  O[n] = 1;\n}"),
      "k.stask:1:10: error: tensor 'A' has type i64; integers of 64 bits are not scheduled yet" + hint("use i32"));
  EXPECT_EQ(
      refusal("kernel k(A: f8e5m2[N]) -> (O: f32[N]) {\n  parallel n: N;\n  x[n] = A[n];\n  O[n] = x[n];\n}"),
      "k.stask:3:3: error: 'x' has type f8e5m2, which no value can have yet" + hint("use f8e4m3, f16, bf16 or f32"));
  EXPECT_EQ(refusal("kernel k(A: f8e5m2[N]) -> (O: f32[N]) {\n  parallel n: N;\n  O[n] = A[n] + 1;\n}"), "");
}

TEST(Task, WhatMustStayOnChipSaysHowMuchMay) {
  const std::string reversed = R"(kernel k(A: f32[M,SIZE]) -> (O: f32[M,SIZE]) {
  parallel m: M;
  inner k: SIZE;
  x[m,k] = A[m,k] * 2;
  O[m,k] = x[m,SIZE-1-k];
})";
  const auto sized = [&](const std::string& size) {
    std::string own = reversed;
    for (std::size_t at; (at = own.find("SIZE")) != std::string::npos;) own.replace(at, 4, size);
    return refusal(own);
  };
  EXPECT_EQ(sized("8192"), "");
  EXPECT_EQ(sized("K"),
            "k.stask:5:3: error: 'x' is read at other places of its axis 'k', but its size is not fixed and it cannot "
            "stay on chip\n  hint: fix a size of at most 8192 with --dim");
  EXPECT_EQ(sized("9000"),
            "k.stask:5:3: error: 'x' is read at other places of its axis 'k', but its size is 9000 and at most 8192 "
            "stay on chip\n  hint: fix a size of at most 8192 with --dim");
  const auto wide = task::build(attention(512, 264));
  ASSERT_FALSE(wide);
  EXPECT_NE(wide.error().format().find(
                "error: this statement needs all of the inner axis 'd' at once, but its size is 264 and of an axis of "
                "products at most 256 stay on chip\n  hint: fix a size of at most 256 with --dim"),
            std::string::npos)
      << wide.error().format();
}

TEST(Task, ShortReductionStaysOnChip) {
  const auto graph = task::build(library("matmul", {{"M", 512}, {"N", 512}, {"K", 64}}));
  ASSERT_TRUE(graph) << graph.error().format();
  for (const task::Node& n : graph->root) EXPECT_TRUE(std::holds_alternative<task::TaskId>(n.item));
}

// Rows of a product's tile are too many for each to stay on chip with thousands of elements, whether or not K is known.
TEST(Task, LongRowBesideAProductBecomesALoop) {
  auto parsed = kernel::parse(R"(
kernel k(X: f16[256,4096], B: f16[256,4096]) -> (C: f16[256,256]) {
  parallel m: 256, n: 256;
  q[m]   = sum[k: 4096] X[m,k] * X[m,k];
  C[m,n] = f16((sum[k: 4096] X[m,k] * B[n,k]) * rsqrt(q[m]));
})",
                              "test.stask");
  ASSERT_TRUE(parsed) << parsed.error().format();
  const auto kernel = kernel::check(parsed->front());
  ASSERT_TRUE(kernel) << kernel.error().format();
  const auto graph = task::build(*kernel);
  ASSERT_TRUE(graph) << graph.error().format();
  for (const task::Node& n : graph->root) {
    if (const auto* id = std::get_if<task::TaskId>(&n.item)) {
      EXPECT_NE((*graph)[*id].kind, task::TaskKind::load);
    }
  }
}

TEST(Layout, TilesThatNoBlockCanHoldAreRefusedAtOnce) {
  const auto parsed = kernel::parse(R"(kernel k(X: f32[M,A,B]) -> (Y: f32[M,A,B]) {
  parallel m: M;
  inner a: A, b: B;
  x[m,a,b] = X[m,a,b] * 2;
  s[m] = sum[a, b] x[m,a,b];
  Y[m,a,b] = x[m,a,b] / s[m];
})",
                                    "k.stask");
  const auto kernel = kernel::specialise(*kernel::check(parsed->front()), {{"A", 1024}, {"B", 2048}}, {});
  ASSERT_TRUE(kernel) << kernel.error().format();
  const auto graph = task::build(*kernel);
  ASSERT_TRUE(graph) << graph.error().format();
  const auto cut = partition::propagate(*graph, {});
  ASSERT_TRUE(cut) << cut.error().format();
  const auto assignment = partition::assign(*graph, *cut);
  ASSERT_FALSE(assignment);
  EXPECT_NE(assignment.error().format().find("k.stask:4:3: error: a tile of "), std::string::npos);
  EXPECT_NE(assignment.error().format().find("(a:1024 b:2048) is larger than any block can hold\n  hint: fix smaller"),
            std::string::npos)
      << assignment.error().format();
}

TEST(Partition, TilesPropagateToEveryValue) {
  const auto graph = task::build(attention(512, 64));
  ASSERT_TRUE(graph) << graph.error().format();
  partition::Choice choice;
  choice.row = 128;
  choice.stream = 96;
  choice.lanes = 2;
  const auto cut = partition::propagate(*graph, choice);
  ASSERT_TRUE(cut) << cut.error().format();
  EXPECT_EQ(cut->lanes, 2);
  for (std::size_t v = 0; v < graph->kernel.values.size(); ++v) {
    const std::vector<int> shape = partition::shape(*graph, *cut, kernel::ValueId(v));
    const std::string& name = graph->kernel.values[v].name;
    if (name == "s") {
      EXPECT_EQ(shape, (std::vector<int>{64, 96}));
    } else if (name == "o") {
      EXPECT_EQ(shape, (std::vector<int>{64, 64}));
    } else if (name == "m") {
      EXPECT_EQ(shape, std::vector<int>{64});
    }
  }
}

// The tiles of the axes of these names, where no product fixes them.
std::vector<int> element_tiles(const std::string& body, int element, int stream, const std::vector<std::string>& axes,
                               const std::vector<kernel::Binding>& dims = {}) {
  auto parsed = kernel::parse("kernel k(X: f16[M,N], w: f16[N]) -> " + body, "test.stask");
  EXPECT_TRUE(parsed) << parsed.error().format();
  const auto checked = kernel::check(parsed->front());
  EXPECT_TRUE(checked) << checked.error().format();
  const auto special = kernel::specialise(*checked, dims, {});
  EXPECT_TRUE(special) << special.error().format();
  const auto graph = task::build(*special);
  EXPECT_TRUE(graph) << graph.error().format();
  partition::Choice choice;
  choice.element = element;
  choice.stream = stream;
  const auto cut = partition::propagate(*graph, choice);
  EXPECT_TRUE(cut) << cut.error().format();
  std::vector<int> tiles;
  for (const std::string& name : axes) {
    for (std::size_t a = 0; a < graph->kernel.axes.size(); ++a) {
      if (graph->kernel.axes[a].name == name) tiles.push_back(cut->tile[a]);
    }
  }
  return tiles;
}

// A tile has as many elements as asked for, however many axes the kernel tiles elsewhere: of one row as far as the
// loop's tile goes, then of more rows. Beside another axis, one along memory keeps a line of it.
TEST(Partition, ElementsOfATileAreSharedOut) {
  using Tiles = std::vector<int>;
  const std::string passes = "(Y: f16[M,N]) { parallel m: M; t[m] = max[n: N] X[m,n]; Y[m,n] = f16(X[m,n] - t[m]); }";
  EXPECT_EQ(element_tiles(passes, 4096, 4096, {"n"}), (Tiles{4096, 4096}));
  EXPECT_EQ(element_tiles(passes, 4096, 1024, {"n"}), (Tiles{1024, 1024}));
  EXPECT_EQ(element_tiles(passes, 512, 1024, {"n"}), (Tiles{512, 512}));
  const std::string rows = "(Y: f32[M]) { parallel m: M; Y[m] = sum[n: N] X[m,n] * w[n]; }";
  EXPECT_EQ(element_tiles(rows, 4096, 4096, {"m", "n"}), (Tiles{1, 4096}));
  EXPECT_EQ(element_tiles(rows, 4096, 1024, {"m", "n"}), (Tiles{4, 1024}));
  EXPECT_EQ(element_tiles(rows, 64, 1024, {"m", "n"}), (Tiles{1, 64}));
  const std::string columns = "(Y: f32[N]) { parallel n: N; Y[n] = sum[m: M] X[m,n]; }";
  EXPECT_EQ(element_tiles(columns, 4096, 4096, {"m", "n"}), (Tiles{64, 64}));
  EXPECT_EQ(element_tiles(columns, 4096, 16, {"m", "n"}), (Tiles{16, 256}));
  // A column of known size is streamed as well: a tile of whole columns would not fit.
  EXPECT_EQ(element_tiles(columns, 4096, 4096, {"m", "n"}, {{"M", 4096}}), (Tiles{64, 64}));
}

partition::Assignment assignment_of(const std::string& text) {
  auto parsed = kernel::parse(text, "test.stask");
  EXPECT_TRUE(parsed) << parsed.error().format();
  const auto checked = kernel::check(parsed->front());
  EXPECT_TRUE(checked) << checked.error().format();
  driver::Choices choices;
  choices.partition.row = 64;
  choices.partition.lanes = 1;
  const auto lowered = driver::lower_kernel(*checked, h100(), choices);
  EXPECT_TRUE(lowered) << lowered.error().format();
  return lowered->assignment;
}

// Row sums beside products: in shares where only the end of the loop needs them.
TEST(Layout, SumsThatOnlyTheEndNeedsStayInShares) {
  const std::string head = R"(kernel sums(A: f16[64,256], B: f16[64,256]) -> (Y: f32[64], Z: f32[64]) {
  parallel i: 64;
)";
  const std::string products = R"(  for j: 256 {
    s[i,j] = sum[k: 64] A[i,k] * B[k,j];
)";
  const std::string tail = "  }\n  Y[i] = l[i];\n  Z[i] = m[i];\n}";
  const auto partial = [&](const std::string& start, const std::string& body) {
    return assignment_of(head + "  carry l[i] = " + start + ", m[i] = 0;\n" + products + body + tail).partial.size();
  };
  EXPECT_EQ(partial("0", "l[i] += sum[j] s[i,j]; m[i] = max(m[i], max[j] s[i,j]);\n"), 1U);
  EXPECT_EQ(partial("0", "l[i] = l[i] * 0.5 + sum[j] s[i,j]; m[i] += sum[j] s[i,j] * s[i,j];\n"), 2U);
  EXPECT_EQ(partial("1", "l[i] += sum[j] s[i,j]; m[i] = max(m[i], max[j] s[i,j]);\n"), 0U);   // starts elsewhere
  EXPECT_EQ(partial("0", "l[i] += sum[j] s[i,j]; m[i] = max(m[i], l[i]);\n"), 0U);            // read in the loop
  EXPECT_EQ(partial("0", "l[i] = l[i] * l[i] + sum[j] s[i,j]; m[i] = max(m[i], 1);\n"), 0U);  // not linear
}

// What is loaded outside the loop that a product stands in may stay in registers; what the loop loads may not.
TEST(Layout, OperandsThatALoopReadsAgainMayStayInRegisters) {
  const auto graph = task::build(attention(4096, 128));
  ASSERT_TRUE(graph) << graph.error().format();
  partition::Choice choice;
  choice.row = 128;
  choice.stream = 128;
  for (const bool hold : {false, true}) {
    choice.hold = hold;
    const auto cut = partition::propagate(*graph, choice);
    ASSERT_TRUE(cut) << cut.error().format();
    const auto assignment = partition::assign(*graph, *cut);
    ASSERT_TRUE(assignment) << assignment.error().format();
    for (std::size_t v = 0; v < graph->kernel.values.size(); ++v) {
      const std::string& name = graph->kernel.values[v].name;
      const partition::Place& place = (*assignment)[kernel::ValueId(v)];
      if (name == "q_tile") {
        EXPECT_TRUE(place.staged);
        EXPECT_EQ(place.in_registers, hold);
      }
      if (name == "k_tile" || name == "v_tile") {
        EXPECT_TRUE(place.staged && !place.in_registers) << name;
      }
    }
  }
}

TEST(Schedule, DelayedProductRunsUnderTheNextArithmetic) {
  driver::Choices choices;
  choices.schedule.overlap = schedule::Overlap::delayed;
  const auto lowered = driver::lower_kernel(attention(512, 64), h100(), choices);
  ASSERT_TRUE(lowered) << lowered.error().format();
  const std::string text = schedule::print(lowered->graph, lowered->schedule);
  const auto at = [&](const std::string& what) {
    const std::size_t place = text.find(what);
    EXPECT_NE(place, std::string::npos) << what << " in\n" << text;
    return place;
  };
  // Both products are issued before the row maximum is taken; the second one is the iteration before's.
  EXPECT_LT(at("issue mma s @ tensor_core stage 0"), at("issue mma o @ tensor_core stage 1"));
  EXPECT_LT(at("issue mma o @ tensor_core stage 1"), at("reduce x_max"));
  EXPECT_LT(at("reduce x_max"), at("wait mma o @ tensor_core stage 1"));
  // Its next operand is computed under it, beside the registers that it reads, and moved there when it is over.
  EXPECT_LT(at("prepare map operand"), at("wait mma o @ tensor_core stage 1"));
  EXPECT_LT(at("wait mma o @ tensor_core stage 1"), at("move map operand"));
  EXPECT_NE(program::print(lowered->program).find("mma_wait 0 pin v_tile_ring"), std::string::npos);
}

// What is prepared is what the rest of the iteration reads; a value that is read after the loop is not set aside.
TEST(Schedule, OperandsReadElsewhereAreNotPrepared) {
  auto parsed = kernel::parse(R"(kernel last(A: f16[64,256], B: f16[256,64]) -> (Y: f32[64,64], P: f16[64]) {
  parallel i: 64;
  inner d: 64;
  carry y[i,d] = 0, q[i] = 0;
  for j: 256 {
    p[i,j] = f16(A[i,j] * 0.5);
    y[i,d] = y[i,d] * 0.5;
    y[i,d] += sum[j] p[i,j] * B[j,d];
    q[i] = max(q[i], max[j] f32(p[i,j]));
  }
  Y[i,d] = y[i,d];
  P[i] = f16(q[i]);
})",
                              "test.stask");
  ASSERT_TRUE(parsed) << parsed.error().format();
  const auto checked = kernel::check(parsed->front());
  ASSERT_TRUE(checked) << checked.error().format();
  driver::Choices choices;
  choices.partition.row = 64;
  choices.partition.lanes = 1;
  choices.schedule.overlap = schedule::Overlap::delayed;
  const auto lowered = driver::lower_kernel(*checked, h100(), choices);
  ASSERT_TRUE(lowered) << lowered.error().format();
  EXPECT_TRUE(driver::prove_and_print(lowered->program)) << program::print(lowered->program);
}

// The steps of a body are put in order in quadratic time: some thousands of lines are no special case.
TEST(Schedule, LongBodiesAreOrderedInTime) {
  std::string text = "kernel k(X: f32[512]) -> (Y: f32[512]) {\n  parallel m: 512;\n  x[m] = X[m];\n";
  for (int line = 0; line < 2400; ++line) text += "  x[m] = x[m] * 0.5 + X[m];\n";
  const auto parsed = kernel::parse(text + "  Y[m] = x[m];\n}", "k.stask");
  ASSERT_TRUE(parsed) << parsed.error().format();
  const std::clock_t start = std::clock();
  driver::Choices choices;
  choices.partition.lanes = 1;
  const auto lowered = driver::lower_kernel(*kernel::check(parsed->front()), h100(), choices);
  ASSERT_TRUE(lowered) << lowered.error().format();
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 3);
}

TEST(Schedule, WaitsStandBetweenAProductAndItsReaders) {
  for (const auto overlap : {schedule::Overlap::serial, schedule::Overlap::deferred, schedule::Overlap::delayed}) {
    driver::Choices choices;
    choices.schedule.overlap = overlap;
    const auto lowered = driver::lower_kernel(attention(512, 64), h100(), choices);
    ASSERT_TRUE(lowered) << lowered.error().format();
    EXPECT_TRUE(driver::prove_and_print(lowered->program)) << program::print(lowered->program);
  }
}

TEST(Search, FindsAllThatFitAndIsDeterministic) {
  const auto first = search::rank(attention(4096, 128), h100());
  const auto second = search::rank(attention(4096, 128), h100());
  ASSERT_TRUE(first) << first.error().format();
  ASSERT_GT(first->size(), 10U);
  for (std::size_t i = 0; i < first->size(); ++i) {
    EXPECT_EQ((*first)[i].partition, (*second)[i].partition);
    EXPECT_EQ((*first)[i].schedule, (*second)[i].schedule);
    EXPECT_LE((*first)[i].registers, 255);
    EXPECT_LE((*first)[i].shared_bytes, h100().memory.shared_bytes_per_block);
    if (i > 0) {
      EXPECT_LE((*first)[i - 1].predicted_us, (*first)[i].predicted_us);
    }
  }
}

// Where registers allow it, operands that a loop reads again stay there, in one slot for all work items; else the same
// schedule without.
TEST(Search, HoldsOperandsWhereRegistersAllow) {
  const auto ranked = search::rank(attention(4096, 128), h100());
  ASSERT_TRUE(ranked) << ranked.error().format();
  const search::Candidate& best = ranked->front();
  EXPECT_TRUE(best.partition.hold);
  EXPECT_EQ(best.schedule.outer, 1);
  EXPECT_TRUE(std::ranges::any_of(*ranked, [&](const search::Candidate& c) {
    return !c.partition.hold && c.partition.stream == best.partition.stream && c.partition.row == best.partition.row;
  }));
  const auto wide = search::rank(attention(4096, 256), h100());
  ASSERT_TRUE(wide) << wide.error().format();
  EXPECT_FALSE(wide->front().partition.hold);
}

// Rows that do not stay on chip take the time that memory takes, whether or not their length is known.
TEST(Search, LongRowsAreBoundByMemory) {
  const auto device = *device::load_device(PIPETHREADER_SOURCE_DIR "/devices/h200.toml");
  const auto predicted = [&](const char* name, const std::vector<kernel::Binding>& dims) {
    const auto ranked = search::rank(library(name, dims), device);
    EXPECT_TRUE(ranked) << ranked.error().format();
    return ranked->front().predicted_us;
  };
  for (const char* name : {"softmax", "rms_norm", "layer_norm"}) {
    const double whole = predicted(name, {{"M", 4096}, {"N", 8192}});
    EXPECT_LT(predicted(name, {{"M", 4096}, {"N", 8193}}), 1.5 * whole) << name;
    EXPECT_LT(predicted(name, {{"M", 4096}, {"N", 32768}}), 5 * whole) << name;
    EXPECT_LT(predicted(name, {{"M", 4096}}), 1.3 * predicted(name, {{"M", 4096}, {"N", 4096}})) << name;
  }
}

TEST(Search, DeviceWithoutRoomIsAClearError) {
  device::Device tiny = h100();
  tiny.memory.shared_bytes_per_block = 2048;
  const auto ranked = search::rank(attention(4096, 128), tiny);
  ASSERT_FALSE(ranked);
  EXPECT_NE(ranked.error().format().find("2048"), std::string::npos) << ranked.error().format();
}

// A product that the tensor core cannot take says so: it is not what was asked for of this machine.
TEST(Lower, ProductsOfOtherTypesAreGeneric) {
  for (const char* type : {"f16", "f32", "f8e4m3"}) {
    auto parsed = kernel::parse(fmt::format("kernel k(X: {0}[128,64], W: {0}[128,64]) -> (Y: f32[128,128]) {{\n"
                                            "parallel m: 128, n: 128; Y[m,n] = sum[k: 64] X[m,k] * W[n,k]; }}",
                                            type),
                                "test.stask");
    ASSERT_TRUE(parsed) << parsed.error().format();
    const auto kernel = kernel::check(parsed->front());
    ASSERT_TRUE(kernel) << kernel.error().format();
    const auto lowered = driver::lower_kernel(*kernel, h100(), {});
    ASSERT_TRUE(lowered) << lowered.error().format();
    EXPECT_EQ(lowered->program.generic_reason.find("not both f16 or both bf16") == std::string::npos,
              std::string(type) == "f16")
        << lowered->program.generic_reason;
  }
}

// Nothing rests on how a kernel is spelled: the predicted time and the specialised path stay.
TEST(Search, SpellingDoesNotMatter) {
  const auto predicted = [](const std::string& text) {
    auto parsed = kernel::parse(text, "spelling.stask");
    EXPECT_TRUE(parsed) << parsed.error().format();
    auto checked = kernel::check(parsed->front());
    EXPECT_TRUE(checked) << checked.error().format();
    auto special = kernel::specialise(*checked, {{"B", 4}, {"S", 2048}, {"T", 2048}, {"D", 128}}, {});
    EXPECT_TRUE(special) << special.error().format();
    const auto ranked = search::rank(*special, h100());
    EXPECT_TRUE(ranked) << ranked.error().format();
    driver::Choices choices{1, ranked->front().walk, ranked->front().partition, ranked->front().schedule};
    const auto lowered = driver::lower_kernel(*special, h100(), choices);
    EXPECT_TRUE(lowered && lowered->program.generic_reason.empty());
    return ranked->front().predicted_us;
  };
  const double written = predicted(R"(
kernel chain(Q: f16[B,S,D], K: f16[B,T,D], V: f16[B,T,D]) -> (O: f16[B,S,D]) {
  parallel b: B, i: S;  inner d: D;
  carry m[i] = -inf, l[i] = 0, o[i,d] = 0;
  for j: T {
    s[i,j] = sum[k: D] Q[b,i,k] * K[b,j,k];
    n[i] = max(m[i], max[j] s[i,j]);
    a[i] = exp2(m[i] - n[i]);
    p[i,j] = f16(exp2(s[i,j] - n[i]));
    l[i] = l[i] * a[i] + sum[j] p[i,j];
    o[i,d] = o[i,d] * a[i];
    o[i,d] += sum[j] p[i,j] * V[b,j,d];
    m[i] = n[i];
  }
  O[b,i,d] = f16(o[i,d] / l[i]);
})");
  // Renamed, parallel axes and operands exchanged, independent statements reordered, one statement split.
  const double respelled = predicted(R"(
kernel other(Alpha: f16[B,S,D], Beta: f16[B,T,D], Gamma: f16[B,T,D]) -> (Delta: f16[B,S,D]) {
  parallel row: S, batch: B;  inner e: D;
  carry acc[row,e] = 0, total[row] = 0, top[row] = -inf;
  for col: T {
    w[row,col] = sum[z: D] Beta[batch,col,z] * Alpha[batch,row,z];
    best[row] = max[col] w[row,col];
    next[row] = max(best[row], top[row]);
    q[row,col] = f16(exp2(w[row,col] - next[row]));
    shrink[row] = exp2(top[row] - next[row]);
    acc[row,e] = acc[row,e] * shrink[row];
    acc[row,e] += sum[col] q[row,col] * Gamma[batch,col,e];
    total[row] = total[row] * shrink[row] + sum[col] q[row,col];
    top[row] = next[row];
  }
  Delta[batch,row,e] = f16(acc[row,e] / total[row]);
})");
  EXPECT_NEAR(respelled, written, 0.02 * written);
}

}  // namespace
}  // namespace pipethreader
