#include "commands.h"
#include "driver/report.h"

namespace pipethreader::tool {

namespace {

struct Options {
  KernelOptions kernel;
  std::string out = "out";
  bool print_json = false;
};

int run(const Options& options, const driver::Environment& environment) {
  const auto request = options.kernel.request(environment);
  if (!request) return report(request.error());
  const auto compiled = driver::compile(*request, environment, progress());
  if (!compiled) return report(compiled.error());
  end_progress();
  warn(compiled->warnings);
  const auto written = driver::write_outputs(*compiled, options.out);
  if (!written) return report(written.error());
  if (options.print_json) {
    fmt::print("{}", driver::report_json(*compiled));
    return Exit::ok;
  }
  fmt::print("{}", driver::report_text(*compiled));
  fmt::print("  {:<12}{}\n", "written", fmt::join(*written, ", "));
  return Exit::ok;
}

}  // namespace

void add_compile(CLI::App& app, const driver::Environment& environment, Commands& commands) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("compile", "compile a kernel: CUDA source, machine code and a report");
  options->kernel.declare(*command);
  command->add_option("--out", options->out, "folder for what is written; 'out' if not given")->type_name("DIR");
  command->add_flag("--source-only", options->kernel.source_only,
                    "stop at the CUDA source; needs no run-time compiler");
  command->add_flag("--json", options->print_json, "print the report as JSON");
  commands[command] = [options, &environment] { return run(*options, environment); };
}

}  // namespace pipethreader::tool
