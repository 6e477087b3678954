#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "program/expr_builder.h"
#include "program/program.h"
#include "program/text.h"
#include "program/walk.h"
#include "support/programs.h"

namespace pipethreader::program {
namespace {

using testing::HasSubstr;

std::string parse_error(const std::string& text) {
  const auto result = parse(text, "t");
  return result ? "accepted" : result.error().format();
}

TEST(ProgramText, examples_print_as_they_parse) {
  ASSERT_GE(test::example_programs().size(), 8U);
  for (const std::string& stem : test::example_programs()) {
    SCOPED_TRACE(stem);
    const Program program = test::example_program(stem);
    const std::string text = print(program);
    const auto again = parse(text, "printed");
    ASSERT_TRUE(again) << again.error().format() << "\n" << text;
    EXPECT_EQ(print(*again), text);
    EXPECT_TRUE(validate(*again));
  }
}

// Prints every instruction, so the two tests above and below see each of them.
TEST(ProgramText, examples_hold_every_instruction) {
  std::set<std::string_view> seen;
  for (const std::string& stem : test::example_programs()) {
    const Program program = test::example_program(stem);
    for_each_instr(program, [&](RoleId, const Instr& instr, const Path&) { seen.insert(text_name(instr)); });
  }
  const std::set<std::string_view> all = {
#define INSTRUCTION(type, text) text,
#include "program/instructions.def"
#undef INSTRUCTION
  };
  EXPECT_EQ(seen, all);
}

TEST(ProgramText, every_field_of_an_instruction_is_printed) {
  // Changing any one of these must change the text.
  const Program program = test::example_program("attention");
  const std::string text = print(program);
  const auto changes = [&](auto&& change) {
    Program other = program;
    for_each_instr(other, [&](RoleId, Instr& instr, const Path&) { std::visit(change, instr.op); });
    EXPECT_NE(print(other), text);
    const auto again = parse(print(other), "changed");
    ASSERT_TRUE(again) << again.error().format();
    EXPECT_EQ(print(*again), print(other));
  };
  const auto on = []<class Op>(auto&& change) {
    return [change](auto& op) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(op)>, Op>) change(op);
    };
  };
  changes(on.operator()<RingWait>([](RingWait& x) { x.lag = 1; }));
  changes(on.operator()<RingRelease>([](RingRelease& x) { x.lag = 2; }));
  changes(on.operator()<For>([](For& x) { x.step = -2; }));
  changes(on.operator()<ForWork>([](ForWork& x) { x.order = WorkOrder::dynamic; }));
  changes(on.operator()<CopyBulk>([](CopyBulk& x) { x.target.lag = 1; }));
  changes(on.operator()<Mma>([](Mma& x) { x.k = 48; }));
  changes(on.operator()<Mma>([](Mma& x) { x.b.transposed = true; }));
  changes(on.operator()<Mma>([](Mma& x) { x.b.buffer.lag = 1; }));
  changes(on.operator()<Mma>([](Mma& x) { x.b.origin = ExprId(std::size_t{0}); }));
  changes(on.operator()<Mma>([](Mma& x) { x.a.origin.reset(); }));
  changes(on.operator()<Mma>([](Mma& x) { x.accumulate.reset(); }));
  changes(on.operator()<MmaWait>([](MmaWait& x) { x.pending += 1; }));
  changes(on.operator()<MmaWait>([](MmaWait& x) { x.pin = RingWait{RingId(std::size_t{1}), 1}; }));
  changes(on.operator()<Reduce>([](Reduce& x) { x.op = ReduceOp::min; }));
  changes(on.operator()<Reduce>([](Reduce& x) { x.kept = {1}; }));
  changes(on.operator()<Reduce>([](Reduce& x) { x.residual = Residual{4, 2}; }));
  changes(on.operator()<Reduce>([](Reduce& x) { x.accumulate = !x.accumulate; }));
  changes(on.operator()<Reduce>([](Reduce& x) { x.scratch = BufferId(std::size_t{2}); }));
  changes(on.operator()<StoreGlobal>([](StoreGlobal& x) { x.target.guard.reset(); }));
  changes(on.operator()<If>([](If& x) { x.otherwise = x.then; }));
}

TEST(ProgramText, every_declared_field_is_printed) {
  const Program program = test::example_program("turns");
  const std::string text = print(program);
  const auto changes = [&](auto&& change) {
    Program other = program;
    change(other);
    EXPECT_NE(print(other), text);
    const auto again = parse(print(other), "changed");
    ASSERT_TRUE(again) << again.error().format();
    EXPECT_EQ(print(*again), print(other));
  };
  changes([](Program& p) { p.name = "other"; });
  changes([](Program& p) { p.cluster = 2; });
  changes([](Program& p) { p.blocks_per_unit = 2; });
  changes([](Program& p) { p.shared_bytes = 12345678901; });
  changes([](Program& p) { p.generic_reason = "a \"quoted\" \\ reason"; });
  changes([](Program& p) { p.params[0].dim = false; });
  changes([](Program& p) { p.params[0].type = ScalarType::i64; });
  changes([](Program& p) { p.tensors[0].type = ScalarType::bf16; });
  changes([](Program& p) { p.tensors[0].output = true; });
  changes([](Program& p) { p.requirements.clear(); });
  changes([](Program& p) { p.maps[0].dims[1].step = 2; });
  changes([](Program& p) { p.maps[0].dims[1].box = 32; });
  changes([](Program& p) { p.maps[0].swizzle = Swizzle::bytes32; });
  changes([](Program& p) { p.rings[0].full_arrivals = 4; });
  changes([](Program& p) { p.rings[0].empty_arrivals = 4; });
  changes([](Program& p) { p.rings[0].multicast = true; });
  changes([](Program& p) { p.buffers[0].offset = 1024; });
  changes([](Program& p) { p.buffers[0].ring = RingId{}; });
  changes([](Program& p) { p.buffers[0].swizzle = Swizzle::none; });
  changes([](Program& p) { p.barriers[0].count = 3; });
  changes([](Program& p) { p.fragments[0].type = ScalarType::f16; });
  changes([](Program& p) { p.fragments[0].role = RoleId(std::size_t{0}); });
  changes([](Program& p) { p.fragments[0].layout = layout::mma_accumulator(64, 8); });
  changes([](Program& p) { p.roles[1].registers = 240; });
  changes([](Program& p) { p.roles[1].instances = 3; });
  changes([](Program& p) { p.roles[1].kind = RoleKind::copier; });
  changes([](Program& p) { p.roles[1].body[0].comment = "changed"; });
}

TEST(ProgramText, names_are_made_unique_identifiers) {
  Program program;
  program.name = "flash attention";
  program.params = {{"n"}, {"n"}, {"n_2"}, {"c0"}, {"exp2"}, {""}, {"3d"}};
  const std::string text = print(program);
  EXPECT_THAT(text, HasSubstr("program flash_attention\n"));
  EXPECT_THAT(text, HasSubstr("dim n: i32\ndim n_2: i32\ndim n_2_2: i32\ndim c0_2: i32\ndim exp2_2: i32\n"
                              "dim param_2: i32\ndim _3d: i32\n"));
  const auto again = parse(text, "t");
  ASSERT_TRUE(again) << again.error().format();
  EXPECT_EQ(print(*again), text);
}

TEST(ProgramText, numbers_come_back) {
  Program program;
  program.name = "numbers";
  ExprBuilder build(program);
  constexpr double inf = std::numeric_limits<double>::infinity();
  std::vector<ExprId> numbers;
  for (const double value : {0.0, -0.0, 1.0, -1.5, 0.1, 1e-30, -1e30, 3e38, inf, -inf})
    for (const ScalarType type : {ScalarType::f32, ScalarType::f16, ScalarType::f64, ScalarType::bf16})
      numbers.push_back(build.constant(type, value));
  numbers.push_back(build.constant(ScalarType::f32, std::nan("")));
  for (const double value : {0.0, 7.0, -7.0, 127.0})
    for (const ScalarType type : {ScalarType::i32, ScalarType::i64, ScalarType::i8})
      numbers.push_back(build.constant(type, value));
  numbers.push_back(build.truth(true));
  numbers.push_back(build.truth(false));
  program.tensors.push_back({"x", ScalarType::f32, numbers});
  const auto again = parse(print(program), "t");
  ASSERT_TRUE(again) << again.error().format();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const Expr& before = program[numbers[i]];
    const Expr& after = (*again)[again->tensors[0].shape[i]];
    EXPECT_EQ(after.kind, Expr::Kind::constant);
    EXPECT_EQ(after.type, before.type);
    EXPECT_EQ(std::signbit(after.number), std::signbit(before.number)) << print(program, numbers[i]);
    EXPECT_TRUE(after.number == before.number || std::isnan(before.number)) << print(program, numbers[i]);
  }
}

// Trees are written as the parser would group them: parsing restores each tree, not one of the same value.
bool same_tree(const Program& p, ExprId a, const Program& q, ExprId b) {
  const Expr& x = p[a];
  const Expr& y = q[b];
  if (x.kind != y.kind || x.type != y.type || x.function != y.function || x.args.size() != y.args.size()) return false;
  if (x.number != y.number || x.param != y.param) return false;
  for (std::size_t i = 0; i < x.args.size(); ++i)
    if (!same_tree(p, x.args[i], q, y.args[i])) return false;
  return true;
}

TEST(ProgramText, random_expressions_come_back) {
  std::mt19937 random(3);
  const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
  Program program;
  program.name = "random_trees";
  program.params = {{"n"}, {"x", ScalarType::f32, false}};
  ExprBuilder build(program);
  std::vector<ExprId> pool = {build.param(ParamId(std::size_t{0})), build.param(ParamId(std::size_t{1})),
                              build.constant(5), build.constant(-5), build.constant(ScalarType::f32, -0.25)};
  for (int i = 0; i < 600; ++i) {
    Expr e{Expr::Kind::call};
    if (below(8) == 0) {
      e.kind = Expr::Kind::convert;
      e.type = ScalarType::f16;
      e.args = {pool[below(pool.size())]};
    } else {
      e.function = static_cast<Function>(below(static_cast<std::size_t>(Function::cos) + 1));
      std::vector<ScalarType> types;
      for (int k = 0; k < info(e.function).operands; ++k) {
        e.args.push_back(pool[below(std::min<std::size_t>(pool.size(), 60))]);
        types.push_back(program[e.args.back()].type);
      }
      e.type = call_type(e.function, types);
    }
    pool.push_back(build.intern(e));
  }
  program.tensors.push_back({"trees", ScalarType::f32, pool});
  const auto again = parse(print(program), "t");
  ASSERT_TRUE(again) << again.error().format();
  for (std::size_t i = 0; i < pool.size(); ++i)
    EXPECT_TRUE(same_tree(program, pool[i], *again, again->tensors[0].shape[i])) << print(program, pool[i]);
}

TEST(ProgramText, comments_stay_with_their_instructions) {
  const std::string text =
      "program p\nvar i\nrole r: computer {\n  // dropped: stands alone\n  for_work i in 3 single {  // the loop\n"
      "    let i = 0  // the let\n    if i > 0 {  // the branch\n      proxy_fence\n    } else {\n"
      "      cluster_sync  //  two blanks\n    }\n  }\n}\n";
  const auto program = parse(text, "t");
  ASSERT_TRUE(program) << program.error().format();
  const auto& work = program->roles[0].body[0];
  EXPECT_EQ(work.comment, "the loop");
  const auto& body = std::get<ForWork>(work.op).body;
  EXPECT_EQ(body[0].comment, "the let");
  EXPECT_EQ(body[1].comment, "the branch");
  EXPECT_EQ(std::get<If>(body[1].op).then[0].comment, "");
  EXPECT_EQ(std::get<If>(body[1].op).otherwise[0].comment, " two blanks");
  EXPECT_THAT(print(*program), HasSubstr("    let i = 0  // the let\n    if i > 0 {  // the branch\n      proxy_fence\n"
                                         "    } else {\n      cluster_sync  //  two blanks\n    }\n  }\n"));
}

TEST(ProgramText, errors_say_where_and_what) {
  const std::string head =
      "program p\ndim n: i32\nvar i\nring R: depth 1 full 1 empty 1\n"
      "layout tile = accumulator [64, 8]\nfragment f: f32 on tile of r\n";
  const auto in_role = [&](const std::string& body) {
    return parse_error(head + "role r: computer {\n" + body + "\n}\n");
  };
  EXPECT_EQ(in_role("acquire R"), "accepted");
  EXPECT_EQ(parse_error("kernel p"), "t:1:1: error: expected 'program', found 'kernel'");
  EXPECT_EQ(parse_error("program"), "t:1:8: error: expected the program's name, found the end of the text");
  EXPECT_EQ(parse_error("program ring"), "t:1:9: error: expected the program's name, found 'ring'");
  EXPECT_THAT(parse_error("program p\nrings"),
              HasSubstr("t:2:1: error: expected a declaration, found 'rings'\n  hint: one of"));
  EXPECT_EQ(parse_error("program p $"), "t:1:11: error: unexpected character '$'");
  EXPECT_EQ(parse_error("program p generic \"x"), "t:1:19: error: this string does not end");
  EXPECT_EQ(parse_error("program p generic x"), "t:1:19: error: expected the reason in quotes, found 'x'");
  EXPECT_EQ(parse_error("program p dim n: f17"), "t:1:18: error: expected an element type, found 'f17'");
  EXPECT_EQ(parse_error("program p dim n: i32 dim n: i32"), "t:1:26: error: there is already a param 'n'");
  EXPECT_EQ(parse_error("program p dim n: i32 var n"), "t:1:26: error: there is already a param, var or fragment 'n'");
  EXPECT_EQ(parse_error("program p cluster 2.5"),
            "t:1:19: error: expected the blocks of a cluster, a whole number, found '2.5'");
  EXPECT_EQ(parse_error("program p cluster 99999999999"), "t:1:19: error: the blocks of a cluster is too large");
  EXPECT_EQ(parse_error("program p tensor x: f16[2] tensor_map m: x swizzle 48"),
            "t:1:52: error: a swizzle is 0, 32, 64 or 128 bytes wide");
  EXPECT_EQ(parse_error("program p buffer b: f16[2, 2] ring R"),
            "t:1:36: error: there is no ring 'R'\n  hint: none is declared");
  EXPECT_EQ(parse_error("program p layout l = accumulator [60, 8]"),
            "t:1:22: error: an accumulator has a multiple of 64 rows and a multiple of 8 columns");
  EXPECT_EQ(parse_error("program p layout l = blocked [4] 0"),
            "t:1:22: error: the length of the vectors is at least 1");
  EXPECT_EQ(parse_error("program p layout l = everywhere [0]"), "t:1:22: error: a tile's extents are at least 1");
  EXPECT_EQ(parse_error("program p layout l = everywhere [4] layout m = slice l [1]"),
            "t:1:48: error: the layout has no such dimension");
  EXPECT_THAT(parse_error("program p layout l = [64] reg(2) lane(32:-) warp(4:-)"),
              HasSubstr("t:1:22: error: in a layout: expected 'extent:'"));
  EXPECT_THAT(parse_error("program p layout l = [64] reg() lane(32:-) warp(4:-)"), HasSubstr("digits cover 1"));
  EXPECT_EQ(parse_error("program p layout l = everywhere [4] fragment f: f32 on l of r"),
            "t:1:61: error: there is no role 'r'");
  EXPECT_EQ(parse_error("program p role r: thinker {}"),
            "t:1:19: error: expected 'copier' or 'computer', found 'thinker'");
  EXPECT_EQ(in_role("acquire S"), "t:8:9: error: there is no ring 'S'\n  hint: declared are: R");
  EXPECT_EQ(in_role("obtain R"), "t:8:1: error: expected an instruction or '}', found 'obtain'");
  EXPECT_EQ(in_role("for_work i in n sometimes {}"),
            "t:8:17: error: expected 'single', 'persistent' or 'dynamic', found 'sometimes'");
  EXPECT_EQ(in_role("let i = 1 +"), "t:9:1: error: expected an expression, found '}'");
  EXPECT_EQ(in_role("let i = m"),
            "t:8:9: error: expected an expression; there is no param, var or fragment of this name, found 'm'");
  EXPECT_EQ(in_role("let i = min(n)"), "t:8:9: error: min takes 2 operands, found 1");
  EXPECT_EQ(in_role("let i = (n"), "t:9:1: error: expected ')', found '}'");
  EXPECT_EQ(in_role("map f = f[n]"), "t:8:11: error: expected a coordinate: c0, c1, ..., found 'n'");
  EXPECT_EQ(in_role("map f = 1_f17"), "t:8:9: error: 'f17' is no type for this number, found '1_f17'");
  EXPECT_EQ(in_role("map f = 1.5_i32"), "t:8:9: error: 'i32' is no type for this number, found '1.5_i32'");
  EXPECT_EQ(in_role("reduce f = mul(1) on tile keep []"), "t:8:12: error: expected 'sum', 'max' or 'min', found 'mul'");
  EXPECT_EQ(in_role("reduce f = sum(1.0) on tile keep [0] residual 2 by 4"),
            "t:8:52: error: expected 'x' between stride and extent of the residual, found '4'");
  EXPECT_EQ(in_role("if n > 0 {"), "t:10:1: error: expected an instruction or '}', found the end of the text");
}

// Whatever is cut off, the parser ends with a message.
TEST(ProgramText, truncated_texts_are_errors) {
  for (const std::string& stem : test::example_programs()) {
    const Program program = test::example_program(stem);
    const std::string text = print(program);
    const std::size_t last = text.rfind('}');
    for (std::size_t length = 0; length < last; length += 31) {
      const auto result = parse(text.substr(0, length), "t");
      EXPECT_TRUE(!result || result->roles.size() < program.roles.size()) << stem << " at " << length;
    }
  }
}

TEST(Walk, paths_lead_back_to_their_instructions) {
  Program program = test::example_program("attention");
  int count = 0;
  for_each_instr(program, [&](RoleId role, Instr& instr, const Path& path) {
    EXPECT_EQ(find(program.roles[static_cast<std::size_t>(role.index)].body, path), &instr);
    ++count;
  });
  EXPECT_GT(count, 60);
  EXPECT_EQ(find(program.roles[0].body, Path{{7, 0}}), nullptr);
  EXPECT_EQ(print(program, RoleId(std::size_t{0}), Path{{0, 0}, {3, 0}, {1, 0}}), "producer.0.3.1 copy_bulk");
}

TEST(Walk, finds_the_blocks_and_expressions_of_instructions) {
  Program program = test::example_program("matmul");
  int expressions = 0;
  int with_else = 0;
  for_each_instr(program, [&](RoleId, const Instr& instr, const Path&) {
    for_each_expr(instr, [&](ExprId e) {
      EXPECT_TRUE(e.valid());
      ++expressions;
    });
    if (std::holds_alternative<If>(instr.op)) with_else += blocks(instr).size() == 2 ? 1 : 0;
  });
  EXPECT_EQ(with_else, 1);
  // 2 for_work, 4 let, 2 for with two bounds, 2 copies of two coordinates, 1 if, 3 in the products (origin twice,
  // accumulate), 2 maps, 3 in the store.
  EXPECT_EQ(expressions, 2 + 4 + 4 + 4 + 1 + 3 + 2 + 3);
}

}  // namespace
}  // namespace pipethreader::program
