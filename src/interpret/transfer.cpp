// Copies, loads and stores between global memory, shared memory and fragments.
#include <algorithm>

#include "interpret/cluster.h"
#include "interpret/number.h"

namespace pipethreader::interpret {

using namespace program;

namespace {

// The elements of an access over a tile: where each lies in its tensor, -1 where the guard is false.
struct Places {
  std::vector<std::int64_t> index;
};

const Code& code_of(Launch& launch, const program::Access& access, std::vector<int> shape) {
  std::vector<ExprId> roots = access.indices;
  if (access.guard) roots.push_back(*access.guard);
  return launch.code.compile(roots, std::move(shape));
}

Places evaluate_access(Launch& launch, const Uniforms& uniforms, const program::Access& access, std::vector<int> shape,
                       std::vector<const float*> fragments) {
  const Code& code = code_of(launch, access, std::move(shape));
  const std::vector<std::int64_t>& extents = launch.shapes[at(access.tensor)];
  Evaluation evaluation(code, uniforms, std::move(fragments));
  Places places{std::vector<std::int64_t>(code.elements, -1)};
  for (std::size_t begin = 0; begin < code.elements; begin += chunk_elements) {
    const std::size_t count = std::min(chunk_elements, code.elements - begin);
    evaluation.load(begin, count);
    for (std::size_t k = 0; k < count; ++k) {
      if (access.guard && !evaluation.truth(access.indices.size(), k)) continue;
      std::int64_t index = 0;
      for (std::size_t d = 0; d < extents.size(); ++d) {
        const std::int64_t i = evaluation.integers(d)[k];
        if (i < 0 || i >= extents[d]) {
          uniforms.faults->raise(FaultKind::out_of_bounds,
                                 fmt::format("tile element {}: index {} of tensor '{}' is {}, its extent {}", begin + k,
                                             d, launch.program[access.tensor].name, i, extents[d]));
          return places;
        }
        index = index * extents[d] + i;
      }
      places.index[begin + k] = index;
    }
  }
  return places;
}

// Rows and columns of a shared access, element by element.
struct Cells {
  std::vector<int> rows;
  std::vector<int> cols;
};

Cells evaluate_cells(Launch& launch, const Uniforms& uniforms, ExprId row, ExprId col, std::vector<int> shape) {
  const Code& code = launch.code.compile({row, col}, std::move(shape));
  Evaluation evaluation(code, uniforms, {});
  Cells cells{std::vector<int>(code.elements), std::vector<int>(code.elements)};
  for (std::size_t begin = 0; begin < code.elements; begin += chunk_elements) {
    const std::size_t count = std::min(chunk_elements, code.elements - begin);
    evaluation.load(begin, count);
    for (std::size_t k = 0; k < count; ++k) {
      cells.rows[begin + k] = static_cast<int>(evaluation.integers(0)[k]);
      cells.cols[begin + k] = static_cast<int>(evaluation.integers(1)[k]);
    }
  }
  return cells;
}

// The copy engine takes boxes that begin at a multiple of 16 bytes in their contiguous dim.
void check_start(FaultSink& faults, const Program& program, MapId map, std::int64_t innermost) {
  const std::int64_t size = bits(program[program[map].tensor].type) / 8;
  if (innermost * size % 16 == 0) return;
  faults.raise(FaultKind::protocol,
               fmt::format("a box of '{}' begins at element {} of {} bytes: no multiple of 16 bytes", program[map].name,
                           innermost, size));
}

std::vector<std::int64_t> evaluate_all(const Uniforms& uniforms, const std::vector<ExprId>& exprs) {
  std::vector<std::int64_t> values;
  for (const ExprId e : exprs) values.push_back(uniforms.integer(e));
  return values;
}

// The element of the tensor that the box holds at (row, col); -1 outside the map.
std::int64_t box_element(const ResolvedMap& map, const std::vector<std::int64_t>& origin, int row, int col) {
  std::int64_t index = 0;
  for (std::size_t d = 0; d < map.box.size(); ++d) {
    const int within = d == 0 ? col : row % map.box[d];
    if (d > 0) row /= map.box[d];
    const std::int64_t coordinate = origin[d] + static_cast<std::int64_t>(within) * map.step[d];
    if (coordinate < 0 || coordinate >= map.extent[d]) return -1;
    index += coordinate * map.stride[d];
  }
  return index;
}

}  // namespace

// --- by threads ------------------------------------------------------------------------------------------------------

// Instances of the role share the rows.
Step Cluster::execute(Actor& actor, const Instr& instr, const CopyPlain& op) {
  const Buffer& buffer = program_[op.target.buffer];
  const SlotRef ref = slot_of(actor, op.target);
  const int instances = program_[actor.role].instances;
  const Region region{buffer.rows * actor.instance / instances, buffer.rows * (actor.instance + 1) / instances, 0,
                      buffer.cols};
  begin_write(actor.block, ref, region, toucher(actor, &instr));
  if (faults_.any()) return Step::advanced;
  std::vector<float>& words = blocks_[actor.block].memory[ref].words;
  const auto width = static_cast<std::size_t>(buffer.cols);
  const auto first = static_cast<std::size_t>(region.row_begin) * width;
  const auto last = static_cast<std::size_t>(region.row_end) * width;
  std::fill(words.begin() + static_cast<std::ptrdiff_t>(first), words.begin() + static_cast<std::ptrdiff_t>(last),
            0.0f);
  if (!launch_.numbers()) return Step::advanced;
  const Places places = evaluate_access(launch_, uniforms(actor), op.source, {buffer.rows, buffer.cols}, {});
  for (std::size_t e = first; e < last && !faults_.any(); ++e)
    if (places.index[e] >= 0)
      words[e] = to_word(buffer.type, global_.read(op.source.tensor, places.index[e], index_, toucher(actor, &instr)));
  return Step::advanced;
}

Step Cluster::execute(Actor& actor, const Instr& instr, const LoadGlobal& op) {
  const Fragment& fragment = program_[op.target];
  Tile& tile = fragment_to_write(actor, op.target);
  if (!launch_.numbers() || faults_.any()) return Step::advanced;
  const Places places = evaluate_access(launch_, uniforms(actor), op.source, fragment.layout.shape, {});
  for (std::size_t e = 0; e < tile.words.size() && !faults_.any(); ++e)
    tile.words[e] =
        places.index[e] < 0
            ? 0.0f
            : to_word(fragment.type, global_.read(op.source.tensor, places.index[e], index_, toucher(actor, &instr)));
  return Step::advanced;
}

Step Cluster::execute(Actor& actor, const Instr& instr, const StoreGlobal& op) {
  const Fragment& fragment = program_[op.source];
  const Tile& tile = fragment_to_read(actor, op.source);
  std::vector<const float*> guards = fragments_to_read(actor, code_of(launch_, op.target, fragment.layout.shape));
  if (!launch_.numbers() || faults_.any()) return Step::advanced;
  const Places places = evaluate_access(launch_, uniforms(actor), op.target, fragment.layout.shape, std::move(guards));
  for (std::size_t e = 0; e < tile.words.size() && !faults_.any(); ++e)
    if (places.index[e] >= 0)
      global_.write(op.target.tensor, places.index[e], from_word(fragment.type, tile.words[e]), index_,
                    toucher(actor, &instr));
  return Step::advanced;
}

Step Cluster::execute(Actor& actor, const Instr& instr, const LoadShared& op) {
  const Fragment& fragment = program_[op.target];
  const SlotRef ref = slot_of(actor, op.source);
  Tile& tile = fragment_to_write(actor, op.target);
  const Cells cells = evaluate_cells(launch_, uniforms(actor), op.row, op.col, fragment.layout.shape);
  touch_elements(actor.block, ref, cells.rows, cells.cols, false, toucher(actor, &instr));
  if (faults_.any()) return Step::advanced;
  const std::vector<float>& words = blocks_[actor.block].memory[ref].words;
  const int width = program_[op.source.buffer].cols;
  for (std::size_t e = 0; e < tile.words.size(); ++e) {
    tile.words[e] = words[static_cast<std::size_t>(cells.rows[e] * width + cells.cols[e])];
    if (is_poison(tile.words[e]))
      faults_.raise(FaultKind::uninitialised, fmt::format("row {}, column {} of {} is read, and nobody wrote it",
                                                          cells.rows[e], cells.cols[e], name_of(ref)));
  }
  return Step::advanced;
}

Step Cluster::execute(Actor& actor, const Instr& instr, const StoreShared& op) {
  const SlotRef ref = slot_of(actor, op.target);
  const Tile& tile = fragment_to_read(actor, op.source);
  const Cells cells = evaluate_cells(launch_, uniforms(actor), op.row, op.col, program_[op.source].layout.shape);
  touch_elements(actor.block, ref, cells.rows, cells.cols, true, toucher(actor, &instr));
  if (faults_.any()) return Step::advanced;
  std::vector<float>& words = blocks_[actor.block].memory[ref].words;
  const int width = program_[op.target.buffer].cols;
  for (std::size_t e = 0; e < tile.words.size(); ++e)
    words[static_cast<std::size_t>(cells.rows[e] * width + cells.cols[e])] = tile.words[e];
  return Step::advanced;
}

// --- by the copy engine ----------------------------------------------------------------------------------------------

Step Cluster::execute(Actor& actor, const Instr& instr, const CopyBulk& op) {
  const Buffer& buffer = program_[op.target.buffer];
  if (!buffer.ring.valid()) {
    faults_.raise(FaultKind::unsupported, fmt::format("a bulk copy into '{}', which belongs to no ring", buffer.name));
    return Step::advanced;
  }
  const SlotRef target = slot_of(actor, op.target);
  const ResolvedMap& map = launch_.maps[at(op.map)];
  const bool multicast = program_[buffer.ring].multicast;
  const int shares = multicast ? program_.cluster : 1;
  if (op.row + map.rows * shares > buffer.rows || op.col + map.cols > buffer.cols) {
    faults_.raise(
        FaultKind::out_of_bounds,
        fmt::format("{} box(es) of {} x {} from row {} and column {} on do not fit buffer '{}', which is {} x {}",
                    shares, map.rows, map.cols, op.row, op.col, buffer.name, buffer.rows, buffer.cols));
    return Step::advanced;
  }
  const std::vector<std::int64_t> coordinates = evaluate_all(uniforms(actor), op.coordinates);
  if (launch_.numbers()) check_start(faults_, program_, op.map, coordinates.front());
  const int number = actor.copies_of_fill[at(buffer.ring)]++;
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    if (!multicast && b != actor.block) continue;
    reach(actor, b);
    const CopyKey key{b, buffer.ring.index, target.slot, actor.index, number};
    const auto [known, added] = copy_components_.try_emplace(key, copy_keys_.size());
    if (added) {
      copy_keys_.push_back(key);
      copy_times_.push_back(0);
    }
    BulkRead& copy = copies_.emplace_back();
    copy.issue = issue(actor, instr, first_copy_ + static_cast<Component>(known->second), ++copy_times_[known->second]);
    copy.block = b;
    copy.target = target;
    copy.ring = buffer.ring;
    copy.map = op.map;
    copy.coordinates = coordinates;
    copy.first_col = op.col;
    copy.first_row = op.row + (multicast ? map.rows * cluster_rank(actor) : 0);
  }
  return Step::advanced;
}

// Some rows of a copy, at a time of the scheduler's choice; after the last ones its bytes count.
void Cluster::copy_piece(std::size_t index) {
  BulkRead& copy = copies_[index];
  const ResolvedMap& map = launch_.maps[at(copy.map)];
  const Toucher now = toucher(copy.issue);
  if (blocks_[copy.block].running == 0)
    faults_.raise(FaultKind::protocol, fmt::format("a copy reaches block {}, which has already ended", copy.block));
  const int rows = std::min(map.rows - copy.next_row, std::max(1, map.rows / static_cast<int>(1 + random_.below(3))));
  const Region region{copy.first_row + copy.next_row, copy.first_row + copy.next_row + rows, copy.first_col,
                      copy.first_col + map.cols};
  begin_write(copy.block, copy.target, region, now);
  if (!faults_.any()) {
    Slot& slot = blocks_[copy.block].memory[copy.target];
    const ScalarType type = program_[copy.target.buffer].type;
    const int width = program_[copy.target.buffer].cols;
    for (int row = copy.next_row; row < copy.next_row + rows; ++row) {
      float* out = slot.words.data() + (copy.first_row + row) * width + copy.first_col;
      for (int col = 0; col < map.cols; ++col) {
        const std::int64_t element = launch_.numbers() ? box_element(map, copy.coordinates, row, col) : -1;
        *out++ = element < 0 ? 0.0f : to_word(type, global_.read(map.tensor, element, index_, now));
      }
    }
    copy.next_row += rows;
    if (copy.next_row == map.rows) {
      const BulkRead finished = std::move(copy);
      copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(index));
      count_bytes(finished);
      faults_.add_place(launch_.place(finished.issue.instr));
      return;
    }
  }
  faults_.add_place(launch_.place(copy.issue.instr));
}

Step Cluster::execute(Actor& actor, const Instr& instr, const BulkStore& op) {
  const SlotRef source = slot_of(actor, op.source);
  const Uniforms values = uniforms(actor);
  BulkWrite& store = stores_.emplace_back();
  store.issue = issue(actor, instr, store_reads(actor), ++actor.stores_issued);
  store.write_component = store_writes(actor);
  store.source = source;
  store.row = values.integer(op.row);
  store.map = op.map;
  store.coordinates = evaluate_all(values, op.coordinates);
  if (launch_.numbers()) check_start(faults_, program_, op.map, store.coordinates.front());
  actor.stores.emplace_back(store.issue.time, false);
  return Step::advanced;
}

void Cluster::store_piece(std::size_t index) {
  BulkWrite& store = stores_[index];
  const ResolvedMap& map = launch_.maps[at(store.map)];
  Actor& actor = actors_[store.issue.actor];
  const ScalarType type = program_[store.source.buffer].type;
  if (!store.has_read) {
    const auto row = static_cast<int>(store.row);
    const Region region{row, row + map.rows, 0, map.cols};
    begin_read(actor.block, store.source, region, toucher(store.issue));
    if (!faults_.any()) check_written(actor.block, store.source, region);
    if (!faults_.any()) {
      const std::vector<float>& words = blocks_[actor.block].memory[store.source].words;
      const int width = program_[store.source.buffer].cols;
      for (int r = row; r < region.row_end; ++r)
        store.words.insert(store.words.end(), words.begin() + r * width, words.begin() + r * width + map.cols);
    }
    store.has_read = true;
    for (auto& [time, has_read] : actor.stores) has_read = has_read || time == store.issue.time;
    ++wakeups_;
    return faults_.add_place(launch_.place(store.issue.instr));
  }
  Toucher now = toucher(store.issue);
  now.access.component = store.write_component;
  for (int row = 0; row < map.rows && launch_.numbers(); ++row)
    for (int col = 0; col < map.cols && !faults_.any(); ++col) {
      const std::int64_t element = box_element(map, store.coordinates, row, col);
      if (element < 0) continue;
      const auto from = static_cast<std::size_t>(row * map.cols + col);
      global_.write(map.tensor, element, from_word(type, store.words[from]), index_, now);
    }
  faults_.add_place(launch_.place(store.issue.instr));
  stores_.erase(stores_.begin() + static_cast<std::ptrdiff_t>(index));
}

}  // namespace pipethreader::interpret
