// The small device functions that emitted CUDA calls; a source contains those that it uses, each with what it needs.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "emit/writer.h"

namespace pipethreader::emit {

class Helpers {
 public:
  // Marks the function as used and gives its name back. An unknown name is a bug of the emitter.
  std::string use(std::string_view name);
  // A function made for this source, such as one tensor-core shape.
  std::string define(const std::string& name, const std::string& text);
  void print(Writer& out) const;
  [[nodiscard]] static std::vector<std::string_view> names();

 private:
  std::set<std::string, std::less<>> used_;
  std::map<std::string, std::string> defined_;
};

}  // namespace pipethreader::emit
