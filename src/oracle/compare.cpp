#include <algorithm>
#include <cmath>
#include <limits>

#include "oracle/oracle.h"
#include "oracle/tiles.h"

namespace pipethreader::oracle {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();

// By how much an element is outside its bound: 0 or less is right; infinite for NaN or infinities that do not match.
double excess(double actual, double expected, double bound) {
  if (std::isnan(expected) || std::isnan(actual)) return std::isnan(expected) && std::isnan(actual) ? 0 : kUnknown;
  if (std::isinf(expected) || std::isinf(actual)) return actual == expected ? 0 : kUnknown;
  return std::fabs(actual - expected) - bound;
}

std::vector<std::int64_t> index_of(std::int64_t element, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> index(shape.size());
  for (std::size_t k = shape.size(); k-- > 0;) {
    index[k] = element % shape[k];
    element /= shape[k];
  }
  return index;
}

// The comparison of one tensor; `other_bounds`, if given, adds to the bounds.
void compare_tensor(const OutputTensor& expected, const std::vector<double>& actual,
                    const std::vector<double>* other_bounds, Report& report, double& worst) {
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (expected.written[i] == 0) {
      ++report.unwritten;
      continue;
    }
    ++report.compared;
    const double bound = expected.bounds[i] + (other_bounds != nullptr ? (*other_bounds)[i] : 0);
    if (bound == kUnknown) {
      ++report.unbounded;
      continue;
    }
    const double over = excess(actual[i], expected.values[i], bound);
    const double difference = std::fabs(actual[i] - expected.values[i]);
    if (std::isnan(actual[i]) && std::isnan(expected.values[i])) ++report.undefined;
    if (bound > 0 && std::isfinite(difference))
      report.largest_share = std::max(report.largest_share, difference / bound);
    if (over <= 0) continue;
    ++report.wrong;
    const double relative = over == kUnknown ? kUnknown : over / (bound + std::numeric_limits<double>::min());
    if (report.worst && relative <= worst) continue;
    worst = relative;
    report.worst =
        Mismatch{expected.name, index_of(expected.element(i), expected.shape), actual[i], expected.values[i], bound};
  }
}

struct Attempt {
  std::string name;
  Partition partition;
};

std::vector<Attempt> attempts(const kernel::Kernel& kernel, std::uint64_t seed) {
  using Kind = LoopTiles::Kind;
  Random random(seed);
  std::vector<Attempt> result = {{"the whole", Partition::whole()}, {"tiles of 1", Partition::one()}};
  for (int i = 0; i < 2; ++i) result.push_back({"ragged tiles", Partition::ragged(random.next())});
  const std::int64_t size = random.between(2, 9);
  result.push_back({fmt::format("tiles of {}", size), Partition::fixed(size)});
  result.push_back(
      {"ragged tiles in a random order", {{.kind = Kind::ragged, .shuffle = true, .seed = random.next()}, {}}});
  result.push_back({"tiles of 1 in a random order", {{.kind = Kind::one, .shuffle = true, .seed = random.next()}, {}}});
  const auto has_combine = [](const kernel::Statement& s) {
    const auto* loop = std::get_if<kernel::Loop>(&s.node);
    return loop != nullptr && loop->combine.has_value();
  };
  if (std::ranges::any_of(kernel.statements, has_combine)) {
    result.push_back({"ragged tiles, combined", {{.kind = Kind::ragged, .split = true, .seed = random.next()}, {}}});
    result.push_back({"tiles of 1 in a random order, combined",
                      {{.kind = Kind::one, .shuffle = true, .split = true, .seed = random.next()}, {}}});
    result.push_back({"one empty part, combined", {{.kind = Kind::whole, .split = true}, {}}});
  }
  return result;
}

}  // namespace

std::string Report::format() const {
  std::string text = fmt::format("{} of {} elements wrong", wrong, compared);
  if (worst)
    text += fmt::format("; worst {}[{}]: actual {:.9g}, expected {:.9g}, allowed difference {:.3g}", worst->tensor,
                        fmt::join(worst->index, ","), worst->actual, worst->expected, worst->bound);
  if (undefined > 0) text += fmt::format("; {} are NaN, as the oracle's", undefined);
  if (unbounded > 0) text += fmt::format("; {} without a bound", unbounded);
  if (unwritten > 0) text += fmt::format("; {} not written by the kernel", unwritten);
  return text + fmt::format("; largest error: {:#.3g} of what rounding allows", largest_share);
}

Result<Report> compare(const Outputs& expected, const std::vector<std::vector<double>>& actual) {
  if (actual.size() != expected.tensors.size())
    return fail("expected {} outputs, found {}", expected.tensors.size(), actual.size());
  Report report;
  double worst = 0;
  for (std::size_t t = 0; t < actual.size(); ++t) {
    const OutputTensor& tensor = expected.tensors[t];
    if (actual[t].size() != tensor.values.size())
      return fail("output '{}' {} {} elements, found {}", tensor.name, tensor.sample ? "is known at" : "has",
                  tensor.values.size(), actual[t].size());
    compare_tensor(tensor, actual[t], nullptr, report, worst);
  }
  return report;
}

Result<void> check_partition_independence(const kernel::Kernel& kernel, const Inputs& inputs, std::uint64_t seed) {
  const std::vector<Attempt> all = attempts(kernel, seed);
  std::vector<Outputs> results;
  for (const Attempt& attempt : all) {
    Result<Outputs> outputs = evaluate(kernel, inputs, attempt.partition);
    if (!outputs) return tl::unexpected(outputs.error());
    results.push_back(std::move(*outputs));
  }
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      Report report;
      double worst = 0;
      for (std::size_t t = 0; t < results[i].tensors.size(); ++t) {
        const OutputTensor& a = results[j].tensors[t];
        const OutputTensor& b = results[i].tensors[t];
        if (a.written != b.written)
          return fail("{} writes other elements of '{}' than {}", all[i].name, a.name, all[j].name);
        compare_tensor(a, b.values, &b.bounds, report, worst);
      }
      if (!report.ok())
        return fail("the result of kernel '{}' depends on how its loops are cut into tiles: {} against {}: {}",
                    kernel.name, all[i].name, all[j].name, report.format());
    }
  return {};
}

}  // namespace pipethreader::oracle
