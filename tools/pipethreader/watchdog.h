// Ends the program when work on the card does not come back: nothing takes a kernel off the card that never ends, and
// waiting for it would hang the terminal without a word.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace pipethreader::tool {

class Watchdog {
 public:
  Watchdog();
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // From now on `what` has 60 seconds; `what` is named when they pass. Empty: nothing is waited for.
  void begin(const std::string& what);

 private:
  void watch();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string what_;
  int round_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace pipethreader::tool
