// What a tensor map means to the machine of cuda_on_cpu.h; a test fills it as the host would encode it.
#pragma once

#include <vector>

struct TensorMap {  // filled by the test; axes innermost first
  unsigned char* base = nullptr;
  int element_bytes = 2;
  int swizzle = 0;  // bytes
  std::vector<long long> extents, byte_strides;
  std::vector<int> box, steps;
};
