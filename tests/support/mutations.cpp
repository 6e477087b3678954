#include "support/mutations.h"

#include <algorithm>
#include <functional>
#include <type_traits>

#include "program/expr_builder.h"
#include "program/walk.h"

namespace pipethreader::test {
namespace {

using namespace program;

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

template <class Op, class... Some>
constexpr bool one_of = (std::is_same_v<Op, Some> || ...);

template <class Op>
constexpr bool removable = one_of<Op, RingWait, RingAcquire, RingCommit, RingRelease, RingAdvance, MmaWait, MmaCommit,
                                  BarrierSync, BarrierArrive, BulkStoreWait, ProxyFence, ClusterSync>;

// Fragments and variables (counted from `first_var`) that an instruction and all it holds read, and those it writes.
constexpr int first_var = 1 << 20;
struct Touched {
  std::vector<int> reads;
  std::vector<int> writes;
};

Touched touched_by(const Program& program, const Instr& instr) {
  Touched touched;
  const auto note = [&](const Instr& one) {
    for_each_expr(one, [&](ExprId expr) {
      for_each_part(program, expr, [&](const Expr& part) {
        if (part.kind == Expr::Kind::fragment) touched.reads.push_back(part.fragment.index);
        if (part.kind == Expr::Kind::var) touched.reads.push_back(first_var + part.var.index);
      });
    });
    std::visit(
        [&](const auto& op) {
          using Op = std::remove_cvref_t<decltype(op)>;
          if constexpr (one_of<Op, Let, For>) touched.writes.push_back(first_var + op.var.index);
          if constexpr (one_of<Op, Map, Reduce, Relayout, LoadGlobal, LoadShared>)
            touched.writes.push_back(op.target.index);
          if constexpr (one_of<Op, StoreGlobal, StoreShared, Relayout>) touched.reads.push_back(op.source.index);
          if constexpr (one_of<Op, Mma>) {
            touched.writes.push_back(op.accumulator.index);
            for (const Operand* operand : {&op.a, &op.b}) {
              if (operand->in_registers) touched.reads.push_back(operand->fragment.index);
            }
          }
        },
        one.op);
  };
  note(instr);
  for (const Block* block : blocks(instr)) for_each(*block, [&](const Instr& inner, const Path&) { note(inner); });
  return touched;
}

// Whether what one of two neighbours computes depends on their order. A product is asynchronous: whoever depends on
// it must have waited, so its place among its neighbours is a matter of synchronisation.
bool compute_in_order(const Program& program, const Instr& first, const Instr& second) {
  Touched a = touched_by(program, first);
  Touched b = touched_by(program, second);
  if (std::holds_alternative<Mma>(first.op) || std::holds_alternative<Mma>(second.op)) {
    for (std::vector<int>* touched : {&a.reads, &a.writes, &b.reads, &b.writes})
      std::erase_if(*touched, [](int what) { return what < first_var; });
  }
  const auto common = [](const std::vector<int>& x, const std::vector<int>& y) {
    return std::ranges::any_of(x, [&](int f) { return std::ranges::find(y, f) != y.end(); });
  };
  return common(a.writes, b.reads) || common(a.writes, b.writes) || common(a.reads, b.writes);
}

class Mutator {
 public:
  explicit Mutator(const Program& program) : original_(program) {}

  std::vector<Mutant> run() {
    for (std::size_t r = 0; r < original_.roles.size(); ++r) {
      for_each(original_.roles[r].body, [&](const Instr& instr, const Path& path) { mutate(RoleId(r), instr, path); });
    }
    for (std::size_t r = 0; r < original_.rings.size(); ++r) mutate_ring(r);
    for (std::size_t b = 0; b < original_.barriers.size(); ++b) {
      for (const int by : {-1, 1}) {
        if (original_.barriers[b].participants + by < 1) continue;
        change(fmt::format("barrier {}: {} participants", original_.barriers[b].name,
                           original_.barriers[b].participants + by),
               [&](Program& p) { p.barriers[b].participants += by; });
      }
    }
    return std::move(mutants_);
  }

 private:
  const Program& original_;
  std::vector<Mutant> mutants_;

  void change(std::string what, const std::function<void(Program&)>& edit, bool same_result = true) {
    Mutant mutant{std::move(what), original_, same_result};
    edit(mutant.program);
    mutants_.push_back(std::move(mutant));
  }

  static Block& block_of(Program& program, RoleId role, const Path& path) {
    Block* block = &program.roles[at(role.index)].body;
    for (std::size_t i = 0; i + 1 < path.size(); ++i) {
      block = blocks((*block)[at(path[i].index)])[at(path[i].branch)];
    }
    return *block;
  }

  void mutate(RoleId role, const Instr& instr, const Path& path) {
    const std::string place = fmt::format("{}: {}", program::print(original_, role, path), text_name(instr));
    const auto index = at(path.back().index);
    std::visit(
        [&](const auto& op) {
          if constexpr (removable<std::remove_cvref_t<decltype(op)>>) {
            change(place + " taken away", [&](Program& p) {
              Block& block = block_of(p, role, path);
              block.erase(block.begin() + static_cast<std::ptrdiff_t>(index));
            });
            const auto twice = [&](Program& p) {
              Block& block = block_of(p, role, path);
              const Instr copy = block[index];
              block.insert(block.begin() + static_cast<std::ptrdiff_t>(index), copy);
            };
            change(place + " done twice", twice, !std::holds_alternative<RingAdvance>(instr.op));
          }
        },
        instr.op);
    Program copy = original_;
    const Block& block = block_of(copy, role, path);
    if (index + 1 < block.size() && !compute_in_order(original_, instr, block[index + 1])) {
      change(fmt::format("{} swapped with {}", place, text_name(block[index + 1])), [&](Program& p) {
        Block& own = block_of(p, role, path);
        std::swap(own[index], own[index + 1]);
      });
    }
    for (const int by : {-1, 1}) change_numbers(role, instr, path, place, by);
    change_control(role, instr, path, place);
  }

  // One role goes through a loop once more or less often, or takes the other branch.
  void change_control(RoleId role, const Instr& instr, const Path& path, const std::string& place) {
    const auto edit = [&](const std::string& what, const std::function<void(Instr&, ExprBuilder&)>& change_one) {
      change(
          place + what,
          [&](Program& p) {
            ExprBuilder builder(p);
            change_one(block_of(p, role, path)[at(path.back().index)], builder);
          },
          false);
    };
    if (std::holds_alternative<For>(instr.op)) {
      edit(" ends one later", [](Instr& i, ExprBuilder& b) {
        auto& loop = std::get<For>(i.op);
        loop.end = b.add(loop.end, loop.step);
      });
      edit(" ends one earlier", [](Instr& i, ExprBuilder& b) {
        auto& loop = std::get<For>(i.op);
        loop.end = b.sub(loop.end, loop.step);
      });
      edit(" begins one later", [](Instr& i, ExprBuilder& b) {
        auto& loop = std::get<For>(i.op);
        loop.begin = b.add(loop.begin, loop.step);
      });
    }
    if (std::holds_alternative<If>(instr.op)) {
      edit(" the other way round", [](Instr& i, ExprBuilder& b) {
        auto& branch = std::get<If>(i.op);
        branch.condition = b.logical_not(branch.condition);
      });
    }
  }

  // Every lag and every number of pending groups, by one.
  void change_numbers(RoleId role, const Instr& instr, const Path& path, const std::string& place, int by) {
    int numbers = 0;
    visit_numbers(const_cast<Instr&>(instr), [&](int&, const char*) { ++numbers; });
    for (int n = 0; n < numbers; ++n) {
      Mutant mutant{place, original_};
      bool valid = true;
      int seen = 0;
      visit_numbers(block_of(mutant.program, role, path)[at(path.back().index)], [&](int& number, const char* what) {
        if (seen++ != n) return;
        number += by;
        valid = number >= 0;
        mutant.same_result = !names_a_fill(instr, what);
        mutant.change += fmt::format(" with {} {}", what, number);
      });
      if (valid) mutants_.push_back(std::move(mutant));
    }
  }

  // Not of waits, releases and pins: those only say when.
  static bool names_a_fill(const Instr& instr, const std::string& what) {
    const bool synchronises =
        std::holds_alternative<RingWait>(instr.op) || std::holds_alternative<RingRelease>(instr.op);
    return !synchronises && what.ends_with("lag") && what != "pin's lag";
  }

  template <class Visit>
  static void visit_numbers(Instr& instr, Visit visit) {
    std::visit(
        [&](auto& op) {
          using Op = std::remove_cvref_t<decltype(op)>;
          if constexpr (requires { op.lag; }) visit(op.lag, "lag");
          if constexpr (requires { op.pending; }) visit(op.pending, "pending");
          if constexpr (one_of<Op, MmaWait>) {
            if (op.pin) visit(op.pin->lag, "pin's lag");
          }
          if constexpr (one_of<Op, CopyBulk, CopyPlain, StoreShared>) visit(op.target.lag, "lag");
          if constexpr (one_of<Op, LoadShared, BulkStore>) visit(op.source.lag, "lag");
          if constexpr (one_of<Op, Mma>) {
            if (!op.a.in_registers) visit(op.a.buffer.lag, "a's lag");
            if (!op.b.in_registers) visit(op.b.buffer.lag, "b's lag");
          }
        },
        instr.op);
  }

  void mutate_ring(std::size_t r) {
    const Ring& ring = original_.rings[r];
    const auto change_ring = [&](const std::string& what, const std::function<void(Ring&)>& edit) {
      change(fmt::format("ring {}: {}", ring.name, what), [&](Program& p) {
        edit(p.rings[r]);
        for (Buffer& buffer : p.buffers) {
          if (buffer.ring == RingId(r)) buffer.slots = p.rings[r].depth;
        }
      });
    };
    if (ring.depth > 1) change_ring("one slot less", [](Ring& x) { --x.depth; });
    for (const int by : {-1, 1}) {
      if (ring.full_arrivals + by > 0)
        change_ring(fmt::format("full after {}", ring.full_arrivals + by), [&](Ring& x) { x.full_arrivals += by; });
      if (ring.empty_arrivals + by > 0)
        change_ring(fmt::format("empty after {}", ring.empty_arrivals + by), [&](Ring& x) { x.empty_arrivals += by; });
      if (ring.bytes > 0)
        change_ring(fmt::format("{} bytes", ring.bytes + 16 * by), [&](Ring& x) { x.bytes += 16 * by; });
    }
    if (ring.bytes > 0) change_ring("half the bytes", [](Ring& x) { x.bytes /= 2; });
  }
};

// The items that the one block (or cluster) of a launch of so many clusters does, when nothing is dynamic.
std::vector<std::int64_t> items_of(const ForWork& work, std::int64_t count, int cluster, int clusters) {
  std::vector<std::int64_t> items;
  if (work.order == WorkOrder::single) return {cluster};
  for (std::int64_t item = cluster; item < count; item += clusters) items.push_back(item);
  return items;
}

}  // namespace

std::vector<Mutant> mutants(const Program& program) { return Mutator(program).run(); }

std::vector<Setting> settings_for(const Program& program, const verify::Witness& witness, std::size_t most) {
  const ForWork* work = nullptr;
  for_each_instr(program, [&](RoleId, const Instr& instr, const Path&) {
    if (const auto* op = std::get_if<ForWork>(&instr.op)) work = op;
  });
  // Sizes around tile borders; scalars do not decide anything.
  std::vector<std::vector<double>> choices{{}};
  for (const Param& param : program.params) {
    const std::vector<double> sizes =
        param.dim ? std::vector<double>{1, 8, 64, 72, 128, 136, 200, 256, 264, 328, 392, 456, 520, 0, 584, 712}
                  : std::vector<double>{0.5};
    std::vector<std::vector<double>> longer;
    for (const auto& choice : choices) {
      for (const double size : sizes) {
        longer.push_back(choice);
        longer.back().push_back(size);
      }
    }
    choices = std::move(longer);
  }
  const auto volume = [](const std::vector<double>& params) {
    double product = 1;
    for (const double p : params) product *= p + 16;
    return product;
  };
  std::ranges::stable_sort(choices, {}, volume);
  std::vector<Setting> found;
  for (const auto& params : choices) {
    const auto holds = [&](ExprId requirement) { return evaluate(program, requirement, params) != 0; };
    if (!std::ranges::all_of(program.requirements, holds)) continue;
    const std::int64_t count = work == nullptr ? 1 : evaluate(program, work->count, params);
    for (const int clusters : {1, 2}) {
      const int blocks = work != nullptr && work->order == WorkOrder::single ? static_cast<int>(count) : clusters;
      bool agrees = false;
      for (int cluster = 0; cluster < blocks && !agrees; ++cluster) {
        const auto items = work == nullptr ? std::vector<std::int64_t>{0} : items_of(*work, count, cluster, clusters);
        agrees = witness.agrees && witness.agrees(params, items);
      }
      if (!agrees) continue;
      found.push_back({params, clusters});
      if (found.size() >= most) return found;
      break;
    }
  }
  return found;
}

}  // namespace pipethreader::test
