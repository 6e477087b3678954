// Attention with an online softmax, written in C++: the same kernel as kernels/flash_attention.stask.
#include <cmath>
#include <cstdio>
#include <limits>

#include "pipethreader/builder.h"
#include "pipethreader/pipethreader.h"

using namespace pipethreader::build;

namespace {

pipethreader::Result<pipethreader::Kernel> attention() {
  Builder k("flash_attention");
  const Term B = k.dim("B"), H = k.dim("H"), G = k.dim("G"), S = k.dim("S"), T = k.dim("T"), D = k.dim("D");
  const Tensor Q = k.input("Q", ScalarType::f16, {B, H, S, D});
  const Tensor K = k.input("K", ScalarType::f16, {B, G, T, D});
  const Tensor V = k.input("V", ScalarType::f16, {B, G, T, D});
  const Term scale = k.scalar("scale", ScalarType::f32);
  const Tensor O = k.output("O", ScalarType::f16, {B, H, S, D});
  const Term causal = k.option("causal", true);
  k.require(H % G == 0);
  const Axis b = k.parallel("b", B), h = k.parallel("h", H), i = k.parallel("i", S), d = k.inner("d", D);
  const Axis j = k.axis("j", T), r = k.axis("k", D);
  const Value m = k.value("m"), l = k.value("l"), o = k.value("o"), s = k.value("s"), x = k.value("x"),
              n = k.value("n"), e = k.value("e"), a = k.value("a");
  k.carry(m(i), -std::numeric_limits<double>::infinity());
  k.carry(l(i), 0);
  k.carry(o(i, d), 0);
  k.loop(j, {.where = !causal || j <= i}, [&] {
    s(i, j) = sum(r, Q(b, h, i, r) * K(b, h / (H / G), j, r));
    x(i) = max(m(i), reduce_max(j, s(i, j) * scale));
    n(i) = select(x(i) - m(i) > 8, x(i), m(i));
    e(i, j) = exp2(s(i, j) * scale - n(i));
    a(i) = exp2(m(i) - n(i));
    l(i) = l(i) * a(i) + sum(j, e(i, j));
    o(i, d) = (o(i, d) * a(i)).when(a(i) != 1);
    o(i, d) += sum(j, convert(ScalarType::f16, e(i, j)) * V(b, h / (H / G), j, d));
    m(i) = n(i);
  });
  O(b, h, i, d) = convert(ScalarType::f16, select(l(i) == 0, 0, o(i, d) / l(i)));
  return k.finish();
}

}  // namespace

int main() {
  const auto kernel = attention();
  if (!kernel) {
    std::fprintf(stderr, "%s\n", kernel.error().format().c_str());
    return 1;
  }
  const auto compiled = pipethreader::compile(
      *kernel,
      {.dims = {{"B", 1}, {"H", 2}, {"G", 1}, {"S", 150}, {"T", 150}, {"D", 64}}, .data = {PIPETHREADER_DATA_FOLDER}});
  if (!compiled) {
    std::fprintf(stderr, "%s\n", compiled.error().format().c_str());
    return 1;
  }
  std::printf("%s", compiled->report().c_str());
  // The softmax scale, times log2(e) since the kernel computes in powers of 2.
  const auto result = compiled->run_random({.scalars = {{"scale", 1.4426950408889634 / std::sqrt(64.0)}}});
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().format().c_str());
    return 1;
  }
  std::printf("  %s\n", result->check.c_str());
  return result->correct ? 0 : 1;
}
