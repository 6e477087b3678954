#include "runtime/atomic_file.h"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pipethreader::runtime {
namespace {

// An open file, closed with its owner.
struct Descriptor {
  int number = -1;
  ~Descriptor() {
    if (number >= 0) close(number);
  }
};

tl::unexpected<Error> failed(std::string_view action, const std::string& path, int error) {
  std::string hint;
  if (error == ENOSPC || error == EDQUOT) hint = "the disk is full: free space, or choose another place";
  if (error == ENOENT && action == "write") hint = "make its folder first";
  return fail_at({}, {}, fmt::format("cannot {} '{}': {}", action, path, std::strerror(error)), hint);
}

// 0, or the error.
int write_all(int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return 0;
}

int write_and_sync(const std::string& path, std::initializer_list<std::span<const std::byte>> pieces) {
  Descriptor file{::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644)};
  if (file.number < 0) return errno;
  for (const auto piece : pieces)
    if (const int error = write_all(file.number, piece); error != 0) return error;
  if (fsync(file.number) != 0) return errno;
  const int number = file.number;
  file.number = -1;
  return close(number) != 0 ? errno : 0;
}

}  // namespace

std::string unique_name(const std::string& stem) {
  // The process's number and a count are unique on one machine; the random part tells apart machines that share a disk.
  static std::atomic<std::uint32_t> count{0};
  return fmt::format("{}-{}-{}-{:08x}", stem, getpid(), count.fetch_add(1), std::random_device{}());
}

Result<void> write_file_atomically(const std::string& path, const std::string& temporary,
                                   std::initializer_list<std::span<const std::byte>> pieces) {
  if (const int error = write_and_sync(temporary, pieces); error != 0) {
    if (error != EEXIST) unlink(temporary.c_str());
    return failed("write", temporary, error);
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(temporary.c_str());
    return failed("write", path, error);
  }
  return {};
}

namespace {

// 0, or the error.
int write_in_place(const std::string& path, std::initializer_list<std::span<const std::byte>> pieces) {
  const Descriptor file{::open(path.c_str(), O_WRONLY | O_CLOEXEC)};
  if (file.number < 0) return errno;
  for (const auto piece : pieces)
    if (const int error = write_all(file.number, piece); error != 0) return error;
  return 0;
}

}  // namespace

Result<void> write_file(const std::string& path, std::initializer_list<std::span<const std::byte>> pieces) {
  struct stat info {};
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    const int error = S_ISDIR(info.st_mode) ? EISDIR : write_in_place(path, pieces);
    if (error != 0) return failed("write", path, error);
    return {};
  }
  std::error_code ignored;  // a link that leads nowhere yet is replaced itself
  const std::filesystem::path target = std::filesystem::canonical(path, ignored);
  const std::string place = target.empty() ? path : target.string();
  const std::string temporary = unique_name(place + ".part");
  int error = write_and_sync(temporary, pieces);
  if (error == 0 && rename(temporary.c_str(), place.c_str()) != 0) error = errno;
  if (error == 0) return {};
  if (error != EEXIST) unlink(temporary.c_str());
  return failed("write", path, error);
}

Result<std::vector<std::byte>> read_file(const std::string& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.number < 0) return failed("read", path, errno);
  struct stat info {};
  if (fstat(file.number, &info) != 0) return failed("read", path, errno);
  if (S_ISDIR(info.st_mode)) return failed("read", path, EISDIR);
  if (!S_ISREG(info.st_mode) && !S_ISFIFO(info.st_mode))
    return fail_at({}, {}, fmt::format("cannot read '{}': it is a device, which may have no end", path), "name a file");

  std::vector<std::byte> bytes(static_cast<std::size_t>(info.st_size));
  std::size_t have = 0;
  for (;;) {  // until the end: a pipe has no size, and a file may grow
    if (have == bytes.size()) bytes.resize(have + (have == 0 ? 4096 : S_ISREG(info.st_mode) ? 1 : have));
    const ssize_t got = ::read(file.number, bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed("read", path, errno);
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  bytes.resize(have);
  return bytes;
}

}  // namespace pipethreader::runtime
