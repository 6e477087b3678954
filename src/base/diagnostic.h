// How anything fails: a Diagnostic says where, what was found, what was expected and what to do.
// Result<T> carries it to the boundary; assertions are for bugs of the compiler only.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <tl/expected.hpp>

namespace pipethreader {

// A place in a source file; lines and columns count from 1, 0 means unknown.
struct SourceSpan {
  std::uint32_t line = 0;
  std::uint32_t column = 0;
  [[nodiscard]] bool known() const { return line > 0; }
};

struct Diagnostic {
  std::string file;  // empty when the error belongs to no file
  SourceSpan span;
  std::string message;  // what was found and what was expected
  std::string hint;     // what to do; may be empty

  // "file:line:column: error: message" and, on a second line, "  hint: ...".
  [[nodiscard]] std::string format() const;
};

// One failure may hold several diagnostics (a checker reports all it finds).
struct Error {
  std::vector<Diagnostic> diagnostics;
  bool gave_up = false;  // a budget ended the attempt: nothing is known to be wrong

  Error() = default;
  explicit Error(Diagnostic d) { diagnostics.push_back(std::move(d)); }
  [[nodiscard]] std::string format() const;
};

template <class T>
using Result = tl::expected<T, Error>;

// fail("expected {} axes, found {}", 2, 3): an error with no place.
template <class... Args>
[[nodiscard]] tl::unexpected<Error> fail(fmt::format_string<Args...> text, Args&&... args) {
  return tl::unexpected<Error>(Error(Diagnostic{{}, {}, fmt::format(text, std::forward<Args>(args)...), {}}));
}

[[nodiscard]] inline tl::unexpected<Error> fail_at(std::string file, SourceSpan span, std::string message,
                                                   std::string hint = {}) {
  return tl::unexpected<Error>(Error(Diagnostic{std::move(file), span, std::move(message), std::move(hint)}));
}

}  // namespace pipethreader
