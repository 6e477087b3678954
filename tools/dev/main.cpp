#include <chrono>
#include <fstream>
#include <iostream>
#include <sstream>

#include "driver/pipeline.h"
#include "interpret/interpret.h"
#include "oracle/oracle.h"

using namespace pipethreader;

int main(int argc, char** argv) {
  std::string file = argv[1];
  std::vector<kernel::Binding> dims, options;
  driver::Choices choices;
  std::string what = "run";
  std::vector<std::pair<std::string, double>> dyn;
  bool dynamic = false;
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
    else if (n == "bulk") choices.bulk = v == "1";
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
