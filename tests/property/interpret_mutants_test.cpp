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

// Small, yet with every ring going round more than twice, and several work items a cluster.
std::vector<double> busy_sizes(const std::string& example) {
  if (example == "attention") return {3, 257, 0.2};
  if (example == "matmul" || example == "turns") return {129, 129, 450};
  if (example == "cluster_matmul") return {257, 129, 450};
  if (example == "plain_copies") return {65, 65, 330};
  return test::sizes_for(example).back();
}

RunOptions options_for(int seed) {
  RunOptions options;
  options.seed = static_cast<std::uint64_t>(seed);
  options.clusters = 1 + seed % 2;
  options.interleaving = seed % 4 == 0 ? Interleaving::random : Interleaving::adversarial;
  return options;
}

std::optional<Fault> first_fault(const program::Program& program, const std::vector<double>& sizes, int seeds) {
  for (int seed = 0; seed < seeds; ++seed) {
    Arguments arguments = test::random_arguments(program, sizes, 5);
    if (const auto report = run(program, arguments, options_for(seed)); !report) return report.error();
  }
  return std::nullopt;
}

class Examples : public ::testing::TestWithParam<std::string> {};

TEST_P(Examples, HaveNoFaultUnderAnyInterleaving) {
  const program::Program program = test::example_program(GetParam());
  const std::optional<Fault> fault = first_fault(program, busy_sizes(GetParam()), 60 / PIPETHREADER_TEST_DIVISOR);
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
  const program::Program original = test::example_program(GetParam());
  std::vector<std::pair<program::RoleId, program::Path>> places;
  program::for_each_instr(original, [&](program::RoleId role, const program::Instr& instr, const program::Path& path) {
    if (synchronises(instr)) places.emplace_back(role, path);
  });
  for (const auto& [role, path] : places) {
    program::Program mutant = original;
    program::Block& body = mutant.roles[static_cast<std::size_t>(role.index)].body;
    program::find(body, path)->op = std::monostate{};
    const std::optional<Fault> fault = first_fault(mutant, busy_sizes(GetParam()), 16);
    EXPECT_TRUE(fault) << GetParam() << " works without " << print(original, role, path);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Examples, ::testing::ValuesIn(test::example_programs()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace pipethreader::interpret
