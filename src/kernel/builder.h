// Kernels from C++, without text: the same Kernel that parsing the text gives, by the same name checks. As there are
// no lines to point at, errors name what they are about. docs/language.md states the meaning of every part.
//
//   Builder k("matmul");
//   Term M = k.dim("M"), N = k.dim("N"), K = k.dim("K");
//   Tensor A = k.input("A", ScalarType::f16, {M, K}), B = k.input("B", ScalarType::f16, {N, K});
//   Tensor C = k.output("C", ScalarType::f16, {M, N});
//   Axis m = k.parallel("m", M), n = k.parallel("n", N), r = k.axis("k", K);
//   C(m, n) = convert(ScalarType::f16, sum(r, A(m, r) * B(n, r)));
//   Result<Kernel> kernel = k.finish();
//
// Terms are values and may be used any number of times. Statements go into the kernel in the order in which they
// run here. A Builder must outlive the handles it gave out.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernel/kernel.h"

namespace pipethreader::kernel::build {

class Builder;
struct Node;
struct Guarded;

// An expression.
class Term {
 public:
  Term(int number);           // NOLINT: numbers are terms
  Term(std::int64_t number);  // NOLINT
  Term(double number);        // NOLINT
  Term(bool truth);           // NOLINT
  explicit Term(std::shared_ptr<const Node> node) : node_(std::move(node)) {}

  [[nodiscard]] Guarded when(const Term& condition) const;  // v(i) = e.when(c): elsewhere the old value stays
  [[nodiscard]] const std::shared_ptr<const Node>& node() const { return node_; }

 private:
  std::shared_ptr<const Node> node_;
};

struct Guarded {
  Term expr;
  Term condition;
};

// A parallel, inner, streamed or reduced axis; as a term its index.
class Axis : public Term {
 public:
  Axis(std::string name, std::optional<Term> extent);
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::optional<Term>& extent() const { return extent_; }

 private:
  std::string name_;
  std::optional<Term> extent_;
};

// A tensor or a value at indices: a term, and what assignments write.
class Element : public Term {
 public:
  Element(Builder& builder, std::string name, std::vector<Term> indices, std::optional<ScalarType> type);
  Element(const Element&) = default;
  // m(i) = n(i) assigns in the kernel, not the handle.
  // NOLINTNEXTLINE(misc-unconventional-assign-operator,bugprone-unhandled-self-assignment)
  void operator=(const Element& expr) { assign(expr, std::nullopt, false); }
  void operator=(const Term& expr) { assign(expr, std::nullopt, false); }   // NOLINT
  void operator=(const Guarded& g) { assign(g.expr, g.condition, false); }  // NOLINT
  void operator+=(const Term& expr) { assign(expr, std::nullopt, true); }
  void operator+=(const Guarded& g) { assign(g.expr, g.condition, true); }

 private:
  friend class Builder;
  void assign(const Term& expr, const std::optional<Term>& when, bool accumulate);

  Builder* builder_;
  std::string name_;
  std::vector<Term> indices_;
  std::optional<ScalarType> type_;
};

// The name of a tensor or a value; calling it gives an Element.
class Named {
 public:
  Named(Builder& builder, std::string name, std::optional<ScalarType> type = {})
      : builder_(&builder), name_(std::move(name)), type_(type) {}

  template <class... Indices>
  [[nodiscard]] Element operator()(const Indices&... indices) const {
    return Element(*builder_, name_, std::vector<Term>{Term(indices)...}, type_);
  }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  Builder* builder_;
  std::string name_;
  std::optional<ScalarType> type_;
};
using Tensor = Named;
using Value = Named;

struct LoopOptions {
  std::optional<Term> where = {};
  bool ordered = false;
  // How two partial states combine: a name for each carried value of the second, and the statements.
  std::vector<Value> others = {};
  std::function<void()> combine = {};
};

class Builder {
 public:
  explicit Builder(const std::string& name);
  ~Builder();
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  Term dim(const std::string& name);
  Tensor input(const std::string& name, ScalarType type, const std::vector<Term>& shape);
  Tensor output(const std::string& name, ScalarType type, const std::vector<Term>& shape);
  Term scalar(const std::string& name, ScalarType type);
  Term option(const std::string& name, bool value);
  Term option(const std::string& name, int value);
  Term option(const std::string& name, double value);
  void require(const Term& condition);

  Axis parallel(const std::string& name, const Term& extent);
  Axis inner(const std::string& name, const Term& extent);
  // An axis for a loop or for reductions, or, without an extent, a new one of a left side.
  [[nodiscard]] Axis axis(const std::string& name, std::optional<Term> extent = {}) const;
  // A value; its type is inferred if none is given.
  Value value(const std::string& name, std::optional<ScalarType> type = {});

  void carry(const Element& target, const Term& initial);
  void loop(const Axis& axis, const std::function<void()>& body) { loop(axis, {}, body); }
  void loop(const Axis& axis, const LoopOptions& options, const std::function<void()>& body);

  // The kernel, not yet checked, or every name error. Once.
  [[nodiscard]] Result<Kernel> finish();

 private:
  friend class Element;
  struct State;
  std::unique_ptr<State> state_;
};

// --- expressions -----------------------------------------------------------------------------------------------

Term operator-(const Term& a);
Term operator!(const Term& a);
Term operator+(const Term& a, const Term& b);
Term operator-(const Term& a, const Term& b);
Term operator*(const Term& a, const Term& b);
Term operator/(const Term& a, const Term& b);
Term operator%(const Term& a, const Term& b);
Term operator<(const Term& a, const Term& b);
Term operator<=(const Term& a, const Term& b);
Term operator>(const Term& a, const Term& b);
Term operator>=(const Term& a, const Term& b);
Term operator==(const Term& a, const Term& b);
Term operator!=(const Term& a, const Term& b);
Term operator&&(const Term& a, const Term& b);
Term operator||(const Term& a, const Term& b);

Term call(Function function, const std::vector<Term>& args);
Term convert(ScalarType type, const Term& a);
Term select(const Term& condition, const Term& if_true, const Term& if_false);
Term max(const Term& a, const Term& b);
Term min(const Term& a, const Term& b);
Term exp(const Term& a);
Term exp2(const Term& a);

// An axis with an extent that no loop and no `inner` declared is bound by the reduction; others are reduced over.
struct Axes {
  std::vector<Axis> list;
  Axes(const Axis& one) : list{one} {}                          // NOLINT: one axis is a list
  Axes(std::initializer_list<Axis> several) : list(several) {}  // NOLINT
};
Term reduce(ReduceOp op, const Axes& axes, const Term& body, const std::optional<Term>& where = {});
Term sum(const Axes& axes, const Term& body);
Term reduce_max(const Axes& axes, const Term& body);
Term reduce_min(const Axes& axes, const Term& body);

}  // namespace pipethreader::kernel::build
