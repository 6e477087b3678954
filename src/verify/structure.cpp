#include "verify/structure.h"

#include <algorithm>

#include "program/walk.h"

namespace pipethreader::verify {
namespace {

using namespace program;

constexpr int threads_of_group = layout::threads_of_group;

// The launch gives every thread the same share of the registers, rounded down; budgets must fit into the sum.
Result<void> check_registers(const Program& program, const Options& options) {
  std::int64_t groups = 0;
  std::int64_t budget = 0;
  bool budgeted = false;
  for (const Role& role : program.roles) {
    groups += role.instances;
    if (role.registers == 0) continue;
    budgeted = true;
    if (role.registers % 8 != 0 || role.registers < 24 || role.registers > 240) {
      return fail("role '{}' has a budget of {} registers; expected a multiple of 8 from 24 to 240", role.name,
                  role.registers);
    }
    budget += std::int64_t{role.registers} * role.instances;
  }
  if (groups * threads_of_group > 1024) {
    return fail("{} role instances are {} threads; a block has at most 1024", groups, groups * threads_of_group);
  }
  if (!budgeted) return {};
  const std::int64_t threads = groups * threads_of_group;
  const std::int64_t at_launch = options.registers_limit / program.blocks_per_unit / threads / 8 * 8;
  for (const Role& role : program.roles) {
    if (role.registers == 0) budget += std::min<std::int64_t>(at_launch, 240) * role.instances;
  }
  if (budget > at_launch * groups) {
    return fail("the roles' budgets need {} registers, and a launch of {} threads has {}", budget * threads_of_group,
                threads, at_launch * threads);
  }
  return {};
}

Result<void> check_memory(const Program& program, const Options& options) {
  std::int64_t sum = 0;
  std::vector<std::pair<std::int64_t, const Buffer*>> placed;
  for (const Buffer& buffer : program.buffers) {
    sum += slot_stride(buffer) * buffer.slots;
    if (buffer.offset >= 0) placed.emplace_back(buffer.offset, &buffer);
  }
  std::sort(placed.begin(), placed.end());
  std::int64_t end = 0;
  for (const auto& [offset, buffer] : placed) {
    if (offset < end)
      return fail("buffer '{}' at offset {} overlaps the one before it, which ends at {}", buffer->name, offset, end);
    end = offset + slot_stride(*buffer) * (buffer->slots - 1) + slot_bytes(*buffer);
  }
  const std::int64_t needed = std::max({sum, end, program.shared_bytes});
  if (needed * program.blocks_per_unit > options.shared_bytes_limit) {
    return fail("{} block(s) of {} bytes of shared memory do not fit into {}", program.blocks_per_unit, needed,
                options.shared_bytes_limit);
  }
  if (program.shared_bytes > 0 && end > program.shared_bytes) {
    return fail("buffers end at byte {} of shared memory, and the program asks for {}", end, program.shared_bytes);
  }
  return {};
}

// All roles must see the same work items, whatever is done with them.
Result<void> check_work(const Program& program) {
  const ForWork* first = nullptr;
  std::string text;
  for (std::size_t r = 0; r < program.roles.size(); ++r) {
    int loops = 0;
    const ForWork* work = nullptr;
    for_each(program.roles[r].body, [&](const Instr& instr, const Path&) {
      if (const auto* op = std::get_if<ForWork>(&instr.op)) {
        work = op;
        ++loops;
      }
    });
    if (loops > 1) return fail("role '{}' has {} loops over work items; expected one", program.roles[r].name, loops);
    if (r > 0 && (work == nullptr) != (first == nullptr)) {
      return fail("role '{}' has {} loop over work items, and the roles before it differ", program.roles[r].name,
                  work ? "a" : "no");
    }
    if (work == nullptr) continue;
    const std::string count = program::print(program, work->count);
    if (r == 0) {
      first = work;
      text = count;
    } else if (count != text || work->order != first->order) {
      return fail("role '{}' goes through other work items than role '{}'", program.roles[r].name,
                  program.roles[0].name);
    }
  }
  return {};
}

}  // namespace

Result<void> check_structure(const Program& program, const Options& options) {
  if (program.roles.empty()) return fail("a program without roles");
  if (program.cluster < 1 || program.cluster > 16) return fail("a cluster of {} blocks", program.cluster);
  if (program.blocks_per_unit < 1) return fail("{} blocks an execution unit", program.blocks_per_unit);
  int lanes = 0;
  for (const Role& role : program.roles) lanes += role.instances * program.cluster;
  if (lanes > 64) return fail("{} role instances in a cluster; the proof takes at most 64", lanes);
  if (auto done = check_registers(program, options); !done) return done;
  if (auto done = check_memory(program, options); !done) return done;
  return check_work(program);
}

}  // namespace pipethreader::verify
