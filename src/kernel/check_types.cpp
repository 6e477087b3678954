// Infers every type, bottom up. A literal is `weak`: it takes the type of what it meets. Integers (axes, dims, i32
// values) meet floating operands in those operands' type.
#include <algorithm>

#include "kernel/analysis.h"
#include "kernel/checks.h"
#include "kernel/print_expr.h"
#include "kernel/types.h"

namespace pipethreader::kernel {
namespace {

bool is_transcendental(Function f) {
  switch (f) {
    case Function::exp:
    case Function::exp2:
    case Function::log:
    case Function::log2:
    case Function::sqrt:
    case Function::rsqrt:
    case Function::tanh:
    case Function::sigmoid:
    case Function::erf:
    case Function::floor:
    case Function::sin:
    case Function::cos:
      return true;
    default:
      return false;
  }
}

// What keeps the operands' type even if that has no arithmetic.
bool only_chooses(Function f) { return f == Function::select || f == Function::min || f == Function::max; }

// What products may pass through on their way into a `sum` without being rounded.
bool keeps_exact(Function f) {
  switch (f) {
    case Function::mul:
    case Function::div:
    case Function::add:
    case Function::sub:
    case Function::neg:
    case Function::select:
      return true;
    default:
      return false;
  }
}

class TypeCheck {
 public:
  TypeCheck(Kernel& kernel, Reporter& reporter)
      : k_(kernel), reporter_(reporter), weak_(kernel.exprs.size()), value_typed_(kernel.values.size()) {}

  void run() {
    for (const Tensor& t : k_.tensors) {
      storable(t.type, t.span, fmt::format("tensor '{}'", t.name));
      for (ExprId size : t.shape) integer(size, fmt::format("the shape of '{}'", t.name));
    }
    for (const Scalar& s : k_.scalars) storable(s.type, s.span, fmt::format("scalar '{}'", s.name));
    for (const Axis& a : k_.axes) integer(a.extent, fmt::format("the size of axis '{}'", a.name));
    for (ExprId r : k_.requirements) condition(r, "`require`");
    block(k_.body);
  }

 private:
  void storable(ScalarType type, SourceSpan span, const std::string& what) {
    if (type == ScalarType::f64)
      reporter_.report(Message::type_not_supported, span, name(type), what, "f64 is for the oracle; use f32");
  }

  Expr& at(ExprId id) { return k_.exprs[static_cast<std::size_t>(id.index)]; }
  bool is_weak(ExprId id) const { return weak_[static_cast<std::size_t>(id.index)]; }
  void set(ExprId id, ScalarType type, bool weak = false) {
    at(id).type = type;
    weak_[static_cast<std::size_t>(id.index)] = weak;
  }

  void integer(ExprId id, const std::string& what) {
    infer(id);
    if (!is_integer(k_[id].type)) reporter_.report(Message::integers_only, k_[id].span, what, found(id));
  }

  void condition(ExprId id, std::string_view what) {
    infer(id);
    if (k_[id].type != ScalarType::boolean) reporter_.report(Message::not_a_condition, k_[id].span, what, found(id));
  }

  std::string found(ExprId id) const {
    return k_[id].type == ScalarType::boolean ? "a condition" : std::string(name(k_[id].type));
  }

  bool number(ExprId id, std::string_view what) {
    if (k_[id].type != ScalarType::boolean) return true;
    reporter_.report(Message::not_a_number, k_[id].span, what);
    return false;
  }

  // `exact`: at the root of what `sum` adds up, where products enter the accumulator unrounded.
  void infer(ExprId id, bool exact = false) {
    const Expr& e = k_[id];
    switch (e.kind) {
      case Expr::Kind::literal:
        return set(id, e.type, e.type != ScalarType::boolean);
      case Expr::Kind::axis:
        return set(id, ScalarType::i32);
      case Expr::Kind::dim:
        return set(id, ScalarType::i32, true);
      case Expr::Kind::option:
        return set(id, k_[e.option].type, k_[e.option].type != ScalarType::boolean);
      case Expr::Kind::scalar:
        return set(id, k_[e.scalar].type);
      case Expr::Kind::value:
        indices(e, k_[e.value].name);
        return set(id, k_[e.value].type);
      case Expr::Kind::access:
        indices(e, k_[e.tensor].name);
        return set(id, k_[e.tensor].type);
      case Expr::Kind::convert:
        infer(e.args[0]);
        settle(e.args[0]);
        if (e.type == ScalarType::boolean || e.type == ScalarType::f64)
          reporter_.report(
              Message::type_not_supported, e.span, name(e.type), "a conversion",
              e.type == ScalarType::boolean ? "compare, as in `x != 0`" : "f64 is for the oracle; use f32");
        return set(id, e.type);
      case Expr::Kind::call:
        return call(id, exact);
      case Expr::Kind::reduce:
        return reduce(id);
    }
  }

  void indices(const Expr& e, const std::string& name_of) {
    for (ExprId index : e.args) index_of(index, name_of);
  }

  void index_of(ExprId index, const std::string& name_of) {
    infer(index);
    if (!is_integer(k_[index].type))
      reporter_.report(Message::index_not_integer, k_[index].span, name_of, found(index));
  }

  void call(ExprId id, bool exact) {
    const Expr e = k_[id];  // a copy: inference may not move what is looked at
    const FunctionInfo& f = info(e.function);
    const std::string what = fmt::format("'{}'", f.symbol.empty() ? f.name : f.symbol);
    const bool chain = exact && keeps_exact(e.function);
    for (std::size_t i = 0; i < e.args.size(); ++i)
      infer(e.args[i], chain && !(e.function == Function::select && i == 0));
    if (e.function == Function::logical_and || e.function == Function::logical_or ||
        e.function == Function::logical_not) {
      for (ExprId a : e.args)
        if (k_[a].type != ScalarType::boolean) reporter_.report(Message::not_a_condition, k_[a].span, what, found(a));
      return set(id, ScalarType::boolean);
    }
    std::vector<ExprId> operands = e.args;
    if (e.function == Function::select) {
      if (k_[e.args[0]].type != ScalarType::boolean)
        reporter_.report(Message::not_a_condition, k_[e.args[0]].span, what, found(e.args[0]));
      operands.erase(operands.begin());
    }
    bool all_conditions = true;
    for (ExprId a : operands) all_conditions = all_conditions && k_[a].type == ScalarType::boolean;
    const bool takes_conditions =
        e.function == Function::select || e.function == Function::eq || e.function == Function::ne;
    if (all_conditions && takes_conditions) return set(id, ScalarType::boolean);
    for (ExprId a : operands)
      if (!number(a, what)) return set(id, ScalarType::f32);
    numeric(id, e, operands, chain);
  }

  void numeric(ExprId id, const Expr& e, const std::vector<ExprId>& operands, bool exact) {
    ScalarType type = meet(operands);
    bool weak = true;
    for (ExprId a : operands) weak = weak && is_weak(a);
    if (e.function == Function::mod && !is_integer(type)) {
      reporter_.report(Message::integers_only, e.span, "'%'", name(type));
      return set(id, type);
    }
    const bool compares = info(e.function).gives_boolean;
    if (!only_chooses(e.function) && !compares) type = arithmetic_type(type);
    if (is_transcendental(e.function) && is_integer(type)) type = ScalarType::f32;
    if (exact && is_floating(type)) type = promote(type, ScalarType::f32);
    if (!weak || compares)
      for (ExprId a : operands) adapt(a, type);
    if (compares) return set(id, ScalarType::boolean);
    set(id, type, weak);
  }

  // The type in which operands meet; weak ones count only among themselves, or as floating beside integers.
  ScalarType meet(const std::vector<ExprId>& operands) {
    std::optional<ScalarType> strong;
    std::optional<ScalarType> weak;
    for (ExprId a : operands) {
      std::optional<ScalarType>& t = is_weak(a) ? weak : strong;
      t = t ? promote(*t, k_[a].type) : k_[a].type;
    }
    // Integer literals that fit do not widen i8 and its like.
    const bool small = strong && std::all_of(operands.begin(), operands.end(), [&](ExprId a) {
                         return !is_weak(a) || (k_[a].kind == Expr::Kind::literal && is_integer(k_[a].type) &&
                                                round_to(*strong, k_[a].number) == k_[a].number);
                       });
    if (small && is_integer(*strong)) return *strong;
    if (!strong) return *weak;
    if (!weak || is_floating(*strong)) return *strong;
    return is_floating(*weak) ? *weak : promote(*strong, *weak);
  }

  // Gives the literals below a weak expression the type they are used in. Whole-number arithmetic stays that.
  void adapt(ExprId id, ScalarType type) {
    if (!is_weak(id)) return;
    Expr& e = at(id);
    if (e.kind == Expr::Kind::literal && (is_floating(type) || is_integer(e.type))) e.type = type;
    if (e.kind != Expr::Kind::call || is_integer(e.type) || e.type == ScalarType::boolean || !is_floating(type)) return;
    e.type = type;
    const std::vector<ExprId> args = e.args;
    for (ExprId a : args) adapt(a, type);
  }

  // A weak expression that nothing else decides is f32 or i32 as it stands.
  void settle(ExprId id) { adapt(id, k_[id].type); }

  void reduce(ExprId id) {
    const Expr e = k_[id];
    const bool sum = e.reduce == ReduceOp::sum;
    infer(e.args[0], sum);
    if (e.args.size() > 1) condition(e.args[1], "`where`");
    const std::string what = sum ? "'sum'" : e.reduce == ReduceOp::max ? "'max'" : "'min'";
    if (!number(e.args[0], what)) return set(id, ScalarType::f32);
    const ScalarType body = k_[e.args[0]].type;
    const ScalarType type = is_integer(body) ? promote(body, ScalarType::i32) : promote(body, ScalarType::f32);
    adapt(e.args[0], type);
    set(id, type);
  }

  // --- statements ----------------------------------------------------------------------------------------------
  void block(const std::vector<StatementId>& statements) {
    for (StatementId id : statements) std::visit([&](const auto& node) { statement(node); }, k_[id].node);
  }

  // A literal fits every numeric type, an integer f32; else the target must hold all numbers of the expression.
  void fits(ExprId expr, ScalarType target, const std::string& name_of) {
    const ScalarType type = k_[expr].type;
    const bool boolean = type == ScalarType::boolean || target == ScalarType::boolean;
    const bool literal = is_weak(expr) && (is_floating(target) || is_integer(type));
    const bool integer_to_f32 = is_integer(type) && is_floating(target) && bits(target) >= 32;
    if (boolean ? type == target : literal || integer_to_f32 || holds(target, type)) {
      if (literal) adapt(expr, target);
      return;
    }
    if (target == ScalarType::boolean)
      return reporter_.report(Message::not_a_condition, k_[expr].span, "'" + name_of + "'", found(expr));
    if (type == ScalarType::boolean) return (void)number(expr, "'" + name_of + "'");
    reporter_.report(Message::narrowing, k_[expr].span, name_of, name(target), name(type));
  }

  void statement(const Carry& c) {
    Value& v = value(c.target);
    storable(v.type, v.span, fmt::format("value '{}'", v.name));
    value_typed_[static_cast<std::size_t>(c.target.index)] = true;
    infer(c.init);
    fits(c.init, v.type, v.name);
  }

  Value& value(ValueId id) { return k_.values[static_cast<std::size_t>(id.index)]; }

  void statement(const Assign& a) {
    Value& v = value(a.target);
    infer(a.expr);
    if (a.when) condition(*a.when, "`when`");
    if (!value_typed_[static_cast<std::size_t>(a.target.index)]) {
      if (!v.typed && !v.carried) v.type = is_weak(a.expr) ? ScalarType::f32 : k_[a.expr].type;
      storable(v.type, v.span, fmt::format("value '{}'", v.name));
      value_typed_[static_cast<std::size_t>(a.target.index)] = true;
    }
    fits(a.expr, v.type, v.name);
  }

  void statement(const Store& s) {
    const Tensor& t = k_[s.tensor];
    for (ExprId index : s.indices) index_of(index, t.name);
    infer(s.expr);
    if (s.when) condition(*s.when, "`when`");
    fits(s.expr, t.type, t.name);
  }

  void statement(const Loop& l) {
    if (l.where) condition(*l.where, "`where`");
    block(l.body);
    if (!l.combine) return;
    for (std::size_t i = 0; i < l.combine->others.size(); ++i) {
      value(l.combine->others[i]).type = k_[l.combine->carried[i]].type;
      value_typed_[static_cast<std::size_t>(l.combine->others[i].index)] = true;
    }
    block(l.combine->body);
  }

  Kernel& k_;
  Reporter& reporter_;
  std::vector<bool> weak_;
  std::vector<bool> value_typed_;
};

}  // namespace

void check_types(Kernel& kernel, Reporter& reporter) { TypeCheck(kernel, reporter).run(); }

}  // namespace pipethreader::kernel
