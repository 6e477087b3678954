#include "verify/code.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "program/walk.h"
#include "verify/atoms.h"

namespace pipethreader::verify {
namespace {

using namespace program;

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

class Compiler {
 public:
  Compiler(const Program& program, Terms& terms, Code& code, bool count_down_loops_up)
      : program_(program), terms_(terms), code_(code), count_down_loops_up_(count_down_loops_up) {
    scope_.instance = code.instance;
    scope_.cluster_rank = code.cluster_rank;
  }

  Result<void> run() {
    if (auto done = block(program_[code_.role].body); !done) return done;
    Step end;
    end.what = Do::end;
    end.place = fmt::format("{}, the end", program_[code_.role].name);
    code_.steps.push_back(std::move(end));
    for (std::size_t i = 0; i < code_.steps.size(); ++i) {
      collect_uses(code_.steps[i].question, static_cast<int>(i));
      collect_uses(code_.steps[i].start, static_cast<int>(i));
    }
    find_live();
    return {};
  }

 private:
  const Program& program_;
  Terms& terms_;
  Code& code_;
  bool count_down_loops_up_;
  Scope scope_;
  std::set<int> undecided_;  // variables that depend on more than constants
  Path path_;
  int depth_ = 0;
  bool conditional_ = false;
  bool in_work_ = false;

  [[nodiscard]] int here() const { return static_cast<int>(code_.steps.size()); }

  Step& add(Do what, const Instr& instr) {
    Step step;
    step.what = what;
    step.depth = depth_;
    step.instr = &instr;
    step.conditional = conditional_;
    step.place = fmt::format("{}: {}", program::print(program_, code_.role, path_), text_name(instr));
    return code_.steps.emplace_back(std::move(step));
  }

  Result<void> block(const Block& body) {
    path_.push_back({});
    auto outer = scope_.vars;
    for (std::size_t i = 0; i < body.size(); ++i) {
      path_.back().index = static_cast<int>(i);
      path_.back().branch = 0;
      if (auto done = std::visit([&](const auto& op) { return compile(body[i], op); }, body[i].op); !done) return done;
    }
    // What a block assigns is not used behind it.
    for_each_assigned(body, [&](VarId var) { outer.erase(var.index); });
    scope_.vars = std::move(outer);
    path_.pop_back();
    return {};
  }

  // A variable that a loop's body assigns has no value at its beginning: an earlier iteration's, perhaps.
  Result<void> loop_body(const Block& body) {
    for_each_assigned(body, [&](VarId var) { scope_.vars.erase(var.index); });
    return block(body);
  }

  template <class Visit>
  static void for_each_assigned(const Block& body, Visit visit) {
    for_each(body, [&](const Instr& instr, const Path&) {
      if (const auto* let = std::get_if<Let>(&instr.op)) visit(let->var);
      if (const auto* loop = std::get_if<For>(&instr.op)) visit(loop->var);
    });
  }

  // --- expressions ---

  Result<Linear> uniform(ExprId expr) {
    auto built = terms_.build(expr, scope_);
    if (!built) return error("uses a value that is not uniform, or a variable that is not assigned on every path");
    return std::move(*built);
  }

  [[nodiscard]] tl::unexpected<Error> error(const std::string& what) const {
    return fail("{}: {}", program::print(program_, code_.role, path_), what);
  }

  [[nodiscard]] bool constant(ExprId id) const {
    const Expr& e = program_[id];
    if (e.kind == Expr::Kind::param) return false;
    if (e.kind == Expr::Kind::var && undecided_.contains(e.var.index)) return false;
    return std::all_of(e.args.begin(), e.args.end(), [&](ExprId arg) { return constant(arg); });
  }

  void assign(VarId var, const Linear& value, bool decided_by_constants) {
    scope_.vars[var.index] = value;
    decided_by_constants ? void(undecided_.erase(var.index)) : void(undecided_.insert(var.index));
  }

  void collect_uses(const Question& question, int step) {
    for (const Question& part : question.parts) collect_uses(part, step);
    if (question.kind != Question::Kind::leaf) return;
    for (const auto& [atom, coefficient] : question.leaf.sum.terms) collect_use(atom, step);
    for (const auto& [atom, coefficient] : question.leaf.parts.terms) collect_use(atom, step);
    collect_use(question.leaf.atom, step);
  }

  void collect_uses(const Value& value, int step) {
    for (const Question& condition : value.condition) collect_uses(condition, step);
    for (const Value& part : value.parts) collect_uses(part, step);
    collect_use(value.atom, step);
  }

  void collect_use(int id, int step) {
    if (id < 0) return;
    const Atom& atom = terms_.atom(id);
    if (atom.kind == Atom::Kind::opaque) code_.uses.push_back({atom.pattern, step, atom.holes});
  }

  // What a step reads of fragments, products included; whether they overwrite their accumulator is left open.
  [[nodiscard]] std::vector<int> read_by(const Step& step) const {
    std::vector<int> read = step.reads;
    const auto* product = step.instr == nullptr ? nullptr : std::get_if<Mma>(&step.instr->op);
    if (product == nullptr) return read;
    read.push_back(product->accumulator.index);
    for (const Operand* operand : {&product->a, &product->b}) {
      if (operand->in_registers) read.push_back(operand->fragment.index);
    }
    return read;
  }

  void find_live() {
    code_.live.assign(code_.steps.size(), Bits(static_cast<int>(program_.fragments.size())));
    for (bool changed = true; changed;) {
      changed = false;
      for (int i = here() - 1; i >= 0; --i) {
        const Step& step = code_.steps[at(i)];
        Bits live(static_cast<int>(program_.fragments.size()));
        const bool leaves = step.what == Do::jump || step.what == Do::work_next || step.what == Do::loop_next;
        if (step.what != Do::end && !leaves) live |= code_.live[at(i) + 1];
        if (step.target >= 0) live |= code_.live[at(step.target)];
        if (!step.conditional) {
          for (const int fragment : step.writes) live.reset(fragment);
        }
        for (const int fragment : read_by(step)) live.set(fragment);
        if (live == code_.live[at(i)]) continue;
        code_.live[at(i)] = std::move(live);
        changed = true;
      }
    }
  }

  // --- control ---

  Result<void> compile(const Instr& instr, const ForWork& op) {
    if (depth_ > 0 || in_work_) return error("a loop over work items must be the outermost");
    assign(op.item, terms_.item(), false);
    in_work_ = true;
    const int head = here();
    Step& step = add(Do::work_head, instr);
    step.decided_by_constants = false;
    if (auto done = loop_body(op.body); !done) return done;
    add(Do::work_next, instr).target = head;
    code_.steps[at(head)].target = here();
    scope_.vars.erase(op.item.index);
    in_work_ = false;
    return {};
  }

  Result<void> compile(const Instr& instr, const For& op) {
    const auto begin = uniform(op.begin);
    const auto end = uniform(op.end);
    if (!begin || !end) return tl::unexpected(begin ? end.error() : begin.error());
    const std::int64_t step_size = std::abs(op.step);
    if (step_size == 0) return error("a loop with step 0 does not end");
    const bool unit = op.step == 1 || (op.step == -1 && !count_down_loops_up_);
    const int stride = unit ? op.step : 1;
    const Linear counter = terms_.counter(depth_);
    const Linear variable = unit ? counter : plus(*begin, times(counter, op.step));
    Linear remaining = op.step > 0 ? plus(*end, variable, -1) : plus(variable, *end, -1);
    remaining.constant -= 1;

    const int enter = here();
    Step& start = add(Do::loop_enter, instr);
    start.start = unit ? terms_.value(*begin) : Value{};
    const int head = here();
    Step& test = add(Do::loop_head, instr);
    test.question = terms_.at_least_zero(remaining);
    test.decided_by_constants = constant(op.begin) && constant(op.end);
    const bool decided = test.decided_by_constants;
    const Interval range = counter_range(op, *begin, *end, unit);
    scope_.vars.erase(op.var.index);
    for_each_assigned(op.body, [&](VarId var) { scope_.vars.erase(var.index); });
    assign(op.var, variable, decided);
    scope_.counters.push_back(range);
    ++depth_;
    if (auto done = block(op.body); !done) return done;
    --depth_;
    scope_.counters.pop_back();
    scope_.vars.erase(op.var.index);
    Step& next = add(Do::loop_next, instr);
    next.target = head;
    next.stride = stride;
    code_.steps[at(head)].target = code_.steps[at(enter)].join = here();
    if (only_fragments(op.body) && asks_only_at_the_top(enter)) {
      code_.steps[at(enter)].plain = true;
      for (int i = enter; i < here(); ++i) code_.steps[at(i)].inside_plain = true;
    }
    code_.steps[at(enter)].loop = static_cast<int>(code_.loops.size());
    code_.loops.push_back({depth_, stride, enter, here()});
    return {};
  }

  // A witness takes the answer "no" for all that is passed over. What constants decide goes its own way when the
  // witness is replayed, so nothing in it may ask for an answer.
  [[nodiscard]] bool asks_only_at_the_top(int from) const {
    const auto asks = [](const Step& step) {
      return (step.what == Do::branch || step.what == Do::loop_head) && !step.decided_by_constants;
    };
    for (auto step = code_.steps.begin() + from; step != code_.steps.end(); ++step) {
      const bool decides = step->what == Do::branch || step->what == Do::loop_head;
      if (!decides || !step->decided_by_constants) continue;
      const int past = step->what == Do::branch ? step->join : step->target;
      const auto end = past < 0 ? code_.steps.end() : code_.steps.begin() + past;
      if (std::any_of(step, end, asks)) return false;
    }
    return true;
  }

  // The values of a loop's counter while its body runs.
  [[nodiscard]] Interval counter_range(const For& op, const Linear& begin, const Linear& end, bool unit) const {
    const Interval first = terms_.bounds(begin, scope_);
    const Interval limit = terms_.bounds(end, scope_);
    const auto beside = [](std::int64_t bound, int by) { return std::abs(bound) >= no_limit ? bound : bound + by; };
    if (unit && op.step == 1) return {first.low, std::max(first.low, beside(limit.high, -1))};
    if (unit) return {std::min(first.high, beside(limit.low, 1)), first.high};
    const Interval trips = terms_.bounds(op.step > 0 ? plus(end, begin, -1) : plus(begin, end, -1), scope_);
    if (trips.high >= no_limit) return {0, no_limit};
    return {0, std::max<std::int64_t>(0, floor_div(trips.high - 1, std::abs(op.step)))};
  }

  Result<void> compile(const Instr& instr, const If& op) {
    const auto condition = uniform(op.condition);
    if (!condition) return tl::unexpected(condition.error());
    const int test = here();
    Step& step = add(Do::branch, instr);
    step.question = terms_.question(*condition);
    step.decided_by_constants = constant(op.condition);
    if (auto done = block(op.then); !done) return done;
    if (op.otherwise.empty()) {
      code_.steps[at(test)].target = code_.steps[at(test)].join = here();
      find_plain(test, op);
      return {};
    }
    const int skip = here();
    add(Do::jump, instr);
    code_.steps[at(test)].target = here();
    path_.back().branch = 1;
    if (auto done = block(op.otherwise); !done) return done;
    code_.steps[at(skip)].target = code_.steps[at(test)].join = here();
    find_plain(test, op);
    return {};
  }

  void find_plain(int test, const If& op) {
    code_.steps[at(test)].plain = only_fragments(op.then) && only_fragments(op.otherwise) && asks_only_at_the_top(test);
  }

  static bool only_fragments(const Block& body) {
    bool only = true;
    for_each(body, [&](const Instr& instr, const Path&) {
      only = only && std::visit(
                         [](const auto& op) {
                           using Op = std::remove_cvref_t<decltype(op)>;
                           if constexpr (std::is_same_v<Op, Reduce> || std::is_same_v<Op, Relayout>)
                             return !op.scratch.valid();
                           return std::is_same_v<Op, Map> || std::is_same_v<Op, LoadGlobal> ||
                                  std::is_same_v<Op, StoreGlobal> || std::is_same_v<Op, Let> ||
                                  std::is_same_v<Op, If> || std::is_same_v<Op, IfAny> || std::is_same_v<Op, For>;
                         },
                         instr.op);
    });
    return only;
  }

  Result<void> compile(const Instr& instr, const IfAny& op) {
    Step& step = add(Do::execute, instr);
    fragments_of(op.predicate, step.reads);
    conditional_ = true;
    auto done = block(op.then);
    conditional_ = false;
    return done;
  }

  Result<void> compile(const Instr&, const Let& op) {
    const auto value = uniform(op.value);
    if (!value) return tl::unexpected(value.error());
    assign(op.var, *value, constant(op.value));
    return {};
  }

  // --- what touches fragments and shared memory ---

  void fragments_of(ExprId expr, std::vector<int>& into) const {
    for_each_fragment(program_, expr, [&](FragmentId f) { into.push_back(f.index); });
  }

  Result<SharedAccess> rows_of(BufferRef ref, std::int64_t begin, std::int64_t count) {
    Rectangle part = whole(program_[ref.buffer]);
    part.row_begin = begin;
    part.row_end = begin + count;
    return checked(ref, part);
  }

  Result<SharedAccess> checked(BufferRef ref, const Rectangle& part) {
    const Rectangle all = whole(program_[ref.buffer]);
    if (!inside(part, all)) {
      return error(fmt::format("touches rows {}..{} and columns {}..{} of buffer '{}', which has {} x {}",
                               part.row_begin, part.row_end, part.col_begin, part.col_end, program_[ref.buffer].name,
                               all.row_end, all.col_end));
    }
    if (!has_memory(program_[ref.buffer], part)) {
      return error(
          fmt::format("touches columns {}..{} of rows {}..{} of buffer '{}', whose stairs leave some of them out",
                      part.col_begin, part.col_end, part.row_begin, part.row_end, program_[ref.buffer].name));
    }
    return SharedAccess{ref, part, {}};
  }

  // Rows or columns that an expression over coordinates runs through.
  Result<Interval> range(ExprId expr, const std::vector<int>& shape, std::int64_t limit, const std::string& what) {
    scope_.coords.assign(shape.begin(), shape.end());
    const auto sum = terms_.build(expr, scope_);
    const Interval found = sum ? terms_.bounds(*sum, scope_) : Interval{-no_limit, no_limit};
    scope_.coords.clear();
    if (found.low <= -no_limit || found.high >= no_limit) return error(fmt::format("its {} cannot be bounded", what));
    if (found.high - found.low >= limit) return error(fmt::format("its {} leave the buffer", what));
    return found;
  }

  // What a fragment's elements touch. On stairs, which columns may be touched depends on the rows: where a variable
  // chooses among a few, each is looked at by itself.
  Result<void> elements_of(BufferRef ref, FragmentId fragment, ExprId row, ExprId col, Step& step) {
    std::optional<VarId> chosen;
    if (program_[ref.buffer].stairs) {
      for_each_part(program_, row, [&](const Expr& part) {
        if (part.kind == Expr::Kind::var) chosen = part.var;
      });
    }
    if (!chosen || !scope_.vars.contains(chosen->index)) return rectangle_of(ref, fragment, row, col, step);
    const Linear value = scope_.vars.at(chosen->index);
    const Interval choices = terms_.bounds(value, scope_);
    constexpr std::int64_t few = 8;
    if (choices.high - choices.low >= few) return rectangle_of(ref, fragment, row, col, step);
    Result<void> done;
    for (std::int64_t choice = choices.low; choice <= choices.high && done; ++choice) {
      scope_.vars[chosen->index] = Linear{choice, {}};
      done = rectangle_of(ref, fragment, row, col, step);
    }
    scope_.vars[chosen->index] = value;
    return done;
  }

  Result<void> rectangle_of(BufferRef ref, FragmentId fragment, ExprId row, ExprId col, Step& step) {
    const std::vector<int>& shape = program_[fragment].layout.shape;
    const auto rows = range(row, shape, program_[ref.buffer].rows, "rows");
    const auto cols = range(col, shape, program_[ref.buffer].cols, "columns");
    if (!rows || !cols) return tl::unexpected(rows ? cols.error() : rows.error());
    auto access = checked(ref, {rows->low, rows->high + 1, cols->low, cols->high + 1});
    if (!access) return tl::unexpected(access.error());
    step.shared.push_back(std::move(*access));
    return {};
  }

  // Where a part begins that an expression places; nothing is the first element.
  Result<Interval> origin(const std::optional<ExprId>& expr, const std::string& what) {
    if (!expr) return Interval{0, 0};
    const auto sum = uniform(*expr);
    if (!sum) return tl::unexpected(sum.error());
    const Interval found = terms_.bounds(*sum, scope_);
    if (found.high >= no_limit || found.low < 0) return error(fmt::format("{} cannot be bounded", what));
    return found;
  }

  [[nodiscard]] SharedAccess scratch_of(BufferId buffer, std::int64_t elements) const {
    const int instances = program_[code_.role].instances;
    return {{buffer, 0}, scratch_part(program_[buffer], elements, code_.instance, instances), {}};
  }

  Result<void> compile(const Instr& instr, const CopyBulk& op) {
    Step& step = add(Do::execute, instr);
    const RingId ring = program_[op.target.buffer].ring;
    if (!ring.valid()) return error("a bulk copy needs a buffer of a ring");
    const bool shared_out = program_[ring].multicast;
    const std::int64_t rows = program_[op.map].rows();
    const std::int64_t first = op.row + (shared_out ? code_.cluster_rank * rows : 0);
    auto access = checked(op.target, {first, first + rows, op.col, op.col + program_[op.map].dims[0].box});
    if (!access) return tl::unexpected(access.error());
    step.shared.push_back(std::move(*access));
    return {};
  }
  Result<void> compile(const Instr& instr, const CopyPlain& op) {
    Step& step = add(Do::execute, instr);
    Rectangle part = whole(program_[op.target.buffer]);  // instances share the rows
    const std::int64_t rows = part.row_end;
    const int instances = program_[code_.role].instances;
    part.row_begin = rows * code_.instance / instances;
    part.row_end = rows * (code_.instance + 1) / instances;
    step.shared.push_back({op.target, part, {}});
    return {};
  }
  Result<void> compile(const Instr& instr, const LoadGlobal& op) {
    add(Do::execute, instr).writes = {op.target.index};
    return {};
  }
  Result<void> compile(const Instr& instr, const StoreGlobal& op) {
    Step& step = add(Do::execute, instr);
    if (op.target.guard) fragments_of(*op.target.guard, step.reads);
    step.reads.push_back(op.source.index);
    return {};
  }
  Result<void> compile(const Instr& instr, const LoadShared& op) {
    Step& step = add(Do::execute, instr);
    step.writes = {op.target.index};
    return elements_of(op.source, op.target, op.row, op.col, step);
  }
  Result<void> compile(const Instr& instr, const StoreShared& op) {
    Step& step = add(Do::execute, instr);
    step.reads = {op.source.index};
    return elements_of(op.target, op.source, op.row, op.col, step);
  }
  Result<void> compile(const Instr& instr, const BulkStore& op) {
    Step& step = add(Do::execute, instr);
    const auto first = origin(op.row, "its rows");
    if (!first) return tl::unexpected(first.error());
    auto access = rows_of(op.source, first->low, first->high - first->low + program_[op.map].rows());
    if (!access) return tl::unexpected(access.error());
    step.shared.push_back(std::move(*access));
    return {};
  }

  Result<void> operand(Step& step, const Operand& operand, std::int64_t extent, std::int64_t k) {
    if (operand.in_registers) return {};
    const auto first = origin(operand.origin, "an operand's origin");
    const auto first_k = origin(operand.k_origin, "an operand's origin");
    if (!first || !first_k) return tl::unexpected(first ? first_k.error() : first.error());
    Rectangle part{first->low, first->high + extent, first_k->low, first_k->high + k};
    if (operand.transposed) part = {part.col_begin, part.col_end, part.row_begin, part.row_end};
    auto access = checked(operand.buffer, part);
    if (!access) return tl::unexpected(access.error());
    step.shared.push_back(std::move(*access));
    return {};
  }
  Result<void> compile(const Instr& instr, const Mma& op) {
    Step& step = add(Do::execute, instr);
    if (op.accumulate) {
      const auto condition = uniform(*op.accumulate);
      if (!condition) return tl::unexpected(condition.error());
      step.question = terms_.question(*condition);
    }
    const auto& shape = program_[op.accumulator].layout.shape;
    if (auto done = operand(step, op.a, shape[0], op.k); !done) return done;
    return operand(step, op.b, shape[1], op.k);
  }
  Result<void> compile(const Instr& instr, const Map& op) {
    Step& step = add(Do::execute, instr);
    fragments_of(op.value, step.reads);
    step.writes = {op.target.index};
    return {};
  }
  Result<void> compile(const Instr& instr, const Reduce& op) {
    Step& step = add(Do::execute, instr);
    fragments_of(op.value, step.reads);
    if (op.accumulate) step.reads.push_back(op.target.index);
    step.writes = {op.target.index};
    if (op.scratch.valid()) step.shared.push_back(scratch_of(op.scratch, 4 * program_[op.target].layout.elements()));
    return {};
  }
  Result<void> compile(const Instr& instr, const Relayout& op) {
    Step& step = add(Do::execute, instr);
    step.reads = {op.source.index};
    step.writes = {op.target.index};
    if (op.scratch.valid()) step.shared.push_back(scratch_of(op.scratch, program_[op.target].layout.elements()));
    return {};
  }
  template <class Op>
  Result<void> barrier(const Instr& instr, const Op& op) {
    Step& step = add(Do::execute, instr);
    step.index = 0;
    if (!op.index) return {};
    const auto sum = uniform(*op.index);
    if (!sum) return tl::unexpected(sum.error());
    step.index_sum = *sum;
    step.index.reset();
    if (sum->is_constant()) step.index = sum->constant;
    return {};
  }
  Result<void> compile(const Instr& instr, const BarrierSync& op) { return barrier(instr, op); }
  Result<void> compile(const Instr& instr, const BarrierArrive& op) { return barrier(instr, op); }

  template <class Op>
  Result<void> compile(const Instr& instr, const Op&) {
    add(Do::execute, instr);
    return {};
  }
};

void collect(const Question& question, std::set<std::int64_t>& constants) {
  for (const Question& part : question.parts) collect(part, constants);
  if (question.kind == Question::Kind::leaf) constants.insert(std::abs(question.leaf.sum.constant));
}

void find_modulus(const Terms& terms, const Linear& sum, std::int64_t& modulus) {
  for (const auto& [id, coefficient] : sum.terms) {
    const Atom& atom = terms.atom(id);
    if (atom.kind != Atom::Kind::opaque || !atom.uses_counter) continue;
    if (atom.function == Function::mod && atom.args[1].is_constant()) {
      const std::int64_t common = std::lcm(modulus, atom.args[1].constant);
      if (common <= 64) modulus = common;
    }
    for (const Linear& arg : atom.args) find_modulus(terms, arg, modulus);
  }
}

void find_modulus(const Terms& terms, const Question& question, std::int64_t& modulus) {
  for (const Question& part : question.parts) find_modulus(terms, part, modulus);
  find_modulus(terms, question.leaf.sum, modulus);
}

}  // namespace

int loop_around(const Code& code, int step, int depth) {
  for (std::size_t i = 0; i < code.loops.size(); ++i) {
    const LoopRange& loop = code.loops[i];
    if (loop.depth == depth && loop.begin < step && step < loop.end) return static_cast<int>(i);
  }
  return -1;
}

Result<Compiled> compile(const Program& program, Terms& terms, bool count_down_loops_up) {
  Compiled compiled;
  for (int block = 0; block < program.cluster; ++block) {
    for (std::size_t role = 0; role < program.roles.size(); ++role) {
      for (int instance = 0; instance < program.roles[role].instances; ++instance) {
        Code code;
        code.role = RoleId(role);
        code.instance = instance;
        code.cluster_rank = block;
        code.name = fmt::format("{}[{}]", program.roles[role].name, instance);
        if (program.cluster > 1) code.name += fmt::format(" of block {}", block);
        if (auto done = Compiler(program, terms, code, count_down_loops_up).run(); !done)
          return tl::unexpected(done.error());
        compiled.codes.push_back(std::move(code));
      }
    }
  }
  cut_buffers(program, compiled);
  std::set<std::int64_t> constants;
  std::set<std::int64_t> constants_of_plain;
  for (const Code& code : compiled.codes) {
    for (const Step& step : code.steps) {
      collect(step.question, step.plain || step.inside_plain ? constants_of_plain : constants);
      find_modulus(terms, step.question, compiled.modulus);
      find_modulus(terms, step.index_sum, compiled.modulus);
    }
  }
  compiled.constants.assign(constants.begin(), constants.end());
  compiled.constants_of_plain.assign(constants_of_plain.begin(), constants_of_plain.end());
  return compiled;
}

}  // namespace pipethreader::verify
