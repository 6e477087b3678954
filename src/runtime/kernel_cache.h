// A content-addressed cache on disk: compiled kernels, and small blobs such as search decisions. An entry is one file,
// written beside its place, synced and renamed; it holds its whole key and a checksum, so a collision, a damaged or
// half-written entry, or one of another version counts as missing and is replaced. Safe with several writers at once
// and with being killed at any moment. The cache never makes a compilation fail: what goes wrong is a warning.
//
// A store that makes the cache larger than its limit removes the entries that were not used for longest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "runtime/nvrtc.h"

namespace pipethreader::runtime {

// Everything a cubin depends on.
struct KernelKey {
  std::string source;
  std::string architecture;
  std::vector<std::string> options;
  std::string compiler;  // NvrtcLocation::identity
};

[[nodiscard]] KernelKey key_of(const CompileRequest& request, const std::string& compiler);

struct CacheEntryInfo {
  std::string id;          // the hash, 32 hexadecimal digits; the file's name
  bool is_kernel = false;  // or a blob
  std::string label;       // a kernel's "__global__" name or a blob's key, shortened
  std::uint64_t bytes = 0;
  std::int64_t modified = 0;  // seconds since the epoch
};

// A compiled kernel takes 50 to 200 KB, so this holds thousands.
inline constexpr std::uint64_t default_cache_limit = std::uint64_t{1} << 30;

class KernelCache {
 public:
  // The directory is made on the first store. An empty name: a cache that holds nothing and stores nothing.
  explicit KernelCache(std::string directory, std::uint64_t limit_bytes = default_cache_limit)
      : directory_(std::move(directory)), limit_bytes_(limit_bytes) {}

  [[nodiscard]] const std::string& directory() const { return directory_; }

  [[nodiscard]] std::optional<CompiledKernel> lookup(const KernelKey& key) const;
  // Result: an error is a reason to warn, never to stop.
  Result<void> store(const KernelKey& key, const CompiledKernel& kernel) const;

  // A blob is any text under any key; writing again replaces it.
  [[nodiscard]] std::optional<std::string> lookup_blob(const std::string& key) const;
  Result<void> store_blob(const std::string& key, const std::string& blob) const;

  [[nodiscard]] Result<std::vector<CacheEntryInfo>> list() const;  // newest first; damaged entries are left out
  [[nodiscard]] Result<std::uint64_t> size() const;                // bytes of all its files, leftovers included
  [[nodiscard]] Result<std::size_t> clear() const;                 // files removed; touches only files of its own
  // Removes the least recently used beyond that size.
  [[nodiscard]] Result<std::size_t> trim(std::uint64_t bytes) const;

 private:
  // What was stored has its place; the rest makes room.
  Result<void> trimmed(Result<void> stored) const;

  std::string directory_;
  std::uint64_t limit_bytes_;
};

// Looks up, else compiles and stores. The warning is what went wrong with the cache; empty when nothing did.
struct CachedCompile {
  CompiledKernel kernel;
  bool from_cache = false;
  std::string warning;
};
[[nodiscard]] Result<CachedCompile> compile_cached(const Nvrtc& nvrtc, const KernelCache& cache,
                                                   const CompileRequest& request);
// The same for many, the missing ones in parallel; see Nvrtc::compile_all. Progress counts the cached ones too.
[[nodiscard]] std::vector<Result<CachedCompile>> compile_all_cached(const Nvrtc& nvrtc, const KernelCache& cache,
                                                                    const std::vector<CompileRequest>& requests,
                                                                    unsigned threads = 0,
                                                                    const Nvrtc::Progress& finished = {});

}  // namespace pipethreader::runtime
