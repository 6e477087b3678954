// Instructions of the text form: after the keyword each reads its operands, in the order in which they are printed.
#include "program/parser.h"
#include "program/walk.h"

namespace pipethreader::program {

int Parser::lag() { return take("lag") ? small("the lag") : 0; }

BufferRef Parser::buffer_ref() {
  BufferRef ref;
  ref.buffer = use(buffers_);
  ref.lag = lag();
  return ref;
}

Access Parser::access() {
  Access result;
  result.tensor = use(tensors_);
  expect("[");
  result.indices = arguments("]");
  if (take("where")) result.guard = expression();
  return result;
}

Operand Parser::operand() {
  Operand result;
  result.in_registers = take("registers");
  if (result.in_registers) {
    result.fragment = use(fragments_);
  } else {
    result.buffer = buffer_ref();
  }
  result.transposed = take("transposed");
  if (take("origin")) result.origin = expression();
  if (take("k_origin")) result.k_origin = expression();
  return result;
}

BufferId Parser::scratch() { return take("through") ? use(buffers_) : BufferId{}; }

const layout::Layout& Parser::domain() {
  static const layout::Layout none;
  const auto id = use(layout_names_);
  if (error_ || static_cast<std::size_t>(id.index) >= layouts_.size()) return none;
  return layouts_[static_cast<std::size_t>(id.index)];
}

template <>
ForWork Parser::read() {
  ForWork op;
  op.item = use(vars_);
  expect("in");
  op.count = expression();
  if (take("single")) {
    op.order = WorkOrder::single;
  } else if (take("persistent")) {
    op.order = WorkOrder::persistent;
  } else if (take("dynamic")) {
    op.order = WorkOrder::dynamic;
  } else {
    fail_here("expected 'single', 'persistent' or 'dynamic'");
  }
  return op;
}

template <>
For Parser::read() {
  For op;
  op.var = use(vars_);
  expect("=");
  op.begin = expression();
  expect("..");
  op.end = expression();
  if (take("step")) op.step = small("the step");
  return op;
}

template <>
If Parser::read() {
  If op;
  op.condition = expression();
  return op;
}

template <>
IfAny Parser::read() {
  IfAny op;
  op.predicate = expression();
  expect("on");
  op.domain = domain();
  return op;
}

template <>
Let Parser::read() {
  Let op;
  op.var = use(vars_);
  expect("=");
  op.value = expression();
  return op;
}

template <>
RingAcquire Parser::read() {
  return {use(rings_)};
}

template <>
RingCommit Parser::read() {
  return {use(rings_)};
}

template <>
RingWait Parser::read() {
  RingWait op;
  op.ring = use(rings_);
  op.lag = lag();
  return op;
}

template <>
RingRelease Parser::read() {
  RingRelease op;
  op.ring = use(rings_);
  op.lag = lag();
  return op;
}

template <>
RingAdvance Parser::read() {
  return {use(rings_)};
}

template <>
CopyBulk Parser::read() {
  CopyBulk op;
  op.target = buffer_ref();
  expect("=");
  op.map = use(maps_);
  expect("[");
  op.coordinates = arguments("]");
  if (take("at")) op.row = small("the first row");
  if (take("column")) op.col = small("the first column");
  return op;
}

template <>
CopyPlain Parser::read() {
  CopyPlain op;
  op.target = buffer_ref();
  expect("=");
  op.source = access();
  return op;
}

template <>
LoadGlobal Parser::read() {
  LoadGlobal op;
  op.target = use(fragments_);
  expect("=");
  op.source = access();
  return op;
}

template <>
StoreGlobal Parser::read() {
  StoreGlobal op;
  op.target = access();
  expect("from");
  op.source = use(fragments_);
  return op;
}

template <>
LoadShared Parser::read() {
  LoadShared op;
  op.target = use(fragments_);
  expect("=");
  op.source = buffer_ref();
  expect("[");
  op.row = expression();
  expect(",");
  op.col = expression();
  expect("]");
  return op;
}

template <>
StoreShared Parser::read() {
  StoreShared op;
  op.target = buffer_ref();
  expect("[");
  op.row = expression();
  expect(",");
  op.col = expression();
  expect("]");
  expect("=");
  op.source = use(fragments_);
  return op;
}

template <>
BulkStore Parser::read() {
  BulkStore op;
  op.map = use(maps_);
  expect("[");
  op.coordinates = arguments("]");
  expect("=");
  op.source = buffer_ref();
  expect("at");
  op.row = expression();
  return op;
}

template <>
BulkStoreWait Parser::read() {
  return {small("the bulk stores that may be pending")};
}

template <>
Mma Parser::read() {
  Mma op;
  op.accumulator = use(fragments_);
  expect("+=");
  op.a = operand();
  expect(",");
  op.b = operand();
  expect(",");
  expect("depth");
  op.k = small("the depth of the product");
  if (take(",")) {
    expect("accumulate");
    op.accumulate = expression();
  }
  return op;
}

template <>
MmaCommit Parser::read() {
  return {};
}

template <>
MmaWait Parser::read() {
  MmaWait op;
  op.pending = small("the groups that may be pending");
  if (take("pin")) op.pin = read<RingWait>();
  return op;
}

template <>
Map Parser::read() {
  Map op;
  op.target = use(fragments_);
  expect("=");
  op.value = expression();
  return op;
}

template <>
Reduce Parser::read() {
  Reduce op;
  op.target = use(fragments_);
  expect("=");
  if (take("max")) {
    op.op = ReduceOp::max;
  } else if (take("min")) {
    op.op = ReduceOp::min;
  } else if (!take("sum")) {
    fail_here("expected 'sum', 'max' or 'min'");
  }
  expect("(");
  op.value = expression();
  expect(")");
  expect("on");
  op.domain = domain();
  expect("keep");
  op.kept = integers();
  if (take("residual")) {
    Residual residual;
    residual.stride = small("the stride of the residual");
    if (word("'x'") != "x") fail_here("expected 'x' between stride and extent of the residual");
    residual.extent = small("the extent of the residual");
    op.residual = residual;
  }
  op.accumulate = take("accumulate");
  op.scratch = scratch();
  return op;
}

template <>
Relayout Parser::read() {
  Relayout op;
  op.target = use(fragments_);
  expect("=");
  op.source = use(fragments_);
  op.scratch = scratch();
  return op;
}

template <>
BarrierSync Parser::read() {
  BarrierSync op;
  op.barrier = use(barriers_);
  if (take("[")) {
    op.index = expression();
    expect("]");
  }
  return op;
}

template <>
BarrierArrive Parser::read() {
  const auto same = read<BarrierSync>();
  return {same.barrier, same.index};
}

template <>
ProxyFence Parser::read() {
  return {};
}

template <>
ClusterSync Parser::read() {
  return {};
}

Block Parser::block() {
  Block result;
  expect("{");
  while (!take("}") && !error_) instruction(result);
  return result;
}

void Parser::instruction(Block& into) {
  Instr instr;
  instr.op = std::monostate{};
  const auto unread = [&] { return std::holds_alternative<std::monostate>(instr.op); };
#define INSTRUCTION(type, text) \
  if (unread() && take(text)) instr.op = read<type>();
#include "program/instructions.def"
#undef INSTRUCTION
  if (unread()) return fail_here("expected an instruction or '}'");
  const auto inner = blocks(instr);
  // A comment belongs to the instruction whose head ends on its line.
  attach_comment(instr, inner.empty() ? tokens_.list[at_ - 1] : peek());
  if (!inner.empty()) *inner[0] = block();
  if (inner.size() > 1 && take("else")) *inner[1] = block();
  if (!error_) into.push_back(std::move(instr));
}

void Parser::attach_comment(Instr& instr, const Token& last) {
  const auto at = tokens_.comments.find(last.span.line);
  if (at == tokens_.comments.end()) return;
  instr.comment = std::move(at->second);
  tokens_.comments.erase(at);
}

}  // namespace pipethreader::program
