// Links the installed library, compiles a kernel from text, and prints its CUDA source: consumer DATA_FOLDER [DEVICE]
#include <cstdio>
#include <string>

#include <pipethreader/pipethreader.h>

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: consumer DATA_FOLDER [DEVICE]\n", stderr);
    return 2;
  }
  const auto kernel = pipethreader::parse(R"(
    kernel scaled_sum(A: f32[M,N], B: f32[M,N], factor: f32) -> (C: f32[M,N]) {
      parallel m: M, n: N;
      C[m,n] = A[m,n] + factor * B[m,n];
    })");
  if (!kernel) {
    std::fprintf(stderr, "%s\n", kernel.error().format().c_str());
    return 1;
  }
  pipethreader::CompileOptions options;
  options.device = argc > 2 ? argv[2] : "h100";
  options.data = {argv[1]};
  options.machine_code = false;
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
