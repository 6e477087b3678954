#include "device/device.h"

#include <algorithm>
#include <limits>

namespace pipethreader::device {
namespace {

constexpr std::array<Resource, resource_count> kResources = {
    Resource::tensor,  Resource::fma,   Resource::integer,        Resource::special,
    Resource::convert, Resource::issue, Resource::register_ports, Resource::shared_memory,
    Resource::l2,      Resource::dram};
constexpr std::array<std::string_view, resource_count> kResourceNames = {
    "tensor", "fma", "integer", "special", "convert", "issue", "register_ports", "shared_memory", "l2", "dram"};

// A launch gives every warpgroup the same; what producers leave of theirs goes to the consumers.
std::optional<RegisterBudget> shared_budget(const Device& device, int consumers, int producer, int blocks) {
  const Registers& r = device.registers;
  const auto whole = [&](std::int64_t count) { return static_cast<int>(count / r.granularity * r.granularity); };
  const int threads = device.threads.per_warp * device.threads.warps_per_group * (consumers + 1) * blocks;
  RegisterBudget budget;
  budget.consumers = consumers;
  budget.launch = std::min(whole(r.per_unit / threads), whole(r.per_thread_max));
  budget.producer = std::max(r.reallocation_min, whole(producer + r.granularity - 1));
  budget.consumer =
      std::min(whole((budget.launch * (consumers + 1) - budget.producer) / consumers), whole(r.per_thread_max));
  if (threads > device.threads.per_unit_max || budget.producer > budget.launch) return std::nullopt;
  return budget;
}

}  // namespace

std::string_view name(Resource resource) { return kResourceNames[static_cast<std::size_t>(resource)]; }

std::optional<Resource> resource_named(std::string_view name) {
  const auto found = std::find(kResourceNames.begin(), kResourceNames.end(), name);
  if (found == kResourceNames.end()) return std::nullopt;
  return kResources[static_cast<std::size_t>(found - kResourceNames.begin())];
}

std::span<const Resource> all_resources() { return kResources; }

std::string_view name(UnitKind kind) {
  constexpr std::array<std::string_view, 4> names = {"copy", "tensor", "alu", "link"};
  return names[static_cast<std::size_t>(kind)];
}

std::string_view name(Completion completion) {
  constexpr std::array<std::string_view, 3> names = {"fifo_group", "barrier", "blocking"};
  return names[static_cast<std::size_t>(completion)];
}

std::string_view name(Move move) {
  constexpr std::array<std::string_view, move_count> names = {
      "shuffle", "vote", "load_shared", "store_shared", "load_matrix", "store_matrix", "load_global", "store_global"};
  return names[static_cast<std::size_t>(move)];
}

OperandClass operand_class(ScalarType type) {
  if (type == ScalarType::f16) return OperandClass::f16;
  if (type == ScalarType::bf16) return OperandClass::bf16;
  return is_floating(type) ? OperandClass::f32 : OperandClass::i32;
}

Demand& Demand::operator+=(const Demand& other) {
  for (std::size_t i = 0; i < resource_count; ++i) amount[i] += other.amount[i];
  return *this;
}

Demand Demand::operator*(double factor) const {
  Demand result = *this;
  for (double& value : result.amount) value *= factor;
  return result;
}

const Unit* Device::unit(UnitKind kind) const {
  const auto found = std::find_if(units.begin(), units.end(), [&](const Unit& u) { return u.kind == kind; });
  return found == units.end() ? nullptr : &*found;
}

const MmaShape* Device::find_mma(ScalarType a, ScalarType b, ScalarType accumulator) const {
  const auto found = std::find_if(mma.begin(), mma.end(), [&](const MmaShape& shape) {
    return shape.a == a && shape.b == b && shape.accumulator == accumulator;
  });
  return found == mma.end() ? nullptr : &*found;
}

const Demand* Device::find_function(Function function, OperandClass operands) const {
  const auto& of_class = functions[static_cast<std::size_t>(operands)];
  const auto index = static_cast<std::size_t>(function);
  return index < of_class.size() && of_class[index] ? &*of_class[index] : nullptr;
}

const Demand* Device::find_conversion(ScalarType from, ScalarType to) const {
  const auto found = conversions.find({from, to});
  return found == conversions.end() ? nullptr : &found->second;
}

std::optional<RegisterBudget> Device::find_budget(int consumers, int producer, int blocks) const {
  if (blocks > 1) return shared_budget(*this, consumers, producer, blocks);
  std::optional<RegisterBudget> first;
  for (const RegisterBudget& budget : registers.budgets) {
    if (budget.consumers != consumers) continue;
    if (budget.producer >= producer) return budget;
    if (!first) first = budget;
  }
  return first;
}

std::int64_t Device::shared_bytes(int blocks) const {
  return std::min(memory.shared_bytes_per_block, memory.shared_bytes_per_unit / blocks - memory.shared_bytes_reserved);
}

double Device::rate_per_cycle(Resource resource) const {
  const ResourceRate& entry = (*this)[resource];
  if (entry.scope == Scope::execution_unit) return entry.rate;
  return entry.rate / (execution_units * clock.burst_ghz * 1e9);
}

Demand Device::busy_cycles(const Demand& demand) const {
  Demand cycles;
  for (const Resource resource : all_resources()) {
    if (demand[resource] == 0) continue;
    const double rate = rate_per_cycle(resource);
    cycles[resource] = rate > 0 ? demand[resource] / rate : std::numeric_limits<double>::infinity();
  }
  return cycles;
}

double Device::bound_cycles(const Demand& demand) const {
  const Demand alone = busy_cycles(demand);
  Demand cycles = alone;
  for (const Interference& entry : interference) {
    // A resource that nothing uses has nothing to slow down.
    if (alone[entry.target] > 0) cycles[entry.target] += entry.cycles * alone[entry.source];
  }
  return *std::max_element(cycles.amount.begin(), cycles.amount.end());
}

}  // namespace pipethreader::device
