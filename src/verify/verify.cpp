#include "verify/verify.h"

#include <memory>

#include "verify/explore.h"
#include "verify/structure.h"
#include "verify/witness.h"

namespace pipethreader::verify {

std::string_view name(Witness::Fault fault) {
  switch (fault) {
    case Witness::Fault::none: return "none";
    case Witness::Fault::race: return "race";
    case Witness::Fault::deadlock: return "deadlock";
    case Witness::Fault::wrong_value: return "wrong value";
    case Witness::Fault::protocol: return "protocol";
  }
  return "";
}

struct Prover {
  static VerifiedProgram seal(program::Program program, std::string proof) { return {std::move(program), std::move(proof)}; }
};

namespace {

Rejection rejection(Error error, Witness witness = {}) { return {std::move(error), std::move(witness)}; }

Rejection faulty(const program::Program& program, Witness witness) {
  std::string message = fmt::format("program '{}' is rejected, {}: {}", program.name, name(witness.fault), witness.explanation);
  std::string hint;
  for (const Witness::Count& count : witness.counts) {
    hint += fmt::format("{}{} = {}", hint.empty() ? "with " : ", ", count.expression, count.value);
    if (count.item >= 0) hint += fmt::format(" in work item {} of the block", count.item);
  }
  return rejection(Error(Diagnostic{{}, {}, std::move(message), std::move(hint)}), std::move(witness));
}

std::string proof_of(const Model& model, const Exploration& explored) {
  return fmt::format(
      "every read sees the fill that its cursor names, and behind its last write\n"
      "no slot is written before its last read is over\n"
      "no waiter lags two phases, and every phase has exactly its arrivals and bytes\n"
      "no cyclic wait: {} role instances end at every trip count\n"
      "no fragment is touched while a product may use it, none is read before it is written\n"
      "threads' writes pass a proxy fence before asynchronous units see them\n"
      "nothing is under way at exit; memory and registers hold\n"
      "by exhausting {} states of {} events\n",
      model.lanes, explored.states, model.events.size());
}

}  // namespace

tl::expected<VerifiedProgram, Rejection> verify(program::Program program, const Options& options) {
  if (auto valid = program::validate(program); !valid) return tl::unexpected(rejection(valid.error()));
  if (auto sound = check_structure(program, options); !sound) return tl::unexpected(rejection(sound.error()));
  const auto terms = std::make_shared<Terms>(program);
  auto compiled = compile(program, *terms);
  if (!compiled) return tl::unexpected(rejection(compiled.error()));
  const Model model(program, *terms, std::move(*compiled));
  const Exploration explored = explore(model, options.state_budget);
  if (explored.over_budget) {
    return tl::unexpected(rejection(Error(Diagnostic{
        {}, {}, fmt::format("program '{}' is rejected: not proved within {} states", program.name, options.state_budget), {}})));
  }
  if (explored.fault) return tl::unexpected(faulty(program, make_witness(model, terms, explored)));
  std::string proof = proof_of(model, explored);
  return Prover::seal(std::move(program), std::move(proof));
}

}  // namespace pipethreader::verify
