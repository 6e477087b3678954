// Maps, reductions and products over fragments.
#include <algorithm>

#include "interpret/cluster.h"
#include "interpret/number.h"
#include "interpret/reduction.h"

namespace pipethreader::interpret {

using namespace program;

// --- fragments -------------------------------------------------------------------------------------------------------

Uniforms Cluster::uniforms(const Actor& actor) const {
  return {&program_, launch_.params, actor.vars, actor.instance, cluster_rank(actor), &faults_};
}

void Cluster::check_not_in_flight(const Actor& actor, FragmentId id) {
  for (const Product& product : actor.products)
    for (const FragmentId used : {product.op->accumulator, product.op->a.fragment, product.op->b.fragment})
      if (used.valid() && used == id)
        return faults_.raise(FaultKind::protocol,
                             fmt::format("touches fragment '{}' while the product at {} may still use it",
                                         program_[id].name, launch_.place(product.issue.instr)));
}

Tile& Cluster::fragment_to_read(Actor& actor, FragmentId id) {
  check_not_in_flight(actor, id);
  Tile& tile = actor.fragments[at(id)];
  if (!tile.written)
    faults_.raise(FaultKind::uninitialised,
                  fmt::format("reads fragment '{}', which nothing has written", program_[id].name));
  return tile;
}

Tile& Cluster::fragment_to_write(Actor& actor, FragmentId id) {
  check_not_in_flight(actor, id);
  Tile& tile = actor.fragments[at(id)];
  tile.written = tile.written || !actor.conditional;  // what may be skipped defines nothing
  return tile;
}

std::vector<const float*> Cluster::fragments_to_read(Actor& actor, const Code& code) {
  std::vector<const float*> words;
  for (const FragmentId id : code.fragments) words.push_back(fragment_to_read(actor, id).words.data());
  return words;
}

// --- maps ------------------------------------------------------------------------------------------------------------

Step Cluster::execute(Actor& actor, const Instr&, const Map& op) {
  const layout::Layout& layout = program_[op.target].layout;
  const Code& code = launch_.code.compile({op.value}, layout.shape);
  std::vector<const float*> sources = fragments_to_read(actor, code);
  Tile& tile = fragment_to_write(actor, op.target);
  if (!launch_.numbers() || faults_.any()) return Step::advanced;
  std::vector<float> out(code.elements);
  Evaluation evaluation(code, uniforms(actor), std::move(sources));
  for (std::size_t begin = 0; begin < code.elements; begin += chunk_elements) {
    const std::size_t count = std::min(chunk_elements, code.elements - begin);
    evaluation.load(begin, count);
    evaluation.words(0, count, out.data() + begin);
  }
  if (actor.active_warps == 0xf) {
    tile.words = std::move(out);
    return Step::advanced;
  }
  const std::vector<std::uint8_t>& holders = launch_.warps_of(layout);
  for (std::size_t e = 0; e < out.size(); ++e) {
    if ((holders[e] & actor.active_warps) == 0) continue;
    const bool everywhere = (holders[e] & ~actor.active_warps) == 0;
    if (!everywhere && std::bit_cast<std::uint32_t>(tile.words[e]) != std::bit_cast<std::uint32_t>(out[e]))
      faults_.raise(
          FaultKind::protocol,
          fmt::format("element {} of fragment '{}' is held by warps that skip this and warps that do not, and "
                      "they would differ",
                      e, program_[op.target].name));
    tile.words[e] = out[e];
  }
  return Step::advanced;
}

// --- reductions ------------------------------------------------------------------------------------------------------

Step Cluster::execute(Actor& actor, const Instr& instr, const Reduce& op) {
  const Fragment& fragment = program_[op.target];
  const Code& code = launch_.code.compile({op.value}, op.domain.shape);
  std::vector<const float*> sources = fragments_to_read(actor, code);
  if (op.accumulate) fragment_to_read(actor, op.target);
  Tile& tile = fragment_to_write(actor, op.target);
  if (op.scratch.valid()) touch_scratch(actor, instr, op.scratch, 4 * static_cast<int>(tile.words.size()));
  if (!launch_.numbers() || faults_.any()) return Step::advanced;
  ReductionPlan& plan = launch_.reductions[&op];
  if (plan.order.empty()) plan = plan_reduction(op, fragment.layout.shape);
  std::vector<float> words(code.elements);
  Evaluation evaluation(code, uniforms(actor), std::move(sources));
  for (std::size_t begin = 0; begin < code.elements; begin += chunk_elements) {
    const std::size_t count = std::min(chunk_elements, code.elements - begin);
    evaluation.load(begin, count);
    evaluation.words(0, count, words.data() + begin);
  }
  std::vector<float> values = reduce(plan, op.op, fragment.type, words);
  if (op.accumulate)
    for (std::size_t e = 0; e < values.size(); ++e) values[e] = join(op.op, fragment.type, tile.words[e], values[e]);
  tile.words = std::move(values);
  return Step::advanced;
}

// An instance's own part of a scratch buffer, used between barriers of the instance's threads.
void Cluster::touch_scratch(Actor& actor, const Instr& instr, BufferId scratch, int elements) {
  const Buffer& buffer = program_[scratch];
  Toucher now = toucher(actor, &instr);
  now.threads_meet = true;
  std::vector<int> rows;
  std::vector<int> cols;
  const int room = buffer.rows * buffer.cols;
  const int instances = program_[actor.role].instances;
  const int first = elements * instances <= room ? elements * actor.instance : 0;
  for (int e = first; e < first + elements && e < room; ++e) {
    rows.push_back(e / buffer.cols);
    cols.push_back(e % buffer.cols);
  }
  touch_elements(actor.block, {scratch, 0, -1}, rows, cols, true, now);
  actor.synced = actor.now;
}

Step Cluster::execute(Actor& actor, const Instr& instr, const Relayout& op) {
  const Tile& source = fragment_to_read(actor, op.source);
  Tile& target = fragment_to_write(actor, op.target);
  if (op.scratch.valid()) touch_scratch(actor, instr, op.scratch, static_cast<int>(source.words.size()));
  if (!faults_.any()) target.words = source.words;
  return Step::advanced;
}

// --- products --------------------------------------------------------------------------------------------------------

Step Cluster::execute(Actor& actor, const Instr& instr, const Mma& op) {
  const Uniforms values = uniforms(actor);
  Product product;
  product.op = &op;
  product.accumulate = !op.accumulate || values.truth(*op.accumulate);
  for (const Product& earlier : actor.products) {
    const auto clash = [&](FragmentId mine, FragmentId theirs) {
      if (mine.valid() && mine == theirs)
        faults_.raise(FaultKind::protocol, fmt::format("uses fragment '{}' while the product at {} may still use it",
                                                       program_[mine].name, launch_.place(earlier.issue.instr)));
    };
    if (!product.accumulate) clash(op.accumulator, earlier.op->accumulator);
    clash(op.accumulator, earlier.op->a.fragment);
    clash(op.accumulator, earlier.op->b.fragment);
    clash(op.a.fragment, earlier.op->accumulator);
    clash(op.b.fragment, earlier.op->accumulator);
  }
  const auto needs = [&](FragmentId id) {
    if (!actor.fragments[at(id)].written)
      faults_.raise(FaultKind::uninitialised,
                    fmt::format("reads fragment '{}', which nothing has written", program_[id].name));
  };
  if (product.accumulate) needs(op.accumulator);
  if (op.a.in_registers) needs(op.a.fragment);
  if (op.b.in_registers) needs(op.b.fragment);
  if (!op.a.in_registers) product.a = slot_of(actor, op.a.buffer);
  if (!op.b.in_registers) product.b = slot_of(actor, op.b.buffer);
  const auto value = [&](const std::optional<ExprId>& e) { return e ? values.integer(*e) : 0; };
  product.a_origin = {value(op.a.origin), value(op.a.k_origin)};
  product.b_origin = {value(op.b.origin), value(op.b.k_origin)};
  product.issue = issue(actor, instr, tensor_queue(actor), ++actor.products_issued);
  actor.fragments[at(op.accumulator)].written = true;
  actor.products.push_back(std::move(product));
  return Step::advanced;
}

// An operand as a dense matrix [outer, k], or [k, outer] when `k_first`.
std::vector<float> Cluster::gather(Actor& actor, const Product& product, const Operand& operand, const SlotRef& ref,
                                   const Product::Origin& first, int outer, bool k_first) {
  const int k = product.op->k;
  const auto origin = static_cast<int>(first.outer);
  const auto k_origin = static_cast<int>(first.k);
  std::vector<float> out(static_cast<std::size_t>(outer) * static_cast<std::size_t>(k));
  const float* words = nullptr;
  int width = 0;
  if (operand.in_registers) {
    words = actor.fragments[at(operand.fragment)].words.data();
    width = program_[operand.fragment].layout.shape[1];
  } else {
    const Region region = operand.transposed ? Region{k_origin, k_origin + k, origin, origin + outer}
                                             : Region{origin, origin + outer, k_origin, k_origin + k};
    begin_read(actor.block, ref, region, toucher(product.issue));
    if (!faults_.any()) check_written(actor.block, ref, region);
    if (faults_.any()) return out;
    words = blocks_[actor.block].memory[ref].words.data();
    width = program_[ref.buffer].cols;
  }
  if (!launch_.numbers()) return out;
  const auto from = [&](int o, int i) {
    const int row = operand.transposed ? k_origin + i : origin + o;
    const int col = operand.transposed ? origin + o : k_origin + i;
    return words[static_cast<std::size_t>(row * width + col)];
  };
  float* next = out.data();
  if (k_first) {
    for (int i = 0; i < k; ++i)
      for (int o = 0; o < outer; ++o) *next++ = from(o, i);
  } else {
    for (int o = 0; o < outer; ++o)
      for (int i = 0; i < k; ++i) *next++ = from(o, i);
  }
  return out;
}

namespace {

void multiply_floats(float* c, const float* a, const float* b, std::size_t m, std::size_t n, std::size_t k) {
  for (std::size_t row = 0; row < m; ++row)
    for (std::size_t i = 0; i < k; ++i) {
      const float x = a[row * k + i];
      const float* y = b + i * n;
      float* out = c + row * n;
      for (std::size_t col = 0; col < n; ++col) out[col] += x * y[col];
    }
}

void multiply_integers(float* c, const float* a, const float* b, std::size_t m, std::size_t n, std::size_t k) {
  for (std::size_t row = 0; row < m; ++row)
    for (std::size_t col = 0; col < n; ++col) {
      std::int64_t sum = integer_of(c[row * n + col]);
      for (std::size_t i = 0; i < k; ++i) sum += integer_of(a[row * k + i]) * integer_of(b[i * n + col]);
      c[row * n + col] = word_of(sum);
    }
}

}  // namespace

void Cluster::multiply(Actor& actor, Product& product) {
  const Mma& op = *product.op;
  const std::vector<int>& shape = program_[op.accumulator].layout.shape;
  const std::vector<float> a = gather(actor, product, op.a, product.a, product.a_origin, shape[0], false);
  const std::vector<float> b = gather(actor, product, op.b, product.b, product.b_origin, shape[1], true);
  product.done = true;
  faults_.add_place(fmt::format("{} at {}", name_of(tensor_queue(actor)), launch_.place(product.issue.instr)));
  if (faults_.any() || !launch_.numbers()) return;
  std::vector<float>& c = actor.fragments[at(op.accumulator)].words;
  if (!product.accumulate) std::fill(c.begin(), c.end(), 0.0f);
  const auto m = static_cast<std::size_t>(shape[0]);
  const auto n = static_cast<std::size_t>(shape[1]);
  const auto k = static_cast<std::size_t>(op.k);
  if (held_as_float(program_[op.accumulator].type))
    multiply_floats(c.data(), a.data(), b.data(), m, n, k);
  else
    multiply_integers(c.data(), a.data(), b.data(), m, n, k);
}

}  // namespace pipethreader::interpret
