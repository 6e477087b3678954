#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "program/expr_builder.h"
#include "program/program.h"
#include "program/walk.h"
#include "support/programs.h"

namespace pipethreader::program {
namespace {

// A program that breaks one rule: an example with one piece of its text exchanged, or changed after parsing.
struct Broken {
  std::string rule;
  std::string example;
  std::string from;  // the first occurrence becomes `to`
  std::string to;
  std::function<void(Program&)> change = {};
};

template <class Op>
Op& first(Program& program) {
  Op* found = nullptr;
  for_each_instr(program, [&](RoleId, Instr& instr, const Path&) {
    if (found == nullptr) found = std::get_if<Op>(&instr.op);
  });
  if (found == nullptr) throw std::logic_error("the example has no such instruction");
  return *found;
}

const std::vector<Broken>& broken_programs() {
  static const std::vector<Broken> all = {
      {"known_ids", "matmul", "", "", [](Program& p) { p.maps[0].tensor = TensorId{}; }},
      {"known_ids", "matmul", "", "", [](Program& p) { first<RingAcquire>(p).ring = RingId(std::size_t{7}); }},
      {"known_ids", "matmul", "", "", [](Program& p) { first<Mma>(p).b.buffer.buffer = BufferId{}; }},
      {"known_ids", "matmul", "", "", [](Program& p) { first<Mma>(p).accumulator = FragmentId{}; }},
      {"known_ids", "matmul", "", "", [](Program& p) { first<CopyBulk>(p).target.buffer = BufferId{}; }},
      {"known_ids", "matmul", "", "", [](Program& p) { first<StoreGlobal>(p).target.tensor = TensorId{}; }},
      {"known_ids", "matmul", "", "", [](Program& p) { first<Let>(p).value = ExprId(p.exprs.size()); }},
      {"known_ids", "matmul", "", "", [](Program& p) { first<Map>(p).target = FragmentId(p.fragments.size()); }},
      {"known_ids", "turns", "", "", [](Program& p) { first<Relayout>(p).scratch = BufferId(p.buffers.size()); }},
      {"known_ids", "turns", "", "", [](Program& p) { first<MmaWait>(p).pin->ring = RingId{}; }},
      {"known_ids", "turns", "", "", [](Program& p) { first<BarrierSync>(p).barrier = BarrierId{}; }},
      {"expression_order", "matmul", "", "",
       [](Program& p) {
         for (std::size_t i = 0; i < p.exprs.size(); ++i)
           if (!p.exprs[i].args.empty()) p.exprs[i].args[0] = ExprId(i);
       }},
      {"expression_operands", "matmul", "", "",
       [](Program& p) {
         for (Expr& e : p.exprs)
           if (e.kind == Expr::Kind::call) e.args.resize(1);
       }},
      {"expression_type", "matmul", "", "",
       [](Program& p) {
         for (Expr& e : p.exprs)
           if (e.kind == Expr::Kind::call) e.type = ScalarType::f32;
       }},
      {"positive", "matmul", "depth 3", "depth 0"},
      {"positive", "matmul", "a: f16[128, 64]", "a: f16[0, 64]"},
      {"positive", "matmul", "box 128", "box 0"},
      {"positive", "matmul", "blocks_per_unit 1", "blocks_per_unit 0"},
      {"positive", "matmul", "consumer: computer instances 2", "consumer: computer instances 0"},
      {"positive", "turns", "participants 2", "participants 0"},
      {"positive", "matmul", "mma_wait 1", "mma_wait -1"},
      {"positive", "bulk_epilogue", "bulk_store_wait 0", "bulk_store_wait -1"},
      {"host_expression", "matmul", "A: f16[M, K]", "A: f16[M, instance]"},
      {"host_expression", "matmul", "stride K", "stride K + cluster_rank"},
      {"host_expression", "matmul", "require K % 8 == 0", "require instance == 0"},
      {"uniform_expression", "matmul", "for k = 0 .. (K + 63) / 64", "for k = 0 .. c0"},
      {"uniform_expression", "matmul", "A_map[k * 64, row]", "A_map[c0, row]"},
      {"uniform_expression", "matmul", "origin instance * 64", "origin c0"},
      {"uniform_expression", "matmul", "if (K + 63) / 64 > 0", "if c0 > 0"},
      {"uniform_expression", "bulk_epilogue", "tile at 0", "tile at c0"},
      {"uniform_expression", "turns", "barrier_sync turn[instance]", "barrier_sync turn[c0]"},
      {"uniform_expression", "scale_tile", "X[row + c0, ", "X[row + i32(x[c0, c1]), "},
      {"integer_expression", "scale_tile", "X[row + c0, ", "X[f32(row + c0), "},
      {"integer_expression", "matmul", "for k = 0 ..", "for k = 0.5 .."},
      {"boolean_expression", "scale_tile", "where row + c0 < M && col + c1 < N", "where row + c0"},
      {"boolean_expression", "matmul", "if (K + 63) / 64 > 0", "if (K + 63) / 64"},
      {"boolean_expression", "matmul", "accumulate false", "accumulate 0"},
      {"boolean_expression", "turns", "if_any acc[c0, c1] < 0.0", "if_any acc[c0, c1]"},
      {"coordinate", "scale_tile", "X[row + c0, col + c1]", "X[row + c0, col + c2]"},
      {"coordinate", "scale_tile", "f32(x[c0, c1])", "f32(c2)"},
      {"coordinate", "scale_tile", "f32(x[c0, c1])", "f32(x[c0])"},
      {"coordinate", "scale_tile", "f32(x[c0, c1])", "f32(x[c0, c3])"},
      {"layout", "matmul", "", "", [](Program& p) { p.fragments[0].layout.digits.pop_back(); }},
      {"layout", "attention", "", "", [](Program& p) { first<Reduce>(p).domain.shape[0] = 32; }},
      {"operand_layout", "turns", "map acc = max(acc[c0, c1], 0.0)", "map acc = f32(out[c0, c1])"},
      {"operand_layout", "attention", "m[c0]", "m[c1]"},
      {"operand_layout", "turns", "where row + c0 < M", "where acc[c0, c1] > 0.0 && row + c0 < M"},
      {"uniform_expression", "scale_tile", "where row + c0 < M", "where x[c0, c1] > 0.0_f16 && row + c0 < M"},
      {"operand_layout", "scale_tile", "fragment y: f16 on tile",
       "layout wide = blocked [32, 128] 8\nfragment y: f16 on wide"},
      {"fragment_role", "matmul", "", "",
       [](Program& p) {
         p.roles.push_back(p.roles[1]);
         p.roles.back().name = "twin";
       }},
      {"role_instruction", "matmul", "acquire AB", "mma_commit\n      acquire AB"},
      {"role_instruction", "matmul", "producer: copier", "producer: computer"},
      {"role_instruction", "matmul", "consumer: computer instances 2", "consumer: copier instances 1"},
      {"copier_instances", "matmul", "copier instances 1", "copier instances 2"},
      {"role_registers", "matmul", "registers 40", "registers 41"},
      {"role_registers", "matmul", "registers 232", "registers 264"},
      {"work_structure", "matmul", "((N + 127) / 128) persistent", "((N + 63) / 64) persistent"},
      {"work_structure", "matmul", "persistent", "single"},
      {"work_structure", "scale_tile", "", "",
       [](Program& p) {
         Instr outer;
         outer.op = If{first<ForWork>(p).count, p.roles[0].body, {}};
         p.roles[0].body = {outer};
       }},
      {"work_structure", "scale_tile", "", "",
       [](Program& p) {
         const Instr work = p.roles[0].body[0];
         first<ForWork>(p).body.push_back(work);
       }},
      {"loop_step", "matmul", "/ 64 {\n      acquire", "/ 64 step 0 {\n      acquire"},
      {"var_assigned", "matmul", "let row = item", "let row = k"},
      {"var_assigned", "matmul", "let row = item", "let item = item"},
      {"var_assigned", "matmul", "for k = 0", "for item = 0"},
      {"if_any_body", "turns", "map acc = max(acc[c0, c1], 0.0)", "mma_commit"},
      {"ring_slots", "matmul", "depth 3", "depth 4"},
      {"ring_slots", "bulk_epilogue", "swizzle 128\nbarrier", "slots 2 swizzle 128\nbarrier"},
      {"ring_bytes", "matmul", "bytes 32768", "bytes 16384"},
      {"ring_fill", "matmul", "acquire AB", "commit AB"},
      {"ring_fill", "matmul", "bytes 32768", "bytes 0"},
      {"multicast", "matmul", "bytes 32768", "bytes 32768 multicast"},
      {"lag", "matmul", "release AB lag 1", "release AB lag 4"},
      {"lag", "matmul", "wait AB", "wait AB lag -1"},
      {"lag", "bulk_epilogue", "tile at 0", "tile lag 1 at 0"},
      {"buffer_swizzle", "plain_copies", "a: f16[64, 64]", "a: f16[64, 40]"},
      {"buffer_swizzle", "plain_copies", "a: f16[64, 64]", "a: f16[60, 64]"},
      {"buffer_stairs", "matmul", "a: f16[128, 64] slots 3 swizzle 128",
       "a: f16[128, 64] slots 3 swizzle 128 stairs 60 from 0 by 0 to 64 by 0"},
      {"buffer_stairs", "matmul", "a: f16[128, 64] slots 3 swizzle 128",
       "a: f16[128, 64] slots 3 swizzle 128 stairs 64 from 0 by 0 to 48 by 16"},
      {"buffer_offset", "bulk_epilogue", "swizzle 128\nbarrier", "swizzle 128 offset 512\nbarrier"},
      {"buffer_offset", "bulk_epilogue", "swizzle 128\nbarrier", "swizzle 128 offset 1024\nbarrier"},
      {"buffer_offset", "bulk_epilogue", "", "",
       [](Program& p) {
         p.shared_bytes = 1 << 16;
         p.buffers.push_back(p.buffers[0]);
         p.buffers[0].offset = 0;
         p.buffers[1].offset = 1024;
       }},
      {"map_shape", "matmul", "stride 1 box 64", "stride 2 box 64"},
      {"map_shape", "matmul", "box 128", "box 512"},
      {"map_shape", "matmul", "", "", [](Program& p) { p.maps[0].dims.clear(); }},
      {"copy_shape", "matmul", "box 128", "box 64"},
      {"copy_shape", "matmul", "A_map[k * 64, row]", "A_map[k * 64]"},
      {"copy_shape", "matmul", "A_map: A swizzle 128", "A_map: A swizzle 64"},
      {"copy_shape", "matmul", "tensor A: f16", "tensor A: bf16"},
      {"access_rank", "scale_tile", "X[row + c0, col + c1]", "X[row + c0]"},
      {"access_type", "scale_tile", "X: f16", "X: f32"},
      {"access_type", "bulk_epilogue", "tile: f16[128, 64] swizzle 128", "tile: bf16[128, 64] swizzle 128"},
      {"store_output", "scale_tile", "output Y", "tensor Y"},
      {"store_output", "bulk_epilogue", "output Y", "tensor Y"},
      {"value_type", "scale_tile", "f16(f32(x[c0, c1]) * scale + 1.0)", "f32(x[c0, c1]) * scale + 1.0"},
      {"value_type", "attention", "max(s[c0, c1] * scale)", "max(f64(s[c0, c1]))"},
      {"mma_accumulator", "matmul", "acc: f32", "acc: f16"},
      {"mma_accumulator", "matmul", "tile = accumulator [64, 128]", "tile = blocked [64, 128] 2"},
      {"mma_operand", "attention", "p: f16 on tile", "p: bf16 on tile"},
      {"mma_operand", "attention", "registers p, v", "registers p origin 0, v"},
      {"mma_operand", "plain_copies", "a: f16[64, 64] slots 2 swizzle 128", "a: f16[64, 64] slots 2 swizzle 0"},
      {"mma_operand", "attention", "registers p, v transposed", "v, registers p"},
      {"mma_shape", "matmul", "depth 64,", "depth 24,"},
      {"mma_shape", "matmul", "depth 64,", "depth 128,"},
      {"mma_shape", "attention", "v transposed, depth 64", "v transposed, depth 32"},
      {"mma_shape", "matmul", "tile = accumulator [64, 128]", "tile = accumulator [64, 192]"},
      {"reduce_shape", "attention", "keep [0] accumulate", "keep [2] accumulate"},
      {"reduce_shape", "attention", "keep [0] accumulate", "keep [0, 0] accumulate"},
      {"reduce_shape", "attention", "residual 2 x 4", "residual 2 x 2"},
      {"reduce_shape", "attention", "residual 2 x 4", "residual 3 x 4"},
      {"reduce_layout", "attention", "residual 2 x 4", "residual 1 x 4"},
      {"reduce_layout", "attention", "keep [0] accumulate", "keep [1] accumulate"},
      {"reduce_scratch", "softmax_row", "keep [] through scratch", "keep []"},
      {"reduce_scratch", "softmax_row", "scratch: f32[2, 4]", "scratch: f32[1, 4]"},
      {"relayout_shape", "turns", "out: f16 on stored", "out: f32 on stored"},
      {"relayout_shape", "turns", "stored = blocked [64, 128] 8", "stored = blocked [64, 64] 8"},
      {"relayout_scratch", "turns", "relayout out = c through moved", "relayout out = c"},
      {"relayout_scratch", "turns", "moved: f16[128, 128]", "moved: f16[64, 128]"},
      {"barrier_index", "turns", "barrier_sync turn[instance]", "barrier_sync turn"},
  };
  return all;
}

std::string replace_first(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  if (at == std::string::npos) throw std::logic_error("the example does not contain: " + from);
  return text.replace(at, from.size(), to);
}

std::string complaint(const Broken& broken) {
  std::string text = test::example_text(broken.example);
  if (!broken.from.empty()) text = replace_first(text, broken.from, broken.to);
  auto program = parse(text, broken.example);
  if (!program) return "does not parse: " + program.error().format();
  if (broken.change) broken.change(*program);
  const auto valid = validate(*program);
  return valid ? "accepted" : valid.error().format();
}

TEST(ProgramValidate, examples_are_well_formed) {
  for (const std::string& stem : test::example_programs()) {
    auto program = parse(test::example_text(stem), stem);
    ASSERT_TRUE(program) << program.error().format();
    const auto valid = validate(*program);
    EXPECT_TRUE(valid) << stem << "\n" << valid.error().format();
  }
}

TEST(ProgramValidate, each_broken_rule_is_named) {
  for (const Broken& broken : broken_programs())
    EXPECT_THAT(complaint(broken), testing::HasSubstr("[" + broken.rule + "]"))
        << broken.example << ": " << broken.from << " -> " << broken.to;
}

TEST(ProgramValidate, every_rule_has_a_program_that_breaks_it) {
  std::set<std::string> tested;
  for (const Broken& broken : broken_programs()) tested.insert(broken.rule);
  std::set<std::string> rules;
#define RULE(id, message) rules.insert(#id);
#include "program/rules.def"
#undef RULE
  EXPECT_EQ(tested, rules);
}

TEST(ProgramValidate, the_message_says_where_what_and_why) {
  const std::string message = complaint({"", "matmul", "map c = f16(acc[c0, c1])", "map c = acc[c0, c1]"});
  EXPECT_THAT(message,
              testing::HasSubstr("error: role consumer: map: 'acc[c0, c1]' is f32, fragment c is f16 [value_type]"));
  EXPECT_THAT(message, testing::HasSubstr("hint: a value has the type of the fragment it is assigned to"));
}

}  // namespace
}  // namespace pipethreader::program
