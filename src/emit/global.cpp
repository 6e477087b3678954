// Guarded accesses to global memory, as vectors where alignment and guard allow it.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "emit/elements.h"
#include "emit/values.h"
#include "emit/words.h"

namespace pipethreader::emit {

using namespace program;

namespace {

constexpr int kLargestAccessBits = 128;

std::string guard_text(Emission& emission, const Access& access, const Site& site) {
  return access.guard ? value(emission, *access.guard, site) : std::string();
}

int vector_of(Emission& emission, const layout::Layout& tile, const Access& access) {
  for (Run run = contiguous_run(tile); run.count > 1; run.count /= 2)
    if (provable_vector(emission, access, run.dim, run.count, coordinate_divisors(tile, run)) == run.count)
      return run.count;
  return 1;
}

void guarded(Emission& emission, const std::string& guard, const std::string& statement) {
  if (guard.empty())
    emission.out.line(statement);
  else
    emission.out.format("if ({}) {}", bare(guard), statement);
}

// How far elements lie apart whose coordinates differ by one, for each dim of a tile: known where indices are affine in
// the coordinates and sizes are fixed.
std::optional<std::vector<std::int64_t>> distances(const Emission& emission, const Access& access, std::size_t dims) {
  std::vector<std::int64_t> apart(dims);
  std::int64_t stride = 1;
  for (std::size_t k = access.indices.size(); k-- > 0;) {
    for (std::size_t d = 0; d < dims; ++d) {
      const auto slope = emission.facts.slope(access.indices[k], static_cast<int>(d));
      if (!slope) return std::nullopt;
      apart[d] += *slope * stride;
    }
    const Expr& size = emission.program[emission.program[access.tensor].shape[k]];
    if (size.kind != Expr::Kind::constant && k > 0) return std::nullopt;
    if (k > 0) stride *= static_cast<std::int64_t>(size.number);
  }
  return apart;
}

// Where a tile's elements lie. With known distances a thread computes the address of its first element alone.
class Addresses {
 public:
  // `first`: the coordinates of the thread's first element.
  Addresses(Emission& emission, const Access& access, std::vector<std::string> first)
      : emission_(emission), access_(access), apart_(distances(emission, access, first.size())) {
    if (!apart_) return;
    first_ = emission.names.local("first");
    for (std::string& coordinate : first)
      if (coordinate != "0") coordinate = fmt::format("{}({})", emission.helpers.use("here"), coordinate);
    const std::string offset = global_offset(emission, access, Site{nullptr, 0, std::move(first)});
    emission.out.format("auto* const {} = {} + {};", first_, emission.name(access.tensor), offset);
  }

  // `from_first`: the element's coordinates less those of the first.
  [[nodiscard]] std::string of(const Site& site, const std::vector<int>& from_first) const {
    const auto [base, offset] = parts(site, from_first);
    return offset == "0" ? base : fmt::format("{} + {}", base, offset);
  }
  [[nodiscard]] std::string element(const Site& site, const std::vector<int>& from_first) const {
    const auto [base, offset] = parts(site, from_first);
    return fmt::format("{}[{}]", base, offset);
  }
  [[nodiscard]] std::string of(const Site& site) const { return of(site, site.tile->coordinates(0, site.reg)); }
  [[nodiscard]] std::string element(const Site& site) const {
    return element(site, site.tile->coordinates(0, site.reg));
  }

 private:
  [[nodiscard]] std::pair<std::string, std::string> parts(const Site& site, const std::vector<int>& from_first) const {
    if (!apart_) return {emission_.name(access_.tensor), global_offset(emission_, access_, site)};
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < from_first.size(); ++d) offset += from_first[d] * (*apart_)[d];
    return {first_, std::to_string(offset)};
  }

  Emission& emission_;
  const Access& access_;
  std::optional<std::vector<std::int64_t>> apart_;
  std::string first_;
};

std::vector<std::string> first_of_thread(Emission& emission, const layout::Layout& tile) {
  std::vector<std::string> coordinates;
  for (std::size_t d = 0; d < tile.shape.size(); ++d)
    coordinates.push_back(emission.thread_part(tile, static_cast<int>(d)));
  return coordinates;
}

void load_one(Emission& emission, const LoadGlobal& load, const Addresses& addresses, int reg) {
  const Site site{&emission.program[load.target].layout, reg, {}};
  const ScalarType type = emission.program[load.target].type;
  std::string text = from_bits(emission, type, addresses.element(site));
  if (const std::string guard = guard_text(emission, load.source, site); !guard.empty())
    text = fmt::format("{} ? {} : {}", guard, text, is_floating(type) ? "0.0f" : "0");
  emission.out.format("{} = {};", emission.variable(load.target, reg), text);
}

// Two halves of a packed word, each by its own access.
void load_two(Emission& emission, const LoadGlobal& load, const Addresses& addresses, int reg) {
  std::string halves[2];
  for (int i = 0; i < 2; ++i) {
    const Site site{&emission.program[load.target].layout, reg + i, {}};
    halves[i] = addresses.element(site);
    if (const std::string guard = guard_text(emission, load.source, site); !guard.empty())
      halves[i] = fmt::format("{} ? {} : 0", guard, halves[i]);
  }
  emission.out.format("{} = {}({}, {});", emission.variable(load.target, reg), emission.helpers.use("join_pair"),
                      halves[0], halves[1]);
}

void load_vector(Emission& emission, const LoadGlobal& load, const Addresses& addresses, int first, int count) {
  const Fragment& fragment = emission.program[load.target];
  const Site site{&fragment.layout, first, {}};
  const std::string type = vector_type(fragment.type, count);
  std::string text = fmt::format("*reinterpret_cast<const {}*>({})", type, addresses.of(site));
  if (const std::string guard = guard_text(emission, load.source, site); !guard.empty())
    text = fmt::format("{} ? {} : {}", guard, text, type.starts_with("uint") ? type + "{}" : "0");
  const std::string vector = emission.names.local("words");
  emission.out.format("const {} {} = {};", type, vector, text);
  scatter(emission, load.target, first, count, vector);
}

void store_run(Emission& emission, const StoreGlobal& store, const Addresses& addresses, int first, int count) {
  const Fragment& fragment = emission.program[store.source];
  const Site site{&fragment.layout, first, {}};
  const std::string place =
      count == 1 ? addresses.element(site)
                 : fmt::format("*reinterpret_cast<{}*>({})", vector_type(fragment.type, count), addresses.of(site));
  const std::string bits =
      count == 1 ? element_bits(emission, store.source, first) : gathered(emission, store.source, first, count);
  guarded(emission, guard_text(emission, store.target, site), fmt::format("{} = {};", place, bits));
}

// --- tensor-core fragments of 16-bit elements ----------------------------------------------------------------------

constexpr int kQuadCols = 32;  // columns whose words four lanes exchange
constexpr int kRowVector = 8;  // elements of 16 bytes

// A lane of a tensor-core fragment holds two neighbours in each eight columns. When four lanes exchange their words
// over 32 columns, each has eight neighbours: 16 bytes instead of 4.
bool exchanges_quads(Emission& emission, FragmentId id, const Access& access) {
  const layout::Layout& tile = emission.program[id].layout;
  if (!emission.packed(id) || tile.shape.size() != 2 || tile.shape[0] % 64 != 0 || tile.shape[1] % kQuadCols != 0)
    return false;
  return tile == layout::mma_accumulator(tile.shape[0], tile.shape[1]) &&
         provable_vector(emission, access, 1, kRowVector, {1, kRowVector}) == kRowVector;
}

// visit(registers of the four words, site and address of the lane's first element after the exchange).
template <class Visit>
void each_quad(Emission& emission, FragmentId id, const Access& access, const Visit& visit) {
  const layout::Layout& tile = emission.program[id].layout;
  std::map<std::pair<int, int>, int> registers;
  for (int reg = 0; reg < tile.registers(); ++reg) {
    const std::vector<int> at = tile.register_offset(reg);
    registers.emplace(std::pair{at[0], at[1]}, reg);
  }
  const std::vector<std::string> first = {emission.thread_part(tile, 0),
                                          emission.per_thread("lane % 4 * 8", "quad_col")};
  const Addresses addresses(emission, access, first);
  for (int block = 0; block < tile.shape[0]; block += 64)
    for (int row = block; row <= block + 8; row += 8)
      for (int col = 0; col < tile.shape[1]; col += kQuadCols) {
        std::vector<int> words;
        for (int i = 0; i < kQuadCols; i += 8) words.push_back(registers.at({row, col + i}));
        const Site site{nullptr, 0, {sum(first[0], row), sum(first[1], col)}};
        visit(words, site, addresses.of(site, {row, col}));
      }
}

void store_quads(Emission& emission, const StoreGlobal& store) {
  const auto write = [&](const std::vector<int>& registers, const Site& site, const std::string& address) {
    std::vector<std::string> words;
    for (const int reg : registers) {
      words.push_back(emission.names.local("words"));
      emission.out.format("unsigned {} = {};", words.back(), emission.variable(store.source, reg));
    }
    const std::string all = fmt::format("{}, {}, {}, {}", words[0], words[1], words[2], words[3]);
    emission.out.format("{}({}, lane);", emission.helpers.use("transpose_quad"), all);
    guarded(emission, guard_text(emission, store.target, site),
            fmt::format("{}({}, {});", emission.helpers.use("store_global_16_bytes"), address, all));
  };
  each_quad(emission, store.source, store.target, write);
}

void load_quads(Emission& emission, const LoadGlobal& load) {
  const auto read = [&](const std::vector<int>& registers, const Site& site, const std::string& address) {
    const std::string words = emission.names.local("words");
    std::string text = fmt::format("*reinterpret_cast<const uint4*>({})", address);
    if (const std::string guard = guard_text(emission, load.source, site); !guard.empty())
      text = fmt::format("{} ? {} : uint4{{}}", guard, text);
    emission.out.format("const uint4 {} = {};", words, text);
    std::string all;
    for (std::size_t i = 0; i < registers.size(); ++i) {
      const std::string variable = emission.variable(load.target, registers[i]);
      emission.out.format("{} = {}.{};", variable, words, "xyzw"[i]);
      all += variable + ", ";
    }
    emission.out.format("{}({}lane);", emission.helpers.use("transpose_quad"), all);
  };
  each_quad(emission, load.target, load.source, read);
}

}  // namespace

std::string owner_condition(const layout::Layout& layout) {
  std::string text;
  for (const layout::Place place : {layout::Place::lane, layout::Place::warp}) {
    int below = 1;
    const int all = place == layout::Place::lane ? layout::lanes_of_warp : layout::warps_of_group;
    for (const layout::Digit& digit : layout.digits) {
      if (digit.place != place) continue;
      if (digit.dim == layout::replicated && digit.extent > 1) {
        std::string term = place == layout::Place::lane ? "lane" : "warp";
        if (below > 1) term += fmt::format(" / {}", below);
        if (below * digit.extent < all) term += fmt::format(" % {}", digit.extent);
        text += fmt::format("{}{} == 0", text.empty() ? "" : " && ", term);
      }
      below *= digit.extent;
    }
  }
  return text;
}

// Row-major. The first index is widened, and all that follows is computed in 64 bits.
std::string global_offset(Emission& emission, const Access& access, const Site& site) {
  const Tensor& tensor = emission.program[access.tensor];
  std::string text;
  for (std::size_t k = 0; k < access.indices.size(); ++k) {
    const std::string index = value(emission, access.indices[k], site);
    text = text.empty() ? fmt::format("static_cast<long long>({})", bare(index))
                        : fmt::format("({} * {} + {})", text, uniform(emission, tensor.shape[k]), index);
  }
  return text.empty() ? "0" : bare(text);
}

int provable_vector(Emission& emission, const Access& access, int dim, int limit, const std::vector<int>& coords) {
  const Tensor& tensor = emission.program[access.tensor];
  const Facts& facts = emission.facts;
  if (access.indices.empty()) return 1;
  for (std::size_t k = 0; k + 1 < access.indices.size(); ++k)
    if (facts.slope(access.indices[k], dim) != 0) return 1;
  if (facts.slope(access.indices.back(), dim) != 1) return 1;
  for (int count = std::min(limit, kLargestAccessBits / bits(tensor.type)); count > 1; count /= 2) {
    std::vector<int> at = coords;
    int& own = at[static_cast<std::size_t>(dim)];
    own = std::min(own, count);
    const bool start = facts.divisor(access.indices.back(), at) % count == 0;
    const bool rows = access.indices.size() == 1 || facts.divisor(tensor.shape.back()) % count == 0;
    const bool guard = !access.guard || facts.same_for_neighbours(*access.guard, dim, count, at);
    if (own == count && start && rows && guard) return count;
  }
  return 1;
}

void write_load_global(Emission& emission, const LoadGlobal& load) {
  if (exchanges_quads(emission, load.target, load.source)) {
    emission.out.open("");
    load_quads(emission, load);
    emission.out.close();
    return;
  }
  const layout::Layout& tile = emission.program[load.target].layout;
  const bool packed = emission.packed(load.target);
  const int count = vector_of(emission, tile, load.source);
  emission.out.open("");
  const Addresses addresses(emission, load.source, first_of_thread(emission, tile));
  for (int reg = 0; reg < tile.registers(); reg += std::max(count, packed ? 2 : 1)) {
    if (count > 1)
      load_vector(emission, load, addresses, reg, count);
    else
      packed ? load_two(emission, load, addresses, reg) : load_one(emission, load, addresses, reg);
  }
  emission.out.close();
}

void write_store_global(Emission& emission, const StoreGlobal& store) {
  if (exchanges_quads(emission, store.source, store.target)) {
    emission.out.open("");
    store_quads(emission, store);
    emission.out.close();
    return;
  }
  const layout::Layout& tile = emission.program[store.source].layout;
  const int count = vector_of(emission, tile, store.target);
  const std::string owner = owner_condition(tile);
  emission.out.open(owner.empty() ? "" : fmt::format("if ({})", owner));
  const Addresses addresses(emission, store.target, first_of_thread(emission, tile));
  for (int reg = 0; reg < tile.registers(); reg += count) store_run(emission, store, addresses, reg, count);
  emission.out.close();
}

}  // namespace pipethreader::emit
