// A shared library opened at run time. Turns a path or a soname into symbols; closes the library with its last owner.
#pragma once

#include <memory>
#include <string>

#include "base/diagnostic.h"

namespace pipethreader::runtime {

class DynamicLibrary {
 public:
  // Opens an absolute path, or a soname that the loader searches for. The error is the loader's own text.
  [[nodiscard]] static Result<DynamicLibrary> open(const std::string& name);

  // The address of a symbol; nullptr when the library has none of that name.
  [[nodiscard]] void* symbol(const char* name) const;
  [[nodiscard]] const std::string& name() const { return name_; }

  // The file that the symbol was loaded from ("/usr/lib/x86_64-linux-gnu/libcuda.so.1"); name() when unknown.
  [[nodiscard]] std::string file_of(const char* symbol_name) const;

 private:
  DynamicLibrary(std::shared_ptr<void> handle, std::string name) : handle_(std::move(handle)), name_(std::move(name)) {}
  std::shared_ptr<void> handle_;
  std::string name_;
};

}  // namespace pipethreader::runtime
