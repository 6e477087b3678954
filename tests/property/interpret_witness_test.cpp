// The way that a proof's witness takes shows a fault here too, though no number is computed.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "interpret/interpret.h"
#include "support/mutations.h"
#include "support/programs.h"
#include "verify/verify.h"

namespace pipethreader::interpret {
namespace {

class Examples : public ::testing::TestWithParam<std::string> {};

TEST_P(Examples, MutantsFaultOnTheWayOfTheirWitness) {
  int replayed = 0;
  for (const test::Mutant& mutant : test::mutants(test::example_program(GetParam()))) {
    const auto verified = verify::verify(mutant.program);
    if (verified || verified.error().witness.fault == verify::Witness::Fault::none) continue;
    const verify::Witness& witness = verified.error().witness;
    bool faulted = false;
    for (int seed = 0; seed < 40 && !faulted; ++seed) {
      RunOptions options;
      options.seed = static_cast<std::uint64_t>(seed);
      options.interleaving = seed % 2 == 0 ? Interleaving::random : Interleaving::adversarial;
      const auto report = run_with_decisions(mutant.program, witness.decisions_of_lane, options);
      faulted =
          !report && report.error().kind != FaultKind::unsupported && report.error().kind != FaultKind::step_limit;
    }
    EXPECT_TRUE(faulted) << GetParam() << ", " << mutant.change << "\n  " << verify::name(witness.fault) << ": "
                         << witness.explanation;
    ++replayed;
  }
  RecordProperty("replayed", replayed);
}

INSTANTIATE_TEST_SUITE_P(All, Examples, ::testing::ValuesIn(test::example_programs()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace pipethreader::interpret
