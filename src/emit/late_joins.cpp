#include "emit/late_joins.h"

#include <algorithm>
#include <set>
#include <utility>

#include "program/walk.h"

namespace pipethreader::emit {

using namespace program;

namespace {

class Finder {
 public:
  explicit Finder(const Program& program) : program_(program) {}

  std::map<const Reduce*, LateJoin> run() {
    for (const Role& role : program_.roles) scan(role.body);
    // Whatever else reads such a value reads it joined: drop all that share one with another reader.
    bool dropped = true;
    while (std::exchange(dropped, false)) {
      for (auto& [reduce, window] : windows_) {
        const auto alone = [&](FragmentId value) {
          return std::ranges::all_of(readers_[value], [&](const Instr* reader) { return inside(reader, value); });
        };
        if (std::ranges::all_of(window.values, alone)) continue;
        windows_.erase(reduce);
        dropped = true;
        break;
      }
    }
    std::map<const Reduce*, LateJoin> found;
    for (auto& [reduce, window] : windows_) found.emplace(reduce, std::move(window.join));
    return found;
  }

 private:
  struct Window {
    LateJoin join;
    std::set<FragmentId> values;          // the maximum and what hangs on it until it is decided
    std::set<const Instr*> instructions;  // that may read them
  };

  static bool joins_lanes(const Reduce& reduce) {
    return std::ranges::any_of(reduce.domain.digits, [&](const layout::Digit& digit) {
      return digit.place == layout::Place::lane && digit.extent > 1 && digit.dim != layout::replicated &&
             std::ranges::find(reduce.kept, digit.dim) == reduce.kept.end();
    });
  }

  bool inside(const Instr* reader, FragmentId value) const {
    return std::ranges::any_of(windows_, [&](const auto& entry) {
      return entry.second.values.contains(value) && entry.second.instructions.contains(reader);
    });
  }

  bool reads_any(ExprId expr, const std::set<FragmentId>& values) const {
    bool found = false;
    for_each_fragment(program_, expr, [&](FragmentId f) { found = found || values.contains(f); });
    return found;
  }

  void scan(const Block& block) {
    for (std::size_t i = 0; i < block.size(); ++i) {
      for_each_fragment_read(program_, block[i], [&](FragmentId f) { readers_[f].insert(&block[i]); });
      if (const auto* reduce = std::get_if<Reduce>(&block[i].op)) open(block, i, *reduce);
      for (const Block* inner : blocks(block[i])) scan(*inner);
    }
  }

  // The maps right behind a reduction, up to the one that decides.
  void open(const Block& block, std::size_t first, const Reduce& reduce) {
    if (reduce.op == ReduceOp::sum || reduce.accumulate || reduce.residual || reduce.scratch.valid()) return;
    if (program_[reduce.target].type != ScalarType::f32 || !joins_lanes(reduce)) return;
    Window window;
    window.values.insert(reduce.target);
    for (std::size_t i = first + 1; i < block.size(); ++i) {
      const auto* map = std::get_if<Map>(&block[i].op);
      if (map == nullptr || !reads_any(map->value, window.values)) return;
      window.instructions.insert(&block[i]);
      const Expr& value = program_[map->value];
      if (value.kind == Expr::Kind::call && value.function == Function::select &&
          reads_any(value.args[0], window.values)) {
        // What holds without the condition is assigned first: nothing that follows may read the old value.
        if (reads_any(value.args[2], window.values) || reads_any(map->value, {map->target})) return;
        window.join.decides = map;
        windows_.emplace(&reduce, std::move(window));
        return;
      }
      // Computed once before the join and once behind it: it must not read itself.
      if (reads_any(map->value, {map->target})) return;
      window.join.between.push_back(map);
      window.values.insert(map->target);
    }
  }

  const Program& program_;
  std::map<const Reduce*, Window> windows_;
  std::map<FragmentId, std::set<const Instr*>> readers_;
};

}  // namespace

std::map<const Reduce*, LateJoin> late_joins(const Program& program) { return Finder(program).run(); }

}  // namespace pipethreader::emit
