#include "support/random_kernel.h"

#include <algorithm>
#include <map>

namespace pipethreader::testing {
namespace {

// splitmix64: the same numbers on every platform.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x1234567u) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  int between(int low, int high) { return low + static_cast<int>(next() % static_cast<std::uint64_t>(high - low + 1)); }
  bool chance(int percent) { return between(0, 99) < percent; }
  template <class T>
  const T& pick(const std::vector<T>& items) {
    return items[static_cast<std::size_t>(between(0, static_cast<int>(items.size()) - 1))];
  }

 private:
  std::uint64_t state_;
};

// A size; its name stands in the text as `$name$` until all sizes are known.
struct DimChoice {
  int size = 1;
  bool is_static = false;
  bool keeps_size = false;
};

struct AxisChoice {
  std::string name;
  std::string extent;  // with `$name$` marks
};

// A value over [rows, column] that later parts may use; |elements| <= magnitude.
struct Tile {
  std::string name;
  AxisChoice column;
  double magnitude = 1;
};

std::string number(double value) {
  return fmt::format("{:.6g}", value) + (value == static_cast<int>(value) ? ".0" : "");
}

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : dice_(seed) { result_.seed = seed; }
  RandomKernel make();

 private:
  // --- names and declarations (random_kernel.cpp)
  std::string fresh(const std::string& stem) { return fmt::format("{}{}", stem, ++names_[stem]); }
  std::string dim(const std::string& stem, int low, int high, bool keeps_size = false);
  int size_of(const std::string& extent) const;
  AxisChoice column_axis(int low = 1, int high = 48);
  std::string input(const std::string& stem, const std::string& type, std::vector<AxisChoice> axes, bool batched);
  std::string at(const std::string& value, const std::string& column) const {
    return fmt::format("{}[{},{}]", value, rows_.name, column);
  }
  std::string row(const std::string& value) const { return fmt::format("{}[{}]", value, rows_.name); }
  void say(const std::string& line) { body_ += std::string(static_cast<std::size_t>(2 * depth_), ' ') + line + "\n"; }
  void feature(const std::string& name) { result_.features.insert(name); }
  std::string fresh_type();
  std::string mask(const std::string& axis, const std::string& extent);
  std::string open_loop(const std::string& axis, const std::string& extent, int mask_percent);
  void close_loop(const std::string& combine = {});
  void work(double amount) { work_.push_back(amount); }
  // A chain of two products per row; a parallel column repeats the first.
  void chain_work(double length, double depth, double column) {
    work(columns_parallel_ ? length * (depth + 10) * column : length * (depth + column));
  }

  // --- parts
  Tile load();
  std::string narrowed(Tile& tile);
  Tile product(Tile* from);
  Tile streamed_product(Tile* from);
  Tile attention(Tile* from);
  Tile decay_scan();
  Tile convolution();
  Tile statistics();
  Tile epilogue(Tile tile);
  Tile normalise(Tile tile);
  void streamed_softmax();
  Tile accumulate_by(const std::string& axis, const std::string& extent, const std::string& weight, double magnitude);
  void store(const Tile& tile);
  void store_row(const Tile& tile);
  std::string activation(const std::string& x, double& magnitude);

  void render();
  double total_work() const;

  Dice dice_;
  RandomKernel result_;
  std::map<std::string, int> names_;
  std::map<std::string, DimChoice> dims_;
  std::vector<AxisChoice> batch_;
  std::string group_;  // the dim G of grouped heads, or empty
  AxisChoice rows_;
  bool rows_parallel_ = true;
  bool columns_parallel_ = false;  // the column axis of the only part is parallel
  std::string type_;               // of most product operands
  std::vector<std::string> parameters_, outputs_, parallel_, inner_, require_;
  std::string body_;
  int depth_ = 1, loops_ = 0;
  int static_percent_ = 30;  // of the sizes that are written as numbers
  std::vector<double> work_;
};

// --- names and declarations ------------------------------------------------------------------------------------------

std::string Generator::dim(const std::string& stem, int low, int high, bool keeps_size) {
  const std::string name = fresh(stem);
  DimChoice choice;
  choice.size = dice_.between(low, high);
  if (dice_.chance(15)) choice.size = std::clamp(8 * ((choice.size + 7) / 8), low, high);
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
  if (axes.size() == 2 && dice_.chance(35)) {
    std::swap(axes[0], axes[1]);
    feature("transposed");
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

// --- parts -----------------------------------------------------------------------------------------------------------

Tile Generator::load() {
  const AxisChoice column = column_axis();
  const std::string type = fresh_type();
  const std::string x = input("X", type, {rows_, column}, true);
  const std::string name = fresh("x");
  say(fmt::format("{} = f32({}) * {};", at(name, column.name), x, number(dice_.pick(std::vector<double>{1, 0.5, 2}))));
  return {name, column, 2};
}

// The tile in the type of product operands, scaled down if its numbers could grow too large.
std::string Generator::narrowed(Tile& tile) {
  std::string expr = at(tile.name, tile.column.name);
  double factor = 1;
  while (tile.magnitude * factor > 16) factor /= 2;
  if (factor < 1) expr += fmt::format(" * {}", number(factor));
  tile.magnitude *= factor;
  const std::string name = fresh("c");
  say(fmt::format("{} = {}({});", at(name, tile.column.name), type_, expr));
  return name;
}

Tile Generator::product(Tile* from) {
  feature("product");
  std::string left;
  AxisChoice reduced = {fresh("k"), {}};
  double magnitude = 1;
  std::string left_type = type_;
  if (from != nullptr) {
    feature("chained");
    const std::string operand = narrowed(*from);
    reduced.extent = from->column.extent;
    magnitude = from->magnitude;
    left = at(operand, reduced.name);
  } else {
    reduced.extent = dim("K", 1, 80);
    left_type = fresh_type();
    left = input("A", left_type, {rows_, reduced}, true);
  }
  const AxisChoice column = column_axis();
  const std::string right_type = dice_.chance(90) ? left_type : fresh_type();
  if (left_type != "f32" && right_type != "f32") feature("short_product");
  const auto weights = [&] { return input("W", right_type, {reduced, column}, dice_.chance(40)); };
  const std::string sum = fmt::format("sum[{}: {}]", reduced.name, reduced.extent);
  const std::string y = fresh("y");
  say(fmt::format("{} = {} {} * {};", at(y, column.name), sum, left, weights()));
  magnitude *= size_of(reduced.extent);
  work(static_cast<double>(size_of(reduced.extent)) * size_of(column.extent));
  if (from != nullptr || !dice_.chance(25)) return {y, column, magnitude};
  // A second product of the same operand gates the first.
  work(static_cast<double>(size_of(reduced.extent)) * size_of(column.extent));
  const std::string gate = fresh("g"), gated = fresh("y");
  say(fmt::format("{} = {} {} * {};", at(gate, column.name), sum, left, weights()));
  say(fmt::format("{0} = {1} * sigmoid({1}) * {2};", at(gated, column.name), at(gate, column.name),
                  at(y, column.name)));
  feature("epilogue");
  return {gated, column, magnitude * magnitude};
}

// acc[i,d] += sum[axis] weight * input, in the open loop over `axis`.
Tile Generator::accumulate_by(const std::string& axis, const std::string& extent, const std::string& weight,
                              double magnitude) {
  const AxisChoice column = column_axis();
  const std::string acc = fresh("acc");
  const std::string values = input("V", type_, {{axis, extent}, column}, dice_.chance(60));
  say(fmt::format("{} += sum[{}] {} * {};", at(acc, column.name), axis, weight, values));
  work(static_cast<double>(size_of(extent)) * size_of(column.extent));
  return {acc, column, magnitude * size_of(extent)};
}

Tile Generator::streamed_product(Tile* from) {
  feature("product");
  feature("carried");
  if (type_ != "f32") feature("short_product");
  feature(type_);
  const std::string axis = fresh("j"), extent = dim("J", 1, 80);
  const std::string operand = from != nullptr ? narrowed(*from) : "";
  const std::string saved = std::move(body_);
  body_.clear();
  open_loop(axis, extent, 45);
  double magnitude = 1;
  std::string weight;
  if (from != nullptr) {
    feature("chained");
    feature("before_loop");
    const std::string k = fresh("k"), s = fresh("s"), w = fresh("w");
    const std::string keys = input("K", type_, {{axis, extent}, {k, from->column.extent}}, dice_.chance(70));
    say(fmt::format("{} = sum[{}: {}] {} * {};", at(s, axis), k, from->column.extent, at(operand, k), keys));
    work(static_cast<double>(size_of(extent)) * size_of(from->column.extent));
    magnitude = from->magnitude * size_of(from->column.extent);
    double factor = 1;
    while (magnitude * factor > 16) factor /= 2;
    magnitude *= factor;
    const std::string scaled = fmt::format("{} * {}", at(s, axis), number(factor));
    const std::string mapped = dice_.chance(60) ? activation(fmt::format("({})", scaled), magnitude) : scaled;
    say(fmt::format("{} = {}({});", at(w, axis), type_, mapped));
    weight = at(w, axis);
  } else {
    weight = input("A", type_, {rows_, {axis, extent}}, true);
    if (dice_.chance(40)) {
      const std::string w = fresh("w");
      say(fmt::format("{} = {}({});", at(w, axis), type_, activation("f32(" + weight + ")", magnitude)));
      weight = at(w, axis);
    }
  }
  Tile tile = accumulate_by(axis, extent, weight, magnitude);
  const bool counts = !columns_parallel_ && dice_.chance(20);
  const std::string count = counts ? fresh("count") : "";
  if (counts) say(fmt::format("{} += sum[{}] {};", row(count), axis, weight));
  const std::string loop_body = std::move(body_);
  body_ = saved;
  std::string start = "0";
  if (dice_.chance(25)) {
    start = "f32(" + input("Bias", fresh_type(), {tile.column}, false) + ")";
    tile.magnitude += 1;
    feature("epilogue");
  }
  --depth_;
  say(fmt::format("carry {} = {};", at(tile.name, tile.column.name), start));
  if (counts) say(fmt::format("carry {} = 0;", row(count)));
  ++depth_;
  body_ += loop_body;
  std::string combine;
  if (start == "0" && dice_.chance(30)) {
    feature("combine");
    // The partial states in the order the values were declared.
    combine = fmt::format("combine ({0}_b{1}) {{ {2} = {2} + {3};{4} }}", tile.name, counts ? ", " + count + "_b" : "",
                          at(tile.name, tile.column.name), at(tile.name + "_b", tile.column.name),
                          counts ? fmt::format(" {0} = {0} + {1};", row(count), row(count + "_b")) : "");
  }
  close_loop(combine);
  if (counts) {
    feature("several_outputs");
    store_row({count, {}, magnitude * size_of(extent)});
  }
  return tile;
}

Tile Generator::attention(Tile* from) {
  for (const char* name : {"product", "chained", "carried", "row_reduction"}) feature(name);
  if (type_ != "f32") feature("short_product");
  feature(type_);
  const std::string axis = fresh("j"), extent = dim("T", 1, 80), k = fresh("k");
  std::string query, depth;
  if (from != nullptr) {
    const std::string operand = narrowed(*from);
    depth = from->column.extent;
    query = at(operand, k);
    feature("before_loop");
  } else {
    depth = dim("E", 1, 48);
    query = input("Q", type_, {rows_, {k, depth}}, true);
  }
  const AxisChoice column = column_axis();
  const std::string scale = fresh("scale");
  parameters_.push_back(scale + ": f32");
  result_.ranges.push_back({scale, 0.05, 1});
  const bool lazy = dice_.chance(40);
  const std::string power = dice_.chance(70) ? "exp2" : "exp";
  const std::string d = column.name;
  const std::string m = fresh("m"), l = fresh("l"), o = fresh("o"), s = fresh("s"), x = fresh("t"), n = fresh("n"),
                    p = fresh("p"), a = fresh("a");
  say(fmt::format("carry {} = -inf, {} = 0, {} = 0;", row(m), row(l), at(o, d)));
  open_loop(axis, extent, 60);
  const std::string keys = input("K", type_, {{axis, extent}, {k, depth}}, true);
  const std::string values = input("V", type_, {{axis, extent}, column}, true);
  say(fmt::format("{} = sum[{}: {}] {} * {};", at(s, axis), k, depth, query, keys));
  say(fmt::format("{} = max({}, max[{}] {} * {});", row(x), row(m), axis, at(s, axis), scale));
  say(lazy ? fmt::format("{0} = select({1} - {2} > {3}, {1}, {2});", row(n), row(x), row(m), dice_.between(2, 8))
           : fmt::format("{} = {};", row(n), row(x)));
  say(fmt::format("{} = {}({}({} * {} - {}));", at(p, axis), type_, power, at(s, axis), scale, row(n)));
  say(fmt::format("{} = {}({} - {});", row(a), power, row(m), row(n)));
  say(fmt::format("{0} = {0} * {1} + sum[{2}] {3};", row(l), row(a), axis, at(p, axis)));
  const bool guarded = dice_.chance(50);
  if (guarded) feature("when");
  say(fmt::format("{0} = {0} * {1}{2};", at(o, d), row(a), guarded ? fmt::format(" when {} != 1", row(a)) : ""));
  say(fmt::format("{} += sum[{}] {} * {};", at(o, d), axis, at(p, axis), values));
  say(fmt::format("{} = {};", row(m), row(n)));
  chain_work(size_of(extent), size_of(depth), size_of(column.extent));
  std::string combine;
  if (dice_.chance(25)) {
    feature("combine");
    combine = fmt::format(
        "combine ({0}_b, {1}_b, {2}_b) {{ {0}_t[{3}] = max({0}[{3}], {0}_b[{3}]); "
        "{0}_u[{3}] = select({1}[{3}] == 0, 0, {5}({0}[{3}] - {0}_t[{3}])); "
        "{0}_v[{3}] = select({1}_b[{3}] == 0, 0, {5}({0}_b[{3}] - {0}_t[{3}])); "
        "{1}[{3}] = {1}[{3}] * {0}_u[{3}] + {1}_b[{3}] * {0}_v[{3}]; "
        "{2}[{3},{4}] = {2}[{3},{4}] * {0}_u[{3}] + {2}_b[{3},{4}] * {0}_v[{3}]; {0}[{3}] = {0}_t[{3}]; }}",
        m, l, o, rows_.name, d, power);
  }
  close_loop(combine);
  const std::string y = fresh("y");
  say(fmt::format("{0} = select({1} == 0, 0, {2} / {1});", at(y, d), row(l), at(o, d)));
  if (!columns_parallel_ && dice_.chance(30)) {
    feature("several_outputs");
    const std::string lse = fresh("lse");
    say(fmt::format("{0} = select({1} == 0, 0, {2} + {3}({1}));", row(lse), row(l), row(m),
                    power == "exp" ? "log" : "log2"));
    store_row({lse, {}, 100});
  }
  return {y, column, 1};
}

// A decayed sum over earlier rows, with a state that was there before the loop.
Tile Generator::decay_scan() {
  for (const char* name : {"product", "chained", "carried", "mask", "before_loop"}) feature(name);
  if (type_ != "f32") feature("short_product");
  feature(type_);
  if (++loops_ > 1) feature("several_loops");
  const std::string axis = fresh("j"), n = fresh("k"), states = dim("E", 1, 40);
  const AxisChoice column = column_axis();
  const std::string decay = input("dA", "f32", {rows_}, true);
  const std::string name = decay.substr(0, decay.find('['));
  std::string earlier = decay;
  earlier.replace(earlier.rfind(rows_.name), rows_.name.size(), axis);
  const std::string y = fresh("y"), w = fresh("w"), before = fresh("e");
  say(fmt::format("{} = exp({});", row(before), decay));
  say(fmt::format("carry {} = {} * sum[{}: {}] {} * {};", at(y, column.name), row(before), n, states,
                  input("Cm", type_, {rows_, {n, states}}, true), input("St", type_, {{n, states}, column}, true)));
  say(fmt::format("for {}: {} where {} <= {} {{", axis, rows_.extent, axis, rows_.name));
  ++depth_;
  say(fmt::format("{} = {}({} * exp({} - {}));", at(w, axis), type_,
                  input("C", type_, {rows_, {axis, rows_.extent}}, dice_.chance(50)), decay, earlier));
  say(fmt::format("{} += sum[{}] {} * {};", at(y, column.name), axis, at(w, axis),
                  input("X", type_, {{axis, rows_.extent}, column}, true)));
  close_loop();
  chain_work(size_of(rows_.extent), 1, size_of(column.extent));
  work(static_cast<double>(size_of(column.extent)) * size_of(states));
  return {y, column, 8.0 * size_of(rows_.extent) + 3 * size_of(states)};
}

Tile Generator::convolution() {
  for (const char* name : {"product", "window"}) feature(name);
  if (type_ != "f32") feature("short_product");
  feature(type_);
  const std::string r = fresh("r"), taps = dim("R", 1, 5), c = fresh("k"), channels = dim("E", 1, 24);
  const AxisChoice column = column_axis();
  const std::string weights = input("W", type_, {{r, taps}, {c, channels}, column}, false);
  const std::string y = fresh("y");
  std::string where, signal;
  if (dice_.chance(50)) {
    // Padded: points outside are excluded.
    const int pad = dice_.between(1, 2);
    const std::string at_signal = fmt::format("{} + {} - {}", rows_.name, r, pad);
    where = fmt::format(" where {0} >= 0 && {0} < {1}", at_signal, rows_.extent);
    feature("mask");
    signal = input("X", type_, {{at_signal, rows_.extent}, {c, channels}}, true);
  } else {
    const int stride = dice_.between(1, 3), dilation = dice_.between(1, 2);
    signal = input("X", type_,
                   {{fmt::format("{}*{} + {}*{}", rows_.name, stride, r, dilation),
                     fmt::format("{}*{} + {}*{}", rows_.extent, stride, taps, dilation)},
                    {c, channels}},
                   true);
  }
  say(fmt::format("{} = sum[{}: {}, {}: {}{}] {} * {};", at(y, column.name), r, taps, c, channels, where, signal,
                  weights));
  work(static_cast<double>(size_of(taps)) * size_of(channels) * size_of(column.extent));
  return {y, column, static_cast<double>(size_of(taps) * size_of(channels))};
}

// Running statistics of rows, and the rows scaled by them in a second loop that stores as it goes.
Tile Generator::statistics() {
  for (const char* name : {"carried", "row_reduction", "several_outputs"}) feature(name);
  const std::string axis = fresh("j"), extent = dim("J", 1, 80);
  const std::string top = fresh("top"), low = fresh("low"), squares = fresh("sq"), x = fresh("x");
  const std::string values = input("X", fresh_type(), {rows_, {axis, extent}}, true);
  say(fmt::format("carry {} = -inf, {} = inf, {} = 0;", row(top), row(low), row(squares)));
  open_loop(axis, extent, 40);
  say(fmt::format("{} = f32({});", at(x, axis), values));
  say(fmt::format("{0} = max({0}, max[{1}] {2});", row(top), axis, at(x, axis)));
  say(fmt::format("{0} = min({0}, min[{1}] {2} * {2});", row(low), axis, at(x, axis)));
  say(fmt::format("{0} += sum[{1}] {2} * {2};", row(squares), axis, at(x, axis)));
  std::string combine;
  if (dice_.chance(50)) {
    feature("combine");
    combine = fmt::format(
        "combine ({0}_b, {1}_b, {2}_b) {{ {0}[{3}] = max({0}[{3}], {0}_b[{3}]); {1}[{3}] = min({1}[{3}], {1}_b[{3}]); "
        "{2}[{3}] = {2}[{3}] + {2}_b[{3}]; }}",
        top, low, squares, rows_.name);
  }
  close_loop(combine);
  const std::string spread = fresh("v");
  say(fmt::format("{0} = select({1} == -inf, 0, {1} - {2});", row(spread), row(top), row(low)));
  store_row({spread, {}, 2});
  work(4.0 * size_of(extent));
  const AxisChoice column = column_axis();
  const std::string y = fresh("y"), scaled = input("Z", fresh_type(), {rows_, column}, true);
  say(fmt::format("{} = {} * rsqrt({} / {} + 0.25);", at(y, column.name), "f32(" + scaled + ")", row(squares), extent));
  return {y, column, 2};
}

// Two passes over a streamed row: its maximum and sum, then the normalised row.
void Generator::streamed_softmax() {
  for (const char* name : {"carried", "row_reduction"}) feature(name);
  const std::string first = fresh("j"), second = fresh("j"), extent = dim("J", 1, 80);
  const std::string values = input("X", fresh_type(), {rows_, {first, extent}}, true);
  std::string again = values;
  again.replace(again.rfind(first), first.size(), second);
  const std::string m = fresh("m"), l = fresh("l"), n = fresh("n"), out = fresh("P");
  say(fmt::format("carry {} = -inf, {} = 0;", row(m), row(l)));
  const std::string where = open_loop(first, extent, 40);
  say(fmt::format("{} = max({}, max[{}] f32({}) * 2.0);", row(n), row(m), first, values));
  say(fmt::format("{0} = {0} * exp({1} - {2}) + sum[{3}] exp({4} * 2.0 - {2});", row(l), row(m), row(n), first,
                  "f32(" + values + ")"));
  say(fmt::format("{} = {};", row(m), row(n)));
  close_loop();
  std::string same = where;
  for (std::size_t k = same.find(first); k != std::string::npos; k = same.find(first, k + second.size()))
    same.replace(k, first.size(), second);
  ++loops_;
  feature("several_loops");
  say(fmt::format("for {}: {}{}{} {{", second, extent, same.empty() ? "" : " where ", same));
  ++depth_;
  const std::string type = fresh_type();
  std::string index;
  for (const AxisChoice& axis : batch_) index += axis.name + ",";
  std::string shape;
  for (const AxisChoice& axis : batch_) shape += axis.extent + ",";
  say(fmt::format("{}[{}{},{}] = {}(exp(f32({}) * 2.0 - {}) / {});", out, index, rows_.name, second, type, again,
                  row(m), row(l)));
  outputs_.push_back(fmt::format("{}: {}[{}{},{}]", out, type, shape, rows_.extent, extent));
  close_loop();
  work(6.0 * size_of(extent));
}

std::string Generator::activation(const std::string& x, double& magnitude) {
  feature("epilogue");
  const double large = magnitude;
  switch (dice_.between(0, 9)) {
    case 0:
      return fmt::format("max({}, 0)", x);
    case 1:
      return fmt::format("{0} * sigmoid({0})", x);
    case 2:
      magnitude = 1;
      return fmt::format("tanh({})", x);
    case 3:
      return fmt::format("0.5 * {0} * (1 + erf({0} * 0.70710678))", x);
    case 4:
      magnitude = std::min(large, 3.0);
      return fmt::format("min(max({}, -3), 3)", x);
    case 5:
      return fmt::format("select({0} > 0, {0}, 0.125 * {0})", x);
    case 6:
      magnitude = 2;
      return fmt::format("sin({0}) + cos({0})", x);
    case 7:
      magnitude = 1 + large;
      return fmt::format("log(abs({}) + 1)", x);
    case 8: {
      double factor = 1;
      while (large * factor > 2) factor /= 2;
      magnitude = 8;
      return fmt::format("exp({} * {})", x, number(factor));
    }
    default:
      magnitude = 1;
      return fmt::format("{0} / (1 + abs({0}))", x);
  }
}

Tile Generator::epilogue(Tile tile) {
  feature("epilogue");
  const std::string y = fresh("y"), d = tile.column.name;
  std::string expr = at(tile.name, d);
  double factor = 1;
  while (tile.magnitude * factor > 64) factor /= 2;
  if (factor < 1) expr = fmt::format("{} * {}", expr, number(factor));
  tile.magnitude *= factor;
  if (dice_.chance(50)) {
    expr += " + f32(" + input("Bias", fresh_type(), {tile.column}, false) + ")";
    tile.magnitude += 1;
  }
  if (dice_.chance(25)) {
    expr += " + f32(" + input("R", fresh_type(), {rows_, tile.column}, true) + ")";
    tile.magnitude += 1;
  }
  say(fmt::format("{} = {};", at(y, d), expr));
  tile.name = y;
  if (dice_.chance(70)) {
    const std::string z = fresh("z");
    say(fmt::format("{} = {};", at(z, d), activation(at(y, d), tile.magnitude)));
    tile.name = z;
  }
  if (dice_.chance(25)) {
    feature("when");
    const std::string condition = dice_.pick(std::vector<std::string>{
        fmt::format("{} % 3 != 1", rows_.name), fmt::format("{} >= 2", d), fmt::format("{0} < 0", at(tile.name, d))});
    say(fmt::format("{0} = -{0} when {1};", at(tile.name, d), condition));
  }
  return tile;
}

Tile Generator::normalise(Tile tile) {
  feature("row_reduction");
  const std::string d = tile.column.name, r = fresh("r"), y = fresh("y"), e = fresh("e"), z = fresh("z");
  const std::string own = at(tile.name, d);
  double factor = 1;
  while (tile.magnitude * factor > 8) factor /= 2;
  switch (dice_.between(0, 2)) {
    case 0:
      say(fmt::format("{} = sum[{}] {} * {};", row(r), d, own, own));
      say(fmt::format("{} = {} * rsqrt({} / {} + 0.125);", at(y, d), own, row(r), tile.column.extent));
      return {y, tile.column, tile.magnitude * 3};
    case 1:
      say(fmt::format("{} = max[{}] {};", row(r), d, own));
      say(fmt::format("{} = exp(({} - {}) * {});", at(e, d), own, row(r), number(factor)));
      say(fmt::format("{} = sum[{}] {};", row(z), d, at(e, d)));
      say(fmt::format("{} = {} / {};", at(y, d), at(e, d), row(z)));
      return {y, tile.column, 1};
    default:
      say(fmt::format("{} = sum[{}] {};", row(r), d, own));
      say(fmt::format("{} = {} - {} / {};", at(y, d), own, row(r), tile.column.extent));
      return {y, tile.column, tile.magnitude * 2};
  }
}

void Generator::store(const Tile& tile) {
  const std::string type = dice_.chance(60) ? type_ : "f32";
  feature(type);
  std::string expr = at(tile.name, tile.column.name);
  double factor = 1;
  while (type == "f16" && tile.magnitude * factor > 30000) factor /= 2;
  if (factor < 1) expr += fmt::format(" * {}", number(factor));
  std::string index, shape;
  for (const AxisChoice& axis : batch_) {
    index += axis.name + ",";
    shape += axis.extent + ",";
  }
  const bool transposed = dice_.chance(20);
  if (transposed) feature("transposed");
  const std::string& i = rows_.name;
  const std::string& d = tile.column.name;
  index += transposed ? d + "," + i : i + "," + d;
  shape += transposed ? tile.column.extent + "," + rows_.extent : rows_.extent + "," + tile.column.extent;
  const std::string out = fresh("O");
  outputs_.push_back(fmt::format("{}: {}[{}]", out, type, shape));
  const bool guarded = dice_.chance(8);
  if (guarded) feature("when");
  say(fmt::format("{}[{}] = {};", out, index,
                  (type == "f32" ? expr : fmt::format("{}({})", type, expr)) +
                      (guarded ? fmt::format(" when {} % 4 != 2", d) : "")));
}

void Generator::store_row(const Tile& tile) {
  const std::string out = fresh("Row");
  std::string index, shape;
  for (const AxisChoice& axis : batch_) {
    index += axis.name + ",";
    shape += axis.extent + ",";
  }
  outputs_.push_back(fmt::format("{}: f32[{}{}]", out, shape, rows_.extent));
  feature("f32");
  say(fmt::format("{}[{}{}] = {};", out, index, rows_.name, row(tile.name)));
}

// --- the whole -------------------------------------------------------------------------------------------------------

double Generator::total_work() const {
  double points = size_of(rows_.extent);
  for (const AxisChoice& axis : batch_) points *= size_of(axis.extent);
  double sum = 10;
  for (const double w : work_) sum += w;
  return points * sum;
}

void Generator::render() {
  if (!group_.empty() && !result_.features.contains("gqa")) {
    require_.clear();
    dims_.erase(group_.substr(1, group_.size() - 2));
  }
  for (auto& [name, choice] : dims_) {
    feature(choice.is_static ? "static" : "dynamic");
    if (choice.size % 8 != 0) feature("ragged");
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
  type_ = dice_.pick(std::vector<std::string>{"f16", "f16", "f16", "f16", "bf16", "bf16", "bf16", "f32"});
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
  rows_ = {"i", dim("S", 1, 48)};
  rows_parallel_ = batch_.empty() || dice_.chance(85);
  (rows_parallel_ ? parallel_ : inner_).push_back(fmt::format("i: {}", rows_.extent));
  if (!rows_parallel_) feature("inner_rows");

  const int parts = dice_.pick(std::vector<int>{1, 1, 2, 2, 3});
  columns_parallel_ = parts == 1 && rows_parallel_ && dice_.chance(50);
  const int start = dice_.between(0, 99);
  Tile tile = start < 25                        ? product(nullptr)
              : start < 40                      ? streamed_product(nullptr)
              : start < 64                      ? attention(nullptr)
              : start < 72 && rows_parallel_    ? decay_scan()
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
  for (int round = 0; round < 16 && total_work() > 1.2e5; ++round) {
    const double before = total_work();
    for (auto& [name, choice] : dims_)
      if (!choice.keeps_size && choice.size > 4) choice.size = std::max(4, choice.size * 4 / 5);
    for (double& w : work_) w *= 0.64;
    if (total_work() >= before) break;
  }
  render();
  return result_;
}

}  // namespace

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
