// Rings as pairs of transaction barriers a slot, with a cursor (slot and phase) in each role instance; barriers of
// warps, and of the cluster.
#include <utility>

#include "emit/sm_90a.h"
#include "emit/values.h"

namespace pipethreader::emit {

using namespace program;

const std::string& Sm90a::cursor(RingId ring) const {
  return emission_.name(emission_.facts.cursor(emission_.role.id, ring));
}

std::string Sm90a::slot(RingId ring, int lag) const {
  const int depth = program_[ring].depth;
  if (depth == 1) return "0";
  const std::string& name = cursor(ring);
  if (lag % depth == 0) return name + "_slot";
  return fmt::format("{}({}_slot, {}, {})", emission_.helpers.use("behind"), name, lag % depth, depth);
}

// The phase runs on by one each time the cursor comes round.
std::string Sm90a::phase(RingId ring, int lag) const {
  const int depth = program_[ring].depth;
  const std::string& name = cursor(ring);
  const bool rounds = lag / depth % 2 != 0;
  const std::string text = rounds ? fmt::format("({}_phase ^ 1)", name) : name + "_phase";
  if (lag % depth == 0) return text;
  return fmt::format("({} ^ ({}_slot < {}))", text, name, lag % depth);
}

namespace {
std::string barrier_address(const std::string& barriers, const std::string& slot) {
  return slot == "0" ? "shared + " + barriers : fmt::format("shared + {} + {} * 8", barriers, slot);
}
}  // namespace

std::string Sm90a::full(RingId ring, int lag) const {
  return barrier_address(emission_.name(ring) + "_full", slot(ring, lag));
}

std::string Sm90a::empty(RingId ring, int lag) const {
  return barrier_address(emission_.name(ring) + "_empty", slot(ring, lag));
}

std::string Sm90a::slot_address(const BufferRef& ref) const {
  const Buffer& buffer = program_[ref.buffer];
  const std::string base = "shared + " + emission_.name(ref.buffer);
  if (!buffer.ring.valid()) return base;
  const std::string at = slot(buffer.ring, ref.lag);
  return at == "0" ? base : fmt::format("{} + {} * {}", base, at, slot_stride(buffer));
}

std::string Sm90a::leader() const {
  if (emission_.role.width == Width::thread) return "";
  return emission_.role.width == Width::warp ? "leader" : "thread == 0";
}

void Sm90a::by_leader(const std::string& statement) {
  const std::string condition = leader();
  out_.line(condition.empty() ? statement : fmt::format("if ({}) {}", condition, statement));
}

void Sm90a::open_leader() {
  if (!leader().empty()) out_.open(fmt::format("if ({})", leader()));
}

void Sm90a::close_leader() {
  if (!leader().empty()) out_.close();
}

// A filler finds the slot empty when its readers have finished the round before: the phase of the other parity.
void Sm90a::write(const RingAcquire& op) {
  const Ring& ring = program_[op.ring];
  out_.format("{}({}, {} ^ 1);", emission_.helpers.use("wait_barrier"), empty(op.ring, 0), phase(op.ring, 0));
  if (ring.bytes == 0) return;
  const bool committed = emission_.facts.of(op.ring).committed;
  by_leader(fmt::format("{}({}, {});", emission_.helpers.use(committed ? "expect" : "arrive_expecting"),
                        full(op.ring, 0), ring.bytes));
}

// Each thread's writes pass into the view of the async units, then each warp arrives.
void Sm90a::write(const RingCommit& op) {
  out_.format("{}();", emission_.helpers.use("fence_async"));
  out_.line("__syncwarp();");
  out_.format("if (lane == 0) {}({});", emission_.helpers.use("arrive"), full(op.ring, 0));
}

void Sm90a::write(const RingWait& op) {
  out_.format("{}({}, {});", emission_.helpers.use("wait_barrier"), full(op.ring, op.lag),
              bare(phase(op.ring, op.lag)));
}

// The copy engine may fill the slot as soon as the last arrival is seen. An arrival overtakes loads that are still
// under way: where one may be, its address hangs on what they bring, or they are fenced against the engine's writes.
void Sm90a::write(const RingRelease& op) {
  const LoadsUnderWay loads = std::exchange(loads_under_way_[static_cast<std::size_t>(op.ring.index)], {});
  if (program_[op.ring].bytes == 0 || !emission_.facts.of(op.ring).read_by_threads || emission_.facts.settled(op))
    return write_release(op.ring, empty(op.ring, op.lag));
  if (loads.bits.empty() || !loads.known || op.lag > 0) {
    out_.format("{}();", emission_.helpers.use("fence_async"));
    return write_release(op.ring, empty(op.ring, op.lag));
  }
  out_.open("");
  const std::string zero = emission_.zero_after(loads.bits);
  write_release(op.ring, fmt::format("{} + {}", empty(op.ring, op.lag), zero));
  out_.close();
}

void Sm90a::write_release(RingId ring, const std::string& barrier) {
  const int arrivals = emission_.facts.of(ring).arrivals_per_release;
  const bool group = emission_.role.width == Width::warpgroup;
  const bool each_warp = group && arrivals > 1;
  const int count = each_warp ? 1 : arrivals;
  if (each_warp) out_.line("__syncwarp();");
  if (!program_[ring].multicast || program_.cluster <= 1) {
    const std::string arrive = count == 1
                                   ? fmt::format("{}({});", emission_.helpers.use("arrive"), barrier)
                                   : fmt::format("{}({}, {});", emission_.helpers.use("arrive_times"), barrier, count);
    each_warp ? out_.format("if (lane == 0) {}", arrive) : by_leader(arrive);
    return;
  }
  // Whoever fills this slot in any block of the cluster writes here.
  const std::string arrive = emission_.helpers.use("arrive_at");
  if (group)
    out_.format("if ({} < {}) {}({}, {}, {});", each_warp ? "lane" : "thread", program_.cluster, arrive, barrier,
                each_warp ? "lane" : "thread", count);
  else
    by_leader(fmt::format("for (int peer = 0; peer < {}; ++peer) {}({}, peer, {});", program_.cluster, arrive, barrier,
                          count));
}

void Sm90a::write(const RingAdvance& op) {
  const std::string& name = cursor(op.ring);
  if (name != emission_.name(op.ring)) return;  // it moves on with another ring
  const int depth = program_[op.ring].depth;
  if (depth == 1) {
    out_.format("{}_phase ^= 1;", name);
    return;
  }
  out_.format("{0}_slot = {0}_slot == {1} ? 0 : {0}_slot + 1;", name, depth - 1);
  out_.format("{0}_phase ^= {0}_slot == 0;", name);
}

// --- barriers ----------------------------------------------------------------------------------------------------

std::string Sm90a::hardware_barrier(BarrierId id, const std::optional<ExprId>& index) {
  int first = 1;  // 0 is __syncthreads
  for (int b = 0; b < id.index; ++b) first += program_.barriers[static_cast<std::size_t>(b)].count;
  return bare(index ? sum(uniform(emission_, *index), first) : std::to_string(first));
}

void Sm90a::write(const BarrierSync& op) {
  if (emission_.role.width == Width::warp) out_.line("__syncwarp();");
  out_.format("{}({}, {});  // {}", emission_.helpers.use("sync_threads"), hardware_barrier(op.barrier, op.index),
              emission_.facts.threads_at(op.barrier), program_[op.barrier].name);
}

void Sm90a::write(const BarrierArrive& op) {
  if (emission_.role.width == Width::warp) out_.line("__syncwarp();");
  out_.format("{}({}, {});  // {}", emission_.helpers.use("arrive_threads"), hardware_barrier(op.barrier, op.index),
              emission_.facts.threads_at(op.barrier), program_[op.barrier].name);
}

void Sm90a::write(const ProxyFence&) { out_.format("{}();", emission_.helpers.use("fence_async")); }

void Sm90a::write(const ClusterSync&) {
  if (emission_.role.width == Width::warp) out_.line("__syncwarp();");
  out_.format("{}();", emission_.helpers.use("cluster_sync"));
}

}  // namespace pipethreader::emit
