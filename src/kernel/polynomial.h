// Polynomials with whole coefficients over numbered variables: what sizes and indices are made of. Arithmetic that
// leaves 64 bits makes the result unknown, about which nothing is ever proved.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace pipethreader::kernel {

using Variable = int;
using Monomial = std::vector<Variable>;  // sorted, with repetition; empty is 1

class Polynomial {
 public:
  Polynomial() = default;
  Polynomial(std::int64_t constant) { add_term({}, constant); }  // NOLINT: numbers are polynomials
  static Polynomial variable(Variable v);

  [[nodiscard]] bool known() const { return known_; }
  [[nodiscard]] const std::map<Monomial, std::int64_t>& terms() const { return terms_; }
  [[nodiscard]] std::optional<std::int64_t> constant() const;  // its value if it has no variables
  [[nodiscard]] std::vector<Variable> variables() const;

  // this == coefficient * v + rest with neither part using v; nothing if v occurs otherwise.
  struct Linear;
  [[nodiscard]] std::optional<Linear> linear_in(Variable v) const;
  [[nodiscard]] Polynomial substituted(Variable v, const Polynomial& by) const;
  // this == divisor * quotient + rest, taking out every term that the divisor's single term divides.
  struct Division;
  [[nodiscard]] std::optional<Division> divided_by(const Polynomial& divisor) const;

  friend Polynomial operator+(const Polynomial& a, const Polynomial& b);
  friend Polynomial operator-(const Polynomial& a, const Polynomial& b);
  friend Polynomial operator*(const Polynomial& a, const Polynomial& b);
  friend bool operator==(const Polynomial& a, const Polynomial& b) = default;

 private:
  void add_term(const Monomial& m, std::int64_t coefficient);

  std::map<Monomial, std::int64_t> terms_;  // no zeros
  bool known_ = true;
};

struct Polynomial::Linear {
  Polynomial coefficient;
  Polynomial rest;
};

struct Polynomial::Division {
  Polynomial quotient;
  Polynomial rest;
};

}  // namespace pipethreader::kernel
