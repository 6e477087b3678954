// The errors of the kernel language by id (messages.def), and the Reporter that gathers them: a stage reports all it
// finds and hands the whole list out as one Error.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"

namespace pipethreader::kernel {

enum class Message : std::uint8_t {
#define MESSAGE(id, text, hint) id,
#include "kernel/messages.def"
#undef MESSAGE
};

struct MessageInfo {
  std::string_view id;
  std::string_view text;
  std::string_view hint;
};

[[nodiscard]] const std::vector<MessageInfo>& all_messages();

class Reporter {
 public:
  explicit Reporter(std::string file) : file_(std::move(file)) {}

  template <class... Args>
  void report(Message message, SourceSpan at, const Args&... args) {
    add(message, at, fmt::make_format_args(args...));
  }

  [[nodiscard]] bool failed() const { return !error_.diagnostics.empty(); }
  [[nodiscard]] std::size_t count() const { return error_.diagnostics.size(); }
  // Everything reported, in the order of the places.
  [[nodiscard]] Error take();

 private:
  void add(Message message, SourceSpan at, fmt::format_args args);

  std::string file_;
  Error error_;
};

}  // namespace pipethreader::kernel
