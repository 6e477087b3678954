// What random kernels are made of: products, streamed products, attention, scans, windows, statistics, epilogues.
#include <algorithm>

#include "support/random_kernel_generator.h"

namespace pipethreader::testing {

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

// An operand over the open loop's axis and another: an input, or what the loop makes of one under the name `own` of the
// other axis.
std::string Generator::operand(const std::string& stem, const AxisChoice& streamed, const AxisChoice& other,
                               const std::string& own) {
  if (!dice_.chance(30)) return input(stem, type_, {streamed, other}, true);
  feature("prepared");
  const std::string name = fresh("q");
  const std::string read = input(stem, type_, {streamed, {own, other.extent}}, true);
  say(fmt::format("{}[{},{}] = {}(f32({}) * f32({}));", name, streamed.name, own, type_, read,
                  input("Scale", fresh_type(), {streamed}, true)));
  return fmt::format("{}[{},{}]", name, streamed.name, other.name);
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
    reduced.extent = dim("K", 1, 200);
    if (dice_.chance(6)) left_type = fresh_type();
    left = input("A", left_type, {rows_, reduced}, true);
  }
  const AxisChoice column = column_axis();
  const std::string right_type = dice_.chance(98) ? left_type : fresh_type();
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
  const std::string axis = fresh("j"), extent = dim("J", 1, 200);
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
  const std::string axis = fresh("j"), extent = dim("T", 1, 200), k = fresh("k");
  std::string query, depth;
  if (from != nullptr) {
    const std::string operand = narrowed(*from);
    depth = from->column.extent;
    query = at(operand, k);
    feature("before_loop");
  } else {
    depth = dim("E", 1, 72);
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
  const std::string keys = operand("K", {axis, extent}, {k, depth}, fresh("k"));
  const std::string values = operand("V", {axis, extent}, column, column.name);
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
  const std::string axis = fresh("j"), n = fresh("k"), states = dim("E", 1, 72);
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
  const std::string r = fresh("r"), taps = dim("R", 1, 5, true), c = fresh("k"), channels = dim("E", 1, 40);
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
  const std::string axis = fresh("j"), extent = dim("J", 1, 200);
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
  const std::string first = fresh("j"), second = fresh("j"), extent = dim("J", 1, 200);
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

}  // namespace pipethreader::testing
