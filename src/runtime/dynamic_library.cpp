#include "runtime/dynamic_library.h"

#include <dlfcn.h>

namespace pipethreader::runtime {

Result<DynamicLibrary> DynamicLibrary::open(const std::string& name) {
  // NODELETE: drivers and compilers keep threads and exit handlers that outlive an unload.
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    const char* reason = dlerror();
    return fail("cannot open the library '{}': {}", name, reason != nullptr ? reason : "unknown reason");
  }
  return DynamicLibrary(std::shared_ptr<void>(handle, [](void* h) { dlclose(h); }), name);
}

void* DynamicLibrary::symbol(const char* symbol_name) const { return dlsym(handle_.get(), symbol_name); }

std::string DynamicLibrary::file_of(const char* symbol_name) const {
  Dl_info info{};
  void* address = symbol(symbol_name);
  if (address == nullptr || dladdr(address, &info) == 0 || info.dli_fname == nullptr) return name_;
  return info.dli_fname;
}

}  // namespace pipethreader::runtime
