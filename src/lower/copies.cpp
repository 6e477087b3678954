// The copier's lane and everything that touches global memory: rings and their buffers, tensor maps, guarded accesses.
#include <algorithm>

#include "lower/lowerer.h"
#include "task/rewrite.h"

namespace pipethreader::lower {

using kernel::Expr;

program::Swizzle swizzle_for(int rows, int cols, ScalarType type) {
  if (rows % 8 != 0) return program::Swizzle::none;
  const int bytes = cols * bits(type) / 8;
  if (bytes % 128 == 0) return program::Swizzle::bytes128;
  if (bytes % 64 == 0) return program::Swizzle::bytes64;
  if (bytes % 32 == 0) return program::Swizzle::bytes32;
  return program::Swizzle::none;
}

namespace {

// Elements that the copy engine moves as one: copies begin at multiples of 16 bytes.
int copied_together(ScalarType type) { return 128 / bits(type); }

const Expr& access_of(const task::Graph& graph, const kernel::Kernel& kernel, ValueId value) {
  for (const task::Task& t : graph.tasks) {
    if (t.kind == task::TaskKind::load && t.writes == value) {
      return kernel[std::get<kernel::Assign>(kernel[t.statement].node).expr];
    }
  }
  static const Expr none;
  return none;
}

}  // namespace

bool Lowerer::summed_over(ValueId value, AxisId axis) const {
  return std::any_of(graph_.tasks.begin(), graph_.tasks.end(), [&](const task::Task& t) {
    return t.product && t.product->k == axis && (t.product->a == value || t.product->b == value);
  });
}

program::Buffer Lowerer::tile_buffer(ValueId value) const {
  const partition::SharedTile& tile = *assignment_[value].shared;
  program::Buffer buffer;
  buffer.name = kernel_[value].name;
  buffer.type = kernel_[value].type;
  buffer.rows = tile.rows;
  buffer.cols = tile.cols;
  buffer.swizzle = swizzle_for(tile.rows, tile.cols, buffer.type);
  return buffer;
}

void Lowerer::declare_rings() {
  // All rings are filled the same way: one value that the copy engine cannot take makes the copier a plain one.
  bool bulk = options_.bulk && device_.unit(device::UnitKind::copy) != nullptr;
  std::string reason = options_.bulk ? "" : "strides that are no multiple of 16 bytes at run time";
  for (const schedule::RingPlan& plan : schedule_.rings) {
    for (const ValueId v : plan.values) {
      const Expr access = access_of(graph_, kernel_, v);
      const auto answer = partition::bulk_view(kernel_, graph_.tiled, access.tensor, access.args);
      const partition::SharedTile& tile = *assignment_[v].shared;
      std::string why = answer.reason;
      if (answer.view) {
        for (const partition::BulkDim& d : answer.view->dims) {
          if (!d.exact && ragged(*d.axis) && summed_over(v, *d.axis))
            why = fmt::format("'{}' is read through a window over a ragged axis", kernel_[access.tensor].name);
        }
        if ((tile.cols * bits(access.type) / 8) % 16 != 0) why = "a tile row is no multiple of 16 bytes";
        if (tile.own_rows() > 256 || (tile.own_rows() == 1 && tile.cols > 256)) why = "a box side is longer than 256";
      }
      if (!why.empty()) {
        if (bulk) reason = why;
        bulk = false;
      }
    }
  }
  if (!schedule_.rings.empty() && !bulk) program_.generic_reason = reason;
  for (const schedule::RingPlan& plan : schedule_.rings) {
    program::Ring ring;
    for (const ValueId v : plan.values) ring.name += (ring.name.empty() ? "" : "_") + kernel_[v].name;
    ring.name += "_ring";
    ring.depth = plan.depth;
    ring.multicast = plan.multicast && bulk;
    ring.empty_arrivals = partition_.all_lanes() * (ring.multicast ? partition_.choice.cluster : 1);
    for (const ValueId v : plan.values) {
      program::Buffer buffer = tile_buffer(v);
      if (bulk) buffer.stairs = assignment_[v].shared->stairs;
      buffer.slots = plan.depth;
      buffer.ring = program::RingId(program_.rings.size());
      if (bulk) ring.bytes += program::slot_bytes(buffer);
      buffers_[v] = program::BufferId(program_.buffers.size());
      program_.buffers.push_back(buffer);
    }
    program_.rings.push_back(ring);
  }
}

// Ring order follows the copier's items: acquire, copies, (commit,) advance.
void Lowerer::copier(const std::vector<schedule::Item>& items, Block& block) {
  std::map<std::size_t, std::size_t> filled;  // values of a ring copied so far
  for (const schedule::Item& item : items) {
    if (const auto* loop = std::get_if<schedule::LoopTree>(&item.node)) {
      const Bounds bounds = open_loop(*loop, block);
      program::For walk;
      walk.var = variable(kernel_[loop->axis].name + "_i");
      walk.begin = b_.constant(0);
      walk.end = b_.var(bounds.trips);
      let(walk.body, loops_.back().origin[0], tile_origin(bounds, loop->axis, b_.var(walk.var)));
      copier(loop->body, walk.body);
      loops_.pop_back();
      block.push_back({std::move(walk), {}});
      continue;
    }
    const ValueId value = *graph_[std::get<schedule::Entry>(item.node).task].writes;
    const std::size_t r = *schedule_.ring_of(value);
    const program::RingId ring(r);
    if (filled[r] == 0) block.push_back({program::RingAcquire{ring}, {}});
    copy(value, r, block);
    if (++filled[r] < schedule_.rings[r].values.size()) continue;
    if (program_[ring].bytes == 0) block.push_back({program::RingCommit{ring}, {}});
    block.push_back({program::RingAdvance{ring}, {}});
    filled[r] = 0;
  }
}

void Lowerer::copy(ValueId value, std::size_t ring, Block& block) {
  const program::BufferRef target{buffers_.at(value), 0};
  const partition::SharedTile& tile = *assignment_[value].shared;
  if (program_[target.buffer].stairs) return copy_stairs(value, block);
  if (program_.rings[ring].bytes > 0) {
    const auto axes = axes_;
    for (int part = 0; part < tile.parts; ++part) {
      if (part > 0) axes_[partition_.apart] = b_.add(axes.at(partition_.apart), part);
      std::vector<ExprId> coordinates;
      const auto map = tensor_map(value, coordinates);
      block.push_back({program::CopyBulk{target, *map, coordinates, part * tile.own_rows()}, {}});
    }
    axes_ = axes;
    return;
  }
  // Row and column of the buffer back to the tile's axes.
  const auto axes = axes_;
  if (tile.parts > 1) axes_[partition_.apart] = b_.add(axes.at(partition_.apart), team());
  std::vector<AxisId> domain = tile.row_axes;
  const bool alone = !tile.column.valid();  // a single number: alike in all columns
  if (!alone) domain.push_back(tile.column);
  program::Access source = access(access_of(graph_, kernel_, value), domain);
  axes_ = axes;
  const int dims = static_cast<int>(domain.size());
  // coord(d) of the tile in terms of the buffer's coord(0), coord(1); lanes do not split what the copier fills, but
  // each team has rows of its own.
  std::vector<ExprId> coordinates(domain.size());
  const ExprId instance = b_.mul(b_.div(b_.coord(0), tile.own_rows()), tile.parts > 1 ? partition_.lanes : 0);
  ExprId row = tile.parts > 1 ? b_.mod(b_.coord(0), tile.own_rows()) : b_.coord(0);
  for (int d = dims - 2; d >= 0; --d) {
    const int extent = partition_.extent(domain[static_cast<std::size_t>(d)]);
    coordinates[static_cast<std::size_t>(d)] = d == 0 ? row : b_.mod(row, extent);
    if (d > 0) row = b_.div(row, extent);
  }
  if (!alone) coordinates.back() = b_.coord(1);
  const auto place = [&](ExprId e) {
    return b_.replace(e, [&](const program::Expr& leaf) -> std::optional<ExprId> {
      if (leaf.kind == program::Expr::Kind::coord) return coordinates[static_cast<std::size_t>(leaf.dim)];
      if (leaf.kind == program::Expr::Kind::instance) return instance;
      return std::nullopt;
    });
  };
  for (ExprId& i : source.indices) i = place(i);
  if (source.guard) source.guard = place(*source.guard);
  block.push_back({program::CopyPlain{target, source}, {}});
}

// Box by box, a stair's rows high and a span of the swizzle wide.
void Lowerer::copy_stairs(ValueId value, Block& block) {
  const program::BufferRef target{buffers_.at(value), 0};
  const layout::Stairs stairs = *program_[target.buffer].stairs;
  const int span = program::span_columns(program_[target.buffer]);
  const partition::SharedTile& tile = *assignment_[value].shared;
  std::vector<ExprId> coordinates;
  const program::MapId map = *tensor_map(value, coordinates);
  const Expr access = access_of(graph_, kernel_, value);
  const auto dims = partition::bulk_view(kernel_, graph_.tiled, access.tensor, access.args).view->dims;
  for (int row = 0; row < tile.rows; row += stairs.rows) {
    const int stair = row / stairs.rows;
    for (int col = stairs.first(stair); col < stairs.last(stair); col += span) {
      std::vector<ExprId> at = coordinates;
      for (std::size_t d = 0; d < dims.size(); ++d) {
        if (dims[d].axis == tile.row_axes[0]) at[d] = b_.add(at[d], b_.constant(row * dims[d].step));
        if (dims[d].axis == tile.column) at[d] = b_.add(at[d], b_.constant(col * dims[d].step));
      }
      block.push_back({program::CopyBulk{target, map, at, row, col}, {}});
    }
  }
}

program::TensorMap::MapDim Lowerer::map_dim(const partition::BulkDim& dim, int box) {
  program::TensorMap::MapDim d;
  d.extent = size(dim.extent);
  d.stride = b_.constant(dim.stride_factor);
  for (const KernelExpr s : dim.stride) d.stride = b_.mul(d.stride, size(s));
  d.box = box;
  d.step = dim.step;
  return d;
}

// Where a single number stands among those that are copied with it.
ExprId Lowerer::among_neighbours(ValueId value) {
  const Expr access = access_of(graph_, kernel_, value);
  return b_.mod(uniform(access.args.back()), copied_together(access.type));
}

// How far one copy reaches along a tiled axis.
int Lowerer::box_side(ValueId value, AxisId axis) const {
  const program::Buffer& buffer = program_[buffers_.at(value)];
  if (!buffer.stairs) return partition_.extent(axis);
  return axis == assignment_[value].shared->column ? program::span_columns(buffer) : buffer.stairs->rows;
}

std::optional<program::MapId> Lowerer::tensor_map(ValueId value, std::vector<ExprId>& coordinates) {
  const Expr access = access_of(graph_, kernel_, value);
  const auto answer = partition::bulk_view(kernel_, graph_.tiled, access.tensor, access.args);
  program::TensorMap map;
  map.name = kernel_[value].name + "_map";
  map.tensor = program::TensorId(static_cast<std::size_t>(access.tensor.index));
  map.swizzle = program_[buffers_.at(value)].swizzle;
  for (const partition::BulkDim& dim : answer.view->dims) {
    const bool alone = coordinates.empty() && !dim.axis;  // a single number, copied with its neighbours
    map.dims.push_back(map_dim(dim, dim.axis ? box_side(value, *dim.axis)
                                    : alone  ? assignment_[value].shared->cols
                                             : 1));
    const ExprId at = uniform(dim.coordinate);
    coordinates.push_back(alone ? b_.sub(at, among_neighbours(value)) : at);
  }
  const program::RingId ring = program_[buffers_.at(value)].ring;
  if (ring.valid() && program_[ring].multicast) {
    // Each block of the cluster copies its share of the rows to all: of the outermost dim that the tile spans.
    for (std::size_t d = map.dims.size(); d-- > 1;) {
      if (map.dims[d].box == 1) continue;
      map.dims[d].box /= partition_.choice.cluster;
      coordinates[d] = b_.add(coordinates[d], b_.mul(b_.cluster_rank(), map.dims[d].box * map.dims[d].step));
      break;
    }
  }
  for (const auto& [stride, factor] : answer.view->aligned) {
    ExprId elements = b_.constant(factor);
    for (const KernelExpr s : stride) elements = b_.mul(elements, size(s));
    const ExprId aligned = b_.eq(b_.mod(elements, copied_together(program_[map.tensor].type)), b_.constant(0));
    if (std::find(program_.requirements.begin(), program_.requirements.end(), aligned) == program_.requirements.end()) {
      program_.requirements.push_back(aligned);
    }
  }
  for (std::size_t i = 0; i < program_.maps.size(); ++i) {
    if (program_.maps[i].name == map.name) return program::MapId(i);
  }
  program_.maps.push_back(map);
  return program::MapId(program_.maps.size() - 1);
}

// Within the axes' ends, and within the tensor where an index is a window that may leave it.
std::optional<ExprId> Lowerer::access_guard(const std::vector<KernelExpr>& indices, kernel::TensorId tensor,
                                            const std::vector<AxisId>& domain) {
  ExprId guard = inside(domain);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const auto form = task::linear(kernel_, indices[i], graph_.tiled);
    const bool plain =
        form && form->constant == 0 &&
        ((form->axes.size() == 1 && form->uniform.empty()) || (form->axes.empty() && form->uniform.size() <= 1) ||
         (form->axes.size() == 1 && form->uniform.size() == 1 && form->uniform[0].first > 1));
    const bool literal = form && form->axes.empty() && form->uniform.empty() && form->constant >= 0;
    if (plain || literal) continue;
    const ExprId at = indexing(indices[i], domain);
    guard = b_.logical_and(guard, b_.logical_and(b_.ge(at, b_.constant(0)), b_.lt(at, size(kernel_[tensor].shape[i]))));
  }
  if (b_.is(guard, 1)) return std::nullopt;
  return guard;
}

program::Access Lowerer::access(const Expr& access, const std::vector<AxisId>& domain) {
  program::Access result;
  result.tensor = program::TensorId(static_cast<std::size_t>(access.tensor.index));
  for (const KernelExpr i : access.args) result.indices.push_back(indexing(i, domain));
  result.guard = access_guard(access.args, access.tensor, domain);
  return result;
}

}  // namespace pipethreader::lower
