// .npy files: what is written is read back, what numpy writes is understood, and each fault is named with its file.
#include "runtime/npy.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pipethreader::runtime {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Npy : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("pipethreader-npy-{}", getpid());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name = "a.npy") const { return (folder_ / name).string(); }

  // A version 1 file of this dictionary and these bytes.
  [[nodiscard]] std::string file(const std::string& dictionary, const std::string& data, char version = 1) const {
    std::string text = "\x93NUMPY";
    text += {version, '\0', static_cast<char>(dictionary.size()), static_cast<char>(dictionary.size() >> 8)};
    if (version > 1) text += std::string(2, '\0');
    std::ofstream(path(), std::ios::binary) << text << dictionary << data;
    return path();
  }

  [[nodiscard]] static std::string error_of(const std::string& file, const NpyExpectation& expectation = {}) {
    const auto array = read_npy(file, expectation);
    return array ? "accepted" : array.error().format();
  }

  fs::path folder_;
};

TEST_F(Npy, EveryTypeComesBack) {
  const std::vector<double> values = {0, 1, 2, 100, 3, 1};
  for (const ScalarType type :
       {ScalarType::f16, ScalarType::f32, ScalarType::f64, ScalarType::i32, ScalarType::i64, ScalarType::i8,
        ScalarType::u8, ScalarType::bf16, ScalarType::tf32, ScalarType::f8e4m3, ScalarType::f8e5m2}) {
    const auto written = write_npy(path(), {{2, 3}, type, values});
    ASSERT_TRUE(written) << written.error().format();
    const auto read = read_npy(path(), {type, std::vector<std::int64_t>{2, 3}});
    ASSERT_TRUE(read) << read.error().format();
    EXPECT_EQ(read->type, type);
    EXPECT_EQ(read->shape, (std::vector<std::int64_t>{2, 3}));
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(read->values[i], round_to(type, values[i])) << name(type);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator{}), 1) << "a temporary was left";
}

TEST_F(Npy, ScalarsVectorsAndEmptyArraysKeepTheirShape) {
  for (const auto& shape : {std::vector<std::int64_t>{}, {1}, {5}, {0}, {3, 0, 2}, {1, 1, 1, 1, 1, 1, 1}}) {
    std::size_t count = 1;
    for (const auto size : shape) count *= static_cast<std::size_t>(size);
    ASSERT_TRUE(write_npy(path(), {shape, ScalarType::f32, std::vector<double>(count, 1.5)}));
    const auto read = read_npy(path());
    ASSERT_TRUE(read) << read.error().format();
    EXPECT_EQ(read->shape, shape);
    EXPECT_EQ(read->values.size(), count);
  }
}

TEST_F(Npy, ReadsWhatNumpyWrites) {
  auto a = read_npy(file("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }          \n",
                         std::string("\0\0\x80\x3f\0\0\0\xc0", 8)));
  ASSERT_TRUE(a) << a.error().format();
  EXPECT_EQ(a->values, (std::vector<double>{1, -2}));

  a = read_npy(file("{\"shape\":(1L,2),\"fortran_order\":False,\"descr\":\">i4\"}\n",
                    std::string("\0\0\1\0\xff\xff\xff\xff", 8), 2));
  ASSERT_TRUE(a) << a.error().format();
  EXPECT_EQ(a->values, (std::vector<double>{256, -1}));

  a = read_npy(file("{'descr': '|V2', 'fortran_order': False, 'shape': (), }\n", std::string("\x80\x3f", 2)),
               {ScalarType::bf16, {}});
  ASSERT_TRUE(a) << a.error().format();
  EXPECT_EQ(a->values, (std::vector<double>{1}));

  a = read_npy(file("{'descr': '|b1', 'fortran_order': True, 'shape': (3,), }\n", std::string("\0\1\1", 3)));
  ASSERT_TRUE(a) << a.error().format() << ": one axis has no order";
  EXPECT_EQ(a->values, (std::vector<double>{0, 1, 1}));
}

TEST_F(Npy, FileBytesAreNumpys) {
  ASSERT_TRUE(write_npy(path(), {{3}, ScalarType::f16, {1, 2, INFINITY}}));
  std::ifstream in(path(), std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  ASSERT_EQ(bytes.size(), 128u + 6);
  EXPECT_EQ(bytes.substr(0, 10), std::string("\x93NUMPY\x01\0\x76\0", 10));
  EXPECT_THAT(bytes, HasSubstr("{'descr': '<f2', 'fortran_order': False, 'shape': (3,), }"));
  EXPECT_EQ(bytes[127], '\n');
  EXPECT_EQ(bytes.substr(128), std::string("\x00\x3c\x00\x40\x00\x7c", 6));
}

TEST_F(Npy, EachFaultIsNamedWithItsFile) {
  const std::string f4 = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }\n";
  const std::string eight(8, '\0');
  EXPECT_THAT(error_of(path("none.npy")), HasSubstr("none.npy': No such file"));
  EXPECT_THAT(error_of(folder_.string()), HasSubstr("Is a directory"));
  std::ofstream(path("t.txt")) << "1 2 3";
  EXPECT_THAT(error_of(path("t.txt")), HasSubstr("t.txt: error: this is no .npy file"));
  EXPECT_THAT(error_of(file(f4, eight + "x")), HasSubstr("takes 8 bytes, but 9 follow"));
  EXPECT_THAT(error_of(file(f4, "1234567")), HasSubstr("hint: the file is truncated"));
  EXPECT_THAT(error_of(file(f4, eight, 9)), HasSubstr("format version 9"));
  EXPECT_THAT(error_of(file(f4, eight), {ScalarType::f16, {}}), HasSubstr("dtype '<f4', expected f16 ('<f2')"));
  EXPECT_THAT(error_of(file(f4, eight), {ScalarType::f32, std::vector<std::int64_t>{2, 1}}),
              HasSubstr("shape (1, 2), expected (2, 1)"));
  EXPECT_THAT(error_of(file("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2), }\n", eight)),
              HasSubstr("Fortran order\n  hint: save numpy.ascontiguousarray"));
  EXPECT_THAT(error_of(file("{'descr': '<u2', 'fortran_order': False, 'shape': (4,), }\n", eight)),
              HasSubstr("u2 is read where bf16 is expected"));
  EXPECT_THAT(error_of(file("{'descr': '<c16', 'fortran_order': False, 'shape': (), }\n", eight)), HasSubstr("'<c16'"));
  EXPECT_THAT(error_of(file("{'descr': '', 'fortran_order': False, 'shape': (), }\n", eight)), HasSubstr("dtype ''"));
  EXPECT_THAT(error_of(file("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (), }", eight)),
              HasSubstr("records are not supported"));
  EXPECT_THAT(error_of(file("{'descr': '<f4', 'fortran_order': 0, 'shape': (), }", eight)), HasSubstr("True or False"));
  EXPECT_THAT(error_of(file("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", eight)), HasSubstr("sizes"));
  EXPECT_THAT(error_of(file("{'descr': '<f4', 'shape': (), }", eight)), HasSubstr("all of 'descr'"));
  EXPECT_THAT(error_of(file("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", eight)),
              HasSubstr("too large"));
  EXPECT_THAT(error_of(file("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }", eight)),
              HasSubstr("takes 4000000000000 bytes"));
}

TEST_F(Npy, EveryTruncationIsAnError) {
  ASSERT_TRUE(write_npy(path(), {{2}, ScalarType::i32, {1, 2}}));
  std::ifstream in(path(), std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    std::ofstream(path("cut.npy"), std::ios::binary | std::ios::trunc) << bytes.substr(0, length);
    EXPECT_THAT(error_of(path("cut.npy")), HasSubstr("cut.npy: error: ")) << length;
  }
}

TEST_F(Npy, WritingReportsWhatIsWrong) {
  auto written = write_npy(path(), {{2}, ScalarType::f32, {1}});
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().format(), HasSubstr("shape (2,) has 1 values"));
  written = write_npy(path(), {{1}, ScalarType::i4, {1}});
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().format(), HasSubstr("array of i4"));
  written = write_npy(path("no/such/folder.npy"), {{1}, ScalarType::f32, {1}});
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().format(), HasSubstr("No such file or directory"));
}

TEST_F(Npy, TheShapeIsReadWhateverTheElementsAre) {
  ASSERT_TRUE(write_npy(path(), {{3, 0, 2}, ScalarType::bf16, {}}));
  EXPECT_EQ(*read_npy_shape(path()), (std::vector<std::int64_t>{3, 0, 2}));
  EXPECT_THAT(read_npy_shape(path("missing.npy")).error().format(), HasSubstr("missing.npy"));
}

}  // namespace
}  // namespace pipethreader::runtime
