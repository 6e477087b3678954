#include "commands.h"
#include "driver/report.h"

namespace pipethreader::tool {

namespace {

struct Options {
  KernelOptions kernel;
  std::string out = "out";
  bool source_only = false;
  bool print_json = false;
};

// The schedule is the same with and without: where there is a run-time compiler, it is chosen by its machine code.
void keep_source_only(driver::Plan& plan) {
  const bool judged = plan.assembled();
  for (auto* launches : {&plan.variants, &plan.joins}) {
    for (driver::Variant& variant : *launches) variant.cubin.clear();
  }
  plan.no_machine_code = "source only, as asked";
  if (!judged)
    plan.no_machine_code += "; no run-time compiler was found, so the schedule was chosen without its machine code";
}

int run(const Options& options, const driver::Environment& environment) {
  const auto request = options.kernel.request(environment);
  if (!request) return report(request.error());
  auto compiled = driver::compile(*request, environment, progress());
  if (!compiled) return report(compiled.error());
  end_progress();
  warn(compiled->warnings);
  if (options.source_only) keep_source_only(compiled->plan);
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
  command->add_option("--out", options->out, "folder for what is written; 'out' if not given")
      ->check(not_empty())
      ->type_name("DIR");
  command->add_flag("--source-only", options->source_only,
                    "leave out the machine code; needs no run-time compiler, but chooses with one where there is one");
  command->add_flag("--json", options->print_json, "print the report as JSON");
  commands[command] = [options, &environment] { return run(*options, environment); };
}

}  // namespace pipethreader::tool
