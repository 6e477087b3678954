#include "runtime/cubin_report.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>

namespace pipethreader::runtime {
namespace {

// The number that ends just before `unit`, as in "Used 30 registers" or "400 bytes smem".
std::optional<int> number_before(std::string_view line, std::string_view unit) {
  const std::size_t at = line.find(unit);
  if (at == std::string_view::npos) return std::nullopt;
  std::size_t end = at;
  while (end > 0 && line[end - 1] == ' ') --end;
  std::size_t begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  if (begin == end) return std::nullopt;
  std::int64_t value = 0;
  for (const char digit : line.substr(begin, end - begin))
    value = std::min<std::int64_t>(value * 10 + (digit - '0'), INT32_MAX);
  return static_cast<int>(value);
}

std::string_view quoted(std::string_view line) {
  const std::size_t begin = line.find('\'');
  const std::size_t end = begin == std::string_view::npos ? begin : line.find('\'', begin + 1);
  return end == std::string_view::npos ? std::string_view{} : line.substr(begin + 1, end - begin - 1);
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// "(C7510)", the number that the assembler gives its performance remarks.
bool has_remark_number(std::string_view line) {
  for (std::size_t at = line.find("(C"); at != std::string_view::npos; at = line.find("(C", at + 1)) {
    std::size_t end = at + 2;
    while (end < line.size() && line[end] >= '0' && line[end] <= '9') ++end;
    if (end > at + 2 && end < line.size() && line[end] == ')') return true;
  }
  return false;
}

// Tensor-core groups are judged by the remark's words: its numbers differ between releases.
void note_remark(std::string_view line, AssemblerReport& report) {
  if (contains(line, "serialized")) report.serialised = true;
  if (contains(line, "is injected")) report.injected_waits = true;
  if (contains(line, "setmaxnreg") && contains(line, "ignored")) report.ignored_register_budget = true;
  report.messages.emplace_back(line);
}

FunctionReport& function_of(AssemblerReport& report, std::string_view name) {
  for (FunctionReport& f : report.functions)
    if (f.name == name) return f;
  FunctionReport& added = report.functions.emplace_back();
  added.name = name;
  return added;
}

void summarise(AssemblerReport& report) {
  for (const FunctionReport& f : report.functions) {
    report.registers = std::max(report.registers, f.registers);
    report.spill_store_bytes = std::max(report.spill_store_bytes, f.spill_store_bytes);
    report.spill_load_bytes = std::max(report.spill_load_bytes, f.spill_load_bytes);
    report.stack_bytes = std::max(report.stack_bytes, f.stack_bytes);
  }
}

std::string_view trimmed(std::string_view line) {
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
  return line;
}

}  // namespace

AssemblerReport parse_assembler_log(std::string_view log) {
  AssemblerReport report;
  std::string current;  // whose properties follow
  std::string entry;    // whose register count follows
  while (!log.empty()) {
    const std::size_t end = log.find('\n');
    const std::string_view line = trimmed(log.substr(0, end));
    log.remove_prefix(end == std::string_view::npos ? log.size() : end + 1);

    constexpr std::string_view properties = "Function properties for ";
    if (contains(line, "Compiling entry function")) {
      entry = current = quoted(line);
      function_of(report, entry);
    } else if (const std::size_t at = line.find(properties); at != std::string_view::npos) {
      current = line.substr(at + properties.size());
    } else if (contains(line, "bytes stack frame")) {
      FunctionReport& f = function_of(report, current);
      f.stack_bytes = number_before(line, "bytes stack frame").value_or(0);
      f.spill_store_bytes = number_before(line, "bytes spill stores").value_or(0);
      f.spill_load_bytes = number_before(line, "bytes spill loads").value_or(0);
    } else if (const auto registers = number_before(line, "registers"); registers && contains(line, "Used ")) {
      FunctionReport& f = function_of(report, entry);
      f.registers = *registers;
      f.static_shared_bytes = number_before(line, "bytes smem").value_or(0);
    } else if (has_remark_number(line) || contains(line, "warning")) {
      note_remark(line, report);
    }
  }
  summarise(report);
  return report;
}

namespace {

// The few fields of a 64-bit little-endian ELF that are needed, every read checked against the image's size.
class ElfReader {
 public:
  explicit ElfReader(std::span<const std::byte> image) : image_(image) {}

  template <class T>
  [[nodiscard]] std::optional<T> at(std::uint64_t offset) const {
    if (offset > image_.size() || image_.size() - offset < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, image_.data() + offset, sizeof(T));
    return value;
  }

  struct Section {
    std::string name;
    std::uint64_t offset = 0, bytes = 0;
    std::uint32_t type = 0, link = 0, info = 0;
  };

  [[nodiscard]] std::optional<std::vector<Section>> sections() const {
    constexpr std::uint32_t elf_magic = 0x464c457f;
    constexpr std::uint8_t class_64 = 2;
    if (at<std::uint32_t>(0) != elf_magic || at<std::uint8_t>(4) != class_64) return std::nullopt;
    const auto table = at<std::uint64_t>(40);
    const auto entry_bytes = at<std::uint16_t>(58);
    const auto count = at<std::uint16_t>(60);
    const auto names_index = at<std::uint16_t>(62);
    if (!table || !count || !names_index || entry_bytes != 64) return std::nullopt;
    std::vector<Section> sections(*count);
    std::vector<std::uint32_t> name_offsets(*count);
    for (std::size_t i = 0; i < sections.size(); ++i) {
      const std::uint64_t header = *table + i * 64;
      if (!at<std::array<std::byte, 64>>(header)) return std::nullopt;
      name_offsets[i] = *at<std::uint32_t>(header);
      sections[i] = {{},
                     *at<std::uint64_t>(header + 24),
                     *at<std::uint64_t>(header + 32),
                     *at<std::uint32_t>(header + 4),
                     *at<std::uint32_t>(header + 40),
                     *at<std::uint32_t>(header + 44)};
    }
    if (*names_index >= sections.size()) return std::nullopt;
    const Section names = sections[*names_index];
    for (std::size_t i = 0; i < sections.size(); ++i) sections[i].name = text(names, name_offsets[i]);
    return sections;
  }

  // A zero-terminated string of a string table; empty when it lies outside.
  [[nodiscard]] std::string text(const Section& table, std::uint64_t offset) const {
    if (offset >= table.bytes || table.offset > image_.size() || image_.size() - table.offset < table.bytes) return {};
    const char* begin = reinterpret_cast<const char*>(image_.data()) + table.offset + offset;
    return std::string(begin, strnlen(begin, table.bytes - offset));
  }

 private:
  std::span<const std::byte> image_;
};

// The attributes of ".nv.info": a format and a code byte, then a value or the length of what follows.
void read_attributes(const ElfReader& elf, const ElfReader::Section& section,
                     const std::map<std::uint32_t, std::string>& symbols, AssemblerReport& report) {
  constexpr std::uint8_t sized = 4, register_count = 0x2f, frame_size = 0x11;
  std::uint64_t at = section.offset;
  const std::uint64_t end = section.offset + section.bytes;
  while (at + 4 <= end) {
    const auto format = elf.at<std::uint8_t>(at);
    const auto code = elf.at<std::uint8_t>(at + 1);
    const auto length = elf.at<std::uint16_t>(at + 2);
    if (!format || !code || !length) return;
    at += 4;
    if (*format != sized) continue;
    if (*length >= 8 && (*code == register_count || *code == frame_size)) {
      const auto symbol = elf.at<std::uint32_t>(at);
      const auto value = elf.at<std::uint32_t>(at + 4);
      const auto name = symbol ? symbols.find(*symbol) : symbols.end();
      if (value && name != symbols.end()) {
        FunctionReport& f = function_of(report, name->second);
        (*code == register_count ? f.registers : f.stack_bytes) = static_cast<int>(*value);
      }
    }
    at += *length;
  }
}

}  // namespace

Result<AssemblerReport> read_cubin(std::span<const std::byte> cubin) {
  const ElfReader elf(cubin);
  const auto sections = elf.sections();
  if (!sections) return fail("a cubin of {} bytes is no 64-bit ELF file, or is cut short", cubin.size());

  std::map<std::uint32_t, std::string> symbols;
  for (const ElfReader::Section& section : *sections) {
    constexpr std::uint64_t symbol_bytes = 24;
    if (section.name != ".symtab" || section.link >= sections->size()) continue;
    for (std::uint64_t i = 0; i < section.bytes / symbol_bytes; ++i) {
      const auto name_offset = elf.at<std::uint32_t>(section.offset + i * symbol_bytes);
      if (!name_offset) break;
      symbols[static_cast<std::uint32_t>(i)] = elf.text((*sections)[section.link], *name_offset);
    }
  }

  AssemblerReport report;
  std::uint64_t reserved_shared = 0;
  for (const ElfReader::Section& section : *sections) {
    if (section.name == ".nv.info") read_attributes(elf, section, symbols, report);
    if (section.name.starts_with(".nv.shared.reserved")) reserved_shared = 1024;  // a block's share that CUDA keeps
  }
  for (FunctionReport& f : report.functions) {
    for (const ElfReader::Section& section : *sections)
      if (section.name == ".nv.shared." + f.name)
        f.static_shared_bytes = static_cast<int>(section.bytes - std::min(section.bytes, reserved_shared));
  }
  if (report.functions.empty()) return fail("a cubin of {} bytes holds no kernel", cubin.size());
  std::sort(report.functions.begin(), report.functions.end(),
            [](const FunctionReport& a, const FunctionReport& b) { return a.name < b.name; });
  summarise(report);
  return report;
}

Result<AssemblerReport> assembler_report(std::string_view log, std::span<const std::byte> cubin) {
  AssemblerReport report = parse_assembler_log(log);
  auto binary = read_cubin(cubin);
  if (!binary) return binary;
  for (const FunctionReport& f : binary->functions) {
    FunctionReport& known = function_of(report, f.name);
    if (known.registers == 0) known = f;
  }
  summarise(report);
  return report;
}

}  // namespace pipethreader::runtime
