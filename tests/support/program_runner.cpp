#include "support/program_runner.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <sys/wait.h>

namespace pipethreader::support {

namespace {

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'') {
      result += "'\\''";
    } else {
      result += c;
    }
  }
  return result + "'";
}

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace

ProgramRunner::ProgramRunner(std::string program) : program_(std::move(program)) {
  std::string name = (std::filesystem::temp_directory_path() / "pipethreader-cli-XXXXXX").string();
  folder_ = mkdtemp(name.data());
  set("PIPETHREADER_CACHE", folder_ + "/cache");
}

ProgramRunner::~ProgramRunner() {
  std::error_code error;
  std::filesystem::remove_all(folder_, error);
}

void ProgramRunner::set(const std::string& name, const std::string& value) {
  environment_ += name + "=" + quoted(value) + " ";
}

std::string ProgramRunner::path(const std::string& name) const { return folder_ + "/" + name; }

std::string ProgramRunner::file(const std::string& name, const std::string& text) const {
  std::ofstream out(path(name), std::ios::binary);
  out << text;
  return path(name);
}

Outcome ProgramRunner::operator()(const std::vector<std::string>& arguments) const {
  std::string command = "cd " + quoted(folder_) + " && env " + environment_ + quoted(program_);
  for (const std::string& argument : arguments) command += " " + quoted(argument);
  command += " >" + quoted(path("stdout")) + " 2>" + quoted(path("stderr")) + " </dev/null";
  const int status = std::system(command.c_str());  // NOLINT: the command is ours
  Outcome outcome;
  if (WIFEXITED(status)) outcome.status = WEXITSTATUS(status);
  outcome.out = text_of(path("stdout"));
  outcome.err = text_of(path("stderr"));
  return outcome;
}

}  // namespace pipethreader::support
