// matmul: 384 threads a block, 98352 bytes of shared memory.

#pragma nv_diag_suppress 177  // a program may declare what it does not use
using f16 = unsigned short;   // bits
using bf16 = unsigned short;  // bits
using f8e4m3 = unsigned char;
using f8e5m2 = unsigned char;
struct alignas(64) TensorMap {  // what the copy engine knows of a tensor, made by the host
  unsigned char opaque[128];
};

__device__ __forceinline__ unsigned pack_f16(float low, float high) {
  unsigned pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
// True in one lane of a converged warp.
__device__ __forceinline__ bool elect_one() {
  unsigned elected;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(elected));
  return elected != 0;
}
template <int count>
__device__ __forceinline__ void grow_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count)); }
template <int count>
__device__ __forceinline__ void shrink_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count)); }
__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}
__device__ __forceinline__ void init_barrier(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
}
// Until the phase of this parity is complete. A fresh barrier counts as just after a phase of parity 1.
__device__ __forceinline__ void wait_barrier(unsigned barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred complete;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 complete, [%0], %1, %2;\n"
      "@complete bra done;\n"
      "bra again;\n"
      "done:\n"
      "}" ::"r"(barrier),
      "r"(parity), "r"(1000000)
      : "memory");
}
__device__ __forceinline__ void arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void arrive_expecting(unsigned barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// The slot `lag` places before `slot` in a ring.
__device__ __forceinline__ int behind(int slot, int lag, int depth) { return slot >= lag ? slot - lag : slot - lag + depth; }
// Start address and the two strides, in units of 16 bytes, and the kind of swizzle.
__device__ __forceinline__ unsigned long long matrix_descriptor(unsigned address, unsigned leading, unsigned stride, unsigned swizzle) {
  const unsigned low = ((address & 0x3ffffu) >> 4) | (leading << 16);
  return (static_cast<unsigned long long>(stride | (swizzle << 30)) << 32) | low;
}
__device__ __forceinline__ void mma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void mma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until at most `pending` committed groups are unfinished.
template <int pending>
__device__ __forceinline__ void mma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory"); }
__device__ __forceinline__ void prefetch_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
__device__ __forceinline__ void copy_2d(unsigned target, const TensorMap* map, unsigned barrier, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];" ::"r"(target),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1)
      : "memory");
}
__device__ __forceinline__ void mma_64x128x16_f16_shared(float& d0, float& d1, float& d2, float& d3, float& d4,
    float& d5, float& d6, float& d7, float& d8, float& d9, float& d10, float& d11, float& d12, float& d13,
    float& d14, float& d15, float& d16, float& d17, float& d18, float& d19, float& d20, float& d21, float& d22,
    float& d23, float& d24, float& d25, float& d26, float& d27, float& d28, float& d29, float& d30, float& d31,
    float& d32, float& d33, float& d34, float& d35, float& d36, float& d37, float& d38, float& d39, float& d40,
    float& d41, float& d42, float& d43, float& d44, float& d45, float& d46, float& d47, float& d48, float& d49,
    float& d50, float& d51, float& d52, float& d53, float& d54, float& d55, float& d56, float& d57, float& d58,
    float& d59, float& d60, float& d61, float& d62, float& d63, unsigned long long a, unsigned long long b,
    int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 0, 0;\n}"
      : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3), "+f"(d4), "+f"(d5), "+f"(d6), "+f"(d7), "+f"(d8), "+f"(d9),
    "+f"(d10), "+f"(d11), "+f"(d12), "+f"(d13), "+f"(d14), "+f"(d15), "+f"(d16), "+f"(d17), "+f"(d18), "+f"(d19),
    "+f"(d20), "+f"(d21), "+f"(d22), "+f"(d23), "+f"(d24), "+f"(d25), "+f"(d26), "+f"(d27), "+f"(d28), "+f"(d29),
    "+f"(d30), "+f"(d31), "+f"(d32), "+f"(d33), "+f"(d34), "+f"(d35), "+f"(d36), "+f"(d37), "+f"(d38), "+f"(d39),
    "+f"(d40), "+f"(d41), "+f"(d42), "+f"(d43), "+f"(d44), "+f"(d45), "+f"(d46), "+f"(d47), "+f"(d48), "+f"(d49),
    "+f"(d50), "+f"(d51), "+f"(d52), "+f"(d53), "+f"(d54), "+f"(d55), "+f"(d56), "+f"(d57), "+f"(d58), "+f"(d59),
    "+f"(d60), "+f"(d61), "+f"(d62), "+f"(d63)
      : "l"(a), "l"(b), "r"(accumulate));
}

extern "C" __global__ void __launch_bounds__(384, 1)
matmul(const f16* __restrict__ A, const f16* __restrict__ B, f16* C, const int M, const int N, const int K,
    const __grid_constant__ TensorMap A_map, const __grid_constant__ TensorMap B_map) {
  // Shared memory: byte offsets.
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const unsigned shared = shared_address(shared_memory);
  constexpr unsigned a_tile = 0;  // 3 slots of f16 [128, 64], 128-byte swizzle
  constexpr unsigned b_tile = 49152;  // 3 slots of f16 [128, 64], 128-byte swizzle
  constexpr unsigned AB_full = 98304, AB_empty = 98328;  // 3 barriers each

  // Threads: a warpgroup of four warps for each instance of a role.
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int warp = __shfl_sync(0xffffffffu, thread / 32, 0);
  const int lane = thread % 32;

  if (threadIdx.x == 0) {
    prefetch_map(&A_map);
    prefetch_map(&B_map);
    for (unsigned slot = 0; slot < 3; ++slot) {
      init_barrier(shared + AB_full + slot * 8, 1);
      init_barrier(shared + AB_empty + slot * 8, 2);
    }
    fence_barrier_init();
  }
  __syncthreads();

  if (group == 0) {
    // --- producer: one warp each, the other warps of the group rest
    shrink_registers<40>();
    if (warp == 0 && elect_one()) {
      int row = 0;
      int col = 0;
      int AB_slot = 0, AB_phase = 0;
      #pragma unroll 1
      for (int item = static_cast<int>(blockIdx.x); item < ((M + 127) / 128 * ((N + 127) / 128)); item += static_cast<int>(gridDim.x)) {
        row = item / ((N + 127) / 128) * 128;
        col = item % ((N + 127) / 128) * 128;
        #pragma unroll 1
        for (int k = 0; k < ((K + 63) / 64); ++k) {
          wait_barrier(shared + AB_empty + AB_slot * 8, AB_phase ^ 1);
          arrive_expecting(shared + AB_full + AB_slot * 8, 32768);
          copy_2d(shared + a_tile + AB_slot * 16384, &A_map, shared + AB_full + AB_slot * 8, k * 64, row);
          copy_2d(shared + b_tile + AB_slot * 16384, &B_map, shared + AB_full + AB_slot * 8, k * 64, col);
          AB_slot = AB_slot == 2 ? 0 : AB_slot + 1;
          AB_phase ^= AB_slot == 0;
        }
      }
    }
  } else if (group < 3) {
    // --- consumer, 2 warpgroups
    grow_registers<232>();
    const int instance = group - 1;
    const int row_in_tile = lane / 4 + warp * 16;
    const int col_in_tile = lane % 4 * 2;
    // acc: f32 [64, 128] reg(2:c1*1 2:c0*8 16:c1*8) lane(4:c1*2 8:c0*1) warp(4:c0*16)
#define acc_all acc_0, acc_1, acc_2, acc_3, acc_4, acc_5, acc_6, acc_7, acc_8, acc_9, acc_10, acc_11, acc_12, \
    acc_13, acc_14, acc_15, acc_16, acc_17, acc_18, acc_19, acc_20, acc_21, acc_22, acc_23, acc_24, acc_25, acc_26, \
    acc_27, acc_28, acc_29, acc_30, acc_31, acc_32, acc_33, acc_34, acc_35, acc_36, acc_37, acc_38, acc_39, acc_40, \
    acc_41, acc_42, acc_43, acc_44, acc_45, acc_46, acc_47, acc_48, acc_49, acc_50, acc_51, acc_52, acc_53, acc_54, \
    acc_55, acc_56, acc_57, acc_58, acc_59, acc_60, acc_61, acc_62, acc_63
    float acc_all;
    // c: f16 [64, 128] reg(2:c1*1 2:c0*8 16:c1*8) lane(4:c1*2 8:c0*1) warp(4:c0*16)
    unsigned c_0, c_1, c_2, c_3, c_4, c_5, c_6, c_7, c_8, c_9, c_10, c_11, c_12, c_13, c_14, c_15, c_16, c_17, c_18,
        c_19, c_20, c_21, c_22, c_23, c_24, c_25, c_26, c_27, c_28, c_29, c_30, c_31;
    int row = 0;
    int col = 0;
    int AB_slot = 0, AB_phase = 0;
    #pragma unroll 1
    for (int item = static_cast<int>(blockIdx.x); item < ((M + 127) / 128 * ((N + 127) / 128)); item += static_cast<int>(gridDim.x)) {
      row = item / ((N + 127) / 128) * 128 + instance * 64;
      col = item % ((N + 127) / 128) * 128;
      if ((K + 63) / 64 > 0) {
        wait_barrier(shared + AB_full + AB_slot * 8, AB_phase);
        mma_fence();
        {
          const unsigned long long a_matrix = matrix_descriptor(shared + a_tile + AB_slot * 16384 + (instance * 64) * 128, 1, 64, 1);
          const unsigned long long b_matrix = matrix_descriptor(shared + b_tile + AB_slot * 16384, 1, 64, 1);
          mma_64x128x16_f16_shared(acc_all, a_matrix, b_matrix, 0);
          mma_64x128x16_f16_shared(acc_all, a_matrix + 2, b_matrix + 2, 1);
          mma_64x128x16_f16_shared(acc_all, a_matrix + 4, b_matrix + 4, 1);
          mma_64x128x16_f16_shared(acc_all, a_matrix + 6, b_matrix + 6, 1);
        }
        mma_commit();
        AB_slot = AB_slot == 2 ? 0 : AB_slot + 1;
        AB_phase ^= AB_slot == 0;
        #pragma unroll 1
        for (int k = 1; k < ((K + 63) / 64); ++k) {
          wait_barrier(shared + AB_full + AB_slot * 8, AB_phase);
          mma_fence();
          {
            const unsigned long long a_matrix = matrix_descriptor(shared + a_tile + AB_slot * 16384 + (instance * 64) * 128, 1, 64, 1);
            const unsigned long long b_matrix = matrix_descriptor(shared + b_tile + AB_slot * 16384, 1, 64, 1);
            mma_64x128x16_f16_shared(acc_all, a_matrix, b_matrix, 1);
            mma_64x128x16_f16_shared(acc_all, a_matrix + 2, b_matrix + 2, 1);
            mma_64x128x16_f16_shared(acc_all, a_matrix + 4, b_matrix + 4, 1);
            mma_64x128x16_f16_shared(acc_all, a_matrix + 6, b_matrix + 6, 1);
          }
          mma_commit();
          // the product before this one
          mma_wait<1>();
          if (thread == 0) arrive(shared + AB_empty + behind(AB_slot, 1, 3) * 8);
          AB_slot = AB_slot == 2 ? 0 : AB_slot + 1;
          AB_phase ^= AB_slot == 0;
        }
        mma_wait<0>();
        if (thread == 0) arrive(shared + AB_empty + behind(AB_slot, 1, 3) * 8);
      } else {
        acc_0 = 0.0f;
        acc_1 = 0.0f;
        acc_2 = 0.0f;
        acc_3 = 0.0f;
        acc_4 = 0.0f;
        acc_5 = 0.0f;
        acc_6 = 0.0f;
        acc_7 = 0.0f;
        acc_8 = 0.0f;
        acc_9 = 0.0f;
        acc_10 = 0.0f;
        acc_11 = 0.0f;
        acc_12 = 0.0f;
        acc_13 = 0.0f;
        acc_14 = 0.0f;
        acc_15 = 0.0f;
        acc_16 = 0.0f;
        acc_17 = 0.0f;
        acc_18 = 0.0f;
        acc_19 = 0.0f;
        acc_20 = 0.0f;
        acc_21 = 0.0f;
        acc_22 = 0.0f;
        acc_23 = 0.0f;
        acc_24 = 0.0f;
        acc_25 = 0.0f;
        acc_26 = 0.0f;
        acc_27 = 0.0f;
        acc_28 = 0.0f;
        acc_29 = 0.0f;
        acc_30 = 0.0f;
        acc_31 = 0.0f;
        acc_32 = 0.0f;
        acc_33 = 0.0f;
        acc_34 = 0.0f;
        acc_35 = 0.0f;
        acc_36 = 0.0f;
        acc_37 = 0.0f;
        acc_38 = 0.0f;
        acc_39 = 0.0f;
        acc_40 = 0.0f;
        acc_41 = 0.0f;
        acc_42 = 0.0f;
        acc_43 = 0.0f;
        acc_44 = 0.0f;
        acc_45 = 0.0f;
        acc_46 = 0.0f;
        acc_47 = 0.0f;
        acc_48 = 0.0f;
        acc_49 = 0.0f;
        acc_50 = 0.0f;
        acc_51 = 0.0f;
        acc_52 = 0.0f;
        acc_53 = 0.0f;
        acc_54 = 0.0f;
        acc_55 = 0.0f;
        acc_56 = 0.0f;
        acc_57 = 0.0f;
        acc_58 = 0.0f;
        acc_59 = 0.0f;
        acc_60 = 0.0f;
        acc_61 = 0.0f;
        acc_62 = 0.0f;
        acc_63 = 0.0f;
      }
      c_0 = pack_f16(acc_0, acc_1);
      c_1 = pack_f16(acc_2, acc_3);
      c_2 = pack_f16(acc_4, acc_5);
      c_3 = pack_f16(acc_6, acc_7);
      c_4 = pack_f16(acc_8, acc_9);
      c_5 = pack_f16(acc_10, acc_11);
      c_6 = pack_f16(acc_12, acc_13);
      c_7 = pack_f16(acc_14, acc_15);
      c_8 = pack_f16(acc_16, acc_17);
      c_9 = pack_f16(acc_18, acc_19);
      c_10 = pack_f16(acc_20, acc_21);
      c_11 = pack_f16(acc_22, acc_23);
      c_12 = pack_f16(acc_24, acc_25);
      c_13 = pack_f16(acc_26, acc_27);
      c_14 = pack_f16(acc_28, acc_29);
      c_15 = pack_f16(acc_30, acc_31);
      c_16 = pack_f16(acc_32, acc_33);
      c_17 = pack_f16(acc_34, acc_35);
      c_18 = pack_f16(acc_36, acc_37);
      c_19 = pack_f16(acc_38, acc_39);
      c_20 = pack_f16(acc_40, acc_41);
      c_21 = pack_f16(acc_42, acc_43);
      c_22 = pack_f16(acc_44, acc_45);
      c_23 = pack_f16(acc_46, acc_47);
      c_24 = pack_f16(acc_48, acc_49);
      c_25 = pack_f16(acc_50, acc_51);
      c_26 = pack_f16(acc_52, acc_53);
      c_27 = pack_f16(acc_54, acc_55);
      c_28 = pack_f16(acc_56, acc_57);
      c_29 = pack_f16(acc_58, acc_59);
      c_30 = pack_f16(acc_60, acc_61);
      c_31 = pack_f16(acc_62, acc_63);
      if (row + row_in_tile < M && col + col_in_tile < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile)] = static_cast<f16>(c_0);
      if (row + row_in_tile < M && col + col_in_tile + 1 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 1)] = static_cast<f16>(c_0 >> 16);
      if (row + row_in_tile + 8 < M && col + col_in_tile < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile)] = static_cast<f16>(c_1);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 1 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 1)] = static_cast<f16>(c_1 >> 16);
      if (row + row_in_tile < M && col + col_in_tile + 8 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 8)] = static_cast<f16>(c_2);
      if (row + row_in_tile < M && col + col_in_tile + 9 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 9)] = static_cast<f16>(c_2 >> 16);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 8 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 8)] = static_cast<f16>(c_3);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 9 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 9)] = static_cast<f16>(c_3 >> 16);
      if (row + row_in_tile < M && col + col_in_tile + 16 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 16)] = static_cast<f16>(c_4);
      if (row + row_in_tile < M && col + col_in_tile + 17 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 17)] = static_cast<f16>(c_4 >> 16);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 16 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 16)] = static_cast<f16>(c_5);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 17 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 17)] = static_cast<f16>(c_5 >> 16);
      if (row + row_in_tile < M && col + col_in_tile + 24 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 24)] = static_cast<f16>(c_6);
      if (row + row_in_tile < M && col + col_in_tile + 25 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 25)] = static_cast<f16>(c_6 >> 16);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 24 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 24)] = static_cast<f16>(c_7);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 25 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 25)] = static_cast<f16>(c_7 >> 16);
      if (row + row_in_tile < M && col + col_in_tile + 32 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 32)] = static_cast<f16>(c_8);
      if (row + row_in_tile < M && col + col_in_tile + 33 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 33)] = static_cast<f16>(c_8 >> 16);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 32 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 32)] = static_cast<f16>(c_9);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 33 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 33)] = static_cast<f16>(c_9 >> 16);
      if (row + row_in_tile < M && col + col_in_tile + 40 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 40)] = static_cast<f16>(c_10);
      if (row + row_in_tile < M && col + col_in_tile + 41 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 41)] = static_cast<f16>(c_10 >> 16);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 40 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 40)] = static_cast<f16>(c_11);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 41 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 41)] = static_cast<f16>(c_11 >> 16);
      if (row + row_in_tile < M && col + col_in_tile + 48 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 48)] = static_cast<f16>(c_12);
      if (row + row_in_tile < M && col + col_in_tile + 49 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 49)] = static_cast<f16>(c_12 >> 16);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 48 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 48)] = static_cast<f16>(c_13);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 49 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 49)] = static_cast<f16>(c_13 >> 16);
      if (row + row_in_tile < M && col + col_in_tile + 56 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 56)] = static_cast<f16>(c_14);
      if (row + row_in_tile < M && col + col_in_tile + 57 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 57)] = static_cast<f16>(c_14 >> 16);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 56 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 56)] = static_cast<f16>(c_15);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 57 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 57)] = static_cast<f16>(c_15 >> 16);
      if (row + row_in_tile < M && col + col_in_tile + 64 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 64)] = static_cast<f16>(c_16);
      if (row + row_in_tile < M && col + col_in_tile + 65 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 65)] = static_cast<f16>(c_16 >> 16);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 64 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 64)] = static_cast<f16>(c_17);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 65 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 65)] = static_cast<f16>(c_17 >> 16);
      if (row + row_in_tile < M && col + col_in_tile + 72 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 72)] = static_cast<f16>(c_18);
      if (row + row_in_tile < M && col + col_in_tile + 73 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 73)] = static_cast<f16>(c_18 >> 16);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 72 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 72)] = static_cast<f16>(c_19);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 73 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 73)] = static_cast<f16>(c_19 >> 16);
      if (row + row_in_tile < M && col + col_in_tile + 80 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 80)] = static_cast<f16>(c_20);
      if (row + row_in_tile < M && col + col_in_tile + 81 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 81)] = static_cast<f16>(c_20 >> 16);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 80 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 80)] = static_cast<f16>(c_21);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 81 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 81)] = static_cast<f16>(c_21 >> 16);
      if (row + row_in_tile < M && col + col_in_tile + 88 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 88)] = static_cast<f16>(c_22);
      if (row + row_in_tile < M && col + col_in_tile + 89 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 89)] = static_cast<f16>(c_22 >> 16);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 88 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 88)] = static_cast<f16>(c_23);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 89 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 89)] = static_cast<f16>(c_23 >> 16);
      if (row + row_in_tile < M && col + col_in_tile + 96 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 96)] = static_cast<f16>(c_24);
      if (row + row_in_tile < M && col + col_in_tile + 97 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 97)] = static_cast<f16>(c_24 >> 16);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 96 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 96)] = static_cast<f16>(c_25);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 97 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 97)] = static_cast<f16>(c_25 >> 16);
      if (row + row_in_tile < M && col + col_in_tile + 104 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 104)] = static_cast<f16>(c_26);
      if (row + row_in_tile < M && col + col_in_tile + 105 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 105)] = static_cast<f16>(c_26 >> 16);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 104 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 104)] = static_cast<f16>(c_27);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 105 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 105)] = static_cast<f16>(c_27 >> 16);
      if (row + row_in_tile < M && col + col_in_tile + 112 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 112)] = static_cast<f16>(c_28);
      if (row + row_in_tile < M && col + col_in_tile + 113 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 113)] = static_cast<f16>(c_28 >> 16);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 112 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 112)] = static_cast<f16>(c_29);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 113 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 113)] = static_cast<f16>(c_29 >> 16);
      if (row + row_in_tile < M && col + col_in_tile + 120 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 120)] = static_cast<f16>(c_30);
      if (row + row_in_tile < M && col + col_in_tile + 121 < N) C[static_cast<long long>(row + row_in_tile) * N + (col + col_in_tile + 121)] = static_cast<f16>(c_30 >> 16);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 120 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 120)] = static_cast<f16>(c_31);
      if (row + row_in_tile + 8 < M && col + col_in_tile + 121 < N) C[static_cast<long long>(row + row_in_tile + 8) * N + (col + col_in_tile + 121)] = static_cast<f16>(c_31 >> 16);
    }
  }
}
