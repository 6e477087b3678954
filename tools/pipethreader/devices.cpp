#include "commands.h"
#include "driver/run.h"

namespace pipethreader::tool {

namespace {

int list(const driver::Environment& environment) {
  const auto folders = environment.device_folders();
  const auto names = device::known_devices(folders);
  if (names.empty()) {
    std::vector<std::string> looked;
    for (const auto& folder : folders) looked.push_back(folder.string());
    return report(Error(
        Diagnostic{{}, {}, "no device descriptions were found", fmt::format("looked in {}", fmt::join(looked, ", "))}));
  }
  for (const std::string& name : names) {
    const auto found = device::find_device(name, folders);
    if (!found) return report(found.error());
    fmt::print("{:<8}{}: {} execution units, {}, {} bytes of shared memory a block\n", name, found->description,
               found->execution_units, found->architecture, found->memory.shared_bytes_per_block);
  }
  return Exit::ok;
}

// What this machine offers; fails when it has no card that compiled kernels run on.
int card() {
  const auto gpu = driver::open_gpu();
  if (!gpu) return report(gpu.error());
  const runtime::GpuProperties& p = gpu->properties();
  fmt::print("{}: compute capability {}.{}, {} execution units, {:.0f} MHz, {:.1f} GB, driver for CUDA {}.{}\n", p.name,
             p.compute_major, p.compute_minor, p.sm_count, p.peak_clock_mhz, static_cast<double>(p.memory_bytes) / 1e9,
             p.driver_version / 1000, p.driver_version % 1000 / 10);
  return Exit::ok;
}

int compiler(const driver::Environment& environment) {
  const auto found = runtime::locate_nvrtc(environment.nvrtc);
  if (!found) {
    fmt::print("run-time compiler: none\n{}\n", found.error().format());
  } else {
    fmt::print("run-time compiler: {}\n", found->path);
  }
  return Exit::ok;
}

}  // namespace

void add_devices(CLI::App& app, const driver::Environment& environment, Commands& commands) {
  auto only_card = std::make_shared<bool>(false);
  CLI::App* command =
      app.add_subcommand("devices", "list the devices that can be compiled for, and what this machine has");
  command->add_flag("--gpu", *only_card, "only this machine's card; fails when there is none that kernels run on");
  commands[command] = [only_card, &environment] {
    if (*only_card) return card();
    if (const int status = list(environment); status != Exit::ok) return status;
    const auto gpu = driver::open_gpu();
    if (gpu) {
      card();
    } else {
      fmt::print("this machine: {}\n",
                 gpu.error().diagnostics.empty() ? "no card" : gpu.error().diagnostics[0].message);
    }
    return compiler(environment);
  };
}

}  // namespace pipethreader::tool
