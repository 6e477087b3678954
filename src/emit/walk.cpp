#include "emit/walk.h"

#include "emit/elements.h"
#include "emit/values.h"

namespace pipethreader::emit {

using namespace program;

namespace {

class Walk {
 public:
  Walk(Emission& emission, Target& target) : emission_(emission), target_(target), out_(emission.out) {}

  void block(const Block& instructions) {
    for (const Instr& instr : instructions) {
      out_.comment(instr.comment);
      emission_.names.begin_instruction();
      emission_.forget_computed();
      target_.begin(instr);
      std::visit([&](const auto& op) { (*this)(op); }, instr.op);
    }
  }

  void operator()(const ForWork& op) {
    target_.open_work(op);
    block(op.body);
    target_.close_work(op);
  }

  void operator()(const For& op) {
    const std::string& var = emission_.name(op.var);
    const std::string step = op.step == 1    ? fmt::format("++{}", var)
                             : op.step == -1 ? fmt::format("--{}", var)
                             : op.step > 0   ? fmt::format("{} += {}", var, op.step)
                                             : fmt::format("{} -= {}", var, -op.step);
    // Unrolling is the scheduler's choice, not the compiler's.
    out_.line("#pragma unroll 1");
    out_.open(fmt::format("for (int {0} = {1}; {0} {2} {3}; {4})", var, bare(uniform(emission_, op.begin)),
                          op.step > 0 ? "<" : ">", uniform(emission_, op.end), step));
    block(op.body);
    out_.close();
  }

  void operator()(const If& op) {
    out_.open(fmt::format("if ({})", bare(uniform(emission_, op.condition))));
    block(op.then);
    if (!op.otherwise.empty()) {
      out_.otherwise("else");
      block(op.otherwise);
    }
    out_.close();
  }

  void operator()(const IfAny& op) {
    open_if_any(emission_, op.domain, op.predicate);
    block(op.then);
    out_.close();
  }

  void operator()(const Let& op) {
    out_.format("{} = {};", emission_.name(op.var), bare(uniform(emission_, op.value)));
  }

  void operator()(const Map& op) {
    if (!emission_.facts.stands_in_late_join(op)) write_map(emission_, op, emission_.facts.is_operand(op.target));
  }
  void operator()(const Reduce& op) { write_reduce(emission_, op); }
  void operator()(const LoadGlobal& op) { write_load_global(emission_, op); }
  void operator()(const StoreGlobal& op) { write_store_global(emission_, op); }
  void operator()(std::monostate) { emission_.problem("an instruction is empty"); }

  template <class Op>
  void operator()(const Op& op) {
    target_.write(op);
  }

 private:
  Emission& emission_;
  Target& target_;
  Writer& out_;
};

}  // namespace

void walk(Emission& emission, Target& target, const Block& block) { Walk(emission, target).block(block); }

}  // namespace pipethreader::emit
