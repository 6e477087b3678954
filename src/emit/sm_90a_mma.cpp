// Products on the tensor core: wgmma of 64 rows and up to 256 columns, 16 along K, with both operands in shared memory
// or A in registers. Operands in shared memory are swizzled and described by an address and two strides; K-major
// ("rows x K") tiles advance along K inside the swizzle span, transposed ones by rows.
#include <algorithm>
#include <map>

#include "emit/sm_90a.h"
#include "emit/values.h"

namespace pipethreader::emit {

using namespace program;

namespace {

constexpr int kRows = 64;
constexpr int kDepth = 16;
constexpr int kLargestCols = 256;
constexpr int kGroupRows = 8;      // rows of a swizzle pattern
constexpr std::int64_t unit = 16;  // bytes that a descriptor counts in

struct Shape {
  int cols = 8;
  ScalarType type = ScalarType::f16;
  bool registers = false;
  bool transposed_a = false;
  bool transposed_b = false;
};

// A device function around one instruction. `accumulate` false overwrites the accumulator.
std::string mma_helper(Emission& emission, const Shape& shape) {
  const std::string type(name(shape.type));
  const std::string name =
      fmt::format("mma_64x{}x16_{}_{}{}{}", shape.cols, type, shape.registers ? "registers" : "shared",
                  shape.transposed_a ? "_ta" : "", shape.transposed_b ? "_tb" : "");
  const int count = shape.cols / 2;
  const int b = count + (shape.registers ? 4 : 1);
  std::vector<std::string> parameters, outputs;
  for (int i = 0; i < count; ++i) {
    parameters.push_back(fmt::format("float& d{}", i));
    outputs.push_back(fmt::format("\"+f\"(d{})", i));
  }
  for (const char* a : {"unsigned a0", "unsigned a1", "unsigned a2", "unsigned a3"})
    if (shape.registers) parameters.emplace_back(a);
  if (!shape.registers) parameters.emplace_back("unsigned long long a");
  parameters.emplace_back("unsigned long long b");
  parameters.emplace_back("int accumulate");

  Writer out;
  out.list(fmt::format("__device__ __forceinline__ void {}(", name), parameters, ") {");
  out.line("  asm volatile(");
  out.format("      \"{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{}, 0;\\n\"", b + 1);
  out.format("      \"wgmma.mma_async.sync.aligned.m64n{}k16.f32.{}.{} {{\"", shape.cols, type, type);
  for (int i = 0; i < count; i += 16) {
    std::string line;
    for (int k = i; k < std::min(i + 16, count); ++k) line += fmt::format("%{}{}", k, k + 1 < count ? ", " : "}, ");
    out.format("      \"{}\"", line);
  }
  if (shape.registers)
    out.format("      \"{{%{}, %{}, %{}, %{}}}, %{}, p, 1, 1, {};\\n}}\"", count, count + 1, count + 2, count + 3, b,
               shape.transposed_b ? 1 : 0);
  else
    out.format("      \"%{}, %{}, p, 1, 1, {}, {};\\n}}\"", count, b, shape.transposed_a ? 1 : 0,
               shape.transposed_b ? 1 : 0);
  out.list("      : ", outputs, "");
  out.format("      : {}, \"l\"(b), \"r\"(accumulate));",
             shape.registers ? "\"r\"(a0), \"r\"(a1), \"r\"(a2), \"r\"(a3)" : "\"l\"(a)");
  out.line("}");
  return emission.helpers.define(name, out.text());
}

// Register of the element at (row, col) in thread 0.
class Registers {
 public:
  explicit Registers(const layout::Layout& layout) {
    for (int reg = 0; reg < layout.registers(); ++reg) {
      const std::vector<int> at = layout.register_offset(reg);
      map_.emplace(std::pair{at[0], at[1]}, reg);
    }
  }
  [[nodiscard]] int at(int row, int col) const { return map_.at({row, col}); }

 private:
  std::map<std::pair<int, int>, int> map_;
};

int swizzle_code(Swizzle swizzle) {
  switch (swizzle) {
    case Swizzle::bytes128:
      return 1;
    case Swizzle::bytes64:
      return 2;
    case Swizzle::bytes32:
      return 3;
    case Swizzle::none:
      break;
  }
  return 0;
}

// Byte distance of rows (or columns, when transposed) `first` and of k-step `step` from the operand's start.
std::int64_t operand_offset(const Buffer& buffer, bool transposed, int first, int step) {
  const int span = span_columns(buffer);
  if (transposed)
    return first / span * box_bytes(buffer) + static_cast<std::int64_t>(step) * kDepth * row_bytes(buffer);
  const int k = step * kDepth;
  return k / span * box_bytes(buffer) + static_cast<std::int64_t>(k % span) * bits(buffer.type) / 8 +
         first * row_bytes(buffer);
}

}  // namespace

// Where K begins inside the tile. Columns move in whole products inside a swizzle span, rows in whole groups.
bool Sm90a::add_k_origin(const Operand& operand, std::string& offset) {
  const Buffer& buffer = program_[operand.buffer.buffer];
  const std::string origin = uniform(emission_, *operand.k_origin);
  if (origin == "0") return true;
  const int granule = operand.transposed ? kGroupRows : kDepth;
  const std::int64_t divisor = emission_.facts.divisor(*operand.k_origin);
  if (divisor % granule != 0) {
    emission_.problem("operand '{}' of a product starts at K {}, which is not known to be a multiple of {}",
                      buffer.name, bare(origin), granule);
    return false;
  }
  if (operand.transposed) {
    offset = sum(offset, fmt::format("{} * {}", origin, row_bytes(buffer) / unit));
    return true;
  }
  const int span = span_columns(buffer);
  offset = sum(offset, fmt::format("{} / {} * {}", origin, span, box_bytes(buffer) / unit));
  if (divisor % span != 0)
    offset = sum(offset, fmt::format("{} % {} * {} / {}", origin, span, bits(buffer.type) / 8, unit));
  return true;
}

// The descriptor of an operand in shared memory, a named constant of the surrounding braces.
bool Sm90a::write_descriptor(const Operand& operand, const std::string& variable) {
  const Buffer& buffer = program_[operand.buffer.buffer];
  if (buffer.swizzle == Swizzle::none) {
    emission_.problem("operand '{}' of a product is not swizzled", buffer.name);
    return false;
  }
  // What changes with the slot is one addition to what does not.
  const std::string at = buffer.ring.valid() ? slot(buffer.ring, operand.buffer.lag) : "0";
  std::string offset = at == "0" ? at : fmt::format("{} * {}", at, slot_stride(buffer) / unit);
  if (operand.origin) {
    const std::string origin = uniform(emission_, *operand.origin);
    const int granule = operand.transposed ? span_columns(buffer) : kGroupRows;
    if (emission_.facts.divisor(*operand.origin) % granule != 0) {
      emission_.problem("operand '{}' of a product starts at {}, which is not known to be a multiple of {}",
                        buffer.name, bare(origin), granule);
      return false;
    }
    if (origin != "0")
      offset = sum(offset, operand.transposed
                               ? fmt::format("{} / {} * {}", origin, span_columns(buffer), box_bytes(buffer) / unit)
                               : fmt::format("{} * {}", origin, row_bytes(buffer) / unit));
  }
  if (operand.k_origin && !add_k_origin(operand, offset)) return false;
  const std::int64_t leading = operand.transposed ? box_bytes(buffer) / unit : 1;
  out_.format("const unsigned long long {} = {}(shared + {}, {}, {}, {}, {});", variable,
              emission_.helpers.use("matrix_descriptor"), emission_.name(operand.buffer.buffer), bare(offset), leading,
              kGroupRows * row_bytes(buffer) / unit, swizzle_code(buffer.swizzle));
  return true;
}

void Sm90a::write(const Mma& op) {
  const Fragment& accumulator = program_[op.accumulator];
  const int rows = accumulator.layout.shape[0];
  const int cols = accumulator.layout.shape[1];
  const Buffer& b = program_[op.b.buffer.buffer];
  if (op.b.in_registers || accumulator.type != ScalarType::f32 ||
      (b.type != ScalarType::f16 && b.type != ScalarType::bf16)) {
    emission_.problem("a product into '{}': this target multiplies f16 or bf16 into f32, with B in shared memory",
                      accumulator.name);
    return;
  }
  if (!fenced_) out_.format("{}();", emission_.helpers.use("mma_fence"));
  fenced_ = true;
  out_.open("");
  if (!op.a.in_registers && !write_descriptor(op.a, "a_matrix")) return out_.close();
  if (!write_descriptor(op.b, "b_matrix")) return out_.close();

  const Registers registers(accumulator.layout);
  std::optional<Registers> a_registers;
  if (op.a.in_registers) a_registers.emplace(program_[op.a.fragment].layout);
  const std::string first_step = op.accumulate ? bare(uniform(emission_, *op.accumulate)) : "1";
  const auto advanced = [](const std::string& descriptor, std::int64_t bytes) {
    return bytes == 0 ? descriptor : fmt::format("{} + {}", descriptor, bytes / 16);
  };
  for (int step = 0; step < op.k / kDepth; ++step)
    for (int row = 0; row < rows; row += kRows)
      for (int col = 0; col < cols; col += kLargestCols) {
        const Shape shape{std::min(kLargestCols, cols - col), b.type, op.a.in_registers,
                          !op.a.in_registers && op.a.transposed, op.b.transposed};
        std::vector<std::string> args;
        for (int c = col; c < col + shape.cols; c += 8)
          for (const auto& [down, right] : {std::pair{0, 0}, {0, 1}, {8, 0}, {8, 1}})
            args.push_back(emission_.variable(op.accumulator, registers.at(row + down, c + right)));
        if (args == emission_.variables(op.accumulator)) args = {emission_.all_of(op.accumulator)};
        if (op.a.in_registers) {
          for (const auto& [down, right] : {std::pair{0, 0}, {8, 0}, {0, 8}, {8, 8}})
            args.push_back(emission_.variable(op.a.fragment, a_registers->at(row + down, step * kDepth + right)));
        } else {
          const Buffer& a = program_[op.a.buffer.buffer];
          args.push_back(advanced("a_matrix", operand_offset(a, op.a.transposed, row, step)));
        }
        args.push_back(advanced("b_matrix", operand_offset(b, op.b.transposed, col, step)));
        args.push_back(step == 0 ? first_step : "1");
        out_.list(mma_helper(emission_, shape) + "(", args, ");");
      }
  out_.close();
}

void Sm90a::write(const MmaCommit&) { out_.format("{}();", emission_.helpers.use("mma_commit")); }

// The assembler moves a wait up across arithmetic as far as its basic block reaches; a spin on a barrier ends the
// block.
void Sm90a::write(const MmaWait& op) {
  if (op.pin) write(*op.pin);
  out_.format("{}<{}>();", emission_.helpers.use("mma_wait"), op.pending);
}

// A fence orders register writes before the products that follow; products and waits in between need none.
void Sm90a::begin(const Instr& instr) {
  const bool keeps = std::holds_alternative<Mma>(instr.op) || std::holds_alternative<RingWait>(instr.op);
  fenced_ = fenced_ && keeps;
  // What was loaded may be gone when its register is written again.
  if (const auto* map = std::get_if<Map>(&instr.op))
    for (LoadsUnderWay& loads : loads_under_way_) loads.known = loads.known && !loads.targets.contains(map->target);
}

}  // namespace pipethreader::emit
