#include "layout/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace pipethreader::layout {
namespace {

std::vector<int> all_dims(const Layout& layout) {
  std::vector<int> dims(layout.shape.size());
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

int volume(const std::vector<int>& shape) {
  return std::accumulate(shape.begin(), shape.end(), 1, std::multiplies<>());
}

// By enumeration, sharing nothing with validate(): every coordinate in bounds, each held once among the owners, and
// held somewhere by every replica.
void expect_covered_once(const Layout& layout) {
  SCOPED_TRACE(print(layout));
  std::vector<int> owners(static_cast<std::size_t>(volume(layout.shape)), 0);
  std::vector<std::vector<int>> offsets;
  for (int reg = 0; reg < layout.registers(); ++reg) offsets.push_back(layout.register_offset(reg));
  for (int thread = 0; thread < threads_of_group; ++thread) {
    const auto base = layout.thread_offset(thread);
    for (const auto& offset : offsets) {
      int index = 0;
      for (std::size_t d = 0; d < base.size(); ++d) {
        const int at = base[d] + offset[d];
        ASSERT_GE(at, 0);
        ASSERT_LT(at, layout.shape[d]);
        index = index * layout.shape[d] + at;
      }
      if (layout.owns(thread)) ++owners[static_cast<std::size_t>(index)];
    }
  }
  for (const int count : owners) ASSERT_EQ(count, 1);
}

void expect_sound(const Layout& layout) {
  const auto valid = validate(layout);
  ASSERT_TRUE(valid) << print(layout) << "\n" << valid.error().format();
  expect_covered_once(layout);
  const auto again = parse(print(layout));
  ASSERT_TRUE(again) << again.error().format();
  EXPECT_EQ(*again, layout) << print(layout);
}

// register_map by its definition, over all threads.
std::optional<std::vector<int>> brute_force_map(const Layout& tile, const Layout& operand,
                                                const std::vector<int>& map) {
  std::vector<int> result;
  for (int reg = 0; reg < tile.registers(); ++reg) {
    std::optional<int> found;
    for (int candidate = 0; candidate < operand.registers() && !found; ++candidate) {
      bool fits = true;
      for (int thread = 0; thread < threads_of_group && fits; ++thread) {
        const auto wanted = tile.coordinates(thread, reg);
        const auto held = operand.coordinates(thread, candidate);
        for (std::size_t k = 0; k < map.size(); ++k) fits = fits && held[k] == wanted[static_cast<std::size_t>(map[k])];
      }
      if (fits) found = candidate;
    }
    if (!found) return std::nullopt;
    result.push_back(*found);
  }
  return result;
}

TEST(Layout, accumulator_places_elements_as_the_tensor_core_does) {
  // Thread t of warp w holds, in registers 4n .. 4n+3, columns 8n + 2(t%4) and one more, of rows 16w + t/4 and 8 more.
  const Layout layout = mma_accumulator(64, 128);
  EXPECT_EQ(print(layout), "[64, 128] reg(2:c1*1 2:c0*8 16:c1*8) lane(4:c1*2 8:c0*1) warp(4:c0*16)");
  EXPECT_EQ(layout.registers(), 64);
  for (int thread = 0; thread < threads_of_group; ++thread)
    for (int reg = 0; reg < 64; ++reg) {
      const int row = thread / 32 * 16 + thread % 32 / 4 + (reg % 4 >= 2 ? 8 : 0);
      const int col = reg / 4 * 8 + thread % 4 * 2 + reg % 2;
      EXPECT_EQ(layout.coordinates(thread, reg), (std::vector<int>{row, col}));
    }
}

TEST(Layout, accumulators_of_all_shapes_are_sound) {
  for (const int rows : {64, 128, 192})
    for (int cols = 8; cols <= 256; cols += 8) {
      const Layout layout = mma_accumulator(rows, cols);
      EXPECT_EQ(layout.registers() * threads_of_group, rows * cols);
      expect_sound(layout);
    }
}

TEST(Layout, blocked_tiles_of_odd_shapes_are_sound) {
  const std::vector<std::vector<int>> shapes = {
      {},        {1},       {5},       {24},      {64},        {100},      {128},       {129},        {256},   {2048},
      {64, 24},  {64, 48},  {64, 80},  {128, 96}, {128, 176},  {3, 5},     {1, 64},     {64, 1},      {17, 8}, {96, 40},
      {2, 3, 4}, {4, 8, 8}, {1, 1, 1}, {7, 1, 6}, {2, 64, 32}, {16, 1, 7}, {6, 10, 14}, {1, 2, 4, 8},
  };
  for (const auto& shape : shapes)
    for (const int vector : {1, 2, 3, 4, 8, 16}) {
      const Layout layout = blocked(shape, vector);
      EXPECT_EQ(layout.shape, shape);
      expect_sound(layout);
    }
}

TEST(Layout, blocked_runs_along_the_last_dimension) {
  const std::vector<int> shape = {128, 64};
  EXPECT_EQ(print(blocked(shape, 8)), "[128, 64] reg(8:c1*1 8:c0*16) lane(8:c1*8 4:c0*1) warp(4:c0*4)");
  const std::vector<int> narrow = {64, 24};  // three vectors a row: the lanes take rows
  EXPECT_EQ(print(blocked(narrow, 8)), "[64, 24] reg(8:c1*1 3:c1*8) lane(32:c0*1) warp(2:c0*32 2:-)");
  const std::vector<int> ragged = {64, 12};  // 8 does not divide 12: 4 does
  EXPECT_EQ(blocked(ragged, 8).digits.front().extent, 4);
}

TEST(Layout, a_tile_smaller_than_the_threads_is_replicated) {
  const std::vector<int> shape = {16};
  const Layout layout = blocked(shape, 1);
  EXPECT_EQ(print(layout), "[16] reg() lane(16:c0*1 2:-) warp(4:-)");
  int owners = 0;
  for (int thread = 0; thread < threads_of_group; ++thread) owners += layout.owns(thread) ? 1 : 0;
  EXPECT_EQ(owners, 16);
  EXPECT_TRUE(layout.owns(15));
  EXPECT_FALSE(layout.owns(16));
  EXPECT_FALSE(layout.owns(32));
}

TEST(Layout, every_thread_holds_a_replicated_tile) {
  const std::vector<int> shape = {3, 4};
  const Layout layout = replicated_over_threads(shape);
  EXPECT_EQ(layout.registers(), 12);
  expect_sound(layout);
  for (int thread = 0; thread < threads_of_group; ++thread) {
    EXPECT_EQ(layout.coordinates(thread, 5), (std::vector<int>{1, 1}));
    EXPECT_EQ(layout.owns(thread), thread == 0);
  }
}

TEST(Layout, slices_sit_where_the_tile_needs_them) {
  const std::vector<int> shape3 = {4, 32, 24};
  for (const Layout& tile : {mma_accumulator(64, 48), mma_accumulator(128, 176), blocked(shape3, 4)}) {
    const int rank = static_cast<int>(tile.shape.size());
    for (int mask = 0; mask < (1 << rank); ++mask) {
      std::vector<int> kept;
      for (int d = 0; d < rank; ++d)
        if ((mask >> d & 1) != 0) kept.push_back(d);
      for (int order = 0; order < 2; ++order) {
        const Layout part = slice(tile, kept);
        expect_sound(part);
        const auto map = register_map(tile, part, kept);
        ASSERT_TRUE(map) << print(tile) << " -> " << print(part);
        EXPECT_EQ(map, brute_force_map(tile, part, kept));
        std::reverse(kept.begin(), kept.end());
      }
    }
  }
}

TEST(Layout, a_row_vector_of_an_accumulator_has_two_registers) {
  const Layout rows = slice(mma_accumulator(64, 128), std::vector<int>{0});
  EXPECT_EQ(print(rows), "[64] reg(2:c0*8) lane(4:- 8:c0*1) warp(4:c0*16)");
  EXPECT_TRUE(rows.owns(4));
  EXPECT_FALSE(rows.owns(5));
  EXPECT_EQ(print(slice(mma_accumulator(64, 128), {})), "[] reg() lane(32:-) warp(4:-)");
}

TEST(Layout, residuals_of_a_reduction_stay_in_their_lanes) {
  const Layout tile = mma_accumulator(64, 48);
  const std::vector<int> rows = {0};
  const auto lanes = slice_with_residual(tile, rows, 2, 4);  // columns 2q, 2q + 1, + 8, ... lie in lane q of a row
  ASSERT_TRUE(lanes);
  EXPECT_EQ(print(*lanes), "[64, 4] reg(2:c0*8) lane(4:c1*1 8:c0*1) warp(4:c0*16)");
  for (const auto& [stride, extent] :
       {std::pair{1, 2}, {1, 8}, {2, 4}, {4, 2}, {2, 8}, {1, 16}, {1, 48}, {8, 6}, {1, 1}}) {
    const auto part = slice_with_residual(tile, rows, stride, extent);
    if (!part) continue;
    expect_sound(*part);
    for (int thread = 0; thread < threads_of_group; ++thread)  // each element's partial result is in its own thread
      for (int reg = 0; reg < tile.registers(); ++reg) {
        const auto at = tile.coordinates(thread, reg);
        bool held = false;
        for (int r = 0; r < part->registers(); ++r)
          held = held || part->coordinates(thread, r) == std::vector<int>{at[0], at[1] / stride % extent};
        EXPECT_TRUE(held) << stride << " " << extent;
      }
  }
  EXPECT_TRUE(slice_with_residual(tile, rows, 1, 16));
  EXPECT_TRUE(slice_with_residual(tile, rows, 2, 12));  // the six groups of eight columns split as 3 x 2
  EXPECT_FALSE(slice_with_residual(mma_accumulator(64, 40), rows, 2, 10));  // 20 cuts a group of eight
  EXPECT_FALSE(slice_with_residual(tile, rows, 5, 2));                      // does not divide
  EXPECT_FALSE(slice_with_residual(tile, std::vector{1}, 2, 4));            // the last dimension is kept
}

TEST(Layout, register_map_agrees_with_its_definition) {
  const std::vector<std::vector<int>> shapes = {{64, 16}, {64, 24}, {128, 8}, {16, 64}, {8, 8}, {64, 64}};
  int found = 0;
  for (const auto& shape : shapes)
    for (const auto& other : shapes) {
      std::vector<Layout> tiles = {blocked(shape, 2), replicated_over_threads(shape)};
      std::vector<Layout> operands = {blocked(other, 2), blocked(other, 8),
                                      slice(blocked(other, 2), std::vector{1, 0})};
      if (shape[0] % 64 == 0) tiles.push_back(mma_accumulator(shape[0], shape[1]));
      if (other[0] % 64 == 0) operands.push_back(mma_accumulator(other[0], other[1]));
      for (const Layout& tile : tiles)
        for (const Layout& operand : operands)
          for (const auto& map : {std::vector{0, 1}, std::vector{1, 0}}) {
            const auto expected = brute_force_map(tile, operand, map);
            EXPECT_EQ(register_map(tile, operand, map), expected) << print(tile) << " <- " << print(operand);
            found += expected ? 1 : 0;
          }
    }
  EXPECT_GT(found, 10);  // the comparison is not vacuous
}

TEST(Layout, register_map_refuses_elements_of_other_threads) {
  const Layout tile = mma_accumulator(64, 64);
  const std::vector<int> shape = {64, 64};
  EXPECT_FALSE(register_map(tile, blocked(shape, 2), all_dims(tile)));
  const Layout cols = slice(tile, std::vector<int>{1});
  const std::vector<int> swapped = {0};  // a column vector read along the rows
  EXPECT_FALSE(register_map(tile, cols, swapped));
  // All threads hold everything, but which register is wanted differs from thread to thread.
  EXPECT_FALSE(register_map(tile, replicated_over_threads(shape), all_dims(tile)));
}

TEST(Layout, validate_rejects_each_broken_invariant) {
  const Layout good = mma_accumulator(64, 16);
  ASSERT_TRUE(validate(good));
  const auto message = [&](auto&& change) {
    Layout bad = good;
    change(bad);
    const auto result = validate(bad);
    return result ? std::string("accepted") : result.error().format();
  };
  EXPECT_THAT(message([](Layout& l) { l.shape[0] = 0; }), testing::HasSubstr("extent 0"));
  EXPECT_THAT(message([](Layout& l) { l.shape[0] = 32; }), testing::HasSubstr("digits cover 64"));
  EXPECT_THAT(message([](Layout& l) { l.shape[1] = 17; }), testing::HasSubstr("digits cover 16"));
  EXPECT_THAT(message([](Layout& l) { std::swap(l.digits.front(), l.digits.back()); }), testing::HasSubstr("then"));
  EXPECT_THAT(message([](Layout& l) { l.digits[0].extent = 1; }), testing::HasSubstr("extent 1"));
  EXPECT_THAT(message([](Layout& l) { l.digits[0].dim = 2; }), testing::HasSubstr("dimension 2"));
  EXPECT_THAT(message([](Layout& l) { l.digits[0].stride = 0; }), testing::HasSubstr("stride 0"));
  EXPECT_THAT(message([](Layout& l) { l.digits[0].stride = 2; }), testing::HasSubstr("not covered once"));
  EXPECT_THAT(message([](Layout& l) { l.digits[0].dim = replicated; }), testing::HasSubstr("register digit"));
  EXPECT_THAT(message([](Layout& l) { l.digits.back().extent = 2; }), testing::HasSubstr("warp digits multiply to 2"));
  EXPECT_THAT(message([](Layout& l) { l.digits[3].extent = 8; }), testing::HasSubstr("lane digits multiply to 64"));
  EXPECT_THAT(message([](Layout& l) {
                l.digits.back() = {Place::warp, 4, replicated, 3};
              }),
              testing::HasSubstr("replicated layout digit has stride 3"));
}

TEST(Layout, parse_says_where_and_what) {
  const auto error = [](const std::string& text) {
    const auto result = parse(text);
    return result ? std::string("accepted") : result.error().format();
  };
  EXPECT_THAT(error("64"), testing::HasSubstr("1:1: error: in a layout: expected '[', found '64'"));
  EXPECT_THAT(error("[64 8]"), testing::HasSubstr("',' or ']'"));
  EXPECT_THAT(error("[64, x]"), testing::HasSubstr("an extent"));
  EXPECT_THAT(error("[64] lane()"), testing::HasSubstr("'reg('"));
  EXPECT_THAT(error("[64] reg(2c0*1)"), testing::HasSubstr("'extent:'"));
  EXPECT_THAT(error("[64] reg(2:0*1)"), testing::HasSubstr("'c' and a dimension"));
  EXPECT_THAT(error("[64] reg(2:c0)"), testing::HasSubstr("'dimension*stride'"));
  EXPECT_THAT(error("[64] reg(2:c0*)"), testing::HasSubstr("a stride"));
  EXPECT_THAT(error("[] reg() lane(32:-) warp(4:-) x"), testing::HasSubstr("the end of the layout, found 'x'"));
}

}  // namespace
}  // namespace pipethreader::layout
