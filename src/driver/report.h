// What a compilation tells its user: as text, and the same as JSON for programs.
#pragma once

#include <string>

#include "driver/compiler.h"

namespace pipethreader::driver {

[[nodiscard]] std::string report_text(const Compiled& compiled);
[[nodiscard]] std::string report_json(const Compiled& compiled);

// Writes <folder>/<kernel>.cu, .cubin (when there is one; a second variant as <kernel>_plain), .program, .report.json;
// each file complete or not at all. Makes the folder. Returns the names written.
[[nodiscard]] Result<std::vector<std::string>> write_outputs(const Compiled& compiled, const std::string& folder);

// A file, complete or not at all, in a folder that is there.
[[nodiscard]] Result<void> write_text(const std::string& path, std::string_view text);

}  // namespace pipethreader::driver
