// The assembler's words and the cubin's ELF, read into numbers. The texts are what NVRTC 12 and 13 print.
#include "runtime/cubin_report.h"

#include <cstdint>
#include <cstring>

#include <gtest/gtest.h>

namespace pipethreader::runtime {
namespace {

TEST(AssemblerLog, ReadsRegistersSpillsStackAndSharedMemoryOfEachKernel) {
  const AssemblerReport report = parse_assembler_log(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'second' for 'sm_90a'\n"
      "ptxas info    : Function properties for second\n"
      "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 30 registers, used 1 barriers, 400 bytes smem\n"
      "ptxas info    : Compile time = 5.343 ms\n"
      "ptxas info    : Compiling entry function 'first' for 'sm_90a'\r\n"
      "ptxas info    : Function properties for first\r\n"
      "    272 bytes stack frame, 270 bytes spill stores, 268 bytes spill loads\r\n"
      "ptxas info    : Used 255 registers, 352 bytes cmem[0]\r\n");
  ASSERT_EQ(report.functions.size(), 2u);
  EXPECT_EQ(report.functions[0], (FunctionReport{"second", 30, 0, 0, 0, 400}));
  EXPECT_EQ(report.functions[1], (FunctionReport{"first", 255, 270, 268, 272, 0}));
  EXPECT_EQ(report.registers, 255);
  EXPECT_EQ(report.spill_store_bytes, 270);
  EXPECT_EQ(report.spill_load_bytes, 268);
  EXPECT_EQ(report.stack_bytes, 272);
  EXPECT_TRUE(report.spills());
  EXPECT_FALSE(report.serialised);
  EXPECT_TRUE(report.messages.empty());
}

TEST(AssemblerLog, AFunctionThatIsCalledKeepsItsOwnStack) {
  const AssemblerReport report = parse_assembler_log(
      "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
      "ptxas info    : Function properties for k\n"
      "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 40 registers\n"
      "ptxas info    : Function properties for helper\n"
      "    64 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads\n");
  ASSERT_EQ(report.functions.size(), 2u);
  EXPECT_EQ(report.functions[0].registers, 40);
  EXPECT_EQ(report.functions[0].stack_bytes, 0);
  EXPECT_EQ(report.functions[1], (FunctionReport{"helper", 0, 12, 8, 64, 0}));
}

TEST(AssemblerLog, TellsSerialisedGroupsFromHarmlessRemarks) {
  const auto serialised = parse_assembler_log(
      "ptxas info    : (C7512) Potential Performance Loss: wgmma.mma_async instructions are serialized due to "
      "insufficient register resources for the wgmma pipeline in the function 'k'\n");
  EXPECT_TRUE(serialised.serialised);
  EXPECT_FALSE(serialised.injected_waits);
  EXPECT_EQ(serialised.messages.size(), 1u);

  const auto injected = parse_assembler_log(
      "ptxas info    : (C7519) warpgroup.arrive is injected in around line 962 by compiler to allow use of registers "
      "in GMMA in function 'k'\n"
      "ptxas info    : (C7517) warpgroup.wait is injected in around line 964 by compiler to allow use of registers "
      "defined by GMMA in function 'k'\n");
  EXPECT_FALSE(injected.serialised);
  EXPECT_TRUE(injected.injected_waits);
  EXPECT_EQ(injected.messages.size(), 2u);

  const auto ignored = parse_assembler_log(
      "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored to maintain minimum register "
      "requirements.\n"
      "kernel.cu(3): warning #177-D: variable \"x\" was declared but never referenced\n");
  EXPECT_TRUE(ignored.ignored_register_budget);
  EXPECT_FALSE(ignored.serialised);
  EXPECT_EQ(ignored.messages.size(), 2u);
}

TEST(AssemblerLog, SkipsWhatItDoesNotKnow) {
  const AssemblerReport report = parse_assembler_log("\n\nregisters\nUsed registers\n(C)\n'\nbytes stack frame");
  EXPECT_EQ(report.registers, 0);
  EXPECT_TRUE(report.messages.empty());
}

// A cubin of one kernel 'k', built by hand: null, names, symbols, .nv.info.
struct TinyCubin {
  std::vector<std::byte> bytes = std::vector<std::byte>(64);

  template <class T>
  void put(std::size_t at, T value) {
    if (bytes.size() < at + sizeof(T)) bytes.resize(at + sizeof(T));
    std::memcpy(bytes.data() + at, &value, sizeof(T));
  }
  void header(std::size_t index, std::uint32_t name, std::uint64_t offset, std::uint64_t size, std::uint32_t link) {
    const std::size_t at = table + index * 64;
    put<std::uint32_t>(at, name);
    put<std::uint64_t>(at + 24, offset);
    put<std::uint64_t>(at + 32, size);
    put<std::uint32_t>(at + 40, link);
    put<std::uint64_t>(at + 56, 0);
  }
  static constexpr std::size_t table = 256;

  TinyCubin() {
    put<std::uint32_t>(0, 0x464c457f);
    put<std::uint8_t>(4, 2);
    put<std::uint64_t>(40, table);
    put<std::uint16_t>(58, 64);
    put<std::uint16_t>(60, 4);
    put<std::uint16_t>(62, 1);
    const char names[] = "\0.symtab\0.nv.info\0k";
    for (std::size_t i = 0; i < sizeof(names); ++i) put(64 + i, names[i]);
    put<std::uint32_t>(96 + 24, 18);  // symbol 1 is 'k'
    put<std::uint64_t>(96 + 40, 0);
    put<std::uint32_t>(160, 0x0008'2f04);  // a sized attribute, registers, 8 bytes
    put<std::uint32_t>(164, 1);
    put<std::uint32_t>(168, 168);
    put<std::uint32_t>(172, 0x0000'0101);  // one without a value
    put<std::uint32_t>(176, 0x0008'1104);  // stack
    put<std::uint32_t>(180, 1);
    put<std::uint32_t>(184, 32);
    header(0, 0, 0, 0, 0);
    header(1, 0, 64, sizeof(names), 0);
    header(2, 1, 96, 48, 1);
    header(3, 9, 160, 28, 2);
  }
};

TEST(Cubin, ReadsRegistersAndStack) {
  const TinyCubin cubin;
  const auto report = read_cubin(cubin.bytes);
  ASSERT_TRUE(report) << report.error().format();
  ASSERT_EQ(report->functions.size(), 1u);
  EXPECT_EQ(report->functions[0], (FunctionReport{"k", 168, 0, 0, 32, 0}));
  EXPECT_EQ(report->registers, 168);
}

TEST(Cubin, TheLogWinsAndTheBinaryFillsIn) {
  const TinyCubin cubin;
  auto report = assembler_report("", cubin.bytes);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->registers, 168);
  report = assembler_report(
      "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
      "ptxas info    : Function properties for k\n"
      "    32 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads\n"
      "ptxas info    : Used 170 registers\n",
      cubin.bytes);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->registers, 170);
  EXPECT_EQ(report->spill_store_bytes, 8);
}

TEST(Cubin, EveryTruncationAndEveryFlippedByteIsSurvived) {
  const TinyCubin cubin;
  for (std::size_t length = 0; length < cubin.bytes.size(); ++length) {
    const auto report = read_cubin(std::span(cubin.bytes).first(length));
    EXPECT_FALSE(report) << length;
  }
  for (std::size_t i = 0; i < cubin.bytes.size(); ++i) {
    for (const int mask : {0x01, 0x80, 0xff}) {
      std::vector<std::byte> damaged = cubin.bytes;
      damaged[i] ^= static_cast<std::byte>(mask);
      (void)read_cubin(damaged);  // any answer will do; the sanitizer build watches the reads
    }
  }
}

}  // namespace
}  // namespace pipethreader::runtime
