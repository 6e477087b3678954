#include "device/table_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

namespace pipethreader::device {
namespace {

SourceSpan span_of(const toml::source_region& place) { return {place.begin.line, place.begin.column}; }

std::string_view kind_of(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a number";
    case toml::node_type::boolean:
      return "a boolean";
    default:
      return "a date or time";
  }
}

std::string shown(const toml::node& node) {
  if (node.is_table() || node.is_array()) return std::string(kind_of(node));
  std::ostringstream text;
  node.visit([&](const auto& value) {
    if constexpr (!toml::is_table<decltype(value)> && !toml::is_array<decltype(value)>) text << value;
  });
  return fmt::format("{} ({})", text.str(), kind_of(node));
}

}  // namespace

void Findings::add(const toml::source_region& place, std::string message, std::string hint) {
  diagnostics.push_back({file, span_of(place), std::move(message), std::move(hint)});
}

const toml::node* TableReader::find(std::string_view key, std::string_view expected) {
  read_.emplace_back(key);
  const toml::node* node = table_.get(key);
  if (node == nullptr) {
    findings_.add(
        table_.source(), fmt::format("{} has no '{}': expected {}", path_.empty() ? "the file" : path_, key, expected),
        "a device description leaves nothing out; a fact of the device that does not exist is written as 0 or []");
  }
  return node;
}

void TableReader::wrong(std::string_view key, const toml::node& node, std::string_view expected) {
  findings_.add(node.source(), fmt::format("'{}'{} is {}: expected {}", key, path_.empty() ? "" : " in " + path_,
                                           shown(node), expected));
}

void TableReader::complain(std::string_view key, std::string message, std::string hint) {
  const toml::node* node = table_.get(key);
  findings_.add(node != nullptr ? node->source() : table_.source(), std::move(message), std::move(hint));
}

void TableReader::number_within(std::string_view key, double& out, Least least, double most,
                                std::string_view expected) {
  const toml::node* node = find(key, expected);
  if (node == nullptr) return;
  const auto value = node->is_number() ? node->value<double>() : std::nullopt;
  const double smallest = least == Least::one ? 1 : 0;
  if (!value || !std::isfinite(*value) || *value < smallest || *value > most ||
      (least == Least::above_zero && *value == 0)) {
    wrong(key, *node, expected);
    return;
  }
  out = *value;
}

void TableReader::number(std::string_view key, double& out, Least least) {
  const std::string_view expected = least == Least::zero  ? "a number, 0 or more"
                                    : least == Least::one ? "a number, 1 or more"
                                                          : "a number above 0";
  number_within(key, out, least, std::numeric_limits<double>::infinity(), expected);
}

void TableReader::share(std::string_view key, double& out, Least least) {
  number_within(key, out, least, 1, least == Least::zero ? "a number from 0 to 1" : "a number above 0, 1 at most");
}

void TableReader::integer(std::string_view key, std::int64_t& out, std::int64_t least, std::int64_t most) {
  const std::string expected =
      most == any ? fmt::format("an integer, {} or more", least) : fmt::format("an integer from {} to {}", least, most);
  const toml::node* node = find(key, expected);
  if (node == nullptr) return;
  const auto value = node->is_integer() ? node->value<std::int64_t>() : std::nullopt;
  if (!value || *value < least || *value > most) {
    wrong(key, *node, expected);
    return;
  }
  out = *value;
}

void TableReader::integer(std::string_view key, int& out, int least) {
  std::int64_t wide = least;
  integer(key, wide, static_cast<std::int64_t>(least));
  if (wide > std::numeric_limits<int>::max()) {
    wrong(key, *table_.get(key), fmt::format("an integer, {} at most", std::numeric_limits<int>::max()));
    return;
  }
  out = static_cast<int>(wide);
}

void TableReader::boolean(std::string_view key, bool& out) {
  const toml::node* node = find(key, "true or false");
  if (node == nullptr) return;
  if (!node->is_boolean()) {
    wrong(key, *node, "true or false");
    return;
  }
  out = *node->value<bool>();
}

void TableReader::text(std::string_view key, std::string& out) {
  const toml::node* node = find(key, "a string");
  if (node == nullptr) return;
  if (!node->is_string() || node->value<std::string>()->empty()) {
    wrong(key, *node, "a string that is not empty");
    return;
  }
  out = *node->value<std::string>();
}

void TableReader::integers(std::string_view key, std::vector<int>& out, int least) {
  const std::string expected = fmt::format("an array of integers, each {} or more", least);
  const toml::node* node = find(key, expected);
  if (node == nullptr) return;
  if (!node->is_array()) {
    wrong(key, *node, expected);
    return;
  }
  for (const toml::node& element : *node->as_array()) {
    const auto value = element.is_integer() ? element.value<std::int64_t>() : std::nullopt;
    if (!value || *value < least || *value > std::numeric_limits<int>::max()) {
      wrong(key, element, expected);
      return;
    }
    out.push_back(static_cast<int>(*value));
  }
}

bool TableReader::choice(std::string_view key, std::size_t& out, const std::vector<std::string_view>& names) {
  const std::string expected = fmt::format("one of {}", fmt::join(names, ", "));
  const toml::node* node = find(key, expected);
  if (node == nullptr) return false;
  const auto value = node->is_string() ? node->value<std::string>() : std::nullopt;
  const auto found = value ? std::find(names.begin(), names.end(), *value) : names.end();
  if (found == names.end()) {
    wrong(key, *node, expected);
    return false;
  }
  out = static_cast<std::size_t>(found - names.begin());
  return true;
}

const toml::table* TableReader::table(std::string_view key) {
  const toml::node* node = find(key, "a table");
  if (node == nullptr) return nullptr;
  if (!node->is_table()) wrong(key, *node, "a table");
  return node->as_table();
}

const toml::table* TableReader::optional_table(std::string_view key) {
  return table_.contains(key) ? table(key) : nullptr;
}

std::vector<const toml::table*> TableReader::tables(std::string_view key) {
  const toml::node* node = find(key, "an array of tables");
  if (node == nullptr) return {};
  std::vector<const toml::table*> result;
  if (!node->is_array()) {
    wrong(key, *node, "an array of tables");
    return result;
  }
  for (const toml::node& element : *node->as_array()) {
    if (!element.is_table()) {
      wrong(key, element, "an array of tables");
      return {};
    }
    result.push_back(element.as_table());
  }
  return result;
}

bool TableReader::has(std::string_view key) const { return table_.contains(key); }

void TableReader::finish() {
  for (const auto& [key, node] : table_) {
    if (std::find(read_.begin(), read_.end(), key.str()) != read_.end()) continue;
    findings_.add(key.source(), fmt::format("unknown key '{}'{}", key.str(), path_.empty() ? "" : " in " + path_),
                  read_.empty() ? std::string() : fmt::format("known are {}", fmt::join(read_, ", ")));
  }
}

}  // namespace pipethreader::device
