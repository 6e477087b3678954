// The joint search: tiles, lanes, ring depths, overlap and order of work are tried together; each candidate is
// scheduled, checked against registers and shared memory, and timed by simulation. Offline and deterministic.
#pragma once

#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "device/device.h"
#include "kernel/kernel.h"
#include "partition/partition.h"
#include "schedule/sprogram.h"

namespace pipethreader::search {

struct Candidate {
  task::Walk walk;
  partition::Choice partition;
  schedule::Choice schedule;
  double predicted_us = 0;
  double compute_us = 0;          // what lanes alone would take
  std::string bound;              // what the time is spent on
  int registers = 0;              // estimated, of a computing thread
  std::int64_t shared_bytes = 0;  // rings and scratch
};

struct Options {
  // What a dynamic dim is taken to be while predicting.
  std::int64_t dynamic_size = 4096;
};

// All candidates that fit, best first. An error says what keeps every one from fitting.
[[nodiscard]] Result<std::vector<Candidate>> rank(const kernel::Kernel& specialised, const device::Device& device,
                                                  const Options& options = {});

}  // namespace pipethreader::search
