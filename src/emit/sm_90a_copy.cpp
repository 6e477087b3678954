// The copy engine: bulk tensor copies in and out, cut into boxes; and copies by threads where the engine cannot.
#include <algorithm>
#include <type_traits>

#include "emit/elements.h"
#include "emit/sm_90a.h"
#include "emit/values.h"

namespace pipethreader::emit {

using namespace program;

namespace {

constexpr int kChunkBytes = 16;

int size_of(ScalarType type) { return bits(type) / 8; }

std::string copy_helper(Emission& emission, std::size_t dims, bool multicast) {
  std::string parameters, coordinates, operands;
  for (std::size_t d = 0; d < dims; ++d) {
    parameters += fmt::format(", int c{}", d);
    coordinates += fmt::format("{}%{}", d > 0 ? ", " : "", 3 + d);
    operands += fmt::format(", \"r\"(c{})", d);
  }
  const std::string name = fmt::format("copy_{}d{}", dims, multicast ? "_multicast" : "");
  return emission.helpers.define(
      name,
      fmt::format(
          "{4}__device__ __forceinline__ void {0}(unsigned target, const TensorMap* map, unsigned barrier{1}{5}) {{\n"
          "  asm volatile(\n"
          "      \"cp.async.bulk.tensor.{2}d.shared::cluster.global.mbarrier::complete_tx::bytes{6} \"\n"
          "      \"[%0], [%1, {{{3}}}], [%2]{7};\" ::\"r\"(target),\n"
          "      \"l\"(map), \"r\"(barrier){8}{9}\n"
          "      : \"memory\");\n"
          "}}\n",
          name, parameters, dims, coordinates,
          multicast ? "// Into the same place of every block whose bit is set in `blocks`.\n" : "",
          multicast ? ", unsigned short blocks" : "", multicast ? ".multicast::cluster" : "",
          multicast ? fmt::format(", %{}", 3 + dims) : "", operands, multicast ? ", \"h\"(blocks)" : ""));
}

std::string store_helper(Emission& emission, std::size_t dims) {
  std::string parameters, coordinates, operands;
  for (std::size_t d = 0; d < dims; ++d) {
    parameters += fmt::format(", int c{}", d);
    coordinates += fmt::format("{}%{}", d > 0 ? ", " : "", 2 + d);
    operands += fmt::format(", \"r\"(c{})", d);
  }
  const std::string name = fmt::format("store_{}d", dims);
  return emission.helpers.define(
      name,
      fmt::format("__device__ __forceinline__ void {0}(const TensorMap* map, unsigned source{1}) {{\n"
                  "  asm volatile(\"cp.async.bulk.tensor.{2}d.global.shared::cta.bulk_group [%0, {{{3}}}], [%1];\" ::\n"
                  "                   \"l\"(map), \"r\"(source){4}\n"
                  "               : \"memory\");\n"
                  "}}\n",
                  name, parameters, dims, coordinates, operands));
}

}  // namespace

std::int64_t row_bytes(const Buffer& buffer) {
  return static_cast<std::int64_t>(span_columns(buffer)) * bits(buffer.type) / 8;
}

std::int64_t box_bytes(const Buffer& buffer) {
  return (buffer.stairs ? buffer.stairs->rows : buffer.rows) * row_bytes(buffer);
}

// Where stair i would have its column 0: behind the stairs before it, less the columns that it leaves out.
std::int64_t stair_offset(const Buffer& buffer, int stair) {
  const layout::Stairs& stairs = *buffer.stairs;
  return (stairs.elements(stair) - std::int64_t{stairs.first(stair)} * stairs.rows) * bits(buffer.type) / 8;
}

// The same as C text for a stair that only the running kernel knows.
std::string stair_offset(const Buffer& buffer, const std::string& stair) {
  const std::int64_t first = stair_offset(buffer, 0);
  const std::int64_t step = stair_offset(buffer, 1) - first;
  const std::int64_t bend = stair_offset(buffer, 2) - 2 * stair_offset(buffer, 1) + first;
  return fmt::format("{} * {} + {} * ({} - 1) / 2 * {} + {}", stair, step, stair, stair, bend, first);
}

std::string element_offset(Emission& emission, const Buffer& buffer, const std::string& row, const std::string& col) {
  const int size = size_of(buffer.type);
  const int span = span_columns(buffer);
  if (buffer.swizzle == Swizzle::none) return fmt::format("({} * {} + {}) * {}", row, buffer.cols, col, size);
  const std::string boxes = span == buffer.cols ? "" : fmt::format("{} / {} * {} + ", col, span, box_bytes(buffer));
  const std::string inside = span == buffer.cols ? col : fmt::format("{} % {}", col, span);
  return fmt::format("{}({}{} * {} + {} * {})",
                     emission.helpers.use(fmt::format("swizzle_{}", swizzle_bytes(buffer.swizzle))), boxes, row,
                     row_bytes(buffer), inside, size);
}

Periods swizzle_periods(const Buffer& buffer) {
  if (buffer.swizzle == Swizzle::none) return {1, 1};
  return {buffer.stairs ? buffer.stairs->rows : 8, span_columns(buffer)};
}

std::string shifted_offset(const Buffer& buffer, const std::string& row, const std::string& col) {
  const int size = size_of(buffer.type);
  const bool plain = buffer.swizzle == Swizzle::none;
  std::string text = "0";
  if (buffer.stairs) {
    text = stair_offset(buffer, fmt::format("({} / {})", row, buffer.stairs->rows));
  } else if (row != "0") {
    text = fmt::format("{} * {}", row, plain ? buffer.cols * size : row_bytes(buffer));
  }
  if (col == "0") return text;
  const std::string along = plain ? fmt::format("{} * {}", col, size)
                                  : fmt::format("{} / {} * {}", col, span_columns(buffer), box_bytes(buffer));
  return text == "0" ? along : fmt::format("{} + {}", text, along);
}

// The innermost dim is cut into boxes of the swizzle span, one instruction each.
CopyShape copy_shape(const Program& program, const TensorMap& map) {
  CopyShape shape;
  for (const TensorMap::MapDim& dim : map.dims) shape.box.push_back(dim.box);
  if (map.swizzle == Swizzle::none) return shape;
  const int span = swizzle_bytes(map.swizzle) * 8 / bits(program[map.tensor].type);
  shape.boxes = std::max(1, map.dims[0].box / span);
  shape.box[0] = map.dims[0].box / shape.boxes;
  return shape;
}

// In a multicast, every block brings its share of the rows, at the share's place, to all blocks.
void Sm90a::write(const CopyBulk& op) {
  const TensorMap& map = program_[op.map];
  const Buffer& buffer = program_[op.target.buffer];
  if (!buffer.ring.valid()) {
    emission_.problem("a bulk copy into '{}', which is no slot of a ring", buffer.name);
    return;
  }
  const bool multicast = program_[buffer.ring].multicast && program_.cluster > 1;
  const CopyShape shape = copy_shape(program_, map);
  const std::string copy = copy_helper(emission_, map.dims.size(), multicast);
  open_leader();
  for (int box = 0; box < shape.boxes; ++box) {
    std::string target = slot_address(op.target);
    if (multicast) target += fmt::format(" + rank * {}", map.rows() * row_bytes(buffer));
    std::int64_t place = box * box_bytes(buffer) + op.row * row_bytes(buffer);
    if (buffer.stairs)
      place = stair_offset(buffer, op.row / buffer.stairs->rows) + op.col / span_columns(buffer) * box_bytes(buffer);
    if (place > 0) target += fmt::format(" + {}", place);
    std::vector<std::string> args = {target, "&" + emission_.name(op.map), full(buffer.ring, op.target.lag)};
    for (std::size_t d = 0; d < map.dims.size(); ++d) {
      const std::string coordinate = uniform(emission_, op.coordinates[d]);
      args.push_back(bare(d == 0 ? sum(coordinate, box * shape.box[0] * map.dims[0].step) : coordinate));
    }
    if (multicast) args.push_back(fmt::format("{}", (1 << program_.cluster) - 1));
    out_.list(copy + "(", args, ");");
  }
  close_leader();
}

void Sm90a::write(const BulkStore& op) {
  const TensorMap& map = program_[op.map];
  const Buffer& buffer = program_[op.source.buffer];
  const CopyShape shape = copy_shape(program_, map);
  const std::string store = store_helper(emission_, map.dims.size());
  const std::string row = uniform(emission_, op.row);
  open_leader();
  for (int box = 0; box < shape.boxes; ++box) {
    std::string source = slot_address(op.source);
    if (row != "0") source += fmt::format(" + {} * {}", row, row_bytes(buffer));
    if (box > 0) source += fmt::format(" + {}", box * box_bytes(buffer));
    std::vector<std::string> args = {"&" + emission_.name(op.map), source};
    for (std::size_t d = 0; d < map.dims.size(); ++d) {
      const std::string coordinate = uniform(emission_, op.coordinates[d]);
      args.push_back(bare(d == 0 ? sum(coordinate, box * shape.box[0] * map.dims[0].step) : coordinate));
    }
    out_.list(store + "(", args, ");");
  }
  out_.format("{}();", emission_.helpers.use("bulk_commit"));
  close_leader();
}

void Sm90a::write(const BulkStoreWait& op) {
  by_leader(fmt::format("{}<{}>();", emission_.helpers.use("bulk_wait_read"), op.pending));
}

// --- copies by threads -------------------------------------------------------------------------------------------

namespace {

// The bits of one element, 0 where the guard fails.
std::string guarded_bits(Emission& emission, const Access& access, const Site& site) {
  const std::string bits = fmt::format("{}[{}]", emission.name(access.tensor), global_offset(emission, access, site));
  if (!access.guard) return bits;
  return fmt::format(
      "{} ? {} : {}", value(emission, *access.guard, site), bits,
      is_floating(emission.program[access.tensor].type) && size_of(emission.program[access.tensor].type) == 4 ? "0.0f"
                                                                                                              : "0");
}

// A 32-bit word of `per_word` neighbours from column `first` of the chunk, element by element.
std::string word_by_elements(Emission& emission, const Access& access, int first, int per_word) {
  const ScalarType type = emission.program[access.tensor].type;
  std::string text;
  for (int i = 0; i < per_word; ++i) {
    const std::string bits =
        guarded_bits(emission, access, Site{nullptr, 0, {"chunk_row", sum("chunk_col", first + i)}});
    if (per_word == 1)
      return fmt::format("{}({})", is_floating(type) ? "__float_as_uint" : "static_cast<unsigned>", bits);
    std::string part = fmt::format("static_cast<unsigned>({})", bits);
    if (memory_type(type) == "signed char") part = fmt::format("({} & 0xffu)", part);
    text += i == 0 ? part : fmt::format(" | {} << {}", part, i * size_of(type) * 8);
  }
  return text;
}

}  // namespace

// How many loads a thread keeps under way; each holds four registers.
int Sm90a::loads_under_way() const {
  const int registers = program_[emission_.role.id].registers;
  return registers == 0 || registers >= 96 ? 4 : registers >= 64 ? 2 : 1;
}

void Sm90a::write(const CopyPlain& op) {
  const Buffer& buffer = program_[op.target.buffer];
  const int size = size_of(buffer.type);
  const int per_chunk = std::min(kChunkBytes / size, span_columns(buffer));
  if (per_chunk * size != kChunkBytes || buffer.cols % per_chunk != 0) {
    copy_elements(op);
    return;
  }
  const int chunks = buffer.cols / per_chunk;
  out_.format("#pragma unroll {}", loads_under_way());
  out_.open(fmt::format("for (int chunk = thread; chunk < {}; chunk += 128)", buffer.rows * chunks));
  out_.format("const int chunk_row = chunk / {}, chunk_col = chunk % {} * {};", chunks, chunks, per_chunk);
  const int count = provable_vector(emission_, op.source, 1, per_chunk, {1, per_chunk});
  std::vector<std::string> words;
  const int per_word = 4 / size;
  if (count == per_chunk) {
    const Site site{nullptr, 0, {"chunk_row", "chunk_col"}};
    std::string text = fmt::format("*reinterpret_cast<const uint4*>({} + {})", emission_.name(op.source.tensor),
                                   global_offset(emission_, op.source, site));
    if (op.source.guard) text = fmt::format("{} ? {} : uint4{{}}", value(emission_, *op.source.guard, site), text);
    out_.format("const uint4 words = {};", text);
  } else {
    for (int first = 0; first < per_chunk; first += per_word) {
      words.push_back(emission_.names.local("words"));
      out_.format("const unsigned {} = {};", words.back(), word_by_elements(emission_, op.source, first, per_word));
    }
    out_.format("const uint4 words = make_uint4({}, {}, {}, {});", words[0], words[1], words[2], words[3]);
  }
  out_.format("{}({} + {}, words);", emission_.helpers.use("store_shared_16_bytes"), slot_address(op.target),
              element_offset(emission_, buffer, "chunk_row", "chunk_col"));
  out_.close();
}

void Sm90a::copy_elements(const CopyPlain& op) {
  const Buffer& buffer = program_[op.target.buffer];
  const int size = size_of(buffer.type);
  out_.format("#pragma unroll {}", loads_under_way());
  out_.open(fmt::format("for (int chunk = thread; chunk < {}; chunk += 128)", buffer.rows * buffer.cols));
  out_.format("const int chunk_row = chunk / {}, chunk_col = chunk % {};", buffer.cols, buffer.cols);
  const std::string bits = guarded_bits(emission_, op.source, Site{nullptr, 0, {"chunk_row", "chunk_col"}});
  const std::string_view kind = size == 4 ? (is_floating(buffer.type) ? "f32" : "s32") : size == 2 ? "b16" : "b8";
  out_.format("{}({} + {}, {});", emission_.helpers.use(fmt::format("store_shared_{}", kind)), slot_address(op.target),
              element_offset(emission_, buffer, "chunk_row", "chunk_col"), bits);
  out_.close();
}

}  // namespace pipethreader::emit
