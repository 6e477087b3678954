// Masks: points that a loop's `where` or an axis' end leaves out of a tile. A value is 0 there where its readers need
// that; tiles without such points take a version of their own without masks.
#include <algorithm>

#include "lower/lowerer.h"
#include "program/walk.h"
#include "task/products.h"
#include "task/rewrite.h"

namespace pipethreader::lower {

using kernel::Expr;
using schedule::Item;

namespace {

// Instructions on registers alone, without a meeting of threads.
bool in_registers(const program::Instr& instr) {
  const auto all = [](const Block& block) { return std::all_of(block.begin(), block.end(), in_registers); };
  if (const auto* reduce = std::get_if<program::Reduce>(&instr.op)) return !reduce->scratch.valid();
  if (const auto* any = std::get_if<program::IfAny>(&instr.op)) return all(any->then);
  if (const auto* split = std::get_if<program::If>(&instr.op)) return all(split->then) && all(split->otherwise);
  return std::holds_alternative<program::Map>(instr.op);
}

bool in_lane(const program::Instr& instr) {
  return in_registers(instr) || std::holds_alternative<program::LoadShared>(instr.op);
}

// Whether the instruction writes these fragments and no others.
bool writes_only(const program::Instr& instr, const std::set<program::FragmentId>& fragments) {
  const auto all = [&](const Block& block) {
    return std::all_of(block.begin(), block.end(), [&](const auto& i) { return writes_only(i, fragments); });
  };
  if (const auto* map = std::get_if<program::Map>(&instr.op)) return fragments.contains(map->target);
  if (const auto* load = std::get_if<program::LoadShared>(&instr.op)) return fragments.contains(load->target);
  if (const auto* reduce = std::get_if<program::Reduce>(&instr.op)) return fragments.contains(reduce->target);
  if (const auto* any = std::get_if<program::IfAny>(&instr.op)) return all(any->then);
  if (const auto* split = std::get_if<program::If>(&instr.op)) return all(split->then) && all(split->otherwise);
  return false;
}

// Calls read(fragment) for what an instruction and those it holds read.
template <class Read>
void for_each_read(const program::Program& program, const program::Instr& instr, const Read& read) {
  program::for_each_fragment_read(program, instr, read);
  for (const Block* inner : program::blocks(instr)) {
    for (const program::Instr& i : *inner) for_each_read(program, i, read);
  }
}

void append(Block& block, const Block& more) { block.insert(block.end(), more.begin(), more.end()); }

}  // namespace

// The axis that a product sums the value over, when the product needs zeros where nothing is to be added.
std::optional<AxisId> Lowerer::summed_by_product(ValueId value) const {
  for (const auto& [id, place] : assignment_.products) {
    const task::Product p = partition::oriented(graph_, assignment_, id);
    const bool operand = (p.a == value && (place.a_in_registers || assignment_[value].scratch)) ||
                         (p.b == value && assignment_[value].scratch);
    if (operand && domain_dim(assignment_[value].axes, p.k) >= 0) return p.k;
  }
  return std::nullopt;
}

// The value that an expression is, but for its sign and its type: where that is 0, so is the expression.
std::optional<ValueId> Lowerer::same_zeros(KernelExpr expr) const {
  const Expr& e = kernel_[expr];
  if (e.kind == Expr::Kind::value)
    return task::is_read_elsewhere(kernel_, expr) ? std::nullopt : std::optional(e.value);
  const bool keeps = e.kind == Expr::Kind::convert || (e.kind == Expr::Kind::call && e.function == Function::neg);
  return keeps ? same_zeros(e.args[0]) : std::nullopt;
}

// Nobody sees a value at the points that its loop leaves out. Where several sums want zeros there, the value gets them
// once instead of each reader for itself.
bool Lowerer::is_zeroed(ValueId value) const {
  if (loops_.empty() || kernel_[value].carried) return false;
  const LoopFrame& frame = loops_.back();
  const std::vector<AxisId>& domain = assignment_[value].axes;
  if (domain_dim(domain, frame.axis) < 0 || lives_before(value, frame.statement)) return false;
  const task::Conjunction& about = part_about(frame, domain).condition;
  if (about.inequalities.size() < frame.condition.inequalities.size() ||
      about.opaque.size() < frame.condition.opaque.size())
    return false;
  int wanted = 0;
  int writers = 0;
  for (const task::Task& t : graph_.tasks) {
    const auto* assign = std::get_if<kernel::Assign>(&kernel_[t.statement].node);
    if (assign == nullptr) continue;
    if (t.writes == value) {
      ++writers;
      if (t.kind != task::TaskKind::map || assign->when || assign->accumulate) return false;
    }
    const Expr& e = kernel_[assign->expr];
    if (t.kind == task::TaskKind::reduce && e.reduce == kernel::ReduceOp::sum && same_zeros(e.args[0]) == value &&
        std::find(e.axes.begin(), e.axes.end(), frame.axis) != e.axes.end())
      ++wanted;
    if (t.kind == task::TaskKind::map && !assign->when && !assign->accumulate && same_zeros(assign->expr) == value &&
        summed_by_product(*t.writes) == frame.axis)
      ++wanted;
  }
  return writers == 1 && wanted > 1;
}

// Whether the expression is 0 at the points that the innermost loop leaves out.
bool Lowerer::comes_zeroed(KernelExpr expr) const {
  const auto source = same_zeros(expr);
  return source && is_zeroed(*source);
}

bool Lowerer::computed_zeroed(ValueId value) const {
  for (const task::Task& t : graph_.tasks) {
    if (t.writes != value) continue;
    const auto* assign = std::get_if<kernel::Assign>(&kernel_[t.statement].node);
    return t.kind == task::TaskKind::map && assign != nullptr && !assign->when && !assign->accumulate &&
           comes_zeroed(assign->expr);
  }
  return false;
}

// What the frame's condition says about axes of the domain.
LoopFrame Lowerer::part_about(const LoopFrame& frame, const std::vector<AxisId>& domain) const {
  const auto outside = [&](AxisId a) { return domain_dim(domain, a) < 0; };
  LoopFrame part = frame;
  std::erase_if(part.condition.inequalities, [&](const task::Linear& form) {
    return std::any_of(form.axes.begin(), form.axes.end(), [&](const auto& a) { return outside(a.first); });
  });
  std::erase_if(part.condition.opaque, [&](KernelExpr e) {
    const auto axes = task::axes_of(kernel_, e);
    return std::any_of(axes.begin(), axes.end(), [&](AxisId a) { return graph_.tiled.contains(a) && outside(a); });
  });
  return part;
}

// Where a value is 0: the tiles that need that, and the points that stay.
std::optional<Lowerer::Mask> Lowerer::mask_of(ValueId value, Block& block) {
  const std::vector<AxisId> domain = assignment_[value].axes;
  const auto k = summed_by_product(value);
  const LoopFrame* frame = k ? frame_of(*k) : is_zeroed(value) ? &loops_.back() : nullptr;
  if (frame != nullptr) {
    const ExprId outside = masked(*frame);
    if (b_.is(outside, 0) || (k && frame == &loops_.back() && computed_zeroed(value))) return std::nullopt;
    return Mask{outside, predicate(part_about(*frame, domain), domain, program_[fragment(value)].layout, block)};
  }
  if (k && ragged(*k)) return Mask{b_.truth(true), b_.lt(index(*k, domain), extent(*k))};
  return std::nullopt;
}

// Tiles with points outside run `careful`, others `plain`.
void Lowerer::split(ExprId outside, Block careful, Block plain, Block& block) {
  if (b_.is(outside, 0)) return append(block, plain);
  if (b_.is(outside, 1)) return append(block, careful);
  block.push_back({program::If{outside, std::move(careful), std::move(plain)}, "masked tile"});
}

// value = expr; where it is masked, 0 at the points that are left out.
void Lowerer::write_masked(ValueId value, ExprId expr, Block& block) {
  const program::FragmentId target = fragment(value);
  const Block plain = {{program::Map{target, expr}, {}}};
  const auto mask = mask_of(value, block);
  if (!mask) return append(block, plain);
  const ExprId zeroed = b_.select(mask->points, expr, b_.constant(kernel_[value].type, 0));
  split(mask->outside, {{program::Map{target, zeroed}, {}}}, plain, block);
}

// What all lanes hold alike and one of them may have to give to the others, and what that is made of: each lane
// computes it in every tile.
std::set<program::FragmentId> Lowerer::given_to_others(const Block& block, std::size_t first) const {
  std::set<program::FragmentId> alike;
  for (const auto& [value, id] : fragments_) {
    if (domain_dim(assignment_[value].axes, partition_.split) < 0) alike.insert(id);
  }
  std::set<program::FragmentId> given;
  for (std::size_t i = block.size(); i-- > first;) {
    if (in_lane(block[i]) && !writes_only(block[i], given)) continue;
    for_each_read(program_, block[i], [&](program::FragmentId id) {
      if (alike.contains(id)) given.insert(id);
    });
  }
  return given;
}

// A lane whose rows have no point in a tile only keeps the rings going. Its carried values stay as they are.
void Lowerer::pass_over_empty_tiles(const schedule::LoopTree& loop, Block& block, std::size_t first) {
  if (partition_.lanes == 1 || !options_.pass_over) return;
  ExprId some = b_.truth(true);
  for (const task::Linear& form : loops_.back().condition.inequalities) {
    if (form.axes.contains(partition_.split))
      some = b_.logical_and(some, b_.ge(extreme(form, true, false, {}), b_.constant(0)));
  }
  if (b_.number(some)) return;
  // What all lanes hold alike may have points elsewhere in the tile.
  for (const Item& item : loop.body) {
    const auto* entry = std::get_if<schedule::Entry>(&item.node);
    if (entry == nullptr) return;
    const auto& written = graph_[entry->task].writes;
    const bool lasts = written && (kernel_[*written].carried || lives_before(*written, loop.statement));
    if (!written || (lasts && domain_dim(assignment_[*written].axes, partition_.split) < 0)) return;
  }
  const std::set<program::FragmentId> always = given_to_others(block, first);
  Block result(block.begin(), block.begin() + static_cast<std::ptrdiff_t>(first));
  Block run;
  bool open = false;  // products that nothing in the run has waited for
  const auto close = [&] {
    if (!run.empty()) result.push_back({program::If{some, std::move(run), {}}, "rows with points in this tile"});
    run.clear();
  };
  for (std::size_t i = first; i < block.size(); ++i) {
    const auto* wait = std::get_if<program::MmaWait>(&block[i].op);
    const bool product =
        std::holds_alternative<program::Mma>(block[i].op) || std::holds_alternative<program::MmaCommit>(block[i].op);
    if (wait != nullptr || product || (in_lane(block[i]) && !writes_only(block[i], always))) {
      if (wait != nullptr && (wait->pending != 0 || wait->pin)) return;
      open = product || (open && wait == nullptr);
      run.push_back(block[i]);
      continue;
    }
    if (open) return;
    close();
    result.push_back(block[i]);
  }
  if (open) return;
  close();
  block = std::move(result);
}

// Neighbouring splits on one condition become one: each version is a straight line, which the assembler can schedule.
void Lowerer::join_splits(Block& block, std::size_t first) {
  const auto condition = [&](std::size_t i) {
    const auto* split = std::get_if<program::If>(&block[i].op);
    return split != nullptr && in_registers(block[i]) ? std::optional(split->condition) : std::nullopt;
  };
  for (std::size_t i = first; i < block.size(); ++i) {
    const auto own = condition(i);
    if (!own) continue;
    std::size_t end = i + 1;  // behind the last split on this condition
    for (std::size_t n = i + 1; n < block.size() && in_registers(block[n]); ++n) {
      if (condition(n) == own) end = n + 1;
    }
    if (end == i + 1) continue;
    program::If joined{*own, {}, {}};
    for (std::size_t n = i; n < end; ++n) {
      if (condition(n) == own) {
        append(joined.then, std::get<program::If>(block[n].op).then);
        append(joined.otherwise, std::get<program::If>(block[n].op).otherwise);
      } else {
        joined.then.push_back(block[n]);
        joined.otherwise.push_back(block[n]);
      }
    }
    program::Instr instr{std::move(joined), block[i].comment};
    block.erase(block.begin() + static_cast<std::ptrdiff_t>(i), block.begin() + static_cast<std::ptrdiff_t>(end));
    block.insert(block.begin() + static_cast<std::ptrdiff_t>(i), std::move(instr));
  }
}

// What has been written otherwise than by write_masked() is masked, and copied to shared memory where products read it
// from there.
void Lowerer::after_write(ValueId value, Block& block) {
  Block conditions;
  if (const auto mask = mask_of(value, conditions)) {
    const program::FragmentId f = fragment(value);
    program::If outside;
    outside.condition = mask->outside;
    outside.then = std::move(conditions);
    outside.then.push_back(
        {program::Map{f, b_.select(mask->points, element(f), b_.constant(kernel_[value].type, 0))}, {}});
    block.push_back({std::move(outside), "masked tile"});
  }
  if (assignment_[value].scratch) write_scratch(value, block);
}

}  // namespace pipethreader::lower
