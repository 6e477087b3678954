// Where the run-time compiler lies: directories of toolkits and of Python environments, newest version first.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <optional>

#include <sys/stat.h>

#include "runtime/dynamic_library.h"
#include "runtime/nvrtc.h"

namespace pipethreader::runtime {
namespace {

namespace fs = std::filesystem;

constexpr int oldest_major = 12;  // the first that knows sm_90a
constexpr int newest_major = 13;  // the newest that was tried; later ones are taken when a directory offers them
constexpr std::string_view library_prefix = "libnvrtc.so";

struct Candidate {
  fs::path path;
  std::vector<int> version;
};

std::vector<int> numbers_in(std::string_view text) {
  std::vector<int> numbers;
  for (std::size_t i = 0; i < text.size();) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data() + i, text.data() + text.size(), value);
    if (error == std::errc{} && text[i] != '-') {
      numbers.push_back(value);
      i = static_cast<std::size_t>(end - text.data());
    } else {
      ++i;
    }
  }
  return numbers;
}

std::vector<fs::path> entries_of(const fs::path& directory) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    entries.push_back(it->path());
  std::sort(entries.begin(), entries.end());
  return entries;
}

// The newest libnvrtc.so.N of a directory; a bare libnvrtc.so counts by the file that it points to.
std::optional<fs::path> newest_library_in(const fs::path& directory) {
  std::optional<Candidate> best;
  for (const fs::path& entry : entries_of(directory)) {
    const std::string file = entry.filename().string();
    if (!file.starts_with(library_prefix)) continue;
    std::error_code error;
    const fs::path target = fs::canonical(entry, error);
    if (error || !fs::is_regular_file(target, error)) continue;
    std::vector<int> version = numbers_in(file.substr(library_prefix.size()));
    if (version.empty()) version = numbers_in(target.filename().string().substr(0, 64));
    if (!version.empty() && version.front() < oldest_major) continue;
    if (!best || version > best->version) best = Candidate{entry, std::move(version)};
  }
  if (!best) return std::nullopt;
  return best->path;
}

std::vector<fs::path> library_directories_of(const fs::path& toolkit) {
  return {toolkit / "lib64", toolkit / "lib", toolkit / "targets/x86_64-linux/lib", toolkit / "targets/sbsa-linux/lib"};
}

// "/usr/local/cuda", then "/usr/local/cuda-13.0", "/usr/local/cuda-12.8", ...
std::vector<fs::path> with_siblings(const fs::path& root) {
  std::vector<Candidate> versioned;
  const std::string prefix = root.filename().string() + "-";
  for (const fs::path& entry : entries_of(root.parent_path())) {
    const std::string file = entry.filename().string();
    if (file.starts_with(prefix)) versioned.push_back({entry, numbers_in(file.substr(prefix.size()))});
  }
  std::sort(versioned.begin(), versioned.end(),
            [](const Candidate& a, const Candidate& b) { return a.version > b.version; });
  std::vector<fs::path> roots = {root};
  for (Candidate& candidate : versioned) roots.push_back(std::move(candidate.path));
  return roots;
}

// The wheels nvidia-cuda-nvrtc (13 and later) and nvidia-cuda-nvrtc-cu12 unpack to these.
std::vector<fs::path> wheel_directories_of(const fs::path& site_packages) {
  std::vector<fs::path> directories;
  std::vector<Candidate> versioned;
  for (const fs::path& entry : entries_of(site_packages / "nvidia")) {
    const std::string file = entry.filename().string();
    if (file.size() > 2 && file.starts_with("cu") && file[2] >= '0' && file[2] <= '9')
      versioned.push_back({entry, numbers_in(file)});
  }
  std::sort(versioned.begin(), versioned.end(),
            [](const Candidate& a, const Candidate& b) { return a.version > b.version; });
  for (const Candidate& candidate : versioned) directories.push_back(candidate.path / "lib");
  directories.push_back(site_packages / "nvidia/cuda_nvrtc/lib");
  return directories;
}

std::vector<fs::path> site_packages_of_environment(const fs::path& environment) {
  std::vector<fs::path> found;
  for (const char* folder : {"lib", "lib64"}) {
    for (const fs::path& entry : entries_of(environment / folder)) {
      std::error_code error;
      if (entry.filename().string().starts_with("python3") && fs::is_directory(entry / "site-packages", error))
        found.push_back(entry / "site-packages");
    }
  }
  return found;
}

std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// Asks an interpreter for its directories; none when it cannot be run.
std::vector<fs::path> site_packages_of_python(const std::string& python) {
  const std::string command = shell_quoted(python) +
                              " -c 'import site,sysconfig;"
                              "print(chr(10).join(dict.fromkeys([sysconfig.get_paths()[\"purelib\"],"
                              "*site.getsitepackages(),site.getusersitepackages()])))' 2>/dev/null </dev/null";
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  if (!pipe) return {};
  std::string output;
  std::array<char, 512> buffer;
  for (std::size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe.get())) > 0;) output.append(buffer.data(), n);
  std::vector<fs::path> directories;
  for (std::size_t begin = 0; begin < output.size();) {
    const std::size_t end = std::min(output.find('\n', begin), output.size());
    if (end > begin) directories.emplace_back(output.substr(begin, end - begin));
    begin = end + 1;
  }
  return directories;
}

std::optional<NvrtcLocation> location_of(const fs::path& path) {
  std::error_code error;
  const fs::path target = fs::canonical(path, error);
  struct stat info {};
  if (error || stat(target.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return NvrtcLocation{path.string(), fmt::format("{} {} {}", target.filename().string(), info.st_size, info.st_mtime)};
}

Result<NvrtcLocation> explicit_location(const std::string& library) {
  std::error_code error;
  fs::path path = library;
  if (fs::is_directory(path, error)) {
    const auto found = newest_library_in(path);
    if (!found)
      return fail_at({}, {}, fmt::format("the directory '{}' holds no libnvrtc.so.{} or newer", library, oldest_major),
                     "name the library itself, or leave the option out to have it searched for");
    path = *found;
  }
  auto location = location_of(path);
  if (!location)
    return fail_at({}, {}, fmt::format("there is no NVRTC library '{}'", library),
                   "name an existing libnvrtc.so, or leave the option out to have it searched for");
  return *location;
}

}  // namespace

Result<NvrtcLocation> locate_nvrtc(const NvrtcSearch& search) {
  if (!search.library.empty()) return explicit_location(search.library);
  std::vector<std::string> looked;
  const auto try_directories = [&](const std::vector<fs::path>& directories) -> std::optional<NvrtcLocation> {
    for (const fs::path& directory : directories) {
      if (const auto library = newest_library_in(directory))
        if (auto location = location_of(*library)) return location;
      looked.push_back(directory.string());
    }
    return std::nullopt;
  };

  for (const std::string& root : search.toolkit_roots)
    for (const fs::path& toolkit : with_siblings(root))
      if (auto found = try_directories(library_directories_of(toolkit))) return *found;
  if (search.loader) {
    for (int major = newest_major; major >= oldest_major; --major) {
      const std::string soname = fmt::format("{}.{}", library_prefix, major);
      looked.push_back(fmt::format("{} of the loader", soname));
      if (auto library = DynamicLibrary::open(soname))
        if (auto location = location_of(library->file_of("nvrtcVersion"))) return *location;
    }
  }
  for (const std::string& environment : search.environments) {
    const auto sites = site_packages_of_environment(environment);
    if (sites.empty()) looked.push_back(environment);
    for (const fs::path& site : sites)
      if (auto found = try_directories(wheel_directories_of(site))) return *found;
  }
  if (!search.python.empty()) {
    const auto sites = site_packages_of_python(search.python);
    if (sites.empty()) looked.push_back(fmt::format("the packages of {} (it did not run)", search.python));
    for (const fs::path& site : sites)
      if (auto found = try_directories(wheel_directories_of(site))) return *found;
  }
  return fail_at({}, {}, "NVRTC, the CUDA run-time compiler, was not found",
                 fmt::format("install it with `python3 -m pip install nvidia-cuda-nvrtc` or a CUDA toolkit 12 or "
                             "newer, or name the library; looked in:\n    {}",
                             fmt::join(looked, "\n    ")));
}

}  // namespace pipethreader::runtime
