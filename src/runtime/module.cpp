// Module and Function: a loaded cubin, its kernels, and launching them.
#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "runtime/driver_context.h"

namespace pipethreader::runtime {

struct Module::State {
  std::shared_ptr<const DriverContext> context;
  std::vector<std::byte> image;  // kept: the driver may load functions from it lazily
  void* handle = nullptr;

  ~State() {
    if (handle == nullptr) return;
    context->bind();
    context->driver->module_unload(handle);
  }

  // The kernels' names, as far as the driver can list them.
  [[nodiscard]] std::vector<std::string> names() const {
    const Driver& d = *context->driver;
    unsigned count = 0;
    if (d.module_function_count == nullptr || d.module_functions == nullptr || d.function_name == nullptr) return {};
    if (d.module_function_count(&count, handle) != 0) return {};
    std::vector<void*> functions(count);
    if (d.module_functions(functions.data(), count, handle) != 0) return {};
    std::vector<std::string> names;
    for (void* function : functions) {
      const char* text = nullptr;
      if (d.function_name(&text, function) == 0 && text != nullptr) names.emplace_back(text);
    }
    std::sort(names.begin(), names.end());
    return names;
  }
};

struct Function::State {
  std::shared_ptr<Module::State> module;
  void* handle = nullptr;
  std::string name;
  std::mutex mutex;  // guards the two below; a function may be launched from several threads
  std::size_t allowed_shared = 48 * 1024;
  bool large_cluster_allowed = false;

  [[nodiscard]] const DriverContext& context() const { return *module->context; }

  Result<void> set(FunctionAttribute attribute, int value, const std::string& action) const {
    return context().run(
        action, [&](const Driver& d) { return d.function_set_attribute(handle, static_cast<int>(attribute), value); });
  }
};

Result<Module> Gpu::load(std::span<const std::byte> cubin) const {
  if (cubin.empty()) return fail("cannot load an empty binary");
  auto state = std::make_shared<Module::State>();
  state->context = context_;
  state->image.assign(cubin.begin(), cubin.end());
  auto ok = context_->run(fmt::format("load a binary of {} bytes on {} (sm_{}{})", cubin.size(), properties().name,
                                      properties().compute_major, properties().compute_minor),
                          [&](const Driver& d) { return d.module_load(&state->handle, state->image.data()); });
  if (!ok) return tl::unexpected(ok.error());
  Module module;
  module.state_ = std::move(state);
  return module;
}

Result<Function> Module::function(const std::string& name) const {
  void* handle = nullptr;
  auto ok = state_->context->run(fmt::format("find the kernel '{}'", name), [&](const Driver& d) {
    return d.module_function(&handle, state_->handle, name.c_str());
  });
  if (!ok) {
    Error error = ok.error();
    if (const auto names = state_->names(); !names.empty())
      error.diagnostics.front().hint = fmt::format("the binary holds {}", fmt::join(names, ", "));
    return tl::unexpected(std::move(error));
  }
  Function function;
  function.state_ = std::make_shared<Function::State>();
  function.state_->module = state_;
  function.state_->handle = handle;
  function.state_->name = name;
  return function;
}

Result<Module::Global> Module::global(const std::string& name) const {
  Global global;
  auto ok = state_->context->run(fmt::format("find the variable '{}'", name), [&](const Driver& d) {
    return d.module_global(&global.address, &global.bytes, state_->handle, name.c_str());
  });
  if (!ok) return tl::unexpected(ok.error());
  return global;
}

const std::string& Function::name() const { return state_->name; }

Result<FunctionAttributes> Function::attributes() const {
  FunctionAttributes a;
  const std::array<std::pair<FunctionAttribute, int*>, 6> wanted = {{
      {FunctionAttribute::registers, &a.registers},
      {FunctionAttribute::local_bytes, &a.local_bytes},
      {FunctionAttribute::static_shared_bytes, &a.static_shared_bytes},
      {FunctionAttribute::max_threads_per_block, &a.max_threads_per_block},
      {FunctionAttribute::max_dynamic_shared_bytes, &a.max_dynamic_shared_bytes},
      {FunctionAttribute::binary_version, &a.binary_version},
  }};
  for (const auto& entry : wanted) {
    auto ok = state_->context().run(fmt::format("read an attribute of the kernel '{}'", name()), [&](const Driver& d) {
      return d.function_attribute(entry.second, static_cast<int>(entry.first), state_->handle);
    });
    if (!ok) return tl::unexpected(ok.error());
  }
  return a;
}

Result<void> Function::allow_dynamic_shared(std::size_t bytes) const {
  const std::lock_guard lock(state_->mutex);
  if (bytes <= state_->allowed_shared) return {};
  const auto limit = static_cast<std::size_t>(state_->context().properties.shared_bytes_per_block);
  if (bytes > limit) {
    return fail("the kernel '{}' asks for {} bytes of dynamic shared memory; a block on {} can have {}", name(), bytes,
                state_->context().properties.name, limit);
  }
  auto ok = state_->set(FunctionAttribute::max_dynamic_shared_bytes, static_cast<int>(bytes),
                        fmt::format("allow {} bytes of shared memory to the kernel '{}'", bytes, name()));
  if (ok) state_->allowed_shared = bytes;
  return ok;
}

KernelArguments& KernelArguments::add_bytes(std::span<const std::byte> bytes) {
  Slot& slot = slots_.emplace_back();
  if (bytes.size() > slot.bytes.size()) std::abort();  // a parameter of ours is at most a tensor map
  std::copy(bytes.begin(), bytes.end(), slot.bytes.begin());
  return *this;
}

std::vector<void*> KernelArguments::pointers() {
  std::vector<void*> pointers;
  pointers.reserve(slots_.size());
  for (Slot& slot : slots_) pointers.push_back(slot.bytes.data());
  return pointers;
}

namespace {

std::string text_of(const Extent3& e) { return fmt::format("{}x{}x{}", e.x, e.y, e.z); }

std::uint64_t volume(const Extent3& e) { return std::uint64_t{e.x} * e.y * e.z; }

// The driver's view of a launch; the record points into the attributes, so the two live together.
struct PreparedLaunch {
  std::array<LaunchAttribute, 2> attributes{};
  LaunchRecord record{};

  PreparedLaunch(const LaunchConfig& c, void* stream) {
    unsigned count = 0;
    if (volume(c.cluster) > 1) {
      LaunchAttribute& a = attributes[count++];
      a.kind = LaunchAttributeKind::cluster_dimension;
      a.value.cluster[0] = c.cluster.x;
      a.value.cluster[1] = c.cluster.y;
      a.value.cluster[2] = c.cluster.z;
    }
    if (c.programmatic_serialization) {
      LaunchAttribute& a = attributes[count++];
      a.kind = LaunchAttributeKind::programmatic_stream_serialization;
      a.value.flag = 1;
    }
    record = {c.grid.x,
              c.grid.y,
              c.grid.z,
              c.block.x,
              c.block.y,
              c.block.z,
              static_cast<unsigned>(c.dynamic_shared_bytes),
              stream,
              attributes.data(),
              count};
  }
  PreparedLaunch(const PreparedLaunch&) = delete;
  PreparedLaunch& operator=(const PreparedLaunch&) = delete;
};

Result<void> check_shape(const std::string& name, const LaunchConfig& c) {
  if (volume(c.grid) == 0 || volume(c.block) == 0 || volume(c.cluster) == 0) {
    return fail("the kernel '{}' was launched with an empty extent: grid {}, block {}, cluster {}", name,
                text_of(c.grid), text_of(c.block), text_of(c.cluster));
  }
  if (c.grid.x % c.cluster.x != 0 || c.grid.y % c.cluster.y != 0 || c.grid.z % c.cluster.z != 0) {
    return fail("the kernel '{}' was launched with a grid of {} blocks, no multiple of its cluster of {}", name,
                text_of(c.grid), text_of(c.cluster));
  }
  return {};
}

}  // namespace

Result<void> Function::admit(const LaunchConfig& config) const {
  constexpr std::uint64_t portable_cluster = 8;  // more blocks than this need the kernel's permission
  if (auto ok = check_shape(name(), config); !ok) return ok;
  if (auto ok = allow_dynamic_shared(config.dynamic_shared_bytes); !ok) return ok;
  const std::uint64_t cluster = volume(config.cluster);
  const std::lock_guard lock(state_->mutex);
  if (cluster <= portable_cluster || state_->large_cluster_allowed) return {};
  auto ok = state_->set(FunctionAttribute::non_portable_cluster_allowed, 1,
                        fmt::format("allow clusters of {} blocks to the kernel '{}'", cluster, name()));
  state_->large_cluster_allowed = ok.has_value();
  return ok;
}

Result<void> Gpu::launch(const Function& function, const LaunchConfig& config, KernelArguments& arguments,
                         const Stream& stream) const {
  if (auto ok = function.admit(config); !ok) return ok;
  const PreparedLaunch launch(config, stream.handle());
  std::vector<void*> parameters = arguments.pointers();
  const int code = context_->driver->context_bind(context_->context);
  const int launched =
      code != 0 ? code : context_->driver->launch(&launch.record, function.state_->handle, parameters.data(), nullptr);
  if (launched == 0) return {};
  return context_->driver->check(
      launched, fmt::format("launch the kernel '{}' with grid {}, block {}, cluster {} and {} bytes of shared memory",
                            function.name(), text_of(config.grid), text_of(config.block), text_of(config.cluster),
                            config.dynamic_shared_bytes));
}

Result<int> Gpu::max_active_clusters(const Function& function, const LaunchConfig& config) const {
  if (auto ok = function.admit(config); !ok) return tl::unexpected(ok.error());
  if (volume(config.cluster) == 1) {
    auto per_sm = max_active_blocks_per_sm(function, config);
    if (!per_sm) return per_sm;
    return *per_sm * properties().sm_count;
  }
  const PreparedLaunch launch(config, nullptr);
  int clusters = 0;
  auto ok = context_->run(
      fmt::format("count the clusters of the kernel '{}' that fit", function.name()),
      [&](const Driver& d) { return d.active_clusters(&clusters, function.state_->handle, &launch.record); });
  if (!ok) return tl::unexpected(ok.error());
  return clusters;
}

Result<int> Gpu::max_active_blocks_per_sm(const Function& function, const LaunchConfig& config) const {
  if (auto ok = function.admit(config); !ok) return tl::unexpected(ok.error());
  int blocks = 0;
  auto ok = context_->run(fmt::format("count the blocks of the kernel '{}' that fit an SM", function.name()),
                          [&](const Driver& d) {
                            return d.active_blocks(&blocks, function.state_->handle,
                                                   static_cast<int>(volume(config.block)), config.dynamic_shared_bytes);
                          });
  if (!ok) return tl::unexpected(ok.error());
  return blocks;
}

}  // namespace pipethreader::runtime
