// Every single synchronising instruction of the example programs is needed: without it some interleaving shows a fault.
// And no interleaving finds fault with the examples themselves.
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "interpret/interpret.h"
#include "program/walk.h"
#include "support/programs.h"
#include "support/reference.h"

namespace pipethreader::interpret {
namespace {

// Several work items a cluster; once every ring goes round more than twice in an item, once loops are short.
std::vector<std::vector<double>> busy_sizes(const std::string& example) {
  if (example == "attention") return {{3, 257, 0.2}, {5, 64, 0.2}};
  if (example == "matmul" || example == "turns") return {{129, 129, 456}, {300, 129, 64}};
  if (example == "cluster_matmul") return {{257, 129, 456}, {257, 257, 64}};
  if (example == "plain_copies") return {{65, 65, 330}, {129, 129, 64}};
  return {test::sizes_for(example).back()};
}

// At the end of a block a barrier may be left with an arrival that nobody takes up.
bool harmless(const std::string& example, const std::string& place) {
  return example == "turns" && place == "consumer.2.0 barrier_sync";
}

RunOptions options_for(int seed) {
  RunOptions options;
  options.seed = static_cast<std::uint64_t>(seed);
  options.clusters = 1 + seed % 2;
  options.interleaving = seed % 4 == 0 ? Interleaving::random : Interleaving::adversarial;
  return options;
}

std::optional<Fault> first_fault(const program::Program& program, const std::string& example, int seeds) {
  for (int seed = 0; seed < seeds; ++seed)
    for (const std::vector<double>& sizes : busy_sizes(example)) {
      Arguments arguments = test::random_arguments(program, sizes, 5);
      if (const auto report = run(program, arguments, options_for(seed)); !report) return report.error();
    }
  return std::nullopt;
}

class Examples : public ::testing::TestWithParam<std::string> {};

TEST_P(Examples, HaveNoFaultUnderAnyInterleaving) {
  const program::Program program = test::example_program(GetParam());
  const std::optional<Fault> fault = first_fault(program, GetParam(), 40);
  EXPECT_FALSE(fault) << fault->format();
}

bool synchronises(const program::Instr& instr) {
  using namespace program;
  return std::visit(
      [](const auto& op) {
        using Op = std::remove_cvref_t<decltype(op)>;
        return std::is_same_v<Op, RingAcquire> || std::is_same_v<Op, RingCommit> || std::is_same_v<Op, RingWait> ||
               std::is_same_v<Op, RingRelease> || std::is_same_v<Op, RingAdvance> || std::is_same_v<Op, BarrierSync> ||
               std::is_same_v<Op, BarrierArrive> || std::is_same_v<Op, ProxyFence> || std::is_same_v<Op, ClusterSync> ||
               std::is_same_v<Op, BulkStoreWait> || std::is_same_v<Op, MmaCommit> || std::is_same_v<Op, MmaWait>;
      },
      instr.op);
}

TEST_P(Examples, NeedEachOfTheirSynchronisingInstructions) {
  program::Program original = test::example_program(GetParam());
  // With one work item a block, what orders items would go unneeded.
  program::for_each_instr(original, [](program::RoleId, program::Instr& instr, const program::Path&) {
    if (auto* work = std::get_if<program::ForWork>(&instr.op)) work->order = program::WorkOrder::persistent;
  });
  std::vector<std::pair<program::RoleId, program::Path>> places;
  program::for_each_instr(original, [&](program::RoleId role, const program::Instr& instr, const program::Path& path) {
    if (synchronises(instr)) places.emplace_back(role, path);
  });
  for (const auto& [role, path] : places) {
    program::Program mutant = original;
    program::Block& body = mutant.roles[static_cast<std::size_t>(role.index)].body;
    program::find(body, path)->op = std::monostate{};
    const std::optional<Fault> fault = first_fault(mutant, GetParam(), 16);
    const std::string place = print(original, role, path);
    EXPECT_EQ(fault.has_value(), !harmless(GetParam(), place)) << GetParam() << " without " << place;
    if (!fault) continue;
    EXPECT_NE(fault->kind, FaultKind::arguments) << fault->explanation;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Examples, ::testing::ValuesIn(test::example_programs()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace pipethreader::interpret
