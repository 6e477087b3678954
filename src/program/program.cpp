#include "program/program.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace pipethreader::program {

int swizzle_bytes(Swizzle swizzle) {
  switch (swizzle) {
    case Swizzle::none:
      return 0;
    case Swizzle::bytes32:
      return 32;
    case Swizzle::bytes64:
      return 64;
    case Swizzle::bytes128:
      return 128;
  }
  return 0;
}

std::int64_t TensorMap::rows() const {
  std::int64_t rows = 1;
  for (std::size_t d = 1; d < dims.size(); ++d) rows *= dims[d].box;
  return rows;
}

int span_columns(const Buffer& buffer) {
  return buffer.swizzle == Swizzle::none ? buffer.cols : swizzle_bytes(buffer.swizzle) * 8 / bits(buffer.type);
}

// Whole boxes: a swizzled row whose width is no multiple of the span still fills its last box.
std::int64_t slot_bytes(const Buffer& buffer) {
  if (buffer.stairs) return buffer.stairs->elements(buffer.rows / buffer.stairs->rows) * bits(buffer.type) / 8;
  const std::int64_t row = (static_cast<std::int64_t>(buffer.cols) * bits(buffer.type) + 7) / 8;
  const std::int64_t span = swizzle_bytes(buffer.swizzle);
  return buffer.rows * (span == 0 ? row : (row + span - 1) / span * span);
}

std::int64_t slot_stride(const Buffer& buffer) {
  const std::int64_t alignment = slot_alignment(buffer);
  return (slot_bytes(buffer) + alignment - 1) / alignment * alignment;
}

int slot_alignment(const Buffer& buffer) { return buffer.swizzle == Swizzle::none ? 128 : 1024; }

bool is_uniform(const Program& program, ExprId expr) {
  const Expr& e = program[expr];
  if (e.kind == Expr::Kind::coord || e.kind == Expr::Kind::fragment) return false;
  return std::ranges::all_of(e.args, [&](ExprId arg) { return is_uniform(program, arg); });
}

namespace {

double evaluate_host(const Program& program, ExprId expr, const std::vector<double>& params) {
  const Expr& e = program[expr];
  switch (e.kind) {
    case Expr::Kind::constant:
      return e.number;
    case Expr::Kind::param:
      return params.at(static_cast<std::size_t>(e.param.index));
    case Expr::Kind::convert:
      return round_to(e.type, evaluate_host(program, e.args[0], params));
    case Expr::Kind::call: {
      std::vector<double> args;
      bool integers = true;
      for (const ExprId arg : e.args) {
        args.push_back(evaluate_host(program, arg, params));
        integers = integers && !is_floating(program[arg].type);
      }
      return evaluate(e.function, args, integers);
    }
    default:
      assert(false && "only constants and params have a value on the host");
      return 0;
  }
}

}  // namespace

std::int64_t evaluate(const Program& program, ExprId expr, const std::vector<double>& params) {
  return static_cast<std::int64_t>(std::floor(evaluate_host(program, expr, params)));
}

}  // namespace pipethreader::program
