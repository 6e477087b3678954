// Runs all lanes of a state as far as they can go without a decision that is still open. Because synchronisation is
// monotone, the order in which lanes take turns changes nothing about what is ordered behind what; this one lets each
// go on until it must wait.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "verify/decide.h"
#include "verify/state.h"
#include "verify/verify.h"

namespace pipethreader::verify {

struct Fault {
  Witness::Fault kind = Witness::Fault::none;
  std::string text;
};

// A lane stands before a decision that both ways are possible for.
struct OpenDecision {
  int lane = 0;
  bool next_item = false;
  OpenPoint point;  // unless next_item
};

// Answers that a lane took, for a witness: those that constants do not decide, in the lane's order.
using Answers = std::vector<std::vector<std::int64_t>>;

class Machine {
 public:
  Machine(const Model& model, State& state, Answers* answers = nullptr)
      : model_(model), state_(state), decider_(model, state), answers_(answers) {}

  // Until every lane has ended, waits, or stands before an open decision. Fails at the first fault; a deadlock is one.
  // With `pause`, stops earlier, after so many steps and at a point that comes again in each iteration of a loop.
  [[nodiscard]] std::optional<Fault> run(std::int64_t pause = INT64_MAX);
  [[nodiscard]] bool paused() const { return paused_; }

  // The decision to take next; nothing when all lanes have ended.
  [[nodiscard]] std::optional<OpenDecision> decision() const;

 private:
  enum class Progress : std::uint8_t { advanced, waits, open };

  const Model& model_;
  State& state_;
  Decider decider_;
  Answers* answers_ = nullptr;
  std::optional<Fault> fault_;
  std::vector<std::optional<OpenPoint>> open_;  // by lane
  bool paused_ = false;

  [[nodiscard]] LaneState& lane(int index) { return state_.lanes[static_cast<std::size_t>(index)]; }
  [[nodiscard]] const Step& step(int index) const;
  void fail(Witness::Fault kind, int lane, const std::string& text);
  [[nodiscard]] std::string who(int lane) const;

  Progress advance(int lane);
  Progress decide(int lane, const Step& step);
  [[nodiscard]] bool all_ways_alike(int lane, const Step& step);
  void answer_no(int lane, int branch);
  [[nodiscard]] bool pass(int lane, int from, int to, Bits& touched);
  [[nodiscard]] bool pass_branch(int lane, int branch, Bits& touched);
  Progress next_item(int lane, const Step& step);
  Progress execute(int lane, const Step& step);
  void end(int lane);
  void end_of_all();
  void deadlock();
  [[nodiscard]] std::string waits_for(int lane) const;

  // rings.cpp
  struct Place {
    std::int64_t fill = 0;
    int slot = 0;
  };
  [[nodiscard]] Place place(int lane, program::RingId ring, int lag) const;
  Progress acquire(int lane, program::RingId ring);
  Progress wait(int lane, program::RingId ring, int lag);
  void commit(int lane, program::RingId ring);
  void release(int lane, program::RingId ring, int lag);
  void arrive_full(int lane, program::RingId ring, std::int64_t fill);
  void settle_full(int block, program::RingId ring, int slot);
  void settle_empty(int block, program::RingId ring, int slot);
  void copy_arrives(int lane, int block, const program::CopyBulk& copy, const Place& place);
  [[nodiscard]] bool knows(int lane, int event) const { return state_.sets.has(model_.known(lane), event); }
  void reach(int lane, int block);

  // rings.cpp: meetings
  Progress meet(int lane, int meeting, bool stay);
  void fence(int lane);
  void threads_meet(int lane);

  // accesses.cpp
  [[nodiscard]] bool ordered(int lane, int missing, const char* what, const program::Buffer& buffer);
  void happen(int event);
  void write(int lane, int block, const SharedAccess& access, const Place& place, bool by_copy);
  void read(int lane, const SharedAccess& access, const Place& place, int kind, Bits* into);
  void copy(int lane, const Step& step, const program::CopyBulk& op);
  Progress product(int lane, const Step& step, const program::Mma& op);
  void wait_products(int lane, int pending);
  void read_fragment(int lane, int fragment);
  void touch_fragment(int lane, int fragment);
  void write_fragment(int lane, int fragment, bool conditional);
  void touch_fragments(int lane, const Step& step);
  void scratch(int lane, const SharedAccess& access);
  void store(int lane, const Step& step);
  void wait_stores(int lane, int pending);
  [[nodiscard]] Place place_of(int lane, const program::BufferRef& ref);
  [[nodiscard]] std::string fragment_name(int fragment) const;
};

}  // namespace pipethreader::verify
