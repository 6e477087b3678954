#include "product_peer.h"

#include <filesystem>
#include <vector>

#include "runtime/dynamic_library.h"

namespace pipethreader::tool {

using namespace kernel;

namespace {

struct Side {
  TensorId tensor;
  AxisId first, second;
};

std::optional<Side> plain_access(const Kernel& kernel, ExprId id) {
  const Expr& e = kernel[id];
  if (e.kind != Expr::Kind::access || e.args.size() != 2) return std::nullopt;
  for (const ExprId arg : e.args) {
    if (kernel[arg].kind != Expr::Kind::axis) return std::nullopt;
  }
  return Side{e.tensor, kernel[e.args[0]].axis, kernel[e.args[1]].axis};
}

// Declarations of our own, as the library's binary interface has them.
using Create = int (*)(void**);
using Destroy = int (*)(void*);
using SetStream = int (*)(void*, void*);
using GemmEx = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int,
                       const void*, void*, int, int, int, int);
constexpr int not_transposed = 0, transposed = 1, compute_f32 = 68, any_algorithm = -1;
int type_code(ScalarType type) { return type == ScalarType::bf16 ? 14 : 2; }

// Beside the run-time compiler, in the loader's path, in Python environments.
std::vector<std::string> places(const std::string& compiler, const std::vector<std::string>& environments) {
  namespace fs = std::filesystem;
  std::vector<fs::path> folders;
  if (!compiler.empty()) {
    const fs::path folder = fs::path(compiler).parent_path();
    folders.push_back(folder);
    folders.push_back(folder.parent_path().parent_path() / "cublas" / "lib");
  }
  std::error_code error;
  for (const std::string& environment : environments) {
    for (const auto& python : fs::directory_iterator(fs::path(environment) / "lib", error)) {
      for (const char* package : {"nvidia/cu13/lib", "nvidia/cublas/lib"}) {
        folders.push_back(python.path() / "site-packages" / package);
      }
    }
  }
  std::vector<std::string> found;
  for (const char* name : {"libcublas.so.13", "libcublas.so.12"}) {
    for (const fs::path& folder : folders) {
      if (fs::exists(folder / name, error)) found.push_back((folder / name).string());
    }
  }
  found.insert(found.end(), {"libcublas.so.13", "libcublas.so.12"});
  return found;
}

}  // namespace

std::optional<PlainProduct> plain_product(const Kernel& kernel) {
  if (kernel.body.size() != 1) return std::nullopt;
  const auto* store = std::get_if<Store>(&kernel[kernel.body[0]].node);
  if (store == nullptr || store->when || store->indices.size() != 2) return std::nullopt;
  const Expr& convert = kernel[store->expr];
  if (convert.kind != Expr::Kind::convert) return std::nullopt;
  const Expr& sum = kernel[convert.args[0]];
  if (sum.kind != Expr::Kind::reduce || sum.reduce != ReduceOp::sum || sum.args.size() != 1 || sum.axes.size() != 1)
    return std::nullopt;
  const Expr& times = kernel[sum.args[0]];
  if (times.kind != Expr::Kind::call || times.function != Function::mul) return std::nullopt;
  for (const ExprId index : store->indices) {
    if (kernel[index].kind != Expr::Kind::axis) return std::nullopt;
  }
  PlainProduct p;
  p.out = store->tensor;
  p.m = kernel[store->indices[0]].axis;
  p.n = kernel[store->indices[1]].axis;
  p.k = sum.axes[0];
  p.type = kernel[p.out].type;
  if (p.type != ScalarType::f16 && p.type != ScalarType::bf16) return std::nullopt;
  int sides = 0;
  for (const ExprId arg : times.args) {
    const auto side = plain_access(kernel, arg);
    if (!side || kernel[side->tensor].type != p.type) return std::nullopt;
    if ((side->first == p.m && side->second == p.k) || (side->first == p.k && side->second == p.m)) {
      p.x = side->tensor;
      p.x_columns = side->first == p.k;
      sides |= 1;
    } else if ((side->first == p.n && side->second == p.k) || (side->first == p.k && side->second == p.n)) {
      p.y = side->tensor;
      p.y_rows = side->first == p.k;
      sides |= 2;
    }
  }
  return sides == 3 ? std::optional(p) : std::nullopt;
}

struct Cublas::State {
  explicit State(runtime::DynamicLibrary opened) : library(std::move(opened)) {}
  ~State() {
    if (handle != nullptr) destroy(handle);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  runtime::DynamicLibrary library;
  void* handle = nullptr;
  Destroy destroy = nullptr;
  SetStream set_stream = nullptr;
  GemmEx gemm = nullptr;
  std::string name;
};

const std::string& Cublas::name() const { return state_->name; }

Result<Cublas> Cublas::open(const std::string& compiler, const std::vector<std::string>& environments) {
  const auto looked = places(compiler, environments);
  for (const std::string& place : looked) {
    auto library = runtime::DynamicLibrary::open(place);
    if (!library) continue;
    auto state = std::make_shared<State>(std::move(*library));
    const auto create = reinterpret_cast<Create>(state->library.symbol("cublasCreate_v2"));
    state->destroy = reinterpret_cast<Destroy>(state->library.symbol("cublasDestroy_v2"));
    state->set_stream = reinterpret_cast<SetStream>(state->library.symbol("cublasSetStream_v2"));
    state->gemm = reinterpret_cast<GemmEx>(state->library.symbol("cublasGemmEx"));
    if (create == nullptr || state->destroy == nullptr || state->set_stream == nullptr || state->gemm == nullptr)
      continue;
    if (create(&state->handle) != 0) return fail("{} does not start on this card", place);
    state->name = place;
    Cublas cublas;
    cublas.state_ = std::move(state);
    return cublas;
  }
  return fail_at({}, {}, "cuBLAS was not found", fmt::format("looked for {}", fmt::join(looked, ", ")));
}

// Its matrices are column-major: it is asked for the transpose, y times x.
Result<void> Cublas::multiply(const PlainProduct& p, std::int64_t m, std::int64_t n, std::int64_t k, std::uint64_t x,
                              std::uint64_t y, std::uint64_t out, const runtime::Stream& stream) const {
  const float one = 1, zero = 0;
  const auto pointer = [](std::uint64_t address) {
    return reinterpret_cast<void*>(address);
  };  // NOLINT: a device address
  const int im = static_cast<int>(m), in = static_cast<int>(n), ik = static_cast<int>(k), type = type_code(p.type);
  if (const int code = state_->set_stream(state_->handle, stream.handle()); code != 0)
    return fail("cuBLAS failed: status {}", code);
  const int code =
      state_->gemm(state_->handle, p.y_rows ? not_transposed : transposed, p.x_columns ? transposed : not_transposed,
                   in, im, ik, &one, pointer(y), type, p.y_rows ? in : ik, pointer(x), type, p.x_columns ? im : ik,
                   &zero, pointer(out), type, in, compute_f32, any_algorithm);
  if (code != 0) return fail("cuBLAS failed: status {}", code);
  return {};
}

}  // namespace pipethreader::tool
