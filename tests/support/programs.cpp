#include "support/programs.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace pipethreader::test {
namespace {

// Beside this file, wherever the tests run.
std::filesystem::path folder() { return PIPETHREADER_SOURCE_DIR "/tests/support/programs"; }

}  // namespace

std::vector<std::string> example_programs() {
  std::vector<std::string> stems;
  for (const auto& entry : std::filesystem::directory_iterator(folder()))
    if (entry.path().extension() == ".program") stems.push_back(entry.path().stem().string());
  std::ranges::sort(stems);
  return stems;
}

std::string example_text(const std::string& stem) {
  std::ifstream file(folder() / (stem + ".program"), std::ios::binary);
  if (!file) throw std::runtime_error("no example program " + stem);
  return {std::istreambuf_iterator<char>(file), {}};
}

program::Program example_program(const std::string& stem) {
  auto parsed = program::parse(example_text(stem), stem + ".program");
  if (!parsed) throw std::runtime_error(parsed.error().format());
  if (const auto valid = program::validate(*parsed); !valid) throw std::runtime_error(valid.error().format());
  return *std::move(parsed);
}

}  // namespace pipethreader::test
