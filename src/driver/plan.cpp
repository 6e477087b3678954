#include "driver/plan.h"

#include <algorithm>
#include <cstring>

#include <nlohmann/json.hpp>

namespace pipethreader::driver {

using json = nlohmann::json;

bool has_products(const Plan& plan) {
  if (plan.variants.empty()) return true;
  const program::Program& program = plan.best().program;
  const auto any = [](const auto& self, const program::Block& block) -> bool {
    return std::any_of(block.begin(), block.end(), [&](const program::Instr& instr) {
      if (std::holds_alternative<program::Mma>(instr.op)) return true;
      if (const auto* work = std::get_if<program::ForWork>(&instr.op)) return self(self, work->body);
      if (const auto* loop = std::get_if<program::For>(&instr.op)) return self(self, loop->body);
      const auto* split = std::get_if<program::If>(&instr.op);
      return split != nullptr && (self(self, split->then) || self(self, split->otherwise));
    });
  };
  return std::any_of(program.roles.begin(), program.roles.end(),
                     [&](const program::Role& role) { return any(any, role.body); });
}

std::string specialisation(const program::Program& program) {
  return program.generic_reason.empty() ? "specialised" : "generic: " + program.generic_reason;
}

Result<std::vector<double>> parameters(const program::Program& program, const kernel::Kernel& kernel,
                                       const std::vector<std::int64_t>& sizes, const std::vector<double>& scalars) {
  std::vector<double> values;
  for (const program::Param& param : program.params) {
    std::optional<double> value;
    for (std::size_t i = 0; i < kernel.dims.size() && i < sizes.size(); ++i) {
      if (param.dim && kernel.dims[i].name == param.name) value = static_cast<double>(sizes[i]);
    }
    for (std::size_t i = 0; i < kernel.scalars.size() && i < scalars.size(); ++i) {
      if (!param.dim && kernel.scalars[i].name == param.name) value = scalars[i];
    }
    if (!value) return fail("the program's parameter '{}' is no size or scalar of '{}'", param.name, kernel.name);
    values.push_back(*value);
  }
  return values;
}

Result<std::size_t> variant_for(const Plan& plan, const kernel::Kernel& kernel, const std::vector<std::int64_t>& sizes,
                                const std::vector<double>& scalars) {
  for (std::size_t v = 0; v < plan.variants.size(); ++v) {
    const program::Program& program = plan.variants[v].program;
    auto params = parameters(program, kernel, sizes, scalars);
    if (!params) return tl::unexpected(params.error());
    const bool holds = std::all_of(program.requirements.begin(), program.requirements.end(),
                                   [&](program::ExprId e) { return program::evaluate(program, e, *params) != 0; });
    if (holds) return v;
  }
  return fail("no variant of '{}' takes these sizes", plan.kernel);
}

namespace {

constexpr int format_version = 10;
constexpr std::string_view magic = "pipethreader plan\n";

json choices_to_json(const Choices& c) {
  return {{"split", c.split},
          {"row", c.partition.row},
          {"column", c.partition.column},
          {"stream", c.partition.stream},
          {"lanes", c.partition.lanes},
          {"teams", c.partition.teams},
          {"apart", c.partition.apart},
          {"blocks", c.partition.blocks},
          {"share_sums", c.partition.share_sums},
          {"element", c.partition.element},
          {"order", static_cast<int>(c.partition.order)},
          {"raster", c.partition.raster},
          {"band", c.partition.band},
          {"hold", c.partition.hold},
          {"cluster", c.partition.cluster},
          {"along", c.partition.along},
          {"overlap", static_cast<int>(c.schedule.overlap)},
          {"depth", c.schedule.depth},
          {"outer", c.schedule.outer},
          {"turns", c.schedule.turns},
          {"staged", c.schedule.staged_stores},
          {"walk_axis", c.walk.axis},
          {"walk_length", c.walk.length},
          {"bulk", c.bulk},
          {"pass_over", c.pass_over}};
}

Choices choices_from_json(const json& j) {
  Choices c;
  c.split = j.at("split");
  c.partition.row = j.at("row");
  c.partition.column = j.at("column");
  c.partition.stream = j.at("stream");
  c.partition.lanes = j.at("lanes");
  c.partition.teams = j.at("teams");
  c.partition.apart = j.at("apart");
  c.partition.blocks = j.at("blocks");
  c.partition.share_sums = j.at("share_sums");
  c.partition.element = j.at("element");
  c.partition.order = static_cast<partition::Order>(j.at("order").get<int>());
  c.partition.raster = j.at("raster");
  c.partition.band = j.at("band");
  c.partition.hold = j.at("hold");
  c.partition.cluster = j.at("cluster");
  c.partition.along = j.at("along");
  c.schedule.overlap = static_cast<schedule::Overlap>(j.at("overlap").get<int>());
  c.schedule.depth = j.at("depth");
  c.schedule.outer = j.at("outer");
  c.schedule.turns = j.at("turns");
  c.schedule.staged_stores = j.at("staged");
  c.walk.axis = j.at("walk_axis");
  c.walk.length = j.at("walk_length");
  c.bulk = j.at("bulk");
  c.pass_over = j.at("pass_over");
  return c;
}

json assembler_to_json(const runtime::AssemblerReport& r) {
  return {{"registers", r.registers},
          {"spill_stores", r.spill_store_bytes},
          {"spill_loads", r.spill_load_bytes},
          {"stack", r.stack_bytes},
          {"serialised", r.serialised},
          {"waits", r.injected_waits},
          {"budget", r.ignored_register_budget},
          {"messages", r.messages}};
}

runtime::AssemblerReport assembler_from_json(const json& j) {
  runtime::AssemblerReport r;
  r.registers = j.at("registers");
  r.spill_store_bytes = j.at("spill_stores");
  r.spill_load_bytes = j.at("spill_loads");
  r.stack_bytes = j.at("stack");
  r.serialised = j.at("serialised");
  r.injected_waits = j.at("waits");
  r.ignored_register_budget = j.at("budget");
  r.messages = j.at("messages").get<std::vector<std::string>>();
  return r;
}

json source_to_json(const emit::CudaSource& s) {
  json arguments = json::array();
  for (const emit::Argument& a : s.arguments) {
    arguments.push_back({{"kind", static_cast<int>(a.kind)},
                         {"index", a.index},
                         {"name", a.name},
                         {"type", std::string(name(a.type))},
                         {"box", a.box},
                         {"steps", a.steps}});
  }
  return {{"text", s.text},
          {"entry", s.entry},
          {"threads", s.launch.threads},
          {"cluster", s.launch.cluster},
          {"shared", s.launch.shared_bytes},
          {"blocks_per_unit", s.launch.blocks_per_unit},
          {"order", static_cast<int>(s.launch.order)},
          {"arguments", std::move(arguments)}};
}

// The number of work items is an expression of the program, whose numbering a parsed copy does not keep.
program::ExprId work_count(const program::Program& program) {
  for (const program::Role& role : program.roles) {
    for (const program::Instr& instr : role.body) {
      if (const auto* work = std::get_if<program::ForWork>(&instr.op)) return work->count;
    }
  }
  return {};
}

emit::CudaSource source_from_json(const json& j, const program::Program& program) {
  emit::CudaSource s;
  s.text = j.at("text");
  s.entry = j.at("entry");
  s.launch.threads = j.at("threads");
  s.launch.cluster = j.at("cluster");
  s.launch.shared_bytes = j.at("shared");
  s.launch.blocks_per_unit = j.at("blocks_per_unit");
  s.launch.order = static_cast<program::WorkOrder>(j.at("order").get<int>());
  s.launch.count = work_count(program);
  for (const json& a : j.at("arguments")) {
    s.arguments.push_back({static_cast<emit::Argument::Kind>(a.at("kind").get<int>()), a.at("index"), a.at("name"),
                           scalar_type(a.at("type").get<std::string>()).value_or(ScalarType::f32),
                           a.at("box").get<std::vector<int>>(), a.at("steps").get<std::vector<int>>()});
  }
  return s;
}

// The text form gives other names to what is called like one of its words; arguments are found by their own.
template <typename Items>
json names_of(const Items& items) {
  json names = json::array();
  for (const auto& item : items) names.push_back(item.name);
  return names;
}

template <typename Items>
bool rename(Items& items, const json& names) {
  if (names.size() != items.size()) return false;
  for (std::size_t i = 0; i < items.size(); ++i) items[i].name = names[i].template get<std::string>();
  return true;
}

json variant_to_json(const Variant& v) {
  return {{"program", program::print(v.program)},
          {"params", names_of(v.program.params)},
          {"tensors", names_of(v.program.tensors)},
          {"source", source_to_json(v.source)},
          {"cubin", v.cubin.size()},
          {"assembler", assembler_to_json(v.assembler)},
          {"fault", v.fault}};
}

// Takes its machine code from the front of `cubins`.
std::optional<Variant> variant_from_json(const json& v, std::string_view& cubins) {
  auto program = program::parse(v.at("program").get<std::string>(), "");
  if (!program) return std::nullopt;
  Variant variant;
  variant.program = std::move(*program);
  if (!rename(variant.program.params, v.at("params"))) return std::nullopt;
  if (!rename(variant.program.tensors, v.at("tensors"))) return std::nullopt;
  variant.source = source_from_json(v.at("source"), variant.program);
  const std::size_t size = v.at("cubin");
  if (size > cubins.size()) return std::nullopt;
  variant.cubin.resize(size);
  if (size > 0) std::memcpy(variant.cubin.data(), cubins.data(), size);
  cubins.remove_prefix(size);
  variant.assembler = assembler_from_json(v.at("assembler"));
  variant.fault = v.at("fault");
  return variant;
}

json header_of(const Plan& plan) {
  json j = {{"version", format_version},
            {"kernel", plan.kernel},
            {"text", plan.text},
            {"device", plan.device},
            {"choices", choices_to_json(plan.choices)},
            {"compiler", plan.compiler},
            {"compiler_path", plan.compiler_path},
            {"no_machine_code", plan.no_machine_code},
            {"tuned", plan.tuned},
            {"note", plan.note}};
  for (const Variant& v : plan.variants) j["variants"].push_back(variant_to_json(v));
  for (const Variant& v : plan.joins) j["joins"].push_back(variant_to_json(v));
  for (const Tried& t : plan.candidates) {
    j["candidates"].push_back({{"choices", choices_to_json(t.choices)},
                               {"predicted_us", t.predicted_us},
                               {"bound", t.bound},
                               {"verdict", t.verdict}});
  }
  return j;
}

std::optional<Plan> plan_of(const json& j, std::string_view cubins) {
  if (j.at("version") != format_version) return std::nullopt;
  Plan plan;
  plan.kernel = j.at("kernel");
  plan.text = j.at("text");
  plan.device = j.at("device");
  plan.choices = choices_from_json(j.at("choices"));
  plan.compiler = j.at("compiler");
  plan.compiler_path = j.at("compiler_path");
  plan.no_machine_code = j.at("no_machine_code");
  plan.tuned = j.at("tuned");
  plan.note = j.at("note");
  for (const json& v : j.at("variants")) {
    auto variant = variant_from_json(v, cubins);
    if (!variant) return std::nullopt;
    plan.variants.push_back(std::move(*variant));
  }
  if (j.contains("joins")) {
    for (const json& v : j.at("joins")) {
      auto variant = variant_from_json(v, cubins);
      if (!variant) return std::nullopt;
      plan.joins.push_back(std::move(*variant));
    }
  }
  if (plan.variants.empty()) return std::nullopt;
  if (j.contains("candidates")) {
    for (const json& t : j.at("candidates")) {
      plan.candidates.push_back(
          {choices_from_json(t.at("choices")), t.at("predicted_us"), t.at("bound"), t.at("verdict")});
    }
  }
  return plan;
}

}  // namespace

std::string pack(const Plan& plan) {
  const std::string header = header_of(plan).dump();
  std::string text = fmt::format("{}{}\n{}", magic, header.size(), header);
  for (const auto* launches : {&plan.variants, &plan.joins}) {
    for (const Variant& v : *launches) text.append(reinterpret_cast<const char*>(v.cubin.data()), v.cubin.size());
  }
  return text;
}

std::optional<Plan> unpack(std::string_view text) {
  if (!text.starts_with(magic)) return std::nullopt;
  text.remove_prefix(magic.size());
  const std::size_t line = text.find('\n');
  if (line == std::string_view::npos || line == 0 || line > 12) return std::nullopt;
  std::size_t size = 0;
  for (const char c : text.substr(0, line)) {
    if (c < '0' || c > '9') return std::nullopt;
    size = size * 10 + static_cast<std::size_t>(c - '0');
  }
  text.remove_prefix(line + 1);
  if (size > text.size()) return std::nullopt;
  const json header = json::parse(text.substr(0, size), nullptr, false);
  if (header.is_discarded()) return std::nullopt;
  try {
    return plan_of(header, text.substr(size));
  } catch (const json::exception&) {  // a member is missing or of another type
    return std::nullopt;
  }
}

}  // namespace pipethreader::driver
