// Devices as data: everything the compiler knows about a machine comes out of devices/<name>.toml through this
// header. Every field is required; a missing, ill-typed, unknown or out-of-range one is an error that names file, line
// and key. The loader judges ranges and consistency only: a device with no tensor cores, or with no shared memory,
// loads, and the stage that cannot do without says so.
//
// Units of measure: cycles are cycles of the execution unit's clock; a lane-operation is one thread doing one
// instruction (a warp instruction is 32 of them); bytes are bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/diagnostic.h"
#include "base/functions.h"
#include "base/scalar_type.h"

namespace pipethreader::device {

// --- resources ---------------------------------------------------------------------------------------------------

// What an execution unit's work competes for. Reservation is over these, not over units.
enum class Resource : std::uint8_t {
  tensor,          // tensor pipe, in cycles
  fma,             // fp32 and packed 16-bit arithmetic, in lane-operations
  integer,         // integer, logic, compare, select, min and max, in lane-operations
  special,         // exp2, log2, reciprocal, square root, in lane-operations
  convert,         // conversions between types, in lane-operations
  issue,           // instruction issue, in lane-operations
  register_ports,  // operand reads that contend with the tensor pipe, in lane-operations
  shared_memory,   // shared-memory traffic, shuffles included, in bytes
  l2,              // from L2 to the execution units, in bytes
  dram,            // device memory, in bytes
};
inline constexpr std::size_t resource_count = 10;
[[nodiscard]] std::string_view name(Resource resource);
[[nodiscard]] std::optional<Resource> resource_named(std::string_view name);
[[nodiscard]] std::span<const Resource> all_resources();

// An amount of each resource: what something uses.
struct Demand {
  std::array<double, resource_count> amount{};
  [[nodiscard]] double& operator[](Resource r) { return amount[static_cast<std::size_t>(r)]; }
  [[nodiscard]] double operator[](Resource r) const { return amount[static_cast<std::size_t>(r)]; }
  Demand& operator+=(const Demand& other);
  [[nodiscard]] Demand operator*(double factor) const;
  bool operator==(const Demand&) const = default;
};

enum class Scope : std::uint8_t {
  execution_unit,  // `rate` is per cycle and each execution unit has its own
  device,          // `rate` is per second, shared by all execution units
};

struct ResourceRate {
  Scope scope = Scope::execution_unit;
  double rate = 0;
};

// Work on `source` slows `target`: each cycle of `source` at full rate takes `cycles` of `target`.
struct Interference {
  Resource source = Resource::fma;
  Resource target = Resource::tensor;
  double cycles = 0;
};

// --- specialised units -------------------------------------------------------------------------------------------

enum class UnitKind : std::uint8_t { copy, tensor, alu, link };
[[nodiscard]] std::string_view name(UnitKind kind);

enum class Completion : std::uint8_t {
  fifo_group,  // groups finish in order; the issuer waits for "at most n outstanding"
  barrier,     // completion counts on a barrier that anyone may wait for
  blocking,    // done when issued
};
[[nodiscard]] std::string_view name(Completion completion);

// One specialised execution unit (sEU) of each execution unit.
struct Unit {
  std::string name;
  UnitKind kind = UnitKind::alu;
  bool is_async = false;  // issuing does not block the issuer
  Completion completion = Completion::blocking;
  double issue_cycles = 0;  // the issuer is held this long for each instruction
  int queue_depth = 0;      // instructions outstanding before issuing blocks; 0: no limit of its own
};

// The dense products of the tensor unit: m rows, n a multiple of n_step within [n_min, n_max], k per instruction.
struct MmaShape {
  ScalarType a = ScalarType::f16;
  ScalarType b = ScalarType::f16;
  ScalarType accumulator = ScalarType::f32;
  int threads = 0;  // that issue it together
  int m = 0;
  int n_min = 0;
  int n_max = 0;
  int n_step = 0;
  int k = 0;
  double cycles_per_n_shared = 0;     // tensor cycles per column, operand A in shared memory
  double cycles_per_n_registers = 0;  // operand A in registers
  bool a_in_registers = false;        // allowed
  bool mn_major = false;              // operands in shared memory may be major in m or n (else k only)

  [[nodiscard]] bool allows_n(int n) const { return n >= n_min && n <= n_max && n_step > 0 && n % n_step == 0; }
  [[nodiscard]] double cycles(int n, bool a_from_registers) const {
    return n * (a_from_registers ? cycles_per_n_registers : cycles_per_n_shared);
  }
};

// --- costs and limits --------------------------------------------------------------------------------------------

struct Clock {
  double burst_ghz = 0;      // short runs
  double sustained_ghz = 0;  // under the power limit
};

// Cycles from issue until the result can be used, with the machine otherwise idle.
struct Latency {
  double bulk_load = 0;    // bulk copy, global to shared, until its barrier completes
  double bulk_store = 0;   // bulk copy, shared to global, until the source may be overwritten
  double global_load = 0;  // plain load
  double shared_load = 0;
  double shared_store = 0;
  double shuffle = 0;
  double arithmetic = 0;   // dependent fp32 operation
  double special = 0;      // dependent special function
  double mma = 0;          // what a lone group of mma and its wait cost above its tensor cycles
  double last_result = 0;  // of much arithmetic: from its last instruction's issue, at most
};

// How much of their rates the units reach at work.
struct Throughput {
  double tensor_share = 0;     // of the tensor unit's rate at the burst clock
  double operand_share = 0;    // a product and the way of its operands: of the shorter, what adds to the longer
  double lane_share = 0;       // of the arithmetic units, what one lane can use
  double all_lanes_share = 0;  // what all lanes together can
  double joined_share = 0;     // of what sTasks in a row could gain by running at once
  double l2_alone_factor = 0;  // what one execution unit gets from L2, over its share of what all get
};

// What an iteration of a loop costs beside its tasks.
struct Iteration {
  double wait_cycles = 0;
  double work_cycles = 0;          // of arithmetic, which lanes share
  double kept_cycles = 0;          // the same, for a tile that is found in what a walk keeps
  double overlap_wait_cycles = 0;  // more, for each further iteration that runs at once
  double overlap_work_cycles = 0;
};

// What a work item costs beside its lanes' time.
struct WorkItem {
  double direct_store_cycles = 0;  // results stored by threads: longer than through the copy engine, by register
  double apart_store_share = 0;    // of that, what lanes feel that change places: one stores while others compute
  double staged_store_share = 0;   // results stored by the copy engine: of the cycles, what holds no lane
  double hidden_share = 0;         // of what is not the limit: what still costs
  double serial_factor = 0;  // time in loops that end in a cut tile; of lanes without overlap: two, or loops differ
  double many_serial_factor = 0;       // of more than two that compute operands, elsewhere
  double staying_blocks_factor = 0;    // time with several blocks on an execution unit that stay there: of the sum of
  double staying_blocks_exponent = 0;  // what one takes alone and what the units are busy with all, both so raised
  double uncoordinated_factor = 0;     // time with several blocks on an execution unit that nothing coordinates
};

struct Barriers {
  int named_count = 0;                     // hardware barriers of a block
  double named_cycles = 0;                 // arrive and pass
  double counted_cycles = 0;               // a counted barrier in shared memory: completion seen by a waiter
  double counted_arrive_cycles = 0;        // the arriver is held this long
  std::int64_t counted_arrivals_max = 0;   // of one phase
  std::int64_t transaction_bytes_max = 0;  // of one phase
  int phases = 0;                          // a waiter may lag less than this many
  double turn_cycles = 0;                  // handing a turn from lane to lane
  double proxy_fence_cycles = 0;           // ordinary stores made visible to the copy engine
  double cluster_sync_cycles = 0;
};

struct Memory {
  std::int64_t shared_bytes_per_unit = 0;   // all blocks of an execution unit together
  std::int64_t shared_bytes_per_block = 0;  // the most that one block may have
  std::int64_t shared_bytes_reserved = 0;   // taken from each block by the system
  std::int64_t l2_bytes = 0;
  std::int64_t dram_bytes = 0;
  int shared_banks = 0;
  int shared_bank_bytes = 0;
  int line_bytes = 0;        // of global memory, moved at once
  double l2_band_share = 0;  // of L2, what may be filled by tiles that are walked together
};

// Registers a thread may have, by role, when one block fills the execution unit. All numbers per thread.
struct RegisterBudget {
  int consumers = 0;  // warpgroups that compute
  int launch = 0;     // at launch, for every warpgroup
  int producer = 0;   // after reallocation
  int consumer = 0;
};

struct Registers {
  std::int64_t per_unit = 0;
  int per_thread_max = 0;
  int granularity = 0;       // of reallocation and of the allocation at launch
  int reallocation_min = 0;  // the least and the most that reallocation accepts
  int reallocation_max = 0;
  std::vector<RegisterBudget> budgets;  // the first that fits a number of consumers is the preferred one
};

struct Threads {
  int per_warp = 0;
  int warps_per_group = 0;  // warpgroup; 1 where there is no such thing
  int per_block_max = 0;
  int per_unit_max = 0;
  int blocks_per_unit_max = 0;
  int schedulers = 0;  // warp schedulers of an execution unit
};

struct Cluster {
  int blocks_max = 0;            // that every device of the architecture takes; 1: no clusters
  bool multicast = false;        // one bulk load can fill the same place in several blocks
  bool remote_barriers = false;  // a block may arrive on another's barrier
  double cost_factor = 0;        // time of blocks that wait for each other
  double pays_above = 0;         // clusters are worth a try where L2 is busy so many times as long as a work item takes
};

// What bulk copies demand of addresses and shapes.
struct BulkCopy {
  int rank_max = 0;
  int box_extent_max = 0;          // elements, every dim of a box
  int address_alignment = 0;       // bytes, global base
  int stride_alignment = 0;        // bytes, global strides
  int shared_alignment = 0;        // bytes, unswizzled
  std::vector<int> swizzle_bytes;  // spans; the innermost extent of a box is at most the span
};

struct Launch {
  double kernel_microseconds = 0;  // from the queue to the first instruction
  double block_cycles = 0;         // starting the next block of a wave: barriers, descriptors, first loads not counted
  double lone_block_cycles = 0;  // the same where it has an execution unit to itself, and has to wait for the last one
  double next_work_cycles = 0;   // a persistent block fetching its next piece of work dynamically
};

struct Assembler {
  int parameter_bytes_max = 0;           // kernel parameters, tensor maps included
  int mma_groups_across_iterations = 0;  // that a loop may leave in flight over its back edge without serialising
  int mma_groups_outstanding_max = 0;    // that a wait can count
  int address_registers = 0;             // of a thread, for counters, addresses and loop bounds beside the values
  int overlap_registers = 0;             // that two iterations at once need more
  int mma_registers = 0;                 // that a product needs at launch beside its accumulator
};

// What faults of machine code add to a kernel's time, as multiples of it.
struct Faults {
  double serialised = 0;             // products that wait for each other
  double ignored_budget = 0;         // registers that are not moved between the roles
  double spilled = 0;                // the first spilled register
  double spilled_bytes_as_time = 0;  // spilled bytes that add the whole time once
};

// Operand classes of map functions: types of a class cost the same.
enum class OperandClass : std::uint8_t { f32, f16, bf16, i32 };
inline constexpr std::size_t operand_class_count = 4;
// The class that computes `type`: narrower and tf32 floats compute in f32, integers and booleans in i32.
[[nodiscard]] OperandClass operand_class(ScalarType type);

// Instructions that move values between the threads or to and from shared memory, per lane.
enum class Move : std::uint8_t {
  shuffle,
  vote,
  load_shared,
  store_shared,
  load_matrix,
  store_matrix,
  load_global,
  store_global
};
inline constexpr std::size_t move_count = 8;
[[nodiscard]] std::string_view name(Move move);

struct Device {
  std::string file;          // where it was read from
  std::uint64_t digest = 0;  // of the file's text: part of cache keys
  std::string name;          // "h100"
  std::string description;
  std::string architecture;  // what the code generator is chosen by: "sm_90a"
  int execution_units = 0;
  Clock clock;
  Threads threads;
  Registers registers;
  Memory memory;
  std::vector<Unit> units;
  std::vector<MmaShape> mma;
  std::array<ResourceRate, resource_count> resources;
  std::vector<Interference> interference;
  Latency latency;
  Throughput throughput;
  Iteration iteration;
  WorkItem work_item;
  Barriers barriers;
  Cluster cluster;
  BulkCopy bulk_copy;
  Launch launch;
  Assembler assembler;
  Faults faults;

  // Per element; indexed by OperandClass, then Function. Empty where the class has no such function.
  std::array<std::vector<std::optional<Demand>>, operand_class_count> functions;
  std::map<std::pair<ScalarType, ScalarType>, Demand> conversions;  // per element, from and to
  std::array<Demand, move_count> moves;                             // per lane and instruction

  [[nodiscard]] const ResourceRate& operator[](Resource r) const { return resources[static_cast<std::size_t>(r)]; }
  [[nodiscard]] const Demand& operator[](Move m) const { return moves[static_cast<std::size_t>(m)]; }

  // The first unit of a kind; nullptr when the device has none.
  [[nodiscard]] const Unit* unit(UnitKind kind) const;
  // The product of these operand types; nullptr when the tensor unit has none.
  [[nodiscard]] const MmaShape* find_mma(ScalarType a, ScalarType b, ScalarType accumulator) const;
  // Demand of one element; nullptr when the device cannot compute it in that class.
  [[nodiscard]] const Demand* find_function(Function function, OperandClass operands) const;
  [[nodiscard]] const Demand* find_conversion(ScalarType from, ScalarType to) const;
  // How the registers of a block with so many consumers are shared out, one of so many blocks on an execution unit: the
  // first budget whose producer has at least so many registers, else the first. Nothing where it is not known.
  [[nodiscard]] std::optional<RegisterBudget> find_budget(int consumers, int producer = 0, int blocks = 1) const;
  // The most bytes of shared memory that each of so many blocks on an execution unit can have.
  [[nodiscard]] std::int64_t shared_bytes(int blocks) const;

  // The share of one execution unit per cycle at the burst clock, with all execution units at work.
  [[nodiscard]] double rate_per_cycle(Resource resource) const;
  // Cycles one execution unit is busy with `demand` on each resource; infinite where the rate is 0 and demand is not.
  [[nodiscard]] Demand busy_cycles(const Demand& demand) const;
  // The longest of busy_cycles after interference.
  [[nodiscard]] double bound_cycles(const Demand& demand) const;
};

// --- loading -----------------------------------------------------------------------------------------------------

// `file` is used in messages only.
[[nodiscard]] Result<Device> parse_device(std::string_view text, const std::string& file);
[[nodiscard]] Result<Device> load_device(const std::filesystem::path& path);

// The names that folders hold, sorted; a name in several folders counts once.
[[nodiscard]] std::vector<std::string> known_devices(std::span<const std::filesystem::path> folders);
// `name` in the first folder that has it, or a path to a .toml file. The error lists the known names.
[[nodiscard]] Result<Device> find_device(const std::string& name, std::span<const std::filesystem::path> folders);

}  // namespace pipethreader::device
