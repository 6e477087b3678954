// Identifiers for the emitted source: what the user named keeps its name, cleaned and made unique.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>

namespace pipethreader::emit {

class Names {
 public:
  // The words of the language and of the emitted frame are taken, and the device functions in `functions`.
  explicit Names(std::span<const std::string_view> functions);

  // An unused identifier close to `wanted`; itself followed by each suffix is unused and now taken as well.
  [[nodiscard]] std::string claim(std::string_view wanted, std::span<const std::string> suffixes = {});

  // "part_0", "part_1", ...: for the inside of one instruction's braces. No claimed name looks like these.
  [[nodiscard]] std::string local(std::string_view stem);
  void begin_instruction() { locals_ = 0; }

 private:
  std::set<std::string, std::less<>> taken_;
  int locals_ = 0;
};

}  // namespace pipethreader::emit
