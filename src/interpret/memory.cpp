// Shared memory as role instances and asynchronous units touch it: races, stale or missing values.
#include <algorithm>

#include "interpret/cluster.h"

namespace pipethreader::interpret {

using namespace program;

SlotRef Cluster::slot_of(const Actor& actor, const BufferRef& ref) const {
  const RingId ring = program_[ref.buffer].ring;
  if (!ring.valid()) return {ref.buffer, 0, -1};
  const RingPlace place = place_in(actor, ring, ref.lag);
  if (place.fill < 0)
    faults_.raise(FaultKind::wrong_value,
                  fmt::format("uses buffer '{}' {} places before its cursor, which has not come that far",
                              program_[ref.buffer].name, ref.lag));
  return {ref.buffer, place.slot, place.fill};
}

Toucher Cluster::toucher(const Actor& actor, const Instr* instr) const {
  const auto self = static_cast<Component>(actor.index);
  return {{self, actor.now, true, instr}, &actor.clock, self, actor.synced};
}

Toucher Cluster::toucher(const Issue& issue) const {
  return {{issue.component, issue.time, false, issue.instr},
          &issue.clock,
          static_cast<Component>(issue.actor),
          issue.issuer_synced};
}

Issue Cluster::issue(Actor& actor, const Instr& instr, Component component, Time time) const {
  return {actor.index, &instr, component, time, actor.synced, actor.clock};
}

// A replay knows no sizes: an address that depends on one says nothing.
FaultKind Cluster::outside() const { return launch_.replay() ? FaultKind::unsupported : FaultKind::out_of_bounds; }

void Cluster::touch(std::size_t block, const SlotRef& ref, const Region& region, bool write, const Toucher& now) {
  const Buffer& buffer = program_[ref.buffer];
  if (region.row_begin < 0 || region.row_end > buffer.rows || region.col_begin < 0 || region.col_end > buffer.cols)
    return faults_.raise(outside(), fmt::format("rows {}..{}, columns {}..{} of buffer '{}', which is {} x {}",
                                                region.row_begin, region.row_end - 1, region.col_begin,
                                                region.col_end - 1, buffer.name, buffer.rows, buffer.cols));
  if (!launch_.options.detect_races) return;
  SlotShadow& shadow = blocks_[block].memory[ref].shadow;
  for (int row = region.row_begin; row < region.row_end && !faults_.any(); ++row) {
    const Cell::Verdict verdict = shadow.touch(row, region.col_begin, region.col_end, write, now, fences_of_);
    if (verdict.conflict == Conflict::none) continue;
    faults_.raise(FaultKind::race,
                  fmt::format("{} {} row {} of {} of block {}; {} {} it, {}; {}", name_of(now.access.component),
                              write ? "writes" : "reads", row, name_of(ref), block, name_of(verdict.with.component),
                              verdict.with_write ? "wrote" : "read", launch_.place(verdict.with.instr),
                              description(verdict.conflict)));
  }
}

// The cursor says which fill the reader means; the slot knows which it holds.
void Cluster::begin_read(std::size_t block, const SlotRef& ref, const Region& region, const Toucher& now) {
  touch(block, ref, region, false, now);
  if (faults_.any() || ref.fill < 0) return;
  const std::int64_t held = blocks_[block].memory[ref].fill;
  if (held == ref.fill) return;
  const RingId ring = program_[ref.buffer].ring;
  const PhaseBarrier& full = blocks_[block].full[at(ring)][static_cast<std::size_t>(ref.slot)];
  const bool early = full.phase <= ref.fill;  // nobody can have waited for it
  faults_.raise(early ? FaultKind::race : FaultKind::wrong_value,
                fmt::format("{} reads {} of block {}, which holds {}{}", name_of(now.access.component), name_of(ref),
                            block, held < 0 ? "nothing yet" : fmt::format("fill {}", held),
                            early ? "; nothing makes it wait until that fill is complete" : ""));
}

void Cluster::begin_write(std::size_t block, const SlotRef& ref, const Region& region, const Toucher& now) {
  touch(block, ref, region, true, now);
  if (faults_.any() || ref.fill < 0) return;
  Slot& slot = blocks_[block].memory[ref];
  if (slot.fill < ref.fill) slot.begin_fill(ref.fill);
  if (slot.fill > ref.fill)
    faults_.raise(FaultKind::wrong_value, fmt::format("{} writes {} of block {}, which holds fill {} already",
                                                      name_of(now.access.component), name_of(ref), block, slot.fill));
}

// Whole rows stay whole: a tile mostly covers the rows it touches.
void Cluster::touch_elements(std::size_t block, const SlotRef& ref, const std::vector<int>& rows,
                             const std::vector<int>& cols, bool write, const Toucher& now) {
  const Buffer& buffer = program_[ref.buffer];
  const auto width = static_cast<std::size_t>(buffer.cols);
  std::vector<std::uint8_t> touched(static_cast<std::size_t>(buffer.rows) * width, 0);
  for (std::size_t e = 0; e < rows.size(); ++e) {
    if (rows[e] < 0 || rows[e] >= buffer.rows || cols[e] < 0 || cols[e] >= buffer.cols)
      return faults_.raise(outside(), fmt::format("row {}, column {} of buffer '{}', which is {} x {}", rows[e],
                                                  cols[e], buffer.name, buffer.rows, buffer.cols));
    touched[static_cast<std::size_t>(rows[e]) * width + static_cast<std::size_t>(cols[e])] = 1;
  }
  for (int row = 0; row < buffer.rows && !faults_.any(); ++row) {
    const auto begin = touched.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(row) * width);
    const auto end = begin + static_cast<std::ptrdiff_t>(width);
    for (auto from = std::find(begin, end, 1); from != end;) {
      const auto to = std::find(from, end, 0);
      const Region part{row, row + 1, static_cast<int>(from - begin), static_cast<int>(to - begin)};
      write ? begin_write(block, ref, part, now) : begin_read(block, ref, part, now);
      from = std::find(to, end, 1);
    }
  }
}

void Cluster::check_written(std::size_t block, const SlotRef& ref, const Region& region) {
  const std::vector<float>& words = blocks_[block].memory[ref].words;
  const int width = program_[ref.buffer].cols;
  for (int row = region.row_begin; row < region.row_end; ++row)
    for (int col = region.col_begin; col < region.col_end; ++col)
      if (is_poison(
              words[static_cast<std::size_t>(row) * static_cast<std::size_t>(width) + static_cast<std::size_t>(col)]))
        return faults_.raise(FaultKind::uninitialised, fmt::format("row {}, column {} of {} of block {} is read, and "
                                                                   "nobody wrote it",
                                                                   row, col, name_of(ref), block));
}

}  // namespace pipethreader::interpret
