#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>
#include <set>
#include <sstream>

#include <sys/ioctl.h>
#include <unistd.h>

#include "commands.h"
#include "driver/run.h"

namespace pipethreader::tool {

void KernelOptions::declare(CLI::App& app, bool compiles) {
  app.add_option("FILE", file, "a kernel file (.stask)")->required();
  app.add_option("--kernel", name, "which kernel of the file; the first if not given")->type_name("NAME");
  app.add_option("--device", device, "the device to compile for: a name that `devices` lists, or a .toml file")
      ->type_name("NAME");
  app.add_option("--dim", dims, "fix a dim at a size; dims left out stay dynamic")
      ->allow_extra_args(false)
      ->type_name("NAME=SIZE");
  app.add_option("--option", options, "set an option of the kernel")->allow_extra_args(false)->type_name("NAME=VALUE");
  app.add_option("--force", forced,
                 "fix choices of the schedule, such as row=128 or 'row=128 overlap=serial'; docs/command-line.md lists "
                 "all")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  if (!compiles) return;
  app.add_flag("--no-cache", no_cache, "neither read nor write the cache of compiled kernels");
}

std::pair<std::string, std::string> split(const std::string& text, const std::string& option, const std::string& form) {
  const std::size_t sign = text.find('=');
  if (sign == 0 || sign == std::string::npos || sign + 1 == text.size()) {
    throw UsageError{fmt::format("{} takes {}, found '{}'", option, form, text)};
  }
  return {text.substr(0, sign), text.substr(sign + 1)};
}

std::vector<std::string> separate(const std::vector<std::string>& texts) {
  std::vector<std::string> words;
  for (const std::string& text : texts) {
    std::istringstream in(text);
    const std::size_t before = words.size();
    for (std::string word; in >> word;) words.push_back(std::move(word));
    if (words.size() == before) words.push_back(text);  // is refused where it is read
  }
  return words;
}

void no_repeats(const std::vector<std::string>& texts, const std::string& option) {
  std::set<std::string> names;
  for (const std::string& text : texts) {
    const std::string name = text.substr(0, text.find('='));
    if (!names.insert(name).second) throw UsageError{fmt::format("{} gives '{}' twice", option, name)};
  }
}

void sizes_once(const std::vector<std::string>& dims, const std::vector<std::string>& sizes) {
  no_repeats(sizes, "--size");
  const auto name_of = [](const std::string& text) { return text.substr(0, text.find('=')); };
  for (const std::string& size : sizes) {
    if (std::ranges::any_of(dims, [&](const std::string& dim) { return name_of(dim) == name_of(size); }))
      throw UsageError{fmt::format("'{}' is given by --dim and by --size", name_of(size))};
  }
}

CLI::Validator not_empty() {
  return CLI::Validator([](const std::string& text) { return text.empty() ? "takes a name, found ''" : ""; }, "");
}

namespace {

std::optional<double> number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::vector<kernel::Binding> bindings(const std::vector<std::string>& texts, const std::string& option) {
  std::vector<kernel::Binding> result;
  for (const std::string& text : texts) {
    const auto [name, value] = split(text, option, "NAME=VALUE");
    const auto given = value == "true" ? 1.0 : value == "false" ? 0.0 : number(value);
    if (!given) throw UsageError{fmt::format("{} takes a number, true or false, found '{}'", option, text)};
    result.push_back({name, *given});
  }
  return result;
}

std::vector<kernel::Binding> sizes(const std::vector<std::string>& texts, const std::string& option) {
  std::vector<kernel::Binding> result;
  for (const std::string& text : texts) {
    const auto [name, size] = split(text, option, "NAME=SIZE");
    const auto value = number(size);
    if (!value || !(*value >= 0) || *value != std::floor(*value) || *value > 2147483647) {
      throw UsageError{fmt::format("{} takes a whole number from 0 to 2147483647, found '{}'", option, text)};
    }
    result.push_back({name, *value});
  }
  return result;
}

Result<driver::CompileRequest> KernelOptions::request(const driver::Environment& environment,
                                                      const std::string& fallback) const {
  driver::CompileRequest request;
  request.dims = sizes(dims, "--dim");
  request.options = bindings(options, "--option");
  const std::vector<std::string> choices = separate(forced);
  no_repeats(choices, "--force");
  for (const std::string& text : choices) request.forced.push_back(split(text, "--force", "KEY=VALUE"));
  request.use_cache = !no_cache;
  request.assemble = assemble;
  driver::Choices probe;
  if (auto known = driver::force(probe, request.forced); !known)
    throw UsageError{"--force: " + known.error().diagnostics[0].message};
  auto kernel = driver::load_kernel(file, name);
  if (!kernel) return tl::unexpected(kernel.error());
  request.kernel = std::move(*kernel);
  auto found = device::find_device(device.empty() ? fallback : device, environment.device_folders());
  if (!found) return tl::unexpected(found.error());
  request.device = std::move(*found);
  return request;
}

int report(const Error& error) {
  end_progress();
  fmt::print(stderr, "{}\n", error.format());
  return Exit::failed;
}

void warn(const std::vector<std::string>& warnings) {
  end_progress();
  for (const std::string& text : warnings) fmt::print(stderr, "warning: {}\n", text);
}

driver::Progress progress() {
  if (isatty(STDERR_FILENO) == 0) return {};
  return [](const std::string& text) {
    fmt::print(stderr, "\r\033[K{}", text.substr(0, static_cast<std::size_t>(terminal_columns() - 1)));
    std::fflush(stderr);
  };
}

void end_progress() {
  if (isatty(STDERR_FILENO) == 0) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
}

std::string device_of_card() {
  const auto gpu = driver::open_gpu();
  if (!gpu) return {};
  return gpu->properties().name.find("H200") != std::string::npos ? "h200" : "h100";
}

int terminal_columns() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 60) return size.ws_col;
  return 120;
}

}  // namespace pipethreader::tool
