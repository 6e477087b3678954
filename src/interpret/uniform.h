// Uniform expressions: the same value for all threads of a role instance.
#pragma once

#include <cstdint>
#include <span>

#include "interpret/fault_sink.h"
#include "program/program.h"

namespace pipethreader::interpret {

// What a role instance knows; also enough for expressions over params alone (no vars, instance 0).
struct Uniforms {
  const program::Program* program = nullptr;
  std::span<const double> params;
  std::span<const std::int64_t> vars;
  int instance = 0;
  int cluster_rank = 0;
  FaultSink* faults = nullptr;

  // Integers (booleans too) that leave their type are an overflow fault; floats are rounded to the expression's type.
  [[nodiscard]] std::int64_t integer(program::ExprId expr) const;
  [[nodiscard]] float real(program::ExprId expr) const;
  [[nodiscard]] bool truth(program::ExprId expr) const;

 private:
  [[nodiscard]] std::int64_t integer_call(const program::Expr& expr) const;
  [[nodiscard]] float real_call(const program::Expr& expr) const;
  [[nodiscard]] std::int64_t checked(const program::Expr& expr, std::int64_t value) const;
};

[[nodiscard]] inline bool held_as_float(const program::Program& p, program::ExprId expr) {
  return is_floating(p[expr].type);
}

}  // namespace pipethreader::interpret
