// Uniform integer expressions in a normal form in which equal things of different roles look equal: linear sums of
// atoms. An atom is a parameter, the work item, a loop's counter, a coordinate, or an opaque function of
// linear sums. Conditions become questions: and, or, not, choices over "sum >= 0".
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "program/program.h"

namespace pipethreader::verify {

// constant + sum of coefficient * atom, atoms ascending.
struct Linear {
  std::int64_t constant = 0;
  std::vector<std::pair<int, std::int64_t>> terms;
  bool operator==(const Linear&) const = default;
  [[nodiscard]] bool is_constant() const { return terms.empty(); }
};

[[nodiscard]] Linear plus(const Linear& a, const Linear& b, std::int64_t factor = 1);  // a + factor * b
[[nodiscard]] Linear times(const Linear& a, std::int64_t factor);

// A counter on which an opaque atom depends: its value is the counter of loop `depth`, plus `offset`.
struct Hole {
  int depth = 0;
  std::int64_t offset = 0;
};

struct Atom {
  enum class Kind : std::uint8_t { param, item, counter, coord, opaque };
  Kind kind = Kind::param;
  int index = 0;  // of the parameter, the loop's depth in its role, the coordinate's dimension
  Function function = Function::add;
  std::vector<Linear> args;
  // Of opaque atoms: the text with its counters left out names the same function in every role.
  int pattern = -1;
  std::vector<Hole> holes;
  bool uses_item = false;
  bool uses_counter = false;
};

// sum >= 0. `sum` has at most one counter and one other atom, with opposite signs, where that is possible: a comparison
// of two integers. Else `atom` stands for its truth (-1: not needed). `parts` is the sum with nothing joined, for when
// some of it has a known value.
struct Leaf {
  Linear sum;
  Linear parts;
  int atom = -1;
};

struct Question {
  enum class Kind : std::uint8_t { constant, leaf, all, any, negation, choice };
  Kind kind = Kind::constant;
  bool value = true;
  Leaf leaf;
  std::vector<Question> parts;  // choice: if the first holds the second, else the third
};

// An integer that is one atom plus a constant, after the choices (min, max, select) in it.
struct Value {
  int atom = -1;  // -1: the constant alone
  std::int64_t constant = 0;
  std::vector<Question> condition;  // one: if it holds the first part, else the second
  std::vector<Value> parts;
};

struct Interval {
  std::int64_t low = 0;
  std::int64_t high = 0;
};
inline constexpr std::int64_t no_limit = std::int64_t{1} << 40;

// What an expression of one role instance is built with.
struct Scope {
  int instance = 0;
  int cluster_rank = 0;
  std::map<int, Linear> vars;        // by VarId
  std::vector<Interval> counters;    // by loop depth
  std::vector<std::int64_t> coords;  // extents of the tile's dimensions
};

class Terms {
 public:
  explicit Terms(const program::Program& program) : program_(program) {}

  // The normal form; nothing when the expression is not uniform (a fragment) or uses a variable not yet assigned.
  [[nodiscard]] std::optional<Linear> build(program::ExprId expr, const Scope& scope);
  [[nodiscard]] Question question(const Linear& truth);  // truth != 0
  [[nodiscard]] Question at_least_zero(const Linear& sum);
  [[nodiscard]] Value value(const Linear& sum);
  [[nodiscard]] Linear counter(int depth);
  [[nodiscard]] Linear item();
  [[nodiscard]] Linear floor_division(const Linear& a, std::int64_t divisor);

  [[nodiscard]] const Atom& atom(int id) const { return atoms_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] int pattern_count() const { return static_cast<int>(patterns_.size()); }
  [[nodiscard]] const std::string& pattern_text(int pattern) const {
    return pattern_text_[static_cast<std::size_t>(pattern)];
  }
  [[nodiscard]] Interval bounds(const Linear& sum, const Scope& scope) const;
  [[nodiscard]] std::string text(const Linear& sum) const;

  // The value with concrete parameters, item and loop counters (by depth).
  [[nodiscard]] std::int64_t value(const Linear& sum, const std::vector<double>& params, std::int64_t item,
                                   const std::vector<std::int64_t>& counters) const;

 private:
  const program::Program& program_;
  std::vector<Atom> atoms_;
  std::map<std::string, int> interned_;
  std::map<std::string, int> patterns_;
  std::vector<std::string> pattern_text_;

  [[nodiscard]] Linear atom_sum(Atom atom);
  [[nodiscard]] Linear call(Function function, std::vector<Linear> args);
  [[nodiscard]] Linear modulo(const Linear& a, std::int64_t divisor);
  void find_pattern(Atom& atom);
  [[nodiscard]] std::string pattern_key(const Linear& sum, std::vector<Hole>& holes, bool readable) const;
  [[nodiscard]] std::string pattern_key(const Atom& atom, std::vector<Hole>& holes, bool readable) const;
  [[nodiscard]] Interval bounds(const Atom& atom, const Scope& scope) const;
  [[nodiscard]] Leaf reduced(Linear sum);
  [[nodiscard]] Linear joined(const Linear& sum);
  [[nodiscard]] Linear as_one_atom(const Linear& sum);
  // The choice in a sum, as a condition and the sums that it chooses from; false when there is none.
  bool split(const Linear& sum, Question& condition, Linear& yes, Linear& no);
};

[[nodiscard]] std::int64_t floor_div(std::int64_t a, std::int64_t b);
[[nodiscard]] std::int64_t floor_mod(std::int64_t a, std::int64_t b);

}  // namespace pipethreader::verify
