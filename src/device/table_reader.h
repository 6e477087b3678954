// Reads one TOML table field by field: each read names what it expects and appends a located diagnostic when the key is
// missing, of another type or out of range; finish() reports the keys that nobody asked for. Private to device/.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <toml++/toml.h>

#include "base/diagnostic.h"

namespace pipethreader::device {

// Where all readers of a file put what they find.
struct Findings {
  std::string file;
  std::vector<Diagnostic> diagnostics;
  void add(const toml::source_region& place, std::string message, std::string hint = {});
};

class TableReader {
 public:
  // `path` is how messages name the table: "[clock]", "[[units]]"; empty for the file itself.
  TableReader(const toml::table& table, std::string path, Findings& findings)
      : table_(table), path_(std::move(path)), findings_(findings) {}

  enum class Least : std::uint8_t { zero, above_zero, one };
  void number(std::string_view key, double& out, Least least = Least::zero);
  void share(std::string_view key, double& out, Least least = Least::zero);  // 1 at most
  static constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();
  void integer(std::string_view key, std::int64_t& out, std::int64_t least = 0, std::int64_t most = any);
  void integer(std::string_view key, int& out, int least = 0);
  void boolean(std::string_view key, bool& out);
  void text(std::string_view key, std::string& out);
  void integers(std::string_view key, std::vector<int>& out, int least = 0);

  // One of `names`; gives its index. `out` is untouched on error.
  bool choice(std::string_view key, std::size_t& out, const std::vector<std::string_view>& names);

  // A table that must be there, and one that may be missing; nullptr when it is not there or is something else.
  const toml::table* table(std::string_view key);
  const toml::table* optional_table(std::string_view key);
  // The tables of an array, `[[key]]`; an empty one is written `key = []`.
  std::vector<const toml::table*> tables(std::string_view key);

  [[nodiscard]] bool has(std::string_view key) const;
  void finish();  // complains about the keys that were not read

  void complain(std::string_view key, std::string message, std::string hint = {});

 private:
  const toml::node* find(std::string_view key, std::string_view expected);
  void wrong(std::string_view key, const toml::node& node, std::string_view expected);
  void number_within(std::string_view key, double& out, Least least, double most, std::string_view expected);

  const toml::table& table_;
  std::string path_;
  Findings& findings_;
  std::vector<std::string> read_;
};

}  // namespace pipethreader::device
