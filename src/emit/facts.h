// What can be known about a program's integers, rings and roles without running it: signs and divisors (for plain
// division and vector accesses), how expressions move along a coordinate, who fills and frees which ring.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "emit/late_joins.h"
#include "program/program.h"

namespace pipethreader::emit {

// How many threads execute a role's body.
enum class Width : std::uint8_t {
  thread,     // a copier's elected lane
  warp,       // a copier that also meets barriers: its warp, copies by the elected lane
  warpgroup,  // a computer, or a copier that copies by threads
};

struct RoleFacts {
  Width width = Width::warpgroup;
  bool bulk_stores = false;
};

struct RingFacts {
  bool committed = false;        // some role arrives on `full` by RingCommit
  int arrivals_per_release = 1;  // 4: each warp of a reader arrives by itself
  bool read_by_threads = false;
  int arrivals_per_commit = 1;
};

class Facts {
 public:
  explicit Facts(const program::Program& program);

  [[nodiscard]] const RoleFacts& of(program::RoleId role) const { return roles_[static_cast<std::size_t>(role.index)]; }
  [[nodiscard]] const RingFacts& of(program::RingId ring) const { return rings_[static_cast<std::size_t>(ring.index)]; }
  [[nodiscard]] bool is_operand(program::FragmentId id) const { return operands_[static_cast<std::size_t>(id.index)]; }
  [[nodiscard]] bool is_accumulator(program::FragmentId id) const {
    return accumulators_[static_cast<std::size_t>(id.index)];
  }
  [[nodiscard]] bool syncs_cluster() const { return syncs_cluster_; }
  [[nodiscard]] bool uses(program::RoleId role, program::BarrierId barrier) const;
  // Threads that meet at a barrier of this declaration.
  [[nodiscard]] int threads_at(program::BarrierId barrier) const;
  [[nodiscard]] std::optional<program::ForWork> work() const { return work_; }

  // The first of the rings that move on together with this one in the role: they need one cursor.
  [[nodiscard]] program::RingId cursor(program::RoleId role, program::RingId ring) const {
    return cursors_[static_cast<std::size_t>(role.index)][static_cast<std::size_t>(ring.index)];
  }

  // A ring's cursor or buffers are used in the role.
  [[nodiscard]] bool uses(program::RoleId role, program::RingId ring) const;

  // Loads from the slot have arrived, or nobody waits for them, when it is given back.
  [[nodiscard]] bool settled(const program::RingRelease& release) const { return settled_.contains(&release); }

  // What decides whether the reduction's threads must join their parts; null: they always must.
  [[nodiscard]] const LateJoin* late_join(const program::Reduce& reduce) const {
    const auto found = late_joins_.find(&reduce);
    return found == late_joins_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] bool stands_in_late_join(const program::Map& map) const { return maps_of_late_joins_.contains(&map); }

  // Variables that the role assigns by Let.
  [[nodiscard]] const std::vector<program::VarId>& let_vars(program::RoleId role) const {
    return lets_[static_cast<std::size_t>(role.index)];
  }

  // An integer expression that is never negative. Unknown counts as false.
  [[nodiscard]] bool nonnegative(program::ExprId id) const;
  // A power of two, at most 1024, that divides the integer expression when each coordinate d is a multiple of
  // coords[d].
  [[nodiscard]] int divisor(program::ExprId id, std::span<const int> coords = {}) const;
  // By how much the expression grows when coordinate `dim` grows by one; nothing when that varies.
  [[nodiscard]] std::optional<std::int64_t> slope(program::ExprId id, int dim) const;
  // The boolean is the same for `count` neighbours along `dim`, the first of which is a multiple of coords[dim].
  [[nodiscard]] bool same_for_neighbours(program::ExprId id, int dim, int count, std::span<const int> coords) const;

 private:
  void scan_roles();
  void scan(const program::Block& block, program::RoleId role);
  void scan_meetings(const program::Block& block);
  void join_cursors();
  void settle_vars();
  void read_requirements();

  const program::Program& program_;
  std::vector<RoleFacts> roles_;
  std::vector<RingFacts> rings_;
  std::vector<std::vector<bool>> meets_;               // [role][barrier]
  std::vector<std::vector<bool>> turns_;               // [role][ring]
  std::vector<std::vector<program::VarId>> lets_;      // [role]
  std::vector<std::vector<program::RingId>> cursors_;  // [role][ring]
  std::vector<bool> operands_;                         // fragments that feed products from registers
  std::vector<bool> accumulators_;
  std::set<const program::RingRelease*> settled_;
  std::map<const program::Reduce*, LateJoin> late_joins_;
  std::set<const program::Map*> maps_of_late_joins_;
  bool syncs_cluster_ = false;
  std::optional<program::ForWork> work_;
  struct Assignment {
    program::VarId var;
    std::optional<program::ExprId> value;
    std::optional<program::For> loop;
  };
  std::vector<Assignment> assignments_;
  std::vector<bool> var_nonnegative_;
  std::vector<int> var_divisor_;
  std::vector<int> param_divisor_;
};

}  // namespace pipethreader::emit
