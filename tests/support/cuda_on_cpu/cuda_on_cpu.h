// Runs an emitted kernel on the CPU, so that what is printed can be tested without a card: addresses, descriptors,
// barrier phases and counts, warp collectives, who waits for whom. Every CUDA thread is a fiber. The device functions
// at the head of an emitted source are cut off and replaced by these, written from what the PTX ISA says of each
// instruction and not from what the emitter thinks. Asynchronous work (bulk copies, products) is done late or early, as
// the seed says.
//
// Included by sources that tests generate and load as a library; nothing else includes it.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tensor_map.h"

#define __global__
#define __device__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)

using f16 = unsigned short;
using bf16 = unsigned short;
using f8e4m3 = unsigned char;
using f8e5m2 = unsigned char;

struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};
struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

namespace cpu {

constexpr unsigned kSharedBase = 0x400;  // shared memory does not start at 0 ...
constexpr unsigned kBlockShift = 24;     // ... and addresses carry the block's rank in the cluster
constexpr std::size_t kStackBytes = 256 << 10;

struct Failure {
  std::string text;
};

struct Barrier {
  int expected = 0, pending = 0;
  long long bytes = 0;
  unsigned phase = 0;
  void settle() {
    if (pending == 0 && bytes == 0) {
      ++phase;
      pending = expected;
    }
  }
};

// Threads that meet: generation counts how often all have.
struct Meeting {
  int arrived = 0;
  unsigned generation = 0;
};

struct Exchange {  // between the lanes of a warp
  Meeting meeting;
  std::uint64_t values[2][32] = {};
};

struct Product {
  std::vector<std::vector<float*>> accumulators = std::vector<std::vector<float*>>(128);
  std::vector<std::vector<unsigned>> a_registers = std::vector<std::vector<unsigned>>(128);
  std::uint64_t a = 0, b = 0;
  int cols = 0;
  bool registers = false, transposed_a = false, transposed_b = false, accumulate = true, bfloat = false;
};

struct Group {  // a warpgroup
  Meeting meeting;
  Product gathering;
  std::vector<Product> open;  // issued, not committed
  std::deque<std::vector<Product>> committed;
};

struct Cluster;

struct Block {
  Cluster* cluster = nullptr;
  unsigned index = 0, rank = 0;
  std::vector<unsigned char> shared;
  std::map<unsigned, Barrier> barriers;  // by offset
  std::map<int, Meeting> named;
  std::vector<Exchange> warps;
  std::vector<Group> groups;
  Meeting all;
};

struct Cluster {
  std::vector<Block*> blocks;
  Meeting meeting;
  int alive = 0;
};

struct Thread {
  Index3 index;
  Block* block = nullptr;
  ucontext_t context{};
  std::unique_ptr<char[]> stack;
  bool done = false;
  std::function<bool()> waiting;  // empty: ready
  std::string waits_for;
  std::vector<std::vector<std::function<void()>>> bulk_groups;  // committed bulk stores that have not read
  std::vector<std::function<void()>> bulk_open;
};

struct Machine {
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<std::unique_ptr<Cluster>> clusters;
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<std::function<void()>> copies;  // bulk copies under way
  Index3 grid, block;
  Thread* self = nullptr;
  ucontext_t scheduler{};
  std::mt19937 random;
  bool late_copies = true, late_products = true;
  std::string failure;
  std::function<void()> kernel;
};
inline Machine* machine = nullptr;
inline Thread& self() { return *machine->self; }

inline void fail(const std::string& text) {
  if (machine->failure.empty())
    machine->failure =
        "block " + std::to_string(self().block->index) + " thread " + std::to_string(self().index.x) + ": " + text;
  swapcontext(&self().context, &machine->scheduler);  // never comes back: the run ends
}

inline void yield() { swapcontext(&self().context, &machine->scheduler); }

inline void wait_until(std::function<bool()> condition, const std::string& what) {
  if (condition()) return;
  self().waiting = std::move(condition);
  self().waits_for = what;
  yield();
}

inline void meet(Meeting& meeting, int threads, const std::string& what) {
  const unsigned generation = meeting.generation;
  if (++meeting.arrived == threads) {
    meeting.arrived = 0;
    ++meeting.generation;
    return;
  }
  wait_until([&meeting, generation] { return meeting.generation != generation; }, what);
}

// --- shared memory -------------------------------------------------------------------------------------------------

inline Block& block_of(unsigned address) {
  const unsigned rank = address >> kBlockShift;
  if (rank >= self().block->cluster->blocks.size()) fail("an address of no block of the cluster");
  return *self().block->cluster->blocks[rank];
}

inline unsigned offset_of(unsigned address, unsigned bytes) {
  const unsigned offset = (address & ((1u << kBlockShift) - 1)) - kSharedBase;
  if (offset + bytes > block_of(address).shared.size()) fail("an access outside shared memory");
  if (bytes > 0 && offset % std::min(bytes, 16u) != 0) fail("a misaligned access to shared memory");
  return offset;
}

inline unsigned char* shared_at(unsigned address, unsigned bytes) {
  return block_of(address).shared.data() + offset_of(address, bytes);
}

template <class T>
T load(unsigned address) {
  T value;
  std::memcpy(&value, shared_at(address, sizeof value), sizeof value);
  return value;
}
template <class T>
void store(unsigned address, T value) {
  std::memcpy(shared_at(address, sizeof value), &value, sizeof value);
}

// The copy engine and the tensor core permute 16-byte chunks by bits of the address: 7.. into 4..
inline unsigned permuted(unsigned address, int swizzle_bytes) {
  const unsigned mask = swizzle_bytes == 128 ? 7 : swizzle_bytes == 64 ? 3 : swizzle_bytes == 32 ? 1 : 0;
  return address ^ (((address >> 7) & mask) << 4);
}

inline Barrier& barrier_at(unsigned address) {
  Block& block = block_of(address);
  const auto found = block.barriers.find(offset_of(address, 8));
  if (found == block.barriers.end()) fail("a barrier that nobody initialised");
  return found->second;
}

inline void arrive_on(Barrier& barrier, int count) {
  if (barrier.pending < count) fail("more arrivals than the barrier expects");
  barrier.pending -= count;
  barrier.settle();
}

inline void wait_parity(unsigned address, int parity) {
  if (parity != 0 && parity != 1) fail("a parity that is neither 0 nor 1");
  Barrier& barrier = barrier_at(address);
  const unsigned offset = offset_of(address, 8);
  wait_until([&barrier, parity] { return (barrier.phase & 1) != static_cast<unsigned>(parity); },
             "barrier at " + std::to_string(offset) + " parity " + std::to_string(parity));
}

// --- warps and groups ----------------------------------------------------------------------------------------------

inline Exchange& exchange() { return self().block->warps[self().index.x / 32]; }
inline Group& group() { return self().block->groups[self().index.x / 128]; }

template <class T>
T exchanged(T value, int source) {
  Exchange& e = exchange();
  const unsigned turn = e.meeting.generation & 1;
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  e.values[turn][self().index.x % 32] = bits;
  meet(e.meeting, 32, "its warp");
  std::memcpy(&value, &e.values[turn][source & 31], sizeof value);
  return value;
}

// What every lane of the warp gives.
inline std::vector<unsigned> all_lanes(unsigned value) {
  Exchange& e = exchange();
  const unsigned turn = e.meeting.generation & 1;
  exchanged(value, 0);
  std::vector<unsigned> result;
  for (const std::uint64_t bits : e.values[turn]) result.push_back(static_cast<unsigned>(bits));
  return result;
}

// --- numbers -------------------------------------------------------------------------------------------------------

inline float from_f16(unsigned bits) {
  const auto narrow = static_cast<std::uint16_t>(bits);
  _Float16 value;
  std::memcpy(&value, &narrow, 2);
  return static_cast<float>(value);
}
inline unsigned to_f16(float value) {
  const auto narrow = static_cast<_Float16>(value);
  std::uint16_t bits;
  std::memcpy(&bits, &narrow, 2);
  return bits;
}
inline float from_bf16(unsigned bits) {
  const std::uint32_t wide = bits << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}
inline unsigned to_bf16(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if (std::isnan(value)) return 0x7fff;
  return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

inline float from_f8e4m3(unsigned bits) {
  const int exponent = static_cast<int>(bits >> 3 & 15), mantissa = static_cast<int>(bits & 7);
  const float size = exponent == 15 && mantissa == 7 ? std::nanf("")
                     : exponent == 0                 ? std::ldexp(static_cast<float>(mantissa), -9)
                                                     : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (bits & 0x80) != 0 ? -size : size;
}
inline unsigned to_f8e4m3(float value) {
  const unsigned sign = std::signbit(value) ? 0x80 : 0;
  const float size = std::fabs(value);
  if (std::isnan(value)) return 0x7f;
  if (size >= 448) return sign | 0x7e;
  int exponent = size == 0 ? -6 : std::max(std::ilogb(size), -6);
  auto mantissa = static_cast<unsigned>(std::nearbyint(std::ldexp(size, 3 - exponent)));
  if (mantissa == 16) ++exponent, mantissa = 8;
  return sign | (mantissa < 8 ? mantissa : static_cast<unsigned>(exponent + 7) << 3 | (mantissa - 8));
}

// --- products ------------------------------------------------------------------------------------------------------

// One element of an operand in shared memory: row (or column) mn, depth k, by the canonical layouts of the PTX ISA.
inline float operand(Block& block, std::uint64_t descriptor, bool transposed, bool bfloat, int mn, int k) {
  const auto field = [&](int low) { return static_cast<unsigned>(descriptor >> low & 0x3fff) << 4; };
  static constexpr int kSpans[] = {16, 128, 64, 32};
  const int span = kSpans[descriptor >> 62];
  const unsigned start = field(0), leading = field(16), stride = field(32);
  unsigned address = 0;
  if (!transposed) {  // ((8, m), (T, 2)) : ((span, stride), (1, T))
    address = start + static_cast<unsigned>(mn / 8) * stride + static_cast<unsigned>(mn % 8 * span + k * 2);
  } else {  // ((T, span / 16, m), (8, k)) : ((1, T, leading), (span, stride))
    const int in_span = span / 2;
    address = start + static_cast<unsigned>(mn / in_span) * leading + static_cast<unsigned>(k / 8) * stride +
              static_cast<unsigned>(k % 8 * span + mn % in_span * 2);
  }
  const unsigned offset = permuted(address, span) - kSharedBase;
  if (offset + 2 > block.shared.size()) fail("an operand outside shared memory");
  std::uint16_t bits;
  std::memcpy(&bits, block.shared.data() + offset, 2);
  return bfloat ? from_bf16(bits) : from_f16(bits);
}

inline void execute(Block& block, const Product& p) {
  std::vector<float> a(64 * 16), b(static_cast<std::size_t>(p.cols) * 16);
  for (int m = 0; m < 64; ++m)
    for (int k = 0; k < 16; ++k) {
      float& target = a[static_cast<std::size_t>(m * 16 + k)];
      if (!p.registers) {
        target = operand(block, p.a, p.transposed_a, p.bfloat, m, k);
        continue;
      }
      // a0: row g, columns 2t, 2t+1; a1: row g + 8; a2: columns + 8; a3: both
      const int thread = m / 16 * 32 + m % 8 * 4 + k % 8 / 2;
      const unsigned word =
          p.a_registers[static_cast<std::size_t>(thread)][static_cast<std::size_t>(m % 16 / 8 + k / 8 * 2)];
      const unsigned bits = k % 2 == 0 ? word & 0xffff : word >> 16;
      target = p.bfloat ? from_bf16(bits) : from_f16(bits);
    }
  for (int n = 0; n < p.cols; ++n)
    for (int k = 0; k < 16; ++k)
      b[static_cast<std::size_t>(n * 16 + k)] = operand(block, p.b, p.transposed_b, p.bfloat, n, k);
  for (int m = 0; m < 64; ++m)
    for (int n = 0; n < p.cols; ++n) {
      float sum = 0;
      for (int k = 0; k < 16; ++k)
        sum += a[static_cast<std::size_t>(m * 16 + k)] * b[static_cast<std::size_t>(n * 16 + k)];
      // d[4 j + 2 h + e]: row g + 8 h of the warp's 16, column 8 j + 2 t + e
      const int thread = m / 16 * 32 + m % 8 * 4 + n % 8 / 2;
      float& d = *p.accumulators[static_cast<std::size_t>(thread)]
                                [static_cast<std::size_t>(n / 8 * 4 + m % 16 / 8 * 2 + n % 2)];
      d = p.accumulate ? d + sum : sum;
    }
}

inline void sync_group_of_products() { meet(group().meeting, 128, "its warpgroup (a product)"); }

// --- the copy engine -----------------------------------------------------------------------------------------------

// visit(address in shared memory, address in global memory or null outside the tensor) for every element of the box.
inline void each_element(const TensorMap& map, unsigned shared_address, const std::vector<int>& coordinates,
                         const std::function<void(unsigned, unsigned char*)>& visit) {
  std::vector<int> at(map.box.size(), 0);
  unsigned address = shared_address;
  for (bool more = true; more; address += static_cast<unsigned>(map.element_bytes)) {
    unsigned char* global = map.base;
    bool inside = true;
    for (std::size_t d = 0; d < at.size(); ++d) {
      const long long index = coordinates[d] + static_cast<long long>(at[d]) * map.steps[d];
      inside = inside && index >= 0 && index < map.extents[d];
      global += index * map.byte_strides[d];
    }
    visit(permuted(address, map.swizzle), inside ? global : nullptr);
    more = false;
    for (std::size_t d = 0; d < at.size() && !more; ++d) {
      more = ++at[d] < map.box[d];
      if (!more) at[d] = 0;
    }
  }
}

inline long long box_bytes(const TensorMap& map) {
  long long bytes = map.element_bytes;
  for (const int b : map.box) bytes *= b;
  return bytes;
}

inline void check_bulk_address(const TensorMap& map, unsigned address) {
  const unsigned offset = address & ((1u << kBlockShift) - 1);
  if (offset % 128 != 0) fail("a bulk copy's shared address is no multiple of 128");
  if (map.swizzle != 0 && map.box[0] * map.element_bytes > map.swizzle) fail("a box is wider than the swizzle span");
  for (const int b : map.box)
    if (b < 1 || b > 256) fail("a box is larger than 256");
}

inline void later(std::function<void()> work) {
  if (machine->late_copies)
    machine->copies.push_back(std::move(work));
  else
    work();
}

inline void copy_in(unsigned target, const TensorMap* map, unsigned barrier, std::vector<int> coordinates,
                    unsigned blocks) {
  check_bulk_address(*map, target);
  Cluster& cluster = *self().block->cluster;
  for (unsigned rank = 0; rank < cluster.blocks.size(); ++rank) {
    if ((blocks >> rank & 1) == 0) continue;
    Block& block = *cluster.blocks[rank];
    const unsigned barrier_offset = offset_of(barrier, 8);
    const unsigned low = target & ((1u << kBlockShift) - 1);
    if (low - kSharedBase + static_cast<unsigned long long>(box_bytes(*map)) > block.shared.size())
      fail("a bulk copy ends outside shared memory");
    later([&block, low, map, coordinates, barrier_offset] {
      each_element(*map, low, coordinates, [&](unsigned address, const unsigned char* global) {
        unsigned char* to = block.shared.data() + (address - kSharedBase);
        if (global != nullptr)
          std::memcpy(to, global, static_cast<std::size_t>(map->element_bytes));
        else
          std::memset(to, 0, static_cast<std::size_t>(map->element_bytes));
      });
      Barrier& b = block.barriers.at(barrier_offset);
      b.bytes -= box_bytes(*map);
      b.settle();
    });
  }
}

inline void copy_out(const TensorMap* map, unsigned source, std::vector<int> coordinates) {
  check_bulk_address(*map, source);
  Block& block = *self().block;
  self().bulk_open.push_back([&block, map, source, coordinates] {
    each_element(*map, source & ((1u << kBlockShift) - 1), coordinates, [&](unsigned address, unsigned char* global) {
      if (global != nullptr)
        std::memcpy(global, block.shared.data() + (address - kSharedBase),
                    static_cast<std::size_t>(map->element_bytes));
    });
  });
}

// --- the machine ---------------------------------------------------------------------------------------------------

inline void enter() {
  machine->kernel();
  self().done = true;
  --self().block->cluster->alive;
  if (!self().bulk_groups.empty()) fail("ends while its bulk stores still read shared memory");
  for (;;) yield();
}

inline void run_one_copy() {
  const std::size_t i = machine->random() % machine->copies.size();
  const auto work = machine->copies[i];
  machine->copies.erase(machine->copies.begin() + static_cast<std::ptrdiff_t>(i));
  work();
}

// Any ready warp may run next; a copy is done seldom, or when nobody can run.
inline void schedule() {
  for (;;) {
    bool progress = false, all_done = true;
    std::vector<std::size_t> order((machine->threads.size() + 31) / 32);
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), machine->random);
    for (const std::size_t warp : order) {
      for (std::size_t i = warp * 32; i < std::min(warp * 32 + 32, machine->threads.size()); ++i) {
        Thread& thread = *machine->threads[i];
        if (thread.done) continue;
        all_done = false;
        if (thread.waiting) {
          if (!thread.waiting()) continue;
          thread.waiting = nullptr;
        }
        machine->self = &thread;
        swapcontext(&machine->scheduler, &thread.context);
        progress = true;
        if (!machine->failure.empty()) return;
      }
      if (!machine->copies.empty() && machine->random() % 512 == 0) run_one_copy();
    }
    if (all_done) return;
    if (progress) continue;
    if (machine->copies.empty()) {
      machine->failure = "deadlock:";
      std::set<std::string> seen;
      for (const auto& thread : machine->threads)
        if (!thread->done && seen.size() < 12) {
          const std::string text = "block " + std::to_string(thread->block->index) + " warp " +
                                   std::to_string(thread->index.x / 32) + " waits for " + thread->waits_for;
          if (seen.insert(text).second)
            machine->failure += "\n  " + text + " (thread " + std::to_string(thread->index.x) + ")";
        }
      return;
    }
    run_one_copy();
  }
}

// Blocks first .. first + count - 1 of the grid, all at once.
inline std::string run(const std::function<void()>& kernel, unsigned grid, unsigned first, unsigned count,
                       unsigned threads, unsigned cluster, std::size_t shared_bytes, unsigned seed) {
  Machine m;
  machine = &m;
  m.kernel = kernel;
  m.grid.x = grid;
  m.block.x = threads;
  m.random.seed(seed);
  m.late_copies = seed % 2 == 0;
  m.late_products = seed / 2 % 2 == 0;
  for (unsigned b = first; b < first + count; ++b) {
    if (b % cluster == 0) m.clusters.push_back(std::make_unique<Cluster>());
    auto block = std::make_unique<Block>();
    block->cluster = m.clusters.back().get();
    block->index = b;
    block->rank = b % cluster;
    block->shared.assign(shared_bytes, 0xee);
    block->warps.resize((threads + 31) / 32);
    block->groups.resize((threads + 127) / 128);
    block->cluster->blocks.push_back(block.get());
    block->cluster->alive += static_cast<int>(threads);
    for (unsigned t = 0; t < threads; ++t) {
      auto thread = std::make_unique<Thread>();
      thread->index.x = t;
      thread->block = block.get();
      thread->stack.reset(new char[kStackBytes]);
      getcontext(&thread->context);
      thread->context.uc_stack.ss_sp = thread->stack.get();
      thread->context.uc_stack.ss_size = kStackBytes;
      makecontext(&thread->context, enter, 0);
      m.threads.push_back(std::move(thread));
    }
    m.blocks.push_back(std::move(block));
  }
  schedule();
  if (m.failure.empty() && !m.copies.empty()) m.failure = "bulk copies are under way when all threads have ended";
  machine = nullptr;
  return m.failure;
}

}  // namespace cpu

#include "device_functions.h"
