#include "runtime/npy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string_view>

#include "runtime/atomic_file.h"
#include "runtime/host_array.h"

namespace pipethreader::runtime {
namespace {

constexpr std::string_view magic = "\x93NUMPY";

struct NpyHeader {
  std::string dtype;  // "<f4"
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

// Reads the header's text, a Python dictionary of a string, a truth value and a tuple of integers.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  // Nothing, and what(), when the text is not such a dictionary.
  std::optional<NpyHeader> parse() {
    NpyHeader header;
    bool has_dtype = false, has_order = false, has_shape = false;
    if (!take('{')) return bad("a dictionary");
    while (!take('}')) {
      const auto key = quoted();
      if (!key || !take(':')) return bad("a quoted key and ':'");
      if (*key == "descr") {
        const auto value = quoted();
        if (!value) return bad("a plain element type in 'descr'; records are not supported");
        header.dtype = *value;
        has_dtype = true;
      } else if (*key == "fortran_order") {
        header.fortran_order = word("True");
        if (!header.fortran_order && !word("False")) return bad("True or False in 'fortran_order'");
        has_order = true;
      } else if (*key == "shape") {
        if (!shape(header.shape)) return bad("a tuple of sizes in 'shape'");
        has_shape = true;
      } else {
        return bad("the keys 'descr', 'fortran_order' and 'shape' only");
      }
      take(',');
    }
    if (!has_dtype || !has_order || !has_shape) return bad("all of 'descr', 'fortran_order' and 'shape'");
    return header;
  }

  [[nodiscard]] const std::string& what() const { return what_; }

 private:
  std::nullopt_t bad(std::string expected) {
    what_ = std::move(expected);
    return std::nullopt;
  }
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool word(std::string_view expected) {
    skip();
    if (!text_.substr(at_).starts_with(expected)) return false;
    at_ += expected.size();
    return true;
  }
  std::optional<std::string> quoted() {
    skip();
    if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) return std::nullopt;
    const std::size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) return std::nullopt;
    std::string value(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return value;
  }
  bool shape(std::vector<std::int64_t>& sizes) {
    if (!take('(')) return false;
    while (!take(')')) {
      skip();
      std::int64_t value = 0;
      const std::size_t begin = at_;
      for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
        if (value > (std::numeric_limits<std::int64_t>::max() - 9) / 10) return false;
        value = value * 10 + (text_[at_] - '0');
      }
      if (at_ == begin) return false;
      sizes.push_back(value);
      word("L");  // Python 2 wrote long integers so
      take(',');
    }
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string what_;
};

struct DtypeName {
  std::string_view name;  // without the byte order
  ScalarType type;
};
constexpr std::array<DtypeName, 8> plain_dtypes = {{{"f2", ScalarType::f16},
                                                    {"f4", ScalarType::f32},
                                                    {"f8", ScalarType::f64},
                                                    {"i4", ScalarType::i32},
                                                    {"i8", ScalarType::i64},
                                                    {"i1", ScalarType::i8},
                                                    {"u1", ScalarType::u8},
                                                    {"b1", ScalarType::boolean}}};

// Types that numpy lacks are held as raw words of their size.
bool holds_words_of(std::string_view dtype, ScalarType type) {
  switch (type) {
    case ScalarType::bf16:
      return dtype == "u2" || dtype == "V2";
    case ScalarType::f8e4m3:
    case ScalarType::f8e5m2:
      return dtype == "u1" || dtype == "V1";
    case ScalarType::tf32:
      return dtype == "f4";
    default:
      return false;
  }
}

std::optional<std::string> dtype_of(ScalarType type) {
  for (const DtypeName& d : plain_dtypes)
    if (d.type == type) return (bits(type) == 8 ? "|" : "<") + std::string(d.name);
  if (type == ScalarType::bf16) return "<u2";
  if (type == ScalarType::tf32) return "<f4";
  if (type == ScalarType::f8e4m3 || type == ScalarType::f8e5m2) return "|u1";
  return std::nullopt;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

tl::unexpected<Error> bad_file(const std::string& path, std::string message, std::string hint = {}) {
  return fail_at(path, {}, std::move(message), std::move(hint));
}

// Where the array's bytes begin.
Result<std::size_t> parse_header(const std::string& path, std::span<const std::byte> file, NpyHeader& header) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (!text.starts_with(magic))
    return bad_file(path, "this is no .npy file: it does not begin with \\x93NUMPY", "write one with numpy.save");
  const auto byte = [&](std::size_t i) { return static_cast<std::size_t>(static_cast<unsigned char>(text[i])); };
  if (text.size() < 8) return bad_file(path, "the .npy file is cut short inside its header");
  const std::size_t major = byte(6);
  if (major < 1 || major > 3)
    return bad_file(path, fmt::format("the .npy file has format version {}; 1, 2 and 3 are known", major));
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  const std::size_t begin = 8 + length_bytes;
  std::size_t length = 0;
  for (std::size_t i = 0; i < length_bytes && 8 + i < text.size(); ++i) length |= byte(8 + i) << (8 * i);
  if (text.size() < begin || text.size() - begin < length)
    return bad_file(path, "the .npy file is cut short inside its header");
  HeaderParser parser(text.substr(begin, length));
  auto parsed = parser.parse();
  if (!parsed) return bad_file(path, fmt::format("the .npy header is malformed: expected {}", parser.what()));
  header = std::move(*parsed);
  return begin + length;
}

Result<ScalarType> type_of(const std::string& path, const std::string& dtype, std::optional<ScalarType> expected) {
  const std::string_view plain = dtype.empty() ? std::string_view{} : std::string_view(dtype).substr(1);
  std::optional<ScalarType> found;
  for (const DtypeName& d : plain_dtypes)
    if (d.name == plain) found = d.type;
  const bool known_order = !dtype.empty() && std::string_view("<>|=").find(dtype.front()) != std::string_view::npos;
  if (known_order && expected && (found == expected || holds_words_of(plain, *expected))) return *expected;
  if (expected) {
    return bad_file(path,
                    fmt::format("the array has dtype '{}', expected {} ('{}')", dtype, name(*expected),
                                dtype_of(*expected).value_or("?")),
                    "convert it with array.astype(...) before numpy.save");
  }
  if (known_order && found) return *found;
  return bad_file(path, fmt::format("the array has dtype '{}', which stands for no element type by itself", dtype),
                  "f2, f4, f8, i1, i4, i8, u1 and b1 do; u2 is read where bf16 is expected");
}

// Elements of the shape; nothing when they are more than can be addressed.
std::optional<std::size_t> element_count(const std::vector<std::int64_t>& shape, std::size_t element_bytes) {
  std::size_t count = 1;
  const std::size_t most = std::numeric_limits<std::int64_t>::max() / element_bytes;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  for (const std::int64_t size : shape) {
    if (static_cast<std::size_t>(size) > most / count) return std::nullopt;
    count *= static_cast<std::size_t>(size);
  }
  return count;
}

void swap_bytes(std::span<std::byte> bytes, std::size_t word) {
  for (std::size_t i = 0; i + word <= bytes.size(); i += word)
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(i), bytes.begin() + static_cast<std::ptrdiff_t>(i + word));
}

// Its size is known before it is read.
Result<std::vector<std::byte>> read_array(const std::string& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error) && !std::filesystem::is_directory(path, error) &&
      !std::filesystem::is_regular_file(path, error))
    return bad_file(path, "this is no regular file, but a device or a pipe", "save the array to a file");
  return read_file(path);
}

}  // namespace

Result<NpyArray> read_npy(const std::string& path, const NpyExpectation& expectation) {
  auto file = read_array(path);
  if (!file) return tl::unexpected(file.error());
  NpyHeader header;
  const auto begin = parse_header(path, *file, header);
  if (!begin) return tl::unexpected(begin.error());
  const auto type = type_of(path, header.dtype, expectation.type);
  if (!type) return tl::unexpected(type.error());
  if (header.fortran_order && header.shape.size() > 1)
    return bad_file(path, "the array is in Fortran order", "save numpy.ascontiguousarray(array) instead");
  if (expectation.shape && header.shape != *expectation.shape)
    return bad_file(path, fmt::format("the array has shape {}, expected {}", shape_text(header.shape),
                                      shape_text(*expectation.shape)));

  const auto element_bytes = static_cast<std::size_t>(bits(*type)) / 8;
  const auto count = element_count(header.shape, element_bytes);
  if (!count) return bad_file(path, fmt::format("the array's shape {} is too large", shape_text(header.shape)));
  std::span<std::byte> data = std::span(*file).subspan(*begin);
  if (data.size() != *count * element_bytes) {
    return bad_file(
        path,
        fmt::format("the array of shape {} and dtype '{}' takes {} bytes, but {} follow its header",
                    shape_text(header.shape), header.dtype, *count * element_bytes, data.size()),
        data.size() < *count * element_bytes ? "the file is truncated" : "the file holds more than one array");
  }
  if (header.dtype.front() == '>') swap_bytes(data, element_bytes);
  return NpyArray{std::move(header.shape), *type, unpack(*type, data, *count)};
}

Result<std::vector<std::int64_t>> read_npy_shape(const std::string& path) {
  const auto file = read_array(path);
  if (!file) return tl::unexpected(file.error());
  NpyHeader header;
  if (const auto begin = parse_header(path, *file, header); !begin) return tl::unexpected(begin.error());
  return std::move(header.shape);
}

Result<void> write_npy(const std::string& path, const NpyArray& array) {
  const auto dtype = dtype_of(array.type);
  if (!dtype) return fail("an array of {} cannot be written as .npy", name(array.type));
  const auto count = element_count(array.shape, 8);
  if (!count || *count != array.values.size())
    return fail("an array of shape {} has {} values", shape_text(array.shape), array.values.size());

  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", *dtype, shape_text(array.shape));
  constexpr std::size_t prefix = 10, alignment = 64;  // the magic, the version and the length; data starts aligned
  text.resize((prefix + text.size() + 1 + alignment - 1) / alignment * alignment - prefix - 1, ' ');
  text += '\n';
  if (text.size() > 0xffff) return fail("an array of {} axes has too long a header", array.shape.size());
  std::string head(magic);
  head += {'\1', '\0', static_cast<char>(text.size() & 255), static_cast<char>(text.size() >> 8)};
  head += text;
  const std::vector<std::byte> data = pack(array.type, array.values);
  return write_file(path, {std::as_bytes(std::span(head)), data});
}

}  // namespace pipethreader::runtime
