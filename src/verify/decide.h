// Answers questions from what is known of the shared integers, or says on what the answer hangs. Lanes that ask the
// same thing get the same answer, because they ask about the same zone variables.
#pragma once

#include <optional>

#include "verify/state.h"

namespace pipethreader::verify {

enum class Answer : std::uint8_t { no, yes, open };

// The answer is yes exactly where x - y <= limit.
struct OpenPoint {
  int x = 0;
  int y = 0;
  std::int64_t limit = 0;
};

class Decider {
 public:
  Decider(const Model& model, State& state) : model_(model), state_(state) {}

  // With Answer::open, `point` is a comparison that the answer depends on.
  [[nodiscard]] Answer answer(int lane, const Question& question, OpenPoint& point);

  // A zone variable and an offset that make the value.
  struct Sum {
    int variable = 0;
    std::int64_t offset = 0;
  };
  [[nodiscard]] std::optional<Sum> value(int lane, const Value& value, OpenPoint& point);

  // The value when all that it depends on is fixed (counters, also modulo something).
  [[nodiscard]] std::optional<std::int64_t> value(int lane, const Linear& sum) const;

 private:
  const Model& model_;
  State& state_;

  [[nodiscard]] Answer answer(int lane, const Leaf& leaf, OpenPoint& point);
  [[nodiscard]] std::optional<Answer> answer(int lane, const Linear& sum, OpenPoint& point);
  [[nodiscard]] Answer compare(const OpenPoint& at, OpenPoint& point) const;
  [[nodiscard]] std::optional<std::int64_t> value(int lane, const Atom& atom) const;
  [[nodiscard]] std::optional<std::int64_t> remainder(int lane, const Atom& modulo) const;
  [[nodiscard]] int variable(int lane, int atom);
  [[nodiscard]] const Symbol* find(int lane, const Atom& atom) const;
  [[nodiscard]] Interval range(int lane, int atom) const;
};

// Carries what is known of integers over to the sums of them that stand as one unknown, and back; false when they
// contradict each other, so that nothing runs that way.
[[nodiscard]] bool sums_agree(const Model& model, State& state);

}  // namespace pipethreader::verify
