#include "base/diagnostic.h"

namespace pipethreader {

std::string Diagnostic::format() const {
  std::string text;
  if (!file.empty()) text += file + ":";
  if (span.known()) text += fmt::format("{}:{}:", span.line, span.column);
  if (!text.empty()) text += " ";
  text += "error: " + message;
  if (!hint.empty()) text += "\n  hint: " + hint;
  return text;
}

std::string Error::format() const {
  std::string text;
  for (const Diagnostic& d : diagnostics) {
    if (!text.empty()) text += "\n";
    text += d.format();
  }
  return text;
}

}  // namespace pipethreader
