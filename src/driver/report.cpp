#include "driver/report.h"

#include <filesystem>
#include <span>

#include <nlohmann/json.hpp>

#include "runtime/atomic_file.h"

namespace pipethreader::driver {

namespace fs = std::filesystem;

namespace {

std::string line(std::string_view name, const std::string& text) { return fmt::format("  {:<12}{}\n", name, text); }

std::string sizes_text(const kernel::Kernel& kernel) {
  std::string text;
  for (const kernel::Dim& dim : kernel.dims) {
    if (!text.empty()) text += " ";
    text += dim.size ? fmt::format("{}={}", dim.name, *dim.size) : fmt::format("{}=dynamic", dim.name);
  }
  return text;
}

std::string machine_text(const Variant& v) {
  std::string text = fmt::format("{} registers a thread, {}", v.assembler.registers,
                                 v.fault.empty() ? "no spills, no serialised products" : v.fault);
  if (v.assembler.injected_waits) text += "; the assembler put in waits of its own";
  return text;
}

}  // namespace

std::string report_text(const Compiled& compiled) {
  const Plan& plan = compiled.plan;
  const Variant& best = plan.best();
  const emit::LaunchShape& launch = best.source.launch;
  std::string text = fmt::format("{} for {}: {}\n", plan.kernel, plan.device, specialisation(best.program));
  if (!compiled.kernel.dims.empty()) text += line("sizes", sizes_text(compiled.kernel));
  text += line("choices", describe(plan.choices, has_products(plan)) + (plan.tuned ? " (tuned on a card)" : ""));
  text += line("launch", fmt::format("{} threads a block, {} bytes of shared memory, {} block{} an execution unit{}",
                                     launch.threads, launch.shared_bytes, launch.blocks_per_unit,
                                     launch.blocks_per_unit == 1 ? "" : "s",
                                     launch.cluster > 1 ? fmt::format(", clusters of {}", launch.cluster) : ""));
  if (!plan.note.empty()) text += line("note", plan.note);
  if (plan.assembled()) {
    text += line("machine", machine_text(best));
  } else {
    text += line("machine", "none: " + plan.no_machine_code);
  }
  for (const Variant& join : plan.joins) {
    text += line("then", fmt::format("{}, {} threads a block{}", join.source.entry, join.source.launch.threads,
                                     join.fault.empty() ? "" : "; " + join.fault));
  }
  for (std::size_t v = 1; v < plan.variants.size(); ++v) {
    text += line("otherwise", specialisation(plan.variants[v].program));
  }
  std::string times;
  for (const StageTime& t : compiled.times)
    times += fmt::format("{}{} {:.1f} ms", times.empty() ? "" : ", ", t.stage, t.milliseconds);
  text += line("time", times);
  return text;
}

namespace {

// What a host needs to launch the kernel by itself: docs/command-line.md.
nlohmann::json launch_json(const Variant& v) {
  using nlohmann::json;
  static constexpr const char* kinds[] = {"tensor", "param", "map", "counter"};
  const program::Program& program = v.program;
  json arguments = json::array();
  for (const emit::Argument& a : v.source.arguments) {
    json argument = {{"kind", kinds[static_cast<int>(a.kind)]}, {"name", a.name}};
    if (a.kind == emit::Argument::Kind::param) argument["type"] = std::string(name(a.type));
    if (a.kind == emit::Argument::Kind::map) {
      const program::TensorMap& map = program.maps[static_cast<std::size_t>(a.index)];
      argument["tensor"] = program[map.tensor].name;
      argument["swizzle_bytes"] = map.swizzle == program::Swizzle::bytes128  ? 128
                                  : map.swizzle == program::Swizzle::bytes64 ? 64
                                  : map.swizzle == program::Swizzle::bytes32 ? 32
                                                                             : 0;
      argument["dims"] = json::array();
      for (std::size_t d = 0; d < map.dims.size(); ++d) {
        argument["dims"].push_back({{"extent", program::print(program, map.dims[d].extent)},
                                    {"stride_elements", program::print(program, map.dims[d].stride)},
                                    {"box", a.box[d]},
                                    {"element_stride", a.steps[d]}});
      }
    }
    arguments.push_back(std::move(argument));
  }
  static constexpr const char* orders[] = {"single", "persistent", "dynamic"};
  const emit::LaunchShape& launch = v.source.launch;
  return {{"work_items", launch.count.valid() ? program::print(program, launch.count) : "1"},
          {"order", orders[static_cast<int>(launch.order)]},
          {"arguments", std::move(arguments)}};
}

}  // namespace

std::string report_json(const Compiled& compiled) {
  using json = nlohmann::json;
  const Plan& plan = compiled.plan;
  json dims = json::object();
  for (const kernel::Dim& dim : compiled.kernel.dims) dims[dim.name] = dim.size ? json(*dim.size) : json("dynamic");
  json variants = json::array();
  for (const Variant& v : plan.variants) {
    const emit::LaunchShape& l = v.source.launch;
    json requirements = json::array();
    for (const program::ExprId e : v.program.requirements) requirements.push_back(program::print(v.program, e));
    variants.push_back({{"specialisation", specialisation(v.program)},
                        {"requires", requirements},
                        {"entry", v.source.entry},
                        {"threads", l.threads},
                        {"cluster", l.cluster},
                        {"shared_bytes", l.shared_bytes},
                        {"blocks_per_unit", l.blocks_per_unit},
                        {"launch", launch_json(v)},
                        {"cubin_bytes", v.cubin.size()},
                        {"registers", v.assembler.registers},
                        {"spill_bytes", v.assembler.spill_store_bytes + v.assembler.spill_load_bytes},
                        {"serialised", v.assembler.serialised},
                        {"injected_waits", v.assembler.injected_waits},
                        {"fault", v.fault},
                        {"messages", v.assembler.messages}});
  }
  json joins = json::array();
  for (const Variant& v : plan.joins) joins.push_back({{"entry", v.source.entry}, {"launch", launch_json(v)}});
  json candidates = json::array();
  for (const Tried& t : plan.candidates) {
    candidates.push_back({{"choices", describe(t.choices, has_products(plan))},
                          {"predicted_us", t.predicted_us},
                          {"bound", t.bound},
                          {"verdict", t.verdict}});
  }
  json times = json::object();
  for (const StageTime& t : compiled.times) times[t.stage] = t.milliseconds;
  const json report = {{"kernel", plan.kernel},
                       {"device", plan.device},
                       {"dims", dims},
                       {"specialised", plan.generic_reason().empty()},
                       {"generic_reason", plan.generic_reason()},
                       {"choices", describe(plan.choices, has_products(plan))},
                       {"tuned", plan.tuned},
                       {"note", plan.note},
                       {"from_cache", compiled.from_cache},
                       {"compiler", plan.compiler},
                       {"no_machine_code", plan.no_machine_code},
                       {"variants", variants},
                       {"joins", joins},
                       {"candidates", candidates},
                       {"stage_milliseconds", times},
                       {"warnings", compiled.warnings}};
  return report.dump(2) + "\n";
}

Result<void> write_text(const std::string& path, std::string_view text) {
  return runtime::write_file(path, {std::as_bytes(std::span(text.data(), text.size()))});
}

Result<std::vector<std::string>> write_outputs(const Compiled& compiled, const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return fail("cannot make the folder '{}': {}", folder, error.message());
  std::vector<std::string> written;
  const auto keep = [&](const std::string& name, std::span<const std::byte> bytes) -> Result<void> {
    const std::string path = (fs::path(folder) / name).string();
    if (auto done = runtime::write_file(path, {bytes}); !done) return done;
    written.push_back(path);
    return {};
  };
  const auto text = [](const std::string& s) { return std::as_bytes(std::span(s.data(), s.size())); };
  for (std::size_t v = 0; v < compiled.plan.variants.size(); ++v) {
    const Variant& variant = compiled.plan.variants[v];
    const std::string stem = compiled.plan.kernel + (v == 0 ? "" : v == 1 ? "_plain" : fmt::format("_{}", v));
    if (auto done = keep(stem + ".cu", text(variant.source.text)); !done) return tl::unexpected(done.error());
    if (auto done = keep(stem + ".program", text(program::print(variant.program))); !done)
      return tl::unexpected(done.error());
    if (variant.cubin.empty()) continue;
    if (auto done = keep(stem + ".cubin", variant.cubin); !done) return tl::unexpected(done.error());
  }
  for (const Variant& join : compiled.plan.joins) {
    const std::string& stem = join.source.entry;
    if (auto done = keep(stem + ".cu", text(join.source.text)); !done) return tl::unexpected(done.error());
    if (auto done = keep(stem + ".program", text(program::print(join.program))); !done)
      return tl::unexpected(done.error());
    if (join.cubin.empty()) continue;
    if (auto done = keep(stem + ".cubin", join.cubin); !done) return tl::unexpected(done.error());
  }
  if (auto done = keep(compiled.plan.kernel + ".report.json", text(report_json(compiled))); !done)
    return tl::unexpected(done.error());
  return written;
}

}  // namespace pipethreader::driver
