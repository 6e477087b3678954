// Expressions over the elements of a tile, compiled once into flat code and run on chunks of elements. Every common
// subexpression is evaluated once; what is uniform, once per run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "interpret/uniform.h"
#include "program/program.h"

namespace pipethreader::interpret {

inline constexpr std::size_t chunk_elements = 256;

// Row-major strides and the number of elements of a tile.
[[nodiscard]] std::vector<std::int64_t> strides_of(std::span<const int> shape);
[[nodiscard]] std::size_t elements_of(std::span<const int> shape);

struct Code {
  enum class Kind : std::uint8_t { uniform, coord, fragment, call, convert };
  struct Op {
    Kind kind = Kind::uniform;
    bool floating = false;
    ScalarType type = ScalarType::i32;
    program::ExprId expr;               // uniform
    Function function = Function::add;  // call
    std::vector<std::size_t> args;      // ops
    std::size_t fragment = 0;           // index into `fragments`
    std::vector<std::int32_t> places;   // coord: its value; fragment: the element read (empty: the same one)
  };
  std::vector<Op> ops;  // operands before their users
  std::vector<std::size_t> roots;
  std::vector<program::FragmentId> fragments;
  std::size_t elements = 0;
};

// Compiled code by expressions and shape; lives as long as the run.
class CodeCache {
 public:
  explicit CodeCache(const program::Program& program) : program_(program) {}
  const Code& compile(std::vector<program::ExprId> roots, std::vector<int> shape);

 private:
  using Key = std::pair<std::vector<program::ExprId>, std::vector<int>>;
  const program::Program& program_;
  std::map<Key, std::unique_ptr<Code>> known_;
};

// Runs code chunk by chunk: load(begin, count), then read the roots' values for these elements.
class Evaluation {
 public:
  // `fragments`: the words of code.fragments, in that order.
  Evaluation(const Code& code, const Uniforms& uniforms, std::vector<const float*> fragments);

  void load(std::size_t begin, std::size_t count);
  [[nodiscard]] bool floating(std::size_t root) const { return op_of(root).floating; }
  [[nodiscard]] const float* floats(std::size_t root) const { return floats_[code_.roots[root]].data(); }
  [[nodiscard]] const std::int64_t* integers(std::size_t root) const { return integers_[code_.roots[root]].data(); }
  [[nodiscard]] bool truth(std::size_t root, std::size_t k) const {
    return floating(root) ? floats(root)[k] != 0 : integers(root)[k] != 0;
  }
  // Words as a fragment or buffer holds them.
  void words(std::size_t root, std::size_t count, float* out) const;

 private:
  [[nodiscard]] const Code::Op& op_of(std::size_t root) const { return code_.ops[code_.roots[root]]; }
  const float* as_floats(std::size_t op, std::size_t count, std::size_t operand);
  const std::int64_t* as_integers(std::size_t op, std::size_t count, std::size_t operand);
  void call(std::size_t op, std::size_t count);
  void select(std::size_t op, std::size_t count);
  void convert(std::size_t op, std::size_t count);
  void read_fragment(std::size_t op, std::size_t begin, std::size_t count);
  void check_range(const Code::Op& op, const std::int64_t* values, std::size_t count);

  using Floats = std::vector<float>;
  using Integers = std::vector<std::int64_t>;
  const Code& code_;
  FaultSink& faults_;
  std::vector<const float*> fragments_;
  std::vector<Floats> floats_;  // one register an op, of the kind it has
  std::vector<Integers> integers_;
  Floats float_operands_[3];  // converted operands
  Integers integer_operands_[3];
};

}  // namespace pipethreader::interpret
