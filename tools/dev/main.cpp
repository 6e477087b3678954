#include <chrono>
#include <fstream>
#include <iostream>
#include <sstream>

#include "driver/pipeline.h"
#include "interpret/interpret.h"
#include "oracle/oracle.h"
#include "search/search.h"
#include "runtime/driver.h"
#include "runtime/host_array.h"
#include "runtime/nvrtc.h"

using namespace pipethreader;

int main(int argc, char** argv) {
  std::string file = argv[1];
  std::vector<kernel::Binding> dims, options;
  driver::Choices choices;
  std::string what = "run";
  std::vector<std::pair<std::string, double>> dyn;
  bool dynamic = false, automatic = false; std::size_t pick = 0;
  for (int i = 2; i < argc; ++i) {
    std::string a = argv[i];
    const auto eq = a.find('=');
    std::string n = a.substr(0, eq), v = eq == std::string::npos ? "" : a.substr(eq + 1);
    if (n == "what") what = v;
    else if (n == "row") choices.partition.row = std::stoi(v);
    else if (n == "col") choices.partition.column = std::stoi(v);
    else if (n == "stream") choices.partition.stream = std::stoi(v);
    else if (n == "lanes") choices.partition.lanes = std::stoi(v);
    else if (n == "order") choices.partition.order = static_cast<partition::Order>(std::stoi(v));
    else if (n == "raster") choices.partition.raster = std::stoi(v);
    else if (n == "depth") choices.schedule.depth = std::stoi(v);
    else if (n == "overlap") choices.schedule.overlap = static_cast<schedule::Overlap>(std::stoi(v));
    else if (n == "cluster") choices.partition.cluster = std::stoi(v);
    else if (n == "turns") choices.schedule.turns = v == "1";
    else if (n == "staged") choices.schedule.staged_stores = v == "1";
    else if (n == "bulk") choices.bulk = v == "1";
    else if (n == "auto") { automatic = true; if (!v.empty()) pick = std::stoul(v); }
    else if (n == "dynamic") dynamic = true;
    else if (n[0] == '-') options.push_back({n.substr(1), std::stod(v)});
    else dims.push_back({n, std::stod(v)});
  }
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  auto kernels = kernel::parse(text.str(), file);
  if (!kernels) { std::cerr << kernels.error().format() << "\n"; return 1; }
  auto checked = kernel::check((*kernels)[0]);
  if (!checked) { std::cerr << checked.error().format() << "\n"; return 1; }
  auto full = kernel::specialise(*checked, dims, options);
  if (!full) { std::cerr << full.error().format() << "\n"; return 1; }
  auto special = dynamic ? kernel::specialise(*checked, {}, options) : full;
  if (!special) { std::cerr << special.error().format() << "\n"; return 1; }
  auto device = device::load_device("devices/h200.toml");
  if (!device) { std::cerr << device.error().format() << "\n"; return 1; }
  if (what == "rank" || automatic) {
    auto start = std::chrono::steady_clock::now();
    auto ranked = search::rank(*special, *device);
    if (!ranked) { std::cerr << ranked.error().format() << "\n"; return 1; }
    std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - start;
    if (what == "rank") std::cout << ranked->size() << " candidates in " << spent.count() << " ms\n";
    for (std::size_t i = 0; i < ranked->size() && i < (what == "rank" ? 400u : 1u); ++i) {
      auto& c = (*ranked)[i];
      std::cout << fmt::format("{:.1f} us row {} col {} stream {} lanes {} order {} overlap {} depth {} regs {} shared {} bound {}\n", c.predicted_us, c.partition.row, c.partition.column, c.partition.stream, c.partition.lanes, int(c.partition.order), int(c.schedule.overlap), c.schedule.depth, c.registers, c.shared_bytes, c.bound);
    }
    if (what == "rank") return 0;
    choices.partition = ranked->at(pick).partition; choices.schedule = ranked->at(pick).schedule;
  }
  std::vector<driver::StageTime> times;
  auto lowered = driver::lower_kernel(*special, *device, choices, &times);
  if (!lowered) { std::cerr << lowered.error().format() << "\n"; return 1; }
  if (what == "task") { std::cout << task::print(lowered->graph); return 0; }
  if (what == "partition") { std::cout << partition::print(lowered->graph, lowered->partition); return 0; }
  if (what == "layout") { std::cout << partition::print(lowered->graph, lowered->partition, lowered->assignment); return 0; }
  if (what == "schedule") { std::cout << schedule::print(lowered->graph, lowered->schedule); return 0; }
  if (what == "program") { std::cout << program::print(lowered->program); return 0; }
  if (what == "verify" || what == "cuda") {
    auto printed = driver::prove_and_print(lowered->program, &times);
    if (!printed) { std::cerr << printed.error().format() << "\n"; return 1; }
    if (what == "cuda") std::cout << printed->source.text;
    for (auto& t : times) std::cerr << t.stage << " " << t.milliseconds << " ms\n";
    return 0;
  }

  if (what == "gpu" || what == "time") {
    auto start = std::chrono::steady_clock::now();
    struct P { emit::CudaSource source; struct V { program::Program p; const program::Program& program() const { return p; } } verified; };
    auto src = emit::emit_unproved(lowered->program);
    if (!src) { std::cerr << src.error().format() << "\n"; return 1; }
    std::optional<P> printed = P{*src, {lowered->program}};
    auto nvrtc = runtime::Nvrtc::open();
    if (!nvrtc) { std::cerr << nvrtc.error().format() << "\n"; return 1; }
    runtime::CompileRequest req; req.source = printed->source.text;
    auto compiled = nvrtc->compile(req);
    if (!compiled) { std::cerr << compiled.error().format() << "\n"; return 1; }
    auto& rep = compiled->report;
    std::cout << "regs " << rep.registers << " spills " << rep.spill_store_bytes << " serialised " << rep.serialised << " shared " << lowered->program.shared_bytes << std::endl;
    if (getenv("PTDEV_NOGPU")) return 0;
    auto gpu = runtime::Gpu::open(0);
    if (!gpu) { std::cerr << gpu.error().format() << "\n"; return 1; }
    auto module = gpu->load(compiled->cubin);
    if (!module) { std::cerr << module.error().format() << "\n"; return 1; }
    auto fn = module->function(printed->source.entry);
    if (!fn) { std::cerr << fn.error().format() << "\n"; return 1; }
    const auto& prog = printed->verified.program();
    std::vector<double> params;
    std::vector<std::int64_t> sizes;
    for (auto& d : full->dims) sizes.push_back(*d.size);
    auto inputs = oracle::random_inputs(*full, sizes, 1);
    for (auto& p : prog.params) {
      double value = 0;
      for (std::size_t i = 0; i < full->dims.size(); ++i) if (full->dims[i].name == p.name) value = double(sizes[i]);
      for (std::size_t i = 0; i < full->scalars.size(); ++i) if (full->scalars[i].name == p.name) value = inputs->scalars[i];
      params.push_back(value);
    }
    std::vector<runtime::DeviceBuffer> buffers;
    for (std::size_t t = 0; t < full->tensors.size(); ++t) {
      std::size_t n = 1; for (auto s : oracle::shape_of(*full, kernel::TensorId(t), sizes)) n *= std::size_t(s);
      if (full->tensors[t].output) { buffers.push_back(std::move(*gpu->allocate(runtime::packed_bytes(full->tensors[t].type, n)))); (void)buffers.back().fill(0xff); }
      else { auto bytes = runtime::pack(full->tensors[t].type, inputs->tensors[t].values); buffers.push_back(std::move(*gpu->upload(bytes))); }
    }
    auto counter = gpu->allocate(64); (void)counter->fill(0);
    runtime::KernelArguments args;
    for (auto& a : printed->source.arguments) {
      if (a.kind == emit::Argument::Kind::tensor) args.add(buffers[a.index]);
      else if (a.kind == emit::Argument::Kind::param) { if (is_floating(a.type)) args.add(float(params[a.index])); else args.add(std::int32_t(params[a.index])); }
      else if (a.kind == emit::Argument::Kind::counter) args.add(*counter);
      else {
        auto& map = prog.maps[a.index];
        runtime::TensorMapDescription d;
        d.type = prog[map.tensor].type; d.base = buffers[map.tensor.index].address();
        std::size_t eb = bits(d.type) / 8;
        for (std::size_t k = 0; k < map.dims.size(); ++k) {
          d.sizes.push_back(std::uint64_t(program::evaluate(prog, map.dims[k].extent, params)));
          if (k) d.byte_strides.push_back(std::uint64_t(program::evaluate(prog, map.dims[k].stride, params)) * eb);
        }
        for (int b : a.box) d.box.push_back(unsigned(b));
        for (int s : a.steps) d.element_strides.push_back(unsigned(s));
        d.swizzle = static_cast<runtime::TensorSwizzle>(map.swizzle);
        auto tm = gpu->encode(d);
        if (!tm) { std::cerr << tm.error().format() << "\n"; return 1; }
        args.add(*tm);
      }
    }
    runtime::LaunchConfig cfg;
    cfg.grid.x = unsigned(printed->source.launch.grid(prog, params, gpu->properties().sm_count));
    cfg.block.x = unsigned(printed->source.launch.threads);
    cfg.cluster.x = unsigned(printed->source.launch.cluster);
    cfg.dynamic_shared_bytes = std::size_t(printed->source.launch.shared_bytes);
    if (what == "time") {
      auto m = gpu->measure({}, [&](const runtime::Stream& s) { return gpu->launch(*fn, cfg, args, s); });
      if (!m) { std::cerr << m.error().format() << "\n"; return 1; }
      double flops = 0; if (getenv("FLOPS")) flops = atof(getenv("FLOPS"));
      std::cout << "median " << m->median_ms << " ms " << flops / m->median_ms / 1e9 << " TFLOP/s" << std::endl;
      return 0;
    }
    auto stream = gpu->create_stream();
    auto launched = gpu->launch(*fn, cfg, args, *stream);
    if (!launched) { std::cerr << launched.error().format() << "\n"; return 1; }
    auto done = stream->synchronize();
    if (!done) { std::cerr << done.error().format() << "\n"; return 1; }
    auto expected = oracle::evaluate(*full, *inputs, oracle::Partition::fixed(64));
    std::vector<std::vector<double>> actual;
    for (std::size_t t = 0; t < full->tensors.size(); ++t) if (full->tensors[t].output) {
      std::vector<std::byte> host(buffers[t].bytes());
      (void)buffers[t].download(host);
      std::size_t n = 1; for (auto s : oracle::shape_of(*full, kernel::TensorId(t), sizes)) n *= std::size_t(s);
      actual.push_back(runtime::unpack(full->tensors[t].type, host, n));
    }
    auto report = oracle::compare(*expected, actual);
    if (!report) { std::cerr << report.error().format() << "\n"; return 1; }
    std::cout << "GPU " << report->format() << std::endl;
    return report->ok() ? 0 : 1;
  }
  std::vector<std::int64_t> sizes;
  for (auto& d : full->dims) sizes.push_back(*d.size);
  auto inputs = oracle::random_inputs(*full, sizes, 1);
  if (!inputs) { std::cerr << inputs.error().format() << "\n"; return 1; }
  interpret::Arguments args;
  for (auto& p : lowered->program.params) {
    double value = 0;
    for (std::size_t i = 0; i < full->dims.size(); ++i) if (full->dims[i].name == p.name) value = static_cast<double>(sizes[i]);
    for (std::size_t i = 0; i < full->scalars.size(); ++i) if (full->scalars[i].name == p.name) value = inputs->scalars[i];
    args.params.push_back(value);
  }
  for (std::size_t t = 0; t < full->tensors.size(); ++t) args.tensors.push_back(full->tensors[t].output ? std::vector<double>{} : inputs->tensors[t].values);
  auto ran = interpret::run(lowered->program, args);
  if (!ran) { std::cerr << ran.error().format() << "\n"; return 1; }
  auto expected = oracle::evaluate(*full, *inputs, oracle::Partition::fixed(64));
  if (!expected) { std::cerr << expected.error().format() << "\n"; return 1; }
  std::vector<std::vector<double>> actual;
  for (std::size_t t = 0; t < full->tensors.size(); ++t) if (full->tensors[t].output) actual.push_back(args.tensors[t]);
  auto report = oracle::compare(*expected, actual);
  if (!report) { std::cerr << report.error().format() << "\n"; return 1; }
  std::cout << report->format() << " " << (lowered->program.generic_reason.empty() ? "specialised" : "generic: " + lowered->program.generic_reason) << "\n";
  return report->ok() ? 0 : 1;
}
