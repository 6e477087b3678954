// Everything the compiler takes from its surroundings, read once and passed on: nothing else reads the environment.
//
//   PIPETHREADER_CACHE   directory of the cache of compiled kernels; empty: no cache.
//                        Otherwise $XDG_CACHE_HOME/pipethreader, or $HOME/.cache/pipethreader.
//   PIPETHREADER_DATA    a folder like the project's, with devices/, kernels/ or bench/ in it, looked at first
//   PIPETHREADER_NVRTC   the run-time compiler's library, or its directory
//   CUDA_HOME, CUDA_PATH roots of CUDA toolkits, looked at first
//   VIRTUAL_ENV          a Python environment that may hold the run-time compiler
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/nvrtc.h"

namespace pipethreader::driver {

struct Environment {
  std::string cache;                        // directory; empty: nothing is cached
  std::vector<std::filesystem::path> data;  // like the project's; the first that has a file wins
  runtime::NvrtcSearch nvrtc;

  [[nodiscard]] std::vector<std::filesystem::path> device_folders() const;
};

// `data`: where the program's own data may be. `program`: the running program, whose neighbour .venv is searched too.
[[nodiscard]] Environment read_environment(const std::filesystem::path& program,
                                           std::vector<std::filesystem::path> data);

// The running program's path; empty where the system does not tell.
[[nodiscard]] std::filesystem::path running_program();

}  // namespace pipethreader::driver
