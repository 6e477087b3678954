// bulk_epilogue: 256 threads a block, 16384 bytes of shared memory.

#pragma nv_diag_suppress 177  // a program may declare what it does not use
using f16 = unsigned short;   // bits
using bf16 = unsigned short;  // bits
using f8e4m3 = unsigned char;
using f8e5m2 = unsigned char;
struct alignas(64) TensorMap {  // what the copy engine knows of a tensor, made by the host
  unsigned char opaque[128];
};

__device__ __forceinline__ unsigned mul_f16x2(unsigned a, unsigned b) {
  unsigned c;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
  return c;
}
__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}
__device__ __forceinline__ void store_shared_16_bytes(unsigned address, uint4 value) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value.x), "r"(value.y), "r"(value.z),
               "r"(value.w)
               : "memory");
}
__device__ __forceinline__ unsigned swizzle_128(unsigned offset) { return offset ^ ((offset >> 3) & 0x70u); }
// What threads wrote to shared memory becomes visible to the copy engine and the tensor core.
__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void init_barrier(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
}
__device__ __forceinline__ void sync_threads(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void prefetch_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until all but `pending` groups of this thread's bulk stores have read their source.
template <int pending>
__device__ __forceinline__ void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory"); }
__device__ __forceinline__ void store_2d(const TensorMap* map, unsigned source, int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::
                   "l"(map), "r"(source), "r"(c0), "r"(c1)
               : "memory");
}

extern "C" __global__ void __launch_bounds__(256, 1)
bulk_epilogue(const f16* __restrict__ X, f16* Y, const int M, const int N,
    const __grid_constant__ TensorMap Y_map) {
  // Shared memory: byte offsets.
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const unsigned shared = shared_address(shared_memory);
  constexpr unsigned tile_tile = 0;  // f16 [128, 64], 128-byte swizzle

  // Threads: a warpgroup of four warps for each instance of a role.
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int warp = __shfl_sync(0xffffffffu, thread / 32, 0);
  const int lane = thread % 32;

  if (threadIdx.x == 0) {
    prefetch_map(&Y_map);
    fence_barrier_init();
  }
  __syncthreads();

  if (group < 2) {
    // --- worker, 2 warpgroups
    const int instance = group;
    const int row_in_tile = lane / 8 + warp * 4;
    const int col_in_tile = lane % 8 * 8;
    // x: f16 [64, 64] reg(8:c1*1 4:c0*16) lane(8:c1*8 4:c0*1) warp(4:c0*4)
    unsigned x_0, x_1, x_2, x_3, x_4, x_5, x_6, x_7, x_8, x_9, x_10, x_11, x_12, x_13, x_14, x_15;
    int row = 0;
    int col = 0;
    #pragma unroll 1
    for (int item = static_cast<int>(blockIdx.x); item < ((M + 127) / 128 * ((N + 63) / 64)); item += static_cast<int>(gridDim.x)) {
      row = item / ((N + 63) / 64) * 128;
      col = item % ((N + 63) / 64) * 64;
      {
        const uint4 words_0 = (row + instance * 64 + row_in_tile < M && col + col_in_tile < N) ? *reinterpret_cast<const uint4*>(X + static_cast<long long>(row + instance * 64 + row_in_tile) * N + (col + col_in_tile)) : uint4{};
        x_0 = words_0.x;
        x_1 = words_0.y;
        x_2 = words_0.z;
        x_3 = words_0.w;
        const uint4 words_1 = (row + instance * 64 + row_in_tile + 16 < M && col + col_in_tile < N) ? *reinterpret_cast<const uint4*>(X + static_cast<long long>(row + instance * 64 + row_in_tile + 16) * N + (col + col_in_tile)) : uint4{};
        x_4 = words_1.x;
        x_5 = words_1.y;
        x_6 = words_1.z;
        x_7 = words_1.w;
        const uint4 words_2 = (row + instance * 64 + row_in_tile + 32 < M && col + col_in_tile < N) ? *reinterpret_cast<const uint4*>(X + static_cast<long long>(row + instance * 64 + row_in_tile + 32) * N + (col + col_in_tile)) : uint4{};
        x_8 = words_2.x;
        x_9 = words_2.y;
        x_10 = words_2.z;
        x_11 = words_2.w;
        const uint4 words_3 = (row + instance * 64 + row_in_tile + 48 < M && col + col_in_tile < N) ? *reinterpret_cast<const uint4*>(X + static_cast<long long>(row + instance * 64 + row_in_tile + 48) * N + (col + col_in_tile)) : uint4{};
        x_12 = words_3.x;
        x_13 = words_3.y;
        x_14 = words_3.z;
        x_15 = words_3.w;
      }
      x_0 = mul_f16x2(x_0, 0x40004000u);
      x_1 = mul_f16x2(x_1, 0x40004000u);
      x_2 = mul_f16x2(x_2, 0x40004000u);
      x_3 = mul_f16x2(x_3, 0x40004000u);
      x_4 = mul_f16x2(x_4, 0x40004000u);
      x_5 = mul_f16x2(x_5, 0x40004000u);
      x_6 = mul_f16x2(x_6, 0x40004000u);
      x_7 = mul_f16x2(x_7, 0x40004000u);
      x_8 = mul_f16x2(x_8, 0x40004000u);
      x_9 = mul_f16x2(x_9, 0x40004000u);
      x_10 = mul_f16x2(x_10, 0x40004000u);
      x_11 = mul_f16x2(x_11, 0x40004000u);
      x_12 = mul_f16x2(x_12, 0x40004000u);
      x_13 = mul_f16x2(x_13, 0x40004000u);
      x_14 = mul_f16x2(x_14, 0x40004000u);
      x_15 = mul_f16x2(x_15, 0x40004000u);
      if (instance == 0) {
        // the store of the item before has read the tile
        if (thread == 0) bulk_wait_read<0>();
      }
      sync_threads(1, 256);  // free
      {
        const unsigned tile = shared + tile_tile;
        store_shared_16_bytes(tile + swizzle_128((instance * 64 + row_in_tile) * 128 + col_in_tile * 2), make_uint4(x_0, x_1, x_2, x_3));
        store_shared_16_bytes(tile + swizzle_128((instance * 64 + row_in_tile + 16) * 128 + col_in_tile * 2), make_uint4(x_4, x_5, x_6, x_7));
        store_shared_16_bytes(tile + swizzle_128((instance * 64 + row_in_tile + 32) * 128 + col_in_tile * 2), make_uint4(x_8, x_9, x_10, x_11));
        store_shared_16_bytes(tile + swizzle_128((instance * 64 + row_in_tile + 48) * 128 + col_in_tile * 2), make_uint4(x_12, x_13, x_14, x_15));
      }
      fence_async();
      sync_threads(2, 256);  // filled
      if (instance == 0) {
        if (thread == 0) {
          store_2d(&Y_map, shared + tile_tile, col, row);
          bulk_commit();
        }
      }
    }
    if (instance == 0) {
      // shared memory lives until it has been read
      if (thread == 0) bulk_wait_read<0>();
    }
    // Shared memory must outlive the copies that read it.
    if (thread == 0) bulk_wait_read<0>();
  }
}
