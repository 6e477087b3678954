#include "driver/candidates.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <set>
#include <string_view>

#include "search/search.h"
#include "task/canonical.h"
#include "task/products.h"
#include "task/split.h"

namespace pipethreader::driver {

namespace {

constexpr std::array<std::string_view, 3> overlap_names = {"serial", "deferred", "delayed"};
constexpr std::array<std::string_view, 3> order_names = {"single", "persistent", "dynamic"};
constexpr std::array<std::string_view, 2> switch_names = {"off", "on"};
constexpr std::array<std::string_view, 2> share_names = {"rows", "sums"};
constexpr std::string_view known_keys =
    "split, row, column, stream, element, lanes, teams, blocks, share, overlap, depth, outer, turns, staged, order, "
    "raster, band, cluster, walk, hold, pass, bulk";

std::optional<int> number(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Result<int> number_in(const std::string& key, const std::string& text, int low, int high) {
  const auto value = number(text);
  if (!value || *value < low || *value > high) {
    return fail("'{}' must be a number from {} to {}, found '{}'", key, low, high, text);
  }
  return *value;
}

// "h:2": so many along an axis. Without a colon the axis is empty.
struct Along {
  std::string axis;
  int count = 0;
};

std::optional<Along> along_in(const std::string& text, int low, int high) {
  const std::size_t colon = text.find(':');
  const bool named = colon != std::string::npos;
  const auto count = number(named ? text.substr(colon + 1) : text);
  if (colon == 0 || !count || *count < low || *count > high) return std::nullopt;
  return Along{named ? text.substr(0, colon) : "", *count};
}

template <std::size_t n>
Result<int> one_of(const std::string& key, const std::string& text, const std::array<std::string_view, n>& names) {
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end()) return fail("'{}' must be one of {}, found '{}'", key, fmt::join(names, ", "), text);
  return static_cast<int>(found - names.begin());
}

Result<void> force_one(Choices& c, const std::string& key, const std::string& text) {
  struct Number {
    std::string_view key;
    int* target;
    int low, high;
  };
  const Number numbers[] = {{"split", &c.split, 1, 64},
                            {"row", &c.partition.row, 1, 1024},
                            {"column", &c.partition.column, 1, 1024},
                            {"stream", &c.partition.stream, 1, 65536},
                            {"element", &c.partition.element, 1, 65536},
                            {"lanes", &c.partition.lanes, 1, 5},
                            {"blocks", &c.partition.blocks, 1, 4},
                            {"raster", &c.partition.raster, 1, 1024},
                            {"band", &c.partition.band, 0, 65536},
                            {"depth", &c.schedule.depth, 0, 16},
                            {"outer", &c.schedule.outer, 1, 4}};
  for (const Number& n : numbers) {
    if (key != n.key) continue;
    const auto value = number_in(key, text, n.low, n.high);
    if (!value) return tl::unexpected(value.error());
    *n.target = *value;
    return {};
  }
  const auto set = [](const Result<int>& value, auto assign) -> Result<void> {
    if (!value) return tl::unexpected(value.error());
    assign(*value);
    return {};
  };
  if (key == "overlap")
    return set(one_of(key, text, overlap_names),
               [&](int v) { c.schedule.overlap = static_cast<schedule::Overlap>(v); });
  if (key == "order")
    return set(one_of(key, text, order_names), [&](int v) { c.partition.order = static_cast<partition::Order>(v); });
  if (key == "share") return set(one_of(key, text, share_names), [&](int v) { c.partition.share_sums = v == 1; });
  if (key == "turns") return set(one_of(key, text, switch_names), [&](int v) { c.schedule.turns = v == 1; });
  if (key == "staged") return set(one_of(key, text, switch_names), [&](int v) { c.schedule.staged_stores = v == 1; });
  if (key == "walk") {
    const auto walk = text == "off" ? Along{} : along_in(text, 2, std::numeric_limits<int>::max());
    if (!walk || (walk->axis.empty() && walk->count > 0))
      return fail("'walk' must be off or AXIS:STEPS, such as h:8; found '{}'", text);
    c.walk = {};
    if (walk->count > 0) c.walk = {walk->axis, walk->count};
    return {};
  }
  if (key == "cluster") {
    const auto cluster = along_in(text, 1, 8);
    if (!cluster) return fail("'cluster' must be a number from 1 to 8, or AXIS:BLOCKS such as h:2; found '{}'", text);
    c.partition.cluster = cluster->count;
    c.partition.along = cluster->axis;
    return {};
  }
  if (key == "teams") {
    const auto teams = text == "off" ? Along{"", 1} : along_in(text, 2, 4);
    if (!teams || (teams->axis.empty() && teams->count > 1))
      return fail("'teams' must be off or AXIS:TEAMS, such as h:2; found '{}'", text);
    c.partition.teams = teams->count;
    c.partition.apart = teams->axis;
    return {};
  }
  if (key == "hold") return set(one_of(key, text, switch_names), [&](int v) { c.partition.hold = v == 1; });
  if (key == "pass") return set(one_of(key, text, switch_names), [&](int v) { c.pass_over = v == 1; });
  if (key == "bulk") return set(one_of(key, text, switch_names), [&](int v) { c.bulk = v == 1; });
  return fail("there is no choice named '{}'; known are {}", key, known_keys);
}

Choices with(int row, int column, int stream, int lanes, schedule::Overlap overlap, int depth) {
  Choices c;
  c.partition.row = row;
  c.partition.column = column;
  c.partition.stream = stream;
  c.partition.lanes = lanes;
  c.schedule.overlap = overlap;
  c.schedule.depth = depth;
  return c;
}

// How many parts a kernel's loop may be split into, where there are few tiles for many units.
std::vector<int> splits_for(const kernel::Kernel& specialised, const device::Device& device) {
  const kernel::Kernel kernel = task::canonical(specialised);
  constexpr std::int64_t side = 64;  // of a small tile
  const std::set<kernel::AxisId> tiled = task::choose_tiled(kernel);
  std::int64_t tiles = 1;
  for (const kernel::AxisId a : kernel.parallel) {
    const auto extent = task::static_extent(kernel, a);
    if (!extent) return {};
    tiles *= tiled.contains(a) ? (*extent + side - 1) / side : *extent;
  }
  if (tiles >= device.execution_units) return {};
  return 8 * tiles >= device.execution_units ? std::vector<int>{2, 4, 8} : std::vector<int>{4, 8, 16};
}

// What the search knows, best first: of the kernel as it is, and split where that may pay.
Result<std::vector<Candidate>> ranked_candidates(const kernel::Kernel& specialised, const device::Device& device,
                                                 const Forced& forced) {
  std::vector<Candidate> candidates;
  const auto add = [&](const kernel::Kernel& kernel, int split, double more_us) {
    const auto ranked = search::rank(kernel, device);
    if (!ranked) return;
    for (const search::Candidate& r : *ranked)
      candidates.push_back({{split, r.walk, r.partition, r.schedule, true}, r.predicted_us + more_us, r.bound});
  };
  const bool given = std::any_of(forced.begin(), forced.end(), [](const auto& f) { return f.first == "split"; });
  Choices wanted;
  if (auto done = force(wanted, forced); !done) return tl::unexpected(done.error());
  if (wanted.split == 1) add(specialised, 1, 0);
  for (const int parts : given ? std::vector<int>{wanted.split} : splits_for(specialised, device)) {
    if (parts == 1) continue;
    const auto halves = task::split(specialised, parts);
    if (!halves && given) return tl::unexpected(halves.error());
    if (!halves) continue;
    const auto join = search::rank(halves->join, device);
    if (join) add(halves->parts, parts, join->front().predicted_us);
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.predicted_us < b.predicted_us; });
  return candidates;
}

// Tiles that the kernel does not have cannot be forced.
Result<void> check_tiles(const std::string& kernel, bool products, const Forced& forced) {
  for (const auto& [key, text] : forced) {
    if (products && key == "element")
      return fail(
          "'element' is for kernels without products on the tensor core; '{}' has some: its tiles are row, "
          "column and stream",
          kernel);
    if (!products && (key == "row" || key == "column"))
      return fail("'{}' is for products on the tensor core; '{}' has none: its tiles are element and stream", key,
                  kernel);
  }
  return {};
}

}  // namespace

Result<void> force(Choices& choices, const Forced& forced) {
  for (const auto& [key, text] : forced) {
    if (auto done = force_one(choices, key, text); !done) return done;
  }
  return {};
}

Result<std::vector<Candidate>> choices_for(const kernel::Kernel& specialised, const device::Device& device,
                                           const Forced& forced) {
  const auto graph = task::build(specialised);  // what is wrong is said when it is compiled
  const bool products = !graph || graph->has_products();
  if (graph) {
    if (auto done = check_tiles(specialised.name, products, forced); !done) return tl::unexpected(done.error());
  }
  std::vector<Candidate> candidates;
  std::set<std::string> known;  // what does not count for this kernel does not tell candidates apart
  const auto add = [&](Candidate candidate) {
    if (known.insert(describe(candidate.choices, products)).second) candidates.push_back(std::move(candidate));
  };
  struct Bent {
    Candidate candidate;
    int changes = 0;
  };
  std::vector<Bent> others;
  auto ranked = ranked_candidates(specialised, device, forced);
  if (!ranked) return tl::unexpected(ranked.error());
  for (const Candidate& candidate : *ranked) {
    Bent bent{candidate};
    for (const auto& one : forced) {
      const Choices before = bent.candidate.choices;
      if (auto done = force(bent.candidate.choices, {one}); !done) return tl::unexpected(done.error());
      bent.changes += bent.candidate.choices == before ? 0 : 1;
    }
    if (bent.changes == 0) {
      add(candidate);
    } else {
      bent.candidate.predicted_us = 0;
      bent.candidate.bound.clear();
      others.push_back(std::move(bent));
    }
  }
  std::stable_sort(others.begin(), others.end(), [](const Bent& a, const Bent& b) { return a.changes < b.changes; });
  for (Bent& bent : others) add(std::move(bent.candidate));
  // Small and plain ones last, for kernels that fit no better.
  using schedule::Overlap;
  const Choices ladder[] = {
      with(128, 128, 64, 2, Overlap::delayed, 2),
      with(64, 64, 64, 1, Overlap::delayed, 2),
      with(64, 64, 32, 1, Overlap::serial, 2),
      with(64, 32, 16, 1, Overlap::serial, 1),
  };
  for (const Choices& choices : ladder) {
    Candidate candidate{choices, 0, ""};
    if (auto done = force(candidate.choices, forced); !done) return tl::unexpected(done.error());
    add(std::move(candidate));
  }
  return candidates;
}

std::string describe(const Choices& c, bool products) {
  std::string text;
  const auto add = [&](std::string_view key, const auto& value) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, value);
  };
  const auto along = [](const std::string& axis, int count) {
    return axis.empty() ? std::to_string(count) : fmt::format("{}:{}", axis, count);
  };
  if (c.split > 1) add("split", c.split);
  if (products) {
    add("row", c.partition.row);
    add("column", c.partition.column);
    add("stream", c.partition.stream);
    add("lanes", c.partition.lanes);
    add("overlap", overlap_names[static_cast<std::size_t>(c.schedule.overlap)]);
    add("depth", c.schedule.depth);
  } else {
    add("element", c.partition.element);
    add("stream", c.partition.stream);
  }
  add("order", order_names[static_cast<std::size_t>(c.partition.order)]);
  if (c.partition.share_sums) add("share", "sums");
  if (c.partition.teams != 1) add("teams", along(c.partition.apart, c.partition.teams));
  if (c.partition.blocks != 1) add("blocks", c.partition.blocks);
  if (c.schedule.outer != 1) add("outer", c.schedule.outer);
  if (c.partition.raster != 1) add("raster", c.partition.raster);
  if (c.partition.band != 0) add("band", c.partition.band);
  if (c.partition.cluster != 1) add("cluster", along(c.partition.along, c.partition.cluster));
  if (!c.walk.axis.empty()) add("walk", along(c.walk.axis, c.walk.length));
  if (c.partition.hold) add("hold", "on");
  if (c.schedule.turns) add("turns", "on");
  if (c.schedule.staged_stores) add("staged", "on");
  if (!c.pass_over) add("pass", "off");
  if (!c.bulk) add("bulk", "off");
  return text;
}

}  // namespace pipethreader::driver
