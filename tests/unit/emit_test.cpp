#include "emit/emit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "emit/facts.h"
#include "emit/names.h"
#include "emit/writer.h"
#include "layout/layout.h"
#include "program/expr_builder.h"
#include "program/legalise.h"
#include "program/program.h"
#include "support/instruction_programs.h"
#include "support/programs.h"

namespace pipethreader::emit {
namespace {

using program::ExprBuilder;
using program::ExprId;
using program::Program;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kSharedLimit = 232448;

Program placed(const Program& program) { return program::legalise(program, kSharedLimit).value(); }

Program placed(const std::string& text) {
  auto parsed = program::parse(text, "test.program");
  EXPECT_TRUE(parsed) << parsed.error().format();
  if (const auto valid = program::validate(*parsed); !valid) ADD_FAILURE() << valid.error().format();
  return placed(*parsed);
}

CudaSource emitted(const Program& program) {
  auto source = emit_unproved(program);
  EXPECT_TRUE(source) << source.error().format();
  return source ? *source : CudaSource{};
}

CudaSource example(const std::string& name) { return emitted(placed(test::example_program(name))); }

std::string instruction(const std::string& name) {
  for (const auto& one : test::instruction_programs())
    if (one.name == name) return one.text;
  ADD_FAILURE() << "no instruction program " << name;
  return {};
}

// --- names and text ----------------------------------------------------------------------------------------------

TEST(EmitNames, AreCleanUniqueAndClearOfTheFrame) {
  constexpr std::array<std::string_view, 1> kFunctions = {"divide"};
  Names names(kFunctions);
  EXPECT_EQ(names.claim("acc"), "acc");
  EXPECT_EQ(names.claim("acc"), "acca");
  EXPECT_EQ(names.claim("a.b-c"), "a_b_c");
  EXPECT_EQ(names.claim("3d"), "v3d");
  EXPECT_EQ(names.claim("__x"), "_x");
  EXPECT_NE(names.claim("lane"), "lane");
  EXPECT_NE(names.claim("while"), "while");
  EXPECT_NE(names.claim("divide"), "divide");
  EXPECT_NE(names.claim("part_3"), "part_3") << "the emitter's own names inside an instruction look like this";
  const std::vector<std::string> registers = {"_0", "_1"};
  EXPECT_EQ(names.claim("s", registers), "s");
  EXPECT_NE(names.claim("s_1"), "s_1");
}

TEST(EmitWriter, BreaksListsAtTheMargin) {
  Writer out(1);
  out.list("f(", std::vector<std::string>(40, "argument"), ");");
  std::size_t longest = 0, start = 0;
  for (std::size_t end = 0; (end = out.text().find('\n', start)) != std::string::npos; start = end + 1)
    longest = std::max(longest, end - start);
  EXPECT_LE(longest, 120U);
  EXPECT_THAT(out.text(), HasSubstr("argument);\n"));
  out.list("g(", {}, ");");
  EXPECT_THAT(out.text(), HasSubstr("  g();\n"));
}

// --- what is known of integers -----------------------------------------------------------------------------------

struct Integers {
  Program program;
  ExprBuilder build{program};
  program::ParamId size = add_param();
  program::ParamId add_param() {
    program.params.push_back({"N", ScalarType::i32, true});
    return program::ParamId(0UL);
  }
};

TEST(EmitFacts, SignsAndDivisors) {
  Integers i;
  const ExprId n = i.build.param(i.size), c = i.build.coord(0);
  i.program.requirements.push_back(i.build.eq(i.build.mod(n, 16), i.build.constant(0)));
  const ExprId difference = i.build.sub(c, 4), sum = i.build.add(i.build.mul(c, 8), n);
  const ExprId quotient = i.build.div(n, 4), rest = i.build.mod(i.build.add(c, 3), 8);
  const Facts facts(i.program);
  EXPECT_TRUE(facts.nonnegative(n));
  EXPECT_TRUE(facts.nonnegative(sum));
  EXPECT_FALSE(facts.nonnegative(difference));
  EXPECT_EQ(facts.divisor(n), 16);
  EXPECT_EQ(facts.divisor(quotient), 4);
  EXPECT_EQ(facts.divisor(sum), 8);
  EXPECT_EQ(facts.divisor(sum, std::vector{2}), 16);
  EXPECT_EQ(facts.divisor(rest), 1);
  EXPECT_EQ(facts.slope(sum, 0), 8);
  EXPECT_EQ(facts.slope(n, 0), 0);
  EXPECT_EQ(facts.slope(rest, 0), std::nullopt);
}

TEST(EmitFacts, GuardsThatNeighboursShare) {
  Integers i;
  const ExprId n = i.build.param(i.size), c = i.build.coord(0), d = i.build.coord(1);
  i.program.requirements.push_back(i.build.eq(i.build.mod(n, 8), i.build.constant(0)));
  const ExprId below = i.build.lt(i.build.add(c, 16), n), ragged = i.build.lt(c, i.build.add(n, 1));
  const ExprId diagonal = i.build.le(c, d), other = i.build.lt(d, n);
  const ExprId both = i.build.logical_and(below, other);
  const Facts facts(i.program);
  const std::vector<int> eights = {8, 1};
  EXPECT_TRUE(facts.same_for_neighbours(below, 0, 8, eights));
  EXPECT_TRUE(facts.same_for_neighbours(both, 0, 8, eights));
  EXPECT_TRUE(facts.same_for_neighbours(other, 0, 8, eights));
  EXPECT_FALSE(facts.same_for_neighbours(ragged, 0, 8, eights));
  EXPECT_FALSE(facts.same_for_neighbours(diagonal, 0, 8, eights));
  EXPECT_FALSE(facts.same_for_neighbours(below, 0, 16, std::vector{16, 1}));
}

TEST(EmitFacts, LoopVariablesKeepWhatAllTheirAssignmentsHave) {
  const Program program = placed(R"(program loops

blocks_per_unit 1
output Y: f32[64]
var item, i, down, n
layout line = blocked [64] 1
fragment y: f32 on line of worker

role worker: computer instances 1 {
  for_work item in 4 single {
    map y = 0.0
    for i = 8 .. 64 step 16 {
      let n = i - 8
      map y = y[c0] + f32(n)
    }
    for down = 48 .. -1 step -16 {
      let n = down * 4
      map y = y[c0] + f32(n)
    }
    store_global Y[c0] from y
  }
}
)");
  const Facts facts(program);
  const auto expr_of = [&](const std::string& name) {
    for (std::size_t e = 0; e < program.exprs.size(); ++e)
      if (program.exprs[e].kind == program::Expr::Kind::var && program[program.exprs[e].var].name == name)
        return ExprId(e);
    return ExprId();
  };
  EXPECT_EQ(facts.divisor(expr_of("i")), 8);
  EXPECT_TRUE(facts.nonnegative(expr_of("i")));
  EXPECT_EQ(facts.divisor(expr_of("down")), 16);
  EXPECT_TRUE(facts.nonnegative(expr_of("down")));
  EXPECT_EQ(facts.divisor(expr_of("n")), 8);
  EXPECT_FALSE(facts.nonnegative(expr_of("n"))) << "i - 8: the sign of a difference is not looked into";
}

// --- launches ----------------------------------------------------------------------------------------------------

TEST(Emit, SaysHowToLaunch) {
  const Program program = placed(test::example_program("matmul"));
  const CudaSource source = emitted(program);
  EXPECT_EQ(source.entry, "matmul");
  EXPECT_EQ(source.launch.threads, 384);
  EXPECT_EQ(source.launch.cluster, 1);
  EXPECT_EQ(source.launch.shared_bytes, program.shared_bytes);
  std::vector<std::string> names;
  for (const Argument& argument : source.arguments) names.push_back(argument.name);
  EXPECT_THAT(names, ElementsAre("A", "B", "C", "M", "N", "K", "A_map", "B_map"));
  EXPECT_THAT(source.arguments[6].box, ElementsAre(64, 128));
  EXPECT_EQ(source.launch.grid(program, {256, 384, 64}, 132), 6);
  EXPECT_EQ(source.launch.grid(program, {4096, 4096, 64}, 132), 132);
  EXPECT_EQ(source.launch.grid(program, {0, 4096, 64}, 132), 0);
}

TEST(Emit, GridsAreWholeClusters) {
  const Program program = placed(test::example_program("cluster_matmul"));
  const CudaSource source = emitted(program);
  EXPECT_EQ(source.launch.cluster, 2);
  EXPECT_EQ(source.launch.grid(program, {256, 128, 64}, 132), 2);
  EXPECT_EQ(source.launch.grid(program, {8192, 8192, 64}, 131), 130);
  EXPECT_THAT(source.text, HasSubstr("__cluster_dims__(2, 1, 1)"));
  EXPECT_THAT(source.text, HasSubstr(".multicast::cluster"));
}

TEST(Emit, DynamicWorkTakesACounter) {
  const CudaSource source = example("softmax_row");
  EXPECT_EQ(source.arguments.back().kind, Argument::Kind::counter);
  EXPECT_THAT(source.text, HasSubstr("atomicAdd(work_counter, 1u)"));
  EXPECT_THAT(example("matmul").text, Not(HasSubstr("work_counter")));
}

TEST(Emit, WideTilesAreCutIntoBoxes) {
  const Program program = placed(instruction("mma_boxes"));
  const CudaSource source = emitted(program);
  EXPECT_THAT(source.arguments[3].box, ElementsAre(64, 128));
  EXPECT_THAT(source.text, HasSubstr("&A_map, shared + AB_full, 64, 0);"));
}

// --- what is printed ---------------------------------------------------------------------------------------------

TEST(Emit, IncludesNothingAndOnlyTheHelpersUsed) {
  for (const std::string& name : test::example_programs()) {
    const CudaSource source = example(name);
    EXPECT_THAT(source.text, Not(HasSubstr("#include"))) << name;
    if (name == "scale_tile") {
      EXPECT_THAT(source.text, Not(HasSubstr("wgmma")));
      EXPECT_THAT(source.text, Not(HasSubstr("void arrive(")));
    }
  }
}

TEST(Emit, RolesTradeRegisters) {
  const std::string text = example("matmul").text;
  EXPECT_THAT(text, HasSubstr("shrink_registers<40>();"));
  EXPECT_THAT(text, HasSubstr("grow_registers<232>();"));
  EXPECT_THAT(example("scale_tile").text, Not(HasSubstr("_registers<")));
}

// The warps of a group meet in a product only where all of them issue one. A group that passes a product over may be
// spread over several phases, so its first warp must not speak for the others.
TEST(Emit, EachWarpReleasesASlotWhoseProductIsConditional) {
  const std::string text = test::example_text("matmul");
  const std::string product = "        mma acc += a origin instance * 64, b, depth 64\n        mma_commit\n";
  ASSERT_NE(text.find(product), std::string::npos);
  std::string conditional = text;
  conditional.replace(text.find(product), product.size(), "        if k > 1 {\n" + product + "        }\n");
  // The wait behind the loop still stands for the product issued before; what the loop releases has met in none.
  conditional.replace(conditional.find("        mma_wait 1"), 18, "");
  const std::string meets = emitted(placed(text)).text;
  EXPECT_THAT(meets, HasSubstr("if (thread == 0) arrive("));
  EXPECT_THAT(meets, HasSubstr("AB_empty + slot * 8, 2);"));
  const std::string apart = emitted(placed(conditional)).text;
  EXPECT_THAT(apart, Not(HasSubstr("if (thread == 0) arrive(")));
  EXPECT_THAT(apart, HasSubstr("if (lane == 0) arrive("));
  EXPECT_THAT(apart, HasSubstr("AB_empty + slot * 8, 8);"));
}

// An arrival does not wait for loads. Where a register that is still to be read hangs on one, so must the arrival: the
// copy engine fills the slot next.
TEST(Emit, SlotsThatThreadsReadAreReleasedWhenTheLoadsAreThere) {
  const std::string text = instruction("mma_registers");
  const std::string load = "load_shared af = a [instance * 64 + c0, c1]\n";
  const std::string product = "mma acc += registers af, b, depth 64, accumulate false\n";
  const std::string second = "mma acc += registers af, b, depth 64, accumulate item == 0\n";
  const std::string release = "release AB\n";
  const auto with = [&](const std::vector<std::pair<std::string, std::string>>& changes) {
    std::string changed = text;
    for (const auto& [old, now] : changes) {
      EXPECT_NE(changed.find(old), std::string::npos) << old << changed;
      changed.replace(changed.find(old), old.size(), now);
    }
    const std::string source = emitted(placed(changed)).text;
    const std::size_t arrive = source.find("arrive(shared + AB_empty");
    EXPECT_NE(arrive, std::string::npos) << source;
    return source.substr(arrive, source.find(';', arrive) - arrive);
  };
  const std::string waits = "arrive(shared + AB_empty + zero_after_0)";
  const std::string does_not = "arrive(shared + AB_empty)";
  EXPECT_EQ(with({}), does_not);
  EXPECT_EQ(with({{release, ""}, {load, load + release}}), waits);
  // What a branch leaves out under the same condition was not loaded either.
  const auto under = [](const std::string& condition, const std::string& body) {
    return "if " + condition + " {\n" + body + "}\n";
  };
  const std::string both = product + "    " + second;
  EXPECT_EQ(with({{load, under("item == 0", load)}, {both, under("item == 0", both)}}), does_not);
  EXPECT_EQ(with({{load, under("item == 0", load)}, {both, under("item == 1", both)}}), waits);
  // A value that hangs on the load is read in the next round.
  EXPECT_EQ(with({{release, release + "    map af = af[c0, c1] * 2.0_f16\n"}}), waits);
}

// A maximum that is read under a condition on it alone is joined across lanes where one of its parts meets it.
TEST(Emit, LanesJoinAMaximumWhereItDecides) {
  const std::string text = instruction("reduce_late");
  const auto joined_late = [&](const std::string& old, const std::string& now) {
    std::string changed = text;
    EXPECT_NE(changed.find(old), std::string::npos) << old;
    changed.replace(changed.find(old), old.size(), now);
    const std::string source = emitted(placed(changed)).text;
    const std::size_t asked = source.find("if (__any_sync(0xffffffffu, (grown_0 - m_0 > 2.8f)");
    const std::size_t joined = source.find("__shfl_xor_sync(0xffffffffu, ");
    EXPECT_NE(joined, std::string::npos) << source;
    return asked < joined;
  };
  EXPECT_TRUE(joined_late("", ""));
  EXPECT_FALSE(joined_late("from n", "from grown"));  // read where it need not decide
  EXPECT_FALSE(joined_late("grown[c0], m[c0])", "m[c0], grown[c0])"));
  EXPECT_FALSE(joined_late("grown[c0] - m[c0] > 2.8", "m[c0] > 2.8"));
  EXPECT_FALSE(joined_late("max(x[c0, c1] * scale)", "sum(x[c0, c1] * scale)"));
  EXPECT_FALSE(joined_late("max(most[c0], m[c0])", "max(most[c0], grown[c0])"));
  EXPECT_FALSE(joined_late("map n = select(grown[c0] - m[c0] > 2.8, grown[c0], m[c0])",
                           "map n = select(grown[c0] - m[c0] > 2.8, grown[c0], n[c0])"));
}

// Where the two move on in the same places, one slot and one phase serve both.
TEST(Emit, RingsThatMoveOnTogetherShareACursor) {
  std::string text = program::print(test::example_program("attention"));
  EXPECT_THAT(emitted(placed(text)).text, HasSubstr("int Va_slot = 0, Va_phase = 0;"));
  const auto replace_all = [&text](const std::string& old, const std::string& now) {
    for (std::size_t i = text.find(old); i != std::string::npos; i = text.find(old, i + now.size()))
      text.replace(i, old.size(), now);
  };
  replace_all("advance V", "");
  replace_all("advance K", "advance K\n advance V");
  const std::string source = emitted(program::parse(text, "together.program").value()).text;
  EXPECT_THAT(source, HasSubstr("int Ka_slot = 0, Ka_phase = 0;"));
  EXPECT_THAT(source, Not(HasSubstr("Va_slot")));
  EXPECT_THAT(source, HasSubstr("Va_full + Ka_slot * 8, Ka_phase"));
}

TEST(Emit, CommentsComeThrough) { EXPECT_THAT(example("attention").text, HasSubstr("// PV(n-1) has read P and V")); }

TEST(Emit, MatrixInstructionsWhereTheyFit) {
  EXPECT_THAT(emitted(placed(instruction("shared_matrices"))).text, HasSubstr("stmatrix.sync.aligned.m8n8.x4.shared"));
  EXPECT_THAT(emitted(placed(instruction("shared_matrices_read_transposed"))).text,
              HasSubstr("ldmatrix.sync.aligned.m8n8.x4.trans.shared"));
  EXPECT_THAT(emitted(placed(instruction("shared_rotated"))).text, Not(HasSubstr("ldmatrix")));
}

TEST(Emit, VectorsWhereAlignmentAndGuardAreProvable) {
  EXPECT_THAT(emitted(placed(instruction("global_vectors"))).text,
              HasSubstr("*reinterpret_cast<uint4*>(first_0 + 1408)"));
  EXPECT_THAT(emitted(placed(instruction("global_quads"))).text, HasSubstr("transpose_quad("));
  EXPECT_THAT(emitted(placed(instruction("global_ragged"))).text, Not(HasSubstr("reinterpret_cast")));
}

TEST(Emit, PackedArithmeticOnHalves) {
  const std::string text = emitted(placed(instruction("map_f16"))).text;
  EXPECT_THAT(text, HasSubstr("fma_f16x2(x_0, 0x40004000u, 0x3c003c00u)"));
}

TEST(Emit, MultiplicationLeavesTheMaximum) {
  EXPECT_THAT(example("attention").text, HasSubstr("if (scale >= 0.0f) {"));
}

TEST(Emit, FencesOncePerBatchOfProducts) {
  const std::string text = emitted(placed(instruction("mma_128"))).text;
  std::size_t fences = 0;
  for (std::size_t at = 0; (at = text.find("mma_fence();", at)) != std::string::npos; ++at) ++fences;
  EXPECT_EQ(fences, 1U);
}

// --- what this target cannot do ----------------------------------------------------------------------------------

std::string problem_of(const Program& program) {
  const auto source = emit_unproved(program);
  return source ? std::string() : source.error().format();
}

TEST(EmitErrors, ProductOriginsMustBeKnownToBeAligned) {
  std::string text = instruction("mma_128");
  text.replace(text.find("origin instance * 64"), 20, "origin item");
  EXPECT_THAT(problem_of(placed(text)),
              HasSubstr("operand 'a' of a product starts at item, which is not known to be a multiple of 8"));
}

TEST(EmitErrors, TooManyHardwareBarriers) {
  std::string text = instruction("shared_blocked");
  const std::string found = "barrier written: participants 1";
  text.replace(text.find(found), found.size(), found + " count 16");
  text.replace(text.find("barrier_sync written"), 20, "barrier_sync written[item]");
  EXPECT_THAT(problem_of(placed(text)), HasSubstr("a block has 16 hardware barriers"));
}

TEST(EmitErrors, TypesWithoutAMemoryForm) {
  auto parsed = program::parse(instruction("global_bytes"), "test.program").value();
  parsed.tensors[0].type = ScalarType::i4;
  EXPECT_THAT(problem_of(placed(parsed)), HasSubstr("tensor 'X' has type i4"));
}

}  // namespace
}  // namespace pipethreader::emit
