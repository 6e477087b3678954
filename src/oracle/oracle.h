// The oracle: plain f64 evaluation of a checked kernel at concrete sizes, the judge of everything the compiler makes.
// It sees the kernel only (kernel/ and base/) and shares no code with the compiler.
//
// Meaning. The kernel is evaluated as written, statement by statement, for one given partition of its loops into
// tiles. Numbers are f64; they are rounded only where the kernel says so: at written conversions, at the declared
// types of values, and at stores.
//
// Bounds. Every element carries an absolute forward error bound: how far a correct program may be from the oracle's
// number if it evaluates the un-rounded parts in their own types (f32 for most), sums in any order of additions, with
// the approximate functions of a GPU (error_model.h states every constant). The bound is for programs that walk the
// same number of tiles as the oracle did, or fewer: rescaling a carried state rounds once a tile. Where a condition on
// data lies within its error, both outcomes are allowed: the bound covers the distance between the branches.
// Conversions of numbers that depend on the partition for more than their rounding (what a loop makes of its state
// while it runs; sums relative to a stale maximum until that divides out) are given a whole step of their type; other
// conversions only what their error can flip.
//
// What it never does: accept an access outside a tensor, or the use of a value at a point where it is undefined. Both
// are errors that name the place.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/diagnostic.h"
#include "kernel/kernel.h"

namespace pipethreader::oracle {

// A dense row-major tensor; the values are exact in the tensor's element type.
struct TensorData {
  std::vector<std::int64_t> shape;
  std::vector<double> values;
};

struct Inputs {
  std::vector<std::int64_t> sizes;  // by DimId, every dim
  std::vector<TensorData> tensors;  // by TensorId; entries of outputs are ignored and may be missing
  std::vector<double> scalars;      // by ScalarId
};

// The values of all elements, row-major, or of the elements that a sample wrote.
struct OutputTensor {
  kernel::TensorId tensor;
  std::string name;
  ScalarType type = ScalarType::f32;
  std::vector<std::int64_t> shape;
  std::optional<std::vector<std::int64_t>> sample;  // which elements there are, ascending; none: all
  std::vector<double> values;
  std::vector<double> bounds;         // infinite: nothing can be said
  std::vector<std::uint8_t> written;  // 0 where no store went; of a sample: 1

  [[nodiscard]] std::int64_t element(std::size_t place) const {
    return sample ? (*sample)[place] : static_cast<std::int64_t>(place);
  }
};

struct Outputs {
  std::vector<OutputTensor> tensors;  // in the order of the kernel's outputs
};

// How a loop's range is cut into tiles and walked.
struct LoopTiles {
  enum class Kind : std::uint8_t { one, whole, fixed, ragged };  // tiles of 1, one tile, tiles of `size`, random sizes
  Kind kind = Kind::whole;
  std::int64_t size = 1;   // fixed
  bool shuffle = false;    // walk the tiles in a random order; ignored when the loop is `ordered`
  bool split = false;      // two partial states, then `combine`; ignored when the loop names no `combine`
  std::uint64_t seed = 0;  // of ragged sizes and random orders
};

struct Partition {
  LoopTiles loops;                                            // every loop without an entry below
  std::vector<std::pair<kernel::AxisId, LoopTiles>> by_axis;  // streamed axes with tiles of their own

  [[nodiscard]] static Partition whole() { return {}; }
  [[nodiscard]] static Partition one() { return {{.kind = LoopTiles::Kind::one}, {}}; }
  [[nodiscard]] static Partition fixed(std::int64_t size) {
    return {{.kind = LoopTiles::Kind::fixed, .size = size}, {}};
  }
  [[nodiscard]] static Partition ragged(std::uint64_t seed) {
    return {{.kind = LoopTiles::Kind::ragged, .seed = seed}, {}};
  }
};

// Which points of the parallel axes to evaluate: all, or `points` of them (the first, the last, and random ones). For
// problems that are too large to judge whole: time and memory are those of the points, however large the outputs are.
struct Sample {
  std::int64_t points = 0;  // 0: all
  std::uint64_t seed = 0;
};

[[nodiscard]] Result<Outputs> evaluate(const kernel::Kernel& kernel, const Inputs& inputs, const Partition& partition,
                                       const Sample& sample = {});

// One run of an imaginary program: wherever the error model allows a rounding error, one of the largest allowed size is
// made, of a random sign. Its outputs must be within the bounds of evaluate(), which is how the bounds are tested.
// The bounds it returns mean nothing.
[[nodiscard]] Result<Outputs> evaluate_perturbed(const kernel::Kernel& kernel, const Inputs& inputs,
                                                 const Partition& partition, std::uint64_t seed);

// The shape of a tensor at the given sizes.
[[nodiscard]] std::vector<std::int64_t> shape_of(const kernel::Kernel& kernel, kernel::TensorId tensor,
                                                 const std::vector<std::int64_t>& sizes);

// --- random inputs ---------------------------------------------------------------------------------------------------

// Where the values of one tensor or scalar are drawn from. Integers are drawn from the whole numbers in [low, high].
struct Range {
  std::string name;
  double low = -1;
  double high = 1;
};

// Uniform in [-1, 1] for floating tensors, [0.1, 1] for floating scalars, small whole numbers for integers, unless
// `ranges` names the parameter. Rounded to the element type. The same seed gives the same inputs everywhere.
// Sizes that do not fit `require` or negative sizes are errors of the caller's, found by evaluate().
[[nodiscard]] Result<Inputs> random_inputs(const kernel::Kernel& kernel, const std::vector<std::int64_t>& sizes,
                                           std::uint64_t seed, const std::vector<Range>& ranges = {});

// --- the one comparison ----------------------------------------------------------------------------------------------

struct Mismatch {
  std::string tensor;
  std::vector<std::int64_t> index;
  double actual = 0;
  double expected = 0;
  double bound = 0;
};

struct Report {
  std::int64_t compared = 0;   // elements compared
  std::int64_t wrong = 0;      // of those: |actual - expected| > bound, or NaN or infinity that does not match
  std::int64_t undefined = 0;  // NaN on both sides: right, but it may not be what was meant
  std::int64_t unbounded = 0;  // elements with an infinite bound: accepted, but they prove nothing
  std::int64_t unwritten = 0;  // elements that the kernel stores nothing to: not compared
  double largest_share = 0;    // the largest |actual - expected| / bound of all finite bounds that are not 0; above 1
                               // where elements are wrong
  std::optional<Mismatch> worst;  // the wrong element farthest outside its bound, relative to the bound
  [[nodiscard]] bool ok() const { return wrong == 0; }
  [[nodiscard]] std::string format() const;  // one line
};

// `actual` holds one array per output tensor, in the order of expected.tensors: of the elements that are expected, and
// no others, values of the tensor's type.
[[nodiscard]] Result<Report> compare(const Outputs& expected, const std::vector<std::vector<double>>& actual);

// --- independence of the partition -----------------------------------------------------------------------------------

// Evaluates tiles of 1, the whole, ragged and fixed partitions, permitted orders and `combine`, and compares each pair
// of outputs within the sum of their bounds. The error names the partition and the worst element.
[[nodiscard]] Result<void> check_partition_independence(const kernel::Kernel& kernel, const Inputs& inputs,
                                                        std::uint64_t seed);

}  // namespace pipethreader::oracle
