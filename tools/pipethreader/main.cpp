// The program: reads the command line, runs one command, and turns every outcome into an exit status.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <string_view>

#include "commands.h"

namespace pipethreader::tool {
namespace {

driver::Environment environment() {
  const std::filesystem::path program = driver::running_program();
  std::vector<std::filesystem::path> data;
  if (!program.empty()) data.push_back(program.parent_path() / PIPETHREADER_INSTALLED_DATA);
  data.emplace_back(PIPETHREADER_SOURCE_DATA);
  return driver::read_environment(program, std::move(data));
}

constexpr const char* footer = R"(
Exit status: 0 done; 1 an error, which stderr explains; 2 a wrong command line; 3 the kernel ran and its numbers are
wrong; 70 a fault of pipethreader itself.
Environment: PIPETHREADER_CACHE (directory of the cache; empty: none), PIPETHREADER_DATA (folder with devices/,
kernels/ or bench/), PIPETHREADER_NVRTC (the CUDA run-time compiler), CUDA_HOME, CUDA_PATH, VIRTUAL_ENV (where that may
lie), XDG_CACHE_HOME.)";

// A word that stands where a command must and is none: it is named, not only missed.
std::optional<std::string> unknown_command(const CLI::App& app, int argc, char** argv) {
  const CLI::App* at = &app;
  std::string commands = "pipethreader";
  for (int i = 1; i < argc && at->get_require_subcommand_min() > 0; ++i) {
    const std::string word = argv[i];
    if (word.starts_with('-')) return std::nullopt;
    const auto known = at->get_subcommands([](const CLI::App*) { return true; });
    const auto found =
        std::find_if(known.begin(), known.end(), [&](const CLI::App* c) { return c->get_name() == word; });
    if (found == known.end()) return fmt::format("there is no command '{}'; `{} --help` lists them", word, commands);
    at = *found;
    commands += " " + word;
  }
  return std::nullopt;
}

bool given(int argc, char** argv, const std::string& option) {
  return std::any_of(argv, argv + argc,
                     [&](std::string_view word) { return word == option || word.starts_with(option + "="); });
}

int run(int argc, char** argv) {
  const driver::Environment surroundings = environment();
  CLI::App app{"PipeThreader compiles kernels in index notation to software-pipelined kernels for Hopper GPUs."};
  app.footer(footer);
  app.require_subcommand(1);
  app.set_version_flag("--version", PIPETHREADER_VERSION);
  Commands commands;
  add_compile(app, surroundings, commands);
  add_run(app, surroundings, commands);
  add_explain(app, surroundings, commands);
  add_verify(app, surroundings, commands);
  add_tune(app, surroundings, commands);
  add_bench(app, surroundings, commands);
  add_devices(app, surroundings, commands);
  add_cache(app, surroundings, commands);
  add_dump(app, surroundings, commands);
  if (const auto mistake = unknown_command(app, argc, argv)) {
    fmt::print(stderr, "{}\n", *mistake);
    return Exit::misused;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int status = app.exit(error);
    if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && given(argc, argv, "--size"))
      fmt::print(stderr, "  hint: --size is of `run`, `bench` and `tune`; here, --dim fixes a dim\n");
    return status == 0 ? Exit::ok : Exit::misused;
  }
  for (const CLI::App* command : app.get_subcommands()) {
    while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
    const auto found = commands.find(command);
    if (found != commands.end()) return found->second();
  }
  return Exit::misused;
}

}  // namespace
}  // namespace pipethreader::tool

int main(int argc, char** argv) {
  using namespace pipethreader::tool;
  try {
    const int status = run(argc, argv);
    if (std::fflush(stdout) != 0) {
      std::perror("pipethreader: cannot write to standard output");
      return status == Exit::ok ? Exit::failed : status;
    }
    return status;
  } catch (const UsageError& error) {
    end_progress();
    fmt::print(stderr, "{}\nRun with --help for more information.\n", error.message);
    return Exit::misused;
  } catch (const std::bad_alloc&) {
    end_progress();
    fmt::print(stderr, "error: out of memory\n  hint: choose smaller sizes, or run where there is more\n");
    return Exit::failed;
  } catch (const std::exception& error) {
    end_progress();
    fmt::print(stderr,
               "internal error: {}\n  hint: this is a fault of pipethreader; please report it with the command and the "
               "kernel\n",
               error.what());
    return Exit::broken;
  }
}
