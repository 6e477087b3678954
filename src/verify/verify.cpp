#include "verify/verify.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "program/walk.h"
#include "verify/explore.h"
#include "verify/structure.h"
#include "verify/witness.h"

namespace pipethreader::verify {

std::string_view name(Witness::Fault fault) {
  switch (fault) {
    case Witness::Fault::none:
      return "none";
    case Witness::Fault::race:
      return "race";
    case Witness::Fault::deadlock:
      return "deadlock";
    case Witness::Fault::wrong_value:
      return "wrong value";
    case Witness::Fault::protocol:
      return "protocol";
  }
  return "";
}

struct Prover {
  static VerifiedProgram seal(program::Program program, std::string proof) {
    return {std::move(program), std::move(proof)};
  }
};

namespace {

Rejection rejection(Error error, Witness witness = {}) { return {std::move(error), std::move(witness)}; }

Rejection faulty(const program::Program& program, Witness witness) {
  const bool confirmed = witness.fault != Witness::Fault::none;
  std::string message = fmt::format("program '{}' is rejected, {}: {}", program.name,
                                    confirmed ? name(witness.fault) : "not proved", witness.explanation);
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

// What an attempt assumes to tell lanes' integers apart; each is sound, none proves everything.
struct Approach {
  bool count_down_loops_up = false;  // a loop with step -1 is compared by its trips instead of by its variable
  std::int64_t largest = 2;          // integers are told apart up to the constants below it
};

bool counts_down(const program::Program& program) {
  bool found = false;
  program::for_each_instr(program, [&](program::RoleId, const program::Instr& instr, const program::Path&) {
    const auto* loop = std::get_if<program::For>(&instr.op);
    found = found || (loop != nullptr && loop->step == -1);
  });
  return found;
}

struct Attempt {
  std::string proof;  // empty: none
  Rejection rejection;
  bool confirmed = false;  // the fault happens with exact counts too
};

Attempt attempt(const program::Program& program, const Approach& approach, std::int64_t budget) {
  const auto terms = std::make_shared<Terms>(program);
  auto compiled = compile(program, *terms, approach.count_down_loops_up);
  if (!compiled) return {"", rejection(compiled.error()), true};
  const Model model(program, *terms, std::move(*compiled), approach.largest);
  const Exploration explored = explore(model, budget);
  if (explored.over_budget) {
    auto unproved = fail("program '{}' is rejected: not proved within {} states", program.name, budget);
    unproved.value().gave_up = true;
    return {"", rejection(std::move(unproved.value()))};
  }
  if (!explored.fault) return {proof_of(model, explored), {}};
  Witness witness = make_witness(model, terms, explored);
  const bool confirmed = witness.fault != Witness::Fault::none;
  return {"", faulty(program, std::move(witness)), confirmed};
}

}  // namespace

tl::expected<VerifiedProgram, Rejection> verify(program::Program program, const Options& options) {
  constexpr std::int64_t everything = std::int64_t{1} << 24;
  constexpr std::int64_t exact_budget = 5'000;
  if (auto valid = program::validate(program); !valid) return tl::unexpected(rejection(valid.error()));
  if (auto sound = check_structure(program, options); !sound) return tl::unexpected(rejection(sound.error()));
  std::vector<Approach> approaches{{false, 2}, {false, 10}};
  if (counts_down(program)) approaches.push_back({true, 10});
  approaches.push_back({false, everything});
  std::optional<Rejection> first;
  for (const Approach& approach : approaches) {
    const std::int64_t budget =
        approach.largest == everything ? std::min(exact_budget, options.state_budget) : options.state_budget;
    Attempt tried = attempt(program, approach, budget);
    if (!tried.proof.empty()) return Prover::seal(std::move(program), std::move(tried.proof));
    if (tried.confirmed) return tl::unexpected(std::move(tried.rejection));
    if (!first) first = std::move(tried.rejection);
  }
  return tl::unexpected(std::move(*first));
}

}  // namespace pipethreader::verify
