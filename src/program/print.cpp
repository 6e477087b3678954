// The text form of device programs: names are made unique, layouts are named once, everything else prints as it stands.
#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <set>

#include "program/program.h"
#include "program/text.h"
#include "program/walk.h"

namespace pipethreader::program {
namespace {

// Names of one space: made identifiers, made different from reserved words and from each other.
class NameSpace {
 public:
  std::string add(std::string_view wanted, std::string_view fallback) {
    std::string base;
    for (const char c : wanted) base += is_identifier_part(c) ? c : '_';
    if (base.empty()) base = fallback;
    if (!is_identifier_start(base.front())) base.insert(0, "_");
    std::string name = base;
    for (int n = 2; is_reserved(name) || !taken_.insert(name).second; ++n) name = fmt::format("{}_{}", base, n);
    return name;
  }

 private:
  std::set<std::string, std::less<>> taken_;
};

std::string number_text(ScalarType type, double value) {
  if (type == ScalarType::boolean) return value != 0 ? "true" : "false";
  std::string text;
  if (is_integer(type)) {
    text = fmt::format("{}", static_cast<std::int64_t>(value));
    return type == ScalarType::i32 ? text : fmt::format("{}_{}", text, name(type));
  }
  if (std::isnan(value)) {
    text = std::signbit(value) ? "-nan" : "nan";
  } else if (std::isinf(value)) {
    text = value < 0 ? "-inf" : "inf";
  } else {
    text = fmt::format("{}", value);
    if (text.find_first_of(".e") == std::string::npos) text += ".0";
  }
  return type == ScalarType::f32 ? text : fmt::format("{}_{}", text, name(type));
}

class Printer {
 public:
  explicit Printer(const Program& program) : p_(program) {
    NameSpace values, tensors, maps, buffers, rings, barriers, roles;
    for (const Param& x : p_.params) params_.push_back(values.add(x.name, "param"));
    for (const Var& x : p_.vars) vars_.push_back(values.add(x.name, "var"));
    for (const Fragment& x : p_.fragments) fragments_.push_back(values.add(x.name, "fragment"));
    for (const Tensor& x : p_.tensors) tensors_.push_back(tensors.add(x.name, "tensor"));
    for (const TensorMap& x : p_.maps) maps_.push_back(maps.add(x.name, "map"));
    for (const Buffer& x : p_.buffers) buffers_.push_back(buffers.add(x.name, "buffer"));
    for (const Ring& x : p_.rings) rings_.push_back(rings.add(x.name, "ring"));
    for (const Barrier& x : p_.barriers) barriers_.push_back(barriers.add(x.name, "barrier"));
    for (const Role& x : p_.roles) roles_.push_back(roles.add(x.name, "role"));
  }

  std::string program() {
    NameSpace own;
    line("program {}", own.add(p_.name, "unnamed"));
    line("");
    if (p_.cluster != 1) line("cluster {}", p_.cluster);
    line("blocks_per_unit {}", p_.blocks_per_unit);
    line("shared_bytes {}", p_.shared_bytes);
    if (!p_.generic_reason.empty()) line("generic {}", quoted(p_.generic_reason));
    line("");
    declarations();
    for (std::size_t i = 0; i < p_.roles.size(); ++i) role(i);
    return std::move(text_);
  }

  std::string expression(ExprId id, int outer = 0);

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    std::string content = fmt::format(format, std::forward<Args>(args)...);
    if (!content.empty()) text_.append(static_cast<std::size_t>(2 * depth_), ' ');
    text_ += content;
    text_ += '\n';
  }

  static std::string quoted(const std::string& text) {
    std::string result = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\') result += '\\';
      result += c == '\n' ? ' ' : c;
    }
    return result + '"';
  }

  // A program being debugged may hold ids of nothing; the text shows them, and does not parse.
  template <class Tag>
  static std::string name_of(Id<Tag> id, const std::vector<std::string>& names) {
    if (!id.valid() || static_cast<std::size_t>(id.index) >= names.size()) return fmt::format("<{}>", id.index);
    return names[static_cast<std::size_t>(id.index)];
  }
  std::string of(ParamId id) const { return name_of(id, params_); }
  std::string of(VarId id) const { return name_of(id, vars_); }
  std::string of(FragmentId id) const { return name_of(id, fragments_); }
  std::string of(TensorId id) const { return name_of(id, tensors_); }
  std::string of(MapId id) const { return name_of(id, maps_); }
  std::string of(BufferId id) const { return name_of(id, buffers_); }
  std::string of(RingId id) const { return name_of(id, rings_); }
  std::string of(BarrierId id) const { return name_of(id, barriers_); }
  std::string of(RoleId id) const { return name_of(id, roles_); }

  std::string list(const std::vector<ExprId>& exprs) {
    std::string text;
    for (const ExprId e : exprs) text += (text.empty() ? "" : ", ") + expression(e);
    return text;
  }

  void declarations();
  void collect_layouts();
  const std::string& layout_name(const layout::Layout& layout);
  void role(std::size_t index);
  void block(const Block& body);
  void instruction(const Instr& instr);
  void nested(std::string head, const std::string& comment, const Block& body);

  static std::string lagged(const std::string& name, int lag) {
    return lag == 0 ? name : fmt::format("{} lag {}", name, lag);
  }
  std::string of(const BufferRef& ref) const { return lagged(of(ref.buffer), ref.lag); }
  std::string of(const Access& access) {
    std::string text = fmt::format("{}[{}]", of(access.tensor), list(access.indices));
    return access.guard ? fmt::format("{} where {}", text, expression(*access.guard)) : text;
  }
  std::string of(const Operand& operand) {
    std::string text = operand.in_registers ? "registers " + of(operand.fragment) : of(operand.buffer);
    if (operand.transposed) text += " transposed";
    if (operand.origin) text += " origin " + expression(*operand.origin);
    if (operand.k_origin) text += " k_origin " + expression(*operand.k_origin);
    return text;
  }
  std::string through(BufferId scratch) const { return scratch.valid() ? " through " + of(scratch) : ""; }

  std::string text_of(const ForWork& op) {
    static constexpr std::string_view orders[] = {"single", "persistent", "dynamic"};
    return fmt::format("{} in {} {}", of(op.item), expression(op.count), orders[static_cast<std::size_t>(op.order)]);
  }
  std::string text_of(const For& op) {
    return fmt::format("{} = {} .. {} step {}", of(op.var), expression(op.begin), expression(op.end), op.step);
  }
  std::string text_of(const If& op) { return expression(op.condition); }
  std::string text_of(const IfAny& op) {
    return fmt::format("{} on {}", expression(op.predicate), layout_name(op.domain));
  }
  std::string text_of(const Let& op) { return fmt::format("{} = {}", of(op.var), expression(op.value)); }
  std::string text_of(const RingAcquire& op) { return of(op.ring); }
  std::string text_of(const RingCommit& op) { return of(op.ring); }
  std::string text_of(const RingWait& op) { return lagged(of(op.ring), op.lag); }
  std::string text_of(const RingRelease& op) { return lagged(of(op.ring), op.lag); }
  std::string text_of(const RingAdvance& op) { return of(op.ring); }
  std::string text_of(const CopyBulk& op) {
    return fmt::format("{} = {}[{}]{}{}", of(op.target), of(op.map), list(op.coordinates),
                       op.row > 0 ? fmt::format(" at {}", op.row) : "",
                       op.col > 0 ? fmt::format(" column {}", op.col) : "");
  }
  std::string text_of(const CopyPlain& op) { return fmt::format("{} = {}", of(op.target), of(op.source)); }
  std::string text_of(const LoadGlobal& op) { return fmt::format("{} = {}", of(op.target), of(op.source)); }
  std::string text_of(const StoreGlobal& op) { return fmt::format("{} from {}", of(op.target), of(op.source)); }
  std::string text_of(const LoadShared& op) {
    return fmt::format("{} = {} [{}, {}]", of(op.target), of(op.source), expression(op.row), expression(op.col));
  }
  std::string text_of(const StoreShared& op) {
    return fmt::format("{} [{}, {}] = {}", of(op.target), expression(op.row), expression(op.col), of(op.source));
  }
  std::string text_of(const BulkStore& op) {
    return fmt::format("{}[{}] = {} at {}", of(op.map), list(op.coordinates), of(op.source), expression(op.row));
  }
  std::string text_of(const BulkStoreWait& op) { return fmt::format("{}", op.pending); }
  std::string text_of(const Mma& op) {
    std::string text = fmt::format("{} += {}, {}, depth {}", of(op.accumulator), of(op.a), of(op.b), op.k);
    return op.accumulate ? fmt::format("{}, accumulate {}", text, expression(*op.accumulate)) : text;
  }
  std::string text_of(const MmaCommit&) { return ""; }
  std::string text_of(const MmaWait& op) {
    std::string text = fmt::format("{}", op.pending);
    return op.pin ? fmt::format("{} pin {}", text, text_of(*op.pin)) : text;
  }
  std::string text_of(const Map& op) { return fmt::format("{} = {}", of(op.target), expression(op.value)); }
  std::string text_of(const Reduce& op) {
    static constexpr std::string_view names[] = {"sum", "max", "min"};
    std::string text = fmt::format("{} = {}({}) on {} keep [{}]", of(op.target), names[static_cast<std::size_t>(op.op)],
                                   expression(op.value), layout_name(op.domain), fmt::join(op.kept, ", "));
    if (op.residual) text += fmt::format(" residual {} x {}", op.residual->stride, op.residual->extent);
    if (op.accumulate) text += " accumulate";
    return text + through(op.scratch);
  }
  std::string text_of(const Relayout& op) {
    return fmt::format("{} = {}{}", of(op.target), of(op.source), through(op.scratch));
  }
  template <class Op>
  std::string barrier_text(const Op& op) {
    return op.index ? fmt::format("{}[{}]", of(op.barrier), expression(*op.index)) : of(op.barrier);
  }
  std::string text_of(const BarrierSync& op) { return barrier_text(op); }
  std::string text_of(const BarrierArrive& op) { return barrier_text(op); }
  std::string text_of(const ProxyFence&) { return ""; }
  std::string text_of(const ClusterSync&) { return ""; }
  std::string text_of(const std::monostate&) { return ""; }

  const Program& p_;
  std::string text_;
  int depth_ = 0;
  std::vector<std::string> params_, vars_, fragments_, tensors_, maps_, buffers_, rings_, barriers_, roles_;
  std::vector<std::pair<layout::Layout, std::string>> layouts_;
  NameSpace layout_names_;
};

std::string Printer::expression(ExprId id, int outer) {
  if (!id.valid() || static_cast<std::size_t>(id.index) >= p_.exprs.size()) return fmt::format("<{}>", id.index);
  const Expr& e = p_[id];
  switch (e.kind) {
    case Expr::Kind::constant:
      return number_text(e.type, e.number);
    case Expr::Kind::param:
      return of(e.param);
    case Expr::Kind::var:
      return of(e.var);
    case Expr::Kind::instance:
      return "instance";
    case Expr::Kind::cluster_rank:
      return "cluster_rank";
    case Expr::Kind::coord:
      return fmt::format("c{}", e.dim);
    case Expr::Kind::fragment: {
      std::string dims;
      for (const int dim : e.dims) dims += fmt::format("{}c{}", dims.empty() ? "" : ", ", dim);
      return fmt::format("{}[{}]", of(e.fragment), dims);
    }
    case Expr::Kind::convert:
      return fmt::format("{}({})", name(e.type), list(e.args));
    case Expr::Kind::call:
      break;
  }
  const FunctionInfo& f = info(e.function);
  if (f.symbol.empty()) return fmt::format("{}({})", f.name, list(e.args));
  const int own = precedence(e.function);
  std::string text;
  if (f.operands == 1) {
    const bool constant = p_[e.args[0]].kind == Expr::Kind::constant;  // -5 is a constant, -(5) a negation
    text = fmt::format(fmt::runtime(constant ? "{}({})" : "{}{}"), f.symbol, expression(e.args[0], own + 1));
  } else {
    text = fmt::format("{} {} {}", expression(e.args[0], own), f.symbol, expression(e.args[1], own + 1));
  }
  return own < outer ? fmt::format("({})", text) : text;
}

const std::string& Printer::layout_name(const layout::Layout& layout) {
  const auto at =
      std::ranges::find(layouts_, layout, [](const auto& entry) -> const layout::Layout& { return entry.first; });
  if (at != layouts_.end()) return at->second;
  std::string wanted = "layout";
  const auto& s = layout.shape;
  for (const int extent : s) wanted += fmt::format("_{}", extent);
  if (s.size() == 2 && s[0] % 64 == 0 && s[1] % 8 == 0 && layout == layout::mma_accumulator(s[0], s[1]))
    wanted = fmt::format("accumulator_{}_{}", s[0], s[1]);
  if (s.size() == 1 && s[0] % 64 == 0 && layout == layout::slice(layout::mma_accumulator(s[0], 8), std::vector{0}))
    wanted = fmt::format("accumulator_rows_{}", s[0]);
  return layouts_.emplace_back(layout, layout_names_.add(wanted, "layout")).second;
}

void Printer::collect_layouts() {
  for (const Fragment& f : p_.fragments) static_cast<void>(layout_name(f.layout));
  for_each_instr(p_, [&](RoleId, const Instr& instr, const Path&) {
    if (const auto* op = std::get_if<IfAny>(&instr.op)) static_cast<void>(layout_name(op->domain));
    if (const auto* op = std::get_if<Reduce>(&instr.op)) static_cast<void>(layout_name(op->domain));
  });
}

void Printer::declarations() {
  for (std::size_t i = 0; i < p_.params.size(); ++i)
    line("{} {}: {}", p_.params[i].dim ? "dim" : "param", params_[i], name(p_.params[i].type));
  for (std::size_t i = 0; i < p_.tensors.size(); ++i) {
    const Tensor& t = p_.tensors[i];
    line("{} {}: {}[{}]", t.output ? "output" : "tensor", tensors_[i], name(t.type), list(t.shape));
  }
  for (const ExprId e : p_.requirements) line("require {}", expression(e));
  for (std::size_t i = 0; i < p_.maps.size(); ++i) {
    line("tensor_map {}: {} swizzle {} {{", maps_[i], of(p_.maps[i].tensor), swizzle_bytes(p_.maps[i].swizzle));
    for (const auto& d : p_.maps[i].dims)
      line("  extent {} stride {} box {} step {}", expression(d.extent), expression(d.stride), d.box, d.step);
    line("}}");
  }
  for (std::size_t i = 0; i < p_.rings.size(); ++i) {
    const Ring& r = p_.rings[i];
    line("ring {}: depth {} full {} empty {} bytes {}{}", rings_[i], r.depth, r.full_arrivals, r.empty_arrivals,
         r.bytes, r.multicast ? " multicast" : "");
  }
  for (std::size_t i = 0; i < p_.buffers.size(); ++i) {
    const Buffer& b = p_.buffers[i];
    const std::string stairs =
        b.stairs ? fmt::format(" stairs {} from {} by {} to {} by {}", b.stairs->rows, b.stairs->begin,
                               b.stairs->begin_step, b.stairs->end, b.stairs->end_step)
                 : "";
    line("buffer {}: {}[{}, {}] slots {} swizzle {}{}{}{}", buffers_[i], name(b.type), b.rows, b.cols, b.slots,
         swizzle_bytes(b.swizzle), stairs, b.ring.valid() ? " ring " + of(b.ring) : "",
         b.offset >= 0 ? fmt::format(" offset {}", b.offset) : "");
  }
  for (std::size_t i = 0; i < p_.barriers.size(); ++i)
    line("barrier {}: participants {} count {}", barriers_[i], p_.barriers[i].participants, p_.barriers[i].count);
  if (!vars_.empty()) line("var {}", fmt::join(vars_, ", "));
  collect_layouts();
  for (const auto& [layout, name] : layouts_) line("layout {} = {}", name, layout::print(layout));
  for (std::size_t i = 0; i < p_.fragments.size(); ++i) {
    const Fragment& f = p_.fragments[i];
    line("fragment {}: {} on {} of {}", fragments_[i], name(f.type), layout_name(f.layout), of(f.role));
  }
}

void Printer::role(std::size_t index) {
  const Role& r = p_.roles[index];
  line("");
  line("role {}: {} instances {} registers {} {{", roles_[index], r.kind == RoleKind::copier ? "copier" : "computer",
       r.instances, r.registers);
  block(r.body);
  line("}}");
}

void Printer::block(const Block& body) {
  ++depth_;
  for (const Instr& instr : body) instruction(instr);
  --depth_;
}

void Printer::nested(std::string head, const std::string& comment, const Block& body) {
  line("{} {{{}", head, comment);
  block(body);
}

void Printer::instruction(const Instr& instr) {
  const std::string operands = std::visit([&](const auto& op) { return text_of(op); }, instr.op);
  const std::string head = fmt::format("{}{}{}", text_name(instr), operands.empty() ? "" : " ", operands);
  std::string comment = instr.comment.empty() ? "" : "  // " + instr.comment;
  std::ranges::replace(comment, '\n', ' ');
  const auto inner = blocks(instr);
  if (inner.empty()) return line("{}{}", head, comment);
  nested(head, comment, *inner[0]);
  if (inner.size() > 1 && !inner[1]->empty()) nested("} else", "", *inner[1]);
  line("}}");
}

}  // namespace

std::string print(const Program& program) { return Printer(program).program(); }

std::string print(const Program& program, ExprId expr) { return Printer(program).expression(expr); }

}  // namespace pipethreader::program
