#include "emit/words.h"

#include <algorithm>

#include "emit/values.h"

namespace pipethreader::emit {

using namespace program;

namespace {

constexpr int kWordBits = 32;

std::string word_of(const std::string& vector, int bytes, int word) {
  return bytes <= 4 ? vector : fmt::format("{}.{}", vector, "xyzw"[word]);
}

// The bits of element `index` of a word, in the memory type.
std::string bits_in_word(ScalarType type, const std::string& word, int index) {
  const int width = bits(type);
  if (width == kWordBits)
    return fmt::format("{}({})", is_floating(type) ? "__uint_as_float" : "static_cast<int>", word);
  const std::string shifted = index == 0 ? word : fmt::format("{} >> {}", word, index * width);
  return fmt::format("static_cast<{}>({})", memory_type(type), shifted);
}

// One word of `count` elements.
std::string word_from(Emission& emission, FragmentId id, int first, int count) {
  const ScalarType type = emission.program[id].type;
  if (emission.packed(id) && count == 2) return emission.variable(id, first);
  if (bits(type) == kWordBits)
    return fmt::format("{}({})", is_floating(type) ? "__float_as_uint" : "static_cast<unsigned>",
                       emission.variable(id, first));
  if (count == 1) return element_bits(emission, id, first);
  std::string text;
  for (int i = 0; i < count; ++i) {
    std::string part = fmt::format("static_cast<unsigned>({})", element_bits(emission, id, first + i));
    if (type == ScalarType::i8) part = fmt::format("({} & 0xffu)", part);
    if (i > 0) part = fmt::format("{} << {}", part, i * bits(type));
    text += (i > 0 ? " | " : "") + part;
  }
  return text;
}

}  // namespace

Run contiguous_run(const layout::Layout& tile) {
  for (const layout::Digit& digit : tile.digits)
    if (digit.place == layout::Place::reg && digit.extent > 1)
      return digit.stride == 1 && digit.dim >= 0 ? Run{digit.dim, digit.extent & -digit.extent} : Run{};
  return {};
}

std::vector<int> coordinate_divisors(const layout::Layout& tile, Run run) {
  std::vector<int> result(tile.shape.size(), 1024);
  for (const layout::Digit& digit : tile.digits) {
    if (digit.dim == layout::replicated || digit.extent == 1) continue;
    const bool inside = digit.place == layout::Place::reg && digit.dim == run.dim && digit.stride < run.count;
    const int stride = inside ? run.count : digit.stride;
    int& divisor = result[static_cast<std::size_t>(digit.dim)];
    divisor = std::min(divisor, stride & -stride);
  }
  return result;
}

std::string vector_type(ScalarType type, int count) {
  switch (bits(type) * count / 8) {
    case 16:
      return "uint4";
    case 8:
      return "uint2";
    case 4:
      return "unsigned";
    case 2:
      return "unsigned short";
    default:
      return "unsigned char";
  }
}

std::string gathered(Emission& emission, FragmentId id, int first, int count) {
  const ScalarType type = emission.program[id].type;
  const int per_word = std::max(1, kWordBits / bits(type));
  std::string words;
  for (int i = 0; i < count; i += per_word)
    words += (i > 0 ? ", " : "") + word_from(emission, id, first + i, std::min(per_word, count));
  return bits(type) * count > kWordBits ? fmt::format("make_{}({})", vector_type(type, count), words) : words;
}

void scatter(Emission& emission, FragmentId id, int first, int count, const std::string& vector) {
  const ScalarType type = emission.program[id].type;
  const int per_word = std::max(1, kWordBits / bits(type));
  for (int i = 0; i < count; i += emission.packed(id) ? 2 : 1) {
    const std::string word = word_of(vector, bits(type) * count / 8, i / per_word);
    emission.out.format("{} = {};", emission.variable(id, first + i),
                        emission.packed(id) ? word : from_bits(emission, type, bits_in_word(type, word, i % per_word)));
  }
}

std::string element_bits(Emission& emission, FragmentId id, int reg) {
  if (!emission.packed(id)) return to_bits(emission, emission.program[id].type, emission.variable(id, reg));
  return fmt::format("static_cast<{}>({}{})", memory_type(emission.program[id].type), emission.variable(id, reg),
                     reg % 2 == 0 ? "" : " >> 16");
}

}  // namespace pipethreader::emit
