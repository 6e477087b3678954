// Finding the run-time compiler in made-up directories, and compiling with the real one where it is installed.
#include "runtime/nvrtc.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/kernel_cache.h"

namespace pipethreader::runtime {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class NvrtcSearching : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("pipethreader-nvrtc-{}", getpid());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Finding looks at names only.
  std::string library(const std::string& path) const {
    const fs::path file = folder_ / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << path;
    return file.string();
  }
  // Only what the test made.
  [[nodiscard]] NvrtcSearch search() const {
    NvrtcSearch s;
    s.toolkit_roots = {(folder_ / "cuda").string()};
    s.loader = false;
    s.environments = {(folder_ / "venv").string()};
    s.python = "";
    return s;
  }
  static std::string found(const NvrtcSearch& s) {
    const auto location = locate_nvrtc(s);
    return location ? location->path : location.error().format();
  }

  fs::path folder_;
};

TEST_F(NvrtcSearching, TakesTheExplicitLibraryOrNothing) {
  NvrtcSearch s = search();
  library("cuda/lib64/libnvrtc.so.13");
  s.library = library("mine/libnvrtc.so.12");
  EXPECT_EQ(found(s), s.library);
  s.library = (folder_ / "mine").string();
  EXPECT_EQ(found(s), (folder_ / "mine/libnvrtc.so.12").string());
  s.library = (folder_ / "none.so").string();
  EXPECT_THAT(found(s), AllOf(HasSubstr("there is no NVRTC library"), HasSubstr("none.so")));
  fs::create_directories(folder_ / "empty");
  s.library = (folder_ / "empty").string();
  EXPECT_THAT(found(s), HasSubstr("holds no libnvrtc.so.12 or newer"));
}

TEST_F(NvrtcSearching, ToolkitsComeBeforeWheelsAndNewerBeforeOlder) {
  const std::string wheel12 = library("venv/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  EXPECT_EQ(found(search()), wheel12);
  const std::string wheel13 = library("venv/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
  EXPECT_EQ(found(search()), wheel13);
  const std::string old = library("cuda-12.8/lib64/libnvrtc.so.12");
  EXPECT_EQ(found(search()), old);
  const std::string newer = library("cuda-12.10/targets/x86_64-linux/lib/libnvrtc.so.12");
  EXPECT_EQ(found(search()), newer);
  library("cuda/lib64/libnvrtc.so.11.2");
  library("cuda/lib64/libnvrtc-builtins.so.13.0");
  EXPECT_EQ(found(search()), newer) << "11 is too old, and the builtins are no compiler";
  library("cuda/lib64/libnvrtc.so.12.3.1");
  const std::string newest = library("cuda/lib64/libnvrtc.so.13");
  EXPECT_EQ(found(search()), newest);
}

TEST_F(NvrtcSearching, AsksPythonForItsPackages) {
  const std::string wheel = library("site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  const fs::path python = folder_ / "it's python";  // the shell must not trip over it
  std::ofstream(python) << "#!/bin/sh\necho " << (folder_ / "nothing").string() << "\necho "
                        << (folder_ / "site").string() << "\n";
  chmod(python.c_str(), 0755);
  NvrtcSearch s = search();
  s.python = python.string();
  EXPECT_EQ(found(s), wheel);
}

TEST_F(NvrtcSearching, AMissingCompilerSaysWhereItLookedAndWhatToInstall) {
  NvrtcSearch s = search();
  s.python = (folder_ / "no-python").string();
  EXPECT_THAT(found(s), AllOf(HasSubstr("NVRTC, the CUDA run-time compiler, was not found"),
                              HasSubstr((folder_ / "cuda/lib64").string()), HasSubstr((folder_ / "venv").string()),
                              HasSubstr("no-python (it did not run)"), HasSubstr("pip install nvidia-cuda-nvrtc")));
}

TEST_F(NvrtcSearching, AnotherLibraryChangesTheIdentity) {
  NvrtcSearch s = search();
  const std::string path = library("cuda/lib64/libnvrtc.so.13");
  const std::string first = locate_nvrtc(s)->identity;
  EXPECT_EQ(locate_nvrtc(s)->identity, first);
  std::ofstream(path) << "another build";
  EXPECT_NE(locate_nvrtc(s)->identity, first);
}

TEST_F(NvrtcSearching, AFileThatIsNoLibraryIsAnError) {
  NvrtcSearch s = search();
  s.library = library("libnvrtc.so.13");
  auto opened = Nvrtc::open(s);
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().format(), HasSubstr("cannot open the library"));
  s.library = "/lib/x86_64-linux-gnu/libm.so.6";
  if (!fs::exists(s.library)) GTEST_SKIP() << "no " << s.library;
  opened = Nvrtc::open(s);
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().format(), HasSubstr("is no NVRTC"));
}

class NvrtcCompiling : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = Nvrtc::open();
    if (!opened) GTEST_SKIP() << opened.error().format();
    nvrtc_ = std::move(*opened);
  }
  Nvrtc nvrtc_;
};

CompileRequest request_of(std::string source, std::string name = "kernel.cu") {
  CompileRequest request;
  request.name = std::move(name);
  request.source = std::move(source);
  return request;
}

std::string scaling_kernel(int factor) {
  return fmt::format(
      "extern \"C\" __global__ void scale_{0}(float* x) {{\n"
      "  __shared__ float s[100];\n"
      "  s[threadIdx.x % 100] = x[threadIdx.x];\n"
      "  __syncthreads();\n"
      "  x[threadIdx.x] = {0}.0f * s[99 - threadIdx.x % 100];\n"
      "}}\n",
      factor);
}

TEST_F(NvrtcCompiling, GivesACubinAndTheAssemblersReport) {
  const auto kernel = nvrtc_.compile(request_of(scaling_kernel(3)));
  ASSERT_TRUE(kernel) << kernel.error().format();
  EXPECT_EQ(std::memcmp(kernel->cubin.data(),
                        "\x7f"
                        "ELF",
                        4),
            0);
  ASSERT_EQ(kernel->report.functions.size(), 1u);
  const FunctionReport& f = kernel->report.functions.front();
  EXPECT_EQ(f.name, "scale_3");
  EXPECT_GT(f.registers, 4);
  EXPECT_EQ(f.static_shared_bytes, 400);
  EXPECT_FALSE(kernel->report.spills());
  EXPECT_FALSE(kernel->report.serialised);
  EXPECT_GT(kernel->seconds, 0);
  EXPECT_GE(nvrtc_.version().first, 12);
  EXPECT_THAT(nvrtc_.architectures(), ::testing::Contains("sm_90"));
}

TEST_F(NvrtcCompiling, TheCubinAloneTellsTheSame) {
  const std::string spilling =
      "extern \"C\" __global__ void __launch_bounds__(1024, 1) spilling(float* p) {\n"
      "  float a[200];\n"
      "#pragma unroll\n"
      "  for (int i = 0; i < 200; i++) a[i] = p[i * 1024 + threadIdx.x];\n"
      "  __syncthreads();\n"
      "#pragma unroll\n"
      "  for (int i = 0; i < 200; i++) p[i * 1024 + threadIdx.x] = a[i] * a[(i * 7) % 200];\n"
      "}\n";
  for (const std::string& source : {scaling_kernel(2), spilling}) {
    const auto kernel = nvrtc_.compile(request_of(source));
    ASSERT_TRUE(kernel) << kernel.error().format();
    const auto binary = read_cubin(kernel->cubin);
    ASSERT_TRUE(binary) << binary.error().format();
    EXPECT_EQ(binary->registers, kernel->report.registers);
    EXPECT_EQ(binary->stack_bytes, kernel->report.stack_bytes);
    ASSERT_EQ(binary->functions.size(), 1u);
    EXPECT_EQ(binary->functions[0].static_shared_bytes, kernel->report.functions[0].static_shared_bytes);
    if (source == spilling) {
      EXPECT_TRUE(kernel->report.spills());
      EXPECT_GT(binary->stack_bytes, 0);
    }
  }
}

// One tensor-core instruction of a warpgroup on four accumulators; `meddle` stands between issue and wait.
std::string tensor_core_kernel(const std::string& meddle) {
  return "extern \"C\" __global__ void mma(float* o, unsigned long long d) {\n"
         "  float a = 0, b = 0, c = 0, e = 0;\n"
         "  for (int i = 0; i < 4; ++i) {\n"
         "    asm volatile(\"wgmma.fence.sync.aligned;\" ::: \"memory\");\n"
         "    asm volatile(\"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3}, %4, %4, 1, 1, 1, 0, "
         "0;\"\n"
         "                 : \"+f\"(a), \"+f\"(b), \"+f\"(c), \"+f\"(e) : \"l\"(d));\n"
         "    asm volatile(\"wgmma.commit_group.sync.aligned;\" ::: \"memory\");\n" +
         meddle +
         "    asm volatile(\"wgmma.wait_group.sync.aligned 0;\" ::: \"memory\");\n"
         "  }\n"
         "  o[threadIdx.x] = a + b + c + e;\n"
         "}\n";
}

TEST_F(NvrtcCompiling, TouchingAnAccumulatorInFlightIsReported) {
  const auto clean = nvrtc_.compile(request_of(tensor_core_kernel("")));
  ASSERT_TRUE(clean) << clean.error().format();
  EXPECT_FALSE(clean->report.serialised) << clean->log;

  const auto touched = nvrtc_.compile(request_of(tensor_core_kernel("    a *= 1.5f; o[threadIdx.x] = a;\n")));
  ASSERT_TRUE(touched) << touched.error().format();
  EXPECT_TRUE(touched->report.serialised || touched->report.injected_waits) << touched->log;
  EXPECT_FALSE(touched->report.messages.empty());
}

TEST_F(NvrtcCompiling, AnErrorCarriesTheCompilersWords) {
  const auto kernel = nvrtc_.compile(request_of("extern \"C\" __global__ void k() { undeclared = 1; }", "faulty.cu"));
  ASSERT_FALSE(kernel);
  EXPECT_THAT(kernel.error().format(), AllOf(HasSubstr("faulty.cu: error: NVRTC"), HasSubstr("failed to compile"),
                                             HasSubstr("\"undeclared\" is undefined")));
  CompileRequest wrong = request_of(scaling_kernel(1));
  wrong.architecture = "sm_1";
  EXPECT_FALSE(nvrtc_.compile(wrong));
  wrong.architecture = "compute_90a";
  const auto no_cubin = nvrtc_.compile(wrong);
  ASSERT_FALSE(no_cubin);
  EXPECT_THAT(no_cubin.error().format(), HasSubstr("is the architecture a real one"));
}

TEST_F(NvrtcCompiling, ManyAtOnceComeBackInOrder) {
  std::vector<CompileRequest> requests;
  for (int i = 0; i < 12; ++i) requests.push_back(request_of(i == 5 ? "not C++" : scaling_kernel(i + 1)));
  std::size_t last = 0;
  std::set<std::size_t> reported;
  const auto results = nvrtc_.compile_all(requests, 4, [&](std::size_t done, std::size_t total, std::size_t index) {
    EXPECT_EQ(total, 12u);
    EXPECT_EQ(done, last + 1);
    last = done;
    reported.insert(index);
    return true;
  });
  EXPECT_EQ(last, 12u);
  EXPECT_EQ(reported.size(), 12u);
  ASSERT_EQ(results.size(), 12u);
  for (int i = 0; i < 12; ++i) {
    const auto& result = results[static_cast<std::size_t>(i)];
    ASSERT_EQ(result.has_value(), i != 5) << i;
    if (result) {
      EXPECT_EQ(result->report.functions.front().name, fmt::format("scale_{}", i + 1));
    }
  }
}

TEST_F(NvrtcCompiling, StoppingLeavesTheRestUndone) {
  std::vector<CompileRequest> requests(8, request_of(scaling_kernel(1)));
  const auto results =
      nvrtc_.compile_all(requests, 1, [](std::size_t done, std::size_t, std::size_t) { return done < 3; });
  EXPECT_EQ(std::count_if(results.begin(), results.end(), [](const auto& r) { return r.has_value(); }), 3);
  ASSERT_FALSE(results.back());
  EXPECT_THAT(results.back().error().format(), HasSubstr("stopped before its turn"));
}

TEST_F(NvrtcCompiling, TheSecondCompilationComesFromTheCache) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("pipethreader-nvrtc-cache-{}", getpid());
  const KernelCache cache(folder.string());
  const std::vector<CompileRequest> requests = {request_of(scaling_kernel(1)), request_of(scaling_kernel(2))};
  const auto first = compile_cached(nvrtc_, cache, requests[0]);
  ASSERT_TRUE(first) << first.error().format();
  EXPECT_FALSE(first->from_cache);
  EXPECT_EQ(first->warning, "");
  std::size_t calls = 0;
  const auto both =
      compile_all_cached(nvrtc_, cache, requests, 2, [&](std::size_t done, std::size_t total, std::size_t) {
        EXPECT_EQ(done, ++calls);
        EXPECT_EQ(total, 2u);
        return true;
      });
  ASSERT_TRUE(both[0] && both[1]);
  EXPECT_TRUE(both[0]->from_cache);
  EXPECT_FALSE(both[1]->from_cache);
  EXPECT_EQ(both[0]->kernel.cubin, first->kernel.cubin);
  EXPECT_EQ(both[0]->kernel.report, first->kernel.report);

  const auto uncached = compile_cached(nvrtc_, KernelCache("/dev/null/cache"), requests[0]);
  ASSERT_TRUE(uncached) << "a cache that cannot be written must not stop a compilation";
  EXPECT_THAT(uncached->warning, HasSubstr("compiled but not cached"));
  EXPECT_EQ(uncached->kernel.cubin, first->kernel.cubin) << "the compiler is deterministic";
  fs::remove_all(folder);
}

}  // namespace
}  // namespace pipethreader::runtime
