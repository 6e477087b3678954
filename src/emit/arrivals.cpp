#include "emit/arrivals.h"

#include <map>
#include <optional>
#include <type_traits>
#include <utility>

#include "program/walk.h"

namespace pipethreader::emit {

using namespace program;

namespace {

// The fragment that an instruction writes as a whole.
std::optional<FragmentId> written(const Instr& instr) {
  return std::visit(
      [](const auto& op) -> std::optional<FragmentId> {
        using Op = std::decay_t<decltype(op)>;
        if constexpr (std::is_same_v<Op, LoadGlobal> || std::is_same_v<Op, LoadShared> || std::is_same_v<Op, Map> ||
                      std::is_same_v<Op, Reduce> || std::is_same_v<Op, Relayout>)
          return op.target;
        return std::nullopt;
      },
      instr.op);
}

// Which fragments are read later, backwards through a role: for each the condition under which, when it is one.
class Live {
 public:
  using Set = std::map<FragmentId, std::optional<ExprId>>;

  explicit Live(const Program& program) : program_(program) {}

  Set before(const Block& block, Set live) {
    for (auto instr = block.rbegin(); instr != block.rend(); ++instr) live = before(*instr, std::move(live));
    return live;
  }
  [[nodiscard]] const std::set<FragmentId>& behind(const RingRelease& release) { return behind_[&release]; }

 private:
  Set before(const Instr& instr, Set live) {
    if (const auto* release = std::get_if<RingRelease>(&instr.op))
      for (const auto& [fragment, condition] : live) behind_[release].insert(fragment);
    if (const auto target = written(instr)) live.erase(*target);
    if (std::holds_alternative<Let>(instr.op))  // the condition may have meant another value
      for (auto& [fragment, condition] : live) condition.reset();
    if (const auto* branch = std::get_if<If>(&instr.op)) {
      live = before(*branch, live);
    } else if (const auto inner = blocks(instr); !inner.empty()) {  // a loop, or what may be skipped
      std::size_t known = 0;
      do {
        known = live.size();
        for (const auto& [fragment, condition] : before(*inner[0], live)) live[fragment].reset();
      } while (live.size() > known);
    }
    for_each_fragment_read(program_, instr, [&](FragmentId fragment) { live[fragment].reset(); });
    return live;
  }

  Set before(const If& branch, const Set& live) {
    Set without = live;
    std::erase_if(without, [&](const auto& entry) { return entry.second == branch.condition; });
    Set all = before(branch.otherwise, std::move(without));
    for (const auto& [fragment, condition] : before(branch.then, live)) {
      const auto [entry, fresh] = all.try_emplace(fragment, condition ? condition : branch.condition);
      if (!fresh && entry->second != condition) entry->second.reset();
    }
    return all;
  }

  const Program& program_;
  std::map<const RingRelease*, std::set<FragmentId>> behind_;
};

// Which fragments hang on loads from slots of which rings, forwards through a role.
class Hanging {
 public:
  Hanging(const Program& program, Live& live, std::set<const RingRelease*>& unsettled)
      : program_(program), live_(live), unsettled_(unsettled) {}

  using Set = std::map<FragmentId, std::set<RingId>>;

  Set after(const Block& block, Set hanging) {
    for (const Instr& instr : block) hanging = after(instr, std::move(hanging));
    return hanging;
  }

 private:
  Set after(const Instr& instr, Set hanging) {
    if (const auto* release = std::get_if<RingRelease>(&instr.op)) give_back(*release, hanging);
    if (const auto* branch = std::get_if<If>(&instr.op))
      return joined(after(branch->then, hanging), after(branch->otherwise, hanging));
    if (const auto inner = blocks(instr); !inner.empty()) {
      hanging = joined(after(*inner[0], hanging), hanging);
      return joined(after(*inner[0], hanging), hanging);
    }
    if (const auto target = written(instr)) {
      std::set<RingId> rings;
      for_each_fragment_read(program_, instr,
                             [&](FragmentId f) { rings.insert(hanging[f].begin(), hanging[f].end()); });
      if (const auto* load = std::get_if<LoadShared>(&instr.op))
        if (const RingId ring = program_[load->source.buffer].ring; ring.valid()) rings.insert(ring);
      hanging[*target] = std::move(rings);
    }
    return hanging;
  }

  void give_back(const RingRelease& release, Set& hanging) {
    const std::set<FragmentId>& live = live_.behind(release);
    for (auto& [fragment, rings] : hanging) {
      if (rings.contains(release.ring) && live.contains(fragment)) unsettled_.insert(&release);
      if (release.lag == 0) rings.erase(release.ring);
    }
  }

  static Set joined(Set a, const Set& b) {
    for (const auto& [fragment, rings] : b) a[fragment].insert(rings.begin(), rings.end());
    return a;
  }

  const Program& program_;
  Live& live_;
  std::set<const RingRelease*>& unsettled_;
};

}  // namespace

std::set<const RingRelease*> settled_releases(const Program& program) {
  std::set<const RingRelease*> unsettled;
  for (const Role& role : program.roles) {
    Live live(program);
    live.before(role.body, {});
    Hanging(program, live, unsettled).after(role.body, {});
  }
  std::set<const RingRelease*> settled;
  for_each_instr(program, [&](RoleId, const Instr& instr, const Path&) {
    const auto* release = std::get_if<RingRelease>(&instr.op);
    if (release != nullptr && !unsettled.contains(release)) settled.insert(release);
  });
  return settled;
}

}  // namespace pipethreader::emit
