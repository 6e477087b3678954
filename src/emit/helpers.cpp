#include "emit/helpers.h"

#include <algorithm>
#include <array>
#include <cassert>

namespace pipethreader::emit {
namespace {

struct Helper {
  std::string_view name;
  std::string_view needs;  // other helpers' names, separated by spaces
  std::string_view text;
};

#define DEVICE "__device__ __forceinline__ "

// In the order in which they are printed: what one needs stands before it.
constexpr std::array kHelpers = {
    // --- integers
    Helper{"floor_div", "",
           DEVICE "int floor_div(int a, int b) { return a / b - ((a % b != 0) && ((a % b < 0) != (b < 0))); }\n"},
    Helper{"floor_mod", "floor_div", DEVICE "int floor_mod(int a, int b) { return a - floor_div(a, b) * b; }\n"},

    // --- values of 16 and 8 bits: as floats, or packed in pairs
    Helper{"float_of_f16", "", DEVICE R"(float float_of_f16(f16 bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
)"},
    Helper{"float_of_bf16", "",
           DEVICE "float float_of_bf16(bf16 bits) { return __uint_as_float(static_cast<unsigned>(bits) << 16); }\n"},
    Helper{"bits_of_f16", "", DEVICE R"(f16 bits_of_f16(float value) {
  f16 bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
)"},
    Helper{"bits_of_bf16", "", DEVICE R"(bf16 bits_of_bf16(float value) {
  bf16 bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
)"},
    Helper{"low_f16", "float_of_f16",
           DEVICE "float low_f16(unsigned pair) { return float_of_f16(static_cast<f16>(pair)); }\n"},
    Helper{"high_f16", "float_of_f16",
           DEVICE "float high_f16(unsigned pair) { return float_of_f16(static_cast<f16>(pair >> 16)); }\n"},
    Helper{"low_bf16", "", DEVICE "float low_bf16(unsigned pair) { return __uint_as_float(pair << 16); }\n"},
    Helper{"high_bf16", "", DEVICE "float high_bf16(unsigned pair) { return __uint_as_float(pair & 0xffff0000u); }\n"},
    Helper{"pack_f16", "", DEVICE R"(unsigned pack_f16(float low, float high) {
  unsigned pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
)"},
    Helper{"pack_bf16", "", DEVICE R"(unsigned pack_bf16(float low, float high) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
)"},
    Helper{"low_pair", "", DEVICE "unsigned low_pair(unsigned pair) { return __byte_perm(pair, pair, 0x1010); }\n"},
    Helper{"high_pair", "", DEVICE "unsigned high_pair(unsigned pair) { return __byte_perm(pair, pair, 0x3232); }\n"},
    Helper{"join_pair", "",
           DEVICE "unsigned join_pair(unsigned low, unsigned high) { return (low & 0xffffu) | (high << 16); }\n"},
    Helper{"keep_pair", "", R"(// Each half where its condition holds, else 0.
)" DEVICE R"(unsigned keep_pair(unsigned pair, bool low, bool high) {
  return pair & ((low ? 0xffffu : 0u) | (high ? 0xffff0000u : 0u));
}
)"},
    Helper{"choose_pair", "", DEVICE R"(unsigned choose_pair(bool low, bool high, unsigned a, unsigned b) {
  const unsigned from_a = (low ? 0xffffu : 0u) | (high ? 0xffff0000u : 0u);
  return (a & from_a) | (b & ~from_a);
}
)"},
    Helper{"round_f16", "float_of_f16 bits_of_f16",
           DEVICE "float round_f16(float value) { return float_of_f16(bits_of_f16(value)); }\n"},
    Helper{"round_bf16", "float_of_bf16 bits_of_bf16",
           DEVICE "float round_bf16(float value) { return float_of_bf16(bits_of_bf16(value)); }\n"},
    Helper{"round_tf32", "", DEVICE R"(float round_tf32(float value) {
  unsigned bits;
  asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return __uint_as_float(bits);
}
)"},
    Helper{"bits_of_f8e4m3", "", DEVICE R"(f8e4m3 bits_of_f8e4m3(float value) {
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
  return static_cast<f8e4m3>(pair);
}
)"},
    Helper{"float_of_f8e4m3", "low_f16", DEVICE R"(float float_of_f8e4m3(f8e4m3 bits) {
  unsigned pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<unsigned short>(bits)));
  return low_f16(pair);
}
)"},
    Helper{"round_f8e4m3", "float_of_f8e4m3 bits_of_f8e4m3",
           DEVICE "float round_f8e4m3(float value) { return float_of_f8e4m3(bits_of_f8e4m3(value)); }\n"},
    Helper{"float_of_f8e5m2", "low_f16", DEVICE R"(float float_of_f8e5m2(f8e5m2 bits) {
  return low_f16(static_cast<unsigned>(bits) << 8);
}
)"},

// --- packed arithmetic
#define PAIR_2(op, type, ptx)                                                                       \
  Helper {                                                                                          \
#op "_" #type, "",                                                                              \
        DEVICE "unsigned " #op "_" #type                                                            \
               "(unsigned a, unsigned b) {\n  unsigned c;\n"                                        \
               "  asm(\"" ptx " %0, %1, %2;\" : \"=r\"(c) : \"r\"(a), \"r\"(b));\n  return c;\n}\n" \
  }
#define PAIR_3(op, type, ptx)                                                                                     \
  Helper {                                                                                                        \
#op "_" #type, "",                                                                                            \
        DEVICE "unsigned " #op "_" #type                                                                          \
               "(unsigned a, unsigned b, unsigned c) {\n  unsigned d;\n"                                          \
               "  asm(\"" ptx " %0, %1, %2, %3;\" : \"=r\"(d) : \"r\"(a), \"r\"(b), \"r\"(c));\n  return d;\n}\n" \
  }
    PAIR_2(add, f16x2, "add.rn.f16x2"),
    PAIR_2(sub, f16x2, "sub.rn.f16x2"),
    PAIR_2(mul, f16x2, "mul.rn.f16x2"),
    PAIR_2(min, f16x2, "min.f16x2"),
    PAIR_2(max, f16x2, "max.f16x2"),
    PAIR_3(fma, f16x2, "fma.rn.f16x2"),
    PAIR_2(add, bf16x2, "add.rn.bf16x2"),
    PAIR_2(sub, bf16x2, "sub.rn.bf16x2"),
    PAIR_2(mul, bf16x2, "mul.rn.bf16x2"),
    PAIR_2(min, bf16x2, "min.bf16x2"),
    PAIR_2(max, bf16x2, "max.bf16x2"),
    PAIR_3(fma, bf16x2, "fma.rn.bf16x2"),
#undef PAIR_2
#undef PAIR_3

    // --- functions of f32
    Helper{"exp2_f32", "", DEVICE R"(float exp2_f32(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
)"},
    Helper{"exp_f32", "exp2_f32", DEVICE "float exp_f32(float x) { return exp2_f32(x * 1.44269504f); }\n"},
    Helper{"rsqrt_f32", "", DEVICE R"(float rsqrt_f32(float x) {
  float y;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
)"},
    Helper{"sqrt_f32", "", DEVICE R"(float sqrt_f32(float x) {
  float y;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
)"},
    Helper{"divide", "", R"(// Within 2 units in the last place over the whole range, and no call.
)" DEVICE R"(float divide(float a, float b) {
  float c;
  asm("div.full.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}
)"},
    Helper{"division_scale", "",
           R"(// A power of two that brings a divisor into the range of reciprocal().
)" DEVICE R"(float division_scale(float divisor) {
  const float size = fabsf(divisor);
  return size > 8.5e37f ? 0.25f : size < 1.2e-38f ? 16777216.0f : 1.0f;
}
)"},
    Helper{"reciprocal", "", DEVICE R"(float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
)"},
    Helper{"sigmoid_f32", "exp_f32 divide",
           DEVICE "float sigmoid_f32(float x) { return divide(1.0f, 1.0f + exp_f32(-x)); }\n"},

    // --- threads of a warp
    Helper{"elect_one", "", R"(// True in one lane of a converged warp.
)" DEVICE R"(bool elect_one() {
  unsigned elected;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(elected));
  return elected != 0;
}
)"},
    Helper{
        "follow_previous", "",
        R"(// Until the kernel before this one in the stream has ended, where the launch lets this one begin earlier; the next
// may begin likewise.
)" DEVICE R"(void follow_previous() {
  asm volatile("griddepcontrol.launch_dependents;\ngriddepcontrol.wait;" ::: "memory");
}
)"},
    Helper{"anchor", "",
           R"(// Keeps a sum where it is written: the compiler would sink it to its only use and hold its operands.
)" DEVICE R"(void anchor(float& value) { asm volatile("" : "+f"(value)); }
)"},
    Helper{"here", "",
           R"(// What is computed from it is computed behind this place, and holds no registers before.
)" DEVICE R"(int here(int x) {
  asm volatile("" : "+r"(x));
  return x;
}
)"},
    Helper{"any_bits", "",
           R"(// Three at a time, so that few wait for one another: sums of bits would be made one by one.
)" DEVICE R"(unsigned any_bits(unsigned a, unsigned b = 0, unsigned c = 0) {
  unsigned any;
  asm("lop3.b32 %0, %1, %2, %3, 0xfe;" : "=r"(any) : "r"(a), "r"(b), "r"(c));
  return any;
}
template <class... Bits>
)" DEVICE R"(unsigned any_bits(unsigned a, unsigned b, unsigned c, unsigned d, Bits... more) {
  return any_bits(d, more..., any_bits(a, b, c));
}
)"},
    Helper{
        "move_operand", "",
        R"(// A move that is not folded into its source: the target is an operand of the tensor core.
)" DEVICE
        R"(void move_operand(unsigned& target, unsigned source) { asm volatile("mov.b32 %0, %1;" : "=r"(target) : "r"(source)); }
)"},

    Helper{"transpose_quad", "",
           R"(// Four words of each of four lanes: afterwards lane l holds word l % 4 of each, in the lanes' order.
)" DEVICE R"(void transpose_quad(unsigned& a, unsigned& b, unsigned& c, unsigned& d, int lane) {
  const bool odd = (lane & 1) != 0, upper = (lane & 2) != 0;
  const unsigned ab = __shfl_xor_sync(0xffffffffu, odd ? a : b, 1);
  const unsigned cd = __shfl_xor_sync(0xffffffffu, odd ? c : d, 1);
  if (odd) a = ab, c = cd;
  else b = ab, d = cd;
  const unsigned ac = __shfl_xor_sync(0xffffffffu, upper ? a : c, 2);
  const unsigned bd = __shfl_xor_sync(0xffffffffu, upper ? b : d, 2);
  if (upper) a = ac, b = bd;
  else c = ac, d = bd;
}
)"},

    // --- registers of a role
    Helper{"grow_registers", "", R"(template <int count>
)" DEVICE R"(void grow_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count)); }
)"},
    Helper{"shrink_registers", "", R"(template <int count>
)" DEVICE R"(void shrink_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count)); }
)"},

    // --- shared memory
    Helper{"shared_address", "", DEVICE R"(unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}
)"},
#define SHARED_ACCESS(name, c_type, ptx, constraint)                                            \
  Helper{"load_shared_" #name, "",                                                              \
         DEVICE #c_type " load_shared_" #name "(unsigned address) {\n  " #c_type                \
                        " value;\n"                                                             \
                        "  asm volatile(\"ld.shared." ptx " %0, [%1];\" : \"=" constraint       \
                        "\"(value) : \"r\"(address) "                                           \
                        ": \"memory\");\n  return value;\n}\n"},                                \
      Helper {                                                                                  \
    "store_shared_" #name, "",                                                                  \
        DEVICE "void store_shared_" #name "(unsigned address, " #c_type                         \
               " value) {\n"                                                                    \
               "  asm volatile(\"st.shared." ptx " [%0], %1;\" ::\"r\"(address), \"" constraint \
               "\"(value) "                                                                     \
               ": \"memory\");\n}\n"                                                            \
  }
    SHARED_ACCESS(b16, unsigned short, "b16", "h"),
    SHARED_ACCESS(b32, unsigned, "b32", "r"),
    SHARED_ACCESS(f32, float, "f32", "f"),
    SHARED_ACCESS(s32, int, "s32", "r"),
#undef SHARED_ACCESS
    Helper{"load_shared_b8", "", DEVICE R"(unsigned char load_shared_b8(unsigned address) {
  unsigned short value;
  asm volatile("ld.shared.u8 %0, [%1];" : "=h"(value) : "r"(address) : "memory");
  return static_cast<unsigned char>(value);
}
)"},
    Helper{"store_shared_b8", "", DEVICE R"(void store_shared_b8(unsigned address, unsigned char value) {
  asm volatile("st.shared.u8 [%0], %1;" ::"r"(address), "h"(static_cast<unsigned short>(value)) : "memory");
}
)"},
    Helper{"load_shared_16_bytes", "", DEVICE R"(uint4 load_shared_16_bytes(unsigned address) {
  uint4 value;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address)
               : "memory");
  return value;
}
)"},
    Helper{"load_shared_8_bytes", "", DEVICE R"(uint2 load_shared_8_bytes(unsigned address) {
  uint2 value;
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(value.x), "=r"(value.y) : "r"(address) : "memory");
  return value;
}
)"},
    // By itself the compiler may store word by word, where the words come from an exchange.
    Helper{"store_global_16_bytes", "",
           DEVICE R"(void store_global_16_bytes(void* address, unsigned a, unsigned b, unsigned c, unsigned d) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
)"},
    Helper{"store_shared_8_bytes", "", DEVICE R"(void store_shared_8_bytes(unsigned address, uint2 value) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(value.x), "r"(value.y) : "memory");
}
)"},
    Helper{"store_shared_16_bytes", "", DEVICE R"(void store_shared_16_bytes(unsigned address, uint4 value) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value.x), "r"(value.y), "r"(value.z),
               "r"(value.w)
               : "memory");
}
)"},
    Helper{"swizzle_32", "",
           DEVICE "unsigned swizzle_32(unsigned offset) { return offset ^ ((offset >> 3) & 0x10u); }\n"},
    Helper{"swizzle_64", "",
           DEVICE "unsigned swizzle_64(unsigned offset) { return offset ^ ((offset >> 3) & 0x30u); }\n"},
    Helper{"swizzle_128", "",
           DEVICE "unsigned swizzle_128(unsigned offset) { return offset ^ ((offset >> 3) & 0x70u); }\n"},
#define MATRICES(name, trans)                                                                                    \
  Helper{"load_matrices" name, "",                                                                               \
         DEVICE "void load_matrices" name                                                                        \
                "(unsigned address, unsigned& a, unsigned& b, unsigned& c, unsigned& d) {\n"                     \
                "  asm volatile(\"ldmatrix.sync.aligned.m8n8.x4" trans                                           \
                ".shared.b16 {%0, %1, %2, %3}, [%4];\"\n"                                                        \
                "               : \"=r\"(a), \"=r\"(b), \"=r\"(c), \"=r\"(d)\n               : \"r\"(address)\n" \
                "               : \"memory\");\n}\n"},                                                           \
      Helper {                                                                                                   \
    "store_matrices" name, "",                                                                                   \
        DEVICE "void store_matrices" name                                                                        \
               "(unsigned address, unsigned a, unsigned b, unsigned c, unsigned d) {\n"                          \
               "  asm volatile(\"stmatrix.sync.aligned.m8n8.x4" trans                                            \
               ".shared.b16 [%0], {%1, %2, %3, %4};\" ::\"r\"(address),\n"                                       \
               "               \"r\"(a), \"r\"(b), \"r\"(c), \"r\"(d)\n               : \"memory\");\n}\n"       \
  }
    MATRICES("", ""),
    MATRICES("_transposed", ".trans"),
#undef MATRICES
    Helper{"fence_async", "",
           R"(// What threads wrote to shared memory becomes visible to the copy engine and the tensor core.
)" DEVICE R"(void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
)"},

    // --- barriers in shared memory
    Helper{"init_barrier", "", DEVICE R"(void init_barrier(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
)"},
    Helper{"fence_barrier_init", "", DEVICE R"(void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
}
)"},
    Helper{"wait_barrier", "",
           R"(// Until the phase of this parity is complete. A fresh barrier counts as just after a phase of parity 1.
)" DEVICE R"(void wait_barrier(unsigned barrier, int parity) {
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
)"},
    Helper{"wait_barrier_cluster", "",
           R"(// As wait_barrier; what other blocks of the cluster wrote before they arrived is visible.
)" DEVICE R"(void wait_barrier_cluster(unsigned barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred complete;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 complete, [%0], %1, %2;\n"
      "@complete bra done;\n"
      "bra again;\n"
      "done:\n"
      "}" ::"r"(barrier),
      "r"(parity), "r"(1000000)
      : "memory");
}
)"},
    Helper{"arrive", "", DEVICE R"(void arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
)"},
    Helper{"arrive_times", "", DEVICE R"(void arrive_times(unsigned barrier, int count) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
)"},
    Helper{"arrive_expecting", "", DEVICE R"(void arrive_expecting(unsigned barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
)"},
    Helper{"expect", "", DEVICE R"(void expect(unsigned barrier, int bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
)"},
    Helper{"arrive_at", "", R"(// Arrives at the same barrier of another block of the cluster.
)" DEVICE R"(void arrive_at(unsigned barrier, int block, int count) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote], %2;\n"
      "}" ::"r"(barrier),
      "r"(block), "r"(count)
      : "memory");
}
)"},
    Helper{"hand_over", "", R"(// Writes a word into another block's shared memory and arrives there.
)" DEVICE R"(void hand_over(unsigned address, int value, unsigned barrier, int block) {
  asm volatile(
      "{\n"
      ".reg .b32 remote, remote_barrier;\n"
      "mapa.shared::cluster.u32 remote, %0, %3;\n"
      "mapa.shared::cluster.u32 remote_barrier, %2, %3;\n"
      "st.shared::cluster.b32 [remote], %1;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote_barrier];\n"
      "}" ::"r"(address),
      "r"(value), "r"(barrier), "r"(block)
      : "memory");
}
)"},
    Helper{"behind", "", R"(// The slot `lag` places before `slot` in a ring.
)" DEVICE R"(int behind(int slot, int lag, int depth) { return slot >= lag ? slot - lag : slot - lag + depth; }
)"},

    // --- barriers of warps, and of the cluster
    Helper{"sync_threads", "", DEVICE R"(void sync_threads(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
)"},
    Helper{"arrive_threads", "", DEVICE R"(void arrive_threads(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
)"},
    Helper{"cluster_sync", "", DEVICE R"(void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
)"},

    // --- the tensor core
    Helper{
        "matrix_descriptor", "",
        R"(// Of what begins `offset` behind the address: offset and the two strides in units of 16 bytes, the kind of swizzle.
)" DEVICE
        R"(unsigned long long matrix_descriptor(unsigned address, int offset, unsigned leading, unsigned stride, unsigned swizzle) {
  const unsigned low = (((address & 0x3ffffu) >> 4) | (leading << 16)) + offset;
  return (static_cast<unsigned long long>(stride | (swizzle << 30)) << 32) | low;
}
)"},
    Helper{"mma_fence", "", DEVICE R"(void mma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
)"},
    Helper{"mma_commit", "",
           DEVICE R"(void mma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
)"},
    Helper{"mma_wait", "", R"(// Until at most `pending` committed groups are unfinished.
template <int pending>
)" DEVICE R"(void mma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory"); }
)"},

    // --- the copy engine
    Helper{"prefetch_map", "", DEVICE R"(void prefetch_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
)"},
    Helper{"bulk_commit", "", DEVICE R"(void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
)"},
    Helper{"bulk_wait_read", "",
           R"(// Until all but `pending` groups of this thread's bulk stores have read their source.
template <int pending>
)" DEVICE R"(void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory"); }
)"},
};
#undef DEVICE

const Helper* find(std::string_view name) {
  for (const Helper& helper : kHelpers)
    if (helper.name == name) return &helper;
  return nullptr;
}

}  // namespace

std::string Helpers::use(std::string_view name) {
  const Helper* helper = find(name);
  assert(helper != nullptr && "no such device function");
  used_.emplace(name);
  for (std::string_view rest = helper->needs; !rest.empty();) {
    const std::size_t end = std::min(rest.find(' '), rest.size());
    use(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return std::string(name);
}

std::string Helpers::define(const std::string& name, const std::string& text) {
  defined_.emplace(name, text);
  return name;
}

std::vector<std::string_view> Helpers::names() {
  std::vector<std::string_view> result;
  for (const Helper& helper : kHelpers) result.push_back(helper.name);
  return result;
}

void Helpers::print(Writer& out) const {
  const auto paste = [&](std::string_view text) {
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      out.line(text.substr(0, end));
      text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    }
  };
  for (const Helper& helper : kHelpers)
    if (used_.contains(helper.name)) paste(helper.text);
  for (const auto& [name, text] : defined_) paste(text);
}

}  // namespace pipethreader::emit
