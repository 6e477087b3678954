#include "emit/names.h"

#include <algorithm>
#include <cctype>

namespace pipethreader::emit {
namespace {

constexpr std::string_view kReserved[] = {
    // the language
    "alignas", "and", "asm", "auto", "bool", "break", "case", "catch", "char", "class", "const", "constexpr",
    "continue", "default", "delete", "do", "double", "else", "enum", "explicit", "export", "extern", "false", "float",
    "for", "friend", "goto", "if", "inline", "int", "long", "mutable", "namespace", "new", "not", "operator", "or",
    "private", "protected", "public", "register", "return", "short", "signed", "sizeof", "static", "struct", "switch",
    "template", "this", "throw", "true", "try", "typedef", "typename", "union", "unsigned", "using", "virtual", "void",
    "volatile", "while", "xor", "main", "uint", "ushort", "half",
    // built-in functions
    "min", "max", "abs", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "erf", "floor", "sin", "cos", "pow",
    "y0", "y1", "yn", "j0", "j1", "jn", "gamma", "index", "round", "isnan", "isinf", "fmaxf", "fminf", "fabsf", "fmodf",
    "logf", "log2f", "tanhf", "erff", "floorf", "sinf", "cosf", "atomicAdd", "make_uint2", "make_uint4", "uint2",
    "uint4",
    // the frame
    "f16", "bf16", "f8e4m3", "f8e5m2", "TensorMap", "threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize",
    "shared", "shared_memory", "group", "thread", "warp", "lane", "rank", "instance", "leader", "peer", "slot", "turn",
    "turn_phase", "drawn", "work_counter", "work_full", "work_empty", "work_items", "chunk", "chunk_row", "chunk_col",
    "words", "tile", "a_matrix", "b_matrix"};

// Names of the emitter's own inside one instruction: a stem and a number.
constexpr std::string_view kLocalStems[] = {"part", "kept", "words", "moved", "scratch", "first", "zero_after"};

std::string clean(std::string_view wanted) {
  std::string text;
  for (const char c : wanted) text += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text[0])) != 0) text.insert(0, "v");
  while (text.starts_with("__")) text.erase(0, 1);
  return text;
}

bool looks_local(std::string_view name) {
  for (const std::string_view stem : kLocalStems) {
    if (!name.starts_with(stem) || name.size() < stem.size() + 2 || name[stem.size()] != '_') continue;
    const std::string_view number = name.substr(stem.size() + 1);
    if (std::all_of(number.begin(), number.end(), [](unsigned char c) { return std::isdigit(c) != 0; })) return true;
  }
  return false;
}

}  // namespace

Names::Names(std::span<const std::string_view> functions) : taken_(std::begin(kReserved), std::end(kReserved)) {
  for (const std::string_view function : functions) taken_.emplace(function);
}

std::string Names::claim(std::string_view wanted, std::span<const std::string> suffixes) {
  const std::string base = clean(wanted);
  for (int attempt = 0;; ++attempt) {
    const std::string name = attempt == 0 ? base
                                          : base + std::string(1, static_cast<char>('a' + (attempt - 1) % 26)) +
                                                (attempt > 26 ? std::to_string(attempt) : "");
    const auto unusable = [&](const std::string& text) { return taken_.contains(text) || looks_local(text); };
    if (unusable(name)) continue;
    if (std::any_of(suffixes.begin(), suffixes.end(), [&](const auto& s) { return unusable(name + s); })) continue;
    taken_.insert(name);
    for (const std::string& suffix : suffixes) taken_.insert(name + suffix);
    return name;
  }
}

std::string Names::local(std::string_view stem) { return std::string(stem) + "_" + std::to_string(locals_++); }

}  // namespace pipethreader::emit
