#include "kernel/checks.h"

namespace pipethreader::kernel {

Result<Kernel> check(Kernel kernel) {
  Reporter reporter(kernel.file);
  check_scopes(kernel, reporter);
  if (!reporter.failed()) check_types(kernel, reporter);   // reads the shapes that check_scopes made sure of
  if (!reporter.failed()) check_bounds(kernel, reporter);  // reads the types
  if (reporter.failed()) return tl::unexpected(reporter.take());
  return kernel;
}

}  // namespace pipethreader::kernel
