// Static well-formedness of instructions, but for those that work on whole tiles (validate_tile.cpp).
#include <algorithm>
#include <set>

#include "program/checker.h"
#include "program/walk.h"

namespace pipethreader::program {

void Checker::check_body(RoleId role) { check_block(p_[role].body, {role, {}, {}, true}); }

void Checker::check_block(const Block& block, Scope scope) {
  for (std::size_t i = 0; i < block.size(); ++i) {
    const Instr& instr = block[i];
    place_ = fmt::format("role {}: {}", p_[scope.role].name, text_name(instr));
    check_vars_used(instr, scope);
    if (const auto* work = std::get_if<ForWork>(&instr.op)) check_work(*work, scope);
    std::visit([&](const auto& x) { op(x, scope); }, instr.op);

    Scope inner = scope;
    inner.top = false;
    if (const auto* x = std::get_if<ForWork>(&instr.op)) inner.loops.insert(x->item), inner.assigned.insert(x->item);
    if (const auto* x = std::get_if<For>(&instr.op)) inner.loops.insert(x->var), inner.assigned.insert(x->var);
    for (const Block* b : blocks(instr)) check_block(*b, inner);
  }
}

void Checker::check_vars_used(const Instr& instr, const Scope& scope) {
  for_each_expr(instr, [&](ExprId root) {
    for_each_part(p_, root, [&](const Expr& e) {
      if (e.kind == Expr::Kind::var)
        check(scope.assigned.contains(e.var), Rule::var_assigned, "'{}' has no value here", p_[e.var].name);
    });
  });
}

void Checker::assign(VarId var, const Scope& scope) {
  check(!scope.loops.contains(var), Rule::var_assigned, "'{}' belongs to a loop around", p_[var].name);
}

void Checker::check_work(const ForWork& work, const Scope& scope) {
  check(scope.top, Rule::work_structure, "it is nested");
  check_host(work.count, "the number of items");
  integer(work.count, "the number of items");
  assign(work.item, scope);
  for (const Role& other : p_.roles)
    for (const Instr& instr : other.body)
      if (const auto* same = std::get_if<ForWork>(&instr.op))
        check(
            same->order == work.order && (same->count == work.count || print(p_, same->count) == print(p_, work.count)),
            Rule::work_structure, "role {} walks '{}'", other.name, shown(same->count));
}

// --- expressions in their place ----------------------------------------------------------------------------------

void Checker::uniform(ExprId expr, std::string_view what) {
  check(is_uniform(p_, expr), Rule::uniform_expression, "{} is '{}'", what, shown(expr));
}

void Checker::integer(ExprId expr, std::string_view what) {
  check(is_integer(p_[expr].type), Rule::integer_expression, "{} is '{}', {}", what, shown(expr), name(p_[expr].type));
}

void Checker::boolean(ExprId expr, std::string_view what) {
  check(p_[expr].type == ScalarType::boolean, Rule::boolean_expression, "{} is '{}', {}", what, shown(expr),
        name(p_[expr].type));
}

void Checker::on_coordinates(ExprId expr, std::size_t rank, std::string_view what) {
  for_each_part(p_, expr, [&](const Expr& e) {
    if (e.kind == Expr::Kind::coord)
      check(e.dim >= 0 && static_cast<std::size_t>(e.dim) < rank, Rule::coordinate,
            "{} uses c{} of a tile with {} dims", what, e.dim, rank);
    if (e.kind == Expr::Kind::fragment)
      check(false, Rule::uniform_expression, "{} reads fragment {}", what, p_[e.fragment].name);
  });
}

void Checker::index(ExprId expr, std::size_t rank, std::string_view what) {
  integer(expr, what);
  on_coordinates(expr, rank, what);
}

void Checker::value(ExprId expr, const layout::Layout& tile) {
  const std::size_t rank = tile.shape.size();
  for_each_part(p_, expr, [&](const Expr& e) {
    if (e.kind == Expr::Kind::coord)
      check(e.dim >= 0 && static_cast<std::size_t>(e.dim) < rank, Rule::coordinate, "c{} of a tile with {} dims", e.dim,
            rank);
    if (e.kind != Expr::Kind::fragment) return;
    const Fragment& f = p_[e.fragment];
    const bool named = e.dims.size() == f.layout.shape.size() &&
                       std::ranges::all_of(e.dims, [&](int d) { return d >= 0 && static_cast<std::size_t>(d) < rank; });
    if (!check(named, Rule::coordinate, "fragment {} has {} dims and is read at {} of a tile with {}", f.name,
               f.layout.shape.size(), e.dims.size(), rank))
      return;
    for (std::size_t k = 0; k < e.dims.size(); ++k) {
      const int wanted = tile.shape[static_cast<std::size_t>(e.dims[k])];
      check(f.layout.shape[k] == wanted, Rule::operand_layout, "dim {} of fragment {} is {} long, the tile's is {}", k,
            f.name, f.layout.shape[k], wanted);
    }
    check(layout::register_map(tile, f.layout, e.dims).has_value(), Rule::operand_layout,
          "fragment {} lies on {}, the tile on {}", f.name, shown(f.layout), shown(tile));
  });
}

// --- what instructions share -------------------------------------------------------------------------------------

void Checker::owned(FragmentId fragment, const Scope& scope) {
  check(p_[fragment].role == scope.role, Rule::fragment_role, "fragment {} belongs to role {}", p_[fragment].name,
        p_[p_[fragment].role].name);
}

void Checker::computing(const Scope& scope) {
  check(p_[scope.role].kind == RoleKind::computer, Rule::role_instruction, "{} is a copier", p_[scope.role].name);
}

void Checker::lag(RingId ring, int lag) {
  check(lag >= 0 && lag <= p_[ring].depth, Rule::lag, "lag {} in ring {}, {} deep", lag, p_[ring].name, p_[ring].depth);
}

void Checker::lag(const BufferRef& ref) {
  const Buffer& b = p_[ref.buffer];
  if (b.ring.valid()) {
    lag(b.ring, ref.lag);
  } else {
    check(ref.lag == 0, Rule::lag, "lag {} in buffer {}", ref.lag, b.name);
  }
}

void Checker::access(const Access& access, std::size_t rank, ScalarType type, bool store) {
  const Tensor& t = p_[access.tensor];
  check(access.indices.size() == t.shape.size(), Rule::access_rank, "tensor {} has {} dims, found {} indices", t.name,
        t.shape.size(), access.indices.size());
  for (const ExprId e : access.indices) index(e, rank, "an index");
  if (access.guard) boolean(*access.guard, "the guard");
  if (access.guard && !store) on_coordinates(*access.guard, rank, "the guard");
  check(t.type == type, Rule::access_type, "tensor {} is {}, the other side {}", t.name, name(t.type), name(type));
  if (store) check(t.output, Rule::store_output, "tensor {} is an input", t.name);
}

void Checker::shared_access(const BufferRef& ref, FragmentId fragment, ExprId row, ExprId col, const Scope& scope) {
  computing(scope);
  owned(fragment, scope);
  lag(ref);
  const Fragment& f = p_[fragment];
  check(p_[ref.buffer].type == f.type, Rule::access_type, "buffer {} is {}, fragment {} is {}", p_[ref.buffer].name,
        name(p_[ref.buffer].type), f.name, name(f.type));
  index(row, f.layout.shape.size(), "the row");
  index(col, f.layout.shape.size(), "the column");
}

void Checker::bulk(const BufferRef& ref, MapId id, const std::vector<ExprId>& coordinates, bool store) {
  const TensorMap& map = p_[id];
  const Buffer& b = p_[ref.buffer];
  lag(ref);
  check(coordinates.size() == map.dims.size(), Rule::copy_shape, "map {} has {} dims, found {} coordinates", map.name,
        map.dims.size(), coordinates.size());
  for (const ExprId e : coordinates) integer(e, "a coordinate"), uniform(e, "a coordinate");
  check(p_[map.tensor].type == b.type, Rule::copy_shape, "map {} moves {}, buffer {} holds {}", map.name,
        name(p_[map.tensor].type), b.name, name(b.type));
  check(map.swizzle == b.swizzle, Rule::copy_shape, "map {} swizzles by {}, buffer {} by {}", map.name,
        swizzle_bytes(map.swizzle), b.name, swizzle_bytes(b.swizzle));
  const bool shared = b.ring.valid() && p_[b.ring].multicast && !store;  // each block brings its share of the rows
  const std::int64_t moved = map.rows() * (shared ? p_.cluster : 1);
  const int rows = b.stairs ? b.stairs->rows : b.rows;
  const int cols = b.stairs ? span_columns(b) : b.cols;
  check(map.dims[0].box == cols && (store ? moved <= rows : rows % moved == 0), Rule::copy_shape,
        "map {} moves {} x {}, buffer {} takes {} x {}", map.name, moved, map.dims[0].box, b.name, rows, cols);
}

// --- one instruction each ----------------------------------------------------------------------------------------

void Checker::op(const For& x, Scope& scope) {
  integer(x.begin, "the begin"), uniform(x.begin, "the begin");
  integer(x.end, "the end"), uniform(x.end, "the end");
  check(x.step != 0, Rule::loop_step, "'{}' does not move", p_[x.var].name);
  assign(x.var, scope);
}

void Checker::op(const If& x, Scope&) {
  boolean(x.condition, "the condition");
  uniform(x.condition, "the condition");
}

void Checker::op(const IfAny& x, Scope& scope) {
  computing(scope);
  boolean(x.predicate, "the predicate");
  value(x.predicate, x.domain);
  for (const Instr& instr : x.then)
    check(std::holds_alternative<Map>(instr.op), Rule::if_any_body, "found {}", text_name(instr));
}

void Checker::op(const Let& x, Scope& scope) {
  integer(x.value, "the value");
  uniform(x.value, "the value");
  assign(x.var, scope);
  scope.assigned.insert(x.var);
}

void Checker::op(const RingCommit& x, Scope&) {
  check(p_[x.ring].bytes == 0, Rule::ring_fill, "ring {} expects {} bytes", p_[x.ring].name, p_[x.ring].bytes);
}

void Checker::op(const RingWait& x, Scope&) { lag(x.ring, x.lag); }

void Checker::op(const RingRelease& x, Scope&) { lag(x.ring, x.lag); }

void Checker::op(const CopyBulk& x, Scope& scope) {
  check(p_[scope.role].kind == RoleKind::copier, Rule::role_instruction, "{} is a computer", p_[scope.role].name);
  const Buffer& b = p_[x.target.buffer];
  check(b.ring.valid() && p_[b.ring].bytes > 0, Rule::ring_fill, "buffer {} is in no ring that expects bytes", b.name);
  bulk(x.target, x.map, x.coordinates, false);
  const std::int64_t rows = p_[x.map].rows() * (p_[b.ring].multicast ? p_.cluster : 1);
  check(x.row >= 0 && x.row % rows == 0 && x.row + rows <= b.rows, Rule::copy_shape,
        "{} rows from row {} on, buffer {} has {}", rows, x.row, b.name, b.rows);
  const int cols = p_[x.map].dims[0].box;
  check(x.col % cols == 0 && (b.stairs ? b.stairs->has(x.row, x.col, x.col + cols) : x.col == 0), Rule::copy_shape,
        "buffer {} has no column {} in row {}", b.name, x.col, x.row);
  std::set<std::pair<int, int>> begins;  // of all copies into the buffer: together they fill it
  for_each(p_[scope.role].body, [&](const Instr& instr, const Path&) {
    const auto* copy = std::get_if<CopyBulk>(&instr.op);
    if (copy != nullptr && copy->target.buffer == x.target.buffer) begins.insert({copy->row, copy->col});
  });
  const std::int64_t filled = rows * cols * static_cast<std::int64_t>(begins.size()) * bits(b.type) / 8;
  const std::int64_t held = b.stairs ? slot_bytes(b) : std::int64_t{b.rows} * b.cols * bits(b.type) / 8;
  check(filled == held, Rule::copy_shape, "copies fill {} bytes of buffer {}, which has {}", filled, b.name, held);
}

void Checker::op(const CopyPlain& x, Scope&) {
  lag(x.target);
  access(x.source, 2, p_[x.target.buffer].type, false);
}

void Checker::op(const LoadGlobal& x, Scope& scope) {
  computing(scope);
  owned(x.target, scope);
  access(x.source, p_[x.target].layout.shape.size(), p_[x.target].type, false);
}

void Checker::op(const StoreGlobal& x, Scope& scope) {
  computing(scope);
  owned(x.source, scope);
  access(x.target, p_[x.source].layout.shape.size(), p_[x.source].type, true);
  if (x.target.guard) value(*x.target.guard, p_[x.source].layout);
}

void Checker::op(const LoadShared& x, Scope& scope) { shared_access(x.source, x.target, x.row, x.col, scope); }

void Checker::op(const StoreShared& x, Scope& scope) { shared_access(x.target, x.source, x.row, x.col, scope); }

void Checker::op(const BulkStore& x, Scope&) {
  integer(x.row, "the row");
  uniform(x.row, "the row");
  bulk(x.source, x.map, x.coordinates, true);
  const Tensor& t = p_[p_[x.map].tensor];
  check(t.output, Rule::store_output, "tensor {} is an input", t.name);
}

void Checker::op(const BulkStoreWait& x, Scope&) {
  check(x.pending >= 0, Rule::positive, "{} bulk stores may be pending", x.pending);
}

void Checker::op(const MmaCommit&, Scope& scope) { computing(scope); }

void Checker::op(const MmaWait& x, Scope& scope) {
  computing(scope);
  check(x.pending >= 0, Rule::positive, "{} groups may be pending", x.pending);
  if (x.pin) lag(x.pin->ring, x.pin->lag);
}

void Checker::op(const Map& x, Scope& scope) {
  computing(scope);
  owned(x.target, scope);
  const Fragment& f = p_[x.target];
  value(x.value, f.layout);
  check(p_[x.value].type == f.type, Rule::value_type, "'{}' is {}, fragment {} is {}", shown(x.value),
        name(p_[x.value].type), f.name, name(f.type));
}

void Checker::barrier(BarrierId id, const std::optional<ExprId>& which) {
  check(which || p_[id].count == 1, Rule::barrier_index, "there are {} of barrier {}", p_[id].count, p_[id].name);
  if (which) integer(*which, "the index"), uniform(*which, "the index");
}

void Checker::op(const BarrierSync& x, Scope&) { barrier(x.barrier, x.index); }

void Checker::op(const BarrierArrive& x, Scope&) { barrier(x.barrier, x.index); }

}  // namespace pipethreader::program
