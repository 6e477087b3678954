#include "interpret/elementwise.h"

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_map>

#include "interpret/number.h"

namespace pipethreader::interpret {

using program::Expr;
using program::ExprId;

std::vector<std::int64_t> strides_of(std::span<const int> shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

std::size_t elements_of(std::span<const int> shape) {
  std::size_t count = 1;
  for (const int extent : shape) count *= static_cast<std::size_t>(extent);
  return count;
}

namespace {

class Compiler {
 public:
  Compiler(const program::Program& program, std::vector<int> shape, Code& code)
      : program_(program), shape_(std::move(shape)), strides_(strides_of(shape_)), code_(code) {
    code_.elements = elements_of(shape_);
  }

  std::size_t add(ExprId id) {
    if (const auto found = known_.find(id.index); found != known_.end()) return found->second;
    const Expr& e = program_[id];
    Code::Op op;
    op.type = e.type;
    op.floating = is_floating(e.type);
    if (is_uniform(program_, id)) {
      op.kind = Code::Kind::uniform;
      op.expr = id;
    } else if (e.kind == Expr::Kind::coord) {
      op.kind = Code::Kind::coord;
      op.places = coordinates(e.dim);
    } else if (e.kind == Expr::Kind::fragment) {
      op.kind = Code::Kind::fragment;
      op.fragment = fragment_index(e.fragment);
      op.places = elements_read(e);
    } else {
      op.kind = e.kind == Expr::Kind::call ? Code::Kind::call : Code::Kind::convert;
      op.function = e.function;
      for (const ExprId arg : e.args) op.args.push_back(add(arg));
    }
    code_.ops.push_back(std::move(op));
    return known_[id.index] = code_.ops.size() - 1;
  }

 private:
  [[nodiscard]] int coordinate(std::size_t element, int dim) const {
    const auto d = static_cast<std::size_t>(dim);
    return static_cast<int>(static_cast<std::int64_t>(element) / strides_[d] % shape_[d]);
  }

  [[nodiscard]] std::vector<std::int32_t> coordinates(int dim) const {
    std::vector<std::int32_t> values(code_.elements);
    for (std::size_t e = 0; e < values.size(); ++e) values[e] = coordinate(e, dim);
    return values;
  }

  std::size_t fragment_index(program::FragmentId id) {
    const auto found = std::ranges::find(code_.fragments, id);
    if (found != code_.fragments.end()) return static_cast<std::size_t>(found - code_.fragments.begin());
    code_.fragments.push_back(id);
    return code_.fragments.size() - 1;
  }

  [[nodiscard]] std::vector<std::int32_t> elements_read(const Expr& e) const {
    const std::vector<int>& shape = program_[e.fragment].layout.shape;
    const std::vector<std::int64_t> strides = strides_of(shape);
    std::vector<std::int32_t> places(code_.elements, 0);
    bool same = elements_of(shape) == code_.elements;
    for (std::size_t element = 0; element < places.size(); ++element) {
      std::int64_t place = 0;
      for (std::size_t k = 0; k < e.dims.size(); ++k) place += coordinate(element, e.dims[k]) * strides[k];
      places[element] = static_cast<std::int32_t>(place);
      same = same && place == static_cast<std::int64_t>(element);
    }
    if (same) places.clear();
    return places;
  }

  const program::Program& program_;
  std::vector<int> shape_;
  std::vector<std::int64_t> strides_;
  Code& code_;
  std::unordered_map<std::int32_t, std::size_t> known_;
};

}  // namespace

const Code& CodeCache::compile(std::vector<ExprId> roots, std::vector<int> shape) {
  std::unique_ptr<Code>& code = known_[Key(roots, shape)];
  if (!code) {
    code = std::make_unique<Code>();
    Compiler compiler(program_, std::move(shape), *code);
    for (const ExprId root : roots) code->roots.push_back(compiler.add(root));
  }
  return *code;
}

Evaluation::Evaluation(const Code& code, const Uniforms& uniforms, std::vector<const float*> fragments)
    : code_(code), faults_(*uniforms.faults), fragments_(std::move(fragments)) {
  floats_.resize(code.ops.size());
  integers_.resize(code.ops.size());
  const std::size_t width = std::min(chunk_elements, code.elements);
  for (std::size_t i = 0; i < code.ops.size(); ++i) {
    const Code::Op& op = code.ops[i];
    const bool uniform = op.kind == Code::Kind::uniform;
    if (op.floating)
      floats_[i].assign(width, uniform ? uniforms.real(op.expr) : 0.0f);
    else
      integers_[i].assign(width, uniform ? uniforms.integer(op.expr) : 0);
  }
}

void Evaluation::load(std::size_t begin, std::size_t count) {
  for (std::size_t i = 0; i < code_.ops.size(); ++i) {
    const Code::Op& op = code_.ops[i];
    switch (op.kind) {
      case Code::Kind::uniform:
        break;
      case Code::Kind::coord:
        std::copy_n(op.places.data() + begin, count, integers_[i].data());
        break;
      case Code::Kind::fragment:
        read_fragment(i, begin, count);
        break;
      case Code::Kind::call:
        call(i, count);
        break;
      case Code::Kind::convert:
        convert(i, count);
        break;
    }
  }
}

void Evaluation::read_fragment(std::size_t i, std::size_t begin, std::size_t count) {
  const Code::Op& op = code_.ops[i];
  const float* words = fragments_[op.fragment];
  const auto place = [&](std::size_t k) {
    return op.places.empty() ? begin + k : static_cast<std::size_t>(op.places[begin + k]);
  };
  if (!op.floating) {
    for (std::size_t k = 0; k < count; ++k) integers_[i][k] = integer_of(words[place(k)]);
  } else if (op.places.empty()) {
    std::copy_n(words + begin, count, floats_[i].data());
  } else {
    for (std::size_t k = 0; k < count; ++k) floats_[i][k] = words[place(k)];
  }
}

const float* Evaluation::as_floats(std::size_t op, std::size_t count, std::size_t operand) {
  if (code_.ops[op].floating) return floats_[op].data();
  Floats& out = float_operands_[operand];
  out.resize(std::max(out.size(), count));
  for (std::size_t k = 0; k < count; ++k) out[k] = static_cast<float>(integers_[op][k]);
  return out.data();
}

const std::int64_t* Evaluation::as_integers(std::size_t op, std::size_t count, std::size_t operand) {
  if (!code_.ops[op].floating) return integers_[op].data();
  Integers& out = integer_operands_[operand];
  out.resize(std::max(out.size(), count));
  for (std::size_t k = 0; k < count; ++k) out[k] = floats_[op][k] != 0;  // only conditions mix this way
  return out.data();
}

void Evaluation::call(std::size_t i, std::size_t count) {
  const Code::Op& op = code_.ops[i];
  if (op.function == Function::select) return select(i, count);
  if (is_comparison(op.function) && (code_.ops[op.args[0]].floating || code_.ops[op.args[1]].floating))
    return compare_floats(op.function, as_floats(op.args[0], count, 0), as_floats(op.args[1], count, 1), count,
                          integers_[i].data());
  if (op.floating) {
    std::array<const float*, 3> args{};
    for (std::size_t a = 0; a < op.args.size(); ++a) args[a] = as_floats(op.args[a], count, a);
    apply_floats(op.function, args.data(), count, floats_[i].data());
    round_floats(op.type, {floats_[i].data(), count});
    return;
  }
  std::array<const std::int64_t*, 3> args{};
  for (std::size_t a = 0; a < op.args.size(); ++a) args[a] = as_integers(op.args[a], count, a);
  apply_integers(op.function, args.data(), count, integers_[i].data());
  check_range(op, integers_[i].data(), count);
}

void Evaluation::select(std::size_t i, std::size_t count) {
  const Code::Op& op = code_.ops[i];
  const std::int64_t* condition = as_integers(op.args[0], count, 0);
  if (op.floating) {
    const float* a = as_floats(op.args[1], count, 1);
    const float* b = as_floats(op.args[2], count, 2);
    for (std::size_t k = 0; k < count; ++k) floats_[i][k] = condition[k] != 0 ? a[k] : b[k];
    round_floats(op.type, {floats_[i].data(), count});
  } else {
    const std::int64_t* a = as_integers(op.args[1], count, 1);
    const std::int64_t* b = as_integers(op.args[2], count, 2);
    for (std::size_t k = 0; k < count; ++k) integers_[i][k] = condition[k] != 0 ? a[k] : b[k];
  }
}

void Evaluation::convert(std::size_t i, std::size_t count) {
  const Code::Op& op = code_.ops[i];
  const std::size_t from = op.args[0];
  if (op.floating) {
    std::copy_n(as_floats(from, count, 0), count, floats_[i].data());
    round_floats(op.type, {floats_[i].data(), count});
    return;
  }
  for (std::size_t k = 0; k < count; ++k) {
    const double value = code_.ops[from].floating ? floats_[from][k] : static_cast<double>(integers_[from][k]);
    integers_[i][k] = static_cast<std::int64_t>(round_to(op.type, value));
  }
}

void Evaluation::check_range(const Code::Op& op, const std::int64_t* values, std::size_t count) {
  if (op.type != ScalarType::i32) return;
  const auto [low, high] = std::minmax_element(values, values + count);
  if (*low < std::numeric_limits<std::int32_t>::min() || *high > std::numeric_limits<std::int32_t>::max())
    faults_.raise(FaultKind::overflow,
                  fmt::format("an element's {} reaches {}, which does not fit i32", info(op.function).name,
                              *low < std::numeric_limits<std::int32_t>::min() ? *low : *high));
}

void Evaluation::words(std::size_t root, std::size_t count, float* out) const {
  if (floating(root)) {
    std::copy_n(floats(root), count, out);
  } else {
    const std::int64_t* values = integers(root);
    std::transform(values, values + count, out, word_of);
  }
}

}  // namespace pipethreader::interpret
