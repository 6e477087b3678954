// Evaluates expressions of a Program at many points at a time, and holds the local values they read.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "oracle/lanes.h"
#include "oracle/oracle.h"
#include "oracle/tiles.h"

namespace pipethreader::oracle {

// The elements of one local value: for the current block of points of the parallel axes, over the current tiles of
// streamed axes and the whole of inner ones.
struct Storage {
  std::vector<std::int64_t> first, length;  // by axis of the value
  std::size_t per_point = 1;
  std::vector<double> values, errors;
  std::vector<double> magnitudes, terms;  // of values that sums are added to: of |term|, and how many
  std::vector<std::uint64_t> tags;
  std::vector<std::uint8_t> defined;
};

class Evaluator {
 public:
  static constexpr std::size_t kLanes = 1024;  // points evaluated at a time

  Evaluator(const Program& program, const Inputs& inputs);

  // The range of an axis: all of it, or the current tile.
  struct Span {
    std::int64_t first = 0, length = 0;
  };
  [[nodiscard]] const Span& span(int axis) const { return spans_[static_cast<std::size_t>(axis)]; }
  void set_span(int axis, Span span) { spans_[static_cast<std::size_t>(axis)] = span; }

  // Lays a value out anew for the current spans; all elements become undefined.
  void lay_out(int value, std::size_t points);
  [[nodiscard]] Storage& storage(int value) { return storages_[static_cast<std::size_t>(value)]; }
  [[nodiscard]] std::uint64_t next_tag() { return ++last_tag_; }

  // The node at the points; valid until the caller's Scratch ends.
  [[nodiscard]] Lanes evaluate(int node, const Points& points);

  // The terms of a reduction, for each of the points.
  [[nodiscard]] const Fold* fold(const Node& node, const Points& points);

  // The points at which `condition` (a node, or -1 for all) holds; `kept` receives their lanes if some do not.
  [[nodiscard]] Points restrict(const Points& points, int condition, const std::uint32_t** kept);

  // The points of some lanes.
  [[nodiscard]] Points subset(const Points& points, const std::uint32_t* lanes, std::size_t count);

  // Addresses of elements: `first[k] <= index[k] < first[k] + length[k]`, row-major; -1 and an error if outside.
  [[nodiscard]] const std::int64_t* addresses(const std::vector<int>& indices, const std::int64_t* first,
                                              const std::int64_t* length, std::size_t rank, const Points& points,
                                              SourceSpan span, const std::string& name, bool* shared);

  // From now on every error is made, of a random sign, instead of counted.
  void perturb(std::uint64_t seed) { noise_ = Random(seed); }
  [[nodiscard]] Number perturbed(Number number);
  // settle(), but for a perturbed run, whose numbers are those of the program and move no more.
  [[nodiscard]] Number settled(ScalarType type, Number number) const { return noise_ ? number : settle(type, number); }

  [[nodiscard]] Arena& arena() { return arena_; }
  void fail_once(SourceSpan span, std::string message);
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }

 private:
  Lanes evaluate_lanes(const Node& node, const Points& points);
  Lanes constant(const Node& node);
  Lanes access(const Node& node, const Points& points);
  Lanes local(const Node& node, const Points& points);
  Lanes call(const Node& node, const Points& points);
  Lanes convert(const Node& node, const Points& points);
  Lanes reduce(const Node& node, const Points& points);
  Points pairs(const Node& node, const Points& outer, std::size_t lane, std::size_t lanes, std::size_t first,
               std::size_t count);

  const Program& program_;
  const Inputs& inputs_;
  std::vector<Span> spans_;
  std::vector<Storage> storages_;
  std::uint64_t last_tag_ = 0;
  std::optional<Random> noise_;
  Arena arena_;
  std::optional<Error> error_;
};

// The call `node` on `count` lanes (maps.cpp).
[[nodiscard]] Lanes map_lanes(const Node& node, const Lanes* operands, std::size_t count, Arena& arena);

}  // namespace pipethreader::oracle
