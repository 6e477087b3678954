// Which work items a block takes. In dynamic order one thread of the cluster draws items from a counter in global
// memory and hands each to all roles through two slots of shared memory.
#include "emit/sm_90a.h"
#include "emit/values.h"

namespace pipethreader::emit {

using namespace program;

// The role that draws items in dynamic order: the first copier, or the first warpgroup.
RoleId Sm90a::work_taker() const {
  for (const RoleKind kind : {RoleKind::copier, RoleKind::computer})
    for (std::size_t r = 0; r < program_.roles.size(); ++r)
      if (program_.roles[r].kind == kind) return RoleId(r);
  return {};
}

bool Sm90a::work_taker_reads() const { return emission_.facts.of(work_taker()).width != Width::thread; }

// Arrivals of one block that free a slot with an item: one for each warp, or lone thread.
int Sm90a::work_readers() const {
  int result = 0;
  for (std::size_t r = 0; r < program_.roles.size(); ++r)
    result += program_.roles[r].instances *
              (emission_.facts.of(RoleId(r)).width == Width::warpgroup ? layout::warps_of_group : 1);
  return result;
}

void Sm90a::open_work(const ForWork& work) {
  const std::string& item = emission_.name(work.item);
  const std::string of_cluster = program_.cluster > 1 ? fmt::format(" / {}", program_.cluster) : "";
  const std::string first = "static_cast<int>(blockIdx.x)" + of_cluster;
  const std::string all = "static_cast<int>(gridDim.x)" + of_cluster;
  const std::string count = uniform(emission_, work.count);
  switch (work.order) {
    case WorkOrder::single:
      out_.open("");
      out_.format("const int {} = {};", item, first);
      return;
    case WorkOrder::persistent:
      out_.line("#pragma unroll 1");
      out_.open(fmt::format("for (int {0} = {1}; {0} < {2}; {0} += {3})", item, first, count, all));
      return;
    case WorkOrder::dynamic:
      open_dynamic_work(item, first, all, count);
      return;
  }
}

// The first item is the cluster's own number, so that nothing waits for the counter at the start. A copier draws the
// next one when all copies of its item are under way: late enough that whoever is done first takes the longest that is
// left, early enough that the answer is there before the last tile is computed. Without a copier a draw is made one
// item ahead. Each item is drawn after once: whoever draws the last number of the launch sets the counter back.
void Sm90a::open_dynamic_work(const std::string& item, const std::string& first, const std::string& all,
                              const std::string& count) {
  const bool taker = work_taker() == emission_.role.id;
  const bool alone = emission_.role.width == Width::thread;
  if (taker) out_.format("int drawn = {} - {};  // so that the first item is the block's own", first, all);
  out_.line("#pragma unroll 1");
  out_.open("for (int turn = 0, turn_phase = 0;; turn ^= 1, turn_phase ^= turn == 0)");
  out_.format("int {} = {};", item, taker ? "drawn + " + all : "0");
  if (taker) {
    const std::string draws = who_draws();
    if (!draws.empty()) out_.open(fmt::format("if ({})", draws));
    hand_out_item(item, count);
    if (!draws.empty() && alone) {  // in the cluster's other blocks, a lone copier is a reader
      out_.otherwise("else");
      read_item(item);
    }
    if (!draws.empty()) out_.close();
  }
  if (!taker || !alone) read_item(item);
  out_.format("if ({} >= {}) break;", item, count);
  const std::string draws = taker ? who_draws() : "";
  if (!taker || !alone) {
    free_item("");
  } else if (!draws.empty()) {
    free_item(fmt::format("!({})", draws));
  }
}

// The threads of the taker that draw; empty: all.
std::string Sm90a::who_draws() const {
  std::string who = leader();
  if (program_[emission_.role.id].instances > 1) who = "instance == 0 && " + who;
  if (program_.cluster > 1) who += who.empty() ? "rank == 0" : " && rank == 0";
  return who;
}

bool Sm90a::draws_late() const { return program_[work_taker()].kind == RoleKind::copier; }

void Sm90a::hand_out_item(const std::string& item, const std::string& count) {
  out_.format("if (drawn == {} - 1) *work_counter = 0;  // the last draw of this launch", count);
  out_.format("{}(shared + work_empty + turn * 8, turn_phase ^ 1);", wait_for_work());
  if (program_.cluster > 1) {
    out_.format("for (int peer = 0; peer < {}; ++peer)", program_.cluster);
    out_.format("  {}(shared + work_items + turn * 4, {}, shared + work_full + turn * 8, peer);",
                emission_.helpers.use("hand_over"), item);
  } else {
    out_.format("{}(shared + work_items + turn * 4, {});", emission_.helpers.use("store_shared_s32"), item);
    out_.format("{}(shared + work_full + turn * 8);", emission_.helpers.use("arrive"));
  }
  if (draws_late()) return;
  out_.format("if ({} < {}) drawn = static_cast<int>(atomicAdd(work_counter, 1u));  // arrives during this item", item,
              count);
}

std::string Sm90a::wait_for_work() {
  return emission_.helpers.use(program_.cluster > 1 ? "wait_barrier_cluster" : "wait_barrier");
}

void Sm90a::read_item(const std::string& item) {
  out_.format("{}(shared + work_full + turn * 8, turn_phase);", wait_for_work());
  out_.format("{} = {}(shared + work_items + turn * 4);", item, emission_.helpers.use("load_shared_s32"));
}

// Stands behind the branch that the item decides, since an arrival could overtake the load. `condition`: which threads
// have read it; empty: all.
void Sm90a::free_item(const std::string& condition) {
  const std::string arrive =
      program_.cluster > 1
          ? fmt::format("{}(shared + work_empty + turn * 8, 0, 1);", emission_.helpers.use("arrive_at"))
          : fmt::format("{}(shared + work_empty + turn * 8);", emission_.helpers.use("arrive"));
  if (emission_.role.width == Width::thread)
    return out_.line(condition.empty() ? arrive : fmt::format("if ({}) {}", condition, arrive));
  out_.line("__syncwarp();");
  out_.format("if ({}) {}", emission_.role.width == Width::warp ? "leader" : "lane == 0", arrive);
}

void Sm90a::close_work(const ForWork& work) {
  if (work.order == WorkOrder::dynamic && work_taker() == emission_.role.id && draws_late()) {
    const std::string draws = who_draws();
    out_.format("{}drawn = static_cast<int>(atomicAdd(work_counter, 1u));",
                draws.empty() ? "" : fmt::format("if ({}) ", draws));
  }
  out_.close();
}

}  // namespace pipethreader::emit
