#include "emit/elements.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "emit/values.h"

namespace pipethreader::emit {

using namespace program;

namespace {

// The map reads its own target elsewhere than where it writes.
bool reads_moved_target(Emission& emission, ExprId id, const Map& map) {
  const Expr& e = emission.program[id];
  if (e.kind == Expr::Kind::fragment && e.fragment == map.target) {
    const auto& registers = emission.register_map(emission.program[map.target].layout, e.fragment, e.dims);
    for (std::size_t i = 0; registers && i < registers->size(); ++i)
      if ((*registers)[i] != static_cast<int>(i)) return true;
  }
  return std::any_of(e.args.begin(), e.args.end(), [&](ExprId arg) { return reads_moved_target(emission, arg, map); });
}

bool copies(const Emission& emission, const Map& map) {
  const Expr& e = emission.program[map.value];
  return e.kind == Expr::Kind::fragment && emission.program[e.fragment].type == emission.program[map.target].type;
}

}  // namespace

void write_map(Emission& emission, const Map& map, bool operand) {
  const Fragment& fragment = emission.program[map.target];
  const bool packed = emission.packed(map.target);
  const bool aside = reads_moved_target(emission, map.value, map);
  const bool held = operand && packed && copies(emission, map);
  std::vector<std::string> later;
  if (aside) emission.out.open("");
  for (int reg = 0; reg < fragment.layout.registers(); reg += packed ? 2 : 1) {
    const std::string text = packed ? pair(emission, map.value, fragment.layout, reg, fragment.type)
                                    : value(emission, map.value, Site{&fragment.layout, reg, {}});
    const std::string variable = emission.variable(map.target, reg);
    if (aside) {
      const std::string kept = emission.names.local("kept");
      emission.out.format("const {} {} = {};", register_type(emission, map.target), kept, bare(text));
      later.push_back(fmt::format("{} = {};", variable, kept));
    } else if (held) {
      emission.out.format("{}({}, {});", emission.helpers.use("move_operand"), variable, bare(text));
    } else {
      emission.out.format("{} = {};", variable, bare(text));
    }
  }
  for (const std::string& line : later) emission.out.line(line);
  if (aside) emission.out.close();
}

void open_if_any(Emission& emission, const layout::Layout& domain, ExprId predicate) {
  // Registers of the domain that give the same text need asking only once.
  std::vector<std::string> tests;
  for (int reg = 0; reg < domain.registers(); ++reg) {
    std::string text = value(emission, predicate, Site{&domain, reg, {}});
    if (std::find(tests.begin(), tests.end(), text) == tests.end()) tests.push_back(std::move(text));
  }
  std::string all;
  for (const std::string& test : tests) all += (all.empty() ? "" : " || ") + test;
  emission.out.open(fmt::format("if (__any_sync(0xffffffffu, {}))", tests.size() == 1 ? bare(all) : all));
}

// --- reductions --------------------------------------------------------------------------------------------------

namespace {

constexpr std::size_t kChainLength = 8;  // shorter reductions are one chain

struct Combine {
  std::string function;  // empty: addition
  [[nodiscard]] std::string operator()(const std::string& a, const std::string& b) const {
    return function.empty() ? fmt::format("{} + {}", a, b) : fmt::format("{}({}, {})", function, a, bare(b));
  }
};

Combine combine_of(ReduceOp op, bool floating) {
  if (op == ReduceOp::sum) return {""};
  if (op == ReduceOp::max) return {floating ? "fmaxf" : "max"};
  return {floating ? "fminf" : "min"};
}

// Which coordinate of the target an element of the domain goes to.
std::vector<int> projected(const Reduce& reduce, const std::vector<int>& coordinates) {
  std::vector<int> result;
  for (const int dim : reduce.kept) result.push_back(coordinates[static_cast<std::size_t>(dim)]);
  if (reduce.residual) result.push_back(coordinates.back() / reduce.residual->stride % reduce.residual->extent);
  return result;
}

struct Reduction {
  std::vector<std::vector<int>> sources;  // for each register of the target, the registers of the domain
  std::vector<int> lane_masks;            // shuffles
  std::vector<int> warp_masks;
};

// Lane or warp bits whose two sides hold different elements of the same target element.
std::vector<int> joined_bits(const Reduce& reduce, int first, int last) {
  std::vector<int> result;
  for (int bit = first; bit < last; bit *= 2) {
    const std::vector<int> at = reduce.domain.coordinates(bit, 0);
    const std::vector<int> zero(at.size(), 0);
    if (at != zero && projected(reduce, at) == projected(reduce, zero)) result.push_back(bit);
  }
  return result;
}

std::optional<Reduction> plan(Emission& emission, const Reduce& reduce) {
  const layout::Layout& target = emission.program[reduce.target].layout;
  Reduction result;
  result.sources.resize(static_cast<std::size_t>(target.registers()));
  for (int thread = 0; thread < layout::threads_of_group; ++thread) {
    std::map<std::vector<int>, int> held;
    for (int t = 0; t < target.registers(); ++t) held.emplace(target.coordinates(thread, t), t);
    for (int r = 0; r < reduce.domain.registers(); ++r) {
      const auto found = held.find(projected(reduce, reduce.domain.coordinates(thread, r)));
      if (found == held.end()) return std::nullopt;
      auto& sources = result.sources[static_cast<std::size_t>(found->second)];
      if (thread == 0)
        sources.push_back(r);
      else if (std::find(sources.begin(), sources.end(), r) == sources.end())
        return std::nullopt;
    }
  }
  result.lane_masks = joined_bits(reduce, 1, layout::lanes_of_warp);
  result.warp_masks = joined_bits(reduce, layout::lanes_of_warp, layout::threads_of_group);
  return result;
}

// Partial results of one thread, in `results` or new variables; several short chains instead of a long one.
std::vector<std::string> thread_partials(Emission& emission, const Reduce& reduce, ExprId element,
                                         const Reduction& reduction, const Combine& combine,
                                         std::vector<std::string> results) {
  const std::string type = is_floating(emission.program[reduce.target].type) ? "float " : "int ";
  const std::size_t targets = reduction.sources.size();
  const std::size_t length = targets == 0 ? 0 : reduction.sources.front().size();
  const std::size_t chains = length >= kChainLength ? std::max<std::size_t>(1, 4 / targets) : 1;
  std::vector<std::vector<std::string>> parts(targets);
  for (std::size_t i = 0; i < length; ++i) {
    for (std::size_t t = 0; t < targets; ++t) {
      const std::string text = value(emission, element, Site{&reduce.domain, reduction.sources[t][i], {}});
      if (i < chains) {
        const bool given = i == 0 && !results.empty();
        parts[t].push_back(given ? results[t] : emission.names.local("part"));
        emission.out.format("{}{} = {};", given ? "" : type, parts[t].back(), bare(text));
      } else {
        const std::string& part = parts[t][i % chains];
        emission.out.format("{} = {};", part, combine(part, text));
      }
    }
  }
  for (std::size_t i = 1; i < chains && i < length; ++i)
    for (std::size_t t = 0; t < targets; ++t)
      emission.out.format("{} = {};", parts[t][0], combine(parts[t][0], parts[t][i]));
  results.clear();
  for (const auto& names : parts) results.push_back(names[0]);
  return results;
}

// max(x * c) over x is c * max(x), or c * min(x) for a negative c; a product rounds monotonously, so this is exact. It
// saves a multiplication for each element, and arithmetic in f32 slows the tensor core. Where some elements are left
// out by an infinity, that holds for c > 0.
struct Factored {
  ExprId product;
  ExprId element;
  ExprId factor;
  bool masked = false;
};

std::optional<Factored> uniform_factor(const Emission& emission, const Reduce& reduce) {
  const Expr* e = &emission.program[reduce.value];
  if (reduce.op == ReduceOp::sum || e->type != ScalarType::f32 || e->kind != Expr::Kind::call) return std::nullopt;
  if (static_cast<std::size_t>(reduce.domain.registers()) < kChainLength) return std::nullopt;
  ExprId product = reduce.value;
  const bool masked = e->function == Function::select;
  if (masked) {
    const Expr& otherwise = emission.program[e->args[2]];
    if (otherwise.kind != Expr::Kind::constant || !std::isinf(otherwise.number)) return std::nullopt;
    product = e->args[1];
    e = &emission.program[product];
  }
  if (e->kind != Expr::Kind::call || e->function != Function::mul) return std::nullopt;
  for (std::size_t i = 0; i < 2; ++i)
    if (is_uniform(emission.program, e->args[i]) && !is_uniform(emission.program, e->args[1 - i]))
      return Factored{product, e->args[1 - i], e->args[i], masked};
  return std::nullopt;
}

std::vector<std::string> partials(Emission& emission, const Reduce& reduce, const Reduction& reduction,
                                  const Combine& combine) {
  const auto factored = uniform_factor(emission, reduce);
  if (!factored) return thread_partials(emission, reduce, reduce.value, reduction, combine, {});
  const Combine opposite = combine_of(reduce.op == ReduceOp::max ? ReduceOp::min : ReduceOp::max, true);
  const std::string factor = uniform(emission, factored->factor);
  std::vector<std::string> results;
  for (std::size_t t = 0; t < reduction.sources.size(); ++t) {
    results.push_back(emission.names.local("part"));
    emission.out.format("float {};", results.back());
  }
  const auto multiply = [&] {
    for (const std::string& result : results) emission.out.format("{} = {} * {};", result, result, factor);
  };
  emission.out.open(factored->masked ? fmt::format("if ({} > 0.0f && isfinite({}))", factor, factor)
                                     : fmt::format("if ({} >= 0.0f)", factor));
  emission.instead[factored->product] = factored->element;
  thread_partials(emission, reduce, reduce.value, reduction, combine, results);
  if (factored->masked) multiply();
  emission.out.otherwise("else");
  if (factored->masked) emission.instead.clear();
  thread_partials(emission, reduce, reduce.value, reduction, factored->masked ? combine : opposite, results);
  emission.instead.clear();
  emission.out.close();
  if (!factored->masked) multiply();
  return results;
}

// Through shared memory: each warp writes its partial results, then every thread combines those it needs.
void across_warps(Emission& emission, const Reduce& reduce, const Reduction& reduction, const Combine& combine,
                  const std::vector<std::string>& parts) {
  const layout::Layout& target = emission.program[reduce.target].layout;
  if (!reduce.scratch.valid()) {
    emission.problem("a reduction into '{}' crosses warps and has no scratch", emission.program[reduce.target].name);
    return;
  }
  const Buffer& scratch = emission.program[reduce.scratch];
  const std::int64_t elements = target.elements();
  const int instances = emission.program[emission.role.id].instances;
  if (static_cast<std::int64_t>(scratch.rows) * scratch.cols * bits(scratch.type) / 32 < 4 * elements * instances) {
    emission.problem("scratch '{}' is too small for {} partial results of {} warps", scratch.name, elements,
                     4 * instances);
    return;
  }
  const std::string base = emission.names.local("scratch");
  const bool floating = is_floating(emission.program[reduce.target].type);
  const std::string kind = floating ? "f32" : "s32";
  emission.out.format("const unsigned {} = shared + {} + {} * {};", base, emission.name(reduce.scratch),
                      emission.role.instance, 4 * elements * 4);
  const auto place = [&](const std::string& warp, int reg) {
    std::string index = "0";
    for (std::size_t dim = 0; dim < target.shape.size(); ++dim) {
      if (index != "0") index = fmt::format("{} * {}", index, target.shape[dim]);
      index = sum(index, sum(emission.thread_part(target, static_cast<int>(dim)), target.coordinates(0, reg)[dim]));
    }
    return fmt::format("{} + ({} * {} + {}) * 4", base, warp, elements, bare(index));
  };
  emission.sync_group();
  // Lanes that hold the same partial result write the same word.
  for (std::size_t t = 0; t < parts.size(); ++t)
    emission.out.format("{}({}, {});", emission.helpers.use("store_shared_" + kind), place("warp", static_cast<int>(t)),
                        parts[t]);
  emission.sync_group();
  for (std::size_t t = 0; t < parts.size(); ++t) {
    const std::string load = emission.helpers.use("load_shared_" + kind);
    std::vector<int> others = {0};
    for (const int mask : reduction.warp_masks)
      for (std::size_t i = 0, n = others.size(); i < n; ++i) others.push_back(others[i] ^ (mask / 32));
    std::string own = "warp";
    int joined = 0;
    for (const int mask : reduction.warp_masks) joined |= mask / 32;
    if (joined == 3) own = "";
    for (std::size_t i = 0; i < others.size(); ++i) {
      const std::string warp =
          own.empty() ? std::to_string(others[i]) : fmt::format("((warp & {}) | {})", 3 & ~joined, others[i]);
      const std::string text = fmt::format("{}({})", load, place(warp, static_cast<int>(t)));
      emission.out.format("{} = {};", parts[t], i == 0 ? text : combine(parts[t], text));
    }
  }
}

void across_lanes(Emission& emission, const Reduction& reduction, const Combine& combine,
                  const std::vector<std::string>& parts) {
  for (const int mask : reduction.lane_masks)
    for (const std::string& part : parts)
      emission.out.format("{} = {};", part,
                          combine(part, fmt::format("__shfl_xor_sync(0xffffffffu, {}, {})", part, mask)));
}

// Threads join their parts where one in the warp decides something; the maps behind the reduction are written with it.
void join_late(Emission& emission, const Reduce& reduce, const LateJoin& late, const Reduction& reduction,
               const Combine& combine, const std::vector<std::string>& parts) {
  const auto write = [&](const Map& map) { write_map(emission, map, emission.facts.is_operand(map.target)); };
  const std::vector<std::string> results = emission.variables(reduce.target);
  for (std::size_t t = 0; t < parts.size(); ++t) emission.out.format("{} = {};", results[t], parts[t]);
  const Expr& choice = emission.program[late.decides->value];
  std::ranges::for_each(late.between, [&](const Map* map) { write(*map); });
  write({late.decides->target, choice.args[2]});
  open_if_any(emission, emission.program[late.decides->target].layout, choice.args[0]);
  across_lanes(emission, reduction, combine, results);
  std::ranges::for_each(late.between, [&](const Map* map) { write(*map); });
  write(*late.decides);
  emission.out.close();
}

}  // namespace

void write_reduce(Emission& emission, const Reduce& reduce) {
  const auto reduction = plan(emission, reduce);
  if (!reduction) {
    emission.problem("a reduction into '{}' does not find its results in the threads that compute them",
                     emission.program[reduce.target].name);
    return;
  }
  const Fragment& target = emission.program[reduce.target];
  const bool floating = is_floating(target.type);
  const Combine combine = combine_of(reduce.op, floating);
  emission.out.open("");
  const std::vector<std::string> parts = partials(emission, reduce, *reduction, combine);
  if (const LateJoin* late = emission.facts.late_join(reduce)) {
    join_late(emission, reduce, *late, *reduction, combine, parts);
    emission.out.close();
    return;
  }
  across_lanes(emission, *reduction, combine, parts);
  if (!reduction->warp_masks.empty()) across_warps(emission, reduce, *reduction, combine, parts);
  std::vector<std::string> results;
  for (std::size_t t = 0; t < parts.size(); ++t)
    results.push_back(reduce.accumulate ? combine(element(emission, reduce.target, static_cast<int>(t)), parts[t])
                                        : parts[t]);
  for (std::size_t t = 0; t < parts.size(); t += emission.packed(reduce.target) ? 2 : 1) {
    const std::string variable = emission.variable(reduce.target, static_cast<int>(t));
    if (emission.packed(reduce.target))
      emission.out.format("{} = {}({}, {});", variable,
                          emission.helpers.use(target.type == ScalarType::f16 ? "pack_f16" : "pack_bf16"), results[t],
                          results[t + 1]);
    else if (target.type == ScalarType::f16 || target.type == ScalarType::bf16)
      emission.out.format("{} = {}({});", variable,
                          emission.helpers.use(target.type == ScalarType::f16 ? "round_f16" : "round_bf16"),
                          results[t]);
    else
      emission.out.format("{} = {};", variable, results[t]);
    if (reduce.accumulate && reduce.op == ReduceOp::sum && target.type == ScalarType::f32)
      emission.out.format("{}({});", emission.helpers.use("anchor"), variable);
  }
  emission.out.close();
}

// --- relayout within a warp --------------------------------------------------------------------------------------

namespace {

// The number that the digits of one place form for the element at the given coordinates (C texts).
std::string digits_of(const layout::Layout& layout, layout::Place place, const std::vector<std::string>& coordinates) {
  std::string text = "0";
  int below = 1;
  for (const layout::Digit& digit : layout.digits) {
    if (digit.place != place) continue;
    if (digit.dim != layout::replicated) {
      std::string term = coordinates[static_cast<std::size_t>(digit.dim)];
      if (digit.stride != 1) term = fmt::format("{} / {}", term, digit.stride);
      if (digit.stride * digit.extent < layout.shape[static_cast<std::size_t>(digit.dim)])
        term = fmt::format("{} % {}", term, digit.extent);
      if (below > 1) term = fmt::format("{} * {}", term, below);
      text = sum(text, term);
    }
    below *= digit.extent;
  }
  return bare(text);
}

struct Source {
  int thread = 0;
  int reg = 0;
};

// Where thread `thread`, register `reg` of the target finds its element: the owner in the source, in the same warp when
// warp digits are replicated there.
Source source_of(const layout::Layout& source, const std::vector<int>& coordinates, int warp) {
  Source result;
  int below[3] = {1, 1, 1};
  int number[3] = {0, 0, 0};
  for (const layout::Digit& digit : source.digits) {
    const auto place = static_cast<std::size_t>(digit.place);
    int value = 0;
    if (digit.dim != layout::replicated)
      value = coordinates[static_cast<std::size_t>(digit.dim)] / digit.stride % digit.extent;
    else if (digit.place == layout::Place::warp)
      value = warp / below[place] % digit.extent;
    number[place] += value * below[place];
    below[place] *= digit.extent;
  }
  result.reg = number[0];
  result.thread = number[2] * layout::lanes_of_warp + number[1];
  return result;
}

}  // namespace

void write_relayout(Emission& emission, const Relayout& relayout) {
  const layout::Layout& target = emission.program[relayout.target].layout;
  const layout::Layout& source = emission.program[relayout.source].layout;
  std::vector<std::string> results;
  emission.out.open("");
  for (int reg = 0; reg < target.registers(); ++reg) {
    std::vector<int> candidates;  // source registers that some lane needs
    bool moves = false;
    for (int thread = 0; thread < layout::threads_of_group; ++thread) {
      const int warp = thread / layout::lanes_of_warp;
      const Source from = source_of(source, target.coordinates(thread, reg), warp);
      if (from.thread / layout::lanes_of_warp != warp) {
        emission.problem("a relayout of '{}' crosses warps and has no scratch", emission.program[relayout.source].name);
        emission.out.close();
        return;
      }
      if (std::find(candidates.begin(), candidates.end(), from.reg) == candidates.end()) candidates.push_back(from.reg);
      moves = moves || from.thread != thread;
    }
    std::vector<std::string> coordinates;
    for (std::size_t dim = 0; dim < target.shape.size(); ++dim)
      coordinates.push_back(sum(emission.thread_part(target, static_cast<int>(dim)), target.register_offset(reg)[dim]));
    const std::string lane = digits_of(source, layout::Place::lane, coordinates);
    const std::string held = digits_of(source, layout::Place::reg, coordinates);
    // Every lane takes part in every shuffle, so these stand before the choice.
    const std::string type = is_floating(emission.program[relayout.target].type) ? "float" : "int";
    std::string text;
    for (auto candidate = candidates.rbegin(); candidate != candidates.rend(); ++candidate) {
      std::string one = element(emission, relayout.source, *candidate);
      if (moves) {
        const std::string kept = emission.names.local("kept");
        emission.out.format("const {} {} = __shfl_sync(0xffffffffu, {}, {});", type, kept, one, lane);
        one = kept;
      }
      text = text.empty() ? one : fmt::format("({} == {} ? {} : {})", held, *candidate, one, text);
    }
    results.push_back(emission.names.local("moved"));
    emission.out.format("const {} {} = {};", type, results.back(), bare(text));
  }
  const bool f16 = emission.program[relayout.target].type == ScalarType::f16;
  for (std::size_t reg = 0; reg < results.size(); reg += emission.packed(relayout.target) ? 2 : 1)
    emission.out.format("{} = {};", emission.variable(relayout.target, static_cast<int>(reg)),
                        emission.packed(relayout.target)
                            ? fmt::format("{}({}, {})", emission.helpers.use(f16 ? "pack_f16" : "pack_bf16"),
                                          results[reg], results[reg + 1])
                            : results[reg]);
  emission.out.close();
}

}  // namespace pipethreader::emit
