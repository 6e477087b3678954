// Source text being written: indented lines, and lists broken at the right margin.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace pipethreader::emit {

class Writer {
 public:
  explicit Writer(int depth = 0) : depth_(depth) {}

  void line(std::string_view text = {});
  template <class... Args>
  void format(fmt::format_string<Args...> text, Args&&... args) {
    line(fmt::format(text, std::forward<Args>(args)...));
  }
  void comment(std::string_view text);    // nothing when empty
  void open(std::string_view text);       // "text {", then deeper
  void otherwise(std::string_view text);  // "} text {"
  void close(std::string_view after = {});
  // head item, item, ... tail: broken into lines of at most 116 columns.
  void list(std::string_view head, const std::vector<std::string>& items, std::string_view tail);
  // #define name item, item, ...
  void define(std::string_view name, const std::vector<std::string>& items);
  void append(const Writer& other) { text_ += other.text_; }

  [[nodiscard]] int depth() const { return depth_; }
  // Changes with every brace: what is declared in one scope is known as long as this stays.
  [[nodiscard]] int scope() const { return scope_; }
  [[nodiscard]] bool empty() const { return text_.empty(); }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  int depth_ = 0;
  int scope_ = 0;
  std::string text_;
};

}  // namespace pipethreader::emit
