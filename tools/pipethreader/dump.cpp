#include <array>

#include "commands.h"

namespace pipethreader::tool {

namespace {

struct Options {
  KernelOptions kernel;
  std::string stage;
};

int run(const Options& options, const driver::Environment& environment) {
  const auto request = options.kernel.request(environment);
  if (!request) return report(request.error());
  if (options.stage == "kernel") {
    const auto kernel = kernel::specialise(request->kernel, request->dims, request->options);
    if (!kernel) return report(kernel.error());
    fmt::print("{}", kernel::print(*kernel));
    return Exit::ok;
  }
  const auto staged = driver::compile_stages(*request);
  if (!staged) return report(staged.error());
  const driver::Lowered& l = staged->lowered;
  if (options.stage == "task") fmt::print("{}", task::print(l.graph));
  if (options.stage == "partition") fmt::print("{}", partition::print(l.graph, l.partition));
  if (options.stage == "layout") fmt::print("{}", partition::print(l.graph, l.partition, l.assignment));
  if (options.stage == "schedule") fmt::print("{}", schedule::print(l.graph, l.schedule));
  if (options.stage == "program") fmt::print("{}", program::print(l.program));
  if (options.stage == "cuda") fmt::print("{}", staged->printed.source.text);
  return Exit::ok;
}

}  // namespace

void add_dump(CLI::App& app, const driver::Environment& environment, Commands& commands) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("dump", "print the text form of one stage, for the choices ranked first");
  options->kernel.declare(*command, false);
  command->add_option("--stage", options->stage, "kernel, task, partition, layout, schedule, program or cuda")
      ->required()
      ->check(CLI::IsMember({"kernel", "task", "partition", "layout", "schedule", "program", "cuda"}));
  commands[command] = [options, &environment] { return run(*options, environment); };
}

}  // namespace pipethreader::tool
