// The commands of the program, one function each: it declares its options on the parser and leaves what runs it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "driver/compiler.h"
#include "driver/environment.h"

namespace pipethreader::tool {

// What the program leaves with.
enum Exit : int {
  ok = 0,
  failed = 1,         // an error, reported on stderr
  misused = 2,        // the command line is wrong
  wrong_results = 3,  // the kernel ran and its numbers are wrong
  broken = 70,        // a fault of the compiler itself
};

// Thrown while options are turned into requests; ends the program with `misused`.
struct UsageError {
  std::string message;
};

using Run = std::function<int()>;
using Commands = std::map<const CLI::App*, Run>;

// Options that every command on a kernel takes.
struct KernelOptions {
  std::string file;
  std::string name;
  std::string device;  // empty: h100, or the card's where there is one and the command uses it
  std::vector<std::string> dims;
  std::vector<std::string> options;
  std::vector<std::string> forced;
  bool no_cache = false;
  bool assemble = true;  // off: what is ranked first, without a look at machine code

  void declare(CLI::App& app, bool compiles = true);
  // Loads kernel and device. `fallback` names the device when none is given.
  [[nodiscard]] Result<driver::CompileRequest> request(const driver::Environment& environment,
                                                       const std::string& fallback = "h100") const;
};

// "NAME=VALUE" with a number, true or false; `option` is named in the message.
[[nodiscard]] std::vector<kernel::Binding> bindings(const std::vector<std::string>& texts, const std::string& option);
[[nodiscard]] std::vector<kernel::Binding> sizes(const std::vector<std::string>& texts, const std::string& option);
[[nodiscard]] std::pair<std::string, std::string> split(const std::string& text, const std::string& option,
                                                        const std::string& form);
// The words of all texts: a line that `explain` prints is several choices.
[[nodiscard]] std::vector<std::string> separate(const std::vector<std::string>& texts);
// A name may be given once.
void no_repeats(const std::vector<std::string>& texts, const std::string& option);
// A dim is given once, by --dim or by --size.
void sizes_once(const std::vector<std::string>& dims, const std::vector<std::string>& sizes);
// For options that name a file or folder.
[[nodiscard]] CLI::Validator not_empty();

// Prints an error on stderr; returns `failed`.
int report(const Error& error);
void warn(const std::vector<std::string>& warnings);
// Shows lines of progress on stderr, one over the other, when that is a terminal; and cleans up after them.
[[nodiscard]] driver::Progress progress();
void end_progress();
// The device description that fits the first card; empty without one.
[[nodiscard]] std::string device_of_card();
[[nodiscard]] int terminal_columns();

void add_compile(CLI::App& app, const driver::Environment& environment, Commands& commands);
void add_run(CLI::App& app, const driver::Environment& environment, Commands& commands);
void add_explain(CLI::App& app, const driver::Environment& environment, Commands& commands);
void add_verify(CLI::App& app, const driver::Environment& environment, Commands& commands);
void add_tune(CLI::App& app, const driver::Environment& environment, Commands& commands);
void add_bench(CLI::App& app, const driver::Environment& environment, Commands& commands);
void add_devices(CLI::App& app, const driver::Environment& environment, Commands& commands);
void add_cache(CLI::App& app, const driver::Environment& environment, Commands& commands);
void add_dump(CLI::App& app, const driver::Environment& environment, Commands& commands);

}  // namespace pipethreader::tool
