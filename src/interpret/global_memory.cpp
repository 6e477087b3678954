#include "interpret/global_memory.h"

#include <algorithm>
#include <limits>

namespace pipethreader::interpret {

using program::TensorId;

GlobalMemory::GlobalMemory(const Launch& launch, Arguments& arguments, FaultSink& faults)
    : launch_(launch), arguments_(arguments), faults_(faults) {
  const std::size_t count = launch.program.tensors.size();
  shadows_.resize(count);
  written_.resize(count);
  arguments.tensors.resize(count);
  for (std::size_t t = 0; t < count; ++t) {
    if (!launch.program.tensors[t].output) continue;
    const auto elements = static_cast<std::size_t>(launch.elements(TensorId(t)));
    arguments.tensors[t].assign(elements, std::numeric_limits<double>::quiet_NaN());
    written_[t].assign(elements, 0);
    if (launch.options.detect_races) shadows_[t].resize(elements);
  }
}

void GlobalMemory::check(TensorId tensor, std::int64_t index, const Access& earlier, int earlier_cluster, int cluster,
                         const Toucher& now, std::string_view what) {
  if (earlier.time == 0) return;
  // One instruction that writes an element twice does so from two threads.
  const bool twice = earlier.component == now.access.component && earlier.time == now.access.time;
  if (earlier_cluster == cluster && happened_before(earlier, now) && !twice) return;
  faults_.raise(FaultKind::race,
                fmt::format("element {} of tensor '{}' is touched here and was {} by {}{}, and nothing orders the two",
                            index, launch_.program[tensor].name, what, launch_.place(earlier.instr),
                            earlier_cluster == cluster ? "" : " in another cluster"));
}

// A tensor map may name more than its tensor has.
bool GlobalMemory::inside(TensorId tensor, std::int64_t index) {
  const auto elements = static_cast<std::int64_t>(arguments_.tensors[at(tensor)].size());
  if (index >= 0 && index < elements) return true;
  faults_.raise(FaultKind::out_of_bounds,
                fmt::format("element {} of tensor '{}', which has {}", index, launch_.program[tensor].name, elements));
  return false;
}

double GlobalMemory::read(TensorId tensor, std::int64_t index, int cluster, const Toucher& now) {
  if (!inside(tensor, index)) return 0;
  const std::size_t t = at(tensor);
  const auto i = static_cast<std::size_t>(index);
  if (!shadows_[t].empty()) {
    Element& element = shadows_[t][i];
    check(tensor, index, element.write, element.write_cluster, cluster, now, "written");
    element.read = now.access;
    element.read_cluster = cluster;
  }
  if (!written_[t].empty() && written_[t][i] == 0)
    faults_.raise(FaultKind::uninitialised, fmt::format("element {} of output '{}' is read before anything wrote it",
                                                        index, launch_.program[tensor].name));
  return arguments_.tensors[t][i];
}

void GlobalMemory::write(TensorId tensor, std::int64_t index, double value, int cluster, const Toucher& now) {
  const std::size_t t = at(tensor);
  const auto i = static_cast<std::size_t>(index);
  if (written_[t].empty())
    return faults_.raise(FaultKind::out_of_bounds,
                         fmt::format("tensor '{}' is an input, yet it is written", launch_.program[tensor].name));
  if (!inside(tensor, index)) return;
  if (!shadows_[t].empty()) {
    Element& element = shadows_[t][i];
    check(tensor, index, element.write, element.write_cluster, cluster, now, "written");
    if (launch_.read[t]) check(tensor, index, element.read, element.read_cluster, cluster, now, "read");
    element.write = now.access;
    element.write_cluster = cluster;
  }
  written_[t][i] = 1;
  arguments_.tensors[t][i] = value;
}

std::int64_t GlobalMemory::unwritten() const {
  std::int64_t count = 0;
  for (const auto& flags : written_) count += std::ranges::count(flags, 0);
  return count;
}

}  // namespace pipethreader::interpret
