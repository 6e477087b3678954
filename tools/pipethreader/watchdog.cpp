#include "watchdog.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "commands.h"

namespace pipethreader::tool {

namespace {
constexpr auto longest = std::chrono::seconds(60);
}

Watchdog::Watchdog() : thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::begin(const std::string& what) {
  const std::lock_guard lock(mutex_);
  what_ = what;
  ++round_;
  changed_.notify_all();
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const int round = round_;
    if (changed_.wait_for(lock, longest, [&] { return stop_ || round_ != round; }) || what_.empty()) continue;
    fmt::print(stderr,
               "error: the card has not come back for {} s: {}\n"
               "  hint: a kernel that never ends is a fault of pipethreader; please report it with this command line\n",
               longest.count(), what_);
    std::fflush(nullptr);
    std::_Exit(Exit::broken);
  }
}

}  // namespace pipethreader::tool
