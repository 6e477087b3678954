#include "task/graph.h"

#include <algorithm>
#include <map>

#include "task/affine.h"
#include "task/canonical.h"
#include "task/products.h"
#include "task/rewrite.h"
#include "task/streaming.h"
#include "task/types.h"

namespace pipethreader::task {

using namespace kernel;

namespace {

constexpr std::int64_t row_guess = 128;  // of an axis whose tile is not chosen yet

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

class Builder {
 public:
  Builder(Kernel kernel, std::set<AxisId> tiled, const Walk& walk, const Limits& limits) : limits_(limits) {
    graph_.kernel = std::move(kernel);
    graph_.tiled = std::move(tiled);
    graph_.walk = walk;
    for (std::size_t i = 0; i < k().axes.size(); ++i) {
      if (!walk.axis.empty() && k().axes[i].name == walk.axis) walked_ = AxisId(i);
    }
  }

  Result<Graph> run() {
    const std::vector<StatementId> body = graph_.kernel.body;
    scopes_.push_back({});
    for (const StatementId id : body) visit(id);
    graph_.root = std::move(scopes_.back().nodes);
    if (!error_.diagnostics.empty()) return tl::unexpected(error_);
    return std::move(graph_);
  }

 private:
  struct Scope {
    std::optional<AxisId> axis;  // the loop's; none for the root
    std::optional<ExprId> where;
    std::vector<Node> nodes;
    std::vector<std::pair<ExprId, ValueId>> loads;
    std::set<ValueId> written;
  };

  Kernel& k() { return graph_.kernel; }

  void visit(StatementId id) {
    const Statement statement = k()[id];
    if (const auto* carry = std::get_if<Carry>(&statement.node)) {
      const ExprId init = flatten(carry->init, statement.span, std::nullopt);
      add_map(carry->target, false, init, std::nullopt, statement.span);
    } else if (const auto* assign = std::get_if<Assign>(&statement.node)) {
      visit_assign(*assign, statement.span);
    } else if (const auto* store = std::get_if<Store>(&statement.node)) {
      visit_store(*store, statement.span);
    } else {
      visit_loop(id, std::get<Loop>(statement.node), statement.span);
    }
  }

  void visit_loop(StatementId id, const Loop& loop, SourceSpan span) {
    Scope scope;
    scope.axis = loop.axis;
    scopes_.push_back(std::move(scope));
    Loop copy = loop;
    copy.body.clear();
    if (copy.where) copy.where = flatten(*copy.where, span, std::nullopt);
    scopes_.back().where = copy.where;
    for (const StatementId inner : loop.body) visit(inner);
    LoopNode node;
    node.axis = loop.axis;
    node.body = std::move(scopes_.back().nodes);
    const std::set<ValueId> written = std::move(scopes_.back().written);
    scopes_.pop_back();
    k().statements[static_cast<std::size_t>(id.index)].node = copy;
    node.statement = id;
    scopes_.back().written.insert(written.begin(), written.end());
    scopes_.back().nodes.push_back({std::move(node)});
  }

  void visit_assign(const Assign& assign, SourceSpan span) {
    std::optional<ExprId> when;
    if (assign.when) when = flatten(*assign.when, span, std::nullopt);
    const bool whole = k()[assign.expr].kind == Expr::Kind::reduce && !when &&
                       k()[assign.expr].type == k()[assign.target].type &&
                       (!assign.accumulate || k()[assign.expr].reduce == ReduceOp::sum);
    if (whole) {
      add_reduction(assign.target, assign.accumulate, assign.expr, span);
      return;
    }
    add_map(assign.target, assign.accumulate, flatten(assign.expr, span, k()[assign.target].name), when, span);
  }

  void visit_store(const Store& store, SourceSpan span) {
    Store copy = store;
    copy.expr = flatten(store.expr, span, lower_case(k()[store.tensor].name));
    if (copy.when) copy.when = flatten(*copy.when, span, std::nullopt);
    std::set<AxisId> axes = axes_of(k(), copy.expr);
    for (const ExprId index : copy.indices) {
      const std::set<AxisId> more = axes_of(k(), index);
      axes.insert(more.begin(), more.end());
    }
    std::vector<AxisId> order;  // as the tensor's dims have them
    for (const ExprId index : copy.indices) {
      for (const AxisId a : axes_of(k(), index)) {
        if (std::find(order.begin(), order.end(), a) == order.end()) order.push_back(a);
      }
    }
    for (const AxisId a : axes) {
      if (std::find(order.begin(), order.end(), a) == order.end()) order.push_back(a);
    }
    const Expr& e = k()[copy.expr];
    const auto tiled_count = [&](const auto& list) {
      return std::count_if(list.begin(), list.end(), [&](AxisId a) { return graph_.tiled.contains(a); });
    };
    const bool plain = e.kind == Expr::Kind::value && !is_read_elsewhere(k(), copy.expr) &&
                       e.type == k()[store.tensor].type && tiled_count(order) == tiled_count(k()[e.value].axes);
    if (!plain) {
      const ValueId tile = add_value(k(), lower_case(k()[store.tensor].name) + "_tile", k()[store.tensor].type, order);
      add_map(tile, false, copy.expr, std::nullopt, span);
      copy.expr = value_expr(k(), tile);
    }
    Task task;
    task.kind = TaskKind::store;
    task.statement = add_statement(k(), {copy, span});
    read(task, copy.expr);
    if (copy.when) read(task, *copy.when);
    for (const ExprId index : copy.indices) read(task, index);
    push(std::move(task));
  }

  // --- expressions -------------------------------------------------------------------------------------------------

  // Replaces accesses by loaded values and reductions by values of their own, so that only elementwise functions stay.
  ExprId flatten(ExprId expr, SourceSpan span, const std::optional<std::string>& stem) {
    const Expr e = k()[expr];
    if (e.kind == Expr::Kind::access) return value_expr(k(), loaded(expr, span));
    if (e.kind == Expr::Kind::reduce) {
      std::set<AxisId> axes = axes_of(k(), expr);
      // Which points there are may depend on more than the summands do.
      for (const Scope& scope : scopes_) {
        if (!scope.where || std::find(e.axes.begin(), e.axes.end(), *scope.axis) == e.axes.end()) continue;
        for (const AxisId a : axes_of(k(), *scope.where)) {
          if (!is_loop(a) && std::find(e.axes.begin(), e.axes.end(), a) == e.axes.end()) axes.insert(a);
        }
      }
      const char* suffix = e.reduce == ReduceOp::sum ? "_sum" : e.reduce == ReduceOp::max ? "_max" : "_min";
      const ValueId value = add_value(k(), stem.value_or("value") + suffix, e.type, {axes.begin(), axes.end()});
      add_reduction(value, false, expr, span);
      return value_expr(k(), value);
    }
    if (e.kind == Expr::Kind::value)
      return is_read_elsewhere(k(), expr) && k()[e.value].carried ? of_copy(e, span) : expr;
    std::vector<ExprId> args;
    for (const ExprId arg : e.args) args.push_back(flatten(arg, span, stem));
    if (args == e.args) return expr;
    Expr copy = e;
    copy.args = std::move(args);
    return add_expr(k(), std::move(copy));
  }

  // State that a loop changes goes to shared memory where it is read elsewhere, not whenever it changes.
  ExprId of_copy(Expr read, SourceSpan span) {
    const ValueId copy = add_value(k(), k()[read.value].name + "_copy", read.type, k()[read.value].axes);
    add_map(copy, false, value_expr(k(), read.value), std::nullopt, span);
    read.value = copy;
    return add_expr(k(), std::move(read));
  }

  bool is_loop(AxisId axis) const {
    return std::any_of(scopes_.begin(), scopes_.end(), [&](const Scope& s) { return s.axis == axis; });
  }

  // The value an access is loaded into, in the outermost scope whose loops it does not depend on.
  ValueId loaded(ExprId access, SourceSpan span) {
    const Expr e = k()[access];
    std::set<AxisId> axes = axes_of(k(), access);
    bool data_dependent = !values_of(k(), access).empty();
    for (const ExprId arg : e.args) data_dependent = data_dependent || has_access(arg);
    if (data_dependent) {
      error_.diagnostics.push_back(
          {k().file, span,
           fmt::format("an index of '{}' is read from a tensor; gather accesses are not scheduled yet",
                       k()[e.tensor].name),
           "index with axes, dims and constants"});
    }
    std::size_t level = scopes_.size() - 1;
    while (level > 0 && !axes.contains(*scopes_[level].axis)) --level;
    for (std::size_t i = 0; i <= level; ++i) {
      for (const auto& [expr, value] : scopes_[i].loads) {
        if (same_expr(k(), expr, access)) return value;
      }
    }
    if (stays_on_chip(access, axes, level)) return sliced(access, span, level);
    return load(access, "_tile", span, level);
  }

  ValueId load(ExprId access, const char* suffix, SourceSpan span, std::size_t level) {
    const Expr e = k()[access];
    std::vector<AxisId> order;
    for (const ExprId arg : e.args) {
      for (const AxisId a : axes_of(k(), arg)) {
        if (std::find(order.begin(), order.end(), a) == order.end()) order.push_back(a);
      }
    }
    const ValueId value = add_value(k(), lower_case(k()[e.tensor].name) + suffix, k()[e.tensor].type, order);
    scopes_[level].loads.emplace_back(access, value);
    Task task;
    task.kind = TaskKind::load;
    task.unit = UnitKind::copy_engine;
    task.statement = add_statement(k(), {assignment(value, access), span});
    task.writes = value;
    push(std::move(task), level);
    return value;
  }

  static Assign assignment(ValueId target, ExprId expr) {
    Assign assign;
    assign.target = target;
    assign.expr = expr;
    return assign;
  }

  // Whether all that the loops inside the walk read of a tensor is the same at every step, and little enough to keep.
  bool stays_on_chip(ExprId access, const std::set<AxisId>& axes, std::size_t level) {
    if (!walked_.valid() || level <= 1 || axes.contains(walked_)) return false;
    std::int64_t bytes = bits(k()[access].type) / 8;
    for (const AxisId a : axes) {
      if (!graph_.tiled.contains(a)) {
        if (in_loop(a, level)) return false;
        continue;
      }
      const auto extent = static_extent(k(), a);
      if (!extent || *extent == 0) return false;
      bytes *= in_loop(a, level) ? *extent : std::min<std::int64_t>(*extent, row_guess);
    }
    return bytes <= limits_.resident_bytes;
  }

  // A loop around here and inside the walk.
  bool in_loop(AxisId axis, std::size_t level) const {
    for (std::size_t i = 2; i <= level; ++i) {
      if (scopes_[i].axis == axis) return true;
    }
    return false;
  }

  // Loads the whole before the walk; here, the part that the loops have come to.
  ValueId sliced(ExprId access, SourceSpan span, std::size_t level) {
    ExprId everything = access;
    std::vector<std::pair<AxisId, AxisId>> renamed;  // whole axis, the loop's
    for (std::size_t i = 2; i <= level; ++i) {
      const AxisId loop = *scopes_[i].axis;
      if (!axes_of(k(), access).contains(loop)) continue;
      AxisId& whole = whole_axes_[loop];
      if (!whole.valid()) {
        Axis axis = k()[loop];
        axis.name += "_all";
        axis.kind = AxisKind::inner;
        whole = add_axis(k(), std::move(axis));
        graph_.tiled.insert(whole);
        graph_.kept[whole] = loop;
      }
      everything = rename_axis(k(), everything, loop, whole);
      renamed.emplace_back(whole, loop);
    }
    ValueId kept;
    for (const auto& [expr, value] : scopes_[0].loads) {
      if (same_expr(k(), expr, everything)) kept = value;
    }
    if (!kept.valid()) kept = load(everything, "_kept", span, 0);
    ExprId part = value_expr(k(), kept);
    std::vector<AxisId> order = k()[kept].axes;
    for (const auto& [whole, loop] : renamed) {
      part = rename_axis(k(), part, whole, loop);
      std::replace(order.begin(), order.end(), whole, loop);
    }
    const ValueId value = add_value(k(), lower_case(k()[k()[access].tensor].name) + "_tile", k()[access].type, order);
    scopes_[level].loads.emplace_back(access, value);
    Task task;
    task.kind = TaskKind::slice;
    task.statement = add_statement(k(), {assignment(value, part), span});
    task.reads = {kept};
    task.writes = value;
    push(std::move(task), level);
    return value;
  }

  bool has_access(ExprId id) {
    const Expr& e = k()[id];
    return e.kind == Expr::Kind::access ||
           std::any_of(e.args.begin(), e.args.end(), [&](ExprId a) { return has_access(a); });
  }

  void add_reduction(ValueId target, bool accumulate, ExprId reduce, SourceSpan span) {
    const ReductionKind kind = classify(k(), reduce, graph_.tiled);
    Assign assign;
    assign.target = target;
    assign.accumulate = accumulate;
    Task task;
    task.writes = target;
    task.accumulates = accumulate;
    Expr r = k()[reduce];
    if (kind == ReductionKind::product && r.args.size() == 2 && read_as_zero(*product_shape(k(), reduce), r.args[1])) {
      r.args.pop_back();
    }
    const auto masks = kind == ReductionKind::product ? masks_of(*product_shape(k(), reduce)) : std::nullopt;
    if (kind == ReductionKind::product && r.args.size() == 1 && masks) {
      const ProductShape shape = *product_shape(k(), reduce);
      const ValueId x = operand(shape.x, span, masks->x);
      const ValueId y = operand(shape.y, span, masks->y);
      task.kind = TaskKind::mma;
      task.unit = UnitKind::tensor_core;
      task.product = Product{x, y, *only_tiled(shape.m, graph_.tiled), *only_tiled(shape.n, graph_.tiled),
                             *only_tiled(shape.k, graph_.tiled)};
      r.args = {call(k(), Function::mul, ScalarType::f32, {value_expr(k(), x), value_expr(k(), y)})};
    } else {
      task.kind = kind == ReductionKind::serial ? TaskKind::serial_reduce : TaskKind::reduce;
      // A product with a `where` of its own, or one whose points no operand can leave out by being zero there.
      if (kind == ReductionKind::product) task.kind = TaskKind::serial_reduce;
      for (ExprId& arg : r.args) {
        if (task.kind == TaskKind::reduce) arg = flatten(arg, span, k()[target].name);
      }
    }
    assign.expr = add_expr(k(), r);
    task.statement = add_statement(k(), {assign, span});
    read(task, assign.expr);
    push(std::move(task));
  }

  // Whether the points that a condition excludes lie outside the tensor of an operand, where copies read zeros.
  bool read_as_zero(const ProductShape& shape, ExprId condition) {
    const Conjunction c = conjunction(k(), condition, graph_.tiled);
    const auto equal = [&](const Linear& a, const Linear& b) {
      if (a.axes != b.axes || a.constant != b.constant || a.uniform.size() != b.uniform.size()) return false;
      return std::all_of(a.uniform.begin(), a.uniform.end(), [&](const auto& x) {
        return std::any_of(b.uniform.begin(), b.uniform.end(),
                           [&](const auto& y) { return x.first == y.first && same_expr(k(), x.second, y.second); });
      });
    };
    std::vector<Linear> bounds;
    for (const ExprId operand : {shape.x, shape.y}) {
      const Expr access = k()[operand];
      if (access.kind != Expr::Kind::access) continue;
      for (std::size_t d = 0; d < access.args.size(); ++d) {
        const auto index = linear(k(), access.args[d], graph_.tiled);
        const ExprId past = call(
            k(), Function::sub, ScalarType::i32,
            {call(k(), Function::sub, ScalarType::i32, {k()[access.tensor].shape[d], literal(k(), 1, ScalarType::i32)}),
             access.args[d]});
        const auto room = linear(k(), past, graph_.tiled);
        if (index) bounds.push_back(*index);
        if (room) bounds.push_back(*room);
      }
    }
    return c.opaque.empty() && std::all_of(c.inequalities.begin(), c.inequalities.end(), [&](const Linear& form) {
             return std::any_of(bounds.begin(), bounds.end(), [&](const Linear& bound) { return equal(form, bound); });
           });
  }

  // Which operands of a product have axes that the conditions of its loops are about: these are computed, so that they
  // can be zero at the points that are left out. Nothing where a condition is about axes of both.
  struct Masks {
    bool x = false;
    bool y = false;
  };
  std::optional<Masks> masks_of(const ProductShape& shape) {
    const std::set<AxisId> in_x = axes_of(k(), shape.x), in_y = axes_of(k(), shape.y);
    Masks masks;
    const auto about = [&](const std::set<AxisId>& axes) {
      bool x = false, y = false;
      for (const AxisId a : axes) {
        const bool summed = std::find(shape.k.begin(), shape.k.end(), a) != shape.k.end();
        if (summed || !graph_.tiled.contains(a)) continue;
        x = x || in_x.contains(a);
        y = y || in_y.contains(a);
        if (!in_x.contains(a) && !in_y.contains(a)) return false;
      }
      masks.x = masks.x || x;
      masks.y = masks.y || y;
      return !(x && y);
    };
    for (const Scope& scope : scopes_) {
      if (!scope.where || std::find(shape.k.begin(), shape.k.end(), *scope.axis) == shape.k.end()) continue;
      const Conjunction c = conjunction(k(), *scope.where, graph_.tiled);
      for (const Linear& form : c.inequalities) {
        std::set<AxisId> axes;
        for (const auto& entry : form.axes) axes.insert(entry.first);
        if (!about(axes)) return std::nullopt;
      }
      for (const ExprId opaque : c.opaque) {
        if (!about(axes_of(k(), opaque))) return std::nullopt;
      }
    }
    return masks;
  }

  // A product's operand as a plain 16-bit value, computed where `own` says so.
  ValueId operand(ExprId expr, SourceSpan span, bool own) {
    const ExprId flat = flatten(expr, span, std::nullopt);
    const bool loaded = k()[expr].kind == Expr::Kind::access;
    const bool plain = k()[flat].kind == Expr::Kind::value && !is_read_elsewhere(k(), flat);
    if (plain && !(own && loaded)) return k()[flat].value;
    const std::set<AxisId> axes = axes_of(k(), flat);
    const ValueId value = add_value(k(), "operand", k()[flat].type, {axes.begin(), axes.end()});
    add_map(value, false, flat, std::nullopt, span);
    return value;
  }

  void add_map(ValueId target, bool accumulate, ExprId expr, std::optional<ExprId> when, SourceSpan span) {
    Assign assign;
    assign.target = target;
    assign.accumulate = accumulate;
    assign.expr = expr;
    assign.when = when;
    Task task;
    task.kind = TaskKind::map;
    task.statement = add_statement(k(), {assign, span});
    task.writes = target;
    task.accumulates = accumulate || when.has_value();
    read(task, expr);
    if (when) read(task, *when);
    push(std::move(task));
  }

  void read(Task& task, ExprId expr) {
    for (const ValueId v : values_of(k(), expr)) {
      if (std::find(task.reads.begin(), task.reads.end(), v) == task.reads.end()) task.reads.push_back(v);
    }
  }

  void push(Task task, std::optional<std::size_t> level = std::nullopt) {
    graph_.tasks.push_back(std::move(task));
    Scope& scope = level ? scopes_[*level] : scopes_.back();
    scope.nodes.push_back({TaskId(graph_.tasks.size() - 1)});
  }

  Graph graph_;
  const Limits& limits_;
  AxisId walked_;                        // its loop is the outermost, if there is one
  std::map<AxisId, AxisId> whole_axes_;  // of a loop inside the walk: all of its axis at once
  std::vector<Scope> scopes_;
  Error error_;
};

void print_nodes(const Graph& graph, const std::vector<Node>& nodes, std::vector<StatementId>& body, Kernel& out) {
  for (const Node& node : nodes) {
    if (const auto* task = std::get_if<TaskId>(&node.item)) {
      body.push_back(graph[*task].statement);
    } else {
      const auto& loop = std::get<LoopNode>(node.item);
      Statement statement = out[loop.statement];
      std::vector<StatementId> inner;
      print_nodes(graph, loop.body, inner, out);
      std::get<Loop>(statement.node).body = inner;
      body.push_back(add_statement(out, statement));
    }
  }
}

}  // namespace

std::vector<AxisId> Graph::tiled_axes(ValueId value) const {
  std::vector<AxisId> axes;
  for (const AxisId a : kernel[value].axes) {
    if (tiled.contains(a)) axes.push_back(a);
  }
  return axes;
}

bool Graph::has_products() const {
  return std::any_of(tasks.begin(), tasks.end(), [](const Task& t) { return t.product.has_value(); });
}

Result<Graph> build(const Kernel& kernel, const Walk& walk, const Limits& limits) {
  if (auto done = check_types(kernel); !done) return tl::unexpected(done.error());
  Kernel whole = canonical(kernel);
  const std::set<AxisId> tiled = choose_tiled(whole);
  // Neighbours in the work differ in their tiles first: they share what does not depend on these.
  std::stable_partition(whole.parallel.begin(), whole.parallel.end(), [&](AxisId a) { return !tiled.contains(a); });
  auto streamed = stream(whole, tiled, limits);
  if (streamed && !walk.axis.empty()) streamed = walked(std::move(*streamed), tiled, walk);
  if (!streamed) return tl::unexpected(streamed.error());
  return Builder(std::move(*streamed), tiled, walk, limits).run();
}

std::vector<Graph> useful_walks(const Kernel& kernel) {
  const Kernel whole = canonical(kernel);
  std::vector<Graph> useful;
  for (const Walk& walk : possible_walks(whole, choose_tiled(whole))) {
    auto graph = build(kernel, walk);
    if (!graph) continue;
    const bool saves = std::any_of(graph->root.begin(), graph->root.end(), [&](const Node& node) {
      const auto* id = std::get_if<TaskId>(&node.item);
      return id != nullptr && (*graph)[*id].kind == TaskKind::load && !graph->tiled_axes(*(*graph)[*id].writes).empty();
    });
    if (saves) useful.push_back(std::move(*graph));
  }
  return useful;
}

std::string print(const Graph& graph) {
  static constexpr const char* kinds[] = {"load", "map", "reduce", "serial_reduce", "mma", "store", "slice"};
  static constexpr const char* units[] = {"copy_engine", "tensor_core", "cuda_cores"};
  Kernel out = graph.kernel;
  std::vector<StatementId> body;
  print_nodes(graph, graph.root, body, out);
  out.body = body;
  std::string text = kernel::print(out);
  text += "\n// sTasks in order: kind @ target_sEU: writes <- reads\n";
  for (const Task& task : graph.tasks) {
    std::string line =
        fmt::format("//   {} @ {}:", kinds[static_cast<int>(task.kind)], units[static_cast<int>(task.unit)]);
    if (task.writes)
      line += fmt::format(" {}{}", graph.kernel[*task.writes].name, task.accumulates ? " (accumulates)" : "");
    line += " <-";
    for (const ValueId v : task.reads) line += " " + graph.kernel[v].name;
    if (task.product) {
      line += fmt::format("  [M {} N {} K {}]", graph.kernel[task.product->m].name, graph.kernel[task.product->n].name,
                          graph.kernel[task.product->k].name);
    }
    text += line + "\n";
  }
  return text;
}

}  // namespace pipethreader::task
