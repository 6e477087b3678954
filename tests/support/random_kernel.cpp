#include "support/random_kernel.h"

#include <algorithm>

#include "support/random_kernel_generator.h"

namespace pipethreader::testing {

// --- names and declarations ------------------------------------------------------------------------------------------

std::string Generator::dim(const std::string& stem, int low, int high, bool keeps_size) {
  const std::string name = fresh(stem);
  DimChoice choice;
  choice.size = dice_.between(low, high);
  if (aligned_ && !keeps_size) choice.size = std::clamp(choice.size / 8 * 8, 8, high);
  choice.is_static = dice_.chance(static_percent_);
  choice.keeps_size = keeps_size;
  dims_[name] = choice;
  return "$" + name + "$";
}

int Generator::size_of(const std::string& extent) const { return dims_.at(extent.substr(1, extent.size() - 2)).size; }

AxisChoice Generator::column_axis(int low, int high) {
  const AxisChoice axis = {fresh("d"), dim("D", low, high)};
  (columns_parallel_ ? parallel_ : inner_).push_back(fmt::format("{}: {}", axis.name, axis.extent));
  return axis;
}

std::string Generator::fresh_type() {
  const std::string type = dice_.chance(85) ? type_ : dice_.pick(std::vector<std::string>{"f16", "bf16", "f32"});
  feature(type);
  return type;
}

// Declares an input over some of the batch axes and the given ones, in some order, and returns how it is read.
std::string Generator::input(const std::string& stem, const std::string& type, std::vector<AxisChoice> axes,
                             bool batched) {
  std::vector<AxisChoice> all;
  for (const AxisChoice& axis : batch_) {
    if (!batched && dice_.chance(60)) {
      feature("broadcast");
      continue;
    }
    if (axis.name == "h" && !group_.empty() && dice_.chance(60)) {
      feature("gqa");
      all.push_back({fmt::format("h/({}/{})", axis.extent, group_), group_});
    } else {
      all.push_back(axis);
    }
  }
  const bool window = axes[0].extent.front() != '$' || axes[0].name.find(' ') != std::string::npos;
  if (axes.size() == 2 && dice_.chance(window ? 5 : 35)) {  // windows mostly slide over rows
    std::swap(axes[0], axes[1]);
    feature("transposed");
  }
  for (auto& [dim, choice] : dims_) {
    if (axes.size() >= 2 && axes.back().extent.find("$" + dim + "$") != std::string::npos) choice.contiguous = true;
  }
  all.insert(all.end(), axes.begin(), axes.end());
  std::string shape, index;
  for (const AxisChoice& axis : all) {
    shape += (shape.empty() ? "" : ",") + axis.extent;
    index += (index.empty() ? "" : ",") + axis.name;
  }
  const std::string name = fresh(stem);
  parameters_.push_back(fmt::format("{}: {}[{}]", name, type, shape));
  return fmt::format("{}[{}]", name, index);
}

// A condition on a loop's axis; without a parallel row axis it may not use the rows.
std::string Generator::mask(const std::string& axis, const std::string& extent) {
  feature("mask");
  const std::string& i = rows_.name;
  const int kind = dice_.between(rows_parallel_ ? 0 : 4, 8);
  switch (kind) {
    case 0:
      return fmt::format("{} <= {}", axis, i);
    case 1:
      return fmt::format("{} < {} + {}", axis, i, dice_.between(1, 6));
    case 2:
      return fmt::format("{} <= {} && {} - {} < {}", axis, i, i, axis, dice_.between(1, 12));
    case 3:
      return fmt::format("{} >= {}", axis, i);
    case 4:
      return fmt::format("{} % {} != {}", axis, dice_.between(2, 4), dice_.between(0, 1));
    case 5:
      return fmt::format("{} >= {}", axis, dice_.between(1, 5));
    case 6: {
      const std::string lengths = fresh("Len");
      result_.ranges.push_back({lengths, 0, static_cast<double>(size_of(extent))});
      if (batch_.empty()) {
        parameters_.push_back(fmt::format("{}: i32", lengths));
        return fmt::format("{} < {}", axis, lengths);
      }
      parameters_.push_back(fmt::format("{}: i32[{}]", lengths, batch_[0].extent));
      return fmt::format("{} < {}[{}]", axis, lengths, batch_[0].name);
    }
    case 7:
      return fmt::format("{} < {} - {}", axis, extent, dice_.between(1, 4));
    default:
      return fmt::format("{} != {} || {} > {}", axis, dice_.between(0, 3), axis, dice_.between(4, 9));
  }
}

std::string Generator::open_loop(const std::string& axis, const std::string& extent, int mask_percent) {
  if (++loops_ > 1) feature("several_loops");
  const bool ordered = dice_.chance(8);
  if (ordered) feature("ordered");
  const std::string where = dice_.chance(mask_percent) ? mask(axis, extent) : "";
  say(fmt::format("for {}{}: {}{}{} {{", ordered ? "ordered " : "", axis, extent, where.empty() ? "" : " where ",
                  where));
  ++depth_;
  return where;
}

void Generator::close_loop(const std::string& combine) {
  --depth_;
  say(combine.empty() ? "}" : "} " + combine);
}

// --- the whole -------------------------------------------------------------------------------------------------------

double Generator::total_work() const {
  double points = size_of(rows_.extent);
  for (const AxisChoice& axis : batch_) points *= size_of(axis.extent);
  double sum = 10;
  for (const double w : work_) sum += w;
  return points * sum;
}

// Smaller, until it is quick to evaluate.
void Generator::shrink() {
  for (int round = 0; round < 16 && total_work() > 4e5; ++round) {
    const double before = total_work();
    for (auto& [name, choice] : dims_) {
      const int least = aligned_ ? 8 : 4;
      if (choice.keeps_size || choice.size <= least) continue;
      choice.size = choice.size * 4 / 5;
      if (aligned_) choice.size = choice.size / 8 * 8;
      choice.size = std::max(least, choice.size);
    }
    for (double& w : work_) w *= 0.64;
    if (total_work() >= before) break;
  }
}

// Sizes that are not the length of rows may be any without harm to alignment.
void Generator::make_ragged() {
  if (!aligned_) return;
  for (auto& [name, choice] : dims_) {
    if (!choice.contiguous && !choice.keeps_size && dice_.chance(35)) choice.size -= dice_.between(1, 7);
  }
}

void Generator::note_sizes() {
  for (const auto& [name, choice] : dims_) {
    feature(choice.is_static ? "static" : "dynamic");
    if (choice.keeps_size) continue;
    ++result_.all_sizes;
    result_.aligned_sizes += choice.size % 8 == 0 ? 1 : 0;
    if (choice.size % 16 != 0) feature("ragged");
    if (choice.contiguous && choice.size % 8 != 0) feature("unaligned");
  }
}

void Generator::render() {
  if (!group_.empty() && !result_.features.contains("gqa")) {
    require_.clear();
    dims_.erase(group_.substr(1, group_.size() - 2));
  }
  note_sizes();
  for (auto& [name, choice] : dims_) {
    if (!choice.is_static) result_.sizes.push_back({name, static_cast<double>(choice.size)});
  }
  std::string text = fmt::format("kernel random_{}({})\n    -> ({}) {{\n", result_.seed, fmt::join(parameters_, ", "),
                                 fmt::join(outputs_, ", "));
  for (const std::string& require : require_) text += "  require " + require + ";\n";
  if (!parallel_.empty()) text += fmt::format("  parallel {};\n", fmt::join(parallel_, ", "));
  if (!inner_.empty()) text += fmt::format("  inner {};\n", fmt::join(inner_, ", "));
  text += body_ + "}\n";
  for (const auto& [name, choice] : dims_) {
    const std::string mark = "$" + name + "$", shown = choice.is_static ? std::to_string(choice.size) : name;
    for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + shown.size()))
      text.replace(at, mark.size(), shown);
  }
  result_.text = text;
}

RandomKernel Generator::make() {
  aligned_ = dice_.chance(95);
  type_ = dice_.chance(3) ? "f32" : dice_.pick(std::vector<std::string>{"f16", "f16", "f16", "bf16", "bf16"});
  static_percent_ = dice_.pick(std::vector<int>{0, 0, 30, 30, 30, 60, 100});
  if (dice_.chance(50)) batch_.push_back({"b", dim("B", 1, 3, true)});
  if (dice_.chance(45)) {
    const std::string heads = dim("H", 1, 4, true);
    batch_.push_back({"h", heads});
    DimChoice& choice = dims_[heads.substr(1, heads.size() - 2)];
    if (dice_.chance(60)) {
      group_ = dim("G", 1, 2, true);
      choice.size = size_of(group_) * dice_.between(1, 2);
      choice.is_static = dims_[group_.substr(1, group_.size() - 2)].is_static;
      require_.push_back(fmt::format("{} > 0", group_));
      require_.push_back(fmt::format("{} % {} == 0", heads, group_));
    }
  }
  for (const AxisChoice& axis : batch_) parallel_.push_back(fmt::format("{}: {}", axis.name, axis.extent));
  rows_ = {"i", dim("S", 1, 144)};
  rows_parallel_ = batch_.empty() || dice_.chance(85);
  (rows_parallel_ ? parallel_ : inner_).push_back(fmt::format("i: {}", rows_.extent));
  if (!rows_parallel_) feature("inner_rows");

  const int parts = dice_.pick(std::vector<int>{1, 1, 2, 2, 3});
  columns_parallel_ = parts == 1 && rows_parallel_ && dice_.chance(50);
  const int start = dice_.between(0, 99);
  Tile tile = start < 20                        ? product(nullptr)
              : start < 34                      ? streamed_product(nullptr)
              : start < 56                      ? attention(nullptr)
              : start < 63 && rows_parallel_    ? decay_scan()
              : start < 86 || columns_parallel_ ? convolution()
              : start < 93                      ? load()
                                                : statistics();
  for (int part = 1; part < parts; ++part) {
    if (dice_.chance(25)) tile = normalise(tile);
    if (dice_.chance(20)) {
      feature("several_outputs");
      store(tile);
    }
    const int next = dice_.between(0, 99);
    tile = next < 50 ? product(&tile) : next < 80 ? streamed_product(&tile) : attention(&tile);
  }
  if (dice_.chance(60)) tile = epilogue(tile);
  if (!columns_parallel_ && dice_.chance(25)) tile = normalise(tile);
  store(tile);
  if (!columns_parallel_ && dice_.chance(8)) streamed_softmax();
  if (outputs_.size() > 1) feature("several_outputs");
  shrink();
  make_ragged();
  render();
  return result_;
}

RandomKernel random_kernel(std::uint64_t seed) { return Generator(seed).make(); }

std::vector<std::int64_t> sizes_of(const kernel::Kernel& kernel, const RandomKernel& random) {
  std::vector<std::int64_t> sizes;
  for (const kernel::Dim& dim : kernel.dims) {
    const auto found = std::ranges::find(random.sizes, dim.name, &kernel::Binding::name);
    sizes.push_back(found != random.sizes.end() ? static_cast<std::int64_t>(found->value) : dim.size.value_or(1));
  }
  return sizes;
}

}  // namespace pipethreader::testing
