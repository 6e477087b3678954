#include "runtime/kernel_cache.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

// XXH3's 128 bits name and check the entries: header-only, so that the program needs no library for it, and fast. It
// need not resist an attacker: an entry also holds its whole key, which is compared, and whoever can write to the cache
// could write kernels there anyway.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "runtime/atomic_file.h"

namespace pipethreader::runtime {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

enum class Kind : std::uint32_t { kernel = 1, blob = 2 };

// The file: this header, the key, the text (a kernel's report or the blob), the cubin, and the hash of all before it.
struct Header {
  std::array<char, 8> magic = {'P', 'T', 'C', 'A', 'C', 'H', 'E', '1'};
  Kind kind{};
  std::uint32_t reserved = 0;
  std::uint64_t key_bytes = 0;
  std::uint64_t text_bytes = 0;
  std::uint64_t cubin_bytes = 0;
};
static_assert(sizeof(Header) == 40 && std::is_trivially_copyable_v<Header>);

constexpr const char* entries_folder = "entries";
constexpr const char* temporary_folder = "tmp";

std::string_view suffix_of(Kind kind) { return kind == Kind::kernel ? ".kernel" : ".blob"; }

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

std::string text_of(std::span<const std::byte> bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

class Hash {
 public:
  Hash() { XXH3_128bits_reset(&state_); }
  void add(std::span<const std::byte> bytes) { XXH3_128bits_update(&state_, bytes.data(), bytes.size()); }
  [[nodiscard]] std::array<std::byte, 16> digest() const {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state_));
    std::array<std::byte, 16> bytes;
    std::memcpy(bytes.data(), canonical.digest, bytes.size());
    return bytes;
  }

 private:
  XXH3_state_t state_;
};

std::string id_of(std::string_view key) {
  Hash hash;
  hash.add(bytes_of(key));
  std::string id;
  for (const std::byte b : hash.digest()) id += fmt::format("{:02x}", static_cast<unsigned>(b));
  return id;
}

// Lengths stand before the parts, so that no two keys have one text.
std::string text_of(const KernelKey& key) {
  std::string text = fmt::format("kernel\ncompiler {} {}\narchitecture {} {}\noptions {}\n", key.compiler.size(),
                                 key.compiler, key.architecture.size(), key.architecture, key.options.size());
  for (const std::string& option : key.options) text += fmt::format("{} {}\n", option.size(), option);
  return text + fmt::format("source {}\n", key.source.size()) + key.source;
}

struct Entry {
  Kind kind{};
  std::string key;
  std::string text;
  std::vector<std::byte> cubin;
};

// Nothing unless every byte is as it was written.
std::optional<Entry> parse(std::span<const std::byte> file) {
  Header header;
  constexpr std::size_t hash_bytes = 16;
  if (file.size() < sizeof(header) + hash_bytes) return std::nullopt;
  std::memcpy(&header, file.data(), sizeof(header));
  if (header.magic != Header{}.magic) return std::nullopt;
  std::uint64_t rest = file.size() - sizeof(header) - hash_bytes;
  for (const std::uint64_t part : {header.key_bytes, header.text_bytes, header.cubin_bytes}) {
    if (part > rest) return std::nullopt;
    rest -= part;
  }
  if (rest != 0) return std::nullopt;
  Hash hash;
  hash.add(file.first(file.size() - hash_bytes));
  const auto digest = hash.digest();
  if (!std::equal(digest.begin(), digest.end(), file.end() - hash_bytes)) return std::nullopt;

  file = file.subspan(sizeof(header));
  const auto take = [&file](std::uint64_t count) {
    const auto part = file.first(count);
    file = file.subspan(count);
    return part;
  };
  Entry entry;
  entry.kind = header.kind;
  entry.key = text_of(take(header.key_bytes));
  entry.text = text_of(take(header.text_bytes));
  const auto cubin = take(header.cubin_bytes);
  entry.cubin.assign(cubin.begin(), cubin.end());
  return entry;
}

std::optional<Entry> find(const std::string& directory, Kind kind, const std::string& key) {
  if (directory.empty()) return std::nullopt;
  const fs::path path = fs::path(directory) / entries_folder / (id_of(key) + std::string(suffix_of(kind)));
  const auto file = read_file(path.string());
  if (!file) return std::nullopt;
  auto entry = parse(*file);
  if (!entry || entry->kind != kind || entry->key != key) return std::nullopt;
  utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // marks it as used, for trim(); a read-only cache keeps its times
  return entry;
}

// Removes what killed writers left. A temporary file of a live one is seconds old.
void sweep(const fs::path& folder) {
  constexpr auto old = std::chrono::hours(1);
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    const auto written = it->last_write_time(ignored);
    if (!ignored && fs::file_time_type::clock::now() - written > old) fs::remove(it->path(), ignored);
  }
}

Result<void> put(const std::string& directory, Kind kind, const std::string& key, const std::string& text,
                 std::span<const std::byte> cubin) {
  if (directory.empty()) return {};
  const fs::path root = directory;
  for (const char* folder : {entries_folder, temporary_folder}) {
    std::error_code error;
    fs::create_directories(root / folder, error);
    if (error)
      return fail_at(
          {}, {}, fmt::format("cannot make the cache's directory '{}': {}", (root / folder).string(), error.message()),
          "choose another cache directory; without one, kernels are compiled each time");
  }
  sweep(root / temporary_folder);

  Header header;
  header.kind = kind;
  header.key_bytes = key.size();
  header.text_bytes = text.size();
  header.cubin_bytes = cubin.size();
  const auto header_bytes = std::as_bytes(std::span<const Header, 1>(&header, 1));
  Hash hash;
  for (const auto part : {std::span<const std::byte>(header_bytes), bytes_of(key), bytes_of(text), cubin})
    hash.add(part);
  const auto digest = hash.digest();
  const std::string id = id_of(key);
  return write_file_atomically((root / entries_folder / (id + std::string(suffix_of(kind)))).string(),
                               (root / temporary_folder / unique_name(id)).string(),
                               {header_bytes, bytes_of(key), bytes_of(text), cubin, digest});
}

json to_json(const CompiledKernel& kernel) {
  const AssemblerReport& r = kernel.report;
  json functions = json::array();
  for (const FunctionReport& f : r.functions) {
    functions.push_back({{"name", f.name},
                         {"registers", f.registers},
                         {"spill_store_bytes", f.spill_store_bytes},
                         {"spill_load_bytes", f.spill_load_bytes},
                         {"stack_bytes", f.stack_bytes},
                         {"static_shared_bytes", f.static_shared_bytes}});
  }
  return {{"seconds", kernel.seconds},
          {"log", kernel.log},
          {"registers", r.registers},
          {"spill_store_bytes", r.spill_store_bytes},
          {"spill_load_bytes", r.spill_load_bytes},
          {"stack_bytes", r.stack_bytes},
          {"serialised", r.serialised},
          {"injected_waits", r.injected_waits},
          {"ignored_register_budget", r.ignored_register_budget},
          {"messages", r.messages},
          {"functions", std::move(functions)}};
}

CompiledKernel from_json(const json& j) {
  CompiledKernel kernel;
  AssemblerReport& r = kernel.report;
  j.at("seconds").get_to(kernel.seconds);
  j.at("log").get_to(kernel.log);
  j.at("registers").get_to(r.registers);
  j.at("spill_store_bytes").get_to(r.spill_store_bytes);
  j.at("spill_load_bytes").get_to(r.spill_load_bytes);
  j.at("stack_bytes").get_to(r.stack_bytes);
  j.at("serialised").get_to(r.serialised);
  j.at("injected_waits").get_to(r.injected_waits);
  j.at("ignored_register_budget").get_to(r.ignored_register_budget);
  j.at("messages").get_to(r.messages);
  for (const json& function : j.at("functions")) {
    FunctionReport& f = r.functions.emplace_back();
    function.at("name").get_to(f.name);
    function.at("registers").get_to(f.registers);
    function.at("spill_store_bytes").get_to(f.spill_store_bytes);
    function.at("spill_load_bytes").get_to(f.spill_load_bytes);
    function.at("stack_bytes").get_to(f.stack_bytes);
    function.at("static_shared_bytes").get_to(f.static_shared_bytes);
  }
  return kernel;
}

// The report may be of another version of this program: then the entry counts as missing.
std::optional<CompiledKernel> kernel_of(Entry&& entry) {
  try {
    CompiledKernel kernel = from_json(json::parse(entry.text));
    kernel.cubin = std::move(entry.cubin);
    return kernel;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

struct OwnFile {
  fs::path path;
  bool is_entry = false;
};

// Files that the cache made, by the look of their names; others in its directory are not touched.
std::vector<OwnFile> own_files(const std::string& directory) {
  constexpr std::size_t id_digits = 32;
  std::vector<OwnFile> files;
  for (const char* folder : {entries_folder, temporary_folder}) {
    std::error_code error;
    for (fs::directory_iterator it(fs::path(directory) / folder, error), end; !error && it != end;
         it.increment(error)) {
      const std::string name = it->path().filename().string();
      if (name.find_first_not_of("0123456789abcdef") != id_digits) continue;
      const std::string_view rest = std::string_view(name).substr(id_digits);
      const bool is_entry = rest == suffix_of(Kind::kernel) || rest == suffix_of(Kind::blob);
      if (is_entry == (folder == entries_folder) && (is_entry || rest.starts_with('-')))
        files.push_back({it->path(), is_entry});
    }
  }
  return files;
}

std::string label_of(const Entry& entry) {
  if (entry.kind == Kind::blob) return entry.key.substr(0, std::min<std::size_t>(entry.key.find('\n'), 80));
  std::vector<std::string> names;
  const json report = json::parse(entry.text, nullptr, false);
  if (report.is_object() && report.contains("functions") && report["functions"].is_array())
    for (const json& f : report["functions"])
      if (f.is_object()) names.push_back(f.value("name", std::string("?")));
  return fmt::format("{}", fmt::join(names, ", "));
}

Result<std::size_t> remove_file(const fs::path& path) {
  std::error_code error;
  const bool removed = fs::remove(path, error);
  if (error) return fail("cannot remove '{}' from the cache: {}", path.string(), error.message());
  return removed ? 1 : 0;
}

}  // namespace

KernelKey key_of(const CompileRequest& request, const std::string& compiler) {
  return {request.source, request.architecture, request.options, compiler};
}

std::optional<CompiledKernel> KernelCache::lookup(const KernelKey& key) const {
  auto entry = find(directory_, Kind::kernel, text_of(key));
  return entry ? kernel_of(std::move(*entry)) : std::nullopt;
}

Result<void> KernelCache::store(const KernelKey& key, const CompiledKernel& kernel) const {
  // A compiler's log may hold any bytes; what is not UTF-8 is replaced.
  const std::string report = to_json(kernel).dump(1, ' ', false, json::error_handler_t::replace);
  return trimmed(put(directory_, Kind::kernel, text_of(key), report, kernel.cubin));
}

std::optional<std::string> KernelCache::lookup_blob(const std::string& key) const {
  auto entry = find(directory_, Kind::blob, key);
  if (!entry) return std::nullopt;
  return std::move(entry->text);
}

Result<void> KernelCache::store_blob(const std::string& key, const std::string& blob) const {
  return trimmed(put(directory_, Kind::blob, key, blob, {}));
}

// What cannot be removed now is tried again by the next store.
Result<void> KernelCache::trimmed(Result<void> stored) const {
  if (stored) (void)trim(limit_bytes_);
  return stored;
}

Result<std::vector<CacheEntryInfo>> KernelCache::list() const {
  std::vector<CacheEntryInfo> entries;
  for (const OwnFile& own : own_files(directory_)) {
    if (!own.is_entry) continue;
    const auto file = read_file(own.path.string());
    if (!file) continue;  // removed meanwhile, or unreadable: then it is no entry for us either
    const auto entry = parse(*file);
    if (!entry) continue;
    struct stat status {};
    if (stat(own.path.c_str(), &status) != 0) continue;
    entries.push_back({own.path.stem().string(), entry->kind == Kind::kernel, label_of(*entry), file->size(),
                       static_cast<std::int64_t>(status.st_mtime)});
  }
  std::sort(entries.begin(), entries.end(), [](const CacheEntryInfo& a, const CacheEntryInfo& b) {
    return a.modified != b.modified ? a.modified > b.modified : a.id < b.id;
  });
  return entries;
}

Result<std::uint64_t> KernelCache::size() const {
  std::uint64_t total = 0;
  for (const OwnFile& own : own_files(directory_)) {
    std::error_code error;
    const auto bytes = fs::file_size(own.path, error);
    if (!error) total += bytes;
  }
  return total;
}

Result<std::size_t> KernelCache::clear() const {
  std::size_t removed = 0;
  for (const OwnFile& own : own_files(directory_)) {
    auto one = remove_file(own.path);
    if (!one) return one;
    removed += *one;
  }
  return removed;
}

Result<std::size_t> KernelCache::trim(std::uint64_t bytes) const {
  struct Aged {
    fs::file_time_type used;
    std::uint64_t bytes;
    fs::path path;
  };
  std::vector<Aged> files;
  for (const OwnFile& own : own_files(directory_)) {
    std::error_code error;
    const auto used = fs::last_write_time(own.path, error);
    const auto count = error ? 0 : fs::file_size(own.path, error);
    if (!error && own.is_entry) files.push_back({used, count, own.path});
  }
  std::sort(files.begin(), files.end(), [](const Aged& a, const Aged& b) { return a.used > b.used; });
  std::uint64_t kept = 0;
  std::size_t removed = 0;
  for (const Aged& file : files) {
    if (kept + file.bytes <= bytes) {
      kept += file.bytes;
      continue;
    }
    auto one = remove_file(file.path);
    if (!one) return one;
    removed += *one;
  }
  return removed;
}

namespace {

CachedCompile stored(const KernelCache& cache, const KernelKey& key, CompiledKernel kernel) {
  CachedCompile result;
  if (auto ok = cache.store(key, kernel); !ok)
    result.warning = "the kernel was compiled but not cached: " + ok.error().diagnostics.front().message;
  result.kernel = std::move(kernel);
  return result;
}

}  // namespace

Result<CachedCompile> compile_cached(const Nvrtc& nvrtc, const KernelCache& cache, const CompileRequest& request) {
  return std::move(compile_all_cached(nvrtc, cache, {request}, 1).front());
}

std::vector<Result<CachedCompile>> compile_all_cached(const Nvrtc& nvrtc, const KernelCache& cache,
                                                      const std::vector<CompileRequest>& requests, unsigned threads,
                                                      const Nvrtc::Progress& finished) {
  const std::string& compiler = nvrtc.location().identity;
  std::vector<Result<CachedCompile>> results(requests.size(), fail("not compiled: stopped before its turn"));
  std::vector<CompileRequest> missing;
  std::vector<std::size_t> place;  // of each missing one among the requests
  std::size_t done = 0;
  bool stopped = false;
  for (std::size_t i = 0; i < requests.size() && !stopped; ++i) {
    if (auto kernel = cache.lookup(key_of(requests[i], compiler))) {
      results[i] = CachedCompile{std::move(*kernel), true, {}};
      ++done;
      stopped = finished && !finished(done, requests.size(), i);
    } else {
      missing.push_back(requests[i]);
      place.push_back(i);
    }
  }
  if (stopped) return results;

  const std::size_t cached = done;
  auto compiled = nvrtc.compile_all(missing, threads, [&](std::size_t count, std::size_t, std::size_t index) {
    return !finished || finished(cached + count, requests.size(), place[index]);
  });
  for (std::size_t i = 0; i < compiled.size(); ++i) {
    if (compiled[i]) {
      results[place[i]] = stored(cache, key_of(missing[i], compiler), std::move(*compiled[i]));
    } else {
      results[place[i]] = tl::unexpected(compiled[i].error());
    }
  }
  return results;
}

}  // namespace pipethreader::runtime
