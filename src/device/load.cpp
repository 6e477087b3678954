// devices/<name>.toml to Device. Each read_* function is one table of the file.
#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "device/device.h"
#include "device/table_reader.h"

namespace pipethreader::device {
namespace {

using Least = TableReader::Least;

// Runs `read` over the table `key`, which must be there, and complains about keys that it did not ask for.
template <class Read>
void in_table(TableReader& parent, Findings& findings, std::string_view key, std::string path, Read&& read) {
  if (const toml::table* table = parent.table(key)) {
    TableReader reader(*table, std::move(path), findings);
    read(reader);
    reader.finish();
  }
}

// The same for each table of an array.
template <class Read>
void in_tables(TableReader& parent, Findings& findings, std::string_view key, std::string path, Read&& read) {
  for (const toml::table* table : parent.tables(key)) {
    TableReader reader(*table, path, findings);
    read(reader);
    reader.finish();
  }
}

template <class Enum>
void read_choice(TableReader& reader, std::string_view key, Enum& out, const std::vector<std::string_view>& names) {
  std::size_t index = 0;
  if (reader.choice(key, index, names)) out = static_cast<Enum>(index);
}

std::vector<std::string_view> resource_names() {
  std::vector<std::string_view> names;
  for (const Resource resource : all_resources()) names.push_back(name(resource));
  return names;
}

std::vector<std::string_view> scalar_type_names() {
  std::vector<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(ScalarType::boolean); ++i) names.push_back(name(static_cast<ScalarType>(i)));
  return names;
}

// { fma = 1, issue = 1 }: at least `issue`, which says that somebody thought about it.
void read_demand(TableReader& parent, Findings& findings, std::string_view key, const std::string& path, Demand& out) {
  in_table(parent, findings, key, fmt::format("'{}' of {}", key, path), [&](TableReader& reader) {
    for (const Resource resource : all_resources()) {
      if (reader.has(name(resource)) || resource == Resource::issue) reader.number(name(resource), out[resource]);
    }
  });
}

// Runs `read`, and `check` where all of it could be read.
template <class Read, class Check>
void read_then_check(Findings& findings, Read&& read, Check&& check) {
  const std::size_t before = findings.diagnostics.size();
  read();
  if (findings.diagnostics.size() == before) check();
}

void check_threads(TableReader& reader, const Threads& threads) {
  if (threads.per_block_max % threads.per_warp != 0) {
    reader.complain("per_block_max",
                    fmt::format("'per_block_max' is {}: expected a multiple of the {} threads of a warp",
                                threads.per_block_max, threads.per_warp));
  }
  if (threads.per_unit_max < threads.per_block_max) {
    reader.complain("per_unit_max", fmt::format("'per_unit_max' is {}: expected room for a block of {} threads",
                                                threads.per_unit_max, threads.per_block_max));
  }
}

void read_threads(TableReader& reader, Threads& out) {
  reader.integer("per_warp", out.per_warp, 1);
  reader.integer("warps_per_group", out.warps_per_group, 1);
  reader.integer("per_block_max", out.per_block_max, 1);
  reader.integer("per_unit_max", out.per_unit_max, 1);
  reader.integer("blocks_per_unit_max", out.blocks_per_unit_max, 1);
  reader.integer("schedulers", out.schedulers, 1);
}

// Reallocation hangs the block when roles together want more registers than the launch took.
void check_budget(TableReader& reader, const RegisterBudget& budget, const Registers& registers,
                  const Threads& threads) {
  const auto group = static_cast<std::int64_t>(threads.per_warp) * threads.warps_per_group;
  if (group * (budget.consumers + 1) * budget.launch > registers.per_unit) {
    reader.complain(
        "launch",
        fmt::format("{} warpgroups of {} threads with {} registers each need more than the {} registers of a unit",
                    budget.consumers + 1, group, budget.launch, registers.per_unit));
  }
  if (budget.producer + budget.consumers * budget.consumer > (budget.consumers + 1) * budget.launch) {
    reader.complain("consumer", fmt::format("producer {} + {} consumers of {} is more than the {} x {} taken at launch",
                                            budget.producer, budget.consumers, budget.consumer, budget.consumers + 1,
                                            budget.launch));
  }
  for (const auto& [key, value] :
       {std::pair{"launch", budget.launch}, {"producer", budget.producer}, {"consumer", budget.consumer}}) {
    if (registers.granularity > 0 && value % registers.granularity != 0) {
      reader.complain(
          key, fmt::format("'{}' is {}: expected a multiple of the granularity {}", key, value, registers.granularity));
    }
  }
}

void check_registers(TableReader& reader, const Registers& registers) {
  if (registers.reallocation_min <= registers.reallocation_max) return;
  reader.complain("reallocation_max",
                  fmt::format("'reallocation_max' is {}: expected no less than 'reallocation_min', {}",
                              registers.reallocation_max, registers.reallocation_min));
}

void read_registers(TableReader& reader, Findings& findings, Registers& out, const Threads& threads) {
  reader.integer("per_unit", out.per_unit);
  reader.integer("per_thread_max", out.per_thread_max);
  reader.integer("granularity", out.granularity, 1);
  reader.integer("reallocation_min", out.reallocation_min);
  reader.integer("reallocation_max", out.reallocation_max);
  in_tables(reader, findings, "budgets", "[[registers.budgets]]", [&](TableReader& entry) {
    const std::size_t before = findings.diagnostics.size();
    RegisterBudget budget;
    entry.integer("consumers", budget.consumers, 1);
    entry.integer("launch", budget.launch, 1);
    entry.integer("producer", budget.producer, 1);
    entry.integer("consumer", budget.consumer, 1);
    if (findings.diagnostics.size() == before) check_budget(entry, budget, out, threads);
    out.budgets.push_back(budget);
  });
}

void check_memory(TableReader& reader, const Memory& memory) {
  if (memory.shared_bytes_per_block + memory.shared_bytes_reserved <= memory.shared_bytes_per_unit) return;
  reader.complain(
      "shared_bytes_per_block",
      fmt::format("'shared_bytes_per_block' is {}: with the {} reserved it is more than the {} of a unit",
                  memory.shared_bytes_per_block, memory.shared_bytes_reserved, memory.shared_bytes_per_unit));
}

void read_memory(TableReader& reader, Memory& out) {
  constexpr std::int64_t gigabyte = std::int64_t{1} << 30;
  reader.integer("shared_bytes_per_unit", out.shared_bytes_per_unit, 0, gigabyte);
  reader.integer("shared_bytes_per_block", out.shared_bytes_per_block, 0, gigabyte);
  reader.integer("shared_bytes_reserved", out.shared_bytes_reserved, 0, gigabyte);
  reader.integer("l2_bytes", out.l2_bytes, 0, 1024 * gigabyte);
  reader.integer("dram_bytes", out.dram_bytes, 0, 1024 * 1024 * gigabyte);
  reader.integer("shared_banks", out.shared_banks, 1);
  reader.integer("shared_bank_bytes", out.shared_bank_bytes, 1);
  reader.integer("line_bytes", out.line_bytes, 1);
  reader.share("l2_band_share", out.l2_band_share);
}

void read_unit(TableReader& reader, Unit& out) {
  reader.text("name", out.name);
  read_choice(reader, "kind", out.kind, {"copy", "tensor", "alu", "link"});
  reader.boolean("is_async", out.is_async);
  read_choice(reader, "completion", out.completion, {"fifo_group", "barrier", "blocking"});
  reader.number("issue_cycles", out.issue_cycles);
  reader.integer("queue_depth", out.queue_depth);
  if (out.is_async == (out.completion == Completion::blocking)) {
    reader.complain(
        "completion",
        fmt::format(
            "unit '{}' has is_async = {} and completion '{}': a unit is blocking exactly when it is not asynchronous",
            out.name, out.is_async, name(out.completion)));
  }
}

void check_mma(TableReader& reader, const MmaShape& shape, const Threads& threads) {
  const std::int64_t group = std::int64_t{threads.per_warp} * threads.warps_per_group;
  if (shape.threads != threads.per_warp && shape.threads != group) {
    reader.complain("threads", fmt::format("'threads' is {}: expected the {} of a warp or the {} of a warpgroup",
                                           shape.threads, threads.per_warp, group));
  }
  if (shape.n_min > shape.n_max) {
    reader.complain("n_max", fmt::format("'n_max' is {}: expected no less than 'n_min', {}", shape.n_max, shape.n_min));
  }
  for (const auto& [key, value] : {std::pair{"n_min", shape.n_min}, {"n_max", shape.n_max}}) {
    if (value % shape.n_step != 0)
      reader.complain(key, fmt::format("'{}' is {}: expected a multiple of 'n_step', {}", key, value, shape.n_step));
  }
}

void read_mma(TableReader& reader, MmaShape& out) {
  const std::vector<std::string_view> types = scalar_type_names();
  read_choice(reader, "a", out.a, types);
  read_choice(reader, "b", out.b, types);
  read_choice(reader, "accumulator", out.accumulator, types);
  reader.integer("threads", out.threads, 1);
  reader.integer("m", out.m, 1);
  reader.integer("n_min", out.n_min, 1);
  reader.integer("n_max", out.n_max, 1);
  reader.integer("n_step", out.n_step, 1);
  reader.integer("k", out.k, 1);
  reader.number("cycles_per_n_shared", out.cycles_per_n_shared, Least::above_zero);
  reader.number("cycles_per_n_registers", out.cycles_per_n_registers, Least::above_zero);
  reader.boolean("a_in_registers", out.a_in_registers);
  reader.boolean("mn_major", out.mn_major);
}

void read_resources(TableReader& reader, Findings& findings, Device& out) {
  for (const Resource resource : all_resources()) {
    ResourceRate& entry = out.resources[static_cast<std::size_t>(resource)];
    const std::string path = fmt::format("'{}' of [resources]", name(resource));
    in_table(reader, findings, name(resource), path, [&](TableReader& fields) {
      read_choice(fields, "scope", entry.scope, {"execution_unit", "device"});
      fields.number("rate", entry.rate);
    });
  }
}

void read_latency(TableReader& reader, Latency& out) {
  reader.number("bulk_load", out.bulk_load);
  reader.number("bulk_store", out.bulk_store);
  reader.number("global_load", out.global_load);
  reader.number("shared_load", out.shared_load);
  reader.number("shared_store", out.shared_store);
  reader.number("shuffle", out.shuffle);
  reader.number("arithmetic", out.arithmetic);
  reader.number("special", out.special);
  reader.number("mma", out.mma);
  reader.number("last_result", out.last_result);
}

void read_throughput(TableReader& reader, Throughput& out) {
  reader.share("tensor_share", out.tensor_share, Least::above_zero);
  reader.share("operand_share", out.operand_share);
  reader.share("lane_share", out.lane_share, Least::above_zero);
  reader.share("all_lanes_share", out.all_lanes_share, Least::above_zero);
  reader.share("joined_share", out.joined_share);
  reader.number("l2_alone_factor", out.l2_alone_factor, Least::one);
}

void read_iteration(TableReader& reader, Iteration& out) {
  reader.number("wait_cycles", out.wait_cycles);
  reader.number("work_cycles", out.work_cycles);
  reader.number("kept_cycles", out.kept_cycles);
  reader.number("overlap_wait_cycles", out.overlap_wait_cycles);
  reader.number("overlap_work_cycles", out.overlap_work_cycles);
}

void read_work_item(TableReader& reader, WorkItem& out) {
  reader.number("direct_store_cycles", out.direct_store_cycles);
  reader.share("apart_store_share", out.apart_store_share);
  reader.share("staged_store_share", out.staged_store_share);
  reader.share("hidden_share", out.hidden_share);
  reader.number("serial_factor", out.serial_factor, Least::one);
  reader.number("many_serial_factor", out.many_serial_factor, Least::above_zero);
  reader.number("staying_blocks_factor", out.staying_blocks_factor, Least::one);
  reader.number("staying_blocks_exponent", out.staying_blocks_exponent, Least::one);
  reader.number("uncoordinated_factor", out.uncoordinated_factor, Least::one);
}

void read_barriers(TableReader& reader, Barriers& out) {
  reader.integer("named_count", out.named_count);
  reader.number("named_cycles", out.named_cycles);
  reader.number("counted_cycles", out.counted_cycles);
  reader.number("counted_arrive_cycles", out.counted_arrive_cycles);
  reader.integer("counted_arrivals_max", out.counted_arrivals_max);
  reader.integer("transaction_bytes_max", out.transaction_bytes_max);
  reader.integer("phases", out.phases);
  reader.number("turn_cycles", out.turn_cycles);
  reader.number("proxy_fence_cycles", out.proxy_fence_cycles);
  reader.number("cluster_sync_cycles", out.cluster_sync_cycles);
}

void read_cluster(TableReader& reader, Cluster& out) {
  reader.integer("blocks_max", out.blocks_max, 1);
  reader.boolean("multicast", out.multicast);
  reader.boolean("remote_barriers", out.remote_barriers);
  reader.number("cost_factor", out.cost_factor, Least::one);
  reader.number("pays_above", out.pays_above);
}

void read_bulk_copy(TableReader& reader, BulkCopy& out) {
  reader.integer("rank_max", out.rank_max);
  reader.integer("box_extent_max", out.box_extent_max);
  reader.integer("address_alignment", out.address_alignment, 1);
  reader.integer("stride_alignment", out.stride_alignment, 1);
  reader.integer("shared_alignment", out.shared_alignment, 1);
  reader.integers("swizzle_bytes", out.swizzle_bytes, 1);
}

void read_assembler(TableReader& reader, Assembler& out) {
  reader.integer("parameter_bytes_max", out.parameter_bytes_max);
  reader.integer("mma_groups_across_iterations", out.mma_groups_across_iterations);
  reader.integer("mma_groups_outstanding_max", out.mma_groups_outstanding_max);
  reader.integer("address_registers", out.address_registers);
  reader.integer("overlap_registers", out.overlap_registers);
  reader.integer("mma_registers", out.mma_registers);
}

void read_faults(TableReader& reader, Faults& out) {
  reader.number("serialised", out.serialised);
  reader.number("ignored_budget", out.ignored_budget);
  reader.number("spilled", out.spilled);
  reader.number("spilled_bytes_as_time", out.spilled_bytes_as_time, Least::above_zero);
}

// Which functions a class must describe: all that take and give its type.
bool belongs(Function function, OperandClass operands) {
  switch (function) {
    case Function::mod:
    case Function::logical_and:
    case Function::logical_or:
    case Function::logical_not:
      return operands == OperandClass::i32;
    case Function::exp:
    case Function::exp2:
    case Function::log:
    case Function::log2:
    case Function::sqrt:
    case Function::rsqrt:
    case Function::tanh:
    case Function::sigmoid:
    case Function::erf:
    case Function::floor:
    case Function::sin:
    case Function::cos:
      return operands != OperandClass::i32;
    default:
      return true;
  }
}

std::vector<Function> all_functions() {
  return {
#define FUNCTION(id, operands, symbol, result) Function::id,
#include "base/functions.def"
#undef FUNCTION
  };
}

void read_functions(TableReader& reader, Findings& findings, Device& out) {
  constexpr std::array<std::string_view, operand_class_count> names = {"f32", "f16", "bf16", "i32"};
  for (std::size_t c = 0; c < operand_class_count; ++c) {
    const std::string path = fmt::format("[functions.{}]", names[c]);
    out.functions[c].resize(all_functions().size());
    in_table(reader, findings, names[c], path, [&](TableReader& table) {
      for (const Function function : all_functions()) {
        if (!belongs(function, static_cast<OperandClass>(c))) continue;
        auto& demand = out.functions[c][static_cast<std::size_t>(function)].emplace();
        read_demand(table, findings, info(function).name, path, demand);
      }
    });
  }
}

// Conversions between the types that every kernel may use are required; others may be added.
void read_conversions(TableReader& reader, Findings& findings, Device& out) {
  const std::set<ScalarType> targets = {ScalarType::f32, ScalarType::f16, ScalarType::bf16, ScalarType::i32};
  std::set<ScalarType> sources = targets;
  sources.insert(ScalarType::boolean);
  for (int f = 0; f <= static_cast<int>(ScalarType::boolean); ++f) {
    const auto from = static_cast<ScalarType>(f);
    const bool needed = sources.contains(from);
    const toml::table* table = needed ? reader.table(name(from)) : reader.optional_table(name(from));
    if (table == nullptr) continue;
    const std::string path = fmt::format("[conversions.{}]", name(from));
    TableReader row(*table, path, findings);
    for (int t = 0; t <= static_cast<int>(ScalarType::boolean); ++t) {
      const auto to = static_cast<ScalarType>(t);
      const bool required = needed && targets.contains(to) && from != to;
      if (required || table->contains(name(to)))
        read_demand(row, findings, name(to), path, out.conversions[{from, to}]);
    }
    row.finish();
  }
}

void read_limits(TableReader& root, Findings& findings, Device& out) {
  in_table(root, findings, "latency", "[latency]", [&](TableReader& r) { read_latency(r, out.latency); });
  in_table(root, findings, "throughput", "[throughput]", [&](TableReader& r) { read_throughput(r, out.throughput); });
  in_table(root, findings, "iteration", "[iteration]", [&](TableReader& r) { read_iteration(r, out.iteration); });
  in_table(root, findings, "work_item", "[work_item]", [&](TableReader& r) { read_work_item(r, out.work_item); });
  in_table(root, findings, "barriers", "[barriers]", [&](TableReader& r) { read_barriers(r, out.barriers); });
  in_table(root, findings, "cluster", "[cluster]", [&](TableReader& r) { read_cluster(r, out.cluster); });
  in_table(root, findings, "bulk_copy", "[bulk_copy]", [&](TableReader& r) { read_bulk_copy(r, out.bulk_copy); });
  in_table(root, findings, "launch", "[launch]", [&](TableReader& r) {
    r.number("kernel_microseconds", out.launch.kernel_microseconds);
    r.number("block_cycles", out.launch.block_cycles);
    r.number("lone_block_cycles", out.launch.lone_block_cycles);
    r.number("next_work_cycles", out.launch.next_work_cycles);
  });
  in_table(root, findings, "assembler", "[assembler]", [&](TableReader& r) { read_assembler(r, out.assembler); });
  in_table(root, findings, "faults", "[faults]", [&](TableReader& r) { read_faults(r, out.faults); });
}

void read_units(TableReader& root, Findings& findings, Device& out) {
  std::set<std::string> names;
  in_tables(root, findings, "units", "[[units]]", [&](TableReader& r) {
    Unit& unit = out.units.emplace_back();
    read_unit(r, unit);
    if (!unit.name.empty() && !names.insert(unit.name).second) {
      r.complain("name", fmt::format("two units are named '{}'", unit.name));
    }
  });
  in_tables(root, findings, "mma", "[[mma]]", [&](TableReader& r) {
    MmaShape& shape = out.mma.emplace_back();
    read_then_check(
        findings, [&] { read_mma(r, shape); }, [&] { check_mma(r, shape, out.threads); });
  });
  in_table(root, findings, "resources", "[resources]", [&](TableReader& r) { read_resources(r, findings, out); });
  in_tables(root, findings, "interference", "[[interference]]", [&](TableReader& r) {
    Interference& entry = out.interference.emplace_back();
    read_choice(r, "source", entry.source, resource_names());
    read_choice(r, "target", entry.target, resource_names());
    r.number("cycles", entry.cycles);
  });
}

void read_device(const toml::table& file, Findings& findings, Device& out) {
  TableReader root(file, "", findings);
  root.text("name", out.name);
  root.text("description", out.description);
  root.text("architecture", out.architecture);
  root.integer("execution_units", out.execution_units, 1);
  in_table(root, findings, "clock", "[clock]", [&](TableReader& r) {
    r.number("burst_ghz", out.clock.burst_ghz, Least::above_zero);
    r.number("sustained_ghz", out.clock.sustained_ghz, Least::above_zero);
  });
  in_table(root, findings, "threads", "[threads]", [&](TableReader& r) {
    read_then_check(
        findings, [&] { read_threads(r, out.threads); }, [&] { check_threads(r, out.threads); });
  });
  in_table(root, findings, "registers", "[registers]", [&](TableReader& r) {
    read_then_check(
        findings, [&] { read_registers(r, findings, out.registers, out.threads); },
        [&] { check_registers(r, out.registers); });
  });
  in_table(root, findings, "memory", "[memory]", [&](TableReader& r) {
    read_then_check(
        findings, [&] { read_memory(r, out.memory); }, [&] { check_memory(r, out.memory); });
  });
  read_units(root, findings, out);
  read_limits(root, findings, out);
  in_table(root, findings, "functions", "[functions]", [&](TableReader& r) { read_functions(r, findings, out); });
  in_table(root, findings, "conversions", "[conversions]", [&](TableReader& r) { read_conversions(r, findings, out); });
  in_table(root, findings, "moves", "[moves]", [&](TableReader& r) {
    for (std::size_t i = 0; i < move_count; ++i)
      read_demand(r, findings, name(static_cast<Move>(i)), "[moves]", out.moves[i]);
  });
  root.finish();
}

std::uint64_t digest_of(std::string_view text) {  // FNV-1a
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

}  // namespace

Result<Device> parse_device(std::string_view text, const std::string& file) {
  Device device;
  device.file = file;
  device.digest = digest_of(text);
  Findings findings{file, {}};
  try {
    read_device(toml::parse(text, file), findings, device);
  } catch (const toml::parse_error& error) {
    return fail_at(file, {error.source().begin.line, error.source().begin.column}, std::string(error.description()),
                   "a device description is a TOML file");
  }
  if (!findings.diagnostics.empty()) {
    Error error;
    error.diagnostics = std::move(findings.diagnostics);
    std::stable_sort(error.diagnostics.begin(), error.diagnostics.end(),
                     [](const Diagnostic& a, const Diagnostic& b) { return a.span.line < b.span.line; });
    return tl::unexpected<Error>(std::move(error));
  }
  return device;
}

Result<Device> load_device(const std::filesystem::path& path) {
  std::error_code status;
  if (!std::filesystem::is_regular_file(path, status)) {
    return fail_at(path.string(), {}, "no such device description",
                   "give the path of a .toml file like those in devices/");
  }
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream) return fail_at(path.string(), {}, "the device description cannot be read");
  return parse_device(text.str(), path.string());
}

std::vector<std::string> known_devices(std::span<const std::filesystem::path> folders) {
  std::set<std::string> names;
  for (const std::filesystem::path& folder : folders) {
    std::error_code status;
    for (const auto& entry : std::filesystem::directory_iterator(folder, status)) {
      if (entry.is_regular_file(status) && entry.path().extension() == ".toml")
        names.insert(entry.path().stem().string());
    }
  }
  return {names.begin(), names.end()};
}

Result<Device> find_device(const std::string& name, std::span<const std::filesystem::path> folders) {
  if (name.ends_with(".toml")) return load_device(name);
  const bool plain = !name.empty() && name.find('/') == std::string::npos;
  for (const std::filesystem::path& folder : folders) {
    std::error_code status;
    const std::filesystem::path candidate = folder / (name + ".toml");
    if (plain && std::filesystem::is_regular_file(candidate, status)) return load_device(candidate);
  }
  std::vector<std::string> places;
  for (const std::filesystem::path& folder : folders) places.push_back(folder.string());
  const std::vector<std::string> known = known_devices(folders);
  return fail_at({}, {},
                 fmt::format("no device '{}': expected {}", name,
                             known.empty() ? std::string("the path of a .toml file")
                                           : fmt::format("one of {}", fmt::join(known, ", "))),
                 fmt::format("looked in {}; a path to a .toml file works too",
                             places.empty() ? "no folder" : fmt::format("{}", fmt::join(places, ", "))));
}

}  // namespace pipethreader::device
