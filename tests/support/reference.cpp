#include "support/reference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <stdexcept>

namespace pipethreader::test {
namespace {

using Values = std::vector<double>;

constexpr double kRoundF16 = 0x1p-11;
constexpr double kRoundF32 = 0x1p-24;

std::size_t size(double value) { return static_cast<std::size_t>(value); }

Expected stored_as_f16(double value, double error) {
  return {value, error + (std::fabs(value) + error) * kRoundF16 + 0x1p-25};
}

// sum of a[i] * b[i] and its error bound.
template <class A, class B>
Expected dot(std::size_t count, A a, B b) {
  Expected sum;
  double magnitude = 0;
  for (std::size_t i = 0; i < count; ++i) {
    sum.value += a(i) * b(i);
    magnitude += std::fabs(a(i) * b(i));
  }
  sum.error = magnitude * kRoundF32 * static_cast<double>(count + 2);
  return sum;
}

std::vector<Expected> matmul(const interpret::Arguments& in, bool bias) {
  const std::size_t rows = size(in.params[0]);
  const std::size_t cols = size(in.params[1]);
  const std::size_t depth = size(in.params[2]);
  const Values& a = in.tensors[0];
  const Values& b = in.tensors[1];
  std::vector<Expected> out;
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < cols; ++j) {
      Expected e = dot(
          depth, [&](std::size_t k) { return a[i * depth + k]; }, [&](std::size_t k) { return b[j * depth + k]; });
      if (bias) {
        const double start = in.tensors[2][j];
        e = {e.value + start, e.error + std::fabs(start) * kRoundF32 * static_cast<double>(depth + 2)};
      } else {
        e = stored_as_f16(e.value, e.error);
      }
      out.push_back(e);
    }
  return out;
}

// exp2 of scores without the running maximum; errors are relative to sums of positive weights.
std::vector<Expected> attention(const interpret::Arguments& in) {
  const std::size_t heads = size(in.params[0]);
  const std::size_t length = size(in.params[1]);
  const double scale = in.params[2];
  constexpr std::size_t depth = 64;
  std::vector<Expected> out;
  for (std::size_t h = 0; h < heads; ++h)
    for (std::size_t i = 0; i < length; ++i) {
      const auto row = [&](const Values& t, std::size_t r) { return t.data() + (h * length + r) * depth; };
      Values weight(i + 1);
      double score_error = 0;
      for (std::size_t j = 0; j <= i; ++j) {
        const Expected s = dot(
            depth, [&](std::size_t d) { return row(in.tensors[0], i)[d]; },
            [&](std::size_t d) { return row(in.tensors[1], j)[d]; });
        weight[j] = s.value * scale;
        score_error = std::max(score_error, std::fabs(scale) * s.error + 8 * kRoundF32 * std::fabs(weight[j]));
      }
      const double largest = *std::ranges::max_element(weight);
      double sum = 0;
      for (double& w : weight) sum += w = std::exp2(w - largest);
      const double relative = 2 * score_error + kRoundF16 + kRoundF32 * static_cast<double>(2 * length + 16);
      for (std::size_t d = 0; d < depth; ++d) {
        double value = 0;
        double magnitude = 0;
        for (std::size_t j = 0; j <= i; ++j) {
          value += weight[j] * row(in.tensors[2], j)[d] / sum;
          magnitude += weight[j] * std::fabs(row(in.tensors[2], j)[d]) / sum;
        }
        out.push_back(stored_as_f16(value, 2 * relative * magnitude + 0x1p-25 * static_cast<double>(length)));
      }
    }
  return out;
}

std::vector<Expected> relu(std::vector<Expected> values) {
  for (Expected& e : values) e.value = std::max(e.value, 0.0);
  return values;
}

std::vector<Expected> softmax(const interpret::Arguments& in) {
  const std::size_t rows = size(in.params[0]);
  const std::size_t cols = size(in.params[1]);
  std::vector<Expected> out;
  for (std::size_t i = 0; i < rows; ++i) {
    const double* row = in.tensors[0].data() + i * cols;
    const double largest = *std::max_element(row, row + cols);
    double sum = 0;
    for (std::size_t j = 0; j < cols; ++j) sum += std::exp(row[j] - largest);
    for (std::size_t j = 0; j < cols; ++j) {
      const double value = std::exp(row[j] - largest) / sum;
      out.push_back({value, value * kRoundF32 * static_cast<double>(cols + 16)});
    }
  }
  return out;
}

std::vector<Expected> scaled(const interpret::Arguments& in, double factor, double offset) {
  std::vector<Expected> out;
  for (const double x : in.tensors[0]) {
    const double value = x * factor + offset;
    out.push_back(stored_as_f16(value, 2 * kRoundF32 * (std::fabs(x * factor) + std::fabs(value))));
  }
  return out;
}

}  // namespace

interpret::Arguments random_arguments(const program::Program& program, std::vector<double> params, std::uint64_t seed) {
  interpret::Arguments arguments;
  arguments.params = std::move(params);
  std::mt19937_64 random(seed);
  for (const program::Tensor& tensor : program.tensors) {
    Values& values = arguments.tensors.emplace_back();
    if (tensor.output) continue;
    std::int64_t count = 1;
    for (const program::ExprId extent : tensor.shape) count *= program::evaluate(program, extent, arguments.params);
    for (std::int64_t i = 0; i < count; ++i) {
      const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
      values.push_back(round_to(tensor.type, 2 * unit - 1));
    }
  }
  return arguments;
}

std::vector<Expected> reference(const std::string& example, const interpret::Arguments& arguments) {
  if (example == "matmul" || example == "cluster_matmul") return matmul(arguments, false);
  if (example == "turns") return relu(matmul(arguments, false));
  if (example == "softmax_row") return softmax(arguments);
  if (example == "plain_copies") return matmul(arguments, true);
  if (example == "attention") return attention(arguments);
  if (example == "scale_tile") return scaled(arguments, arguments.params[2], 1);
  if (example == "bulk_epilogue") return scaled(arguments, 2, 0);
  throw std::runtime_error("no reference for " + example);
}

std::vector<std::vector<double>> sizes_for(const std::string& example) {
  if (example == "matmul") return {{128, 128, 64}, {130, 200, 8}, {256, 128, 328}, {64, 256, 192}, {100, 120, 0}};
  if (example == "turns") return {{128, 128, 64}, {130, 200, 200}, {64, 130, 72}};
  if (example == "cluster_matmul") return {{256, 128, 64}, {300, 200, 328}, {100, 130, 8}};
  if (example == "softmax_row") return {{1, 1}, {5, 1024}, {16, 300}};
  if (example == "plain_copies") return {{64, 64, 64}, {65, 70, 33}, {10, 130, 200}, {64, 64, 0}};
  if (example == "attention") return {{1, 64, 0.18}, {2, 256, 0.18}, {1, 129, 0.5}, {3, 1, 1}, {1, 200, 0.18}};
  if (example == "scale_tile") return {{64, 64, 2}, {65, 130, 0.5}, {1, 1, -3}};
  if (example == "bulk_epilogue") return {{128, 64}, {300, 200}, {1, 8}, {129, 72}};
  throw std::runtime_error("no sizes for " + example);
}

}  // namespace pipethreader::test
