// What a user reads when the driver is missing, broken, too old or refuses. A driver of our own making stands in for
// the real one: it is compiled here, keeps "device memory" on the host, and fails where the environment tells it to.
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/driver.h"
#include "runtime/dynamic_library.h"

namespace pipethreader::runtime {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* no_driver = "libpipethreader-no-such-driver.so.1";

template <class T>
std::string error_of(const Result<T>& result) {
  return result ? "no error" : result.error().format();
}

TEST(NoDriver, OpeningAndCountingSayWhatIsMissingAndWhatStillWorks) {
  for (const std::string& error : {error_of(Gpu::open(0, no_driver)), error_of(Gpu::count(no_driver))}) {
    EXPECT_THAT(error,
                AllOf(HasSubstr("error: no CUDA driver: cannot open the library 'libpipethreader-no-such-driver"),
                      HasSubstr("hint: install the NVIDIA driver"), HasSubstr("interpreting need none")));
  }
}

TEST(NoDriver, AnotherLibraryIsNotTakenForOne) {
  const char* libm = "libm.so.6";
  if (!DynamicLibrary::open(libm)) GTEST_SKIP() << "no " << libm << " here";
  EXPECT_THAT(error_of(Gpu::open(0, libm)),
              AllOf(HasSubstr("the CUDA driver 'libm.so.6' has no function 'cuInit'"), HasSubstr("driver 525")));
}

TEST(NoDriver, TheToolkitsStubIsNamed) {
  const char* stub = "/usr/local/cuda/lib64/stubs/libcuda.so";
  if (!fs::exists(stub)) GTEST_SKIP() << "no toolkit with a stub driver at " << stub;
  EXPECT_THAT(error_of(Gpu::open(0, stub)), AllOf(HasSubstr("failed to start"), HasSubstr("stub")));
}

TEST(NoDriver, TheRealOneEitherWorksOrSaysWhy) {
  const auto gpu = Gpu::open(0);
  if (!gpu) {
    EXPECT_THAT(error_of(gpu), HasSubstr("hint: "));
  }
}

// Every function succeeds by default, or returns the code that FAKE_CUDA="cuInit=100 cuMemAlloc_v2=2" gives it.
constexpr const char* defaults_source = R"(
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
struct LaunchRecord;
int code_of(const char* symbol) {
  const char* plan = std::getenv("FAKE_CUDA");
  const char* at = plan ? std::strstr(plan, symbol) : nullptr;
  return at && at[std::strlen(symbol)] == '=' ? std::atoi(at + std::strlen(symbol) + 1) : 0;
}
#define PT_DRIVER(member, symbol, parameters)                                   \
  extern "C" int fake_##member parameters __asm__(symbol);                      \
  extern "C" __attribute__((weak)) int fake_##member parameters { return code_of(symbol); }
#define PT_DRIVER_OPTIONAL PT_DRIVER
#include "runtime/driver_functions.def"
)";

// Those whose results matter.
constexpr const char* special_source = R"(
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
int code_of(const char* symbol);
extern "C" {
int cuGetErrorName(int code, const char** text) {
  *text = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : code == 100 ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_OTHER";
  return code == 777 ? 1 : 0;
}
int cuGetErrorString(int code, const char** text) {
  *text = code == 2 ? "out of memory" : "some description";
  return code == 777 ? 1 : 0;
}
int cuDeviceGetCount(int* count) {
  const char* n = std::getenv("FAKE_DEVICES");
  *count = n ? std::atoi(n) : 1;
  return code_of("cuDeviceGetCount");
}
int cuDeviceGetName(char* text, int, int) { std::strcpy(text, "Fake H100"); return 0; }
int cuDeviceTotalMem_v2(size_t* bytes, int) { *bytes = 1u << 30; return 0; }
int cuDriverGetVersion(int* version) { *version = 12080; return 0; }
int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 16 ? 132 : attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 97 ? 232448
         : attribute == 13 ? 1980000 : 1;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int) { static int it; *context = &it; return code_of("cuDevicePrimaryCtxRetain"); }
int fake_allocations = 0;
int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  if (int code = code_of("cuMemAlloc_v2")) return code;
  ++fake_allocations;
  *address = reinterpret_cast<uint64_t>(std::malloc(bytes));
  return 0;
}
int cuMemFree_v2(uint64_t address) { --fake_allocations; std::free(reinterpret_cast<void*>(address)); return 0; }
int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t n) { std::memcpy(reinterpret_cast<void*>(to), from, n); return 0; }
int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t n) { std::memcpy(to, reinterpret_cast<void*>(from), n); return 0; }
int cuMemsetD16_v2(uint64_t to, unsigned short v, size_t n) { while (n--) reinterpret_cast<unsigned short*>(to)[n] = v; return 0; }
int cuModuleGetFunction(void** function, void*, const char* name) {
  static int it;
  *function = &it;
  return std::strcmp(name, "kernel") == 0 ? 0 : 500;
}
int cuModuleGetFunctionCount(unsigned* n, void*) { *n = 2; return 0; }
int cuModuleEnumerateFunctions(void** f, unsigned, void*) { static char two[2]; f[0] = two; f[1] = two + 1; return 0; }
int cuFuncGetName(const char** name, void* f) { static int calls; (void)f; *name = calls++ % 2 ? "other" : "kernel"; return 0; }
int fake_shared = 0, fake_non_portable = 0;
int cuFuncSetAttribute(void*, int attribute, int value) {
  if (attribute == 8) fake_shared = value;
  if (attribute == 14) fake_non_portable = value;
  return 0;
}
struct Attribute { int id; int pad; union { uint64_t all[8]; unsigned cluster[3]; int flag; } value; };
struct Record { unsigned grid[3], block[3], shared; void* stream; Attribute* attributes; unsigned count; };
unsigned fake_launch[16];
unsigned char fake_arguments[2][128];
int fake_aligned = 0;
int cuLaunchKernelEx(const Record* r, void*, void** parameters, void**) {
  if (int code = code_of("cuLaunchKernelEx")) return code;
  std::memset(fake_launch, 0, sizeof(fake_launch));
  std::memcpy(fake_launch, r->grid, 28);
  fake_launch[7] = r->count;
  for (unsigned i = 0; i < r->count; ++i) {
    if (r->attributes[i].id == 4) std::memcpy(fake_launch + 8, r->attributes[i].value.cluster, 12);
    if (r->attributes[i].id == 6) fake_launch[11] = r->attributes[i].value.flag;
  }
  fake_aligned = reinterpret_cast<uint64_t>(parameters[0]) % 64 == 0 && reinterpret_cast<uint64_t>(parameters[1]) % 64 == 0;
  std::memcpy(fake_arguments[0], parameters[0], 128);
  std::memcpy(fake_arguments[1], parameters[1], 4);
  return 0;
}
int cuTensorMapEncodeTiled(unsigned char* map, int type, unsigned rank, void* base, const uint64_t* sizes, const uint64_t* strides,
                           const unsigned* box, const unsigned* element_strides, int interleave, int swizzle, int l2, int fill) {
  if (reinterpret_cast<uint64_t>(map) % 64) return 716;
  const uint64_t all[] = {uint64_t(type), rank, reinterpret_cast<uint64_t>(base), sizes[0], sizes[1], strides[0], box[0], box[1],
                          element_strides[1], uint64_t(interleave), uint64_t(swizzle), uint64_t(l2), uint64_t(fill)};
  std::memcpy(map, all, sizeof(all));
  return code_of("cuTensorMapEncodeTiled");
}
int cuEventElapsedTime(float* ms, void*, void*) { static float next; *ms = ++next; return 0; }
}
)";

class FakeDriver : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new fs::path(fs::temp_directory_path() / fmt::format("pipethreader-driver-{}", getpid()));
    fs::create_directories(*folder_);
    std::ofstream(*folder_ / "defaults.cpp") << defaults_source;
    std::ofstream(*folder_ / "special.cpp") << special_source;
    library_ = (*folder_ / "libfakecuda.so").string();
    const std::string command =
        fmt::format("cd '{}' && c++ -std=c++17 -shared -fPIC -w -I'{}/src' defaults.cpp special.cpp -o {} 2>&1",
                    folder_->string(), PIPETHREADER_SOURCE_DIR, library_);
    has_compiler_ = std::system("command -v c++ >/dev/null") == 0;
    built_ = has_compiler_ && std::system(command.c_str()) == 0;
  }
  static void TearDownTestSuite() {
    fs::remove_all(*folder_);
    delete folder_;
  }
  void SetUp() override {
    if (!has_compiler_) GTEST_SKIP() << "no C++ compiler named c++ here to build the stand-in driver with";
    ASSERT_TRUE(built_) << "the stand-in driver does not compile";
  }
  void TearDown() override {
    unsetenv("FAKE_CUDA");
    unsetenv("FAKE_DEVICES");
  }

  static void plan(const char* failures) { setenv("FAKE_CUDA", failures, 1); }
  static Gpu gpu() {
    auto opened = Gpu::open(0, library_);
    EXPECT_TRUE(opened) << error_of(opened);
    return std::move(*opened);
  }
  template <class T>
  static T* peek(const char* variable) {
    return static_cast<T*>(DynamicLibrary::open(library_)->symbol(variable));
  }

  static inline fs::path* folder_ = nullptr;
  static inline std::string library_;
  static inline bool has_compiler_ = false;
  static inline bool built_ = false;
};

constexpr std::array<std::byte, 4> image = {std::byte{1}};

TEST_F(FakeDriver, EachFailureOfOpeningIsTold) {
  plan("cuInit=100");
  EXPECT_THAT(
      error_of(Gpu::open(0, library_)),
      AllOf(HasSubstr("the CUDA driver failed to start: CUDA_ERROR_NO_DEVICE"), HasSubstr("CUDA_VISIBLE_DEVICES")));
  plan("cuInit=803");
  EXPECT_THAT(error_of(Gpu::open(0, library_)), HasSubstr("different versions"));
  plan("cuInit=777");
  EXPECT_THAT(error_of(Gpu::open(0, library_)), HasSubstr("unknown error (no description, code 777)"));
  plan("cuDevicePrimaryCtxRetain=46");
  EXPECT_THAT(error_of(Gpu::open(0, library_)), AllOf(HasSubstr("make a context"), HasSubstr("exclusively")));
  plan("cuDeviceGetCount=3");
  EXPECT_THAT(error_of(Gpu::count(library_)), HasSubstr("count the GPUs"));
  plan("");
  setenv("FAKE_DEVICES", "0", 1);
  EXPECT_THAT(error_of(Gpu::open(0, library_)), HasSubstr("the CUDA driver sees no GPU"));
  EXPECT_EQ(Gpu::count(library_).value(), 0);
  setenv("FAKE_DEVICES", "2", 1);
  EXPECT_THAT(error_of(Gpu::open(2, library_)), HasSubstr("there is no GPU 2: the driver sees 2, numbered from 0"));
  EXPECT_THAT(error_of(Gpu::open(-1, library_)), HasSubstr("there is no GPU -1"));
}

TEST_F(FakeDriver, PropertiesAreRead) {
  const Gpu device = gpu();
  const GpuProperties& p = device.properties();
  EXPECT_EQ(p.name, "Fake H100");
  EXPECT_EQ(p.sm_count, 132);
  EXPECT_EQ(p.compute_major, 9);
  EXPECT_EQ(p.peak_clock_mhz, 1980);
  EXPECT_EQ(p.shared_bytes_per_block, 232448);
  EXPECT_EQ(p.memory_bytes, 1 << 30);
}

TEST_F(FakeDriver, MemoryIsCopiedBoundedAndFreed) {
  int* allocations = peek<int>("fake_allocations");
  ASSERT_EQ(*allocations, 0);
  {
    DeviceBuffer survivor;
    {
      const Gpu device = gpu();
      const std::array<std::byte, 6> host = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
      auto buffer = device.upload(host);
      ASSERT_TRUE(buffer) << error_of(buffer);
      std::array<std::byte, 6> back{};
      ASSERT_TRUE(buffer->download(back));
      EXPECT_EQ(back, host);
      ASSERT_TRUE(buffer->fill_pattern(0x7fff, 2));
      ASSERT_TRUE(buffer->download(std::span(back).first(2), 4));
      EXPECT_EQ(back[0], std::byte{0xff});
      EXPECT_EQ(back[1], std::byte{0x7f});
      EXPECT_THAT(error_of(buffer->download(back, 1)),
                  HasSubstr("cannot download 6 bytes at offset 1 of a device buffer of 6"));
      EXPECT_THAT(error_of(buffer->upload(host, ~std::size_t{0})), HasSubstr("cannot upload"));
      EXPECT_THAT(error_of(buffer->fill_pattern(0, 4)), HasSubstr("6 bytes cannot be filled with a pattern of 4"));
      EXPECT_THAT(error_of(buffer->fill_pattern(0, 3)), HasSubstr("not 3"));
      survivor = std::move(*buffer);
      EXPECT_EQ(buffer->bytes(), 0u);
      EXPECT_THAT(error_of(buffer->upload(host)), HasSubstr("never allocated"));
    }
    EXPECT_EQ(*allocations, 1) << "a buffer outlives its Gpu";
    EXPECT_EQ(survivor.bytes(), 6u);
  }
  EXPECT_EQ(*allocations, 0);
  plan("cuMemAlloc_v2=2");
  EXPECT_THAT(error_of(gpu().allocate(123456)),
              AllOf(HasSubstr("allocate 123456 bytes on the GPU: CUDA_ERROR_OUT_OF_MEMORY (out of memory"),
                    HasSubstr("smaller sizes")));
}

TEST_F(FakeDriver, ALaunchHandsOverItsShapeClusterAndArguments) {
  const Gpu device = gpu();
  const auto function = device.load(image)->function("kernel");
  ASSERT_TRUE(function) << error_of(function);
  std::array<unsigned char, 128> blob{};
  for (std::size_t i = 0; i < blob.size(); ++i) blob[i] = static_cast<unsigned char>(i);
  KernelArguments arguments;
  arguments.add(blob).add(std::int32_t{-5});
  LaunchConfig config;
  config.grid = {32, 2, 1};
  config.block = {384, 1, 1};
  config.cluster = {16, 1, 1};
  config.dynamic_shared_bytes = 200'000;
  config.programmatic_serialization = true;
  const auto launched = device.launch(*function, config, arguments, Stream());
  ASSERT_TRUE(launched) << error_of(launched);
  const unsigned* seen = peek<unsigned>("fake_launch");
  EXPECT_THAT(std::vector<unsigned>(seen, seen + 12),
              ::testing::ElementsAre(32, 2, 1, 384, 1, 1, 200'000, 2, 16, 1, 1, 1));
  EXPECT_EQ(*peek<int>("fake_aligned"), 1);
  EXPECT_EQ(*peek<int>("fake_shared"), 200'000);
  EXPECT_EQ(*peek<int>("fake_non_portable"), 1);
  const unsigned char* sent = peek<unsigned char>("fake_arguments");
  EXPECT_EQ(std::memcmp(sent, blob.data(), 128), 0);
  std::int32_t number = 0;
  std::memcpy(&number, sent + 128, 4);
  EXPECT_EQ(number, -5);
}

TEST_F(FakeDriver, AnImpossibleLaunchIsRefusedBeforeOrByTheDriver) {
  const Gpu device = gpu();
  const Module module = device.load(image).value();
  const Function function = module.function("kernel").value();
  KernelArguments arguments;
  arguments.add(0).add(0);
  const auto launch = [&](LaunchConfig config) {
    return error_of(device.launch(function, config, arguments, Stream()));
  };
  EXPECT_THAT(launch({.grid = {3, 1, 1}, .cluster = {2, 1, 1}}),
              HasSubstr("a grid of 3x1x1 blocks, no multiple of its cluster of 2x1x1"));
  EXPECT_THAT(launch({.grid = {0, 1, 1}}), HasSubstr("empty extent: grid 0x1x1"));
  EXPECT_THAT(launch({.dynamic_shared_bytes = 232449}),
              HasSubstr("asks for 232449 bytes of dynamic shared memory; a block on Fake H100 can have 232448"));
  plan("cuLaunchKernelEx=701");
  EXPECT_THAT(
      launch({.grid = {7, 1, 1}, .block = {1024, 1, 1}}),
      AllOf(HasSubstr("launch the kernel 'kernel' with grid 7x1x1, block 1024x1x1"), HasSubstr("than an SM has")));
  plan("cuCtxSynchronize=700");
  EXPECT_THAT(error_of(device.synchronize()), AllOf(HasSubstr("finish the work"), HasSubstr("compute-sanitizer")));
}

TEST_F(FakeDriver, AMissingKernelListsThoseThereAre) {
  const Gpu device = gpu();
  const Module module = device.load(image).value();
  EXPECT_THAT(error_of(module.function("nonesuch")),
              AllOf(HasSubstr("find the kernel 'nonesuch'"), HasSubstr("hint: the binary holds kernel, other")));
  EXPECT_THAT(error_of(device.load({})), HasSubstr("empty binary"));
  plan("cuModuleLoadData=209");
  EXPECT_THAT(error_of(device.load(image)),
              AllOf(HasSubstr("on Fake H100 (sm_90)"), HasSubstr("another architecture")));
}

TEST_F(FakeDriver, ATensorMapIsEncodedAsDescribed) {
  TensorMapDescription d;
  d.type = ScalarType::bf16;
  d.base = 4096;
  d.sizes = {64, 100};
  d.byte_strides = {128};
  d.box = {32, 16};
  d.swizzle = TensorSwizzle::bytes_64;
  d.l2_promotion = L2Promotion::bytes_128;
  d.fill = OutOfBoundsFill::nan;
  const auto map = gpu().encode(d);
  ASSERT_TRUE(map) << error_of(map);
  std::array<std::uint64_t, 13> seen{};
  std::memcpy(seen.data(), map->bytes().data(), sizeof(seen));
  EXPECT_THAT(seen, ::testing::ElementsAre(9, 2, 4096, 64, 100, 128, 32, 16, 1, 0, 2, 2, 1));
  d.base = 4097;
  EXPECT_THAT(error_of(gpu().encode(d)), HasSubstr("0x1001 is no multiple of 16"));
  d.base = 4096;
  plan("cuTensorMapEncodeTiled=1");
  EXPECT_THAT(error_of(gpu().encode(d)), HasSubstr("encode a tensor map"));
}

TEST_F(FakeDriver, AMeasurementCountsItsLaunchesAndTakesTheMedian) {
  const Gpu device = gpu();
  int calls = 0;
  const auto count = [&](const Stream&) -> Result<void> { return ++calls, Result<void>{}; };
  const auto measured = device.measure({.warmups = 2, .repeats = 4, .launches = 3, .idle_ms = 0}, count);
  ASSERT_TRUE(measured) << error_of(measured);
  EXPECT_EQ(calls, 2 + 4 * 3);
  ASSERT_EQ(measured->samples_ms.size(), 4u);
  EXPECT_DOUBLE_EQ(measured->median_ms, measured->minimum_ms + 0.5) << "samples a third of a millisecond apart";
  EXPECT_THAT(error_of(device.measure({.repeats = 0}, count)), HasSubstr("at least one repeat"));
  const auto failing = [](const Stream&) -> Result<void> { return fail("the work failed"); };
  EXPECT_THAT(error_of(device.measure({.idle_ms = 0}, failing)), HasSubstr("the work failed"));
  EXPECT_THAT(error_of(device.capture(failing)), HasSubstr("the work failed"));
}

}  // namespace
}  // namespace pipethreader::runtime
