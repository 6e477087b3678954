#include "emit/writer.h"

namespace pipethreader::emit {
namespace {
constexpr std::size_t kMargin = 116;
}

void Writer::line(std::string_view text) {
  if (!text.empty()) {
    text_.append(static_cast<std::size_t>(depth_) * 2, ' ');
    text_ += text;
  }
  text_ += '\n';
}

void Writer::comment(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    format("// {}", text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  }
}

void Writer::open(std::string_view text) {
  text.empty() ? line("{") : format("{} {{", text);
  ++depth_;
  ++scope_;
}

void Writer::otherwise(std::string_view text) {
  --depth_;
  format("}} {} {{", text);
  ++depth_;
  ++scope_;
}

void Writer::close(std::string_view after) {
  --depth_;
  ++scope_;
  format("}}{}", after);
}

void Writer::list(std::string_view head, const std::vector<std::string>& items, std::string_view tail) {
  const std::size_t indent = static_cast<std::size_t>(depth_) * 2;
  std::string current(head);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const bool last = i + 1 == items.size();
    const std::size_t length = items[i].size() + (last ? tail.size() : 1);
    const bool glued = current.empty() || current.back() == '(' || current.back() == ' ';
    if (indent + current.size() + length + 1 > kMargin && current.size() > 4) {
      while (!current.empty() && current.back() == ' ') current.pop_back();
      line(current);
      current = "    ";
    } else if (!glued) {
      current += ' ';
    }
    current += items[i];
    if (!last) current += ',';
  }
  line(current + std::string(tail));
}

void Writer::define(std::string_view name, const std::vector<std::string>& items) {
  std::string current = fmt::format("#define {}", name);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (current.size() + items[i].size() + 3 > kMargin) {
      text_ += current + " \\\n";
      current = "   ";
    }
    current += ' ' + items[i] + (i + 1 < items.size() ? "," : "");
  }
  text_ += current + '\n';
}

}  // namespace pipethreader::emit
