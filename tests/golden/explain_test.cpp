// The chart of a hand-made timeline and the table of candidates, as a person sees them. The timeline is fixed here, so
// that the cost model may change.
#include <gtest/gtest.h>

#include "driver/explain.h"
#include "task/graph.h"

namespace pipethreader::driver {
namespace {

using simulate::Span;
using task::UnitKind;

TEST(Gantt, ShowsEachUnitOfEachLane) {
  auto kernels = kernel::parse(
      "kernel f(A: f16[M,K], B: f16[N,K]) -> (C: f32[M,N]) {\n"
      "  parallel m: M, n: N;\n  carry c[m,n] = 0;\n"
      "  for k: K { c[m,n] += sum[k] A[m,k] * B[n,k]; }\n  C[m,n] = c[m,n];\n}\n",
      "");
  ASSERT_TRUE(kernels) << kernels.error().format();
  auto kernel = kernel::check((*kernels)[0]);
  ASSERT_TRUE(kernel) << kernel.error().format();
  const auto graph = task::build(*kernel);
  ASSERT_TRUE(graph) << graph.error().format();
  const auto find = [&](const std::string& name) {
    for (std::size_t i = 0; i < graph->tasks.size(); ++i) {
      if (simulate::task_name(*graph, task::TaskId(i)) == name) return task::TaskId(i);
    }
    ADD_FAILURE() << "no task " << name;
    return task::TaskId();
  };
  const task::TaskId product = find("mma c");
  const task::TaskId store = find("store C");
  simulate::Timeline timeline;
  timeline.lanes = {"copier", "computer.0", "computer.1"};
  const auto add = [&](int lane, UnitKind unit, task::TaskId task, std::int64_t n, double start, double end) {
    timeline.spans.push_back({Span::Kind::work, lane, unit, task, n, start, end});
  };
  add(1, UnitKind::tensor_core, product, 3, -50, 250);
  add(2, UnitKind::tensor_core, product, 3, 250, 500);
  add(1, UnitKind::tensor_core, product, 4, 500, 900);
  add(2, UnitKind::cuda_cores, store, -1, 600, 1000);
  add(2, UnitKind::cuda_cores, store, -1, 2000, 3000);  // outside
  add(0, UnitKind::copy_engine, product, 5, 0, 60);
  add(0, UnitKind::copy_engine, product, 5, 60, 140);
  add(0, UnitKind::copy_engine, product, 5, 140, 160);
  EXPECT_EQ(gantt(*graph, timeline, 0, 1000, 74),
            "  cycle                   |0          |250        |500        |750        \n"
            "  copier copies           [][==]|\n"
            "  computer.0 tensor       [mma c(3)==]            [mma c(4)=========]\n"
            "  computer.1 tensor                   [mma c(3)==]\n"
            "  computer.1 arithmetic                               [store C===========]\n");
}

TEST(Candidates, ComeWithWhatTheyLose) {
  Plan plan;
  plan.choices.partition.row = 192;
  Tried better, chosen, rejected;
  better.predicted_us = 90;
  better.verdict = "40 bytes of registers are spilled";
  chosen.choices = plan.choices;
  chosen.predicted_us = 100;
  chosen.bound = "busy units";
  chosen.verdict = "chosen";
  rejected.choices.partition.row = 64;
  rejected.verdict = "error: too large\n  hint: choose smaller tiles";
  plan.candidates = {better, chosen, rejected};
  const std::string rest = "column=128 stream=64 lanes=2 overlap=deferred depth=0 order=single: ";
  EXPECT_EQ(explain_candidates(plan),
            "  launch bound by busy units: the chosen one, all work items together\n"
            "     predicted    loses  choices: what became of them\n"
            "      100.0 us     0.0%  row=192 " +
                rest +
                "chosen\n"
                "       90.0 us   -10.0%  row=128 " +
                rest +
                "40 bytes of registers are spilled\n"
                "             -        -  row=64 " +
                rest + "error: too large\n");
}

}  // namespace
}  // namespace pipethreader::driver
