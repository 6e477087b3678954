#include "runtime/driver.h"

#include <array>

#include "runtime/driver_context.h"

namespace pipethreader::runtime {
namespace {

std::string_view advice(int code) {
  switch (code) {
    case 2:
      return "use smaller sizes, or free device memory (nvidia-smi lists who holds it)";
    case 3:
    case 304:
    case 802:
      return "the driver cannot start: check that nvidia-smi works for this user";
    case 34:
      return "this is the toolkit's stub library: take its 'stubs' directory off the loader's path";
    case 46:
      return "another process holds the GPU exclusively, or it has failed: nvidia-smi shows which";
    case 100:
      return "no NVIDIA GPU is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES, or interpret the kernel on the CPU";
    case 101:
      return "nvidia-smi lists the devices; ordinals count from 0";
    case 200:
    case 209:
    case 218:
      return "the binary is for another architecture than this GPU's, or damaged: compile again for this device";
    case 500:
      return "the binary holds no such name: is it declared extern \"C\"?";
    case 700:
    case 714:
    case 715:
    case 716:
    case 717:
    case 718:
    case 719:
      return "a kernel failed on the GPU and its context is lost: start a new process, and run the kernel on a small "
             "size under compute-sanitizer";
    case 701:
      return "a block needs more registers, threads or shared memory than an SM has";
    case 702:
      return "the kernel did not end in time: it may be deadlocked, or a display watchdog cut it off";
    case 803:
    case 804:
      return "the driver library and the kernel module are of different versions: reboot, or install matching ones";
    case 912:
      return "the cluster is larger than the device allows for this kernel";
    default:
      return "";
  }
}

Result<int> attribute(const Driver& driver, DeviceAttribute which, int device) {
  int value = 0;
  auto ok = driver.check(driver.device_attribute(&value, static_cast<int>(which), device), "read a device attribute");
  if (!ok) return tl::unexpected(ok.error());
  return value;
}

Result<GpuProperties> read_properties(const Driver& driver, int ordinal, int device) {
  GpuProperties p;
  p.ordinal = ordinal;
  std::array<char, 256> text{};
  auto ok = driver.check(driver.device_name(text.data(), static_cast<int>(text.size()), device), "read the GPU's name");
  if (!ok) return tl::unexpected(ok.error());
  p.name = text.data();
  std::size_t memory = 0;
  ok = driver.check(driver.device_memory(&memory, device), "read the GPU's memory size");
  if (!ok) return tl::unexpected(ok.error());
  p.memory_bytes = static_cast<std::int64_t>(memory);
  ok = driver.check(driver.driver_version(&p.driver_version), "read its version");
  if (!ok) return tl::unexpected(ok.error());

  int clock_khz = 0, memory_clock_khz = 0, l2 = 0;
  const std::array<std::pair<DeviceAttribute, int*>, 10> wanted = {{
      {DeviceAttribute::compute_major, &p.compute_major},
      {DeviceAttribute::compute_minor, &p.compute_minor},
      {DeviceAttribute::sm_count, &p.sm_count},
      {DeviceAttribute::clock_khz, &clock_khz},
      {DeviceAttribute::memory_clock_khz, &memory_clock_khz},
      {DeviceAttribute::memory_bus_bits, &p.memory_bus_bits},
      {DeviceAttribute::l2_bytes, &l2},
      {DeviceAttribute::shared_bytes_per_block, &p.shared_bytes_per_block},
      {DeviceAttribute::shared_bytes_per_sm, &p.shared_bytes_per_sm},
      {DeviceAttribute::registers_per_sm, &p.registers_per_sm},
  }};
  for (const auto& [which, target] : wanted) {
    auto value = attribute(driver, which, device);
    if (!value) return tl::unexpected(value.error());
    *target = *value;
  }
  p.peak_clock_mhz = clock_khz / 1000.0;
  p.memory_clock_mhz = memory_clock_khz / 1000.0;
  p.l2_bytes = l2;
  return p;
}

}  // namespace

Result<std::shared_ptr<const Driver>> Driver::load(const std::string& library_name) {
  auto library = DynamicLibrary::open(library_name);
  if (!library) {
    return fail_at({}, {}, fmt::format("no CUDA driver: {}", library.error().diagnostics.front().message),
                   "install the NVIDIA driver to use a GPU; compiling, verifying and interpreting need none");
  }
  auto driver = std::make_shared<Driver>(*library);
  const char* missing = nullptr;
#define PT_DRIVER(member, name, parameters)                                           \
  driver->member = reinterpret_cast<decltype(driver->member)>(library->symbol(name)); \
  if (driver->member == nullptr && missing == nullptr) missing = name;
#define PT_DRIVER_OPTIONAL(member, name, parameters) \
  driver->member = reinterpret_cast<decltype(driver->member)>(library->symbol(name));
#include "runtime/driver_functions.def"
#undef PT_DRIVER
#undef PT_DRIVER_OPTIONAL
  if (missing != nullptr) {
    return fail_at({}, {}, fmt::format("the CUDA driver '{}' has no function '{}'", library_name, missing),
                   "it is older than CUDA 12.0, or no CUDA driver: install driver 525 or newer");
  }
  if (auto ok = driver->check(driver->init(0), "start"); !ok) return tl::unexpected(ok.error());
  return std::shared_ptr<const Driver>(std::move(driver));
}

Result<void> Driver::check(int code, std::string_view action) const {
  if (code == 0) return {};
  const char* name = nullptr;
  const char* text = nullptr;
  if (error_name(code, &name) != 0 || name == nullptr) name = "unknown error";
  if (error_string(code, &text) != 0 || text == nullptr) text = "no description";
  return fail_at({}, {}, fmt::format("the CUDA driver failed to {}: {} ({}, code {})", action, name, text, code),
                 std::string(advice(code)));
}

DriverContext::~DriverContext() {
  if (context != nullptr) driver->context_release(device);
}

Result<int> Gpu::count(const std::string& library) {
  auto driver = Driver::load(library);
  if (!driver) return tl::unexpected(driver.error());
  int devices = 0;
  if (auto ok = (*driver)->check((*driver)->device_count(&devices), "count the GPUs"); !ok)
    return tl::unexpected(ok.error());
  return devices;
}

Result<Gpu> Gpu::open(int ordinal, const std::string& library) {
  auto driver = Driver::load(library);
  if (!driver) return tl::unexpected(driver.error());
  const Driver& table = **driver;

  int devices = 0;
  if (auto ok = table.check(table.device_count(&devices), "count the GPUs"); !ok) return tl::unexpected(ok.error());
  if (devices == 0) return fail_at({}, {}, "the CUDA driver sees no GPU", std::string(advice(100)));
  if (ordinal < 0 || ordinal >= devices) {
    return fail_at({}, {}, fmt::format("there is no GPU {}: the driver sees {}, numbered from 0", ordinal, devices),
                   std::string(advice(101)));
  }
  auto context = std::make_shared<DriverContext>();
  context->driver = *driver;
  if (auto ok = table.check(table.device_get(&context->device, ordinal), "open the GPU"); !ok)
    return tl::unexpected(ok.error());
  auto properties = read_properties(table, ordinal, context->device);
  if (!properties) return tl::unexpected(properties.error());
  context->properties = std::move(*properties);
  if (auto ok = table.check(table.context_retain(&context->context, context->device), "make a context on the GPU"); !ok)
    return tl::unexpected(ok.error());

  Gpu gpu;
  gpu.context_ = std::move(context);
  return gpu;
}

const GpuProperties& Gpu::properties() const { return context_->properties; }

Result<void> Gpu::synchronize() const {
  return context_->run("finish the work on the GPU", [](const Driver& d) { return d.context_synchronize(); });
}

}  // namespace pipethreader::runtime
