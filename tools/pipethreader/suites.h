// bench/suites.toml: named lists of kernels and sizes to time. bench/compare.py reads the same file.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "driver/environment.h"

namespace pipethreader::tool {

// One kernel at one size, in the words of the command line.
struct SuiteRow {
  std::string file;                  // of kernels/
  std::string kernel;                // empty: the first of the file
  std::vector<std::string> dims;     // "M=4096"
  std::vector<std::string> options;  // "causal=true"
  int replay = 1;
};

using Suites = std::map<std::string, std::vector<SuiteRow>>;

// Every mistake in the file is found, with its place. `file` is how messages name it.
[[nodiscard]] Result<Suites> parse_suites(const std::string& text, const std::string& file);

// From the first data folder that has the file.
[[nodiscard]] Result<Suites> load_suites(const driver::Environment& environment);

// The path of `name` in the first data folder that has it; empty where none has.
[[nodiscard]] std::string data_file(const driver::Environment& environment, const std::string& name);

}  // namespace pipethreader::tool
