// All rows of named suites, one after the other: a table, and JSON rows like those of bench/compare.py.
#pragma once

#include "kernel_timing.h"

namespace pipethreader::tool {

struct SuitesRequest {
  std::vector<std::string> names;
  KernelOptions common;  // device, forced choices and cache; the rest is the rows'
  int rounds = 5;
  std::string out;  // a file for the rows; empty: none
};

// A row that fails is reported and the others go on. Returns the exit status.
int bench_suites(const SuitesRequest& request, const driver::Environment& environment);

}  // namespace pipethreader::tool
