#include <cmath>

#include "kernel/kernel.h"
#include "kernel/print_expr.h"

namespace pipethreader::kernel {
namespace {

// How tightly each form binds, as the parser reads them. A reduction takes the whole product after it.
enum Binding : int { loosest = 0, b_or, b_and, b_compare, b_add, b_reduce, b_multiply, b_unary, b_primary };

int binding_of(Function f) {
  switch (f) {
    case Function::logical_or:
      return b_or;
    case Function::logical_and:
      return b_and;
    case Function::lt:
    case Function::le:
    case Function::gt:
    case Function::ge:
    case Function::eq:
    case Function::ne:
      return b_compare;
    case Function::add:
    case Function::sub:
      return b_add;
    case Function::mul:
    case Function::div:
    case Function::mod:
      return b_multiply;
    case Function::neg:
    case Function::logical_not:
      return b_unary;
    default:
      return b_primary;
  }
}

std::string number_text(double number, ScalarType type) {
  if (type == ScalarType::boolean) return number != 0 ? "true" : "false";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  if (is_integer(type)) return fmt::format("{}", static_cast<std::int64_t>(number));
  std::string text = fmt::format("{}", number);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

class ExprPrinter {
 public:
  explicit ExprPrinter(const Kernel& kernel) : k_(kernel) {}

  std::string print(ExprId id, int least) const {
    const auto [text, binding] = print(k_[id]);
    return binding < least ? "(" + text + ")" : text;
  }

  std::string list(const std::vector<ExprId>& exprs) const {
    std::string text;
    for (ExprId e : exprs) text += (text.empty() ? "" : ",") + print(e, loosest);
    return text;
  }

 private:
  struct Piece {
    std::string text;
    int binding;
  };

  Piece print(const Expr& e) const {
    switch (e.kind) {
      case Expr::Kind::literal:
        return {number_text(e.number, e.type), b_primary};
      case Expr::Kind::axis:
        return {k_[e.axis].name, b_primary};
      case Expr::Kind::dim:
        return {k_[e.dim].name, b_primary};
      case Expr::Kind::option:
        return {k_[e.option].name, b_primary};
      case Expr::Kind::scalar:
        return {k_[e.scalar].name, b_primary};
      case Expr::Kind::value:
        return {k_[e.value].name + (e.args.empty() ? "" : "[" + list(e.args) + "]"), b_primary};
      case Expr::Kind::access:
        return {k_[e.tensor].name + "[" + list(e.args) + "]", b_primary};
      case Expr::Kind::convert:
        return {fmt::format("{}({})", name(e.type), print(e.args[0], loosest)), b_primary};
      case Expr::Kind::call:
        return call(e);
      case Expr::Kind::reduce:
        return reduce(e);
    }
    return {};
  }

  Piece call(const Expr& e) const {
    const FunctionInfo& f = info(e.function);
    const int binding = binding_of(e.function);
    if (f.symbol.empty()) {
      std::string args;
      for (ExprId a : e.args) args += (args.empty() ? "" : ", ") + print(a, loosest);
      return {fmt::format("{}({})", f.name, args), b_primary};
    }
    if (e.args.size() == 1) {
      // -(2) negates a literal, -2 is one.
      const bool number = e.function == Function::neg && k_[e.args[0]].kind == Expr::Kind::literal;
      const std::string arg = print(e.args[0], b_unary);
      return {std::string(f.symbol) + (number ? "(" + arg + ")" : arg), b_unary};
    }
    // Left associative; comparisons do not chain.
    const int left = binding == b_compare ? b_add : binding;
    const std::string space = binding == b_multiply && e.function != Function::mod && index_like(e) ? "" : " ";
    return {print(e.args[0], left) + space + std::string(f.symbol) + space + print(e.args[1], binding + 1), binding};
  }

  // Products of axes, dims and integers print tightly, as people write indices: c*L + l.
  bool index_like(const Expr& e) const {
    for (ExprId a : e.args) {
      const Expr& arg = k_[a];
      const bool leaf = arg.kind == Expr::Kind::axis || arg.kind == Expr::Kind::dim || arg.kind == Expr::Kind::option ||
                        (arg.kind == Expr::Kind::literal && is_integer(arg.type));
      if (!leaf && !(arg.kind == Expr::Kind::call && !info(arg.function).symbol.empty() && index_like(arg)))
        return false;
    }
    return true;
  }

  Piece reduce(const Expr& e) const {
    std::string axes;
    for (AxisId a : e.axes) {
      axes += (axes.empty() ? "" : ", ") + k_[a].name;
      if (k_[a].kind == AxisKind::reduced) axes += ": " + print(k_[a].extent, b_add);
    }
    if (e.args.size() > 1) axes += " where " + print(e.args[1], loosest);
    const char* op = e.reduce == ReduceOp::sum ? "sum" : e.reduce == ReduceOp::max ? "max" : "min";
    return {fmt::format("{}[{}] {}", op, axes, print(e.args[0], b_reduce)), b_reduce};
  }

  const Kernel& k_;
};

class KernelPrinter {
 public:
  explicit KernelPrinter(const Kernel& kernel) : k_(kernel), exprs_(kernel) {}

  std::string print() {
    header();
    declarations();
    block(k_.body, 1);
    text_ += "}\n";
    return std::move(text_);
  }

 private:
  void header() {
    std::vector<std::string> inputs;
    std::vector<std::string> outputs;
    for (const Tensor& t : k_.tensors)
      (t.output ? outputs : inputs).push_back(fmt::format("{}: {}[{}]", t.name, name(t.type), exprs_.list(t.shape)));
    for (const Scalar& s : k_.scalars) inputs.push_back(fmt::format("{}: {}", s.name, name(s.type)));
    const std::string indent = "\n" + std::string(k_.name.size() + 8, ' ');
    std::string line = "kernel " + k_.name + "(" + join(inputs, ", ") + ") -> (" + join(outputs, ", ") + ") {";
    if (line.size() > 110)
      line = "kernel " + k_.name + "(" + join(inputs, "," + indent) + ")" + indent + "-> (" +
             join(outputs, "," + indent) + ") {";
    text_ += line + "\n";
  }

  void declarations() {
    for (const Option& o : k_.options)
      text_ += fmt::format("  option {}: {} = {};\n", o.name, name(o.type), number_text(o.value, o.type));
    for (ExprId r : k_.requirements) text_ += "  require " + exprs_.print(r, loosest) + ";\n";
    std::vector<AxisId> inner;
    for (std::size_t i = 0; i < k_.axes.size(); ++i)
      if (k_.axes[i].kind == AxisKind::inner) inner.emplace_back(i);
    axes("parallel", k_.parallel);
    axes("inner", inner);
  }

  void axes(const char* word, const std::vector<AxisId>& list) {
    std::vector<std::string> parts;
    for (AxisId a : list) parts.push_back(k_[a].name + ": " + exprs_.print(k_[a].extent, b_add));
    if (!parts.empty()) text_ += fmt::format("  {} {};\n", word, join(parts, ", "));
  }

  void block(const std::vector<StatementId>& statements, int depth) {
    for (StatementId id : statements) std::visit([&](const auto& node) { statement(node, depth); }, k_[id].node);
  }

  std::string target(ValueId id, bool with_type) {
    const Value& v = k_[id];
    std::vector<std::string> names;
    for (AxisId a : v.axes) names.push_back(k_[a].name);
    std::string text = v.name + (names.empty() ? "" : "[" + join(names, ",") + "]");
    if (with_type) text += fmt::format(": {}", name(v.type));
    return text;
  }

  // The type is written where the value is first assigned.
  bool first_typed(ValueId id) {
    if (seen_.size() < k_.values.size()) seen_.resize(k_.values.size());
    const auto index = static_cast<std::size_t>(id.index);
    const bool first = !seen_[index];
    seen_[index] = true;
    return first && k_[id].typed;
  }

  void line(int depth, const std::string& content) {
    text_ += std::string(2 * static_cast<std::size_t>(depth), ' ') + content + "\n";
  }

  std::string guard(const std::optional<ExprId>& when) { return when ? " when " + exprs_.print(*when, loosest) : ""; }

  void statement(const Carry& c, int depth) {
    line(depth, "carry " + target(c.target, first_typed(c.target)) + " = " + exprs_.print(c.init, loosest) + ";");
  }

  void statement(const Assign& a, int depth) {
    line(depth, target(a.target, first_typed(a.target)) + (a.accumulate ? " += " : " = ") +
                    exprs_.print(a.expr, loosest) + guard(a.when) + ";");
  }

  void statement(const Store& s, int depth) {
    line(depth, k_[s.tensor].name + "[" + exprs_.list(s.indices) + "] = " + exprs_.print(s.expr, loosest) +
                    guard(s.when) + ";");
  }

  void statement(const Loop& l, int depth) {
    const Axis& axis = k_[l.axis];
    std::string head =
        std::string("for ") + (l.ordered ? "ordered " : "") + axis.name + ": " + exprs_.print(axis.extent, b_add);
    if (l.where) head += " where " + exprs_.print(*l.where, loosest);
    line(depth, head + " {");
    block(l.body, depth + 1);
    if (l.combine) {
      std::vector<std::string> names;
      for (ValueId v : l.combine->others) {
        names.push_back(k_[v].name);
        first_typed(v);
      }
      line(depth, "} combine (" + join(names, ", ") + ") {");
      block(l.combine->body, depth + 1);
    }
    line(depth, "}");
  }

  static std::string join(const std::vector<std::string>& parts, const std::string& between) {
    return fmt::format("{}", fmt::join(parts, between));
  }

  const Kernel& k_;
  ExprPrinter exprs_;
  std::vector<bool> seen_;
  std::string text_;
};

}  // namespace

std::string to_text(const Kernel& kernel, ExprId expr) { return ExprPrinter(kernel).print(expr, loosest); }

std::string print(const Kernel& kernel) { return KernelPrinter(kernel).print(); }

}  // namespace pipethreader::kernel
