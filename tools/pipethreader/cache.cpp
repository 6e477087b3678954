#include "runtime/kernel_cache.h"

#include <ctime>

#include "commands.h"

namespace pipethreader::tool {

namespace {

std::string when(std::int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  char text[32] = "";
  if (localtime_r(&time, &parts) != nullptr) std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

int list(const runtime::KernelCache& cache) {
  const auto entries = cache.list();
  if (!entries) return report(entries.error());
  for (const runtime::CacheEntryInfo& entry : *entries) {
    fmt::print("{}  {:>9}  {}  {:<8} {}\n", entry.id, entry.bytes, when(entry.modified),
               entry.is_kernel ? "kernel" : "plan", entry.label);
  }
  return Exit::ok;
}

int size(const runtime::KernelCache& cache) {
  const auto bytes = cache.size();
  if (!bytes) return report(bytes.error());
  fmt::print("{} bytes in {}\n", *bytes, cache.directory().empty() ? "no cache" : cache.directory());
  return Exit::ok;
}

int clear(const runtime::KernelCache& cache) {
  const auto removed = cache.clear();
  if (!removed) return report(removed.error());
  fmt::print("{} files removed\n", *removed);
  return Exit::ok;
}

}  // namespace

void add_cache(CLI::App& app, const driver::Environment& environment, Commands& commands) {
  CLI::App* command = app.add_subcommand("cache", "the cache of compiled kernels");
  command->require_subcommand(1);
  const auto add = [&](const char* name, const char* help, int (*action)(const runtime::KernelCache&)) {
    CLI::App* sub = command->add_subcommand(name, help);
    commands[sub] = [action, &environment] { return action(runtime::KernelCache(environment.cache)); };
  };
  add("list", "what it holds, newest first", list);
  add("size", "how large it is and where", size);
  add("clear", "remove all it holds", clear);
}

}  // namespace pipethreader::tool
