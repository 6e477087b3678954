#include "interpret/shadow.h"

#include <algorithm>

namespace pipethreader::interpret {
namespace {

// Two accesses of one instance's threads are ordered only by a barrier among them (or when one instruction made both).
bool threads_apart(const Access& earlier, const Toucher& now) {
  return earlier.by_threads && earlier.component == now.issuer && earlier.time > now.issuer_synced &&
         !now.threads_meet && !(now.access.by_threads && now.access.time == earlier.time);
}

// An asynchronous unit sees what threads wrote only after a proxy fence of the writer, before whatever ordered the two.
bool fence_missing(const Access& write, const Toucher& now, const FencesOf& fences) {
  if (!write.by_threads || now.access.by_threads) return false;
  const Fences& times = fences(write.component);
  const auto fence = std::ranges::lower_bound(times, write.time);
  return fence == times.end() || *fence > (*now.clock)[write.component];
}

Conflict judge(const Access& earlier, bool earlier_writes, const Toucher& now, const FencesOf& fences) {
  if (earlier.time == 0) return Conflict::none;
  if (!happened_before(earlier, now)) return Conflict::unordered;
  if (earlier_writes && fence_missing(earlier, now, fences)) return Conflict::no_proxy_fence;
  return threads_apart(earlier, now) ? Conflict::threads_unordered : Conflict::none;
}

}  // namespace

bool happened_before(const Access& earlier, const Toucher& now) {
  return earlier.time == 0 || (*now.clock)[earlier.component] >= earlier.time;
}

Cell::Verdict Cell::read(const Toucher& now, const FencesOf& fences) {
  const Verdict verdict{judge(write, true, now, fences), write, true};
  const auto same = std::ranges::find_if(reads, [&](const Access& a) { return a.component == now.access.component; });
  if (same == reads.end())
    reads.push_back(now.access);
  else if (same->time < now.access.time)
    *same = now.access;
  return verdict;
}

Cell::Verdict Cell::write_by(const Toucher& now, const FencesOf& fences) {
  Verdict verdict{judge(write, true, now, fences), write, true};
  for (const Access& read : reads) {
    if (verdict.conflict != Conflict::none) break;
    verdict = {judge(read, false, now, fences), read, false};
  }
  write = now.access;
  reads.clear();
  return verdict;
}

Cell::Verdict SlotShadow::touch(int row, int begin, int end, bool write, const Toucher& now, const FencesOf& fences) {
  std::vector<Cell>& cells = rows_[static_cast<std::size_t>(row)];
  const bool whole = begin == 0 && end == cols_;
  if (!whole && cells.size() == 1) cells.assign(static_cast<std::size_t>(cols_), Cell(cells[0]));
  const bool split = cells.size() > 1;
  Cell::Verdict first;
  const std::size_t last = split ? static_cast<std::size_t>(end) : 1;
  for (std::size_t c = split ? static_cast<std::size_t>(begin) : 0; c < last; ++c) {
    const Cell::Verdict verdict = write ? cells[c].write_by(now, fences) : cells[c].read(now, fences);
    if (first.conflict == Conflict::none) first = verdict;
  }
  if (whole && write && split) cells.assign(1, Cell(cells[0]));
  return first;
}

std::string_view description(Conflict conflict) {
  switch (conflict) {
    case Conflict::none:
      return "no conflict";
    case Conflict::unordered:
      return "nothing orders them";
    case Conflict::threads_unordered:
      return "no barrier among the instance's threads lies between them";
    case Conflict::no_proxy_fence:
      return "no proxy fence makes the write visible to the asynchronous unit";
  }
  return "";
}

}  // namespace pipethreader::interpret
