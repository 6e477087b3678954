// Damaged device programs at the scale of the compiler's own output. What the proof rejects, the interpreter shows to
// fail on the way of the witness; what it accepts survives adversarial interleavings and computes what the kernel says.
// PIPETHREADER_MUTATION_SEEDS: interleavings for each accepted mutant. PIPETHREADER_MUTANTS: how many of each program,
// chosen by PIPETHREADER_MUTATION_FIRST; 0: all.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <random>

#include "driver/pipeline.h"
#include "interpret/interpret.h"
#include "kernel/kernel.h"
#include "oracle/oracle.h"
#include "program/program.h"
#include "support/compiled/compiled_programs.h"
#include "support/mutations.h"
#include "support/programs.h"
#include "support/reference.h"
#include "verify/verify.h"

namespace pipethreader {
namespace {

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

struct Case {
  interpret::Arguments arguments;
  std::function<std::string(const interpret::Arguments&)> difference;  // after a run: empty when it is right
};

struct Subject {
  std::string name;
  program::Program program;
  std::vector<Case> cases;
};

Subject from_compiled(const test::CompiledProgram& compiled) {
  Subject subject{compiled.name, compiled.program, {}};
  for (const std::vector<std::int64_t>& sizes : compiled.sizes) {
    std::vector<oracle::Range> ranges;
    for (const kernel::Scalar& scalar : compiled.kernel.scalars) ranges.push_back({scalar.name, 0.1, 0.3});
    auto inputs = oracle::random_inputs(compiled.kernel, sizes, 7, ranges);
    if (!inputs) throw std::runtime_error(inputs.error().format());
    auto expected = oracle::evaluate(compiled.kernel, *inputs, oracle::Partition::fixed(16));
    if (!expected) throw std::runtime_error(expected.error().format());
    subject.cases.push_back(
        {test::arguments_for(compiled.program, compiled.kernel, *inputs),
         [kernel = compiled.kernel, expected = *std::move(expected)](const interpret::Arguments& arguments) {
           return test::difference(kernel, expected, arguments);
         }});
  }
  return subject;
}

Subject from_example(const std::string& name) {
  Subject subject{name, test::example_program(name), {}};
  const auto sizes = test::sizes_for(name);
  for (std::size_t i = 0; i < sizes.size(); i += std::max<std::size_t>(1, sizes.size() - 1)) {
    interpret::Arguments arguments = test::random_arguments(subject.program, sizes[i], 7);
    auto expected = test::reference(name, arguments);
    std::size_t output = 0;
    while (!subject.program.tensors[output].output) ++output;
    subject.cases.push_back({std::move(arguments), [expected, output](const interpret::Arguments& after) {
                               for (std::size_t e = 0; e < expected.size(); ++e) {
                                 const double found = after.tensors[output][e];
                                 if (!(std::fabs(found - expected[e].value) <= expected[e].error))
                                   return fmt::format("element {}: {}, expected {}", e, found, expected[e].value);
                               }
                               return std::string();
                             }});
  }
  return subject;
}

std::vector<Subject> subjects() {
  std::vector<Subject> all;
  for (const test::CompiledProgram& compiled : test::compiled_programs()) all.push_back(from_compiled(compiled));
  for (const std::string& name : test::example_programs()) all.push_back(from_example(name));
  return all;
}

interpret::RunOptions options_for(std::uint64_t seed) {
  interpret::RunOptions options;
  options.seed = seed;
  options.clusters = 1 + static_cast<int>(seed % 2);
  options.interleaving = seed % 4 == 0 ? interpret::Interleaving::random : interpret::Interleaving::adversarial;
  return options;
}

// What goes wrong in the runs of an accepted program: empty when nothing does.
std::string failure(const Subject& subject, const program::Program& program, std::uint64_t seeds, bool same_result) {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const Case& one = subject.cases[seed % subject.cases.size()];
    interpret::Arguments arguments = one.arguments;
    const auto report = interpret::run(program, arguments, options_for(seed));
    if (!report) {
      // Another computation may leave tensors: the proof is about order.
      using interpret::FaultKind;
      const FaultKind kind = report.error().kind;
      if (!same_result && (kind == FaultKind::out_of_bounds || kind == FaultKind::overflow)) continue;
      return fmt::format("seed {}: {}", seed, report.error().format());
    }
    if (!same_result) continue;
    if (std::string different = one.difference(arguments); !different.empty())
      return fmt::format("seed {}: {}", seed, different);
  }
  return {};
}

bool faults_on_its_way(const program::Program& program, const verify::Witness& witness) {
  using interpret::FaultKind;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const auto report = interpret::run_with_decisions(program, witness.decisions_of_lane, options_for(seed));
    if (report) continue;
    const FaultKind kind = report.error().kind;
    if (kind == FaultKind::race || kind == FaultKind::wrong_value || kind == FaultKind::protocol ||
        kind == FaultKind::deadlock || kind == FaultKind::uninitialised)
      return true;
  }
  return false;
}

struct Tally {
  std::uint64_t mutants = 0;
  std::uint64_t malformed = 0;  // no program at all
  std::uint64_t accepted = 0;
  std::uint64_t witnessed = 0;
  std::uint64_t unproved = 0;  // rejected, and no fault happens with exact counts
};

void try_mutant(const Subject& subject, const test::Mutant& mutant, std::uint64_t seeds, Tally& tally) {
  SCOPED_TRACE(subject.name + ": " + mutant.change);
  ++tally.mutants;
  if (!program::validate(mutant.program)) {
    ++tally.malformed;
    return;
  }
  const auto verified = verify::verify(mutant.program, {.state_budget = 20'000});
  if (verified) {
    ++tally.accepted;
    EXPECT_EQ(failure(subject, mutant.program, seeds, mutant.same_result), "");
    return;
  }
  const verify::Witness& witness = verified.error().witness;
  if (witness.fault == verify::Witness::Fault::none) {
    ++tally.unproved;
    if (from_environment("PIPETHREADER_MUTATION_VERBOSE", 0) != 0)
      fmt::print("unproved: {}: {}\n  {}\n", subject.name, mutant.change, verified.error().error.format());
    return;
  }
  ++tally.witnessed;
  EXPECT_TRUE(faults_on_its_way(mutant.program, witness)) << verify::name(witness.fault) << ": " << witness.explanation;
}

TEST(CompiledMutants, AreRejectedWithAWitnessOrRunRight) {
  const std::uint64_t seeds = from_environment("PIPETHREADER_MUTATION_SEEDS", 5);
  const std::uint64_t most = from_environment("PIPETHREADER_MUTANTS", 0);
  const std::uint64_t first = from_environment("PIPETHREADER_MUTATION_FIRST", 1);
  Tally all;
  for (const Subject& subject : subjects()) {
    ASSERT_EQ(failure(subject, subject.program, 4, true), "") << subject.name << "\n"
                                                              << program::print(subject.program);
    const auto proved = verify::verify(subject.program, {.state_budget = 20'000});
    ASSERT_TRUE(proved) << subject.name << ": " << proved.error().error.format();
    std::vector<test::Mutant> mutants = test::mutants(subject.program);
    const std::size_t possible = mutants.size();
    std::mt19937_64 random(first);
    std::shuffle(mutants.begin(), mutants.end(), random);
    if (most != 0 && mutants.size() > most) mutants.resize(most);
    Tally tally;
    for (const test::Mutant& mutant : mutants) try_mutant(subject, mutant, seeds, tally);
    fmt::print("{}: {} of {} mutants; {} malformed, {} rejected with a witness, {} accepted, {} not proved\n",
               subject.name, tally.mutants, possible, tally.malformed, tally.witnessed, tally.accepted, tally.unproved);
    std::fflush(stdout);
    all.mutants += tally.mutants;
    all.malformed += tally.malformed;
    all.accepted += tally.accepted;
    all.witnessed += tally.witnessed;
    all.unproved += tally.unproved;
  }
  fmt::print(
      "{} mutants: {} malformed, {} rejected with a witness, {} accepted ({} interleavings each), {} not proved\n",
      all.mutants, all.malformed, all.witnessed, all.accepted, seeds, all.unproved);
  EXPECT_GE(2 * all.witnessed, all.mutants - all.malformed) << "most damage is noticed";
  EXPECT_LE(50 * all.unproved, all.mutants) << "a proof that fails has a witness";
}

}  // namespace
}  // namespace pipethreader
