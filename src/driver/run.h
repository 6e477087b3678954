// Executes a plan, in the interpreter or on a card, and judges what it computed by the oracle.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "driver/plan.h"
#include "interpret/interpret.h"
#include "oracle/oracle.h"
#include "runtime/driver.h"

namespace pipethreader::driver {

// What the host holds of a run's tensors, element by element as f64: all, or only inputs where some elements of the
// outputs are enough.
enum class Held : std::uint8_t { all, inputs };

// A size for every dim: those fixed in the kernel, and `sizes` for the dynamic ones. Missing, unknown and contradicting
// ones are errors that name the dim. What `require` demands is checked, and that the machine's memory holds the
// tensors.
[[nodiscard]] Result<std::vector<std::int64_t>> all_sizes(const kernel::Kernel& kernel,
                                                          const std::vector<kernel::Binding>& sizes,
                                                          Held held = Held::all);

// Outputs in the kernel's order of outputs, whole or some elements; those that nothing wrote are NaN.
using OutputValues = std::vector<std::vector<double>>;

struct CpuRun {
  OutputValues outputs;
  std::size_t variant = 0;
  interpret::RunReport report;
};
[[nodiscard]] Result<CpuRun> run_cpu(const Plan& plan, const kernel::Kernel& kernel, const oracle::Inputs& inputs,
                                     const interpret::RunOptions& options = {});

// A plan on a card with its tensors: uploaded once, launched any number of times.
class GpuRun {
 public:
  [[nodiscard]] static Result<GpuRun> prepare(const runtime::Gpu& gpu, const Plan& plan, const kernel::Kernel& kernel,
                                              const oracle::Inputs& inputs);

  // Another plan of the same kernel over the same tensors; the inputs are those of before.
  [[nodiscard]] Result<void> take(const runtime::Gpu& gpu, const Plan& plan, const kernel::Kernel& kernel,
                                  const oracle::Inputs& inputs);

  // Whether there is any work; without, launch() does nothing.
  [[nodiscard]] bool has_work() const { return !launches_.empty(); }
  [[nodiscard]] std::size_t variant() const { return variant_; }
  [[nodiscard]] Result<void> launch(const runtime::Gpu& gpu, const runtime::Stream& stream);
  [[nodiscard]] Result<void> poison();  // every byte of the outputs becomes 0xff
  [[nodiscard]] Result<OutputValues> outputs() const;
  // Only the elements that `expected` has; what lies between is not copied from the card.
  [[nodiscard]] Result<OutputValues> outputs_at(const oracle::Outputs& expected) const;
  [[nodiscard]] std::uint64_t address(kernel::TensorId tensor) const;

 private:
  struct Tensor {
    std::string name;
    runtime::DeviceBuffer buffer;
    ScalarType type = ScalarType::f32;
    std::size_t elements = 0;
    bool output = false;
  };
  struct Launch {
    runtime::Function function;
    runtime::LaunchConfig config;
    runtime::KernelArguments arguments;
    runtime::DeviceBuffer counter;
  };
  Result<void> add_launch(const runtime::Gpu& gpu, const Variant& variant, const kernel::Kernel& kernel,
                          const oracle::Inputs& inputs);
  Result<void> bind(const runtime::Gpu& gpu, const Variant& variant, const std::vector<double>& params, Launch& launch);
  Result<void> add_workspace(const runtime::Gpu& gpu, const program::Program& program,
                             const std::vector<double>& params);
  [[nodiscard]] static Result<std::vector<double>> all_of(const Tensor& tensor);
  [[nodiscard]] const Tensor* named(const std::string& name) const;

  std::vector<Tensor> tensors_;    // by TensorId
  std::vector<Tensor> workspace_;  // what one launch leaves for the next
  std::vector<Launch> launches_;   // one after the other
  std::size_t variant_ = 0;
};

// The first card; an error says what is missing. `hopper`: its machine code can run there.
[[nodiscard]] Result<runtime::Gpu> open_gpu(int ordinal = 0);

struct Check {
  oracle::Report report;
  std::int64_t sampled_points = 0;  // 0: everything was compared; else what lies outside the sample is not counted
  bool cause_unknown = false;       // results are wrong, and the problem is too large to look for the cause
  std::string cause;                // that the kernel itself gives other results for other tiles, where that was found

  [[nodiscard]] bool ok() const { return report.ok() && cause.empty(); }

  // One line, and one for the cause of wrong results; of right ones, for why they are so at these sizes only.
  [[nodiscard]] std::string format() const;
};

// What is right for one kernel and its inputs: evaluated once, for any number of outputs. Small problems are evaluated
// whole, large ones at sampled points of the parallel axes, so that it takes seconds.
class Expected {
 public:
  // `budget`: about how many scalar operations. The kernel and the inputs must outlive the result.
  [[nodiscard]] static Result<Expected> evaluate(const kernel::Kernel& kernel, const oracle::Inputs& inputs,
                                                 std::uint64_t seed, double budget = 6e8);

  [[nodiscard]] const oracle::Outputs& outputs() const { return outputs_; }
  // `values`: of the elements that outputs() has, as GpuRun::outputs_at gives them.
  [[nodiscard]] Result<Check> check(const OutputValues& values);

 private:
  Expected(const kernel::Kernel& kernel, const oracle::Inputs& inputs, std::uint64_t seed, double budget)
      : kernel_(&kernel), inputs_(&inputs), seed_(seed), budget_(budget) {}
  const std::string& cause();

  const kernel::Kernel* kernel_;
  const oracle::Inputs* inputs_;
  std::uint64_t seed_;
  double budget_;
  double operations_ = 0;
  std::int64_t sampled_points_ = 0;
  oracle::Outputs outputs_;
  std::optional<std::string> cause_;  // once it was looked for; empty: none was found
};

// One check of whole outputs.
[[nodiscard]] Result<Check> check(const kernel::Kernel& kernel, const oracle::Inputs& inputs,
                                  const OutputValues& outputs, std::uint64_t seed, double budget = 6e8);

// Scalar operations of one evaluation, and the points of the parallel axes that share them.
struct Work {
  double operations = 0;
  double points = 1;
};
[[nodiscard]] Work work_of(const kernel::Kernel& kernel, const std::vector<std::int64_t>& sizes);

// Multiplications and additions of the kernel's products over the points that the loops' `where` leaves, a causal half
// for example; nothing when those depend on data. What a reduction's own `where` excludes counts, as padding does
// elsewhere.
[[nodiscard]] std::optional<double> product_flops(const kernel::Kernel& kernel, const std::vector<std::int64_t>& sizes);

}  // namespace pipethreader::driver
