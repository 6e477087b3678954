// Register tiles to and from shared memory: 8x8 matrices of 16-bit elements in one instruction where the tile is a
// tensor-core fragment and runs along the buffer's rows or columns, else vectors of up to 16 bytes along a row.
#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "emit/elements.h"
#include "emit/sm_90a.h"
#include "emit/values.h"
#include "emit/words.h"

namespace pipethreader::emit {

using namespace program;

namespace {

constexpr int kChunkBytes = 16;  // what a swizzle keeps together

// A row or column of the tile in memory as a function of the fragment's coordinates.
struct Index {
  std::function<std::string(const Site&)> text;
  std::function<std::optional<std::int64_t>(int dim)> slope;
  std::function<int(const std::vector<int>& coords)> divisor;
};

Index index_of(Emission& emission, ExprId id) {
  return {[&emission, id](const Site& site) { return value(emission, id, site); },
          [&emission, id](int dim) { return emission.facts.slope(id, dim); },
          [&emission, id](const std::vector<int>& coords) { return emission.facts.divisor(id, coords); }};
}

// An index as a multiple of `period` that all threads share, and the rest.
struct SplitIndex {
  std::string shared = "0";
  Index own;
};

SplitIndex split_index(Emission& emission, ExprId id, std::size_t dims, int period) {
  SplitIndex result{"0", index_of(emission, id)};
  std::vector<std::int64_t> slopes;
  for (std::size_t dim = 0; dim < dims; ++dim) {
    const auto slope = emission.facts.slope(id, static_cast<int>(dim));
    if (!slope) return result;
    slopes.push_back(*slope);
  }
  constexpr int far = 1024;  // coordinates that say nothing about the shared part
  if (emission.facts.divisor(id, std::vector<int>(dims, far)) % period != 0) return result;
  result.shared = value(emission, id, Site{nullptr, 0, std::vector<std::string>(dims, "0")});
  result.own.text = [&emission, slopes](const Site& site) {
    std::string text = "0";
    for (std::size_t dim = 0; dim < slopes.size(); ++dim) {
      if (slopes[dim] == 0) continue;
      const std::string at = coordinate_text(emission, site, static_cast<int>(dim));
      text = sum(text, slopes[dim] == 1 ? at : fmt::format("{} * {}", at, slopes[dim]));
    }
    return text;
  };
  return result;
}

struct SharedAccess {
  FragmentId fragment;
  bool store = false;
  ScalarType type = ScalarType::f16;  // in memory
  int cols = 0;                       // of the tile in memory
  Index row;
  Index col;
  std::function<std::string(const std::string& row, const std::string& col)> offset;  // in bytes, as C text
};

int elements_of_chunk(const SharedAccess& access) {
  const int chunk = kChunkBytes * 8 / bits(access.type);
  return std::min(chunk, access.cols & -access.cols);
}

// How 8x8 matrices lie in a tile: which of its dims is the rows of the tensor core, and whether their rows of 16 bytes
// run along the tensor core's columns (straight) or its rows.
struct Matrices {
  int rows = 0;
  bool straight = true;
};

// The dim that runs over the tensor core's rows, where the layout is that of its fragments.
std::optional<int> rows_of_fragment(const layout::Layout& layout) {
  if (layout.shape.size() != 2) return std::nullopt;
  layout::Layout turned = layout;
  std::swap(turned.shape[0], turned.shape[1]);
  for (layout::Digit& digit : turned.digits)
    if (digit.dim == 0 || digit.dim == 1) digit.dim = 1 - digit.dim;
  for (const int rows : {0, 1}) {
    const layout::Layout& own = rows == 0 ? layout : turned;
    if (own.shape[0] % 64 == 0 && own.shape[1] % 16 == 0 && own == layout::mma_accumulator(own.shape[0], own.shape[1]))
      return rows;
  }
  return std::nullopt;
}

// Nothing unless every row of 16 bytes is whole and aligned.
std::optional<Matrices> matrices_of(Emission& emission, const SharedAccess& access) {
  const Fragment& fragment = emission.program[access.fragment];
  if (!emission.packed(access.fragment) || access.type != fragment.type) return std::nullopt;
  const auto rows = rows_of_fragment(fragment.layout);
  if (!rows || elements_of_chunk(access) != 8 || access.col.divisor({8, 8}) % 8 != 0) return std::nullopt;
  const auto runs = [](const Index& index, int along) {
    return index.slope(along) == 1 && index.slope(1 - along) == 0;
  };
  if (runs(access.row, *rows) && runs(access.col, 1 - *rows)) return Matrices{*rows, true};
  if (runs(access.row, 1 - *rows) && runs(access.col, *rows)) return Matrices{*rows, false};
  return std::nullopt;
}

// Four matrices at a time: 16 rows of a warp by 16 columns. Lane l gives the address of row l % 8 of matrix l / 8;
// matrices go down the tile's rows first, as the registers do.
void write_matrices(Emission& emission, const SharedAccess& access, const Matrices& matrices) {
  const layout::Layout& layout = emission.program[access.fragment].layout;
  const bool straight = matrices.straight;
  const auto dim_of = [&](const auto& coordinates, int dim) {
    return coordinates[static_cast<std::size_t>(dim == 0 ? matrices.rows : 1 - matrices.rows)];
  };
  const std::string tile_row = straight ? emission.per_thread("warp * 16 + lane % 16", "matrix_row")
                                        : emission.per_thread("warp * 16 + lane / 8 % 2 * 8", "matrix_row");
  const std::string tile_col = straight ? emission.per_thread("lane / 16 * 8", "matrix_col")
                                        : emission.per_thread("lane / 16 * 8 + lane % 8", "matrix_col");
  const std::string function = emission.helpers.use(
      fmt::format("{}_matrices{}", access.store ? "store" : "load", straight ? "" : "_transposed"));
  std::map<std::pair<int, int>, int> registers;
  for (int reg = 0; reg < layout.registers(); ++reg) {
    const std::vector<int> at = layout.register_offset(reg);
    registers.emplace(std::pair{dim_of(at, 0), dim_of(at, 1)}, reg);
  }
  for (int row = 0; row < dim_of(layout.shape, 0); row += 64)
    for (int col = 0; col < dim_of(layout.shape, 1); col += 16) {
      std::vector<std::string> at = {sum(tile_row, row), sum(tile_col, col)};
      if (matrices.rows == 1) std::swap(at[0], at[1]);
      const Site site{nullptr, 0, at};
      std::vector<std::string> args = {"tile + " + access.offset(access.row.text(site), access.col.text(site))};
      for (const auto& [down, right] : {std::pair{0, 0}, {8, 0}, {0, 8}, {8, 8}})
        args.push_back(emission.variable(access.fragment, registers.at({row + down, col + right})));
      if (!access.store) emission.loads.push_back(args.back());
      emission.out.list(function + "(", args, ");");
    }
}

// The longest run of registers that lies in one aligned piece of a row.
int vector_of(Emission& emission, const SharedAccess& access) {
  const layout::Layout& layout = emission.program[access.fragment].layout;
  for (Run run = contiguous_run(layout); run.count > 1; run.count /= 2) {
    if (run.count > elements_of_chunk(access)) continue;
    const bool along = access.col.slope(run.dim) == 1 && access.row.slope(run.dim) == 0;
    if (along && access.col.divisor(coordinate_divisors(layout, run)) % run.count == 0) return run.count;
  }
  return 1;
}

std::string access_name(ScalarType type, int count) {
  switch (bits(type) * count / 8) {
    case 16:
      return "16_bytes";
    case 8:
      return "8_bytes";
    case 4:
      return count > 1 ? "b32" : is_floating(type) ? "f32" : "s32";
    case 2:
      return "b16";
    default:
      return "b8";
  }
}

void write_runs(Emission& emission, const SharedAccess& access) {
  const Fragment& fragment = emission.program[access.fragment];
  const int count = vector_of(emission, access);
  const bool halves = count == 1 && emission.packed(access.fragment);
  const std::string function = emission.helpers.use(
      fmt::format("{}_shared_{}", access.store ? "store" : "load", access_name(fragment.type, count)));
  const auto address = [&](int reg) {
    const Site site{&fragment.layout, reg, {}};
    return "tile + " + access.offset(access.row.text(site), access.col.text(site));
  };
  for (int reg = 0; reg < fragment.layout.registers(); reg += halves && !access.store ? 2 : count) {
    if (!access.store)
      emission.loads.push_back(emission.register_bits(access.fragment, emission.variable(access.fragment, reg)));
    if (access.store) {
      emission.out.format(
          "{}({}, {});", function, address(reg),
          count == 1 ? element_bits(emission, access.fragment, reg) : gathered(emission, access.fragment, reg, count));
    } else if (halves) {
      emission.out.format("{} = {}({}({}), {}({}));", emission.variable(access.fragment, reg),
                          emission.helpers.use("join_pair"), function, address(reg), function, address(reg + 1));
    } else if (count == 1) {
      emission.out.format("{} = {};", emission.variable(access.fragment, reg),
                          from_bits(emission, fragment.type, fmt::format("{}({})", function, address(reg))));
    } else {
      const std::string words = emission.names.local("words");
      emission.out.format("const {} {} = {}({});", vector_type(fragment.type, count), words, function, address(reg));
      scatter(emission, access.fragment, reg, count, words);
    }
  }
}

// Inside braces that define `tile`, the address of the memory's first byte.
void write_shared(Emission& emission, const SharedAccess& access) {
  if (const auto matrices = matrices_of(emission, access)) return write_matrices(emission, access, *matrices);
  const std::string owner = access.store ? owner_condition(emission.program[access.fragment].layout) : "";
  if (!owner.empty()) emission.out.open(fmt::format("if ({})", owner));
  write_runs(emission, access);
  if (!owner.empty()) emission.out.close();
}

// What all threads share of the address goes into `tile`: the rest does not change in loops.
void write_buffer_access(Emission& emission, const std::string& slot, FragmentId fragment, BufferId id, ExprId row,
                         ExprId col, bool store) {
  const Buffer& buffer = emission.program[id];
  const std::size_t dims = emission.program[fragment].layout.shape.size();
  const Periods periods = swizzle_periods(buffer);
  SplitIndex rows = split_index(emission, row, dims, periods.rows);
  SplitIndex cols = split_index(emission, col, dims, periods.cols);
  if (buffer.stairs &&
      (store || rows.shared == "0" || dims == 0 || emission.program[fragment].layout.shape[0] > periods.rows))
    emission.problem("'{}' is read otherwise than stair by stair", buffer.name);
  emission.out.open("");
  emission.out.format("const unsigned tile = {};", bare(sum(slot, shifted_offset(buffer, rows.shared, cols.shared))));
  write_shared(emission, {fragment, store, buffer.type, buffer.cols, std::move(rows.own), std::move(cols.own),
                          [&emission, &buffer](const std::string& r, const std::string& c) {
                            return element_offset(emission, buffer, r, c);
                          }});
  emission.out.close();
}

// --- relayout through scratch memory -------------------------------------------------------------------------------

// The tile row-major over its last dim; 16-byte chunks permuted among rows where the rows are long enough, so that
// neither side meets bank conflicts.
SharedAccess scratch_access(Emission& emission, FragmentId fragment, bool store) {
  const Fragment& f = emission.program[fragment];
  const layout::Layout& layout = f.layout;
  const int last = static_cast<int>(layout.shape.size()) - 1;
  const int cols = last >= 0 ? layout.shape.back() : 1;
  const int size = bits(f.type) / 8;
  const bool permuted = cols * size % 128 == 0;
  const auto coordinate = [&emission](const Site& site, int dim) {
    if (site.tile == nullptr) return site.coords[static_cast<std::size_t>(dim)];
    return sum(emission.thread_part(*site.tile, dim),
               site.tile->register_offset(site.reg)[static_cast<std::size_t>(dim)]);
  };
  Index row{[=](const Site& site) {
              std::string text = "0";
              for (int dim = 0; dim < last; ++dim) {
                if (text != "0") text = fmt::format("{} * {}", text, layout.shape[static_cast<std::size_t>(dim)]);
                text = sum(text, coordinate(site, dim));
              }
              return text;
            },
            [=](int dim) { return std::optional<std::int64_t>(dim == last ? 0 : 1); },
            [](const std::vector<int>&) { return 1; }};
  Index col{[=](const Site& site) { return last >= 0 ? coordinate(site, last) : std::string("0"); },
            [=](int dim) { return std::optional<std::int64_t>(dim == last ? 1 : 0); },
            [](const std::vector<int>& coords) { return coords.empty() ? 1 : coords.back(); }};
  return {
      fragment, store, f.type, cols, std::move(row), std::move(col), [=](const std::string& r, const std::string& c) {
        if (!permuted) return fmt::format("({} * {} + {}) * {}", r, cols, c, size);
        return fmt::format("{} * {} + (({} * {}) ^ ({} % 8 * 16))", r, cols * size, c, size, r);
      }};
}

}  // namespace

void Sm90a::write(const LoadShared& op) {
  emission_.loads.clear();
  write_buffer_access(emission_, slot_address(op.source), op.target, op.source.buffer, op.row, op.col, false);
  const RingId ring = program_[op.source.buffer].ring;
  if (!ring.valid()) return;
  LoadsUnderWay& loads = loads_under_way_[static_cast<std::size_t>(ring.index)];
  loads.bits.insert(loads.bits.end(), emission_.loads.begin(), emission_.loads.end());
  loads.targets.insert(op.target);
}

void Sm90a::write(const StoreShared& op) {
  write_buffer_access(emission_, slot_address(op.target), op.source, op.target.buffer, op.row, op.col, true);
}

// The scratch holds a tile for each instance.
void Sm90a::write(const Relayout& op) {
  if (!op.scratch.valid()) {
    write_relayout(emission_, op);
    return;
  }
  const Fragment& source = program_[op.source];
  const Buffer& scratch = program_[op.scratch];
  const std::int64_t bytes = source.layout.elements() * bits(source.type) / 8;
  const std::int64_t room = static_cast<std::int64_t>(scratch.rows) * scratch.cols * bits(scratch.type) / 8;
  if (room < bytes * program_[emission_.role.id].instances) {
    emission_.problem("scratch '{}' holds {} bytes; a relayout of '{}' needs {} for each instance", scratch.name, room,
                      source.name, bytes);
    return;
  }
  out_.open("");
  out_.format("const unsigned tile = shared + {} + {} * {};", emission_.name(op.scratch), emission_.role.instance,
              bytes);
  emission_.sync_group();
  write_shared(emission_, scratch_access(emission_, op.source, true));
  emission_.sync_group();
  write_shared(emission_, scratch_access(emission_, op.target, false));
  out_.close();
}

}  // namespace pipethreader::emit
