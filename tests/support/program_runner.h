// Runs the built program the way a user does: a command line in, exit status and both outputs back. Each runner has a
// cache folder of its own.
#pragma once

#include <string>
#include <vector>

namespace pipethreader::support {

struct Outcome {
  int status = -1;  // -1: ended by a signal
  std::string out;
  std::string err;
};

class ProgramRunner {
 public:
  explicit ProgramRunner(std::string program);
  ~ProgramRunner();
  ProgramRunner(const ProgramRunner&) = delete;
  ProgramRunner& operator=(const ProgramRunner&) = delete;

  // Arguments are quoted; `file` below makes paths for them.
  [[nodiscard]] Outcome operator()(const std::vector<std::string>& arguments) const;
  // A path in the runner's folder; with a text, the file is written.
  [[nodiscard]] std::string path(const std::string& name) const;
  [[nodiscard]] std::string file(const std::string& name, const std::string& text) const;
  [[nodiscard]] const std::string& folder() const { return folder_; }
  // Set in the program's environment.
  void set(const std::string& name, const std::string& value);

 private:
  std::string program_;
  std::string folder_;
  std::string environment_;
};

}  // namespace pipethreader::support
