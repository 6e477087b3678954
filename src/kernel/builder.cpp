#include "kernel/builder.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernel/assembler.h"
#include "kernel/parser.h"

namespace pipethreader::kernel::build {

// A term is a tree of names; it becomes expressions, anew at each use, when a statement takes it.
struct Node {
  enum class Kind : std::uint8_t { literal, named, element, call, convert, reduce };
  Kind kind = Kind::literal;
  double number = 0;
  ScalarType type = ScalarType::f32;
  std::string name;
  Function function = Function::add;
  ReduceOp reduce = ReduceOp::sum;
  std::vector<Axis> axes;
  std::vector<Term> args;
};

namespace {

Term term(Node node) { return Term(std::make_shared<const Node>(std::move(node))); }

std::shared_ptr<const Node> literal(double number, ScalarType type) {
  return std::make_shared<const Node>(Node{.kind = Node::Kind::literal, .number = number, .type = type});
}

ScalarType integer_type(std::int64_t n) {
  return n == static_cast<std::int32_t>(n) ? ScalarType::i32 : ScalarType::i64;
}

std::shared_ptr<const Node> named(const std::string& name) {
  return std::make_shared<const Node>(Node{.kind = Node::Kind::named, .name = name});
}

bool is_name(const std::string& name) {
  const auto part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  return !name.empty() && std::all_of(name.begin(), name.end(), part) &&
         std::isdigit(static_cast<unsigned char>(name[0])) == 0;
}

constexpr int kMostNodes = 100000;

}  // namespace

Term::Term(int number) : node_(literal(number, ScalarType::i32)) {}
Term::Term(std::int64_t number) : node_(literal(static_cast<double>(number), integer_type(number))) {}
Term::Term(double number) : node_(literal(number, ScalarType::f32)) {}
Term::Term(bool truth) : node_(literal(truth ? 1 : 0, ScalarType::boolean)) {}

Guarded Term::when(const Term& condition) const { return {*this, condition}; }

Axis::Axis(std::string name, std::optional<Term> extent)
    : Term(named(name)), name_(std::move(name)), extent_(std::move(extent)) {}

Element::Element(Builder& builder, std::string name, std::vector<Term> indices, std::optional<ScalarType> type)
    : Term(std::make_shared<const Node>(
          Node{.kind = indices.empty() ? Node::Kind::named : Node::Kind::element, .name = name, .args = indices})),
      builder_(&builder),
      name_(std::move(name)),
      indices_(std::move(indices)),
      type_(type) {}

// --- terms to expressions --------------------------------------------------------------------------------------

struct Builder::State {
  explicit State(const std::string& name) : reporter(""), assembler(name, "", reporter) { check_name(name); }

  Reporter reporter;
  Assembler assembler;
  std::vector<std::string> typed;  // values whose declared type was written
  int nodes = 0;

  void check_name(const std::string& name) {
    if (!is_name(name))
      reporter.report(Message::not_a_name, {}, name);
    else if (is_reserved(name))
      reporter.report(Message::reserved_name, {}, name);
  }

  ExprId expression(const Term& t, int depth = 0) {
    const Node& n = *t.node();
    if (depth > kDeepestTree || ++nodes > kMostNodes) {
      reporter.report(Message::too_deep, {}, kDeepestTree);
      return assembler.literal(0, ScalarType::i32, {});
    }
    if (n.kind == Node::Kind::reduce) return reduction(n, depth);
    std::vector<ExprId> args;
    for (const Term& a : n.args) args.push_back(expression(a, depth + 1));
    switch (n.kind) {
      case Node::Kind::literal:
        return assembler.literal(n.number, n.type, {});
      case Node::Kind::named:
        return name(n.name);
      case Node::Kind::element:
        return assembler.element(n.name, std::move(args), {});
      case Node::Kind::convert:
        return assembler.convert(n.type, args[0], {});
      default:
        return assembler.call(n.function, std::move(args), {});
    }
  }

  // A tensor of rank 0 is an element too, `L[]`.
  ExprId name(const std::string& text) {
    const auto symbol = assembler.find(text);
    if (symbol && symbol->kind == Symbol::Kind::tensor) return assembler.element(text, {}, {});
    return assembler.named(text, {});
  }

  // A known axis is reduced over, unless it is an inner one and the handle binds a range of its own.
  ExprId reduction(const Node& n, int depth) {
    assembler.open_scope();
    std::vector<AxisId> axes;
    for (const Axis& a : n.axes) {
      const auto known = assembler.find(a.name());
      if (known || !a.extent()) {
        if (const auto axis = assembler.existing_axis(a.name(), {})) axes.push_back(*axis);
      } else {
        check_name(a.name());
        const ExprId extent = expression(*a.extent(), depth + 1);
        axes.push_back(assembler.axis(a.name(), AxisKind::reduced, extent, {}));
      }
    }
    std::optional<ExprId> where;
    if (n.args.size() > 1) where = expression(n.args[1], depth + 1);
    const ExprId body = expression(n.args[0], depth + 1);
    assembler.close_scope();
    return assembler.reduce(n.reduce, std::move(axes), body, where, {});
  }

  Assembler::Target target(const std::string& target_name, const std::vector<Term>& indices,
                           std::optional<ScalarType> type) {
    nodes = 0;
    Assembler::Target t{.name = target_name, .indices = {}, .type = {}, .span = {}};
    for (const Term& i : indices) {
      const bool plain = i.node()->kind == Node::Kind::named;
      t.indices.push_back(plain ? assembler.target_index(i.node()->name, {}) : expression(i));
    }
    if (!assembler.find(target_name)) {
      check_name(target_name);
      t.type = type;
    }
    return t;
  }
};

void Element::assign(const Term& expr, const std::optional<Term>& when, bool accumulate) {
  Builder::State& s = *builder_->state_;
  const Assembler::Target target = s.target(name_, indices_, type_);
  const ExprId right = s.expression(expr);
  std::optional<ExprId> guard;
  if (when) guard = s.expression(*when);
  s.assembler.assign(target, accumulate, right, guard);
}

// --- the builder -----------------------------------------------------------------------------------------------

Builder::Builder(const std::string& name) : state_(std::make_unique<State>(name)) {}
Builder::~Builder() = default;

Term Builder::dim(const std::string& name) {
  state_->check_name(name);
  state_->assembler.dim(name, {});
  return Term(named(name));
}

Tensor Builder::input(const std::string& name, ScalarType type, const std::vector<Term>& shape) {
  state_->check_name(name);
  std::vector<ExprId> sizes;
  for (const Term& t : shape) sizes.push_back(state_->expression(t));
  state_->assembler.tensor(name, type, std::move(sizes), false, {});
  return Tensor(*this, name);
}

Tensor Builder::output(const std::string& name, ScalarType type, const std::vector<Term>& shape) {
  state_->check_name(name);
  std::vector<ExprId> sizes;
  for (const Term& t : shape) sizes.push_back(state_->expression(t));
  state_->assembler.tensor(name, type, std::move(sizes), true, {});
  return Tensor(*this, name);
}

Term Builder::scalar(const std::string& name, ScalarType type) {
  state_->check_name(name);
  state_->assembler.scalar(name, type, {});
  return Term(named(name));
}

Term Builder::option(const std::string& name, bool value) {
  state_->check_name(name);
  state_->assembler.option(name, ScalarType::boolean, value ? 1 : 0, {});
  return Term(named(name));
}

Term Builder::option(const std::string& name, int value) {
  state_->check_name(name);
  state_->assembler.option(name, ScalarType::i32, value, {});
  return Term(named(name));
}

Term Builder::option(const std::string& name, double value) {
  state_->check_name(name);
  state_->assembler.option(name, ScalarType::f32, value, {});
  return Term(named(name));
}

void Builder::require(const Term& condition) { state_->assembler.require(state_->expression(condition)); }

Axis Builder::parallel(const std::string& name, const Term& extent) {
  state_->check_name(name);
  state_->assembler.axis(name, AxisKind::parallel, state_->expression(extent), {});
  return Axis(name, extent);
}

Axis Builder::inner(const std::string& name, const Term& extent) {
  state_->check_name(name);
  state_->assembler.axis(name, AxisKind::inner, state_->expression(extent), {});
  return Axis(name, extent);
}

Axis Builder::axis(const std::string& name, std::optional<Term> extent) const { return Axis(name, std::move(extent)); }

Value Builder::value(const std::string& name, std::optional<ScalarType> type) { return Value(*this, name, type); }

void Builder::carry(const Element& target, const Term& initial) {
  const Assembler::Target t = state_->target(target.name_, target.indices_, target.type_);
  state_->assembler.carry(t, state_->expression(initial));
}

void Builder::loop(const Axis& axis, const LoopOptions& options, const std::function<void()>& body) {
  State& s = *state_;
  s.check_name(axis.name());
  if (!axis.extent()) return s.reporter.report(Message::range_not_inferable, {}, axis.name());
  s.nodes = 0;
  const ExprId extent = s.expression(*axis.extent());
  Loop loop;
  loop.ordered = options.ordered;
  s.assembler.open_block();
  loop.axis = s.assembler.axis(axis.name(), AxisKind::streamed, extent, {});
  if (options.where) loop.where = s.expression(*options.where);
  body();
  loop.body = s.assembler.close_block();
  if (options.combine) {
    Combine combine;
    std::vector<std::string> names;
    for (const Value& v : options.others) {
      s.check_name(v.name());
      names.push_back(v.name());
    }
    s.assembler.open_block();
    if (s.assembler.combine_names(combine, loop.body, names, {})) options.combine();
    combine.body = s.assembler.close_block();
    loop.combine = std::move(combine);
  }
  s.assembler.loop(std::move(loop), {});
}

Result<Kernel> Builder::finish() {
  if (state_->reporter.failed()) return tl::unexpected(state_->reporter.take());
  return state_->assembler.take();
}

// --- expressions -----------------------------------------------------------------------------------------------

Term call(Function function, const std::vector<Term>& args) {
  return term({.kind = Node::Kind::call, .function = function, .args = args});
}

// A negated number is a number, as in the text.
Term operator-(const Term& a) {
  const Node& n = *a.node();
  if (n.kind != Node::Kind::literal || n.type == ScalarType::boolean || std::signbit(n.number))
    return call(Function::neg, {a});
  return Term(literal(n.number == 0 && is_integer(n.type) ? 0 : -n.number, n.type));
}

Term operator!(const Term& a) { return call(Function::logical_not, {a}); }
Term operator+(const Term& a, const Term& b) { return call(Function::add, {a, b}); }
Term operator-(const Term& a, const Term& b) { return call(Function::sub, {a, b}); }
Term operator*(const Term& a, const Term& b) { return call(Function::mul, {a, b}); }
Term operator/(const Term& a, const Term& b) { return call(Function::div, {a, b}); }
Term operator%(const Term& a, const Term& b) { return call(Function::mod, {a, b}); }
Term operator<(const Term& a, const Term& b) { return call(Function::lt, {a, b}); }
Term operator<=(const Term& a, const Term& b) { return call(Function::le, {a, b}); }
Term operator>(const Term& a, const Term& b) { return call(Function::gt, {a, b}); }
Term operator>=(const Term& a, const Term& b) { return call(Function::ge, {a, b}); }
Term operator==(const Term& a, const Term& b) { return call(Function::eq, {a, b}); }
Term operator!=(const Term& a, const Term& b) { return call(Function::ne, {a, b}); }
Term operator&&(const Term& a, const Term& b) { return call(Function::logical_and, {a, b}); }
Term operator||(const Term& a, const Term& b) { return call(Function::logical_or, {a, b}); }

Term convert(ScalarType type, const Term& a) { return term({.kind = Node::Kind::convert, .type = type, .args = {a}}); }
Term select(const Term& condition, const Term& if_true, const Term& if_false) {
  return call(Function::select, {condition, if_true, if_false});
}
Term max(const Term& a, const Term& b) { return call(Function::max, {a, b}); }
Term min(const Term& a, const Term& b) { return call(Function::min, {a, b}); }
Term exp(const Term& a) { return call(Function::exp, {a}); }
Term exp2(const Term& a) { return call(Function::exp2, {a}); }

Term reduce(ReduceOp op, const Axes& axes, const Term& body, const std::optional<Term>& where) {
  Node n{.kind = Node::Kind::reduce, .reduce = op, .axes = axes.list, .args = {body}};
  if (where) n.args.push_back(*where);
  return term(std::move(n));
}
Term sum(const Axes& axes, const Term& body) { return reduce(ReduceOp::sum, axes, body); }
Term reduce_max(const Axes& axes, const Term& body) { return reduce(ReduceOp::max, axes, body); }
Term reduce_min(const Axes& axes, const Term& body) { return reduce(ReduceOp::min, axes, body); }

}  // namespace pipethreader::kernel::build
