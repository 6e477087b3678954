#include "kernel/polynomial.h"

#include <algorithm>

namespace pipethreader::kernel {

Polynomial Polynomial::variable(Variable v) {
  Polynomial p;
  p.add_term({v}, 1);
  return p;
}

void Polynomial::add_term(const Monomial& m, std::int64_t coefficient) {
  if (coefficient == 0) return;
  const auto [at, fresh] = terms_.try_emplace(m, coefficient);
  if (fresh) return;
  if (__builtin_add_overflow(at->second, coefficient, &at->second)) known_ = false;
  if (at->second == 0) terms_.erase(at);
}

std::optional<std::int64_t> Polynomial::constant() const {
  if (!known_) return std::nullopt;
  if (terms_.empty()) return 0;
  if (terms_.size() == 1 && terms_.begin()->first.empty()) return terms_.begin()->second;
  return std::nullopt;
}

std::vector<Variable> Polynomial::variables() const {
  std::vector<Variable> all;
  for (const auto& [m, c] : terms_) all.insert(all.end(), m.begin(), m.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

Polynomial operator+(const Polynomial& a, const Polynomial& b) {
  Polynomial sum = a;
  sum.known_ = a.known_ && b.known_;
  for (const auto& [m, c] : b.terms_) sum.add_term(m, c);
  return sum;
}

Polynomial operator-(const Polynomial& a, const Polynomial& b) { return a + Polynomial(-1) * b; }

Polynomial operator*(const Polynomial& a, const Polynomial& b) {
  Polynomial product;
  product.known_ = a.known_ && b.known_;
  for (const auto& [m, c] : a.terms_)
    for (const auto& [n, d] : b.terms_) {
      Monomial both;
      std::merge(m.begin(), m.end(), n.begin(), n.end(), std::back_inserter(both));
      std::int64_t coefficient = 0;
      if (__builtin_mul_overflow(c, d, &coefficient)) product.known_ = false;
      product.add_term(both, coefficient);
    }
  return product;
}

std::optional<Polynomial::Linear> Polynomial::linear_in(Variable v) const {
  Linear parts;
  for (const auto& [m, c] : terms_) {
    const auto times = std::count(m.begin(), m.end(), v);
    if (times > 1) return std::nullopt;
    Monomial others = m;
    std::erase(others, v);
    (times == 1 ? parts.coefficient : parts.rest).add_term(others, c);
  }
  parts.coefficient.known_ = parts.rest.known_ = known_;
  return parts;
}

Polynomial Polynomial::substituted(Variable v, const Polynomial& by) const {
  Polynomial result;
  result.known_ = known_;
  for (const auto& [m, c] : terms_) {
    Monomial others = m;
    std::erase(others, v);
    Polynomial term;
    term.add_term(others, c);
    for (std::size_t i = others.size(); i < m.size(); ++i) term = term * by;
    result = result + term;
  }
  return result;
}

std::optional<Polynomial::Division> Polynomial::divided_by(const Polynomial& divisor) const {
  if (divisor.terms_.size() != 1) {
    if (*this == divisor) return Division{1, 0};
    return std::nullopt;
  }
  const auto& [by, by_coefficient] = *divisor.terms_.begin();
  Division parts;
  parts.quotient.known_ = parts.rest.known_ = known_ && divisor.known_;
  for (const auto& [m, c] : terms_) {
    const bool divides = c % by_coefficient == 0 && std::includes(m.begin(), m.end(), by.begin(), by.end());
    Monomial others;
    if (divides) std::set_difference(m.begin(), m.end(), by.begin(), by.end(), std::back_inserter(others));
    if (divides)
      parts.quotient.add_term(others, c / by_coefficient);
    else
      parts.rest.add_term(m, c);
  }
  return parts;
}

}  // namespace pipethreader::kernel
