#include "emit/facts.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <type_traits>

#include "emit/arrivals.h"
#include "program/walk.h"

namespace pipethreader::emit {

using namespace program;

namespace {

constexpr int kLargestDivisor = 1024;

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

int power_of_two_in(std::int64_t value) {
  if (value == 0) return kLargestDivisor;
  return static_cast<int>(std::min<std::int64_t>(value & -value, kLargestDivisor));
}

template <class Visit>
void each_instruction(const Block& block, const Visit& visit) {
  for (const Instr& instr : block) {
    visit(instr);
    std::visit(
        [&](const auto& op) {
          using T = std::decay_t<decltype(op)>;
          if constexpr (std::is_same_v<T, ForWork> || std::is_same_v<T, For>) each_instruction(op.body, visit);
          if constexpr (std::is_same_v<T, If>) each_instruction(op.otherwise, visit);
          if constexpr (std::is_same_v<T, If> || std::is_same_v<T, IfAny>) each_instruction(op.then, visit);
        },
        instr.op);
  }
}

template <class Op, class Visit>
void each_ring(const Op& op, const Program& program, const Visit& visit) {
  const auto of_buffer = [&](const BufferRef& ref) {
    if (ref.buffer.valid() && program[ref.buffer].ring.valid()) visit(program[ref.buffer].ring);
  };
  if constexpr (requires { op.ring; }) visit(op.ring);
  if constexpr (std::is_same_v<Op, MmaWait>)
    if (op.pin) visit(op.pin->ring);
  if constexpr (requires { BufferRef(op.target); }) of_buffer(op.target);
  if constexpr (requires { BufferRef(op.source); }) of_buffer(op.source);
  if constexpr (std::is_same_v<Op, Mma>) {
    if (!op.a.in_registers) of_buffer(op.a.buffer);
    of_buffer(op.b.buffer);
  }
}

}  // namespace

Facts::Facts(const Program& program)
    : program_(program),
      roles_(program.roles.size()),
      rings_(program.rings.size()),
      meets_(program.roles.size(), std::vector<bool>(program.barriers.size())),
      turns_(program.roles.size(), std::vector<bool>(program.rings.size())),
      lets_(program.roles.size()),
      operands_(program.fragments.size()),
      accumulators_(program.fragments.size()),
      settled_(settled_releases(program)),
      late_joins_(late_joins(program)),
      var_nonnegative_(program.vars.size(), true),
      var_divisor_(program.vars.size(), kLargestDivisor),
      param_divisor_(program.params.size(), 1) {
  for (const auto& [reduce, late] : late_joins_) {
    maps_of_late_joins_.insert(late.between.begin(), late.between.end());
    maps_of_late_joins_.insert(late.decides);
  }
  read_requirements();
  scan_roles();
  join_cursors();
  settle_vars();
}

// "N % 8 == 0", which the host checks before each launch.
void Facts::read_requirements() {
  for (const ExprId id : program_.requirements) {
    const Expr& equal = program_[id];
    if (equal.kind != Expr::Kind::call || equal.function != Function::eq) continue;
    const Expr& mod = program_[equal.args[0]];
    const Expr& zero = program_[equal.args[1]];
    if (zero.kind != Expr::Kind::constant || zero.number != 0) continue;
    if (mod.kind != Expr::Kind::call || mod.function != Function::mod) continue;
    const Expr& param = program_[mod.args[0]];
    const Expr& by = program_[mod.args[1]];
    if (param.kind != Expr::Kind::param || by.kind != Expr::Kind::constant) continue;
    int& known = param_divisor_[at(param.param.index)];
    known = std::max(known, power_of_two_in(static_cast<std::int64_t>(by.number)));
  }
}

void Facts::scan_roles() {
  for (std::size_t r = 0; r < program_.roles.size(); ++r) {
    const Role& role = program_.roles[r];
    bool by_threads = role.kind == RoleKind::computer;
    bool meets = false;
    each_instruction(role.body, [&](const Instr& instr) {
      std::visit(
          [&](const auto& op) {
            using T = std::decay_t<decltype(op)>;
            if constexpr (std::is_same_v<T, CopyPlain> || std::is_same_v<T, RingCommit> || std::is_same_v<T, Map> ||
                          std::is_same_v<T, LoadGlobal> || std::is_same_v<T, StoreGlobal> ||
                          std::is_same_v<T, LoadShared> || std::is_same_v<T, StoreShared>)
              by_threads = true;
            if constexpr (std::is_same_v<T, BarrierSync> || std::is_same_v<T, BarrierArrive>) {
              meets = true;
              meets_[r][at(op.barrier.index)] = true;
            }
            if constexpr (std::is_same_v<T, ClusterSync>) meets = syncs_cluster_ = true;
            if constexpr (std::is_same_v<T, Mma>) accumulators_[at(op.accumulator.index)] = true;
            if constexpr (std::is_same_v<T, Mma>)
              if (op.a.in_registers) operands_[at(op.a.fragment.index)] = true;
            each_ring(op, program_, [&](RingId ring) { turns_[r][at(ring.index)] = true; });
            if constexpr (std::is_same_v<T, BulkStore>) roles_[r].bulk_stores = true;
            if constexpr (std::is_same_v<T, ForWork>) {
              if (!work_) work_ = op;
              assignments_.push_back({op.item, std::nullopt, std::nullopt});
            }
            if constexpr (std::is_same_v<T, For>) assignments_.push_back({op.var, std::nullopt, op});
            if constexpr (std::is_same_v<T, Let>)
              if (std::ranges::find(lets_[r], op.var) == lets_[r].end()) lets_[r].push_back(op.var);
            if constexpr (std::is_same_v<T, Let>) assignments_.push_back({op.var, op.value, std::nullopt});
          },
          instr.op);
    });
    roles_[r].width = by_threads ? Width::warpgroup : meets ? Width::warp : Width::thread;
    scan(role.body, RoleId(r));
  }
}

// Threads read a slot by themselves: every warp has to say that it has finished. So it has where its warps may have run
// apart since they waited for the slot.
void Facts::scan(const Block& block, RoleId role) {
  each_instruction(block, [&](const Instr& instr) {
    if (const auto* commit = std::get_if<RingCommit>(&instr.op)) {
      RingFacts& ring = rings_[at(commit->ring.index)];
      ring.committed = true;
      ring.arrivals_per_commit = 4;
    }
    if (const auto* load = std::get_if<LoadShared>(&instr.op)) {
      const Buffer& buffer = program_[load->source.buffer];
      if (buffer.ring.valid()) {
        rings_[at(buffer.ring.index)].arrivals_per_release = 4;
        rings_[at(buffer.ring.index)].read_by_threads = true;
      }
    }
    if (const auto* release = std::get_if<RingRelease>(&instr.op))
      if (program_[role].kind == RoleKind::copier && of(role).width == Width::warpgroup)
        rings_[at(release->ring.index)].arrivals_per_release = 4;
  });
  if (program_[role].kind == RoleKind::computer) scan_meetings(block);
}

// Between the wait for a slot and its release only a product brings the warps of a group together: it runs when all
// four have issued it. One that stands under a condition, or in a loop that may be empty, does not count.
void Facts::scan_meetings(const Block& block) {
  std::vector<bool> waited(program_.rings.size());
  std::vector<bool> met(program_.rings.size());
  for (const Instr& instr : block) {
    if (const auto* wait = std::get_if<RingWait>(&instr.op)) {
      waited[at(wait->ring.index)] = true;
      met[at(wait->ring.index)] = false;
    }
    if (const auto* product = std::get_if<Mma>(&instr.op))
      each_ring(*product, program_, [&](RingId ring) { met[at(ring.index)] = true; });
    if (std::holds_alternative<MmaWait>(instr.op)) {  // of a product issued before this block
      for (std::size_t r = 0; r < met.size(); ++r) met[r] = met[r] || !waited[r];
    }
    if (const auto* release = std::get_if<RingRelease>(&instr.op))
      if (!met[at(release->ring.index)]) rings_[at(release->ring.index)].arrivals_per_release = 4;
    for (const Block* inner : program::blocks(instr)) scan_meetings(*inner);
  }
}

namespace {

// Takes rings apart that one stretch of advances moves on and does not move on.
void part_cursors(const Block& block, std::vector<int>& groups) {
  for (std::size_t i = 0; i < block.size();) {
    std::vector<int> advances(groups.size());
    const std::size_t first = i;
    for (; i < block.size(); ++i) {
      const auto* advance = std::get_if<RingAdvance>(&block[i].op);
      if (advance == nullptr) break;
      ++advances[at(advance->ring.index)];
    }
    if (i > first) {
      std::map<std::pair<int, int>, int> parts;
      for (std::size_t r = 0; r < groups.size(); ++r) {
        const auto [part, fresh] = parts.try_emplace({groups[r], advances[r]}, static_cast<int>(r));
        groups[r] = part->second;
      }
      continue;
    }
    for (const Block* inner : program::blocks(block[i])) part_cursors(*inner, groups);
    ++i;
  }
}

}  // namespace

// Rings as deep as each other that move on in the same places always stand at the same slot and phase.
void Facts::join_cursors() {
  for (std::size_t role = 0; role < program_.roles.size(); ++role) {
    std::map<int, int> first_of_depth;
    std::vector<int> groups;
    for (std::size_t r = 0; r < program_.rings.size(); ++r)
      groups.push_back(first_of_depth.try_emplace(program_.rings[r].depth, static_cast<int>(r)).first->second);
    part_cursors(program_.roles[role].body, groups);
    std::vector<RingId>& own = cursors_.emplace_back();
    for (const int group : groups) own.emplace_back(static_cast<std::size_t>(group));
  }
}

// The largest solution: assume the best of every variable and take back what an assignment contradicts.
void Facts::settle_vars() {
  for (bool changed = true; changed;) {
    changed = false;
    for (const Assignment& a : assignments_) {
      bool nonneg = true;
      int divides = 1;
      if (a.loop) {
        // Downwards, the variable stays above `end`.
        const Expr& end = program_[a.loop->end];
        const bool end_ok = end.kind == Expr::Kind::constant ? end.number >= -1 : nonnegative(a.loop->end);
        nonneg = a.loop->step > 0 ? nonnegative(a.loop->begin) : end_ok;
        divides = std::min(divisor(a.loop->begin), power_of_two_in(a.loop->step));
      } else if (a.value) {
        nonneg = nonnegative(*a.value);
        divides = divisor(*a.value);
      }
      const std::size_t v = at(a.var.index);
      if (var_nonnegative_[v] && !nonneg) {
        var_nonnegative_[v] = false;
        changed = true;
      }
      if (divides < var_divisor_[v]) {
        var_divisor_[v] = divides;
        changed = true;
      }
    }
  }
}

bool Facts::uses(RoleId role, RingId ring) const { return turns_[at(role.index)][at(ring.index)]; }

bool Facts::uses(RoleId role, BarrierId barrier) const { return meets_[at(role.index)][at(barrier.index)]; }

int Facts::threads_at(BarrierId barrier) const {
  int narrow = 0;
  for (std::size_t r = 0; r < program_.roles.size(); ++r)
    if (meets_[r][at(barrier.index)] && roles_[r].width != Width::warpgroup) narrow += program_.roles[r].instances;
  const int participants = program_[barrier].participants;
  narrow = std::min(narrow, participants);
  return (participants - narrow) * layout::threads_of_group + narrow * layout::lanes_of_warp;
}

bool Facts::nonnegative(ExprId id) const {
  const Expr& e = program_[id];
  const auto arg = [&](std::size_t i) { return nonnegative(e.args[i]); };
  switch (e.kind) {
    case Expr::Kind::constant:
      return e.number >= 0;
    case Expr::Kind::param:
      return program_[e.param].dim;
    case Expr::Kind::var:
      return var_nonnegative_[at(e.var.index)];
    case Expr::Kind::instance:
    case Expr::Kind::cluster_rank:
    case Expr::Kind::coord:
      return true;
    case Expr::Kind::fragment:
      return e.type == ScalarType::boolean;
    case Expr::Kind::convert:
      return arg(0);
    case Expr::Kind::call:
      break;
  }
  if (info(e.function).gives_boolean) return true;
  switch (e.function) {
    case Function::add:
    case Function::mul:
    case Function::div:
    case Function::min:
      return arg(0) && arg(1);
    case Function::mod:
      return arg(1);
    case Function::max:
      return arg(0) || arg(1);
    case Function::select:
      return arg(1) && arg(2);
    case Function::abs:
      return true;
    default:
      return false;
  }
}

int Facts::divisor(ExprId id, std::span<const int> coords) const {
  const Expr& e = program_[id];
  const auto arg = [&](std::size_t i) { return divisor(e.args[i], coords); };
  switch (e.kind) {
    case Expr::Kind::constant:
      return power_of_two_in(static_cast<std::int64_t>(e.number));
    case Expr::Kind::param:
      return param_divisor_[at(e.param.index)];
    case Expr::Kind::var:
      return var_divisor_[at(e.var.index)];
    case Expr::Kind::coord:
      return at(e.dim) < coords.size() ? coords[at(e.dim)] : 1;
    case Expr::Kind::call:
      break;
    default:
      return 1;
  }
  switch (e.function) {
    case Function::add:
    case Function::sub:
    case Function::min:
    case Function::max:
      return std::min(arg(0), arg(1));
    case Function::mod:  // a % b with b a multiple of the divisor keeps it
      return std::min(arg(0), arg(1));
    case Function::mul:
      return std::min(arg(0) * arg(1), kLargestDivisor);
    case Function::neg:
    case Function::abs:
      return arg(0);
    case Function::select:
      return std::min(arg(1), arg(2));
    case Function::div: {  // exact when the divisor of the numerator is a multiple of the denominator
      const Expr& by = program_[e.args[1]];
      if (by.kind != Expr::Kind::constant || by.number < 1) return 1;
      const auto number = static_cast<std::int64_t>(by.number);
      return (number & (number - 1)) == 0 && arg(0) % number == 0 ? static_cast<int>(arg(0) / number) : 1;
    }
    default:
      return 1;
  }
}

std::optional<std::int64_t> Facts::slope(ExprId id, int dim) const {
  const Expr& e = program_[id];
  if (e.kind == Expr::Kind::coord) return e.dim == dim ? 1 : 0;
  if (e.kind == Expr::Kind::fragment) return std::nullopt;
  if (e.kind != Expr::Kind::call && e.kind != Expr::Kind::convert) return 0;
  std::vector<std::optional<std::int64_t>> slopes;
  for (const ExprId a : e.args) slopes.push_back(slope(a, dim));
  if (std::all_of(slopes.begin(), slopes.end(), [](const auto& s) { return s == 0; })) return 0;
  if (e.kind != Expr::Kind::call) return std::nullopt;
  if (std::any_of(slopes.begin(), slopes.end(), [](const auto& s) { return !s; })) return std::nullopt;
  switch (e.function) {
    case Function::add:
      return *slopes[0] + *slopes[1];
    case Function::sub:
      return *slopes[0] - *slopes[1];
    case Function::neg:
      return -*slopes[0];
    case Function::mul:
      for (std::size_t i = 0; i < 2; ++i) {
        const Expr& factor = program_[e.args[i]];
        if (factor.kind == Expr::Kind::constant) return static_cast<std::int64_t>(factor.number) * *slopes[1 - i];
      }
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

bool Facts::same_for_neighbours(ExprId id, int dim, int count, std::span<const int> coords) const {
  if (slope(id, dim) == 0) return true;
  const Expr& e = program_[id];
  if (e.kind != Expr::Kind::call) return false;
  // x < bound, where x runs over the neighbours from a multiple of `count` and the bound is a multiple of it.
  const auto below = [&](ExprId x, ExprId bound) {
    return slope(x, dim) == 1 && slope(bound, dim) == 0 && divisor(x, coords) % count == 0 &&
           divisor(bound, coords) % count == 0;
  };
  switch (e.function) {
    case Function::logical_and:
    case Function::logical_or:
    case Function::logical_not:
      return std::all_of(e.args.begin(), e.args.end(),
                         [&](ExprId a) { return same_for_neighbours(a, dim, count, coords); });
    case Function::lt:
    case Function::ge:
      return below(e.args[0], e.args[1]);
    case Function::gt:
    case Function::le:
      return below(e.args[1], e.args[0]);
    default:
      return false;
  }
}

}  // namespace pipethreader::emit
