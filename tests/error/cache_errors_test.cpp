// The program and its cache under what happens to them: killed at any moment, two at once, damaged entries, a place
// that cannot be written. Afterwards the cache works, and a compilation gives what it gives without a cache.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <thread>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/program_runner.h"

namespace pipethreader {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class CacheErrors : public ::testing::Test {
 protected:
  void SetUp() override {
    program_.set("PIPETHREADER_CACHE", cache_);
    const auto whole = program_(compile("whole", {"--no-cache"}));
    ASSERT_EQ(whole.status, 0) << whole.err;
    ASSERT_FALSE(fs::exists(cache_));
  }

  // A small kernel, so that a run takes a moment only.
  [[nodiscard]] std::vector<std::string> compile(const std::string& out, std::vector<std::string> more = {}) const {
    std::vector<std::string> command = {
        "compile",         std::string(PIPETHREADER_SOURCE_DIR) + "/kernels/rms_norm.stask",
        "--dim",           "M=8",
        "--dim",           "N=64",
        "--json",          "--out",
        program_.path(out)};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }

  // A program of its own, for us to end or to wait for.
  [[nodiscard]] pid_t start(const std::string& out) const {
    const std::vector<std::string> arguments = compile(out);
    const pid_t child = fork();
    if (child != 0) return child;
    const int nowhere = open("/dev/null", O_RDWR);  // NOLINT: its flags take no mode
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
    setenv("PIPETHREADER_CACHE", cache_.c_str(), 1);
    std::vector<char*> words = {const_cast<char*>(PIPETHREADER_PROGRAM)};
    for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
    words.push_back(nullptr);
    execv(PIPETHREADER_PROGRAM, words.data());
    _exit(127);
  }

  static int wait_for(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  // Compiles with the cache as it is; what is written is what a run without a cache writes.
  bool expect_right(bool* cached = nullptr) {
    const auto again = program_(compile("again"));
    EXPECT_EQ(again.status, 0) << again.err;
    EXPECT_THAT(again.err, Not(HasSubstr("internal error")));
    if (again.status != 0) return false;
    for (const char* name : {"rms_norm.cu", "rms_norm.program", "rms_norm.cubin"})
      EXPECT_TRUE(text_of(program_.path("again/") + name) == text_of(program_.path("whole/") + name)) << name;
    const bool from_cache = nlohmann::json::parse(again.out).at("from_cache").get<bool>();
    if (cached != nullptr) *cached = from_cache;
    return true;
  }

  // The cache has recovered: the next answer comes from it.
  void expect_cached() {
    bool cached = false;
    EXPECT_TRUE(expect_right() && expect_right(&cached) && cached);
  }

  [[nodiscard]] std::vector<fs::path> entries() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(cache_ + "/entries")) found.push_back(entry.path());
    return found;
  }

  support::ProgramRunner program_{PIPETHREADER_PROGRAM};
  const std::string cache_ = program_.path("the cache");
};

TEST_F(CacheErrors, KilledAtRandomMoments) {
  using clock = std::chrono::steady_clock;
  const auto begin = clock::now();
  ASSERT_EQ(wait_for(start("timed")), 0);
  const auto whole = std::chrono::duration_cast<std::chrono::microseconds>(clock::now() - begin).count();
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 25; ++round) {
    if (round % 5 == 0) fs::remove_all(cache_);
    const pid_t child = start("killed");
    std::this_thread::sleep_for(std::chrono::microseconds(random() % static_cast<std::uint64_t>(whole + whole / 4)));
    kill(child, SIGKILL);
    const int status = wait_for(child);
    EXPECT_TRUE(status == -SIGKILL || status == 0) << status;
    if (round % 5 == 4) expect_cached();
  }
  EXPECT_EQ(program_({"cache", "list"}).status, 0);
}

TEST_F(CacheErrors, TwoAtOnce) {
  for (int round = 0; round < 5; ++round) {
    fs::remove_all(cache_);
    const pid_t one = start("one"), other = start("other");
    EXPECT_EQ(wait_for(one), 0);
    EXPECT_EQ(wait_for(other), 0);
    for (const char* out : {"one/", "other/"}) {
      for (const char* name : {"rms_norm.cu", "rms_norm.cubin"})
        EXPECT_TRUE(text_of(program_.path(out) + name) == text_of(program_.path("whole/") + name)) << out << name;
    }
    bool cached = false;
    EXPECT_TRUE(expect_right(&cached) && cached);
  }
}

TEST_F(CacheErrors, DamagedEntriesAreCompiledAgain) {
  using Damage = std::function<void(const fs::path&)>;
  const std::pair<const char*, Damage> kinds[] = {
      {"empty", [](const fs::path& p) { fs::resize_file(p, 0); }},
      {"half", [](const fs::path& p) { fs::resize_file(p, fs::file_size(p) / 2); }},
      {"a byte short", [](const fs::path& p) { fs::resize_file(p, fs::file_size(p) - 1); }},
      {"a byte long", [](const fs::path& p) { fs::resize_file(p, fs::file_size(p) + 1); }},
      {"one byte changed",
       [](const fs::path& p) {
         std::string text = text_of(p);
         text[text.size() / 3] = static_cast<char>(text[text.size() / 3] ^ 1);
         std::ofstream(p, std::ios::binary) << text;
       }},
      {"noise", [](const fs::path& p) { std::ofstream(p, std::ios::binary) << std::string(1000, '\xff'); }},
  };
  for (const auto& [name, damage] : kinds) {
    SCOPED_TRACE(name);
    expect_cached();
    ASSERT_FALSE(entries().empty());
    for (const fs::path& entry : entries()) damage(entry);
    EXPECT_EQ(program_({"cache", "list"}).status, 0);
    bool cached = true;
    EXPECT_TRUE(expect_right(&cached) && !cached);
    expect_cached();
  }
}

TEST_F(CacheErrors, AFolderInAnEntrysPlaceIsAWarning) {
  expect_cached();
  for (const fs::path& entry : entries()) {
    fs::remove(entry);
    fs::create_directories(entry / "in the way");
  }
  EXPECT_TRUE(expect_right());
  EXPECT_THAT(program_(compile("again")).err, HasSubstr("warning: "));
}

TEST_F(CacheErrors, APlaceThatCannotBeWrittenIsAWarning) {
  for (const std::string& place : {std::string("/proc/nowhere"), program_.file("file", "x")}) {
    program_.set("PIPETHREADER_CACHE", place);
    const auto outcome = program_(compile("again"));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("warning: "));
    EXPECT_THAT(outcome.err, HasSubstr("choose another cache directory"));
    EXPECT_TRUE(expect_right());
  }
}

}  // namespace
}  // namespace pipethreader
