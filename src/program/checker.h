// Collects what is wrong with a program: shared by the parts of validate().
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "program/program.h"

namespace pipethreader::program {

enum class Rule : std::uint8_t {
#define RULE(id, message) id,
#include "program/rules.def"
#undef RULE
};

// What a message shows: made text only when there is a message.
struct ShownExpr {
  const Program& program;
  ExprId expr;
};
struct ShownLayout {
  const layout::Layout& layout;
};

}  // namespace pipethreader::program

template <>
struct fmt::formatter<pipethreader::program::ShownExpr> : fmt::formatter<std::string> {
  auto format(const pipethreader::program::ShownExpr& shown, fmt::format_context& context) const {
    return fmt::formatter<std::string>::format(pipethreader::program::print(shown.program, shown.expr), context);
  }
};
template <>
struct fmt::formatter<pipethreader::program::ShownLayout> : fmt::formatter<std::string> {
  auto format(const pipethreader::program::ShownLayout& shown, fmt::format_context& context) const {
    return fmt::formatter<std::string>::format(pipethreader::layout::print(shown.layout), context);
  }
};

namespace pipethreader::program {

class Checker {
 public:
  explicit Checker(const Program& program) : p_(program) {}

  [[nodiscard]] Result<void> run();

 private:
  template <class... Args>
  bool check(bool holds, Rule rule, fmt::format_string<Args...> detail, Args&&... args) {
    if (!holds) report(rule, fmt::format(detail, std::forward<Args>(args)...));
    return holds;
  }
  void report(Rule rule, const std::string& detail);
  [[nodiscard]] ShownExpr shown(ExprId expr) const { return {p_, expr}; }
  static ShownLayout shown(const layout::Layout& layout) { return {layout}; }

  // References and expressions (validate.cpp); the rest relies on them.
  template <class Tag, class Item>
  void known(Id<Tag> id, const std::vector<Item>& table, std::string_view what);
  void check_expressions();
  void check_expression(std::size_t index);
  void check_instruction_ids(const Instr& instr);

  // Declarations (validate.cpp).
  void check_host(ExprId expr, std::string_view what);
  void check_sizes();
  void check_tensors();
  void check_maps();
  void check_rings();
  void check_buffers();
  void check_stairs(const Buffer& b);
  void check_offsets();
  void check_fragments();
  void check_roles();

  // Instructions (validate_instr.cpp).
  using Vars = std::set<VarId>;
  struct Scope {
    RoleId role;
    Vars assigned;
    Vars loops;       // vars of the loops around
    bool top = true;  // directly in the role's body
  };
  void check_body(RoleId role);
  void check_block(const Block& block, Scope scope);
  void check_instruction(const Instr& instr, Scope& scope);
  void check_vars_used(const Instr& instr, const Scope& scope);
  void check_work(const ForWork& op, const Scope& scope);
  void assign(VarId var, const Scope& scope);

  void uniform(ExprId expr, std::string_view what);
  void integer(ExprId expr, std::string_view what);
  void boolean(ExprId expr, std::string_view what);
  void index(ExprId expr, std::size_t rank, std::string_view what);  // an integer over uniform values and coordinates
  void on_coordinates(ExprId expr, std::size_t rank, std::string_view what);
  void value(ExprId expr, const layout::Layout& tile);  // coordinates and fragments fit the tile
  void owned(FragmentId fragment, const Scope& scope);
  void computing(const Scope& scope);
  void lag(RingId ring, int lag);
  void lag(const BufferRef& ref);
  void access(const Access& access, std::size_t rank, ScalarType type, bool store);
  void shared_access(const BufferRef& ref, FragmentId fragment, ExprId row, ExprId col, const Scope& scope);
  void bulk(const BufferRef& ref, MapId map, const std::vector<ExprId>& coordinates, bool store);

  void op(const For& x, Scope& scope);
  void op(const If& x, Scope& scope);
  void op(const IfAny& x, Scope& scope);
  void op(const Let& x, Scope& scope);
  void op(const RingCommit& x, Scope& scope);
  void op(const RingWait& x, Scope& scope);
  void op(const RingRelease& x, Scope& scope);
  void op(const CopyBulk& x, Scope& scope);
  void op(const CopyPlain& x, Scope& scope);
  void op(const LoadGlobal& x, Scope& scope);
  void op(const StoreGlobal& x, Scope& scope);
  void op(const LoadShared& x, Scope& scope);
  void op(const StoreShared& x, Scope& scope);
  void op(const BulkStore& x, Scope& scope);
  void op(const BulkStoreWait& x, Scope& scope);
  void op(const MmaCommit& x, Scope& scope);
  void op(const MmaWait& x, Scope& scope);
  void op(const Map& x, Scope& scope);
  void op(const BarrierSync& x, Scope& scope);
  void op(const BarrierArrive& x, Scope& scope);
  void op(const ForWork&, Scope&) {}
  void op(const RingAcquire&, Scope&) {}
  void op(const RingAdvance&, Scope&) {}
  void op(const ProxyFence&, Scope&) {}
  void op(const ClusterSync&, Scope&) {}
  void op(const std::monostate&, Scope&) {}

  // Products, reductions, moves between layouts (validate_tile.cpp).
  void op(const Mma& x, Scope& scope);
  void op(const Reduce& x, Scope& scope);
  void op(const Relayout& x, Scope& scope);
  void shared_operand(const Operand& operand, int rows, int k, std::string_view what);
  void register_operand(const Operand& operand, int rows, int k, const Scope& scope);
  void barrier(BarrierId id, const std::optional<ExprId>& index);
  [[nodiscard]] std::int64_t elements(BufferId buffer) const;

  const Program& p_;
  std::string place_;
  Error errors_;
};

}  // namespace pipethreader::program
