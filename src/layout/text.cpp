// The text form of layouts.
#include <array>
#include <cctype>
#include <charconv>
#include <string_view>

#include "layout/layout.h"

namespace pipethreader::layout {
namespace {

constexpr std::array<std::string_view, 3> kPlaces = {"reg", "lane", "warp"};

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Result<Layout> layout() {
    Layout result;
    if (!take("[")) return expected("'['");
    while (!take("]")) {
      if (!result.shape.empty() && !take(",")) return expected("',' or ']'");
      const auto extent = number();
      if (!extent) return expected("an extent");
      result.shape.push_back(*extent);
    }
    for (std::size_t place = 0; place < kPlaces.size(); ++place) {
      if (!take(kPlaces[place]) || !take("(")) return expected(fmt::format("'{}('", kPlaces[place]));
      while (!take(")")) {
        auto d = digit(static_cast<Place>(place));
        if (!d) return tl::unexpected(d.error());
        result.digits.push_back(*d);
      }
    }
    skip_space();
    if (at_ != text_.size()) return expected("the end of the layout");
    return result;
  }

 private:
  Result<Digit> digit(Place place) {
    const auto extent = number();
    if (!extent || !take(":")) return expected("'extent:' or ')'");
    if (take("-")) return Digit{place, *extent, replicated, 0};
    if (!take("c")) return expected("'c' and a dimension, or '-'");
    const auto dim = number();
    if (!dim || !take("*")) return expected("'dimension*stride'");
    const auto stride = number();
    if (!stride) return expected("a stride");
    return Digit{place, *extent, *dim, *stride};
  }

  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }

  bool take(std::string_view word) {
    skip_space();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  std::optional<int> number() {
    skip_space();
    int value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc{} || value < 0) return std::nullopt;
    at_ = static_cast<std::size_t>(end - text_.data());
    return value;
  }

  tl::unexpected<Error> expected(std::string what) {
    skip_space();
    const auto found = text_.substr(at_, 8);
    return fail_at(
        {}, {1, static_cast<std::uint32_t>(at_ + 1)},
        fmt::format("in a layout: expected {}, found {}", what, found.empty() ? "the end" : fmt::format("'{}'", found)),
        "a layout reads like [64, 8] reg(2:c1*1 2:c0*8) lane(4:c1*2 8:c0*1) warp(4:c0*16)");
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::string print(const Layout& layout) {
  std::string text = fmt::format("[{}]", fmt::join(layout.shape, ", "));
  for (std::size_t place = 0; place < kPlaces.size(); ++place) {
    std::string digits;
    for (const Digit& d : layout.digits) {
      if (d.place != static_cast<Place>(place)) continue;
      if (!digits.empty()) digits += ' ';
      digits +=
          d.dim == replicated ? fmt::format("{}:-", d.extent) : fmt::format("{}:c{}*{}", d.extent, d.dim, d.stride);
    }
    text += fmt::format(" {}({})", kPlaces[place], digits);
  }
  return text;
}

Result<Layout> parse(const std::string& text) { return Reader(text).layout(); }

}  // namespace pipethreader::layout
