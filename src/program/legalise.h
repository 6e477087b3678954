// Places a program in the shared memory of a block: every buffer gets its offset, the barriers of the rings stand
// behind the buffers, and the sum is checked against what a block may have. Buffers already placed are placed anew.
#pragma once

#include <cstdint>

#include "base/diagnostic.h"
#include "program/program.h"

namespace pipethreader::program {

inline constexpr std::int64_t ring_barrier_bytes = 8;
// What roles of one block pass to each other when work is handed out dynamically: two slots of an item and their
// barriers.
inline constexpr std::int64_t work_mailbox_bytes = 64;

// Swizzled buffers first (slots on 1024 bytes), then the others (on 128). An error lists all buffers with their sizes.
[[nodiscard]] Result<Program> legalise(Program program, std::int64_t shared_limit);

// Byte offsets in the block's shared memory of a legalised program.
[[nodiscard]] std::int64_t slot_offset(const Program& program, BufferId buffer, int slot);
[[nodiscard]] std::int64_t full_barrier_offset(const Program& program, RingId ring, int slot);
[[nodiscard]] std::int64_t empty_barrier_offset(const Program& program, RingId ring, int slot);
[[nodiscard]] std::int64_t work_mailbox_offset(const Program& program);

}  // namespace pipethreader::program
