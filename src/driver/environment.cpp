#include "driver/environment.h"

#include <cstdlib>
#include <optional>

namespace pipethreader::driver {

namespace fs = std::filesystem;

namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

std::string given(const char* name) { return variable(name).value_or(""); }

std::string cache_directory() {
  if (const auto own = variable("PIPETHREADER_CACHE")) return *own;
  if (const std::string base = given("XDG_CACHE_HOME"); !base.empty()) return base + "/pipethreader";
  if (const std::string home = given("HOME"); !home.empty()) return home + "/.cache/pipethreader";
  return {};
}

}  // namespace

std::vector<fs::path> Environment::device_folders() const {
  std::vector<fs::path> folders;
  for (const fs::path& folder : data) folders.push_back(folder / "devices");
  return folders;
}

Environment read_environment(const fs::path& program, std::vector<fs::path> data) {
  Environment result;
  result.cache = cache_directory();
  if (const std::string own = given("PIPETHREADER_DATA"); !own.empty()) result.data.emplace_back(own);
  for (fs::path& folder : data) result.data.push_back(std::move(folder));
  result.nvrtc.library = given("PIPETHREADER_NVRTC");
  for (const char* name : {"CUDA_PATH", "CUDA_HOME"}) {
    if (const std::string root = given(name); !root.empty()) {
      result.nvrtc.toolkit_roots.insert(result.nvrtc.toolkit_roots.begin(), root);
    }
  }
  if (const std::string active = given("VIRTUAL_ENV"); !active.empty()) result.nvrtc.environments.push_back(active);
  if (!program.empty()) {
    result.nvrtc.environments.push_back((program.parent_path() / ".venv").string());
    result.nvrtc.environments.push_back((program.parent_path().parent_path() / ".venv").string());
  }
  result.nvrtc.environments.emplace_back(".venv");
  return result;
}

fs::path running_program() {
  std::error_code error;
  fs::path program = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path() : program;
}

}  // namespace pipethreader::driver
