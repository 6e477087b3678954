#include "suites.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <optional>
#include <string_view>

#include <toml++/toml.h>

#include "runtime/atomic_file.h"

namespace pipethreader::tool {

namespace {

constexpr const char* suites_file = "bench/suites.toml";
// `peer` is what bench/compare.py times beside the row.
constexpr std::array<std::string_view, 7> known_keys = {"file", "kernel", "options", "peer", "replay", "dims", "sizes"};
constexpr std::int64_t most_launches = 10000;

class Reader {
 public:
  explicit Reader(std::string file) : file_(std::move(file)) {}

  Suites read(const toml::table& root) {
    Suites suites;
    for (const auto& [name, node] : root) {
      if (!node.is_array_of_tables()) {
        wrong(node, fmt::format("'{0}' is no list of rows: expected tables [[{0}]]", name.str()));
        continue;
      }
      for (const toml::node& row : *node.as_array()) read_row(*row.as_table(), suites[std::string(name.str())]);
    }
    return suites;
  }

  // In the order of the file.
  [[nodiscard]] Error mistakes() {
    std::stable_sort(error_.diagnostics.begin(), error_.diagnostics.end(),
                     [](const Diagnostic& a, const Diagnostic& b) { return a.span.line < b.span.line; });
    return error_;
  }

 private:
  void wrong(const toml::node& node, std::string message) {
    const toml::source_position at = node.source().begin;
    error_.diagnostics.push_back({file_, {at.line, at.column}, std::move(message), {}});
  }

  void read_row(const toml::table& table, std::vector<SuiteRow>& rows) {
    for (const auto& [key, node] : table) {
      if (std::find(known_keys.begin(), known_keys.end(), key.str()) == known_keys.end())
        wrong(node, fmt::format("unknown key '{}'; known are {}", key.str(), fmt::join(known_keys, ", ")));
    }
    SuiteRow row;
    row.file = text(table, "file", true);
    row.kernel = text(table, "kernel", false);
    row.options = options(table);
    if (const toml::node* node = table.get("replay")) {
      if (const auto count = whole(*node, 1, most_launches))
        row.replay = static_cast<int>(*count);
      else
        wrong(*node, fmt::format("'replay' must be a whole number from 1 to {}", most_launches));
    }
    const std::vector<std::string> dims = names(table);
    const toml::node* sizes = table.get("sizes");
    if (sizes == nullptr || !sizes->is_array() || sizes->as_array()->empty())
      return wrong(sizes != nullptr ? *sizes : table, "a row needs 'sizes', a list with one list of sizes or more");
    for (const toml::node& line : *sizes->as_array()) {
      row.dims = bound(line, dims);
      rows.push_back(row);
    }
  }

  // "M=4096" for each dim and its size.
  std::vector<std::string> bound(const toml::node& line, const std::vector<std::string>& dims) {
    std::vector<std::string> result;
    if (!line.is_array() || line.as_array()->size() != dims.size()) {
      wrong(line, fmt::format("expected a list of {} sizes, one for each of 'dims'", dims.size()));
      return result;
    }
    for (const toml::node& node : *line.as_array()) {
      const auto size = whole(node, 0, std::numeric_limits<std::int32_t>::max());
      if (!size) wrong(node, "a size must be a whole number from 0 to 2147483647");
      result.push_back(fmt::format("{}={}", dims[result.size()], size.value_or(0)));
    }
    return result;
  }

  std::string text(const toml::table& table, std::string_view key, bool needed) {
    const toml::node* node = table.get(key);
    if (node == nullptr && !needed) return {};
    const auto value = node != nullptr ? node->value<std::string>() : std::nullopt;
    if (!value || value->empty()) {
      wrong(node != nullptr ? *node : table, fmt::format("a row needs '{}', a string that is not empty", key));
      return {};
    }
    return *value;
  }

  std::vector<std::string> names(const toml::table& table) {
    const toml::node* node = table.get("dims");
    std::vector<std::string> result;
    if (node != nullptr && node->is_array()) {
      for (const toml::node& name : *node->as_array())
        if (name.is_string()) result.push_back(*name.value<std::string>());
      if (result.size() == node->as_array()->size()) return result;
    }
    wrong(node != nullptr ? *node : table, "a row needs 'dims', a list of names");
    return {};
  }

  std::vector<std::string> options(const toml::table& table) {
    const toml::node* node = table.get("options");
    std::vector<std::string> result;
    if (node == nullptr) return result;
    if (!node->is_table()) wrong(*node, "'options' must be a table, such as { causal = true }");
    if (!node->is_table()) return result;
    for (const auto& [key, value] : *node->as_table()) {
      if (const auto flag = value.value_exact<bool>())
        result.push_back(fmt::format("{}={}", key.str(), *flag));
      else if (value.is_number())
        result.push_back(fmt::format("{}={}", key.str(), *value.value<double>()));
      else
        wrong(value, fmt::format("option '{}' must be a number, true or false", key.str()));
    }
    return result;
  }

  static std::optional<std::int64_t> whole(const toml::node& node, std::int64_t low, std::int64_t high) {
    const auto value = node.value_exact<std::int64_t>();
    return value && *value >= low && *value <= high ? value : std::nullopt;
  }

  std::string file_;
  Error error_;
};

}  // namespace

Result<Suites> parse_suites(const std::string& text, const std::string& file) {
  try {
    Reader reader(file);
    Suites suites = reader.read(toml::parse(text, file));
    if (Error mistakes = reader.mistakes(); !mistakes.diagnostics.empty()) return tl::unexpected(std::move(mistakes));
    return suites;
  } catch (const toml::parse_error& error) {
    const toml::source_position at = error.source().begin;
    return fail_at(file, {at.line, at.column}, std::string(error.description()), "suites are a TOML file");
  }
}

std::string data_file(const driver::Environment& environment, const std::string& name) {
  std::error_code status;
  for (const std::filesystem::path& folder : environment.data) {
    if (std::filesystem::is_regular_file(folder / name, status)) return (folder / name).lexically_normal().string();
  }
  return {};
}

Result<Suites> load_suites(const driver::Environment& environment) {
  const std::string path = data_file(environment, suites_file);
  if (path.empty()) {
    std::vector<std::string> folders;
    for (const std::filesystem::path& folder : environment.data) folders.push_back(folder.lexically_normal().string());
    return fail_at({}, {}, fmt::format("{} was not found", suites_file),
                   fmt::format("looked in {}", fmt::join(folders, ", ")));
  }
  const auto bytes = runtime::read_file(path);
  if (!bytes) return tl::unexpected(bytes.error());
  return parse_suites(std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size()), path);
}

}  // namespace pipethreader::tool
