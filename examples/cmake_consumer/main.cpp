// Links the installed library and asks it for a device: consumer DATA_FOLDER [NAME]
#include <cstdio>
#include <filesystem>
#include <string>

#include "device/device.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: consumer DATA_FOLDER [DEVICE]\n", stderr);
    return 2;
  }
  const std::filesystem::path folders[] = {std::filesystem::path(argv[1]) / "devices"};
  const auto device = pipethreader::device::find_device(argc > 2 ? argv[2] : "h100", folders);
  if (!device) {
    std::fprintf(stderr, "%s\n", device.error().format().c_str());
    return 1;
  }
  std::printf("%s: %d execution units, %s\n", device->description.c_str(), device->execution_units,
              device->architecture.c_str());
  return 0;
}
