#include "support/instruction_programs.h"

#include <fmt/format.h>

#include <cmath>
#include <random>
#include <tuple>

namespace pipethreader::test {
namespace {

using Programs = std::vector<InstructionProgram>;

// --- products ------------------------------------------------------------------------------------------------------

struct Product {
  std::string name;
  std::string type = "f16";
  int swizzle = 128;
  int cols = 64;
  int depth = 64;
  bool transposed_a = false;
  bool transposed_b = false;
  bool registers = false;
  int instances = 1;
};

std::string product_text(const Product& p) {
  const int rows = 64 * p.instances;
  const int ar = p.transposed_a ? p.depth : rows, ac = p.transposed_a ? rows : p.depth;
  const int br = p.transposed_b ? p.depth : p.cols, bc = p.transposed_b ? p.cols : p.depth;
  const std::string a =
      p.registers ? "registers af" : fmt::format("a{} origin instance * 64", p.transposed_a ? " transposed" : "");
  return fmt::format(
      R"(program {name}

blocks_per_unit 1
tensor A: {type}[{ar}, {ac}]
tensor B: {type}[{br}, {bc}]
output C: f32[{rows}, {cols}]
tensor_map A_map: A swizzle {swizzle} {{
  extent {ac} stride 1 box {ac}
  extent {ar} stride {ac} box {ar}
}}
tensor_map B_map: B swizzle {swizzle} {{
  extent {bc} stride 1 box {bc}
  extent {br} stride {bc} box {br}
}}
ring AB: depth 1 full 1 empty {instances} bytes {bytes}
buffer a: {type}[{ar}, {ac}] slots 1 swizzle {swizzle} ring AB
buffer b: {type}[{br}, {bc}] slots 1 swizzle {swizzle} ring AB
var item
layout tile = accumulator [64, {cols}]
layout a_tile = accumulator [64, {depth}]
fragment acc: f32 on tile of consumer
fragment af: {type} on a_tile of consumer

role producer: copier instances 1{few} {{
  for_work item in 1 single {{
    acquire AB
    copy_bulk a = A_map[0, 0]
    copy_bulk b = B_map[0, 0]
    advance AB
  }}
}}

role consumer: computer instances {instances}{many} {{
  for_work item in 1 single {{
    wait AB
    {load}
    mma acc += {a}, b{tb}, depth {depth}, accumulate false
    mma acc += {a}, b{tb}, depth {depth}, accumulate item == 0
    mma_commit
    mma_wait 0
    release AB
    advance AB
    store_global C[instance * 64 + c0, c1] from acc
  }}
}}
)",
      fmt::arg("name", p.name), fmt::arg("type", p.type), fmt::arg("ar", ar), fmt::arg("ac", ac), fmt::arg("br", br),
      fmt::arg("bc", bc), fmt::arg("rows", rows), fmt::arg("cols", p.cols), fmt::arg("swizzle", p.swizzle),
      fmt::arg("instances", p.instances), fmt::arg("bytes", 2 * (ar * ac + br * bc)), fmt::arg("depth", p.depth),
      fmt::arg("a", a), fmt::arg("tb", p.transposed_b ? " transposed" : ""),
      fmt::arg("few", p.instances > 1 ? " registers 40" : ""),
      fmt::arg("many", p.instances > 1 ? " registers 232" : ""),
      fmt::arg("load", p.registers ? "load_shared af = a [instance * 64 + c0, c1]" : ""));
}

void add_products(Programs& programs) {
  const Product all[] = {
      {.name = "mma_128"},
      {.name = "mma_64", .swizzle = 64},
      {.name = "mma_32", .swizzle = 32, .depth = 32},
      {.name = "mma_bf16", .type = "bf16", .cols = 24},
      {.name = "mma_narrow", .cols = 8, .depth = 16, .instances = 1},
      {.name = "mma_boxes", .cols = 256, .depth = 128, .instances = 2},
      {.name = "mma_boxes_64", .swizzle = 64, .cols = 96, .depth = 128},
      {.name = "mma_a_transposed", .transposed_a = true, .instances = 2},
      {.name = "mma_a_transposed_64", .swizzle = 64, .depth = 32, .transposed_a = true, .instances = 2},
      {.name = "mma_a_transposed_32", .swizzle = 32, .depth = 48, .transposed_a = true},
      {.name = "mma_b_transposed", .cols = 192, .depth = 48, .transposed_b = true},
      {.name = "mma_b_transposed_64", .swizzle = 64, .cols = 96, .transposed_b = true},
      {.name = "mma_b_transposed_32", .swizzle = 32, .cols = 48, .transposed_b = true},
      {.name = "mma_both_transposed", .type = "bf16", .cols = 128, .transposed_a = true, .transposed_b = true},
      {.name = "mma_registers", .cols = 64, .registers = true, .instances = 2},
      {.name = "mma_registers_transposed",
       .type = "bf16",
       .cols = 128,
       .depth = 128,
       .transposed_b = true,
       .registers = true},
  };
  for (Product p : all) {
    if (p.swizzle == 128 && p.depth % 64 != 0 && !p.transposed_a && !p.transposed_b)
      p.swizzle = p.depth % 32 == 0 ? 64 : 32;
    if (p.name == "mma_b_transposed") p.swizzle = 32;  // a K-major A of 48 columns has whole spans of 16 only
    programs.push_back({p.name, product_text(p), {}});
  }
}

// --- shared memory -------------------------------------------------------------------------------------------------

// X to shared memory in one layout and back in another, through [row, col] indices.
void add_shared(Programs& programs) {
  struct Case {
    std::string name, type;
    int swizzle;
    std::string from, to;     // layouts
    std::string write, read;  // indices
  };
  const Case all[] = {
      {"shared_matrices", "f16", 128, "accumulator [64, 64]", "accumulator [64, 64]", "c0, c1", "c0, c1"},
      {"shared_matrices_transposed", "f16", 128, "accumulator [64, 64]", "accumulator [64, 64]", "c1, c0", "c0, c1"},
      {"shared_matrices_read_transposed", "bf16", 64, "accumulator [64, 64]", "accumulator [64, 64]", "c0, c1",
       "c1, c0"},
      {"shared_matrices_32", "f16", 32, "accumulator [64, 64]", "blocked [64, 64] 8", "c0, c1", "c0, c1"},
      {"shared_matrices_plain", "f16", 0, "blocked [64, 64] 8", "accumulator [64, 64]", "c0, c1", "c1, c0"},
      {"shared_blocked", "f16", 128, "blocked [64, 64] 8", "blocked [64, 64] 2", "c0, c1", "c0, c1"},
      {"shared_blocked_transposed", "f16", 64, "blocked [64, 64] 8", "blocked [64, 64] 4", "c1, c0", "c0, c1"},
      {"shared_f32", "f32", 0, "accumulator [64, 64]", "blocked [64, 64] 4", "c0, c1", "c0, c1"},
      {"shared_f32_swizzled", "f32", 128, "blocked [64, 64] 4", "accumulator [64, 64]", "c0, c1", "c1, c0"},
      {"shared_rotated", "f16", 0, "blocked [64, 64] 8", "blocked [64, 64] 8", "(c0 + 3) % 64, c1",
       "(c0 + 5) % 64, (c1 + 7) % 64"},
      {"shared_i8", "i8", 0, "blocked [64, 64] 8", "blocked [64, 64] 4", "c0, c1", "c0, c1"},
  };
  for (const Case& c : all)
    programs.push_back(
        {c.name,
         fmt::format(R"(program {}

blocks_per_unit 2
tensor X: {}[64, 64]
output Y: {}[64, 64]
buffer tile: {}[64, 64] swizzle {}
barrier written: participants 1
var item
layout before = {}
layout after = {}
fragment x: {} on before of worker
fragment y: {} on after of worker

role worker: computer instances 1 {{
  for_work item in 1 single {{
    load_global x = X[c0, c1]
    store_shared tile [{}] = x
    barrier_sync written
    load_shared y = tile [{}]
    store_global Y[c0, c1] from y
  }}
}}
)",
                     c.name, c.type, c.type, c.type, c.swizzle, c.from, c.to, c.type, c.type, c.write, c.read),
         {}});
}

// --- reductions ----------------------------------------------------------------------------------------------------

void add_reductions(Programs& programs) {
  struct Case {
    std::string name, type, tile, kept, op, target, extra;  // target: shape of the output
    std::string indices;
    int scratch;
  };
  const Case all[] = {
      {"reduce_rows", "f32", "accumulator [64, 64]", "0", "sum(x[c0, c1])", "64", "", "c0", 0},
      {"reduce_rows_max", "f32", "accumulator [64, 64]", "0", "max(x[c0, c1] * scale)", "64", " accumulate", "c0", 0},
      {"reduce_cols", "f32", "accumulator [64, 64]", "1", "sum(x[c0, c1] * 2.0)", "64", "", "c0", 256},
      {"reduce_cols_min", "f32", "blocked [64, 64] 4", "1", "min(x[c0, c1])", "64", " accumulate", "c0", 256},
      {"reduce_all", "f32", "blocked [64, 64] 4", "", "max(x[c0, c1])", "", "", "", 4},
      {"reduce_integers", "i32", "blocked [64, 64] 2", "0", "max(x[c0, c1])", "64", "", "c0", 0},
      {"reduce_integer_sums", "i32", "blocked [64, 64] 2", "1", "sum(x[c0, c1])", "64", "", "c0", 256},
      {"reduce_residual", "f32", "accumulator [64, 64]", "0", "sum(x[c0, c1])", "64, 4", " residual 2 x 4 accumulate",
       "c0, c1", 0},
  };
  for (const Case& c : all) {
    const bool residual = c.extra.find("residual") != std::string::npos;
    const std::string layout =
        residual ? "[64, 4] reg(2:c0*8) lane(4:c1*1 8:c0*1) warp(4:c0*16)" : fmt::format("slice tile [{}]", c.kept);
    programs.push_back(
        {c.name,
         fmt::format(R"(program {name}

blocks_per_unit 2
param scale: f32
tensor X: {type}[64, 64]
output Y: {type}[{target}]
{scratch}
var item
layout tile = {tile}
layout kept = {layout}
fragment x: {type} on tile of worker
fragment r: {type} on kept of worker

role worker: computer instances 1 {{
  for_work item in 1 single {{
    load_global x = X[c0, c1]
    map r = {one}
    reduce r = {op} on tile keep [{kept}]{extra}{through}
    store_global Y[{indices}] from r
  }}
}}
)",
                     fmt::arg("name", c.name), fmt::arg("type", c.type), fmt::arg("target", c.target),
                     fmt::arg("scratch", c.scratch > 0 ? fmt::format("buffer scratch: f32[4, {}]", c.scratch / 4) : ""),
                     fmt::arg("tile", c.tile), fmt::arg("layout", layout), fmt::arg("kept", c.kept),
                     fmt::arg("op", c.op), fmt::arg("extra", c.extra),
                     fmt::arg("through", c.scratch > 0 ? " through scratch" : ""), fmt::arg("indices", c.indices),
                     fmt::arg("one", c.type == "f32" ? "1.0" : "1")),
         {-2}});
  }
}

// Of four warps some have a row that decides, some have not.
void add_late_joins(Programs& programs) {
  programs.push_back({"reduce_late",
                      R"(program reduce_late

blocks_per_unit 2
param scale: f32
tensor X: f32[64, 64]
tensor M: f32[64]
output Y: f32[64]
var item
layout tile = accumulator [64, 64]
layout kept = slice tile [0]
fragment x: f32 on tile of worker
fragment m: f32 on kept of worker
fragment most: f32 on kept of worker
fragment grown: f32 on kept of worker
fragment n: f32 on kept of worker

role worker: computer instances 1 {
  for_work item in 1 single {
    load_global x = X[c0, c1]
    load_global m = M[c0]
    reduce most = max(x[c0, c1] * scale) on tile keep [0]
    map grown = max(most[c0], m[c0])
    map n = select(grown[c0] - m[c0] > 2.8, grown[c0], m[c0])
    store_global Y[c0] from n
  }
}
)",
                      {-2}});
}

// --- moves between layouts -----------------------------------------------------------------------------------------

void add_relayouts(Programs& programs) {
  struct Case {
    std::string name, type, shape, from, to;
    std::string scratch;
  };
  const Case all[] = {
      {"relayout_f16", "f16", "64, 128", "accumulator [64, 128]", "blocked [64, 128] 8", "f16[64, 128]"},
      {"relayout_f32", "f32", "64, 64", "accumulator [64, 64]", "blocked [64, 64] 4", "f32[64, 64]"},
      {"relayout_back", "f16", "64, 64", "blocked [64, 64] 8", "accumulator [64, 64]", "f16[64, 64]"},
      {"relayout_narrow", "f32", "64, 24", "accumulator [64, 24]", "blocked [64, 24] 4", "f32[64, 24]"},
      {"relayout_shuffles", "f32", "8, 32", "[8, 32] reg(2:c1*1) lane(16:c1*2 2:c0*1) warp(4:c0*2)",
       "[8, 32] reg(2:c0*1) lane(32:c1*1) warp(4:c0*2)", ""},
      {"relayout_shuffles_f16", "f16", "8, 32", "[8, 32] reg(2:c1*1) lane(16:c1*2 2:c0*1) warp(4:c0*2)",
       "[8, 32] reg(2:c0*1) lane(32:c1*1) warp(4:c0*2)", ""},
  };
  for (const Case& c : all)
    programs.push_back(
        {c.name,
         fmt::format(R"(program {}

blocks_per_unit 2
tensor X: {}[{}]
output Y: {}[{}]
{}
var item
layout before = {}
layout after = {}
fragment x: {} on before of worker
fragment y: {} on after of worker

role worker: computer instances 1 {{
  for_work item in 1 single {{
    load_global x = X[c0, c1]
    relayout y = x{}
    store_global Y[c0, c1] from y
  }}
}}
)",
                     c.name, c.type, c.shape, c.type, c.shape, c.scratch.empty() ? "" : "buffer scratch: " + c.scratch,
                     c.from, c.to, c.type, c.type, c.scratch.empty() ? "" : " through scratch"),
         {}});
}

// --- values --------------------------------------------------------------------------------------------------------

// Y[f, i] = f-th expression of x = X[i].
InstructionProgram values_program(const std::string& name, const std::string& from, const std::string& to,
                                  const std::vector<std::string>& expressions) {
  std::string body;
  for (std::size_t f = 0; f < expressions.size(); ++f)
    body += fmt::format("    map y = {}\n    store_global Y[{}, c0] from y\n", expressions[f], f);
  return {name,
          fmt::format(R"(program {}

blocks_per_unit 2
tensor X: {}[256]
output Y: {}[{}, 256]
var item
layout line = blocked [256] 2
fragment x: {} on line of worker
fragment y: {} on line of worker

role worker: computer instances 1 {{
  for_work item in 1 single {{
    load_global x = X[c0]
{}  }}
}}
)",
                      name, from, to, expressions.size(), from, to, body),
          {}};
}

void add_values(Programs& programs) {
  programs.push_back(
      values_program("map_f32", "f32", "f32",
                     {"x[c0] * 2.0 + 1.0", "-x[c0] - 0.5", "min(x[c0], 1.0)", "max(x[c0], -1.0)", "abs(x[c0])",
                      "floor(x[c0] * 0.5)", "select(x[c0] > 0.0 && c0 % 3 != 1, x[c0], 7.0)",
                      "select(!(x[c0] == 1.0) || c0 < 9, f32(c0), -inf)", "f32(c0 * 3 - 5)"}));
  programs.push_back(values_program(
      "map_functions", "f32", "f32",
      {"exp(x[c0])", "exp2(x[c0])", "log(x[c0])", "log2(x[c0])", "sqrt(x[c0])", "rsqrt(x[c0])", "tanh(x[c0])",
       "sigmoid(x[c0])", "erf(x[c0])", "sin(x[c0])", "cos(x[c0])", "x[c0] / (x[c0] + 1.0)", "1.0 / x[c0]"}));
  programs.back().wide_inputs = true;
  programs.back().ulps = 16;
  programs.push_back(
      values_program("map_f16", "f16", "f16",
                     {"x[c0] * 2.0_f16 + 1.0_f16", "-x[c0] - 0.5_f16", "min(x[c0], 1.0_f16)", "max(x[c0], -1.0_f16)",
                      "abs(x[c0])", "select(x[c0] > 0.0_f16, x[c0], 3.0_f16)", "f16(f32(x[c0]) * 0.25)", "f16(c0)"}));
  programs.push_back(values_program("map_bf16", "bf16", "bf16",
                                    {"x[c0] * 2.0_bf16 + 1.0_bf16", "-x[c0]", "min(x[c0], 1.0_bf16)", "abs(x[c0])",
                                     "bf16(f32(x[c0]) * 0.25)", "x[c0] * x[c0] - x[c0]"}));
  programs.push_back(
      values_program("map_integers", "i32", "i32",
                     {"x[c0] / 3", "x[c0] % 3", "x[c0] / -3", "x[c0] % -3", "(x[c0] * 5 - 7) / 2", "c0 / 7 + c0 % 7",
                      "min(x[c0], 2)", "max(x[c0], -2)", "abs(x[c0])", "select(x[c0] < 0, -1, 1)"}));
  programs.push_back(values_program("map_to_integers", "f32", "i32", {"i32(x[c0] * 0.75)", "i32(x[c0] * 1e10)"}));
  programs.push_back(values_program("map_to_i8", "f32", "i8", {"i8(x[c0] * 50.0)", "i8(x[c0])"}));
  programs.push_back(values_program("map_to_u8", "f32", "u8", {"u8(x[c0] * 100.0)", "u8(x[c0])"}));
  programs.push_back(values_program("map_from_i8", "i8", "f32", {"f32(x[c0]) * 0.5", "f32(x[c0])"}));
  programs.push_back(values_program("map_to_f8", "f32", "f8e4m3", {"f8e4m3(x[c0] * 1.5)", "f8e4m3(x[c0] * 1000.0)"}));
  programs.push_back(values_program("map_from_f8", "f8e4m3", "f32", {"f32(x[c0])"}));
}

// --- global memory, loops, conditions ------------------------------------------------------------------------------

void add_global(Programs& programs) {
  for (const auto& [name, layout, type, cols] : {std::tuple{"global_quads", "accumulator [64, 64]", "f16", 88},
                                                 {"global_pairs", "accumulator [64, 64]", "f32", 90},
                                                 {"global_vectors", "blocked [64, 64] 8", "f16", 88},
                                                 {"global_ragged", "blocked [64, 64] 8", "f16", 83},
                                                 {"global_f32_vectors", "blocked [64, 64] 4", "f32", 84},
                                                 {"global_bytes", "blocked [64, 64] 8", "i8", 88}})
    programs.push_back({name,
                        fmt::format(R"(program {}

blocks_per_unit 2
dim M: i32
tensor X: {}[M, {}]
output Y: {}[M, {}]
var item, row, col
layout tile = {}
fragment x: {} on tile of worker

role worker: computer instances 2 {{
  for_work item in (M + 127) / 128 * 2 persistent {{
    let row = item / 2 * 128 + instance * 64
    let col = item % 2 * 64
    load_global x = X[row + c0, col + c1] where row + c0 < M && col + c1 < {}
    store_global Y[row + c0, col + c1] where row + c0 < M && col + c1 < {} from x
  }}
}}
)",
                                    name, type, cols, type, cols, layout, type, cols, cols),
                        {200}});
  programs.push_back({"global_guarded_by_data",
                      R"(program global_guarded_by_data

blocks_per_unit 2
dim M: i32
tensor X: f16[M, 88]
tensor Len: i32[M]
output Y: f16[M, 88]
var item, row
layout tile = accumulator [64, 64]
layout rows = slice tile [0]
fragment x: f16 on tile of worker
fragment len: i32 on rows of worker

role worker: computer instances 1 {
  for_work item in (M + 63) / 64 persistent {
    let row = item * 64
    load_global x = X[row + c0, c1] where row + c0 < M
    load_global len = Len[row + c0] where row + c0 < M
    store_global Y[row + c0, c1] where row + c0 < M && c1 < len[c0] * 8 && x[c0, c1] > 0.0_f16 from x
    store_global Y[row + c0, c1 + 24] where row + c0 < M && c1 >= 40 from x
  }
}
)",
                      {100}});
  programs.push_back({"control",
                      R"(program control

blocks_per_unit 2
dim M: i32
output Y: f32[M, 64]
var item, i, k, n
layout line = blocked [64] 1
fragment y: f32 on line of worker

role worker: computer instances 1 {
  for_work item in M persistent {
    map y = 0.0
    let n = item * 3 % 5
    for i = n .. -1 step -1 {
      if i % 2 == 0 {
        map y = y[c0] + f32(i * c0)
      } else {
        for k = 0 .. 7 step 3 {
          map y = y[c0] * 2.0 - f32(k)
        }
      }
      if_any y[c0] > 100.0 on line {
        map y = select(y[c0] > 100.0, y[c0] - 100.0, y[c0])
      }
    }
    store_global Y[item, c0] from y
  }
}
)",
                      {17}});
}

// --- rings ---------------------------------------------------------------------------------------------------------

void add_rings(Programs& programs) {
  // Who brings the tiles: the copy engine (also to both blocks of a cluster), or threads.
  struct Case {
    std::string name, order, declarations, ring, load;
    int cluster;
  };
  const std::string map =
      "tensor_map X_map: X swizzle 128 {\n  extent 128 stride 1 box 128\n  extent M stride 128 box 64\n}";
  const std::string half =
      "tensor_map X_map: X swizzle 128 {\n  extent 128 stride 1 box 128\n  extent M stride 128 box 32\n}";
  const Case all[] = {
      {"ring_bulk", "persistent", map, "full 1 empty 2 bytes 16384", "copy_bulk x = X_map[0, row]", 1},
      {"ring_bulk_dynamic", "dynamic", map, "full 1 empty 2 bytes 16384", "copy_bulk x = X_map[0, row]", 1},
      {"ring_bulk_cluster", "dynamic", map, "full 1 empty 2 bytes 16384", "copy_bulk x = X_map[0, row]", 2},
      {"ring_multicast", "persistent", half, "full 1 empty 4 bytes 16384 multicast",
       "copy_bulk x = X_map[0, row + cluster_rank * 32]", 2},
      {"ring_plain", "dynamic", "", "full 1 empty 2",
       "copy_plain x = X[row + c0, c1] where row + c0 < M\n      commit X", 1},
      {"ring_plain_cluster", "dynamic", "", "full 1 empty 2",
       "copy_plain x = X[row + c0, c1] where row + c0 < M\n      commit X", 2},
  };
  for (const Case& c : all) {
    const bool multicast = c.ring.find("multicast") != std::string::npos;
    const int rows = multicast || c.cluster == 1 ? 64 : 128;  // of an item
    const std::string row = rows == 64 ? "item * 64" : "item * 128 + cluster_rank * 64";
    const std::string end = c.cluster > 1 ? "\n  cluster_sync" : "";
    // Each slot is read twice: as the newest, and once more behind the one that follows.
    programs.push_back(
        {c.name,
         fmt::format(R"(program {name}

cluster {cluster}
blocks_per_unit 1
dim M: i32
tensor X: f16[M, 128]
output Y: f16[{blocks}, M, 128]
{declarations}
ring X: depth 3 {ring}
buffer x: f16[64, 128] slots 3 swizzle 128 ring X
var item, row, first, n
layout tile = blocked [32, 128] 8
fragment y: f16 on tile of worker
fragment z: f16 on tile of worker

role producer: copier instances 1 registers {few} {{
  for_work item in (M + {over}) / {rows} {order} {{
    let row = {row}
    for n = 0 .. item % 3 + 1 {{
      acquire X
      {load}
      advance X
    }}
  }}{end}
}}

role worker: computer instances 2 registers {many} {{
  for_work item in (M + {over}) / {rows} {order} {{
    let row = {row}
    map z = 0.0_f16
    for n = 0 .. item % 3 + 1 {{
      wait X
      load_shared y = x [instance * 32 + c0, c1]
      map z = z[c0, c1] + y[c0, c1]
      if n > 0 {{
        wait X lag 1
        load_shared y = x lag 1 [instance * 32 + c0, c1]
        map z = z[c0, c1] + y[c0, c1]
        release X lag 1
      }}
      advance X
    }}
    release X lag 1
    store_global Y[{plane}, row + instance * 32 + c0, c1] where row + instance * 32 + c0 < M from z
  }}{end}
}}
)",
                     fmt::arg("name", c.name), fmt::arg("cluster", c.cluster), fmt::arg("blocks", multicast ? 2 : 1),
                     fmt::arg("declarations", c.declarations), fmt::arg("ring", c.ring), fmt::arg("over", rows - 1),
                     fmt::arg("rows", rows), fmt::arg("order", c.order), fmt::arg("row", row), fmt::arg("load", c.load),
                     fmt::arg("end", end), fmt::arg("few", c.declarations.empty() ? 96 : 40),
                     fmt::arg("many", c.declarations.empty() ? 200 : 232),
                     fmt::arg("plane", multicast ? "cluster_rank" : "0")),
         {500}});
  }

  // Loads, arithmetic and stores by three roles; the output leaves through a ring that threads fill and a copier
  // drains.
  programs.push_back({"ring_output",
                      R"(program ring_output

blocks_per_unit 1
dim M: i32
tensor X: f16[3, M, 128]
output Y: f16[3, M, 128]
tensor_map X_map: X swizzle 64 {
  extent 128 stride 1 box 128
  extent M stride 128 box 16
  extent 3 stride M * 128 box 3
}
tensor_map Y_map: Y swizzle 128 {
  extent 128 stride 1 box 128
  extent M stride 128 box 16
  extent 3 stride M * 128 box 3
}
ring X: depth 2 full 1 empty 1 bytes 12288
ring Y: depth 2 full 1 empty 1
buffer x: f16[48, 128] slots 2 swizzle 64 ring X
buffer y: f16[48, 128] slots 2 swizzle 128 ring Y
var item
layout tile = blocked [48, 128] 8
fragment v: f16 on tile of worker

role loader: copier instances 1 registers 24 {
  for_work item in (M + 15) / 16 persistent {
    acquire X
    copy_bulk x = X_map[0, item * 16, 0]
    advance X
  }
}

role storer: copier instances 1 registers 24 {
  for_work item in (M + 15) / 16 persistent {
    wait Y
    bulk_store Y_map[0, item * 16, 0] = y at 0
    bulk_store_wait 0
    release Y
    advance Y
  }
}

role worker: computer instances 1 registers 240 {
  for_work item in (M + 15) / 16 persistent {
    wait X
    load_shared v = x [c0, c1]
    release X
    advance X
    map v = v[c0, c1] * 2.0_f16
    acquire Y
    store_shared y [c0, c1] = v
    commit Y
    advance Y
  }
}
)",
                      {133}});
}

}  // namespace

std::vector<InstructionProgram> instruction_programs() {
  Programs programs;
  add_products(programs);
  add_shared(programs);
  add_reductions(programs);
  add_late_joins(programs);
  add_relayouts(programs);
  add_values(programs);
  add_global(programs);
  add_rings(programs);
  return programs;
}

interpret::Arguments instruction_arguments(const program::Program& program, const InstructionProgram& instruction,
                                           std::uint64_t seed) {
  interpret::Arguments arguments;
  arguments.params = instruction.params;
  std::mt19937_64 random(seed + 1);
  for (const program::Tensor& tensor : program.tensors) {
    std::vector<double> values;
    std::int64_t count = 1;
    for (const auto extent : tensor.shape) count *= program::evaluate(program, extent, arguments.params);
    if (tensor.output) count = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const double whole = static_cast<double>(random() % 9) - 4;
      const double wide = 0.125 + static_cast<double>(random() % 10000) * (3.875 / 10000);
      values.push_back(round_to(tensor.type, instruction.wide_inputs ? wide : whole));
    }
    arguments.tensors.push_back(std::move(values));
  }
  return arguments;
}

bool agree(ScalarType type, double found, double expected, int ulps) {
  if (std::isnan(expected)) return std::isnan(found);
  if (found == expected) return true;
  return std::fabs(found - expected) <= ulps * 2 * unit_roundoff(type) * std::fabs(expected);
}

}  // namespace pipethreader::test
