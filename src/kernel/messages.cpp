#include "kernel/messages.h"

#include <algorithm>

namespace pipethreader::kernel {
namespace {

constexpr std::size_t kMostReported = 20;

}  // namespace

const std::vector<MessageInfo>& all_messages() {
  static const std::vector<MessageInfo> messages = {
#define MESSAGE(id, text, hint) {#id, text, hint},
#include "kernel/messages.def"
#undef MESSAGE
  };
  return messages;
}

void Reporter::add(Message message, SourceSpan at, fmt::format_args args) {
  if (error_.diagnostics.size() >= kMostReported) return;
  const MessageInfo& info = all_messages()[static_cast<std::size_t>(message)];
  Diagnostic d{file_, at, fmt::vformat(info.text, args), fmt::vformat(info.hint, args)};
  for (const Diagnostic& other : error_.diagnostics)
    if (other.span.line == at.line && other.span.column == at.column && other.message == d.message) return;
  error_.diagnostics.push_back(std::move(d));
}

Error Reporter::take() {
  std::stable_sort(error_.diagnostics.begin(), error_.diagnostics.end(), [](const Diagnostic& a, const Diagnostic& b) {
    return std::pair(a.span.line, a.span.column) < std::pair(b.span.line, b.span.column);
  });
  return std::move(error_);
}

}  // namespace pipethreader::kernel
