// Folding: options and the dims that are now known become literals, constant calls their results, conditions that
// became constant vanish. The kernel is rebuilt statement by statement; ids of dims, axes, tensors, scalars, options
// and values stay.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "kernel/kernel.h"
#include "kernel/messages.h"
#include "kernel/print_expr.h"

namespace pipethreader::kernel {
namespace {

template <class Nodes>
std::string names(const Nodes& nodes) {
  std::string text;
  for (const auto& node : nodes) text += (text.empty() ? "" : ", ") + node.name;
  return text.empty() ? "none" : text;
}

template <class Nodes>
auto find_named(Nodes& nodes, const std::string& name) {
  return std::find_if(nodes.begin(), nodes.end(), [&](const auto& node) { return node.name == name; });
}

std::string bound_text(const Option& option) {
  if (option.type == ScalarType::boolean) return option.value != 0 ? "true" : "false";
  return fmt::format("{}", option.value);
}

// Puts the bound dims and options into a copy of the kernel's tables.
class Binder {
 public:
  Binder(Kernel& kernel, Reporter& reporter) : k_(kernel), reporter_(reporter) {}

  void dims(const std::vector<Binding>& bindings) {
    for (const Binding& b : bindings) {
      const auto dim = find_named(k_.dims, b.name);
      if (dim == k_.dims.end())
        reporter_.report(Message::unknown_dim, {}, k_.name, b.name, names(k_.dims));
      else if (once(bindings, b) && is_size(b.value))
        dim->size = static_cast<std::int64_t>(b.value);
      else if (!is_size(b.value))
        reporter_.report(Message::bad_dim, dim->span, b.name, b.value);
    }
  }

  void options(const std::vector<Binding>& bindings) {
    for (const Binding& b : bindings) {
      const auto option = find_named(k_.options, b.name);
      if (option == k_.options.end())
        reporter_.report(Message::unknown_option, {}, k_.name, b.name, names(k_.options));
      else if (once(bindings, b) && fits(option->type, b.value))
        option->value = b.value;
      else if (!fits(option->type, b.value))
        reporter_.report(Message::bad_option_value, option->span, b.name, name(option->type),
                         fmt::format("{}", b.value));
    }
  }

 private:
  static bool is_size(double v) { return v >= 0 && v <= 2147483647.0 && std::floor(v) == v; }

  static bool fits(ScalarType type, double v) {
    if (type == ScalarType::boolean) return v == 0 || v == 1;
    return type == ScalarType::i32 ? round_to(type, v) == v : !std::isnan(v);
  }

  bool once(const std::vector<Binding>& all, const Binding& b) {
    const auto same = [&](const Binding& other) { return other.name == b.name; };
    if (std::count_if(all.begin(), all.end(), same) == 1) return true;
    reporter_.report(Message::bound_twice, {}, b.name);
    return false;
  }

  Kernel& k_;
  Reporter& reporter_;
};

class Folder {
 public:
  // `tables` is `from` with dims and options bound.
  Folder(const Kernel& from, Kernel tables, Reporter& reporter)
      : from_(from), to_(std::move(tables)), reporter_(reporter) {
    to_.exprs.clear();
    to_.statements.clear();
    to_.requirements.clear();
  }

  Kernel run() {
    for (ExprId r : from_.requirements) requirement(r);
    for (Tensor& t : to_.tensors) shape(t);
    for (Axis& a : to_.axes) a.extent = size(a.extent, fmt::format("axis '{}'", a.name), a.span);
    to_.body = block(from_.body);
    return std::move(to_);
  }

 private:
  // "H=6, G=4": what the names in an expression are bound to.
  std::string bindings_in(ExprId id) const {
    std::vector<std::string> parts;
    const auto walk = [&](const auto& self, ExprId at) -> void {
      const Expr& e = from_[at];
      std::string part;
      if (e.kind == Expr::Kind::dim && to_[e.dim].size) part = fmt::format("{}={}", to_[e.dim].name, *to_[e.dim].size);
      if (e.kind == Expr::Kind::option) part = to_[e.option].name + "=" + bound_text(to_[e.option]);
      if (!part.empty() && std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(part);
      for (ExprId a : e.args) self(self, a);
    };
    walk(walk, id);
    return fmt::format("{}", fmt::join(parts, ", "));
  }

  // --- sizes ---------------------------------------------------------------------------------------------------
  void requirement(ExprId r) {
    const ExprId folded = fold(r);
    if (divides_by_zero(folded))
      reporter_.report(Message::division_by_zero, from_[r].span, to_text(from_, r), bindings_in(r));
    else if (!is_literal(folded))
      to_.requirements.push_back(folded);
    else if (to_[folded].number == 0)
      reporter_.report(Message::requirement_violated, from_[r].span, to_text(from_, r), bindings_in(r));
  }

  ExprId size(ExprId expr, const std::string& what, SourceSpan span) {
    const ExprId folded = fold(expr);
    if (divides_by_zero(folded))
      reporter_.report(Message::division_by_zero, span, to_text(from_, expr), bindings_in(expr));
    if (is_literal(folded) && to_[folded].number < 0)
      reporter_.report(Message::negative_size, span, what, to_text(to_, folded));
    return folded;
  }

  void shape(Tensor& tensor) {
    double elements = 1;
    for (ExprId& dim : tensor.shape) {
      dim = size(dim, fmt::format("'{}'", tensor.name), tensor.span);
      if (is_literal(dim)) elements *= std::max(1.0, to_[dim].number);
    }
    if (elements > 0x1p48) reporter_.report(Message::tensor_too_large, tensor.span, tensor.name);
  }

  bool divides_by_zero(ExprId id) const {
    const Expr& e = to_[id];
    if (e.kind == Expr::Kind::call && is_division(e.function) && is_number(e.args[1], 0)) return true;
    return std::any_of(e.args.begin(), e.args.end(), [&](ExprId a) { return divides_by_zero(a); });
  }

  // --- expressions ---------------------------------------------------------------------------------------------
  static bool is_division(Function f) { return f == Function::div || f == Function::mod; }
  bool is_literal(ExprId id) const { return to_[id].kind == Expr::Kind::literal; }
  bool is_number(ExprId id, double number) const { return is_literal(id) && to_[id].number == number; }

  ExprId add(Expr e) {
    to_.exprs.push_back(std::move(e));
    return ExprId(to_.exprs.size() - 1);
  }

  ExprId literal(double number, ScalarType type, SourceSpan span) {
    return add({.kind = Expr::Kind::literal, .type = type, .number = number, .span = span});
  }

  ExprId fold(ExprId id) {
    Expr e = from_[id];
    if (e.kind == Expr::Kind::dim && to_[e.dim].size)
      return literal(static_cast<double>(*to_[e.dim].size), ScalarType::i32, e.span);
    // The option's own type, or the one it took where it stands.
    if (e.kind == Expr::Kind::option) return literal(to_[e.option].value, e.type, e.span);
    for (ExprId& a : e.args) a = fold(a);
    if (e.kind == Expr::Kind::call) return call(std::move(e));
    if (e.kind == Expr::Kind::reduce) return reduce(std::move(e));
    return add(std::move(e));
  }

  ExprId call(Expr e) {
    if (const auto constant = constant_call(e)) return *constant;
    if (e.function == Function::logical_and || e.function == Function::logical_or) {
      const bool decides = e.function == Function::logical_or;  // true decides ||, false decides &&
      for (int i = 0; i < 2; ++i) {
        const ExprId a = e.args[static_cast<std::size_t>(i)];
        if (is_literal(a)) return (to_[a].number != 0) == decides ? a : e.args[static_cast<std::size_t>(1 - i)];
      }
    }
    if (e.function == Function::select && is_literal(e.args[0]))
      return of_type(to_[e.args[0]].number != 0 ? e.args[1] : e.args[2], e);
    if (const auto simpler = identity(e)) return *simpler;
    return add(std::move(e));
  }

  std::optional<ExprId> constant_call(const Expr& e) {
    std::vector<double> numbers;
    bool integers = true;
    for (ExprId a : e.args) {
      if (!is_literal(a)) return std::nullopt;
      numbers.push_back(to_[a].number);
      integers = integers && is_integer(to_[a].type);
    }
    if (integers && is_division(e.function) && numbers[1] == 0) return std::nullopt;
    const double result = evaluate(e.function, numbers, integers);
    if (std::isnan(result) || (is_integer(e.type) && std::fabs(result) > 0x1p53)) return std::nullopt;
    return literal(result + 0.0, e.type, e.span);
  }

  // An axis whose whole range lies below the number `b`.
  bool is_below(ExprId a, ExprId b) const {
    if (to_[a].kind != Expr::Kind::axis || !is_literal(b)) return false;
    const ExprId extent = to_[to_[a].axis].extent;
    return is_literal(extent) && to_[extent].number <= to_[b].number;
  }

  // x*1, x/1, x+0 and the like, of integers.
  std::optional<ExprId> identity(const Expr& e) {
    if (!is_integer(e.type) || e.args.size() != 2) return std::nullopt;
    const ExprId a = e.args[0];
    const ExprId b = e.args[1];
    switch (e.function) {
      case Function::add:
        if (is_number(a, 0)) return b;
        return is_number(b, 0) ? std::optional(a) : std::nullopt;
      case Function::sub:
        return is_number(b, 0) ? std::optional(a) : std::nullopt;
      case Function::mul:
        if (is_number(a, 0) || is_number(b, 1)) return a;
        return is_number(b, 0) || is_number(a, 1) ? std::optional(b) : std::nullopt;
      case Function::div:
        if (is_number(b, 1)) return a;
        return is_below(a, b) ? std::optional(literal(0, e.type, e.span)) : std::nullopt;
      case Function::mod:
        if (is_number(b, 1)) return literal(0, e.type, e.span);
        return is_below(a, b) ? std::optional(a) : std::nullopt;
      default:
        return std::nullopt;
    }
  }

  // What is left of `whole` keeps its type.
  ExprId of_type(ExprId part, const Expr& whole) {
    if (to_[part].type == whole.type && !is_literal(part)) return part;
    if (whole.type == ScalarType::boolean) return part;
    return add({.kind = Expr::Kind::convert, .type = whole.type, .args = {part}, .span = whole.span});
  }

  ExprId reduce(Expr e) {
    if (e.args.size() > 1 && is_literal(e.args[1])) {
      const bool nothing = to_[e.args[1]].number == 0;
      constexpr double inf = std::numeric_limits<double>::infinity();
      const double identity = e.reduce == ReduceOp::sum ? 0 : e.reduce == ReduceOp::max ? -inf : inf;
      if (nothing && is_floating(e.type)) return of_type(literal(identity, e.type, e.span), e);
      if (!nothing) e.args.pop_back();
    }
    return add(std::move(e));
  }

  // --- statements ----------------------------------------------------------------------------------------------
  std::vector<StatementId> block(const std::vector<StatementId>& statements) {
    std::vector<StatementId> kept;
    for (StatementId id : statements) {
      auto node = std::visit([&](const auto& n) { return statement(n); }, from_[id].node);
      if (!node) continue;
      kept.emplace_back(to_.statements.size());
      to_.statements.push_back({std::move(*node), from_[id].span});
    }
    return kept;
  }

  using Node = decltype(Statement::node);

  // Folds a condition: gone if true; the result says whether it can be true.
  bool condition(std::optional<ExprId>& c) {
    if (!c) return true;
    c = fold(*c);
    if (!is_literal(*c)) return true;
    const bool truth = to_[*c].number != 0;
    if (truth) c.reset();
    return truth;
  }

  std::optional<Node> statement(Carry c) {
    c.init = fold(c.init);
    return c;
  }

  std::optional<Node> statement(Assign a) {
    a.expr = fold(a.expr);
    if (!condition(a.when)) return std::nullopt;
    return a;
  }

  // A store that never happens stays: its output is left as it was.
  std::optional<Node> statement(Store s) {
    s.expr = fold(s.expr);
    for (ExprId& i : s.indices) i = fold(i);
    condition(s.when);
    return s;
  }

  std::optional<Node> statement(Loop l) {
    if (!condition(l.where)) return std::nullopt;
    l.body = block(l.body);
    if (l.combine) l.combine->body = block(l.combine->body);
    return l;
  }

  const Kernel& from_;
  Kernel to_;
  Reporter& reporter_;
};

// Divides as the language does: towards minus infinity.
std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  const std::int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

}  // namespace

Result<Kernel> specialise(const Kernel& checked, const std::vector<Binding>& dims,
                          const std::vector<Binding>& options) {
  Reporter reporter(checked.file);
  Kernel tables = checked;
  Binder binder(tables, reporter);
  binder.dims(dims);
  binder.options(options);
  if (reporter.failed()) return tl::unexpected(reporter.take());
  Kernel result = Folder(checked, std::move(tables), reporter).run();
  if (reporter.failed()) return tl::unexpected(reporter.take());
  return result;
}

std::int64_t evaluate_size(const Kernel& kernel, ExprId expr, const std::vector<std::int64_t>& sizes) {
  const Expr& e = kernel[expr];
  if (e.kind == Expr::Kind::literal) return static_cast<std::int64_t>(e.number);
  if (e.kind == Expr::Kind::option) return static_cast<std::int64_t>(kernel[e.option].value);
  if (e.kind == Expr::Kind::dim) {
    if (kernel[e.dim].size) return *kernel[e.dim].size;
    return sizes.at(static_cast<std::size_t>(e.dim.index));
  }
  assert(e.kind == Expr::Kind::call && "a size is made of dims, options and integers");
  const std::int64_t a = evaluate_size(kernel, e.args[0], sizes);
  const std::int64_t b = e.args.size() > 1 ? evaluate_size(kernel, e.args[1], sizes) : 0;
  switch (e.function) {
    case Function::neg:
      return -a;
    case Function::add:
      return a + b;
    case Function::sub:
      return a - b;
    case Function::mul:
      return a * b;
    case Function::div:
      return floor_divide(a, b);
    case Function::mod:
      return a - b * floor_divide(a, b);
    case Function::min:
      return std::min(a, b);
    case Function::max:
      return std::max(a, b);
    case Function::abs:
      return std::abs(a);
    case Function::lt:
      return a < b;
    case Function::le:
      return a <= b;
    case Function::gt:
      return a > b;
    case Function::ge:
      return a >= b;
    case Function::eq:
      return a == b;
    case Function::ne:
      return a != b;
    case Function::logical_and:
      return a != 0 && b != 0;
    case Function::logical_or:
      return a != 0 || b != 0;
    case Function::logical_not:
      return a == 0;
    case Function::select:
      return a != 0 ? b : evaluate_size(kernel, e.args[2], sizes);
    default:
      assert(false && "not a function of sizes");
      return 0;
  }
}

}  // namespace pipethreader::kernel
