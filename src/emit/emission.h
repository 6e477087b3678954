// What one emission carries: the program and what is known of it, the names in the source, the helpers used, and the
// role being written. Problems are collected; the first stage that finds any at its end fails.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "emit/facts.h"
#include "emit/helpers.h"
#include "emit/names.h"
#include "emit/writer.h"
#include "program/program.h"

namespace pipethreader::emit {

// The role whose body is being written.
struct RoleScope {
  program::RoleId id;
  Width width = Width::warpgroup;
  int first_group = 0;         // its first warpgroup in the block
  std::string instance = "0";  // C text of the instance's number
  std::string group_barrier;   // C text of the hardware barrier that the instance's warps have for themselves
  std::map<std::string, std::string> thread_parts;  // C text over lane and warp -> variable
  std::vector<std::string> thread_part_lines;
};

class Emission {
 public:
  explicit Emission(const program::Program& program);

  const program::Program& program;
  Facts facts;
  Names names;
  Helpers helpers;
  Writer out;  // the current role's body
  RoleScope role;
  std::map<program::ExprId, program::ExprId> instead;  // expressions that are written as others for a while
  std::vector<std::string> loads;                      // the bits of one register of each load that a LoadShared became

  template <class... Args>
  void problem(fmt::format_string<Args...> text, Args&&... args) {
    problems_.push_back({{}, {}, fmt::format(text, std::forward<Args>(args)...), {}});
  }
  [[nodiscard]] const std::vector<Diagnostic>& problems() const { return problems_; }

  [[nodiscard]] const std::string& name(program::ParamId id) const {
    return params_[static_cast<std::size_t>(id.index)];
  }
  [[nodiscard]] const std::string& name(program::TensorId id) const {
    return tensors_[static_cast<std::size_t>(id.index)];
  }
  [[nodiscard]] const std::string& name(program::MapId id) const { return maps_[static_cast<std::size_t>(id.index)]; }
  [[nodiscard]] const std::string& name(program::BufferId id) const {
    return buffers_[static_cast<std::size_t>(id.index)];
  }
  [[nodiscard]] const std::string& name(program::RingId id) const { return rings_[static_cast<std::size_t>(id.index)]; }
  [[nodiscard]] const std::string& name(program::BarrierId id) const {
    return barriers_[static_cast<std::size_t>(id.index)];
  }
  [[nodiscard]] const std::string& name(program::FragmentId id) const {
    return fragments_[static_cast<std::size_t>(id.index)];
  }
  [[nodiscard]] const std::string& name(program::VarId id) const { return vars_[static_cast<std::size_t>(id.index)]; }

  // 16-bit elements held in pairs, registers 2i and 2i + 1 in one 32-bit variable.
  [[nodiscard]] bool packed(program::FragmentId id) const;
  // The variables of a fragment, in register order.
  [[nodiscard]] std::vector<std::string> variables(program::FragmentId id) const;
  [[nodiscard]] std::string variable(program::FragmentId id, int reg) const;  // the one that holds this register

  // The name of a macro that lists all variables of an accumulator.
  [[nodiscard]] std::string all_of(program::FragmentId id) const { return name(id) + "_all"; }

  // The bits of a register as C text.
  [[nodiscard]] std::string register_bits(program::FragmentId id, const std::string& variable) const;
  // "any_bits(a, b) & zero": 0, but nobody can know before all these bits are there.
  [[nodiscard]] std::string zero_after(const std::vector<std::string>& bits);

  // A barrier of the instance's own 128 threads.
  void sync_group();

  // layout::register_map from a tile of the program to an operand fragment, remembered.
  [[nodiscard]] const std::optional<std::vector<int>>& register_map(const layout::Layout& tile,
                                                                    program::FragmentId operand,
                                                                    const std::vector<int>& dims);

  // What thread (lane, warp) adds to a coordinate of the layout: a variable of the role, or "0".
  [[nodiscard]] std::string thread_part(const layout::Layout& layout, int dim);
  // A named per-thread integer of the role, written before its body.
  [[nodiscard]] std::string per_thread(const std::string& text, std::string_view wanted);
  // A named value, written before the statement whose text is being made; the same for the same text within one
  // instruction and scope.
  [[nodiscard]] std::string computed_before(std::string_view type, const std::string& text, std::string_view wanted);
  void forget_computed() { computed_.clear(); }

 private:
  std::vector<std::string> params_, tensors_, maps_, buffers_, rings_, barriers_, fragments_, vars_;
  std::vector<Diagnostic> problems_;
  std::map<std::string, std::string> computed_;  // text -> variable
  int computed_scope_ = -1;
  std::map<std::tuple<const layout::Layout*, int, std::vector<int>>, std::optional<std::vector<int>>> register_maps_;
};

// "(a + b)" for C texts; drops what adds nothing.
[[nodiscard]] std::string sum(const std::string& a, const std::string& b);
[[nodiscard]] std::string sum(const std::string& a, std::int64_t b);
// Without the parentheses that enclose the whole.
[[nodiscard]] std::string bare(const std::string& text);

// C type of the bits of an element in memory, and of one register of it.
[[nodiscard]] std::string memory_type(ScalarType type);
[[nodiscard]] std::string register_type(const Emission& emission, program::FragmentId id);
[[nodiscard]] std::string float_literal(double value);

}  // namespace pipethreader::emit
