#include "emit/emission.h"

#include <cmath>

namespace pipethreader::emit {

using namespace program;

namespace {

template <class Items>
std::vector<std::string> claim_all(Names& names, const Items& items, std::vector<std::string> suffixes = {}) {
  std::vector<std::string> result;
  for (const auto& item : items) result.push_back(names.claim(item.name, suffixes));
  return result;
}

const layout::Digit* first_register_digit(const layout::Layout& layout) {
  for (const layout::Digit& digit : layout.digits)
    if (digit.place == layout::Place::reg && digit.extent > 1) return &digit;
  return nullptr;
}

}  // namespace

Emission::Emission(const Program& p) : program(p), facts(p), names(Helpers::names()) {
  tensors_ = claim_all(names, p.tensors);
  params_ = claim_all(names, p.params);
  vars_ = claim_all(names, p.vars);
  for (std::size_t f = 0; f < p.fragments.size(); ++f) {
    std::vector<std::string> suffixes = {"_all"};
    for (int r = 0; r < p.fragments[f].layout.registers(); ++r) suffixes.push_back("_" + std::to_string(r));
    fragments_.push_back(names.claim(p.fragments[f].name, suffixes));
  }
  rings_ = claim_all(names, p.rings, {"_full", "_empty", "_slot", "_phase"});
  for (const TensorMap& map : p.maps) {
    maps_.push_back(names.claim(map.name.ends_with("_map") ? map.name : map.name + "_map"));
  }
  for (const Buffer& buffer : p.buffers) buffers_.push_back(names.claim(buffer.name + "_tile"));
  barriers_ = claim_all(names, p.barriers);
}

bool Emission::packed(FragmentId id) const {
  const Fragment& fragment = program[id];
  if (fragment.type != ScalarType::f16 && fragment.type != ScalarType::bf16) return false;
  const layout::Digit* digit = first_register_digit(fragment.layout);
  return digit != nullptr && digit->extent % 2 == 0;
}

std::string Emission::variable(FragmentId id, int reg) const {
  return fmt::format("{}_{}", name(id), packed(id) ? reg / 2 : reg);
}

std::vector<std::string> Emission::variables(FragmentId id) const {
  std::vector<std::string> result;
  const int step = packed(id) ? 2 : 1;
  for (int r = 0; r < program[id].layout.registers(); r += step) result.push_back(variable(id, r));
  return result;
}

void Emission::sync_group() {
  out.format("{}({}, {});", helpers.use("sync_threads"), role.group_barrier, layout::threads_of_group);
}

const std::optional<std::vector<int>>& Emission::register_map(const layout::Layout& tile, FragmentId operand,
                                                              const std::vector<int>& dims) {
  const auto [entry, fresh] = register_maps_.try_emplace({&tile, operand.index, dims});
  if (fresh) entry->second = layout::register_map(tile, program[operand].layout, dims);
  return entry->second;
}

std::string Emission::thread_part(const layout::Layout& layout, int dim) {
  std::string text;
  for (const layout::Place place : {layout::Place::lane, layout::Place::warp}) {
    int below = 1;  // product of the less significant digits
    const int all = place == layout::Place::lane ? layout::lanes_of_warp : layout::warps_of_group;
    for (const layout::Digit& digit : layout.digits) {
      if (digit.place != place) continue;
      if (digit.dim == dim && digit.extent > 1 && digit.stride != 0) {
        std::string term = place == layout::Place::lane ? "lane" : "warp";
        if (below > 1) term += fmt::format(" / {}", below);
        if (below * digit.extent < all) term += fmt::format(" % {}", digit.extent);
        if (digit.stride != 1) term += fmt::format(" * {}", digit.stride);
        text += text.empty() ? term : " + " + term;
      }
      below *= digit.extent;
    }
  }
  if (text.empty()) return "0";
  static constexpr std::string_view kWanted[] = {"row_in_tile", "col_in_tile", "at"};
  return per_thread(text, dim < 2 && layout.shape.size() == 2 ? kWanted[dim] : kWanted[2]);
}

std::string Emission::per_thread(const std::string& text, std::string_view wanted) {
  const auto found = role.thread_parts.find(text);
  if (found != role.thread_parts.end()) return found->second;
  const std::string variable = names.claim(wanted);
  role.thread_parts.emplace(text, variable);
  role.thread_part_lines.push_back(fmt::format("const int {} = {};", variable, text));
  return variable;
}

std::string Emission::computed_before(std::string_view type, const std::string& text, std::string_view wanted) {
  if (computed_scope_ != out.scope()) computed_.clear();
  computed_scope_ = out.scope();
  const auto [entry, fresh] = computed_.try_emplace(text);
  if (fresh) {
    entry->second = names.claim(wanted);
    out.format("const {} {} = {};", type, entry->second, text);
  }
  return entry->second;
}

std::string Emission::register_bits(FragmentId id, const std::string& variable) const {
  const std::string type = register_type(*this, id);
  if (type == "unsigned") return variable;
  return fmt::format(fmt::runtime(type == "float" ? "__float_as_uint({})" : "static_cast<unsigned>({})"), variable);
}

std::string Emission::zero_after(const std::vector<std::string>& bits) {
  const std::string zero = per_thread("warp >> 8", "zero");
  const std::string name = names.local("zero_after");
  out.list(fmt::format("const unsigned {} = {}(", name, helpers.use("any_bits")), bits, fmt::format(") & {};", zero));
  return name;
}

std::string sum(const std::string& a, const std::string& b) {
  if (a == "0") return b;
  if (b == "0") return a;
  return fmt::format("({} + {})", a, b);
}

std::string sum(const std::string& a, std::int64_t b) {
  if (b < 0 && a != "0") return fmt::format("({} - {})", a, -b);
  return sum(a, std::to_string(b));
}

std::string bare(const std::string& text) {
  if (text.size() < 2 || text.front() != '(' || text.back() != ')') return text;
  int depth = 0;
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    depth += text[i] == '(' ? 1 : text[i] == ')' ? -1 : 0;
    if (depth == 0) return text;
  }
  return text.substr(1, text.size() - 2);
}

std::string memory_type(ScalarType type) {
  switch (type) {
    case ScalarType::f32:
    case ScalarType::tf32:
      return "float";
    case ScalarType::f16:
      return "f16";
    case ScalarType::bf16:
      return "bf16";
    case ScalarType::f8e4m3:
      return "f8e4m3";
    case ScalarType::f8e5m2:
      return "f8e5m2";
    case ScalarType::i32:
      return "int";
    case ScalarType::i8:
      return "signed char";
    case ScalarType::u8:
    case ScalarType::boolean:
      return "unsigned char";
    default:
      return {};
  }
}

std::string register_type(const Emission& emission, FragmentId id) {
  if (emission.packed(id)) return "unsigned";
  return is_floating(emission.program[id].type) ? "float" : "int";
}

std::string float_literal(double value) {
  if (std::isnan(value)) return "__int_as_float(0x7fffffff)";
  if (std::isinf(value)) return value > 0 ? "__int_as_float(0x7f800000)" : "__int_as_float(0xff800000)";
  std::string text = fmt::format("{}", static_cast<float>(value));
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return value < 0 ? "(" + text + "f)" : text + "f";
}

}  // namespace pipethreader::emit
