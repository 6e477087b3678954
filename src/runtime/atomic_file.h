// Whole files, read and written at once. A written file appears under its name complete or not at all: it is written
// under a temporary name on the same file system, synced, and renamed. What fails leaves no temporary behind.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "base/diagnostic.h"

namespace pipethreader::runtime {

// A name that no other thread or process uses: "<stem>-<pid>-<random>".
[[nodiscard]] std::string unique_name(const std::string& stem);

// The pieces in order. `temporary` must not exist yet and be on the file system of `path`.
[[nodiscard]] Result<void> write_file_atomically(const std::string& path, const std::string& temporary,
                                                 std::initializer_list<std::span<const std::byte>> pieces);

// The same under a name that a user gave: what a link leads to is replaced, and what is no plain file (a device, a
// pipe) is written to as it is. Errors name `path`.
[[nodiscard]] Result<void> write_file(const std::string& path,
                                      std::initializer_list<std::span<const std::byte>> pieces);

// The whole of a file, or what comes through a pipe.
[[nodiscard]] Result<std::vector<std::byte>> read_file(const std::string& path);

}  // namespace pipethreader::runtime
