#include "program/legalise.h"

#include <algorithm>
#include <cassert>

#include "program/walk.h"

namespace pipethreader::program {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

std::int64_t buffer_end(const Buffer& b) { return b.offset + slot_stride(b) * (b.slots - 1) + slot_bytes(b); }

std::int64_t barriers_begin(const Program& program) {
  std::int64_t end = 0;
  for (const Buffer& b : program.buffers) end = std::max(end, buffer_end(b));
  return round_up(end, ring_barrier_bytes);
}

// A ring's barriers stand together: full of each slot, then empty of each slot.
std::int64_t ring_barriers_offset(const Program& program, RingId ring) {
  std::int64_t offset = barriers_begin(program);
  for (std::size_t i = 0; i < static_cast<std::size_t>(ring.index); ++i)
    offset += 2 * program.rings[i].depth * ring_barrier_bytes;
  return offset;
}

bool hands_out_work(const Program& program) {
  bool dynamic = false;
  for_each_instr(program, [&](RoleId, const Instr& instr, const Path&) {
    const auto* work = std::get_if<ForWork>(&instr.op);
    dynamic = dynamic || (work != nullptr && work->order == WorkOrder::dynamic);
  });
  return dynamic;
}

std::string size_table(const Program& program) {
  std::string table = fmt::format("  {:<20} {:>8} {:>8} {:>6} {:>10}\n", "buffer", "rows", "cols", "slots", "bytes");
  for (const Buffer& b : program.buffers)
    table +=
        fmt::format("  {:<20} {:>8} {:>8} {:>6} {:>10}\n", b.name, b.rows, b.cols, b.slots, slot_stride(b) * b.slots);
  return table + fmt::format("  {:<20} {:>35}", "barriers", program.shared_bytes - barriers_begin(program));
}

}  // namespace

std::int64_t slot_offset(const Program& program, BufferId buffer, int slot) {
  const Buffer& b = program[buffer];
  assert(b.offset >= 0 && slot >= 0 && slot < b.slots);
  return b.offset + slot * slot_stride(b);
}

std::int64_t full_barrier_offset(const Program& program, RingId ring, int slot) {
  assert(slot >= 0 && slot < program[ring].depth);
  return ring_barriers_offset(program, ring) + slot * ring_barrier_bytes;
}

std::int64_t empty_barrier_offset(const Program& program, RingId ring, int slot) {
  return full_barrier_offset(program, ring, slot) + program[ring].depth * ring_barrier_bytes;
}

std::int64_t work_mailbox_offset(const Program& program) {
  return ring_barriers_offset(program, RingId(program.rings.size()));
}

Result<Program> legalise(Program program, std::int64_t shared_limit) {
  std::int64_t at = 0;
  for (const bool swizzled : {true, false})
    for (Buffer& b : program.buffers) {
      if ((b.swizzle != Swizzle::none) != swizzled) continue;
      b.offset = round_up(at, slot_alignment(b));
      at = buffer_end(b);
    }
  program.shared_bytes = work_mailbox_offset(program) + (hands_out_work(program) ? work_mailbox_bytes : 0);
  if (program.shared_bytes <= shared_limit) return program;
  return tl::unexpected(Error(Diagnostic{
      {},
      {},
      fmt::format("program '{}' needs {} bytes of shared memory a block, the limit is {}\n{}", program.name,
                  program.shared_bytes, shared_limit, size_table(program)),
      fmt::format("choose smaller tiles or fewer slots: {} bytes have to go", program.shared_bytes - shared_limit)}));
}

}  // namespace pipethreader::program
