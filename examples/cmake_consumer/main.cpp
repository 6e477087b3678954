// Links the installed library, compiles a kernel from text and the same one built in C++, and runs them in the
// interpreter: consumer [DEVICE]
#include <cstdio>
#include <string>

#include <pipethreader/builder.h>
#include <pipethreader/pipethreader.h>

namespace {

pipethreader::Result<pipethreader::Kernel> from_text() {
  return pipethreader::parse(R"(
    kernel scaled_sum(A: f32[M,N], B: f32[M,N], factor: f32) -> (C: f32[M,N]) {
      parallel m: M, n: N;
      C[m,n] = A[m,n] + factor * B[m,n];
    })");
}

pipethreader::Result<pipethreader::Kernel> from_builder() {
  using namespace pipethreader::build;
  Builder k("scaled_sum");
  const Term M = k.dim("M"), N = k.dim("N"), factor = k.scalar("factor", ScalarType::f32);
  const Tensor A = k.input("A", ScalarType::f32, {M, N}), B = k.input("B", ScalarType::f32, {M, N});
  const Tensor C = k.output("C", ScalarType::f32, {M, N});
  const Axis m = k.parallel("m", M), n = k.parallel("n", N);
  C(m, n) = A(m, n) + factor * B(m, n);
  return k.finish();
}

int compile_and_run(const pipethreader::Result<pipethreader::Kernel>& kernel,
                    const pipethreader::CompileOptions& options) {
  if (!kernel) {
    std::fprintf(stderr, "%s\n", kernel.error().format().c_str());
    return 1;
  }
  const auto compiled = pipethreader::compile(*kernel, options);
  if (!compiled) {
    std::fprintf(stderr, "%s\n", compiled.error().format().c_str());
    return 1;
  }
  const auto result = compiled->run_random({.sizes = {{"M", 3}, {"N", 70}}});
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().format().c_str());
    return 1;
  }
  std::printf("%s%s\n", compiled->report().c_str(), result->check.c_str());
  return result->correct ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  pipethreader::CompileOptions options;
  if (argc > 1) options.device = argv[1];
  options.machine_code = false;
  for (const auto& kernel : {from_text(), from_builder()}) {
    if (const int status = compile_and_run(kernel, options); status != 0) return status;
  }
  return 0;
}
