#include <optional>

#include "commands.h"

namespace pipethreader::tool {

namespace {

struct Options {
  KernelOptions kernel;
  std::string stage;
};

// The text of a stage; nothing where it was not reached.
std::optional<std::string> text_of(const std::string& stage, const driver::Reached& made) {
  if (stage == "task" && made.graph) return task::print(*made.graph);
  if (stage == "partition" && made.partition) return partition::print(*made.graph, *made.partition);
  if (stage == "layout" && made.assignment) return partition::print(*made.graph, *made.partition, *made.assignment);
  if (stage == "schedule" && made.schedule) return schedule::print(*made.graph, *made.schedule);
  if (stage == "program" && made.program) return program::print(*made.program);
  return std::nullopt;
}

int run(const Options& options, const driver::Environment& environment) {
  const auto request = options.kernel.request(environment);
  if (!request) return report(request.error());
  if (options.stage == "kernel") {
    const auto kernel = kernel::specialise(request->kernel, request->dims, request->options);
    if (!kernel) return report(kernel.error());
    fmt::print("{}", kernel::print(*kernel));
    return Exit::ok;
  }
  std::optional<driver::Reached> reached;
  auto staged = driver::compile_stages(*request, {}, &reached);
  if (staged && options.stage == "cuda") {
    fmt::print("{}", staged->printed.source.text);
    return Exit::ok;
  }
  if (staged) {
    driver::Lowered& l = staged->lowered;
    reached = driver::Reached{std::move(l.graph),    std::move(l.partition), std::move(l.assignment),
                              std::move(l.schedule), std::move(l.program),   std::nullopt};
  }
  const auto text = reached ? text_of(options.stage, *reached) : std::nullopt;
  if (!text) return report(staged.error());
  fmt::print("{}", *text);
  if (!staged) fmt::print(stderr, "note: a later stage fails: {}\n", staged.error().format());
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
