// check_valid on schedules of the policy, which pass, and on the same with one thing broken, which do not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "driver/compiler.h"
#include "schedule/valid.h"

namespace pipethreader {
namespace {

using schedule::Entry;
using schedule::Item;
using schedule::LoopTree;
using schedule::Overlap;
using schedule::Part;
using testing::HasSubstr;

struct Scheduled {
  task::Graph graph;
  partition::Assignment assignment;
  schedule::Program program;
};

template <class T>
T need(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().format());
  return std::move(*result);
}

Scheduled scheduled(const std::string& name, const std::vector<kernel::Binding>& dims, Overlap overlap) {
  const auto kernel = need(driver::load_kernel(PIPETHREADER_SOURCE_DIR "/kernels/" + name + ".stask"));
  auto graph = need(task::build(need(kernel::specialise(kernel, dims, {}))));
  partition::Choice choice;
  choice.row = 128;
  choice.stream = 64;
  const auto cut = need(partition::propagate(graph, choice));
  auto assignment = need(partition::assign(graph, cut));
  schedule::Choice how;
  how.overlap = overlap;
  how.depth = 2;
  auto program = need(schedule::greedy(graph, cut, assignment, how));
  return {std::move(graph), std::move(assignment), std::move(program)};
}

Scheduled attention(Overlap overlap) {
  return scheduled("flash_attention", {{"B", 1}, {"H", 2}, {"G", 2}, {"S", 256}, {"T", 256}, {"D", 64}}, overlap);
}

std::string verdict(const Scheduled& s) {
  const auto valid = schedule::check_valid(s.graph, s.assignment, s.program);
  return valid ? "" : valid.error().format();
}

std::vector<Item>& loop_body(Scheduled& s) {
  for (Item& item : s.program.computer)
    if (auto* loop = std::get_if<LoopTree>(&item.node)) return loop->body;
  throw std::runtime_error("no loop");
}

std::size_t place(const Scheduled& s, const std::vector<Item>& body, const std::string& value, Part part) {
  for (std::size_t i = 0; i < body.size(); ++i) {
    const auto* entry = std::get_if<Entry>(&body[i].node);
    if (entry == nullptr || entry->part != part) continue;
    const auto& written = s.graph[entry->task].writes;
    if (written && s.graph.kernel[*written].name == value) return i;
  }
  throw std::runtime_error("no " + value);
}

void take_out(Scheduled& s, const std::string& value, Part part) {
  auto& body = loop_body(s);
  body.erase(body.begin() + static_cast<std::ptrdiff_t>(place(s, body, value, part)));
}

void move(std::vector<Item>& body, std::size_t from, std::size_t to) {
  const Item item = body[from];
  body.erase(body.begin() + static_cast<std::ptrdiff_t>(from));
  body.insert(body.begin() + static_cast<std::ptrdiff_t>(to), item);
}

TEST(CheckValid, SchedulesOfThePolicyAre) {
  for (const Overlap overlap : {Overlap::serial, Overlap::deferred, Overlap::delayed})
    EXPECT_EQ(verdict(attention(overlap)), "");
}

TEST(CheckValid, AResultIsReadAfterTheWaitForIt) {
  Scheduled s = attention(Overlap::serial);
  auto& body = loop_body(s);
  move(body, place(s, body, "s", Part::wait), body.size() - 1);
  EXPECT_THAT(verdict(s), HasSubstr("reads a product's result before the wait for it"));
}

TEST(CheckValid, AWaitNeedsAnIssue) {
  Scheduled s = attention(Overlap::serial);
  auto& body = loop_body(s);
  move(body, place(s, body, "s", Part::wait), 0);
  EXPECT_THAT(verdict(s), HasSubstr("'s' is waited for before it is issued"));
}

TEST(CheckValid, OperandsStayUntilTheirProductsEnd) {
  Scheduled s = attention(Overlap::serial);
  take_out(s, "o", Part::wait);
  EXPECT_NE(verdict(s), "");
}

TEST(CheckValid, OrderOfDependentTasksMatters) {
  Scheduled s = attention(Overlap::serial);
  auto& body = loop_body(s);
  move(body, place(s, body, "n", Part::whole), body.size() - 1);
  EXPECT_THAT(verdict(s), HasSubstr("a store gets another value"));
}

TEST(CheckValid, NothingIsLeftOut) {
  Scheduled s = attention(Overlap::serial);
  take_out(s, "l", Part::whole);
  EXPECT_THAT(verdict(s), HasSubstr("a store gets another value"));
}

TEST(CheckValid, EveryLoadIsCopied) {
  Scheduled s = attention(Overlap::serial);
  s.program.copier.erase(s.program.copier.begin());
  EXPECT_THAT(verdict(s), HasSubstr("is not copied once, where its ring is filled"));
}

TEST(CheckValid, StagesNeedSlots) {
  Scheduled s = attention(Overlap::delayed);
  for (auto& ring : s.program.rings) ring.depth = 1;
  EXPECT_THAT(verdict(s), HasSubstr("fewer than the stages of its loop"));
}

// What a product reads and what lanes fetch for it in the same iteration come and go together; K and V of attention,
// which two products read, and what a delayed product reads an iteration later, do not.
TEST(Rings, TilesOfOneIterationShareSlots) {
  const auto rings = [](const Scheduled& s) {
    std::vector<std::string> names;
    for (const schedule::RingPlan& ring : s.program.rings) {
      std::string& name = names.emplace_back();
      for (const kernel::ValueId v : ring.values) name += (name.empty() ? "" : " ") + s.graph.kernel[v].name;
    }
    return names;
  };
  const std::vector<kernel::Binding> dims = {{"B", 1}, {"C", 2}, {"H", 2}, {"G", 1}, {"L", 256}, {"P", 64}, {"N", 128}};
  EXPECT_THAT(rings(scheduled("chunk_scan", dims, Overlap::serial)),
              testing::ElementsAre("cm_tile st_tile da_tile", "x_tile da_tile_2 dt_tile", "cb_tile"));
  EXPECT_THAT(rings(scheduled("chunk_scan", dims, Overlap::delayed)),
              testing::ElementsAre("cm_tile st_tile da_tile", "x_tile", "da_tile_2 cb_tile dt_tile"));
  EXPECT_THAT(rings(attention(Overlap::serial)), testing::ElementsAre("q_tile", "k_tile", "v_tile"));
}

}  // namespace
}  // namespace pipethreader
