#include "program/legalise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/programs.h"

namespace pipethreader::program {
namespace {

using testing::HasSubstr;

TEST(Legalise, places_buffers_and_barriers) {
  const auto legal = legalise(test::example_program("plain_copies"), 65536);
  ASSERT_TRUE(legal) << legal.error().format();
  EXPECT_EQ(legal->buffers[0].offset, 0);      // two slots of 8192
  EXPECT_EQ(legal->buffers[1].offset, 16384);  // two slots of 8192
  EXPECT_EQ(legal->buffers[2].offset, 32768);  // 64 f32
  EXPECT_EQ(slot_offset(*legal, BufferId(std::size_t{1}), 1), 24576);
  const RingId ab(std::size_t{0});
  const RingId bias(std::size_t{1});
  EXPECT_EQ(full_barrier_offset(*legal, ab, 0), 33024);
  EXPECT_EQ(full_barrier_offset(*legal, ab, 1), 33032);
  EXPECT_EQ(empty_barrier_offset(*legal, ab, 0), 33040);
  EXPECT_EQ(full_barrier_offset(*legal, bias, 0), 33056);
  EXPECT_EQ(empty_barrier_offset(*legal, bias, 0), 33064);
  EXPECT_EQ(legal->shared_bytes, 33072);
  EXPECT_TRUE(validate(*legal));
}

TEST(Legalise, slots_keep_their_alignment) {
  Program program;
  program.name = "odd";
  program.buffers.push_back({"thin", ScalarType::f16, 1, 3, 1, Swizzle::none});
  program.buffers.push_back({"small", ScalarType::f16, 8, 32, 1, Swizzle::bytes64});
  const auto legal = legalise(program, 4096);
  ASSERT_TRUE(legal);
  EXPECT_EQ(legal->buffers[1].offset, 0);
  EXPECT_EQ(legal->buffers[0].offset, 512);
  EXPECT_EQ(legal->shared_bytes, 520);  // 518, and the barriers would begin on 8
}

TEST(Legalise, dynamic_work_gets_a_mailbox) {
  Program program = test::example_program("scale_tile");
  const auto still = legalise(program, 1024);
  ASSERT_TRUE(still);
  EXPECT_EQ(still->shared_bytes, 0);
  std::get<ForWork>(program.roles[0].body[0].op).order = WorkOrder::dynamic;
  const auto handed_out = legalise(program, 1024);
  ASSERT_TRUE(handed_out);
  EXPECT_EQ(handed_out->shared_bytes, work_mailbox_bytes);
}

TEST(Legalise, says_what_is_too_large) {
  const auto legal = legalise(test::example_program("matmul"), 65536);
  ASSERT_FALSE(legal);
  const std::string message = legal.error().format();
  EXPECT_THAT(message, HasSubstr("program 'matmul' needs 98352 bytes of shared memory a block, the limit is 65536"));
  EXPECT_THAT(message, testing::ContainsRegex("a +128 +64 +3 +49152"));
  EXPECT_THAT(message, testing::ContainsRegex("barriers +48"));
  EXPECT_THAT(message, HasSubstr("smaller tiles or fewer slots: 32816 bytes have to go"));
}

}  // namespace
}  // namespace pipethreader::program
