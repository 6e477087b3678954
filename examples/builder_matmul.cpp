// A matrix product written in C++: built, compiled for an H100, interpreted against the oracle.
#include <cstdio>

#include "pipethreader/builder.h"
#include "pipethreader/pipethreader.h"

using namespace pipethreader::build;

namespace {

pipethreader::Result<pipethreader::Kernel> product() {
  Builder k("matmul");
  const Term M = k.dim("M"), N = k.dim("N"), K = k.dim("K");
  const Tensor A = k.input("A", ScalarType::f16, {M, K});
  const Tensor B = k.input("B", ScalarType::f16, {N, K});
  const Tensor C = k.output("C", ScalarType::f16, {M, N});
  const Axis m = k.parallel("m", M), n = k.parallel("n", N), r = k.axis("k", K);
  C(m, n) = convert(ScalarType::f16, sum(r, A(m, r) * B(n, r)));
  return k.finish();
}

}  // namespace

int main() {
  const auto kernel = product();
  if (!kernel) {
    std::fprintf(stderr, "%s\n", kernel.error().format().c_str());
    return 1;
  }
  const auto compiled =
      pipethreader::compile(*kernel, {.dims = {{"M", 200}, {"N", 136}, {"K", 72}}, .data = {PIPETHREADER_DATA_FOLDER}});
  if (!compiled) {
    std::fprintf(stderr, "%s\n", compiled.error().format().c_str());
    return 1;
  }
  std::printf("%s", compiled->report().c_str());
  const auto result = compiled->run_random();
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().format().c_str());
    return 1;
  }
  std::printf("  %s\n", result->check.c_str());
  return result->correct ? 0 : 1;
}
