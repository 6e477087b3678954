// .npy files (format 1, 2 and 3; C order; little or big endian) to doubles and back. Narrow types round as round_to
// does. Errors name the file and what was found.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "base/scalar_type.h"

namespace pipethreader::runtime {

struct NpyArray {
  std::vector<std::int64_t> shape;    // empty: a scalar
  ScalarType type = ScalarType::f32;  // what the file holds
  std::vector<double> values;         // row-major
};

// What the reader insists on; an absent member accepts anything.
struct NpyExpectation {
  std::optional<ScalarType> type;  // bf16, f8e4m3, f8e5m2 are stored as u2, u1, u1 and are only read when asked for
  std::optional<std::vector<std::int64_t>> shape;
};

// Holds f16 <f2, f32 <f4, f64 <f8, i32 <i4, i64 <i8, u8 |u1, i8 |i1, boolean |b1; bf16 <u2 (or |V2), f8 |u1 (or |V1).
[[nodiscard]] Result<NpyArray> read_npy(const std::string& path, const NpyExpectation& expectation = {});

// The shape alone, whatever the elements are.
[[nodiscard]] Result<std::vector<std::int64_t>> read_npy_shape(const std::string& path);

// Written beside its place and renamed: a reader never sees half a file.
[[nodiscard]] Result<void> write_npy(const std::string& path, const NpyArray& array);

}  // namespace pipethreader::runtime
