// DeviceBuffer: device memory and its copies, each checked against the buffer's size before the driver sees it.
#include "runtime/driver_context.h"

namespace pipethreader::runtime {

struct DeviceBuffer::State {
  std::shared_ptr<const DriverContext> context;
  std::uint64_t address = 0;
  std::size_t bytes = 0;

  ~State() {
    if (address == 0) return;
    context->bind();
    context->driver->free(address);
  }

  [[nodiscard]] Result<void> inside(std::size_t offset, std::size_t count, std::string_view action) const {
    if (offset <= bytes && count <= bytes - offset) return {};
    return fail("cannot {} {} bytes at offset {} of a device buffer of {} bytes", action, count, offset, bytes);
  }
};

namespace {
Result<void> empty_buffer(std::size_t bytes, std::string_view action) {
  if (bytes == 0) return {};
  return fail("cannot {} {} bytes of a device buffer that was never allocated", action, bytes);
}
}  // namespace

std::uint64_t DeviceBuffer::address() const { return state_ ? state_->address : 0; }
std::size_t DeviceBuffer::bytes() const { return state_ ? state_->bytes : 0; }

Result<void> DeviceBuffer::upload(std::span<const std::byte> host, std::size_t offset) {
  if (!state_) return empty_buffer(host.size(), "upload");
  if (auto ok = state_->inside(offset, host.size(), "upload"); !ok || host.empty()) return ok;
  return state_->context->run("copy to the GPU", [&](const Driver& d) {
    const int code = d.copy_to_device(state_->address + offset, host.data(), host.size());
    return code != 0 ? code : d.stream_synchronize(nullptr);  // pageable copies may still be on their way
  });
}

Result<void> DeviceBuffer::download(std::span<std::byte> host, std::size_t offset) const {
  if (!state_) return empty_buffer(host.size(), "download");
  if (auto ok = state_->inside(offset, host.size(), "download"); !ok || host.empty()) return ok;
  return state_->context->run("copy from the GPU", [&](const Driver& d) {
    return d.copy_to_host(host.data(), state_->address + offset, host.size());
  });
}

Result<void> DeviceBuffer::fill(std::uint8_t value) { return fill_pattern(value, 1); }

Result<void> DeviceBuffer::fill_pattern(std::uint32_t pattern, int pattern_bytes) {
  if (pattern_bytes != 1 && pattern_bytes != 2 && pattern_bytes != 4)
    return fail("a fill pattern has 1, 2 or 4 bytes, not {}", pattern_bytes);
  if (!state_ || state_->bytes == 0) return {};
  const std::size_t count = state_->bytes / static_cast<std::size_t>(pattern_bytes);
  if (count * static_cast<std::size_t>(pattern_bytes) != state_->bytes)
    return fail("a buffer of {} bytes cannot be filled with a pattern of {} bytes", state_->bytes, pattern_bytes);
  return state_->context->run("fill device memory", [&](const Driver& d) {
    int code = 0;
    if (pattern_bytes == 1) code = d.fill_8(state_->address, static_cast<unsigned char>(pattern), count);
    if (pattern_bytes == 2) code = d.fill_16(state_->address, static_cast<unsigned short>(pattern), count);
    if (pattern_bytes == 4) code = d.fill_32(state_->address, pattern, count);
    return code != 0 ? code : d.stream_synchronize(nullptr);
  });
}

Result<void> DeviceBuffer::fill_async(std::uint8_t value, std::size_t offset, std::size_t count, const Stream& stream) {
  if (!state_) return empty_buffer(count, "fill");
  if (auto ok = state_->inside(offset, count, "fill"); !ok || count == 0) return ok;
  return state_->context->run("fill device memory", [&](const Driver& d) {
    return d.fill_8_async(state_->address + offset, value, count, stream.handle());
  });
}

Result<void> DeviceBuffer::copy_from(const DeviceBuffer& source, std::size_t byte_count) {
  if (byte_count == 0) return {};
  if (!state_ || !source.state_) return empty_buffer(byte_count, "copy");
  if (auto ok = state_->inside(0, byte_count, "copy into"); !ok) return ok;
  if (auto ok = source.state_->inside(0, byte_count, "copy from"); !ok) return ok;
  return state_->context->run("copy on the GPU", [&](const Driver& d) {
    const int code = d.copy_on_device(state_->address, source.state_->address, byte_count);
    return code != 0 ? code : d.stream_synchronize(nullptr);
  });
}

Result<DeviceBuffer> Gpu::allocate(std::size_t bytes) const {
  auto state = std::make_shared<DeviceBuffer::State>();
  state->context = context_;
  state->bytes = bytes;
  if (bytes > 0) {
    auto ok = context_->run(fmt::format("allocate {} bytes on the GPU", bytes),
                            [&](const Driver& d) { return d.allocate(&state->address, bytes); });
    if (!ok) return tl::unexpected(ok.error());
  }
  DeviceBuffer buffer;
  buffer.state_ = std::move(state);
  return buffer;
}

Result<DeviceBuffer> Gpu::upload(std::span<const std::byte> host) const {
  auto buffer = allocate(host.size());
  if (!buffer) return buffer;
  if (auto ok = buffer->upload(host); !ok) return tl::unexpected(ok.error());
  return buffer;
}

}  // namespace pipethreader::runtime
