// Another spelling of the same kernel: other names, another order of what has none. As text, so that a parser that
// numbers things as they come sees them come in another order.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "kernel/kernel.h"

namespace pipethreader::test {

struct Spelling {
  bool names = false;       // of the kernel, its dims, axes, tensors, scalars, options and values
  bool axes = false;        // the order of parallel and inner axes
  bool parameters = false;  // the order of tensors and scalars
  bool operands = false;    // the order of factors, terms, conditions, and of what max, min and == compare
  bool sides = false;       // `a < b` or `b > a`
  bool statements = false;  // the order of statements that do not need each other
};

struct Respelled {
  std::string text;
  std::map<std::string, std::string> names;  // new -> old
};

// Of a checked kernel. What a seed does to one part does not hang on the others being there.
Respelled respell(const kernel::Kernel& kernel, std::uint64_t seed, const Spelling& spelling);

}  // namespace pipethreader::test
