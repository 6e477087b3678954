#include "lower/lowerer.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <set>

#include "task/products.h"
#include "task/rewrite.h"

namespace pipethreader::lower {

using kernel::Expr;

Lowerer::Lowerer(const task::Graph& graph, const partition::Partition& partition,
                 const partition::Assignment& assignment, const schedule::Program& schedule,
                 const device::Device& device, const Options& options)
    : graph_(graph),
      kernel_(graph.kernel),
      partition_(partition),
      assignment_(assignment),
      schedule_(schedule),
      device_(device),
      options_(options),
      b_(program_) {}

void Lowerer::fail(const std::string& message, SourceSpan span) {
  error_.diagnostics.push_back({kernel_.file, span, message, {}});
}

Result<program::Program> Lowerer::run() {
  declare();
  declare_rings();
  program::Role copier_role;
  if (!schedule_.copier.empty()) {
    copier_role.name = "copier";
    copier_role.kind = program::RoleKind::copier;
    program::ForWork work;
    work.item = variable("item");
    work.count = work_count();
    work.order = static_cast<program::WorkOrder>(partition_.choice.order);
    open_work(work.body);
    copier(schedule_.copier, work.body);
    if (partition_.choice.cluster > 1) copier_role.body.push_back({program::ClusterSync{}, {}});
    copier_role.body.push_back({std::move(work), {}});
    if (partition_.choice.cluster > 1) copier_role.body.push_back({program::ClusterSync{}, {}});
    program_.roles.push_back(std::move(copier_role));
  }
  program::Role role;
  role.name = "computer";
  role.instances = partition_.all_lanes();
  program_.blocks_per_unit = partition_.choice.blocks;
  std::optional<device::RegisterBudget> budget;
  if (!schedule_.copier.empty() && partition_.has_products && partition_.shares_registers())
    budget = device_.find_budget(partition_.all_lanes(), copier_registers(), partition_.choice.blocks);
  if (budget) {
    role.registers = budget->consumer;
    program_.roles.back().registers = budget->producer;
  }
  computer_ = program::RoleId(program_.roles.size());
  program_.roles.push_back(role);
  program::ForWork work;
  work.item = variable("item");
  work.count = work_count();
  work.order = static_cast<program::WorkOrder>(partition_.choice.order);
  open_work(work.body);
  if (partition_.apart.valid()) axes_[partition_.apart] = b_.add(axes_[partition_.apart], team());
  computer(schedule_.computer, work.body, {});
  Block& body = program_.roles.back().body;
  if (partition_.choice.cluster > 1) body.push_back({program::ClusterSync{}, {}});
  if (turn_) {
    program::If last;
    last.condition = b_.eq(b_.instance(), b_.constant(partition_.all_lanes() - 1));
    last.then.push_back({program::BarrierArrive{*turn_, b_.constant(0)}, {}});
    body.push_back({std::move(last), "the first lane has the first turn"});
  }
  if (taken_) {
    program::If first;
    first.condition = b_.eq(b_.instance(), b_.constant(0));
    first.then.push_back({program::BarrierArrive{*taken_, std::nullopt}, {}});
    body.push_back({std::move(first), "nothing has been handed over yet"});
  }
  body.push_back({std::move(work), {}});
  if (store_barrier_) body.push_back({program::BulkStoreWait{0}, "shared memory outlives its last reader"});
  if (partition_.choice.cluster > 1) body.push_back({program::ClusterSync{}, {}});
  program_.cluster = partition_.choice.cluster;
  if (!error_.diagnostics.empty()) return tl::unexpected(error_);
  return std::move(program_);
}

// What the copier has to remember, about: places of work and loops, a slot and a phase of each ring, the next item.
int Lowerer::copier_registers() const {
  std::set<int> assigned;
  const auto visit = [&](const auto& self, const Block& block) -> void {
    for (const program::Instr& instr : block) {
      if (const auto* let = std::get_if<program::Let>(&instr.op)) assigned.insert(let->var.index);
      if (const auto* work = std::get_if<program::ForWork>(&instr.op)) self(self, work->body);
      if (const auto* loop = std::get_if<program::For>(&instr.op)) {
        assigned.insert(loop->var.index);
        self(self, loop->body);
      }
    }
  };
  visit(visit, program_.roles.back().body);
  int registers = static_cast<int>(assigned.size());
  for (const program::Ring& ring : program_.rings) registers += ring.depth > 1 ? 2 : 1;
  return registers + (partition_.choice.order == partition::Order::dynamic ? 3 : 0);
}

void Lowerer::declare() {
  program_.name = kernel_.name;
  for (const kernel::Dim& dim : kernel_.dims) {
    dims_.emplace_back();
    if (dim.size) continue;
    dims_.back() = program::ParamId(program_.params.size());
    program_.params.push_back({dim.name, ScalarType::i32, true});
  }
  for (const kernel::Scalar& scalar : kernel_.scalars) {
    scalars_.emplace_back(program_.params.size());
    program_.params.push_back({scalar.name, scalar.type, false});
  }
  for (const kernel::Tensor& tensor : kernel_.tensors) {
    program::Tensor t;
    t.name = tensor.name;
    t.type = tensor.type;
    t.output = tensor.output;
    for (const KernelExpr s : tensor.shape) t.shape.push_back(size(s));
    program_.tensors.push_back(std::move(t));
  }
}

program::VarId Lowerer::variable(const std::string& name) {
  const auto found = variables_.find(name);
  if (found != variables_.end()) return found->second;
  program_.vars.push_back({name});
  const program::VarId id(program_.vars.size() - 1);
  variables_[name] = id;
  return id;
}

ExprId Lowerer::size(KernelExpr id) {
  const Expr e = kernel_[id];
  if (e.kind == Expr::Kind::literal) return b_.constant(static_cast<std::int64_t>(e.number));
  if (e.kind == Expr::Kind::dim) {
    const auto& dim = kernel_[e.dim];
    return dim.size ? b_.constant(*dim.size) : b_.param(dims_[static_cast<std::size_t>(e.dim.index)]);
  }
  assert(e.kind == Expr::Kind::call);
  std::vector<ExprId> args;
  for (const KernelExpr arg : e.args) args.push_back(size(arg));
  return b_.call(e.function, args);
}

ExprId Lowerer::origin(AxisId axis) {
  const auto found = axes_.find(axis);
  if (found != axes_.end()) return found->second;
  for (auto frame = loops_.rbegin(); frame != loops_.rend(); ++frame) {
    if (frame->axis == axis) return b_.var(frame->origin[frame == loops_.rbegin() ? stage_ : 0]);
  }
  return b_.constant(0);  // resident axes start at 0
}

ExprId Lowerer::local_origin(AxisId axis) {
  const ExprId start = origin(axis);
  if (axis != partition_.split) return start;
  return b_.add(start, b_.mul(lane(), partition_.local(axis)));
}

// Which team an instance belongs to, and which of its lanes it is.
ExprId Lowerer::team() { return b_.div(b_.instance(), partition_.lanes); }

ExprId Lowerer::own_lane() {
  return partition_.apart.valid() ? b_.mod(b_.instance(), partition_.lanes) : b_.instance();
}

ExprId Lowerer::lane() { return place_ ? b_.var(*place_) : own_lane(); }

// From here on, the lane has other rows in every step.
void Lowerer::change_places(ExprId step, Block& block) {
  place_ = variable("place");
  let(block, *place_, b_.mod(b_.add(own_lane(), step), partition_.lanes));
}

// Of the rows of a tile in shared memory, where this team's begin.
ExprId Lowerer::team_rows(ValueId value) {
  const partition::SharedTile& tile = *assignment_[value].shared;
  return tile.parts == 1 ? b_.constant(0) : b_.mul(team(), tile.own_rows());
}

int Lowerer::domain_dim(const std::vector<AxisId>& domain, AxisId axis) const {
  const auto found = std::find(domain.begin(), domain.end(), axis);
  return found == domain.end() ? -1 : static_cast<int>(found - domain.begin());
}

ExprId Lowerer::index(AxisId axis, const std::vector<AxisId>& domain) {
  const int dim = domain_dim(domain, axis);
  if (dim < 0) return origin(axis);
  return b_.add(local_origin(axis), b_.coord(dim));
}

ExprId Lowerer::indexing(KernelExpr id, const std::vector<AxisId>& domain) {
  const Expr e = kernel_[id];
  switch (e.kind) {
    case Expr::Kind::axis:
      return index(e.axis, domain);
    case Expr::Kind::scalar:
      return b_.param(scalars_[static_cast<std::size_t>(e.scalar.index)]);
    case Expr::Kind::call: {
      std::vector<ExprId> args;
      for (const KernelExpr arg : e.args) args.push_back(indexing(arg, domain));
      return b_.call(e.function, args);
    }
    case Expr::Kind::literal:
    case Expr::Kind::dim:
      return size(id);
    case Expr::Kind::convert:
      return indexing(e.args[0], domain);
    default:
      fail("an index that depends on data is not supported", e.span);
      return b_.constant(0);
  }
}

ExprId Lowerer::uniform(KernelExpr expr) { return indexing(expr, {}); }

program::FragmentId Lowerer::fragment(ValueId value) {
  const auto found = fragments_.find(value);
  if (found != fragments_.end()) return found->second;
  const auto& v = kernel_[value];
  const char* suffix = assignment_.is_partial(value) ? "_shares" : "";
  program_.fragments.push_back({v.name + suffix, v.type, assignment_[value].layout, computer_});
  const program::FragmentId id(program_.fragments.size() - 1);
  fragments_[value] = id;
  return id;
}

program::FragmentId Lowerer::temporary(const std::string& name, ScalarType type, const layout::Layout& layout) {
  program_.fragments.push_back({name, type, layout, computer_});
  return program::FragmentId(program_.fragments.size() - 1);
}

program::BufferId Lowerer::scratch(const std::string& name, ScalarType type, int rows, int cols) {
  program::Buffer buffer;
  buffer.name = name;
  buffer.type = type;
  buffer.rows = rows;
  buffer.cols = cols;
  program_.buffers.push_back(buffer);
  return program::BufferId(program_.buffers.size() - 1);
}

ExprId Lowerer::element(program::FragmentId fragment) {
  std::vector<int> own(program_[fragment].layout.shape.size());
  std::iota(own.begin(), own.end(), 0);
  return b_.fragment(fragment, own);
}

program::FragmentId Lowerer::moved(program::FragmentId source, const std::string& name, const layout::Layout& layout,
                                   Block& block) {
  const ScalarType type = program_[source].type;
  const program::FragmentId target = temporary(name + "_moved", type, layout);
  const ScalarType stored = type == ScalarType::boolean ? ScalarType::i32 : type;
  const int rows = partition_.all_lanes() * static_cast<int>(layout.elements());
  const program::BufferId way = scratch(name + "_move", stored, rows);
  block.push_back({program::Relayout{target, source, way}, {}});
  return target;
}

program::FragmentId Lowerer::operand(ValueId value, const std::vector<AxisId>& domain, const layout::Layout& layout,
                                     Block& block) {
  const program::FragmentId source = fragment(value);
  std::vector<int> dims;
  for (const AxisId a : assignment_[value].axes) dims.push_back(domain_dim(domain, a));
  if (std::find(dims.begin(), dims.end(), -1) != dims.end()) {
    fail(fmt::format("'{}' has an axis that the statement reading it lacks", kernel_[value].name), kernel_[value].span);
    return source;
  }
  if (layout::register_map(layout, program_[source].layout, dims)) return source;
  // Elsewhere: moved to where this statement needs it, through shared memory.
  return moved(source, kernel_[value].name, layout::slice(layout, dims), block);
}

std::pair<std::vector<AxisId>, layout::Layout> Lowerer::over_named(KernelExpr id, const std::vector<AxisId>& domain,
                                                                   const layout::Layout& layout) const {
  const std::set<AxisId> named = task::axes_of(kernel_, id);
  std::vector<AxisId> axes;
  std::ranges::copy_if(domain, std::back_inserter(axes), [&](AxisId a) { return named.contains(a); });
  std::vector<int> kept;
  for (const AxisId a : axes) kept.push_back(domain_dim(domain, a));
  return {axes, layout::slice(layout, kept)};
}

ExprId Lowerer::translate(KernelExpr id, const std::vector<AxisId>& domain, const layout::Layout& layout,
                          Block& block) {
  const Expr e = kernel_[id];
  switch (e.kind) {
    case Expr::Kind::literal:
      return b_.constant(is_integer(e.type) ? ScalarType::i32 : e.type, e.number);
    case Expr::Kind::axis:
      return index(e.axis, domain);
    case Expr::Kind::dim:
      return size(id);
    case Expr::Kind::scalar:
      return b_.param(scalars_[static_cast<std::size_t>(e.scalar.index)]);
    case Expr::Kind::value:
    case Expr::Kind::access: {
      program::FragmentId source;
      std::vector<AxisId> axes;
      const auto serial = serial_reads_.find(id);
      if (serial != serial_reads_.end()) {
        source = serial->second;
        axes = over_named(id, domain, layout).first;
      } else if (e.kind == Expr::Kind::access) {
        fail("an access that was not loaded", e.span);
        return b_.constant(0);
      } else if (task::is_read_elsewhere(kernel_, id)) {
        const auto own = over_named(id, domain, layout);
        axes = own.first;
        source = read_scratch(id, own.first, own.second, block);
      } else {
        source = operand(e.value, domain, layout, block);
        axes = assignment_[e.value].axes;
      }
      std::vector<int> dims;
      for (const AxisId a : axes) dims.push_back(domain_dim(domain, a));
      if (std::find(dims.begin(), dims.end(), -1) != dims.end()) return b_.constant(e.type, 0);  // told above
      return b_.fragment(source, dims);
    }
    case Expr::Kind::convert: {
      return b_.convert(e.type, translate(e.args[0], domain, layout, block));
    }
    case Expr::Kind::call: {
      std::vector<ExprId> args;
      for (const KernelExpr arg : e.args) {
        ExprId operand = translate(arg, domain, layout, block);
        // In the result's type where that is wider: the product of two f16 values under a sum is exact.
        if (is_floating(e.type) && is_floating(kernel_[arg].type)) operand = b_.convert(e.type, operand);
        args.push_back(operand);
      }
      return b_.convert(e.type, b_.call(e.function, args));
    }
    default:
      fail("an expression that cannot be lowered here", e.span);
      return b_.constant(0);
  }
}

bool Lowerer::ragged(AxisId axis) const {
  const auto known = task::static_extent(kernel_, axis);
  return !known || *known == 0 || *known % partition_.work_tile(axis) != 0;
}

ExprId Lowerer::inside(const std::vector<AxisId>& domain) {
  ExprId all = b_.truth(true);
  for (const AxisId a : domain) {
    if (ragged(a)) all = b_.logical_and(all, b_.lt(index(a, domain), extent(a)));
  }
  return all;
}

ExprId Lowerer::linear(const task::Linear& form, const std::vector<AxisId>& domain) {
  ExprId total = b_.constant(form.constant);
  for (const auto& [axis, factor] : form.axes) total = b_.add(total, b_.mul(index(axis, domain), factor));
  for (const auto& [factor, expr] : form.uniform) total = b_.add(total, b_.mul(uniform(expr), factor));
  return total;
}

// The largest or smallest value of a form over the tile: the whole one, or this lane's share.
ExprId Lowerer::extreme(const task::Linear& form, bool high, bool whole_rows, AxisId skip) {
  ExprId total = b_.constant(form.constant);
  for (const auto& [axis, factor] : form.axes) {
    if (axis == skip) continue;
    const int last = (whole_rows ? partition_.extent(axis) : partition_.local(axis)) - 1;
    const ExprId start = whole_rows ? origin(axis) : local_origin(axis);
    const ExprId at = (factor > 0) == high ? b_.add(start, last) : start;
    total = b_.add(total, b_.mul(at, factor));
  }
  for (const auto& [factor, expr] : form.uniform) total = b_.add(total, b_.mul(uniform(expr), factor));
  return total;
}

Result<program::Program> lower(const task::Graph& graph, const partition::Partition& partition,
                               const partition::Assignment& assignment, const schedule::Program& schedule,
                               const device::Device& device, const Options& options) {
  return Lowerer(graph, partition, assignment, schedule, device, options).run();
}

}  // namespace pipethreader::lower
