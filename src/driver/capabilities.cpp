#include "driver/capabilities.h"

#include <optional>

#include "program/walk.h"

namespace pipethreader::driver {

namespace {

constexpr std::string_view architecture = "sm_90a";  // the one that emit/ prints for

ScalarType type_of(const program::Program& program, const program::Operand& operand) {
  return operand.in_registers ? program[operand.fragment].type : program[operand.buffer.buffer].type;
}

// What an instruction needs and the device has not; nothing: it has it.
std::optional<std::string> lacking(const program::Program& program, const program::Instr& instr,
                                   const device::Device& device) {
  if (const auto* mma = std::get_if<program::Mma>(&instr.op)) {
    const ScalarType a = type_of(program, mma->a), b = type_of(program, mma->b);
    const ScalarType accumulator = program[mma->accumulator].type;
    if (device.unit(device::UnitKind::tensor) == nullptr) return "no tensor unit";
    if (device.find_mma(a, b, accumulator) == nullptr)
      return fmt::format("no product of {} and {} into {}", name(a), name(b), name(accumulator));
  }
  const bool copies =
      std::holds_alternative<program::CopyBulk>(instr.op) || std::holds_alternative<program::BulkStore>(instr.op);
  if (copies && device.unit(device::UnitKind::copy) == nullptr) return "no copy engine";
  return std::nullopt;
}

}  // namespace

Result<void> check_capabilities(const program::Program& program, const device::Device& device) {
  if (device.architecture != architecture) {
    return fail_at(device.file, {}, fmt::format("there is no code generator for '{}'", device.architecture),
                   fmt::format("the architecture must be {}", architecture));
  }
  std::optional<std::string> found;
  program::for_each_instr(program, [&](program::RoleId, const program::Instr& instr, const program::Path&) {
    if (!found) found = lacking(program, instr, device);
  });
  if (!found) return {};
  return fail_at(device.file, {},
                 fmt::format("the device '{}' has {}, which '{}' needs", device.name, *found, program.name),
                 "choose another device, or types that it multiplies");
}

}  // namespace pipethreader::driver
