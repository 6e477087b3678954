#include "emit/sm_90a.h"

#include <algorithm>
#include <cassert>

#include "emit/values.h"
#include "program/legalise.h"

namespace pipethreader::emit {

using namespace program;

namespace {

constexpr int kBarrierBytes = 8;
constexpr int kWorkSlots = 2;  // items handed out ahead, in dynamic order
constexpr int kRegistersOfUnit = 65536;
constexpr int kLargestBudget = 256;

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

std::string swizzle_text(Swizzle swizzle) {
  return swizzle == Swizzle::none ? "" : fmt::format(", {}-byte swizzle", swizzle_bytes(swizzle));
}

}  // namespace

Sm90a::Sm90a(Emission& emission) : emission_(emission), program_(emission.program), out_(emission.out) {
  seat_roles();
  const auto work = emission_.facts.work();
  if (work && work->order == WorkOrder::dynamic) work_offset_ = work_mailbox_offset(program_);
}

// Copiers of one warp share the first warpgroup; everybody else has warpgroups of their own.
void Sm90a::seat_roles() {
  seats_.resize(program_.roles.size());
  const auto narrow = [&](std::size_t r) { return emission_.facts.of(RoleId(r)).width != Width::warpgroup; };
  int warps = 0;
  for (std::size_t r = 0; r < program_.roles.size(); ++r)
    if (narrow(r)) seats_[r] = {0, warps++};
  shared_copier_group_ = warps > 0;
  if (warps > layout::warps_of_group) emission_.problem("{} copier roles; one block holds at most 4", warps);
  groups_ = shared_copier_group_ ? 1 : 0;
  for (const RoleKind kind : {RoleKind::copier, RoleKind::computer})
    for (std::size_t r = 0; r < program_.roles.size(); ++r) {
      if (narrow(r) || program_.roles[r].kind != kind) continue;
      seats_[r].first_group = groups_;
      groups_ += program_.roles[r].instances;
    }
  for (std::size_t r = 0; r < program_.roles.size(); ++r)
    if (narrow(r) && program_.roles[r].instances != 1)
      emission_.problem("copier '{}' has {} instances; expected 1", program_.roles[r].name,
                        program_.roles[r].instances);
}

std::vector<Argument> Sm90a::arguments() const {
  std::vector<Argument> result;
  for (std::size_t i = 0; i < program_.tensors.size(); ++i)
    result.push_back(
        {Argument::Kind::tensor, static_cast<int>(i), program_.tensors[i].name, program_.tensors[i].type, {}, {}});
  for (std::size_t i = 0; i < program_.params.size(); ++i)
    result.push_back(
        {Argument::Kind::param, static_cast<int>(i), program_.params[i].name, program_.params[i].type, {}, {}});
  for (std::size_t i = 0; i < program_.maps.size(); ++i) {
    const TensorMap& map = program_.maps[i];
    Argument argument{Argument::Kind::map,       static_cast<int>(i),           map.name,
                      program_[map.tensor].type, copy_shape(program_, map).box, {}};
    for (std::size_t d = 0; d < map.dims.size(); ++d) {
      argument.steps.push_back(map.dims[d].step);
      argument.box[d] *= map.dims[d].step;  // the host counts elements passed over, too
    }
    result.push_back(std::move(argument));
  }
  if (work_offset_ >= 0) result.push_back({Argument::Kind::counter, 0, "work_counter", ScalarType::i32, {}, {}});
  return result;
}

CudaSource Sm90a::source() {
  CudaSource result;
  result.entry = emission_.names.claim(program_.name);
  result.launch.threads = threads();
  result.launch.cluster = program_.cluster;
  result.launch.shared_bytes = program_.shared_bytes;
  result.launch.blocks_per_unit = program_.blocks_per_unit;
  if (const auto work = emission_.facts.work()) {
    result.launch.order = work->order;
    result.launch.count = work->count;
  }
  result.arguments = arguments();

  Writer kernel;
  write_parameters(kernel, result);
  Writer body(1);
  write_shared_layout(body);
  write_init(body);
  write_roles(body);
  if (program_.cluster > 1) {
    body.line();
    body.comment("No block leaves while another may still reach its shared memory.");
    body.format("{}();", emission_.helpers.use("cluster_sync"));
  }
  kernel.append(body);
  kernel.line("}");

  Writer text;
  text.format("// {}: {} threads a block, {} bytes of shared memory{}.", program_.name, threads(),
              program_.shared_bytes, program_.cluster > 1 ? fmt::format(", clusters of {}", program_.cluster) : "");
  if (!program_.generic_reason.empty()) text.comment("generic: " + program_.generic_reason);
  text.line();
  text.line("#pragma nv_diag_suppress 177  // a program may declare what it does not use");
  text.line("using f16 = unsigned short;   // bits");
  text.line("using bf16 = unsigned short;  // bits");
  text.line("using f8e4m3 = unsigned char;");
  text.line("using f8e5m2 = unsigned char;");
  text.line("struct alignas(64) TensorMap {  // what the copy engine knows of a tensor, made by the host");
  text.line("  unsigned char opaque[128];");
  text.line("};");
  text.line();
  emission_.helpers.print(text);
  text.line();
  text.append(kernel);
  result.text = text.text();
  return result;
}

void Sm90a::write_parameters(Writer& out, const CudaSource& source) const {
  std::vector<std::string> parameters;
  for (const Argument& argument : source.arguments) {
    switch (argument.kind) {
      case Argument::Kind::tensor: {
        const TensorId id(at(argument.index));
        const bool output = program_[id].output;
        parameters.push_back(fmt::format("{}{}* {}{}", output ? "" : "const ", memory_type(program_[id].type),
                                         output ? "" : "__restrict__ ", emission_.name(id)));
        if (memory_type(program_[id].type).empty())
          emission_.problem("tensor '{}' has type {}, which this target does not hold in memory", program_[id].name,
                            name(program_[id].type));
        break;
      }
      case Argument::Kind::param:
        parameters.push_back(fmt::format("const {} {}", is_floating(argument.type) ? "float" : "int",
                                         emission_.name(ParamId(at(argument.index)))));
        break;
      case Argument::Kind::map:
        parameters.push_back(
            fmt::format("const __grid_constant__ TensorMap {}", emission_.name(MapId(at(argument.index)))));
        break;
      case Argument::Kind::counter:
        parameters.push_back("unsigned* work_counter");
        break;
    }
  }
  const std::string cluster =
      program_.cluster > 1 ? fmt::format("__cluster_dims__({}, 1, 1) ", program_.cluster) : std::string();
  out.format("extern \"C\" __global__ void {}__launch_bounds__({}, {})", cluster, threads(),
             std::max(1, program_.blocks_per_unit));
  out.list(source.entry + "(", parameters, ") {");
}

void Sm90a::write_shared_layout(Writer& out) const {
  out.comment("Shared memory: byte offsets.");
  out.line("extern __shared__ __align__(1024) unsigned char shared_memory[];");
  out.format("const unsigned shared = {}(shared_memory);", emission_.helpers.use("shared_address"));
  for (std::size_t b = 0; b < program_.buffers.size(); ++b) {
    const Buffer& buffer = program_.buffers[b];
    const std::string slots = buffer.slots > 1 ? fmt::format("{} slots of ", buffer.slots) : "";
    out.format("constexpr unsigned {} = {};  // {}{} [{}, {}]{}{}", emission_.name(BufferId(b)), buffer.offset, slots,
               name(buffer.type), buffer.rows, buffer.cols, swizzle_text(buffer.swizzle),
               buffer.stairs ? ", less what masks leave unread" : "");
  }
  for (std::size_t r = 0; r < program_.rings.size(); ++r)
    out.format("constexpr unsigned {0}_full = {1}, {0}_empty = {2};  // {3} barriers each", emission_.name(RingId(r)),
               full_barrier_offset(program_, RingId(r), 0), empty_barrier_offset(program_, RingId(r), 0),
               program_.rings[r].depth);
  if (work_offset_ >= 0)
    out.format("constexpr unsigned work_full = {}, work_empty = {}, work_items = {};  // which item comes next",
               work_offset_, work_offset_ + kWorkSlots * kBarrierBytes, work_offset_ + 2 * kWorkSlots * kBarrierBytes);
  out.line();
  out.comment("Threads: a warpgroup of four warps for each instance of a role.");
  out.line("const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);");
  out.line("const int thread = static_cast<int>(threadIdx.x) % 128;");
  out.line("const int warp = __shfl_sync(0xffffffffu, thread / 32, 0);");
  out.line("const int lane = thread % 32;");
  if (program_.cluster > 1) out.format("const int rank = static_cast<int>(blockIdx.x) % {};", program_.cluster);
}

void Sm90a::write_init(Writer& out) {
  out.line();
  out.open("if (threadIdx.x == 0)");
  for (std::size_t m = 0; m < program_.maps.size(); ++m)
    out.format("{}(&{});", emission_.helpers.use("prefetch_map"), emission_.name(MapId(m)));
  const std::string init = emission_.helpers.use("init_barrier");
  for (std::size_t r = 0; r < program_.rings.size(); ++r) {
    const Ring& ring = program_.rings[r];
    const RingFacts& facts = emission_.facts.of(RingId(r));
    out.open(fmt::format("for (unsigned slot = 0; slot < {}; ++slot)", ring.depth));
    out.format("{}(shared + {}_full + slot * 8, {});", init, emission_.name(RingId(r)),
               ring.full_arrivals * facts.arrivals_per_commit);
    out.format("{}(shared + {}_empty + slot * 8, {});", init, emission_.name(RingId(r)),
               ring.empty_arrivals * facts.arrivals_per_release);
    out.close();
  }
  if (work_offset_ >= 0) {
    out.open(fmt::format("for (unsigned slot = 0; slot < {}; ++slot)", kWorkSlots));
    out.format("{}(shared + work_full + slot * 8, 1);", init);
    out.format("{}(shared + work_empty + slot * 8, {});", init,
               work_readers() * program_.cluster - (work_taker_reads() ? 0 : 1));
    out.close();
  }
  out.format("{}();", emission_.helpers.use("fence_barrier_init"));
  out.close();
  out.line(program_.cluster > 1 ? emission_.helpers.use("cluster_sync") + "();" : "__syncthreads();");
  out.format("{}();", emission_.helpers.use("follow_previous"));
}

// --- roles -------------------------------------------------------------------------------------------------------

void Sm90a::write_registers(Writer& out, int registers) {
  if (registers <= 0) return;
  const int resident = threads() * std::max(1, program_.blocks_per_unit);
  const int launched = std::min(kLargestBudget, kRegistersOfUnit / resident / 8 * 8);
  if (registers == launched) return;
  out.format("{}<{}>();", emission_.helpers.use(registers > launched ? "grow_registers" : "shrink_registers"),
             registers);
}

void Sm90a::write_narrow_roles(Writer& out) {
  int registers = 0;
  for (std::size_t r = 0; r < program_.roles.size(); ++r)
    if (seats_[r].warp >= 0) registers = std::max(registers, program_.roles[r].registers);
  write_registers(out, registers);
  bool first = true;
  for (std::size_t r = 0; r < program_.roles.size(); ++r) {
    if (seats_[r].warp < 0) continue;
    const bool alone = emission_.facts.of(RoleId(r)).width == Width::thread;
    const std::string condition = fmt::format("if (warp == {}{})", seats_[r].warp,
                                              alone ? " && " + emission_.helpers.use("elect_one") + "()" : "");
    first ? out.open(condition) : out.otherwise("else " + condition);
    first = false;
    if (!alone) out.format("const bool leader = {}();", emission_.helpers.use("elect_one"));
    write_role_body(out, RoleId(r));
  }
  if (emission_.facts.syncs_cluster()) {
    out.otherwise("else");
    out.line("return;  // takes no part in what the cluster waits for");
  }
  out.close();
}

void Sm90a::write_roles(Writer& out) {
  bool first = true;
  const auto open = [&](const std::string& condition, const std::string& title) {
    if (first) out.line();
    first ? out.open(fmt::format("if ({})", condition)) : out.otherwise(fmt::format("else if ({})", condition));
    out.comment("--- " + title);
    first = false;
  };
  if (shared_copier_group_) {
    std::string title;
    for (std::size_t r = 0; r < program_.roles.size(); ++r)
      if (seats_[r].warp >= 0) title += (title.empty() ? "" : ", ") + program_.roles[r].name;
    open("group == 0", title + ": one warp each, the other warps of the group rest");
    write_narrow_roles(out);
  }
  for (int group = shared_copier_group_ ? 1 : 0; group < groups_;) {
    for (std::size_t r = 0; r < program_.roles.size(); ++r) {
      const Role& role = program_.roles[r];
      if (seats_[r].warp >= 0 || seats_[r].first_group != group) continue;
      group += role.instances;
      open(role.instances == 1 ? fmt::format("group == {}", group - 1) : fmt::format("group < {}", group),
           role.instances == 1 ? role.name : fmt::format("{}, {} warpgroups", role.name, role.instances));
      write_registers(out, role.registers);
      write_role_body(out, RoleId(r));
      break;
    }
  }
  if (!first) out.close();
}

void Sm90a::write_role_body(Writer& out, RoleId id) {
  const Role& role = program_[id];
  const Seat& seat = seats_[at(id.index)];
  int barriers = 1;
  for (const Barrier& barrier : program_.barriers) barriers += barrier.count;
  RoleScope scope;
  scope.id = id;
  scope.width = emission_.facts.of(id).width;
  scope.first_group = seat.first_group;
  scope.instance = role.instances > 1 ? "instance" : "0";
  scope.group_barrier =
      seat.first_group == 0 && role.instances == 1
          ? std::to_string(barriers)
          : (role.instances == 1 ? std::to_string(barriers + seat.first_group) : fmt::format("{} + group", barriers));
  if (barriers + groups_ > 16 && barriers > 1)
    emission_.problem("{} barriers and {} warpgroups; a block has 16 hardware barriers", barriers - 1, groups_);
  emission_.role = scope;
  emission_.out = Writer(out.depth());
  emission_.forget_computed();
  fenced_ = false;
  loads_under_way_.assign(program_.rings.size(), {});
  walk(emission_, *this, role.body);
  if (emission_.facts.of(id).bulk_stores) {
    emission_.out.comment("Shared memory must outlive the copies that read it.");
    by_leader(fmt::format("{}<0>();", emission_.helpers.use("bulk_wait_read")));
  }
  if (role.instances > 1)
    out.line(seat.first_group == 0 ? "const int instance = group;"
                                   : fmt::format("const int instance = group - {};", seat.first_group));
  write_declarations(out, id);
  out.append(emission_.out);
}

void Sm90a::write_declarations(Writer& out, RoleId id) {
  for (const std::string& line : emission_.role.thread_part_lines) out.line(line);
  for (std::size_t f = 0; f < program_.fragments.size(); ++f) {
    if (program_.fragments[f].role != id) continue;
    const FragmentId fragment(f);
    const std::string place = layout::print(program_.fragments[f].layout);
    out.format("// {}: {} {}", program_.fragments[f].name, name(program_.fragments[f].type), place);
    const bool listed = emission_.facts.is_accumulator(fragment);
    if (listed) out.define(emission_.all_of(fragment), emission_.variables(fragment));
    out.list(register_type(emission_, fragment) + " ",
             listed ? std::vector{emission_.all_of(fragment)} : emission_.variables(fragment), ";");
  }
  for (const VarId var : emission_.facts.let_vars(id)) out.format("int {} = 0;", emission_.name(var));
  std::set<std::string> declared;
  for (std::size_t r = 0; r < program_.rings.size(); ++r) {
    if (!emission_.facts.uses(id, RingId(r)) || !declared.insert(cursor(RingId(r))).second) continue;
    const std::string slot = program_.rings[r].depth > 1 ? cursor(RingId(r)) + "_slot = 0, " : "";
    out.format("int {}{}_phase = 0;", slot, cursor(RingId(r)));
  }
}

}  // namespace pipethreader::emit
