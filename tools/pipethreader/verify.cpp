// Proves a kernel's pipeline, or a device program in its text form (hand-edited ones too); the interpreter replays what
// a rejection found.
#include "verify/verify.h"

#include "commands.h"
#include "interpret/interpret.h"
#include "runtime/atomic_file.h"

namespace pipethreader::tool {

namespace {

struct Options {
  KernelOptions kernel;
};

int rejected(const std::string& what, const verify::Rejection& rejection, const program::Program& program) {
  fmt::print(stderr, "{}\n", rejection.error.format());
  const verify::Witness& witness = rejection.witness;
  if (witness.fault != verify::Witness::Fault::none) {
    fmt::print(stderr, "  witness: {}: {}\n", verify::name(witness.fault), witness.explanation);
    for (const verify::Witness::Count& count : witness.counts) {
      fmt::print(stderr, "    where {} is {}{}\n", count.expression, count.value,
                 count.item >= 0 ? fmt::format(" in work item {}", count.item) : "");
    }
    const auto replay = interpret::run_with_decisions(program, witness.decisions_of_lane);
    fmt::print(stderr, "  replayed: {}\n",
               replay ? "the interpreter found no fault on this way" : replay.error().format());
  }
  fmt::print("{}: rejected\n", what);
  return Exit::failed;
}

int verify_program(const std::string& path, const std::string& text) {
  auto program = program::parse(text, path);
  if (!program) return report(program.error());
  if (auto valid = program::validate(*program); !valid) return report(valid.error());
  const auto verified = verify::verify(*program);
  if (!verified) return rejected(program->name, verified.error(), *program);
  fmt::print("{}: proved\n{}\n", program->name, verified->proof());
  return Exit::ok;
}

// A program's text begins with the word `program`, comments aside.
bool is_program(std::string_view text) {
  for (;;) {
    const std::size_t start = text.find_first_not_of(" \t\r\n");
    if (start == std::string_view::npos) return false;
    text.remove_prefix(start);
    if (!text.starts_with("//")) return text.starts_with("program ");
    const std::size_t line = text.find('\n');
    if (line == std::string_view::npos) return false;
    text.remove_prefix(line);
  }
}

int run(const Options& options, const driver::Environment& environment) {
  if (auto bytes = runtime::read_file(options.kernel.file)) {
    const std::string text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
    if (is_program(text)) return verify_program(options.kernel.file, text);
  }
  const auto request = options.kernel.request(environment);
  if (!request) return report(request.error());
  const auto compiled = driver::compile(*request, environment, progress());
  if (!compiled) return report(compiled.error());
  warn(compiled->warnings);
  // The plan's programs were proved when they were made; they are proved again here, from their text.
  std::vector<driver::Variant> all = compiled->plan.variants;
  all.insert(all.end(), compiled->plan.joins.begin(), compiled->plan.joins.end());
  for (const driver::Variant& variant : all) {
    const auto verified = verify::verify(variant.program);
    if (!verified) return rejected(compiled->plan.kernel, verified.error(), variant.program);
    fmt::print("{} for {}, {}: proved\n{}\n", variant.source.entry, compiled->plan.device,
               driver::specialisation(variant.program), verified->proof());
  }
  return Exit::ok;
}

}  // namespace

void add_verify(CLI::App& app, const driver::Environment& environment, Commands& commands) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "verify",
      "prove that a kernel's pipeline has no race and no deadlock at any trip count; also a device program's text");
  options->kernel.declare(*command);
  command->get_option("FILE")->description("a kernel file (.stask), or the text of a device program");
  commands[command] = [options, &environment] { return run(*options, environment); };
}

}  // namespace pipethreader::tool
