// Static well-formedness: references, expressions and declarations. The rules stand in rules.def.
#include <algorithm>
#include <array>
#include <numeric>

#include "program/checker.h"
#include "program/expr_builder.h"
#include "program/walk.h"

namespace pipethreader::program {
namespace {

struct RuleText {
  std::string_view id;
  std::string_view message;
};

constexpr std::array kRules = {
#define RULE(id, message) RuleText{#id, message},
#include "program/rules.def"
#undef RULE
};

constexpr std::size_t kMostErrors = 20;

}  // namespace

void Checker::report(Rule rule, const std::string& detail) {
  if (errors_.diagnostics.size() >= kMostErrors) return;
  const RuleText& text = kRules[static_cast<std::size_t>(rule)];
  errors_.diagnostics.push_back(
      {{}, {}, fmt::format("{}: {} [{}]", place_, detail, text.id), std::string(text.message)});
}

Result<void> Checker::run() {
  const auto outcome = [&]() -> Result<void> {
    if (errors_.diagnostics.empty()) return {};
    return tl::unexpected(errors_);
  };
  place_ = "program " + p_.name;
  for (const TensorMap& m : p_.maps) known(m.tensor, p_.tensors, "tensor");
  for (const Fragment& f : p_.fragments) known(f.role, p_.roles, "role");
  for (const Buffer& b : p_.buffers)
    if (b.ring.valid()) known(b.ring, p_.rings, "ring");
  for_each_instr(p_, [&](RoleId role, const Instr& instr, const Path& path) {
    place_ = print(p_, role, path);
    check_instruction_ids(instr);
  });
  check_expressions();
  if (!errors_.diagnostics.empty()) return outcome();  // nothing below could rely on a reference

  check_sizes();
  check_tensors();
  check_maps();
  check_fragments();
  if (!errors_.diagnostics.empty()) return outcome();
  check_rings();
  check_buffers();
  check_offsets();
  check_roles();
  for (std::size_t r = 0; r < p_.roles.size(); ++r) check_body(RoleId(r));
  return outcome();
}

Result<void> validate(const Program& program) { return Checker(program).run(); }

// --- references --------------------------------------------------------------------------------------------------

template <class Tag, class Item>
void Checker::known(Id<Tag> id, const std::vector<Item>& table, std::string_view what) {
  check(id.valid() && static_cast<std::size_t>(id.index) < table.size(), Rule::known_ids, "there is no {} {}", what,
        id.index);
}

void Checker::check_instruction_ids(const Instr& instr) {
  for_each_expr(instr, [&](ExprId e) { known(e, p_.exprs, "expression"); });
  const auto fragment = [&](FragmentId id) { known(id, p_.fragments, "fragment"); };
  const auto buffer = [&](BufferId id) { known(id, p_.buffers, "buffer"); };
  const auto ring = [&](RingId id) { known(id, p_.rings, "ring"); };
  std::visit(
      [&](const auto& x) {
        using Op = std::remove_cvref_t<decltype(x)>;
        if constexpr (requires { x.item; }) known(x.item, p_.vars, "var");
        if constexpr (requires { x.var; }) known(x.var, p_.vars, "var");
        if constexpr (requires { x.ring; }) ring(x.ring);
        if constexpr (requires { x.map; }) known(x.map, p_.maps, "tensor map");
        if constexpr (requires { x.barrier; }) known(x.barrier, p_.barriers, "barrier");
        if constexpr (requires { x.target.buffer; }) buffer(x.target.buffer);
        if constexpr (requires { x.source.buffer; }) buffer(x.source.buffer);
        if constexpr (requires { x.target.tensor; }) known(x.target.tensor, p_.tensors, "tensor");
        if constexpr (requires { x.source.tensor; }) known(x.source.tensor, p_.tensors, "tensor");
        if constexpr (requires { x.target.index; }) fragment(x.target);
        if constexpr (requires { x.source.index; }) fragment(x.source);
        if constexpr (requires { x.scratch; })
          if (x.scratch.valid()) buffer(x.scratch);
        if constexpr (std::is_same_v<Op, MmaWait>)
          if (x.pin) ring(x.pin->ring);
        if constexpr (std::is_same_v<Op, Mma>) {
          fragment(x.accumulator);
          for (const Operand* operand : {&x.a, &x.b})
            operand->in_registers ? fragment(operand->fragment) : buffer(operand->buffer.buffer);
        }
      },
      instr.op);
}

// --- expressions -------------------------------------------------------------------------------------------------

void Checker::check_expressions() {
  for (const Tensor& t : p_.tensors)
    for (const ExprId e : t.shape) known(e, p_.exprs, "expression");
  for (const TensorMap& m : p_.maps)
    for (const auto& d : m.dims) known(d.extent, p_.exprs, "expression"), known(d.stride, p_.exprs, "expression");
  for (const ExprId e : p_.requirements) known(e, p_.exprs, "expression");
  for (std::size_t i = 0; i < p_.exprs.size(); ++i) check_expression(i);
}

void Checker::check_expression(std::size_t index) {
  const Expr& e = p_.exprs[index];
  place_ = fmt::format("expression {}", index);
  for (const ExprId arg : e.args)
    if (!check(arg.valid() && static_cast<std::size_t>(arg.index) < index, Rule::expression_order, "its operand is {}",
               arg.index))
      return;
  if (e.kind == Expr::Kind::param) known(e.param, p_.params, "param");
  if (e.kind == Expr::Kind::var) known(e.var, p_.vars, "var");
  if (e.kind == Expr::Kind::fragment) known(e.fragment, p_.fragments, "fragment");
  if (!errors_.diagnostics.empty()) return;

  const std::size_t operands = e.kind == Expr::Kind::call      ? static_cast<std::size_t>(info(e.function).operands)
                               : e.kind == Expr::Kind::convert ? 1
                                                               : 0;
  if (!check(e.args.size() == operands, Rule::expression_operands, "found {}, expected {}", e.args.size(), operands))
    return;
  ScalarType expected = ScalarType::i32;
  switch (e.kind) {
    case Expr::Kind::constant:
    case Expr::Kind::convert:
      return;
    case Expr::Kind::param:
      expected = p_[e.param].type;
      break;
    case Expr::Kind::fragment:
      expected = p_[e.fragment].type;
      break;
    case Expr::Kind::call: {
      std::vector<ScalarType> types;
      for (const ExprId arg : e.args) types.push_back(p_[arg].type);
      expected = call_type(e.function, types);
      break;
    }
    default:
      break;
  }
  check(e.type == expected, Rule::expression_type, "'{}' is {}, expected {}", shown(ExprId(index)), name(e.type),
        name(expected));
}

// --- declarations ------------------------------------------------------------------------------------------------

void Checker::check_host(ExprId expr, std::string_view what) {
  bool host = true;
  for_each_part(p_, expr, [&](const Expr& e) {
    host = host && (e.kind == Expr::Kind::constant || e.kind == Expr::Kind::param || e.kind == Expr::Kind::call ||
                    e.kind == Expr::Kind::convert);
  });
  check(host, Rule::host_expression, "{} is '{}'", what, shown(expr));
}

void Checker::check_sizes() {
  const auto positive = [&](std::int64_t value, std::string_view what) {
    check(value >= 1, Rule::positive, "{} is {}", what, value);
  };
  place_ = "program " + p_.name;
  positive(p_.cluster, "the cluster");
  positive(p_.blocks_per_unit, "blocks_per_unit");
  check(p_.shared_bytes >= 0, Rule::positive, "shared_bytes is {}", p_.shared_bytes);
  for (const Ring& r : p_.rings) {
    place_ = "ring " + r.name;
    positive(r.depth, "its depth");
    positive(r.full_arrivals, "the arrivals on full");
    positive(r.empty_arrivals, "the arrivals on empty");
    check(r.bytes >= 0, Rule::positive, "its bytes are {}", r.bytes);
  }
  for (const Buffer& b : p_.buffers) {
    place_ = "buffer " + b.name;
    positive(b.rows, "the number of rows");
    positive(b.cols, "the number of columns");
    positive(b.slots, "the number of slots");
  }
  for (const Barrier& b : p_.barriers) {
    place_ = "barrier " + b.name;
    positive(b.participants, "the number of participants");
    positive(b.count, "the number of barriers");
  }
  for (const TensorMap& m : p_.maps) {
    place_ = "tensor map " + m.name;
    for (const auto& d : m.dims) positive(d.box, "a box"), positive(d.step, "a step");
  }
  for (const Role& r : p_.roles) {
    place_ = "role " + r.name;
    positive(r.instances, "the number of instances");
  }
}

void Checker::check_tensors() {
  for (const Tensor& t : p_.tensors) {
    place_ = "tensor " + t.name;
    for (const ExprId e : t.shape) check_host(e, "a size"), integer(e, "a size");
  }
  place_ = "program " + p_.name;
  for (const ExprId e : p_.requirements) check_host(e, "a requirement"), boolean(e, "a requirement");
}

void Checker::check_maps() {
  for (const TensorMap& m : p_.maps) {
    place_ = "tensor map " + m.name;
    check(!m.dims.empty() && m.dims.size() <= 5, Rule::map_shape, "it has {} dims", m.dims.size());
    const ScalarType type = p_[m.tensor].type;
    for (std::size_t i = 0; i < m.dims.size(); ++i) {
      const auto& d = m.dims[i];
      check_host(d.extent, "an extent"), integer(d.extent, "an extent");
      check_host(d.stride, "a stride"), integer(d.stride, "a stride");
      // Along the innermost dim a box wider than the span is copied as several.
      const int span = swizzle_bytes(m.swizzle) * 8 / bits(type);
      const int box = i == 0 && span > 0 ? std::min(d.box, span) : d.box;
      check(box <= 256, Rule::map_shape, "box {} of dim {}", d.box, i);
    }
    if (m.dims.empty()) continue;
    const Expr& stride = p_[m.dims[0].stride];
    check(stride.kind == Expr::Kind::constant && stride.number == 1, Rule::map_shape, "the innermost stride is '{}'",
          shown(m.dims[0].stride));
  }
}

void Checker::check_rings() {
  for (std::size_t i = 0; i < p_.rings.size(); ++i) {
    const Ring& r = p_.rings[i];
    place_ = "ring " + r.name;
    std::int64_t bytes = 0;
    for (const Buffer& b : p_.buffers) {
      if (b.ring != RingId(i)) continue;
      bytes += slot_bytes(b);
      check(b.slots == r.depth, Rule::ring_slots, "buffer {} has {} slots, the ring is {} deep", b.name, b.slots,
            r.depth);
    }
    if (r.bytes > 0) check(r.bytes == bytes, Rule::ring_bytes, "it expects {}, its buffers hold {}", r.bytes, bytes);
    if (r.multicast)
      check(r.bytes > 0 && p_.cluster > 1, Rule::multicast, "it expects {} bytes, in a cluster of {}", r.bytes,
            p_.cluster);
  }
}

void Checker::check_stairs(const Buffer& b) {
  const layout::Stairs& s = *b.stairs;
  const bool even = b.swizzle != Swizzle::none && s.rows > 0 && s.rows % 8 == 0 && b.rows % s.rows == 0;
  if (!check(even, Rule::buffer_stairs, "stairs of {} rows in a buffer of {}", s.rows, b.rows)) return;
  for (int stair = 0; stair < b.rows / s.rows; ++stair) {
    const bool inside = s.first(stair) >= 0 && s.first(stair) < s.last(stair) && s.last(stair) <= b.cols;
    check(inside && s.first(stair) % span_columns(b) == 0 && s.last(stair) % span_columns(b) == 0, Rule::buffer_stairs,
          "stair {} has the columns {}..{} of {}", stair, s.first(stair), s.last(stair), b.cols);
  }
}

void Checker::check_buffers() {
  for (const Buffer& b : p_.buffers) {
    place_ = "buffer " + b.name;
    if (!b.ring.valid()) check(b.slots == 1, Rule::ring_slots, "it has {} slots and no ring", b.slots);
    if (b.stairs) check_stairs(b);
    if (b.swizzle == Swizzle::none) continue;
    const int row_bits = b.cols * bits(b.type);
    check(row_bits % (8 * swizzle_bytes(b.swizzle)) == 0 && b.rows % 8 == 0, Rule::buffer_swizzle,
          "{} rows of {} bytes, swizzled by {}", b.rows, row_bits / 8, swizzle_bytes(b.swizzle));
  }
}

void Checker::check_offsets() {
  struct Range {
    std::int64_t begin, end;
    std::string name;
  };
  std::vector<Range> ranges;
  for (const Buffer& b : p_.buffers) {
    if (b.offset < 0) continue;
    place_ = "buffer " + b.name;
    const std::int64_t end = b.offset + slot_stride(b) * (b.slots - 1) + slot_bytes(b);
    check(b.offset % slot_alignment(b) == 0, Rule::buffer_offset, "offset {} is no multiple of {}", b.offset,
          slot_alignment(b));
    check(end <= p_.shared_bytes, Rule::buffer_offset, "it ends at {} of {} bytes", end, p_.shared_bytes);
    ranges.push_back({b.offset, end, b.name});
  }
  std::ranges::sort(ranges, {}, &Range::begin);
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    place_ = "buffer " + ranges[i].name;
    check(ranges[i - 1].end <= ranges[i].begin, Rule::buffer_offset, "it overlaps buffer {}", ranges[i - 1].name);
  }
}

void Checker::check_fragments() {
  for (const Fragment& f : p_.fragments) {
    place_ = "fragment " + f.name;
    if (const auto valid = layout::validate(f.layout); !valid)
      report(Rule::layout, valid.error().diagnostics.front().message);
    check(p_[f.role].kind == RoleKind::computer, Rule::role_instruction, "role {} is a copier", p_[f.role].name);
  }
  for_each_instr(p_, [&](RoleId role, const Instr& instr, const Path& path) {
    const layout::Layout* domain = nullptr;
    if (const auto* x = std::get_if<IfAny>(&instr.op)) domain = &x->domain;
    if (const auto* x = std::get_if<Reduce>(&instr.op)) domain = &x->domain;
    if (domain == nullptr) return;
    place_ = print(p_, role, path);
    if (const auto valid = layout::validate(*domain); !valid)
      report(Rule::layout, valid.error().diagnostics.front().message);
  });
}

void Checker::check_roles() {
  for (const Role& r : p_.roles) {
    place_ = "role " + r.name;
    if (r.kind == RoleKind::copier) check(r.instances == 1, Rule::copier_instances, "it has {}", r.instances);
    check(r.registers == 0 || (r.registers % 8 == 0 && r.registers >= 24 && r.registers <= 256), Rule::role_registers,
          "it is {}", r.registers);
    const auto loops =
        std::ranges::count_if(r.body, [](const Instr& instr) { return std::holds_alternative<ForWork>(instr.op); });
    check(loops == 1, Rule::work_structure, "the body has {} for_work at its outermost level", loops);
  }
}

}  // namespace pipethreader::program
