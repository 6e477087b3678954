// Files under names that users give: whole or not at all, and never in the place of what is no plain file.
#include "runtime/atomic_file.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include <sys/stat.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pipethreader::runtime {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class WriteFile : public ::testing::Test {
 protected:
  WriteFile() {
    std::string name = (fs::temp_directory_path() / "pipethreader-files-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~WriteFile() override { fs::remove_all(folder_); }
  [[nodiscard]] std::string path(const std::string& name) const { return (folder_ / name).string(); }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  fs::path folder_;
};

TEST_F(WriteFile, PiecesStandInTheirOrderAndReplaceWhatWasThere) {
  ASSERT_TRUE(write_file(path("a"), {bytes_of("one "), bytes_of("two")}));
  EXPECT_EQ(text_of(path("a")), "one two");
  ASSERT_TRUE(write_file(path("a"), {bytes_of("3")}));
  EXPECT_EQ(text_of(path("a")), "3");
  EXPECT_EQ(files(), 1u);
}

TEST_F(WriteFile, ALinkStaysALink) {
  ASSERT_TRUE(write_file(path("target"), {bytes_of("old")}));
  fs::create_symlink("target", path("link"));
  ASSERT_TRUE(write_file(path("link"), {bytes_of("new")}));
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(text_of(path("target")), "new");
  EXPECT_EQ(files(), 2u);
}

TEST_F(WriteFile, APipeIsWrittenTo) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] { got = text_of(path("pipe")); });
  EXPECT_TRUE(write_file(path("pipe"), {bytes_of("through")}));
  reader.join();
  EXPECT_EQ(got, "through");
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
}

TEST_F(WriteFile, ErrorsNameThePathAndLeaveNothing) {
  const auto error = [](const std::string& path) { return write_file(path, {}).error().format(); };
  EXPECT_THAT(error(path("missing/file")), StartsWith("error: cannot write '" + path("missing/file") + "': No such"));
  EXPECT_EQ(error(folder_.string()), "error: cannot write '" + folder_.string() + "': Is a directory");
  if (fs::is_character_file("/dev/full")) {
    EXPECT_THAT(write_file("/dev/full", {bytes_of("x")}).error().format(), HasSubstr("the disk is full"));
  }
  EXPECT_EQ(files(), 0u);
}

}  // namespace
}  // namespace pipethreader::runtime
