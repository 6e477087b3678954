// What is known about a kernel's dims and axes at one place of it, and proofs from that: that an index stays in its
// tensor, that a divisor is positive. Complete for nothing, wrong never: a proof holds for all sizes that `require`
// admits. Used by check(); later stages ask the same questions about masks and tiles.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "kernel/kernel.h"
#include "kernel/polynomial.h"

namespace pipethreader::kernel {

class Domain {
 public:
  explicit Domain(const Kernel& kernel);  // knows the dims and the requirements

  void add_axis(AxisId axis);                 // 0 <= axis < extent, and so extent >= 1
  void assume(ExprId condition, bool truth);  // takes from it what speaks about integers

  // Whether no point is left for certain.
  [[nodiscard]] bool empty() const { return empty_; }

  // Whether different points have different indices: no two of them write the same element.
  [[nodiscard]] bool tells_apart(const std::vector<ExprId>& indices, const std::vector<AxisId>& axes);

  // An integer expression; nothing if it reads values or is not made of integers.
  [[nodiscard]] std::optional<Polynomial> polynomial(ExprId expr);
  [[nodiscard]] bool proves_nonnegative(const Polynomial& p, int deepest = 6) const;

 private:
  struct Quotient {
    Polynomial numerator;
    Polynomial denominator;
    Variable variable;
  };

  Variable fresh();
  [[nodiscard]] bool moves(const Polynomial& p) const;  // differs between points
  std::optional<Variable> determined(const Polynomial& index, const std::vector<bool>& known) const;
  Polynomial of_dim(DimId dim);
  Polynomial expanded(Polynomial p) const;
  std::optional<Polynomial> call(ExprId id);
  std::optional<Polynomial> floor_divide(const Polynomial& numerator, const Polynomial& denominator);
  Polynomial extremum(const Polynomial& a, const Polynomial& b, bool largest);
  Polynomial opaque(ExprId expr);
  void require(ExprId condition, bool equations);
  bool solve(ExprId side, ExprId other);  // whether it says what one variable is
  void fact(const Polynomial& nonnegative);
  void comparison(Function f, const Polynomial& a, const Polynomial& b, bool truth);
  void positive(const Polynomial& p);
  [[nodiscard]] bool obvious(const Polynomial& p) const;
  [[nodiscard]] std::vector<Variable> to_eliminate(const Polynomial& p) const;
  [[nodiscard]] bool search(const Polynomial& p, int depth, int& budget) const;

  const Kernel* k_;
  std::vector<bool> nonnegative_;  // by variable
  std::vector<bool> positive_;
  std::vector<bool> moving_;
  std::map<Variable, Polynomial> extents_;  // of the axes
  std::map<DimId, Variable> dims_;
  std::map<AxisId, Variable> axes_;
  std::vector<std::pair<ExprId, Variable>> opaque_;
  std::vector<Quotient> quotients_;
  std::map<Variable, Polynomial> solved_;  // from equations among the requirements
  std::vector<Polynomial> facts_;          // each >= 0
  bool empty_ = false;
};

}  // namespace pipethreader::kernel
