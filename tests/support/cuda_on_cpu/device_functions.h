// The device functions that emitted sources call, on the machine of cuda_on_cpu.h.
#pragma once

#define threadIdx (cpu::self().index)
#define blockIdx (Index3{cpu::self().block->index, 0, 0})
#define gridDim (cpu::machine->grid)
#define shared_memory (static_cast<const void*>(cpu::self().block))

// --- built in ------------------------------------------------------------------------------------------------------

inline void __syncthreads() {
  cpu::meet(cpu::self().block->all, static_cast<int>(cpu::machine->block.x), "__syncthreads");
}
inline void __syncwarp() { cpu::exchanged(0, 0); }
template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  return cpu::exchanged(value, lane);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return cpu::exchanged(value, static_cast<int>(cpu::self().index.x % 32) ^ mask);
}
inline bool __any_sync(unsigned, bool value) {
  bool any = value;
  for (int mask = 1; mask < 32; mask *= 2) any = any | (__shfl_xor_sync(~0u, static_cast<int>(any), mask) != 0);
  return any;
}
inline float __int_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline float __uint_as_float(unsigned bits) { return __int_as_float(bits); }
inline unsigned __float_as_uint(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}
inline int __float2int_rz(float value) {
  if (std::isnan(value)) return 0;
  if (value >= 2147483648.0f) return 2147483647;
  if (value <= -2147483648.0f) return -2147483647 - 1;
  return static_cast<int>(value);
}
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline unsigned atomicAdd(unsigned* counter, unsigned amount) {
  const unsigned old = *counter;
  *counter += amount;
  return old;
}

// --- numbers -------------------------------------------------------------------------------------------------------

inline int floor_div(int a, int b) { return static_cast<int>(std::floor(static_cast<double>(a) / b)); }
inline int floor_mod(int a, int b) { return a - floor_div(a, b) * b; }
inline float float_of_f16(f16 bits) { return cpu::from_f16(bits); }
inline float float_of_bf16(bf16 bits) { return cpu::from_bf16(bits); }
inline f16 bits_of_f16(float value) { return static_cast<f16>(cpu::to_f16(value)); }
inline bf16 bits_of_bf16(float value) { return static_cast<bf16>(cpu::to_bf16(value)); }
inline float low_f16(unsigned pair) { return cpu::from_f16(pair & 0xffff); }
inline float high_f16(unsigned pair) { return cpu::from_f16(pair >> 16); }
inline float low_bf16(unsigned pair) { return cpu::from_bf16(pair & 0xffff); }
inline float high_bf16(unsigned pair) { return cpu::from_bf16(pair >> 16); }
inline unsigned pack_f16(float low, float high) { return cpu::to_f16(low) | cpu::to_f16(high) << 16; }
inline unsigned pack_bf16(float low, float high) { return cpu::to_bf16(low) | cpu::to_bf16(high) << 16; }
inline unsigned low_pair(unsigned pair) { return (pair & 0xffff) * 0x10001u; }
inline unsigned high_pair(unsigned pair) { return (pair >> 16) * 0x10001u; }
inline unsigned join_pair(unsigned low, unsigned high) { return (low & 0xffff) | high << 16; }
inline unsigned keep_pair(unsigned pair, bool low, bool high) {
  return pair & ((low ? 0xffffu : 0u) | (high ? 0xffff0000u : 0u));
}
inline unsigned choose_pair(bool low, bool high, unsigned a, unsigned b) {
  return (low ? a : b) & 0xffffu | (high ? a : b) & 0xffff0000u;
}
template <class... Bits>
unsigned any_bits(Bits... bits) {
  return (bits | ...);
}
inline float round_f16(float value) { return cpu::from_f16(cpu::to_f16(value)); }
inline float round_bf16(float value) { return cpu::from_bf16(cpu::to_bf16(value)); }
inline float float_of_f8e4m3(f8e4m3 bits) { return cpu::from_f8e4m3(bits); }
inline f8e4m3 bits_of_f8e4m3(float value) { return static_cast<f8e4m3>(cpu::to_f8e4m3(value)); }
inline float round_f8e4m3(float value) { return cpu::from_f8e4m3(cpu::to_f8e4m3(value)); }
#define PAIRWISE(name, expression)                                                  \
  inline unsigned name##_f16x2(unsigned p, unsigned q) {                            \
    const auto f = [](float a, float b) { return static_cast<float>(expression); }; \
    return pack_f16(f(low_f16(p), low_f16(q)), f(high_f16(p), high_f16(q)));        \
  }                                                                                 \
  inline unsigned name##_bf16x2(unsigned p, unsigned q) {                           \
    const auto f = [](float a, float b) { return static_cast<float>(expression); }; \
    return pack_bf16(f(low_bf16(p), low_bf16(q)), f(high_bf16(p), high_bf16(q)));   \
  }
PAIRWISE(add, a + b)
PAIRWISE(sub, a - b)
PAIRWISE(mul, a* b)
PAIRWISE(min, std::fmin(a, b))
PAIRWISE(max, std::fmax(a, b))
#undef PAIRWISE
inline unsigned fma_f16x2(unsigned p, unsigned q, unsigned r) {
  return pack_f16(std::fma(low_f16(p), low_f16(q), low_f16(r)), std::fma(high_f16(p), high_f16(q), high_f16(r)));
}
inline unsigned fma_bf16x2(unsigned p, unsigned q, unsigned r) {
  return pack_bf16(std::fma(low_bf16(p), low_bf16(q), low_bf16(r)), std::fma(high_bf16(p), high_bf16(q), high_bf16(r)));
}
inline float exp2_f32(float x) { return std::exp2(x); }
inline float exp_f32(float x) { return std::exp(x); }
inline float rsqrt_f32(float x) { return 1 / std::sqrt(x); }
inline float sqrt_f32(float x) { return std::sqrt(x); }
inline float divide(float a, float b) { return a / b; }
inline float division_scale(float divisor) {
  const float size = std::fabs(divisor);
  return size > 8.5e37F ? 0.25F : size < 1.2e-38F ? 16777216.0F : 1.0F;
}
inline float reciprocal(float x) { return 1 / x; }
inline float sigmoid_f32(float x) { return 1 / (1 + std::exp(-x)); }
inline void anchor(float&) {}
inline int here(int x) { return x; }
inline void move_operand(unsigned& target, unsigned source) { target = source; }

// --- warps ---------------------------------------------------------------------------------------------------------

inline bool elect_one() { return cpu::self().index.x % 32 == 0; }
inline void transpose_quad(unsigned& a, unsigned& b, unsigned& c, unsigned& d, int lane) {
  unsigned* own[4] = {&a, &b, &c, &d};
  unsigned result[4];
  for (int from = 0; from < 4; ++from)
    for (int word = 0; word < 4; ++word) {
      const unsigned value = __shfl_sync(~0u, *own[word], lane / 4 * 4 + from);
      if (word == lane % 4) result[from] = value;
    }
  for (int i = 0; i < 4; ++i) *own[i] = result[i];
}
template <int count>
void grow_registers() {}
template <int count>
void shrink_registers() {}

// --- shared memory -------------------------------------------------------------------------------------------------

inline unsigned shared_address(const void* block) {
  return cpu::kSharedBase + (static_cast<const cpu::Block*>(block)->rank << cpu::kBlockShift);
}
inline unsigned short load_shared_b16(unsigned address) { return cpu::load<unsigned short>(address); }
inline unsigned load_shared_b32(unsigned address) { return cpu::load<unsigned>(address); }
inline float load_shared_f32(unsigned address) { return cpu::load<float>(address); }
inline int load_shared_s32(unsigned address) { return cpu::load<int>(address); }
inline unsigned char load_shared_b8(unsigned address) { return cpu::load<unsigned char>(address); }
inline uint2 load_shared_8_bytes(unsigned address) { return cpu::load<uint2>(address); }
inline uint4 load_shared_16_bytes(unsigned address) { return cpu::load<uint4>(address); }
inline void store_shared_b16(unsigned address, unsigned short value) { cpu::store(address, value); }
inline void store_shared_b32(unsigned address, unsigned value) { cpu::store(address, value); }
inline void store_shared_f32(unsigned address, float value) { cpu::store(address, value); }
inline void store_shared_s32(unsigned address, int value) { cpu::store(address, value); }
inline void store_shared_b8(unsigned address, unsigned char value) { cpu::store(address, value); }
inline void store_shared_8_bytes(unsigned address, uint2 value) { cpu::store(address, value); }
inline void store_global_16_bytes(void* address, unsigned a, unsigned b, unsigned c, unsigned d) {
  *static_cast<uint4*>(address) = make_uint4(a, b, c, d);
}
inline void store_shared_16_bytes(unsigned address, uint4 value) { cpu::store(address, value); }
inline unsigned swizzle_32(unsigned offset) { return cpu::permuted(offset, 32); }
inline unsigned swizzle_64(unsigned offset) { return cpu::permuted(offset, 64); }
inline unsigned swizzle_128(unsigned offset) { return cpu::permuted(offset, 128); }

// ldmatrix and stmatrix: lane 8 i + r names row r of matrix i; lane t holds elements (t / 4, t % 4 * 2) and the next of
// each matrix, transposed: (t % 4 * 2, t / 4) and the next.
inline unsigned matrix_element(const std::vector<unsigned>& rows, int matrix, bool transposed, int e) {
  const int t = static_cast<int>(cpu::self().index.x % 32);
  const int row = transposed ? t % 4 * 2 + e : t / 4;
  const int col = transposed ? t / 4 : t % 4 * 2 + e;
  const unsigned start = rows[static_cast<std::size_t>(matrix * 8 + row)];
  cpu::offset_of(start, 16);
  return start + static_cast<unsigned>(col) * 2;
}
#define MATRICES(suffix, transposed)                                                                              \
  inline void load_matrices##suffix(unsigned address, unsigned& a, unsigned& b, unsigned& c, unsigned& d) {       \
    const std::vector<unsigned> rows = cpu::all_lanes(address);                                                   \
    unsigned* words[4] = {&a, &b, &c, &d};                                                                        \
    for (int i = 0; i < 4; ++i)                                                                                   \
      *words[i] = cpu::load<unsigned short>(matrix_element(rows, i, transposed, 0)) |                             \
                  static_cast<unsigned>(cpu::load<unsigned short>(matrix_element(rows, i, transposed, 1))) << 16; \
  }                                                                                                               \
  inline void store_matrices##suffix(unsigned address, unsigned a, unsigned b, unsigned c, unsigned d) {          \
    const std::vector<unsigned> rows = cpu::all_lanes(address);                                                   \
    const unsigned words[4] = {a, b, c, d};                                                                       \
    for (int i = 0; i < 4; ++i)                                                                                   \
      for (int e = 0; e < 2; ++e)                                                                                 \
        cpu::store(matrix_element(rows, i, transposed, e),                                                        \
                   static_cast<unsigned short>(e == 0 ? words[i] : words[i] >> 16));                              \
  }
MATRICES(, false)
MATRICES(_transposed, true)
#undef MATRICES
inline void fence_async() {}

// --- barriers ------------------------------------------------------------------------------------------------------

inline void init_barrier(unsigned barrier, int arrivals) {
  cpu::block_of(barrier).barriers[cpu::offset_of(barrier, 8)] = {arrivals, arrivals, 0, 0};
}
inline void fence_barrier_init() {}
inline void follow_previous() {}
inline void wait_barrier(unsigned barrier, int parity) { cpu::wait_parity(barrier, parity); }
inline void wait_barrier_cluster(unsigned barrier, int parity) { cpu::wait_parity(barrier, parity); }
inline void arrive(unsigned barrier) { cpu::arrive_on(cpu::barrier_at(barrier), 1); }
inline void arrive_times(unsigned barrier, int count) { cpu::arrive_on(cpu::barrier_at(barrier), count); }
inline void expect(unsigned barrier, int bytes) { cpu::barrier_at(barrier).bytes += bytes; }
inline void arrive_expecting(unsigned barrier, int bytes) {
  expect(barrier, bytes);
  arrive(barrier);
}
inline unsigned in_block(unsigned address, int block) {
  return (address & ((1u << cpu::kBlockShift) - 1)) | static_cast<unsigned>(block) << cpu::kBlockShift;
}
inline void arrive_at(unsigned barrier, int block, int count) { arrive_times(in_block(barrier, block), count); }
inline void hand_over(unsigned address, int value, unsigned barrier, int block) {
  cpu::store(in_block(address, block), value);
  arrive(in_block(barrier, block));
}
inline int behind(int slot, int lag, int depth) { return (slot + depth - lag) % depth; }
inline void sync_threads(int barrier, int threads) {
  if (barrier < 1 || barrier > 15) cpu::fail("no such hardware barrier");
  cpu::meet(cpu::self().block->named[barrier], threads, "hardware barrier " + std::to_string(barrier));
}
inline void arrive_threads(int barrier, int threads) {
  cpu::Meeting& meeting = cpu::self().block->named[barrier];
  if (++meeting.arrived == threads) {
    meeting.arrived = 0;
    ++meeting.generation;
  }
}
// All threads of the cluster that have not ended.
inline void cluster_sync() {
  cpu::Cluster& cluster = *cpu::self().block->cluster;
  cpu::Meeting& meeting = cluster.meeting;
  const unsigned generation = meeting.generation;
  ++meeting.arrived;
  cpu::wait_until(
      [&cluster, &meeting, generation] {
        if (meeting.generation == generation && meeting.arrived == cluster.alive) {
          meeting.arrived = 0;
          ++meeting.generation;
        }
        return meeting.generation != generation;
      },
      "the cluster");
}

// --- the tensor core -----------------------------------------------------------------------------------------------

inline unsigned long long matrix_descriptor(unsigned address, int offset, unsigned leading, unsigned stride,
                                            unsigned swizzle) {
  return static_cast<unsigned long long>(((address & 0x3ffff) >> 4) + static_cast<unsigned>(offset)) |
         static_cast<unsigned long long>(leading & 0x3fff) << 16 |
         static_cast<unsigned long long>(stride & 0x3fff) << 32 | static_cast<unsigned long long>(swizzle & 3) << 62;
}
inline void mma_fence() {}

template <int cols, bool bfloat, bool registers, bool transposed_a, bool transposed_b, class... Arguments>
void issue_product(Arguments&&... arguments) {
  cpu::Product& p = cpu::group().gathering;
  const std::size_t thread = cpu::self().index.x % 128;
  int position = 0;
  p.accumulators[thread].clear();
  p.a_registers[thread].clear();
  const auto take = [&](auto& argument) {
    using T = std::remove_cvref_t<decltype(argument)>;
    if constexpr (std::is_same_v<T, float>) {
      p.accumulators[thread].push_back(&argument);
    } else if constexpr (std::is_same_v<T, unsigned>) {
      p.a_registers[thread].push_back(argument);
    } else if constexpr (std::is_same_v<T, unsigned long long>) {
      if (!registers && position++ == 0)
        p.a = argument;
      else
        p.b = argument;
    } else {
      p.accumulate = argument != 0;
    }
  };
  (take(arguments), ...);
  if (p.accumulators[thread].size() != cols / 2) cpu::fail("a product with the wrong number of accumulators");
  cpu::sync_group_of_products();
  if (thread == 0) {
    p.cols = cols;
    p.bfloat = bfloat;
    p.registers = registers;
    p.transposed_a = transposed_a;
    p.transposed_b = transposed_b;
    cpu::group().open.push_back(p);
  }
  cpu::sync_group_of_products();
}
inline void mma_commit() {
  cpu::sync_group_of_products();
  if (cpu::self().index.x % 128 == 0) {
    cpu::Group& group = cpu::group();
    group.committed.push_back(std::move(group.open));
    group.open.clear();
    if (!cpu::machine->late_products) {
      for (const cpu::Product& p : group.committed.back()) cpu::execute(*cpu::self().block, p);
      group.committed.back().clear();
    }
  }
  cpu::sync_group_of_products();
}
template <int pending>
void mma_wait() {
  cpu::sync_group_of_products();
  if (cpu::self().index.x % 128 == 0) {
    auto& committed = cpu::group().committed;
    for (; committed.size() > pending; committed.pop_front())
      for (const cpu::Product& p : committed.front()) cpu::execute(*cpu::self().block, p);
  }
  cpu::sync_group_of_products();
}

// --- the copy engine -----------------------------------------------------------------------------------------------

inline void prefetch_map(const TensorMap*) {}
#define COPIES(dims, parameters, ...)                                                                       \
  inline void copy_##dims##d(unsigned target, const TensorMap* map, unsigned barrier, parameters) {         \
    cpu::copy_in(target, map, barrier, {__VA_ARGS__}, 1u << cpu::self().block->rank);                       \
  }                                                                                                         \
  inline void copy_##dims##d_multicast(unsigned target, const TensorMap* map, unsigned barrier, parameters, \
                                       unsigned short blocks) {                                             \
    cpu::copy_in(target, map, barrier, {__VA_ARGS__}, blocks);                                              \
  }                                                                                                         \
  inline void store_##dims##d(const TensorMap* map, unsigned source, parameters) {                          \
    cpu::copy_out(map, source, {__VA_ARGS__});                                                              \
  }
#define COMMA ,
COPIES(1, int c0, c0)
COPIES(2, int c0 COMMA int c1, c0, c1)
COPIES(3, int c0 COMMA int c1 COMMA int c2, c0, c1, c2)
COPIES(4, int c0 COMMA int c1 COMMA int c2 COMMA int c3, c0, c1, c2, c3)
COPIES(5, int c0 COMMA int c1 COMMA int c2 COMMA int c3 COMMA int c4, c0, c1, c2, c3, c4)
#undef COMMA
#undef COPIES
inline void bulk_commit() {
  cpu::self().bulk_groups.push_back(std::move(cpu::self().bulk_open));
  cpu::self().bulk_open.clear();
}
template <int pending>
void bulk_wait_read() {
  auto& groups = cpu::self().bulk_groups;
  while (groups.size() > pending) {
    for (const auto& work : groups.front()) work();
    groups.erase(groups.begin());
  }
}
