// The cache under every fault that a disk and other processes can bring: it answers right or not at all.
#include "runtime/kernel_cache.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>

#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pipethreader::runtime {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

CompiledKernel kernel_of(int seed, std::size_t cubin_bytes) {
  CompiledKernel kernel;
  std::mt19937 random(static_cast<unsigned>(seed));
  for (std::size_t i = 0; i < cubin_bytes; ++i) kernel.cubin.push_back(static_cast<std::byte>(random()));
  kernel.log = "a log with \"quotes\" and\nlines \xc3\xa9";
  kernel.seconds = 0.25;
  kernel.report.registers = 168;
  kernel.report.spill_store_bytes = 8;
  kernel.report.spill_load_bytes = 4;
  kernel.report.stack_bytes = 16;
  kernel.report.injected_waits = true;
  kernel.report.messages = {"one", "two"};
  kernel.report.functions = {{"kernel_" + std::to_string(seed), 168, 8, 4, 16, 1024}};
  return kernel;
}

KernelKey key_of(int seed) {
  return {"__global__ void kernel_" + std::to_string(seed), "sm_90a", {"--a", "--b"}, "libnvrtc 1"};
}

bool same(const CompiledKernel& a, const CompiledKernel& b) {
  return a.cubin == b.cubin && a.log == b.log && a.report == b.report && a.seconds == b.seconds;
}

class Cache : public ::testing::Test {
 protected:
  void SetUp() override {
    static int count = 0;
    folder_ = fs::temp_directory_path() / fmt::format("pipethreader-cache-{}-{}", getpid(), count++);
    fs::create_directories(folder_);
  }
  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  [[nodiscard]] KernelCache cache() const { return KernelCache((folder_ / "cache").string()); }
  [[nodiscard]] std::vector<fs::path> files(const std::string& sub) const {
    std::vector<fs::path> found;
    std::error_code error;
    for (fs::directory_iterator it(folder_ / "cache" / sub, error), end; !error && it != end; it.increment(error))
      found.push_back(it->path());
    return found;
  }

  fs::path folder_;
};

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// Runs `body` in a child; its answer is the exit status, 100 and up for a signal.
int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

TEST_F(Cache, AKernelComesBackWhole) {
  EXPECT_FALSE(cache().lookup(key_of(1)));
  const CompiledKernel kernel = kernel_of(1, 5000);
  const auto stored = cache().store(key_of(1), kernel);
  ASSERT_TRUE(stored) << stored.error().format();
  const auto found = cache().lookup(key_of(1));
  ASSERT_TRUE(found);
  EXPECT_TRUE(same(*found, kernel));
  EXPECT_TRUE(files("tmp").empty());
}

TEST_F(Cache, EveryPartOfTheKeyCounts) {
  ASSERT_TRUE(cache().store(key_of(1), kernel_of(1, 10)));
  for (int part = 0; part < 5; ++part) {
    KernelKey key = key_of(1);
    if (part == 0) key.source += " ";
    if (part == 1) key.architecture = "sm_100a";
    if (part == 2) key.options = {"--a --b"};
    if (part == 3) key.options = {"--a", "--b", ""};
    if (part == 4) key.compiler += "1";
    EXPECT_FALSE(cache().lookup(key)) << part;
  }
}

TEST_F(Cache, BlobsAreReplacedAndDoNotMeetKernels) {
  ASSERT_TRUE(cache().store_blob("decision", "first"));
  ASSERT_TRUE(cache().store_blob("decision", "{\"second\": 2}"));
  EXPECT_EQ(cache().lookup_blob("decision"), "{\"second\": 2}");
  EXPECT_FALSE(cache().lookup_blob("other"));
  ASSERT_TRUE(cache().store_blob("", ""));
  EXPECT_EQ(cache().lookup_blob(""), "");
  EXPECT_EQ(files("entries").size(), 2u);
}

TEST_F(Cache, ListsSizesClearsAndTrims) {
  ASSERT_TRUE(cache().store(key_of(1), kernel_of(1, 1000)));
  ASSERT_TRUE(cache().store(key_of(2), kernel_of(2, 3000)));
  ASSERT_TRUE(cache().store_blob("decision of matmul\nmore", "x"));
  const auto list = cache().list();
  ASSERT_TRUE(list);
  ASSERT_EQ(list->size(), 3u);
  std::vector<std::string> labels;
  std::uint64_t bytes = 0;
  for (const CacheEntryInfo& entry : *list) {
    labels.push_back(entry.label);
    bytes += entry.bytes;
    EXPECT_EQ(entry.is_kernel, entry.label.starts_with("kernel_"));
    EXPECT_EQ(entry.id.size(), 32u);
  }
  EXPECT_THAT(labels, ::testing::UnorderedElementsAre("kernel_1", "kernel_2", "decision of matmul"));
  EXPECT_EQ(*cache().size(), bytes);

  const auto age = [&](const std::string& path, int hours) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  for (const auto& file : files("entries")) age(file.string(), 10);
  ASSERT_TRUE(cache().lookup(key_of(2)));  // used now, so the last to go
  EXPECT_EQ(*cache().trim(4500), 1u);
  EXPECT_TRUE(cache().lookup(key_of(2)));
  EXPECT_FALSE(cache().lookup(key_of(1)));

  write(folder_ / "cache/entries/README", "not the cache's");
  write(folder_ / "cache/entries" / (std::string(32, 'a') + ".txt"), "not the cache's");
  write(folder_ / "cache/tmp" / (std::string(32, 'a') + "-1-2-3"), "a leftover");
  EXPECT_EQ(*cache().clear(), 3u) << "two entries and the leftover";
  EXPECT_EQ(*cache().size(), 0u);
  EXPECT_EQ(files("entries").size(), 2u);
}

TEST_F(Cache, AStoreBeyondTheLimitMakesRoom) {
  const KernelCache small((folder_ / "cache").string(), 10'000);
  const auto age = [&] {
    for (const auto& file : files("entries"))
      fs::last_write_time(file, fs::last_write_time(file) - std::chrono::hours(1));
  };
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(small.store(key_of(i), kernel_of(i, 2'000)));
    EXPECT_TRUE(small.lookup(key_of(i))) << i;
    EXPECT_LE(*small.size(), 10'000u);
    age();
  }
  EXPECT_TRUE(small.lookup(key_of(19)));
  EXPECT_TRUE(small.lookup(key_of(18)));
  EXPECT_FALSE(small.lookup(key_of(0)));
  age();
  ASSERT_TRUE(small.store_blob("plan", std::string(9'000, 'x')));
  EXPECT_TRUE(small.lookup_blob("plan"));
  EXPECT_FALSE(small.lookup(key_of(18)));
  // What fits by no means is not kept, and is no reason to fail.
  ASSERT_TRUE(small.store_blob("large", std::string(20'000, 'x')));
  EXPECT_FALSE(small.lookup_blob("large"));
}

TEST_F(Cache, WithoutADirectoryItHoldsNothing) {
  const KernelCache none("");
  EXPECT_TRUE(none.store(key_of(1), kernel_of(1, 10)));
  EXPECT_FALSE(none.lookup(key_of(1)));
  EXPECT_TRUE(none.store_blob("a", "b"));
  EXPECT_FALSE(none.lookup_blob("a"));
}

TEST_F(Cache, EveryTruncationAndEveryFlippedByteCountsAsMissingAndIsReplaced) {
  const CompiledKernel kernel = kernel_of(1, 20);
  ASSERT_TRUE(cache().store(key_of(1), kernel));
  const fs::path file = files("entries").front();
  const std::string whole = read(file);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write(file, whole.substr(0, length));
    ASSERT_FALSE(cache().lookup(key_of(1))) << "cut to " << length;
  }
  write(file, whole + "x");
  EXPECT_FALSE(cache().lookup(key_of(1)));
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
    write(file, damaged);
    ASSERT_FALSE(cache().lookup(key_of(1))) << "flipped at " << i;
  }
  EXPECT_TRUE(cache().list()->empty());
  ASSERT_TRUE(cache().store(key_of(1), kernel));
  EXPECT_TRUE(same(cache().lookup(key_of(1)).value(), kernel));
  EXPECT_EQ(files("entries").size(), 1u);
}

TEST_F(Cache, AnEntryUnderAnotherKeysNameCountsAsMissing) {
  ASSERT_TRUE(cache().store(key_of(1), kernel_of(1, 20)));
  const fs::path first = files("entries").front();
  ASSERT_TRUE(cache().store(key_of(2), kernel_of(2, 20)));
  for (const fs::path& file : files("entries"))
    if (file != first) fs::copy_file(first, file, fs::copy_options::overwrite_existing);  // as if the hashes collided
  EXPECT_FALSE(cache().lookup(key_of(2)));
}

TEST_F(Cache, TwoProcessesWritingTheSameEntriesNeverShowATornOne) {
  constexpr int keys = 4, rounds = 60;
  const auto value = [](int who, int key, int round) {
    return std::string(static_cast<std::size_t>(1000 + 37 * key), static_cast<char>('a' + who)) + std::to_string(round);
  };
  std::vector<pid_t> writers;
  for (int who = 0; who < 2; ++who) {
    const pid_t child = fork();
    if (child == 0) {
      bool ok = true;
      for (int round = 0; round < rounds; ++round)
        for (int key = 0; key < keys; ++key)
          ok = ok && cache().store_blob(std::to_string(key), value(who, key, round)).has_value();
      _exit(ok ? 0 : 1);
    }
    writers.push_back(child);
  }
  std::vector<bool> seen(keys, false);
  int finished = 0;
  while (finished < 2) {
    for (int key = 0; key < keys; ++key) {
      const auto blob = cache().lookup_blob(std::to_string(key));
      if (!blob) {
        ASSERT_FALSE(seen[static_cast<std::size_t>(key)]) << "an entry vanished";
        continue;
      }
      seen[static_cast<std::size_t>(key)] = true;
      const int round = std::stoi(blob->substr(static_cast<std::size_t>(1000 + 37 * key)));
      ASSERT_TRUE(*blob == value(0, key, round) || *blob == value(1, key, round));
    }
    int status = 0;
    for (pid_t& writer : writers) {
      if (writer != 0 && waitpid(writer, &status, WNOHANG) == writer) {
        EXPECT_EQ(status, 0);
        writer = 0;
        ++finished;
      }
    }
  }
  EXPECT_TRUE(files("tmp").empty());
  EXPECT_EQ(files("entries").size(), static_cast<std::size_t>(keys));
}

TEST_F(Cache, AWriterKilledAtAnyMomentLeavesWholeEntriesOnly) {
  std::mt19937 random(3);
  constexpr int kills = 40;
  for (int i = 0; i < kills; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      for (int seed = 0;; seed = (seed + 1) % 5) (void)cache().store(key_of(seed), kernel_of(seed, 200'000));
    }
    usleep(500 + random() % 20'000);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    for (int seed = 0; seed < 5; ++seed) {
      const auto found = cache().lookup(key_of(seed));
      if (found) {
        ASSERT_TRUE(same(*found, kernel_of(seed, 200'000)));
      }
    }
    EXPECT_EQ(cache().list()->size(), files("entries").size()) << "an entry is damaged";
  }
  ASSERT_TRUE(cache().store(key_of(9), kernel_of(9, 10)));
  for (const fs::path& leftover : files("tmp"))
    fs::last_write_time(leftover, fs::file_time_type::clock::now() - std::chrono::hours(2));
  ASSERT_TRUE(cache().store(key_of(9), kernel_of(9, 10)));
  EXPECT_TRUE(files("tmp").empty()) << "old leftovers are swept";
}

TEST_F(Cache, AWriteThatFailsAtAnyByteKeepsTheOldEntry) {
  ASSERT_TRUE(cache().store_blob("key", "old"));
  const std::string blob(600, 'n');
  for (rlim_t limit = 0; limit <= 640; limit += 16) {
    // The limit on a file's size fails a write just where a full disk would.
    const int answer = in_child([&] {
      signal(SIGXFSZ, SIG_IGN);
      const rlimit small{limit, limit};
      setrlimit(RLIMIT_FSIZE, &small);
      const auto stored = cache().store_blob("key", blob);
      return stored ? 1 : stored.error().format().find("File too large") == std::string::npos ? 2 : 0;
    });
    ASSERT_EQ(answer, 0) << "limit " << limit;
    ASSERT_EQ(cache().lookup_blob("key"), "old");
    ASSERT_TRUE(files("tmp").empty());
  }
}

TEST_F(Cache, AFullDiskIsAWarningThatNamesIt) {
  const fs::path disk = folder_ / "disk";
  fs::create_directories(disk);
  if (mount("none", disk.c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "no right to mount a small file system here: " << std::strerror(errno);
  const KernelCache small((disk / "cache").string());
  EXPECT_TRUE(small.store(key_of(1), kernel_of(1, 1000)));
  const auto stored = small.store(key_of(2), kernel_of(2, 100'000));
  const auto found = small.lookup(key_of(1));
  const auto missing = small.lookup(key_of(2));
  const bool clean = fs::is_empty(disk / "cache/tmp");
  umount2(disk.c_str(), MNT_DETACH);
  ASSERT_FALSE(stored);
  EXPECT_THAT(stored.error().format(), HasSubstr("No space left on device\n  hint: the disk is full"));
  EXPECT_TRUE(found);
  EXPECT_FALSE(missing);
  EXPECT_TRUE(clean);
}

TEST_F(Cache, AnUnwritableDirectoryIsAnErrorOfTheStoreOnly) {
  ASSERT_TRUE(cache().store(key_of(1), kernel_of(1, 100)));
  fs::permissions(folder_, fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read |
                               fs::perms::others_exec | fs::perms::group_read | fs::perms::group_exec);
  for (const char* sub : {"cache/entries", "cache/tmp", "cache"})
    fs::permissions(folder_ / sub,
                    fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read | fs::perms::others_exec);
  const int answer = in_child([&] {
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) return 50;  // root may write anywhere
    if (!cache().lookup(key_of(1))) return 1;
    const auto stored = cache().store(key_of(2), kernel_of(2, 100));
    if (stored) return 2;
    if (stored.error().format().find("Permission denied") == std::string::npos) return 3;
    const KernelCache other((folder_ / "new").string());
    const auto made = other.store(key_of(2), kernel_of(2, 100));
    return !made && made.error().format().find("cannot make the cache's directory") != std::string::npos ? 0 : 4;
  });
  fs::permissions(folder_, fs::perms::owner_all);
  for (const char* sub : {"cache", "cache/entries", "cache/tmp"}) fs::permissions(folder_ / sub, fs::perms::owner_all);
  if (answer == 50) GTEST_SKIP() << "this process can neither be refused a write nor become one that can";
  EXPECT_EQ(answer, 0);

  const KernelCache impossible("/dev/null/cache");
  EXPECT_FALSE(impossible.store_blob("a", "b"));
  EXPECT_FALSE(impossible.lookup_blob("a"));
  EXPECT_TRUE(impossible.list()->empty());
}

TEST_F(Cache, ALookupOfALargeKernelIsFast) {
  ASSERT_TRUE(cache().store(key_of(1), kernel_of(1, 400'000)));
  double fastest_ms = 1e9;  // of several: other processes of a busy machine are not the cache's doing
  for (int i = 0; i < 20; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_TRUE(cache().lookup(key_of(1)));
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    fastest_ms = std::min(fastest_ms, took.count());
  }
  EXPECT_LT(fastest_ms, 25) << "a cached compile as a whole has 50 ms";
}

}  // namespace
}  // namespace pipethreader::runtime
