// cuBLAS as a peer: found and opened at run time, for kernels whose index structure is one plain product. It belongs to
// the tool; the compiler knows no operator.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernel/kernel.h"
#include "runtime/driver.h"

namespace pipethreader::tool {

// O[m,n] = type(sum over k of X * Y), nothing else, in 16-bit types, each operand in one of its two orders.
struct PlainProduct {
  kernel::TensorId x, y, out;
  bool x_columns = false;  // X is stored [k, m]
  bool y_rows = false;     // Y is stored [k, n]
  kernel::AxisId m, n, k;
  ScalarType type = ScalarType::f16;
};
[[nodiscard]] std::optional<PlainProduct> plain_product(const kernel::Kernel& kernel);

class Cublas {
 public:
  // Looks beside the run-time compiler's library, in Python environments and where the loader looks; the error says
  // where.
  [[nodiscard]] static Result<Cublas> open(const std::string& compiler, const std::vector<std::string>& environments);
  // One product of device addresses on a stream.
  [[nodiscard]] Result<void> multiply(const PlainProduct& product, std::int64_t m, std::int64_t n, std::int64_t k,
                                      std::uint64_t x, std::uint64_t y, std::uint64_t out,
                                      const runtime::Stream& stream) const;
  [[nodiscard]] const std::string& name() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace pipethreader::tool
