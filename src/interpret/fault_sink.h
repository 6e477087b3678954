// The first fault of a run. Code that meets a fault records it and returns something harmless; the scheduler stops
// before the next instruction.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "interpret/interpret.h"

namespace pipethreader::interpret {

class FaultSink {
 public:
  void raise(FaultKind kind, std::string explanation) {
    if (!fault_) fault_ = Fault{kind, std::move(explanation)};
  }
  [[nodiscard]] bool any() const { return fault_.has_value(); }
  [[nodiscard]] const Fault& first() const { return *fault_; }

  // Appended to the explanation, once it is known who was at work.
  void add_place(const std::string& place) {
    if (!fault_ || placed_) return;
    fault_->explanation = place + ": " + fault_->explanation;
    placed_ = true;
  }

 private:
  std::optional<Fault> fault_;
  bool placed_ = false;
};

}  // namespace pipethreader::interpret
