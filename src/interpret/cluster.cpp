#include "interpret/cluster.h"

#include <algorithm>
#include <numeric>

namespace pipethreader::interpret {

using namespace program;

// --- making one ------------------------------------------------------------------------------------------------------

Block::Block(const program::Program& program) : memory(program) {
  for (const Ring& ring : program.rings) {
    const auto depth = static_cast<std::size_t>(ring.depth);
    PhaseBarrier barrier;
    barrier.expected = ring.full_arrivals;
    full.emplace_back(depth, barrier);
    barrier.expected = ring.empty_arrivals;
    empty.emplace_back(depth, barrier);
  }
  for (const Barrier& named : program.barriers) {
    Meeting meeting;
    meeting.participants = static_cast<std::size_t>(named.participants);
    barriers.emplace_back(static_cast<std::size_t>(named.count), meeting);
  }
}

Cluster::Cluster(Launch& launch, GlobalMemory& global, const WorkPlan& plan, int index, FaultSink& faults)
    : program_(launch.program),
      launch_(launch),
      global_(global),
      plan_(plan),
      faults_(faults),
      index_(index),
      random_(launch.options.seed * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(index) * 0xd1342543de82ef95u) {
  for (int b = 0; b < program_.cluster; ++b) blocks_.emplace_back(program_);
  for (std::size_t b = 0; b < blocks_.size(); ++b)
    for (std::size_t r = 0; r < program_.roles.size(); ++r)
      for (int i = 0; i < program_.roles[r].instances; ++i) {
        Actor& actor = actors_.emplace_back();
        actor.index = actors_.size() - 1;
        actor.block = b;
        actor.role = RoleId(r);
        actor.instance = i;
        actor.frames.push_back({&program_.roles[r].body});
        actor.vars.assign(program_.vars.size(), 0);
        actor.var_known.assign(program_.vars.size(), false);
        actor.cursors.assign(program_.rings.size(), 0);
        actor.copies_of_fill.assign(program_.rings.size(), 0);
        actor.fragments.resize(program_.fragments.size());
        for (std::size_t f = 0; f < program_.fragments.size(); ++f)
          if (program_.fragments[f].role == actor.role)
            actor.fragments[f].words.assign(elements_of(program_.fragments[f].layout.shape), 0.0f);
        ++blocks_[b].running;
      }
  everybody_.participants = actors_.size();
  first_copy_ = static_cast<Component>(4 * actors_.size());
  everybody_.component = first_copy_++;
  for (Block& block : blocks_) {
    for (auto* kind : {&block.full, &block.empty})
      for (auto& slots : *kind)
        for (PhaseBarrier& barrier : slots) barrier.component = first_copy_++;
    for (auto& meetings : block.barriers)
      for (Meeting& meeting : meetings) meeting.component = first_copy_++;
  }
  fences_of_ = [this](Component c) -> const Fences& { return actors_[c].fences; };
  reshuffle();
}

// --- scheduling ------------------------------------------------------------------------------------------------------

std::vector<Cluster::Choice> Cluster::choices() const {
  std::vector<Choice> all;
  for (const Actor& actor : actors_)
    if (!actor.done && actor.blocked != wakeups_) all.push_back({Choice::Kind::actor, actor.index});
  for (std::size_t c = 0; c < copies_.size(); ++c) all.push_back({Choice::Kind::copy, c});
  for (const Actor& actor : actors_)
    if (std::ranges::any_of(actor.products, [](const Product& p) { return !p.done; }))
      all.push_back({Choice::Kind::product, actor.index});
  for (std::size_t s = 0; s < stores_.size(); ++s) all.push_back({Choice::Kind::store, s});
  return all;
}

// A unit's priority above all actors': work is done as soon as it is issued; below: only when nobody else can go on.
void Cluster::reshuffle() {
  actor_priority_.resize(actors_.size());
  std::iota(actor_priority_.begin(), actor_priority_.end(), 1);
  for (std::size_t i = actor_priority_.size(); i-- > 1;)
    std::swap(actor_priority_[i], actor_priority_[random_.below(i + 1)]);
  const int above = static_cast<int>(actors_.size()) + 1;
  for (int& priority : unit_priority_) priority = static_cast<int>(random_.below(static_cast<std::size_t>(above) + 1));
  for (int& priority : unit_priority_)
    if (random_.one_in(2)) priority = random_.one_in(2) ? 0 : above;
}

Cluster::Choice Cluster::choose(const std::vector<Choice>& all) {
  if (launch_.options.interleaving == Interleaving::random) return all[random_.below(all.size())];
  if (random_.one_in(128)) reshuffle();
  if (random_.one_in(64)) return all[random_.below(all.size())];
  const auto priority = [&](const Choice& c) {
    return c.kind == Choice::Kind::actor ? actor_priority_[c.index] : unit_priority_[static_cast<int>(c.kind) - 1];
  };
  int best = -1;
  std::vector<Choice> equals;
  for (const Choice& c : all) {
    if (priority(c) < best) continue;
    if (priority(c) > best) equals.clear();
    best = priority(c);
    equals.push_back(c);
  }
  return equals[random_.below(equals.size())];
}

void Cluster::run(RunReport& report) {
  const std::int64_t limit = launch_.options.step_limit;
  while (!faults_.any()) {
    const std::vector<Choice> all = choices();
    if (all.empty()) break;
    act(choose(all), report);
    if (report.steps > limit)
      faults_.raise(FaultKind::step_limit, fmt::format("{} instructions executed and no end", limit));
  }
  report.items += items_;
  if (faults_.any()) return;
  if (std::ranges::all_of(actors_, &Actor::done))
    check_end_of_blocks();
  else
    report_deadlock();
}

void Cluster::act(const Choice& choice, RunReport& report) {
  switch (choice.kind) {
    case Choice::Kind::actor:
      return step(actors_[choice.index], report);
    case Choice::Kind::copy:
      return copy_piece(choice.index);
    case Choice::Kind::store:
      return store_piece(choice.index);
    case Choice::Kind::product: {
      Actor& actor = actors_[choice.index];
      const auto next = std::ranges::find_if(actor.products, [](const Product& p) { return !p.done; });
      multiply(actor, *next);
      ++wakeups_;
    }
  }
}

void Cluster::step(Actor& actor, RunReport& report) {
  const Instr* instr = current(actor);
  if (instr == nullptr) return finish(actor);
  ++report.steps;
  actor.now = actor.clock.tick(static_cast<Component>(actor.index));
  Frame* frame = &actor.frames.back();
  ++frame->next;  // a new frame may be pushed
  const std::size_t depth = actor.frames.size();
  const Step result = std::visit([&](const auto& op) { return execute(actor, *instr, op); }, instr->op);
  if (result == Step::blocked) {
    --actor.frames[depth - 1].next;
    actor.blocked = wakeups_;
  } else {
    actor.blocked.reset();
  }
  faults_.add_place(fmt::format("{} at {}", name_of(actor), launch_.place(instr)));
}

// --- the end ---------------------------------------------------------------------------------------------------------

void Cluster::finish(Actor& actor) {
  actor.done = true;
  --blocks_[actor.block].running;
  if (!actor.products.empty())
    faults_.raise(FaultKind::protocol, fmt::format("{} ends while products it has not waited for may be unfinished, {}",
                                                   name_of(actor), launch_.place(actor.products.front().issue.instr)));
  if (!actor.stores.empty())
    faults_.raise(FaultKind::protocol,
                  fmt::format("{} ends while its bulk stores may still read shared memory", name_of(actor)));
}

// Shared memory is gone when a block ends: somebody in it must have waited for every copy into it, and for whatever
// other blocks do to its barriers.
void Cluster::check_end_of_blocks() {
  const auto known_in = [&](std::size_t block, Component component, Time time) {
    return std::ranges::any_of(
        actors_, [&](const Actor& actor) { return actor.block == block && actor.clock[component] >= time; });
  };
  for (std::size_t b = 0; b < blocks_.size(); ++b)
    for (const auto& [actor, time] : blocks_[b].reached_from)
      if (!known_in(b, static_cast<Component>(actor), time))
        faults_.raise(FaultKind::protocol,
                      fmt::format("block {} may end before {} has touched it for the last time: no cluster_sync lies "
                                  "between",
                                  b, name_of(actors_[actor])));
  for (std::size_t k = 0; k < copy_keys_.size(); ++k) {
    const auto& [block, ring, slot, issuer, number] = copy_keys_[k];
    if (!known_in(block, first_copy_ + static_cast<Component>(k), copy_times_[k]))
      faults_.raise(FaultKind::protocol,
                    fmt::format("block {} ends and nobody in it has waited for the last copy into ring '{}', slot {}",
                                block, program_.rings[static_cast<std::size_t>(ring)].name, slot));
  }
}

void Cluster::report_deadlock() {
  std::string text = "nobody can go on";
  for (Actor& actor : actors_) {
    const Instr* instr = actor.done ? nullptr : current(actor);
    text += fmt::format("\n  {}", name_of(actor));
    text +=
        instr == nullptr ? " has ended" : fmt::format(" at {} waits for {}", launch_.place(instr), waiting_for(actor));
  }
  faults_.raise(FaultKind::deadlock, text);
}

std::string Cluster::state_of(const PhaseBarrier& barrier) const {
  std::string text =
      fmt::format("it is in phase {} with {} of {} arrivals", barrier.phase, barrier.arrivers.size(), barrier.expected);
  if (!barrier.arrivers.empty()) text += " (" + names_of(barrier.arrivers) + ")";
  if (barrier.bytes_due != 0 || barrier.bytes_seen != 0)
    text += fmt::format(", {} bytes arrived, {} due", barrier.bytes_seen, barrier.bytes_due);
  return text;
}

std::string Cluster::waiting_for(const Actor& actor) const {
  const Frame& frame = actor.frames.back();
  const Instr& instr = (*frame.block)[frame.next];
  const Block& block = blocks_[actor.block];
  const auto ring_wait = [&](RingId ring, int lag, bool full) {
    const RingPlace place = place_in(actor, ring, lag);
    const PhaseBarrier& barrier = (full ? block.full : block.empty)[at(ring)][static_cast<std::size_t>(place.slot)];
    return fmt::format("ring '{}', slot {} to be {}: phase {}; {}", program_[ring].name, place.slot,
                       full ? "full" : "empty", full ? place.fill : place.fill - 1, state_of(barrier));
  };
  if (const auto* op = std::get_if<RingWait>(&instr.op)) return ring_wait(op->ring, op->lag, true);
  if (const auto* op = std::get_if<RingAcquire>(&instr.op)) return ring_wait(op->ring, 0, false);
  if (const auto* op = std::get_if<MmaWait>(&instr.op); op != nullptr && op->pin)
    return ring_wait(op->pin->ring, op->pin->lag, true);
  if (const auto* op = std::get_if<BarrierSync>(&instr.op)) {
    const auto i = op->index ? static_cast<std::size_t>(uniforms(actor).integer(*op->index)) : 0;
    const Meeting& meeting = block.barriers[at(op->barrier)][i];
    return fmt::format("barrier '{}'[{}]: {} of {} have arrived ({})", program_[op->barrier].name, i,
                       meeting.arrivers.size(), meeting.participants, names_of(meeting.arrivers));
  }
  if (std::holds_alternative<ClusterSync>(instr.op))
    return fmt::format("the cluster: {} of {} have arrived ({})", everybody_.arrivers.size(), everybody_.participants,
                       names_of(everybody_.arrivers));
  return "its asynchronous work";
}

// --- names -----------------------------------------------------------------------------------------------------------

std::string Cluster::names_of(const std::vector<std::size_t>& actors) const {
  std::string text;
  for (const std::size_t a : actors) text += (text.empty() ? "" : ", ") + name_of(actors_[a]);
  return text;
}

std::string Cluster::name_of(const Actor& actor) const {
  const std::string in_cluster = blocks_.size() > 1 ? fmt::format("block {} of ", actor.block) : "";
  return fmt::format("{}[{}] ({}cluster {})", program_[actor.role].name, actor.instance, in_cluster, index_);
}

std::string Cluster::name_of(Component component) const {
  const std::size_t n = actors_.size();
  if (component >= first_copy_) {
    const std::size_t issuer = std::get<3>(copy_keys_[component - first_copy_]);
    return "the copy engine for " + name_of(actors_[issuer]);
  }
  const std::string name = name_of(actors_[component % n]);
  switch (component / n) {
    case 0:
      return name;
    case 1:
      return "the tensor core for " + name;
    default:
      return "a bulk store of " + name;
  }
}

std::string Cluster::name_of(const SlotRef& ref) const {
  const std::string fill = ref.fill < 0 ? "" : fmt::format(" (fill {})", ref.fill);
  return fmt::format("buffer '{}', slot {}{}", program_[ref.buffer].name, ref.slot, fill);
}

// --- work items ------------------------------------------------------------------------------------------------------

WorkPlan::WorkPlan(Launch& launch, FaultSink& faults) : seed_(launch.options.seed) {
  const ForWork* work = launch.work();
  if (work == nullptr) return;
  clusters_ = std::max(1, launch.options.clusters);
  if (work->order == WorkOrder::single && !launch.replay()) {
    const std::vector<std::int64_t> no_vars(launch.program.vars.size(), 0);
    clusters_ = Uniforms{&launch.program, launch.params, no_vars, 0, 0, &faults}.integer(work->count);
  }
  if (launch.replay()) clusters_ = 1;
}

std::vector<std::int64_t> WorkPlan::items(WorkOrder order, std::int64_t count, int cluster) const {
  std::vector<std::int64_t> mine;
  Random random(seed_ ^ 0x5eed0f1e3517e35u);
  for (std::int64_t item = 0; item < count; ++item) {
    const std::int64_t owner = order == WorkOrder::dynamic
                                   ? static_cast<std::int64_t>(random.below(static_cast<std::size_t>(clusters_)))
                                   : item % clusters_;
    if (owner == cluster) mine.push_back(item);
  }
  return mine;
}

}  // namespace pipethreader::interpret
