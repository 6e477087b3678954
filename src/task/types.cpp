#include "task/types.h"

namespace pipethreader::task {

using namespace kernel;

namespace {

// What is computed has another type; some can be read from memory.
bool is_computed(ScalarType type) { return bits(type) >= 8 && type != ScalarType::i64 && type != ScalarType::f8e5m2; }

const char* instead(ScalarType type) {
  if (type == ScalarType::i64) return "use i32";
  return is_floating(type) ? "use f8e4m3, f16, bf16 or f32" : "use i8, u8 or i32";
}

class Types {
 public:
  explicit Types(const Kernel& kernel) : kernel_(kernel) {}

  Result<void> run() {
    for (const Tensor& tensor : kernel_.tensors) {
      if (bits(tensor.type) < 8) {
        tell(
            tensor.span, tensor.type,
            fmt::format("tensor '{}' has type {}; packed types are not scheduled yet", tensor.name, name(tensor.type)));
      } else if (tensor.type == ScalarType::i64) {
        tell(tensor.span, tensor.type,
             fmt::format("tensor '{}' has type i64; integers of 64 bits are not scheduled yet", tensor.name));
      } else if (tensor.output && !is_computed(tensor.type)) {
        tell(tensor.span, tensor.type,
             fmt::format("output '{}' has type {}, which can be read and not written yet", tensor.name,
                         name(tensor.type)));
      }
    }
    block(kernel_.body);
    if (!error_.diagnostics.empty()) return tl::unexpected(error_);
    return {};
  }

 private:
  void tell(SourceSpan span, ScalarType type, std::string message) {
    error_.diagnostics.push_back({kernel_.file, span, std::move(message), instead(type)});
  }

  void block(const std::vector<StatementId>& body) {
    for (const StatementId id : body) {
      const Statement& s = kernel_[id];
      if (const auto* carry = std::get_if<Carry>(&s.node)) assignment(carry->target, carry->init, s.span);
      if (const auto* assign = std::get_if<Assign>(&s.node)) {
        assignment(assign->target, assign->expr, s.span);
        if (assign->when) expression(*assign->when);
      }
      if (const auto* store = std::get_if<Store>(&s.node)) {
        expression(store->expr);
        if (store->when) expression(*store->when);
      }
      if (const auto* loop = std::get_if<Loop>(&s.node)) block(loop->body);
    }
  }

  void assignment(ValueId target, ExprId expr, SourceSpan span) {
    const Value& value = kernel_[target];
    if (!is_computed(value.type))
      tell(span, value.type,
           fmt::format("'{}' has type {}, which no value can have yet", value.name, name(value.type)));
    expression(expr);
  }

  void expression(ExprId id) {
    const Expr& e = kernel_[id];
    if (e.kind == Expr::Kind::convert && !is_computed(e.type))
      tell(e.span, e.type, fmt::format("nothing is converted to {} yet", name(e.type)));
    for (const ExprId arg : e.args) expression(arg);
  }

  const Kernel& kernel_;
  Error error_;
};

}  // namespace

Result<void> check_types(const Kernel& kernel) { return Types(kernel).run(); }

}  // namespace pipethreader::task
