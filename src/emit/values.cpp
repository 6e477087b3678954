#include "emit/values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <set>

namespace pipethreader::emit {

using namespace program;

namespace {

bool is_16_bit(ScalarType type) { return type == ScalarType::f16 || type == ScalarType::bf16; }

// How tightly the loosest operator outside parentheses binds; larger binds tighter, an operand without any most.
int binding(std::string_view text) {
  constexpr int kTightest = 9;
  int loosest = kTightest;
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(' || text[i] == '[') ++depth;
    if (text[i] == ')' || text[i] == ']') --depth;
    if (depth != 0 || text[i] != ' ' || i + 2 >= text.size()) continue;
    const std::string_view op = text.substr(i + 1, text.find(' ', i + 1) - i - 1);
    const int level = op == "?" || op == ":"                               ? 0
                      : op == "||"                                         ? 1
                      : op == "&&"                                         ? 2
                      : op == "|" || op == "^" || op == "&"                ? 3
                      : op == "==" || op == "!="                           ? 4
                      : op == "<" || op == ">" || op == "<=" || op == ">=" ? 5
                      : op == "<<" || op == ">>"                           ? 6
                      : op == "+" || op == "-"                             ? 7
                      : op == "*" || op == "/" || op == "%"                ? 8
                                                                           : kTightest;
    loosest = std::min(loosest, level);
  }
  return loosest;
}

// Without parentheses where C needs none. Sums of integers may be regrouped.
std::string infix(const std::vector<std::string>& args, std::string_view op, bool integers) {
  const int own = binding(fmt::format("a {} b", op));
  const auto operand = [&](const std::string& text, bool right) {
    const std::string inner = bare(text);
    if (inner.size() == text.size() || inner.starts_with('-')) return text;
    const int level = binding(inner);
    const bool regroups = right && integers && op == "+" && level == own;
    return level > own || (level == own && (!right || regroups)) ? inner : text;
  };
  return fmt::format("({} {} {})", operand(args[0], false), op, operand(args[1], true));
}

// The smallest integer has no literal in C: its sign is applied to a number that does not fit.
std::string int_literal(std::int64_t value) {
  if (value == std::numeric_limits<std::int32_t>::min()) return fmt::format("({} - 1)", value + 1);
  return value < 0 ? fmt::format("({})", value) : fmt::format("{}", value);
}

std::string call(const std::string& function, const std::vector<std::string>& args) {
  std::string text = function + "(";
  for (std::size_t i = 0; i < args.size(); ++i) text += (i > 0 ? ", " : "") + bare(args[i]);
  return text + ")";
}

// What is alike for integers and floats.
std::optional<std::string> common_function(const Expr& e, const std::vector<std::string>& args) {
  if (e.function == Function::add && is_integer(e.type)) {
    if (args[0] == "0") return args[1];
    if (args[1] == "0") return args[0];
  }
  switch (e.function) {
    case Function::neg:
      return "(-" + args[0] + ")";
    case Function::add:
    case Function::sub:
    case Function::mul:
    case Function::lt:
    case Function::le:
    case Function::gt:
    case Function::ge:
    case Function::eq:
    case Function::ne:
    case Function::logical_and:
    case Function::logical_or:
      return infix(args, info(e.function).symbol, is_integer(e.type));
    case Function::logical_not:
      return "(!" + args[0] + ")";
    case Function::select:
      return fmt::format("({} ? {} : {})", bare(args[0]), args[1], args[2]);
    default:
      return std::nullopt;
  }
}

std::string integer_function(Emission& emission, const Expr& e, const std::vector<std::string>& args) {
  switch (e.function) {
    case Function::div:
    case Function::mod: {
      const bool plain = emission.facts.nonnegative(e.args[0]) && emission.facts.nonnegative(e.args[1]);
      if (plain) return infix(args, e.function == Function::div ? "/" : "%", true);
      return call(emission.helpers.use(e.function == Function::div ? "floor_div" : "floor_mod"), args);
    }
    case Function::min:
      return call("min", args);
    case Function::max:
      return call("max", args);
    case Function::abs:
      return call("abs", args);
    case Function::floor:
      return args[0];
    default:
      emission.problem("the function '{}' has no integer form in CUDA", info(e.function).name);
      return args[0];
  }
}

std::string float_function(Emission& emission, Function function, const std::vector<std::string>& args) {
  const auto helper = [&](std::string_view name) { return call(emission.helpers.use(name), args); };
  switch (function) {
    case Function::div:
      return helper("divide");
    case Function::mod:
      return call("fmodf", args);
    case Function::min:
      return call("fminf", args);
    case Function::max:
      return call("fmaxf", args);
    case Function::abs:
      return call("fabsf", args);
    case Function::exp:
      return helper("exp_f32");
    case Function::exp2:
      return helper("exp2_f32");
    case Function::log:
      return call("logf", args);
    case Function::log2:
      return call("log2f", args);
    case Function::sqrt:
      return helper("sqrt_f32");
    case Function::rsqrt:
      return helper("rsqrt_f32");
    case Function::tanh:
      return call("tanhf", args);
    case Function::sigmoid:
      return helper("sigmoid_f32");
    case Function::erf:
      return call("erff", args);
    case Function::floor:
      return call("floorf", args);
    case Function::sin:
      return call("sinf", args);
    case Function::cos:
      return call("cosf", args);
    default:
      emission.problem("the function '{}' has no CUDA form", info(function).name);
      return args[0];
  }
}

// Does this operation on numbers of a narrow type give a number of that type?
bool stays_exact(Function function) {
  return function == Function::neg || function == Function::min || function == Function::max ||
         function == Function::abs || function == Function::select || function == Function::floor;
}

std::string rounded(Emission& emission, ScalarType type, const std::string& text) {
  switch (type) {
    case ScalarType::f16:
      return call(emission.helpers.use("round_f16"), {text});
    case ScalarType::bf16:
      return call(emission.helpers.use("round_bf16"), {text});
    case ScalarType::tf32:
      return call(emission.helpers.use("round_tf32"), {text});
    case ScalarType::f8e4m3:
      return call(emission.helpers.use("round_f8e4m3"), {text});
    case ScalarType::f32:
      return text;
    default:
      emission.problem("no rounding to {} on this target", name(type));
      return text;
  }
}

// Is every number of `from` one of `to`?
bool contains(ScalarType to, ScalarType from) {
  return to == from || to == ScalarType::f32 || (to == ScalarType::tf32 && from != ScalarType::f32) ||
         (is_16_bit(to) && (from == ScalarType::f8e4m3 || from == ScalarType::f8e5m2) && to == ScalarType::f16);
}

class Speller {
 public:
  Speller(Emission& emission, const Site& site) : emission_(emission), site_(site) {}

  std::string spell(ExprId id, bool round) {
    if (const auto other = emission_.instead.find(id); other != emission_.instead.end()) id = other->second;
    const Expr& e = emission_.program[id];
    switch (e.kind) {
      case Expr::Kind::constant:
        if (is_floating(e.type)) return float_literal(e.number);
        return int_literal(static_cast<std::int64_t>(e.number));
      case Expr::Kind::param:
        return emission_.name(e.param);
      case Expr::Kind::var:
        return emission_.name(e.var);
      case Expr::Kind::instance:
        return emission_.role.instance;
      case Expr::Kind::cluster_rank:
        return emission_.program.cluster > 1 ? "rank" : "0";
      case Expr::Kind::coord:
        return coordinate_text(emission_, site_, e.dim);
      case Expr::Kind::fragment:
        return fragment(e);
      case Expr::Kind::call:
        return function(e, round);
      case Expr::Kind::convert:
        return conversion(e, round);
    }
    return {};
  }

 private:
  std::string fragment(const Expr& e) {
    if (site_.tile == nullptr) {
      emission_.problem("fragment '{}' is used where there are no registers", emission_.program[e.fragment].name);
      return "0";
    }
    const auto& map = emission_.register_map(*site_.tile, e.fragment, e.dims);
    if (!map) {
      emission_.problem("fragment '{}' is not held where it is used: a relayout is missing",
                        emission_.program[e.fragment].name);
      return "0";
    }
    return element(emission_, e.fragment, (*map)[static_cast<std::size_t>(site_.reg)]);
  }

  // An integer as a sum: what differs between threads or blocks, and a number, in which alone registers differ.
  struct Sum {
    std::string terms;
    std::int64_t number = 0;
    bool per_register = false;
  };

  void add_term(Sum& sum, const std::string& term, std::int64_t factor) {
    if (term == "0" || factor == 0) return;
    const bool minus = factor < 0;
    if (sum.terms.empty()) {
      sum.terms = minus ? "-" : "";
    } else {
      sum.terms += minus ? " - " : " + ";
    }
    const std::int64_t times = minus ? -factor : factor;
    sum.terms += times == 1 ? term : fmt::format("{} * {}", term, times);
  }

  // False when elements differ by more than a number.
  bool add_to(Sum& sum, ExprId id, std::int64_t factor) {
    const Expr& e = emission_.program[id];
    if (e.kind == Expr::Kind::constant) {
      sum.number += factor * static_cast<std::int64_t>(e.number);
      return true;
    }
    if (e.kind == Expr::Kind::coord) {
      sum.number += factor * site_.tile->coordinates(0, site_.reg)[static_cast<std::size_t>(e.dim)];
      sum.per_register = true;
      add_term(sum, emission_.thread_part(*site_.tile, e.dim), factor);
      return true;
    }
    if (e.kind == Expr::Kind::call) {
      const auto known = [&](std::size_t i) -> std::optional<std::int64_t> {
        const Expr& arg = emission_.program[e.args[i]];
        if (arg.kind != Expr::Kind::constant) return std::nullopt;
        return static_cast<std::int64_t>(arg.number);
      };
      if (e.function == Function::add) return add_to(sum, e.args[0], factor) && add_to(sum, e.args[1], factor);
      if (e.function == Function::sub) return add_to(sum, e.args[0], factor) && add_to(sum, e.args[1], -factor);
      if (e.function == Function::neg) return add_to(sum, e.args[0], -factor);
      if (e.function == Function::mul) {
        for (std::size_t i = 0; i < 2; ++i)
          if (const auto times = known(i)) return add_to(sum, e.args[1 - i], factor * *times);
      }
    }
    if (!is_uniform(emission_.program, id)) return false;
    add_term(sum, spell(id, true), factor);
    return true;
  }

  // "apart >= 49": what registers have in common is computed once for all of them.
  std::optional<std::string> comparison(const Expr& e) {
    const bool ordered = e.function == Function::lt || e.function == Function::le || e.function == Function::gt ||
                         e.function == Function::ge;
    if (!ordered || site_.tile == nullptr) return std::nullopt;
    for (const ExprId arg : e.args)
      if (!is_integer(emission_.program[arg].type)) return std::nullopt;
    Sum difference;
    if (!add_to(difference, e.args[0], 1) || !add_to(difference, e.args[1], -1)) return std::nullopt;
    if (!difference.per_register || difference.terms.empty()) return std::nullopt;
    return fmt::format("({} {} {})", emission_.computed_before("int", difference.terms, "apart"),
                       info(e.function).symbol, -difference.number);
  }

  // Many registers of the tile divide by the same number.
  bool shared_divisor(const Expr& e) {
    if (e.function != Function::div || e.type != ScalarType::f32 || site_.tile == nullptr) return false;
    constexpr std::size_t enough = 4;  // divisions for which one reciprocal pays
    const auto registers = static_cast<std::size_t>(site_.tile->registers());
    if (is_uniform(emission_.program, e.args[1])) return registers >= enough;
    const Expr& divisor = emission_.program[e.args[1]];
    if (divisor.kind != Expr::Kind::fragment) return false;
    const auto& map = emission_.register_map(*site_.tile, divisor.fragment, divisor.dims);
    return map && std::set(map->begin(), map->end()).size() * enough <= registers;
  }

  // Within 1.5 units in the last place, as exact as divide().
  std::string by_reciprocal(const std::string& dividend, const std::string& divisor) {
    const std::string scale =
        emission_.computed_before("float", call(emission_.helpers.use("division_scale"), {divisor}), "scaled_by");
    const std::string inverse = emission_.computed_before(
        "float", call(emission_.helpers.use("reciprocal"), {infix({divisor, scale}, "*", false)}), "inverse");
    return infix({infix({dividend, scale}, "*", false), inverse}, "*", false);
  }

  std::string function(const Expr& e, bool round) {
    if (auto text = comparison(e)) return *text;
    std::vector<std::string> args;
    // The rounding of a choice is the choice of what is rounded.
    for (std::size_t i = 0; i < e.args.size(); ++i)
      args.push_back(spell(e.args[i], round || e.function != Function::select || i == 0));
    if (auto text = common_function(e, args)) {
      const bool inexact = is_floating(e.type) && !info(e.function).gives_boolean && !stays_exact(e.function);
      return inexact && round ? rounded(emission_, e.type, *text) : *text;
    }
    if (!is_floating(e.type)) return integer_function(emission_, e, args);
    if (shared_divisor(e)) return by_reciprocal(args[0], args[1]);
    const std::string text = float_function(emission_, e.function, args);
    return round && !stays_exact(e.function) ? rounded(emission_, e.type, text) : text;
  }

  std::string conversion(const Expr& e, bool round) {
    const ScalarType from = emission_.program[e.args[0]].type;
    const std::string arg = spell(e.args[0], true);
    if (is_floating(e.type)) {
      const std::string text = is_floating(from) ? arg : fmt::format("static_cast<float>({})", bare(arg));
      return round && !(is_floating(from) && contains(e.type, from)) ? rounded(emission_, e.type, text) : text;
    }
    if (e.type == ScalarType::boolean) return from == ScalarType::boolean ? arg : fmt::format("({} != 0)", arg);
    const std::string whole = is_floating(from) ? fmt::format("__float2int_rz({})", bare(arg)) : arg;
    if (e.type == ScalarType::i32 || e.type == from || from == ScalarType::boolean) return whole;
    if (e.type == ScalarType::i8) return fmt::format("min(max({}, -128), 127)", bare(whole));
    if (e.type == ScalarType::u8) return fmt::format("min(max({}, 0), 255)", bare(whole));
    emission_.problem("no conversion to {} on this target", name(e.type));
    return whole;
  }

  Emission& emission_;
  const Site& site_;
};

std::uint32_t bits_of(ScalarType type, double number) {
  const auto value = static_cast<float>(round_to(type, number));
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  if (type == ScalarType::bf16) return bits >> 16;
  // f16 from an f32 that is exactly one.
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const int exponent = static_cast<int>((bits >> 23) & 0xffU) - 127;
  const std::uint32_t mantissa = bits & 0x7fffffU;
  if (exponent == 128) return sign | 0x7c00U | (mantissa != 0 ? 0x200U : 0U);
  if (exponent >= -14) return sign | static_cast<std::uint32_t>(exponent + 15) << 10 | mantissa >> 13;
  if (exponent < -25) return sign;
  return sign | (mantissa | 0x800000U) >> (-exponent - 1);
}

// Two elements at once. Each method gives nothing when there is no packed form.
class PairSpeller {
 public:
  PairSpeller(Emission& emission, const layout::Layout& tile, int reg, ScalarType type)
      : emission_(emission), tile_(tile), reg_(reg), type_(type) {}

  // Operations count only when they save something over two floats: both operands packed.
  std::optional<std::string> packed(ExprId id) {
    const Expr& e = emission_.program[id];
    if (e.type != type_ && e.kind != Expr::Kind::constant) return std::nullopt;
    switch (e.kind) {
      case Expr::Kind::constant: {
        const std::uint32_t bits = bits_of(type_, e.number);
        return fmt::format("0x{:08x}u", bits << 16 | bits);
      }
      case Expr::Kind::fragment:
        return fragment(e);
      case Expr::Kind::call:
        return function(e);
      case Expr::Kind::convert:
        return emission_.program[e.args[0]].type == type_ ? packed(e.args[0]) : both(id);
      default:
        return std::nullopt;
    }
  }

  std::string both(ExprId id) {
    const Site low{&tile_, reg_, {}};
    const Site high{&tile_, reg_ + 1, {}};
    return call(emission_.helpers.use(type_ == ScalarType::f16 ? "pack_f16" : "pack_bf16"),
                {unrounded(emission_, id, low), unrounded(emission_, id, high)});
  }

 private:
  std::optional<std::string> fragment(const Expr& e) {
    const auto& map = emission_.register_map(tile_, e.fragment, e.dims);
    if (!map || !emission_.packed(e.fragment)) return std::nullopt;
    const int low = (*map)[static_cast<std::size_t>(reg_)];
    const int high = (*map)[static_cast<std::size_t>(reg_) + 1];
    const std::string low_word = emission_.variable(e.fragment, low);
    if (low % 2 == 0 && high == low + 1) return low_word;
    if (low == high) return call(emission_.helpers.use(low % 2 == 0 ? "low_pair" : "high_pair"), {low_word});
    return std::nullopt;
  }

  std::optional<std::string> function(const Expr& e) {
    const std::string_view suffix = type_ == ScalarType::f16 ? "_f16x2" : "_bf16x2";
    const auto operation = [&](std::string_view name, std::initializer_list<ExprId> operands) {
      std::vector<std::string> args;
      for (const ExprId operand : operands) {
        const auto text = packed(operand);
        if (!text) return std::optional<std::string>();
        args.push_back(*text);
      }
      return std::optional(call(emission_.helpers.use(fmt::format("{}{}", name, suffix)), args));
    };
    switch (e.function) {
      case Function::add: {
        for (std::size_t i = 0; i < 2; ++i) {
          const Expr& product = emission_.program[e.args[i]];
          if (product.kind != Expr::Kind::call || product.function != Function::mul || product.type != type_) continue;
          if (auto fused = operation("fma", {product.args[0], product.args[1], e.args[1 - i]})) return fused;
        }
        return operation("add", {e.args[0], e.args[1]});
      }
      case Function::sub:
        return operation("sub", {e.args[0], e.args[1]});
      case Function::mul:
        return operation("mul", {e.args[0], e.args[1]});
      case Function::min:
        return operation("min", {e.args[0], e.args[1]});
      case Function::max:
        return operation("max", {e.args[0], e.args[1]});
      case Function::neg:
        if (const auto text = packed(e.args[0])) return fmt::format("({} ^ 0x80008000u)", *text);
        return std::nullopt;
      case Function::abs:
        if (const auto text = packed(e.args[0])) return fmt::format("({} & 0x7fff7fffu)", *text);
        return std::nullopt;
      case Function::select:
        return choice(e);
      default:
        return std::nullopt;
    }
  }

  // A choice costs a pair more than it costs two floats: it must be of what is computed in pairs.
  std::optional<std::string> choice(const Expr& e) {
    if (emission_.program[e.args[1]].kind != Expr::Kind::call) return std::nullopt;
    const auto chosen = packed(e.args[1]);
    const auto other = packed(e.args[2]);
    if (!chosen || !other) return std::nullopt;
    const std::string low = value(emission_, e.args[0], Site{&tile_, reg_, {}});
    const std::string high = value(emission_, e.args[0], Site{&tile_, reg_ + 1, {}});
    if (*other == "0x00000000u") return call(emission_.helpers.use("keep_pair"), {*chosen, low, high});
    return call(emission_.helpers.use("choose_pair"), {low, high, *chosen, *other});
  }

  Emission& emission_;
  const layout::Layout& tile_;
  int reg_;
  ScalarType type_;
};

}  // namespace

std::string coordinate_text(Emission& emission, const Site& site, int dim) {
  if (site.tile == nullptr) {
    if (static_cast<std::size_t>(dim) < site.coords.size()) return site.coords[static_cast<std::size_t>(dim)];
    emission.problem("coordinate {} is used where the tile has {}", dim, site.coords.size());
    return "0";
  }
  return sum(emission.thread_part(*site.tile, dim), site.tile->coordinates(0, site.reg)[static_cast<std::size_t>(dim)]);
}

std::string uniform(Emission& emission, ExprId id) { return value(emission, id, Site{}); }

std::string value(Emission& emission, ExprId id, const Site& site) { return Speller(emission, site).spell(id, true); }

std::string unrounded(Emission& emission, ExprId id, const Site& site) {
  return Speller(emission, site).spell(id, false);
}

std::string pair(Emission& emission, ExprId id, const layout::Layout& tile, int reg, ScalarType type) {
  PairSpeller speller(emission, tile, reg, type);
  if (auto text = speller.packed(id)) return *text;
  return speller.both(id);
}

std::string from_bits(Emission& emission, ScalarType type, const std::string& bits) {
  switch (type) {
    case ScalarType::f16:
    case ScalarType::bf16:
    case ScalarType::f8e4m3:
    case ScalarType::f8e5m2:
      return call(emission.helpers.use(fmt::format("float_of_{}", name(type))), {bits});
    default:
      return bits;
  }
}

std::string to_bits(Emission& emission, ScalarType type, const std::string& value) {
  switch (type) {
    case ScalarType::f16:
    case ScalarType::bf16:
    case ScalarType::f8e4m3:
      return call(emission.helpers.use(fmt::format("bits_of_{}", name(type))), {value});
    case ScalarType::f8e5m2:
      emission.problem("no conversion to {} on this target", name(type));
      return value;
    case ScalarType::i8:
    case ScalarType::u8:
    case ScalarType::boolean:
      return fmt::format("static_cast<{}>({})", memory_type(type), bare(value));
    default:
      return bare(value);
  }
}

std::string element(Emission& emission, FragmentId id, int reg) {
  const std::string variable = emission.variable(id, reg);
  if (!emission.packed(id)) return variable;
  const bool f16 = emission.program[id].type == ScalarType::f16;
  const std::string_view half = reg % 2 == 0 ? "low_" : "high_";
  return call(emission.helpers.use(fmt::format("{}{}", half, f16 ? "f16" : "bf16")), {variable});
}

}  // namespace pipethreader::emit
