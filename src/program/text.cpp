#include "program/text.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/scalar_type.h"

namespace pipethreader::program {
namespace {

constexpr std::array<std::string_view, 51> kKeywords = {"program",      "cluster",      "blocks_per_unit",
                                                        "shared_bytes", "generic",      "dim",
                                                        "param",        "tensor",       "output",
                                                        "require",      "tensor_map",   "ring",
                                                        "buffer",       "barrier",      "var",
                                                        "layout",       "fragment",     "role",
                                                        "swizzle",      "extent",       "stride",
                                                        "box",          "step",         "depth",
                                                        "full",         "empty",        "bytes",
                                                        "multicast",    "slots",        "offset",
                                                        "participants", "count",        "on",
                                                        "of",           "in",           "lag",
                                                        "where",        "from",         "at",
                                                        "registers",    "transposed",   "origin",
                                                        "accumulate",   "pin",          "keep",
                                                        "residual",     "through",      "else",
                                                        "instance",     "cluster_rank", "k_origin"};

constexpr std::array kInstructions = {
#define INSTRUCTION(type, text) std::string_view(text),
#include "program/instructions.def"
#undef INSTRUCTION
};

bool is_coordinate(std::string_view word) {
  return word.size() > 1 && word[0] == 'c' &&
         std::ranges::all_of(word.substr(1), [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; });
}

bool is_number_word(std::string_view word) {
  return word == "true" || word == "false" || word == "inf" || word == "nan" || word.starts_with("inf_") ||
         word.starts_with("nan_");
}

}  // namespace

bool is_identifier_start(char c) { return c == '_' || std::isalpha(static_cast<unsigned char>(c)) != 0; }

bool is_identifier_part(char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0; }

bool is_reserved(std::string_view word) {
  return std::ranges::find(kKeywords, word) != kKeywords.end() ||
         std::ranges::find(kInstructions, word) != kInstructions.end() || is_coordinate(word) || is_number_word(word) ||
         scalar_type(word) || function_named(word);
}

int precedence(Function function) {
  switch (function) {
    case Function::logical_or:
      return 1;
    case Function::logical_and:
      return 2;
    case Function::eq:
    case Function::ne:
      return 3;
    case Function::lt:
    case Function::le:
    case Function::gt:
    case Function::ge:
      return 4;
    case Function::add:
    case Function::sub:
      return 5;
    case Function::mul:
    case Function::div:
    case Function::mod:
      return 6;
    default:
      return 7;
  }
}

}  // namespace pipethreader::program
