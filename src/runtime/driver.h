// The CUDA driver as values: devices, memory, modules, tensor maps, launches, streams, events and graphs. The driver
// library is opened at run time through our own declarations, so nothing here needs a GPU, a driver or an SDK to build.
// Every call is checked; an error carries the driver's name and text of it and what to do. Without a driver or a card
// Gpu::open returns such an error and nothing else can be called, since every type here comes from a Gpu.
// Each value keeps the driver and its context alive, and binds the context to the calling thread by itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/diagnostic.h"
#include "runtime/tensor_map.h"

namespace pipethreader::runtime {

struct DriverContext;  // the loaded driver and one retained primary context; driver_context.h

struct GpuProperties {
  std::string name;  // "NVIDIA H200"
  int ordinal = 0;
  int compute_major = 0;  // 9
  int compute_minor = 0;  // 0
  int sm_count = 0;
  double peak_clock_mhz = 0;  // the highest clock of the SMs
  double memory_clock_mhz = 0;
  int memory_bus_bits = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t l2_bytes = 0;
  int shared_bytes_per_block = 0;  // with opt-in: 232448 on Hopper
  int shared_bytes_per_sm = 0;
  int registers_per_sm = 0;
  int driver_version = 0;  // 13000 is CUDA 13.0
};

// A queue of device work; the default-constructed one is the context's default stream, ordered with all others.
class Stream {
 public:
  Stream() = default;
  Stream(Stream&&) = default;
  Stream& operator=(Stream&&) = default;
  [[nodiscard]] Result<void> synchronize() const;  // nothing to wait for on a default-constructed one: use the Gpu's
  [[nodiscard]] void* handle() const;

 private:
  friend class Gpu;
  struct State;
  std::shared_ptr<State> state_;
};

// Device memory, freed with its owner. An empty one has address 0 and no bytes.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&&) = default;
  DeviceBuffer& operator=(DeviceBuffer&&) = default;

  [[nodiscard]] std::uint64_t address() const;
  [[nodiscard]] std::size_t bytes() const;

  // All of these are complete on return.
  [[nodiscard]] Result<void> upload(std::span<const std::byte> host, std::size_t offset = 0);
  [[nodiscard]] Result<void> download(std::span<std::byte> host, std::size_t offset = 0) const;
  [[nodiscard]] Result<void> fill(std::uint8_t value);
  // Repeats a pattern of 1, 2 or 4 bytes; 0x7fff poisons f16, 0x7fffffff f32.
  [[nodiscard]] Result<void> fill_pattern(std::uint32_t pattern, int pattern_bytes);
  [[nodiscard]] Result<void> copy_from(const DeviceBuffer& source, std::size_t byte_count);

  // In the stream's order, and capturable: what resets a counter or a workspace before each launch.
  [[nodiscard]] Result<void> fill_async(std::uint8_t value, std::size_t offset, std::size_t count,
                                        const Stream& stream);

 private:
  friend class Gpu;
  struct State;
  std::shared_ptr<State> state_;
};

// Two events around work on a stream.
class Timer {
 public:
  Timer() = default;
  Timer(Timer&&) = default;
  Timer& operator=(Timer&&) = default;
  [[nodiscard]] Result<void> start(const Stream& stream);
  [[nodiscard]] Result<void> stop(const Stream& stream);
  [[nodiscard]] Result<double> milliseconds();  // waits for the second event

 private:
  friend class Gpu;
  struct State;
  std::shared_ptr<State> state_;
};

struct Extent3 {
  unsigned x = 1, y = 1, z = 1;
};

struct LaunchConfig {
  Extent3 grid;
  Extent3 block;
  Extent3 cluster;  // {1,1,1}: no cluster
  std::size_t dynamic_shared_bytes = 0;
  bool programmatic_serialization = false;  // may start before the previous kernel of the stream has ended
};

struct FunctionAttributes {
  int registers = 0;
  int local_bytes = 0;  // a thread's spills and stack
  int static_shared_bytes = 0;
  int max_threads_per_block = 0;
  int max_dynamic_shared_bytes = 0;  // as set so far
  int binary_version = 0;            // 90
};

// One kernel of a module; valid while any copy of it, or its Module, lives.
class Function {
 public:
  [[nodiscard]] Result<FunctionAttributes> attributes() const;
  // Needed above 48 KiB; launch() does it by itself for the size that it is given.
  [[nodiscard]] Result<void> allow_dynamic_shared(std::size_t bytes) const;
  [[nodiscard]] const std::string& name() const;

 private:
  friend class Gpu;
  friend class Module;
  // What a launch of this shape needs first: a legal shape, its shared memory, a cluster beyond the portable size.
  [[nodiscard]] Result<void> admit(const LaunchConfig& config) const;
  struct State;
  std::shared_ptr<State> state_;
};

// A loaded binary; unloaded when it and its functions are gone.
class Module {
 public:
  // The kernel of that name; the error lists the kernels there are.
  [[nodiscard]] Result<Function> function(const std::string& name) const;
  // A __device__ variable of the module: its address and size.
  struct Global {
    std::uint64_t address = 0;
    std::size_t bytes = 0;
  };
  [[nodiscard]] Result<Global> global(const std::string& name) const;

 private:
  friend class Gpu;
  friend class Function;
  struct State;
  std::shared_ptr<State> state_;
};

// The parameters of a launch, in the kernel's order. Each is copied when added and held aligned to 64 bytes.
class KernelArguments {
 public:
  template <class T>
  requires std::is_trivially_copyable_v<T> KernelArguments& add(const T& value) {
    return add_bytes(std::as_bytes(std::span<const T, 1>(&value, 1)));
  }
  KernelArguments& add_bytes(std::span<const std::byte> bytes);  // at most 128 bytes; a longer one is a bug
  KernelArguments& add(const TensorMap& map) { return add_bytes(map.bytes()); }
  KernelArguments& add(const DeviceBuffer& buffer) { return add(buffer.address()); }
  [[nodiscard]] std::size_t size() const { return slots_.size(); }
  [[nodiscard]] std::vector<void*> pointers();  // what the driver takes; valid until the next add

 private:
  struct alignas(64) Slot {
    std::array<std::byte, 128> bytes{};
  };
  std::vector<Slot> slots_;
};

// Work captured once and replayed with one call: timing without launch gaps.
class Graph {
 public:
  Graph() = default;
  Graph(Graph&&) = default;
  Graph& operator=(Graph&&) = default;
  [[nodiscard]] Result<void> launch(const Stream& stream) const;

 private:
  friend class Gpu;
  struct State;
  std::shared_ptr<State> state_;
};

struct MeasureOptions {
  int warmups = 3;
  int repeats = 20;
  int launches = 1;     // calls of `work` between the two events; the sample is their mean
  double idle_ms = 15;  // rest before the burst, so that the card is neither cold nor throttled
};

struct Measurement {
  double median_ms = 0;
  double minimum_ms = 0;
  std::vector<double> samples_ms;
};

class Gpu {
 public:
  static constexpr const char* default_library = "libcuda.so.1";

  // How many devices the driver offers.
  [[nodiscard]] static Result<int> count(const std::string& library = default_library);
  [[nodiscard]] static Result<Gpu> open(int ordinal, const std::string& library = default_library);

  [[nodiscard]] const GpuProperties& properties() const;

  [[nodiscard]] Result<DeviceBuffer> allocate(std::size_t bytes) const;  // 0 bytes is allowed
  [[nodiscard]] Result<DeviceBuffer> upload(std::span<const std::byte> host) const;
  [[nodiscard]] Result<Module> load(std::span<const std::byte> cubin) const;
  [[nodiscard]] Result<TensorMap> encode(const TensorMapDescription& description) const;
  [[nodiscard]] Result<Stream> create_stream() const;
  [[nodiscard]] Result<Timer> create_timer() const;

  [[nodiscard]] Result<void> launch(const Function& function, const LaunchConfig& config, KernelArguments& arguments,
                                    const Stream& stream) const;
  [[nodiscard]] Result<void> synchronize() const;

  // How many such clusters (or blocks, without a cluster) can be resident at once; a persistent grid's size.
  [[nodiscard]] Result<int> max_active_clusters(const Function& function, const LaunchConfig& config) const;
  [[nodiscard]] Result<int> max_active_blocks_per_sm(const Function& function, const LaunchConfig& config) const;

  // Runs `record`, which only launches on the stream it is given, without executing it.
  [[nodiscard]] Result<Graph> capture(const std::function<Result<void>(const Stream&)>& record) const;

  // Times `work` on one stream: rest, warm-up launches, then each repeat between two events.
  [[nodiscard]] Result<Measurement> measure(const MeasureOptions& options,
                                            const std::function<Result<void>(const Stream&)>& work) const;

 private:
  std::shared_ptr<const DriverContext> context_;
};

}  // namespace pipethreader::runtime
