// The loaded driver, and one device's primary context held for as long as anything made from it lives. Internal to
// runtime/: the declarations are ours, with the layout that the driver's binary interface fixes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/diagnostic.h"
#include "runtime/driver.h"
#include "runtime/dynamic_library.h"

namespace pipethreader::runtime {

enum class LaunchAttributeKind : int { cluster_dimension = 4, programmatic_stream_serialization = 6 };

struct LaunchAttribute {
  LaunchAttributeKind kind{};
  std::uint32_t padding = 0;
  union Value {
    std::uint64_t whole[8] = {};
    std::uint32_t cluster[3];
    int flag;
  } value;
};
static_assert(sizeof(LaunchAttribute) == 72);

struct LaunchRecord {
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned dynamic_shared_bytes;
  void* stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};
static_assert(sizeof(LaunchRecord) == 56);

enum class DeviceAttribute : int {
  clock_khz = 13,
  sm_count = 16,
  memory_clock_khz = 36,
  memory_bus_bits = 37,
  l2_bytes = 38,
  compute_major = 75,
  compute_minor = 76,
  shared_bytes_per_sm = 81,
  registers_per_sm = 82,
  shared_bytes_per_block = 97,
};

enum class FunctionAttribute : int {
  max_threads_per_block = 0,
  static_shared_bytes = 1,
  local_bytes = 3,
  registers = 4,
  binary_version = 6,
  max_dynamic_shared_bytes = 8,
  non_portable_cluster_allowed = 14,
};

// The table of driver functions; each is set once the library is loaded.
struct Driver {
  explicit Driver(DynamicLibrary opened) : library(std::move(opened)) {}

  // Loads the library, finds every function, and initialises the driver.
  [[nodiscard]] static Result<std::shared_ptr<const Driver>> load(const std::string& library_name);

  // "the CUDA driver failed to <action>: CUDA_ERROR_... (text)", and what to do.
  [[nodiscard]] Result<void> check(int code, std::string_view action) const;

  DynamicLibrary library;
#define PT_DRIVER(member, symbol, parameters) int(*member) parameters = nullptr;
#define PT_DRIVER_OPTIONAL(member, symbol, parameters) int(*member) parameters = nullptr;
#include "runtime/driver_functions.def"
#undef PT_DRIVER
#undef PT_DRIVER_OPTIONAL
};

struct DriverContext {
  std::shared_ptr<const Driver> driver;
  int device = -1;
  void* context = nullptr;
  GpuProperties properties;

  DriverContext() = default;
  DriverContext(const DriverContext&) = delete;
  DriverContext& operator=(const DriverContext&) = delete;
  ~DriverContext();

  // Makes the context current in the calling thread, for a destructor that can report nothing.
  void bind() const { driver->context_bind(context); }

  // Binds and calls: `call` gets the driver's table and returns its code.
  template <class Call>
  [[nodiscard]] Result<void> run(std::string_view action, Call&& call) const {
    if (const int code = driver->context_bind(context); code != 0) return driver->check(code, "bind the GPU's context");
    return driver->check(call(*driver), action);
  }
};

}  // namespace pipethreader::runtime
