// One cluster while it runs: its blocks, role instances ("actors") and the work under way in asynchronous units. The
// scheduler (cluster.cpp) lets one actor execute one instruction, or one unit do one piece of work, at a time; the
// instructions' meanings stand in control.cpp, synchronise.cpp, transfer.cpp, arithmetic.cpp.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "interpret/barriers.h"
#include "interpret/elementwise.h"
#include "interpret/global_memory.h"
#include "interpret/launch.h"
#include "interpret/random.h"
#include "interpret/shadow.h"
#include "interpret/shared_memory.h"

namespace pipethreader::interpret {

struct Tile {
  std::vector<float> words;  // row-major
  bool written = false;
};

// A place in the instruction tree; the innermost is executed.
struct Frame {
  const program::Block* block = nullptr;
  std::size_t next = 0;
  const program::For* loop = nullptr;
  std::int64_t end = 0;
  bool by_decision = false;  // the loop's trips are a witness's
  const program::ForWork* work = nullptr;
  std::size_t item = 0;  // index into the cluster's items
};

// What an asynchronous operation takes along when it is issued.
struct Issue {
  std::size_t actor = 0;
  const program::Instr* instr = nullptr;
  Component component = 0;
  Time time = 0;
  Time issuer_synced = 0;
  VectorClock clock;  // what happened before the issue
};

struct Product {  // one Mma
  struct Origin {
    std::int64_t outer = 0;
    std::int64_t k = 0;
  };
  Issue issue;
  const program::Mma* op = nullptr;
  bool accumulate = true;
  SlotRef a;
  SlotRef b;
  Origin a_origin;
  Origin b_origin;
  std::int64_t group = -1;  // not yet committed
  bool done = false;
};

struct BulkWrite {  // one BulkStore: first it reads shared memory, then it writes global memory
  Issue issue;
  Component write_component = 0;
  SlotRef source;
  std::int64_t row = 0;
  program::MapId map;
  std::vector<std::int64_t> coordinates;
  std::vector<float> words;
  bool has_read = false;
};

struct BulkRead {  // one CopyBulk into one block
  Issue issue;
  std::size_t block = 0;
  SlotRef target;
  program::RingId ring;
  program::MapId map;
  std::vector<std::int64_t> coordinates;
  int first_row = 0;
  int first_col = 0;
  int next_row = 0;  // rows moved so far
};

struct Actor {
  std::size_t index = 0;
  std::size_t block = 0;
  program::RoleId role;
  int instance = 0;

  std::vector<Frame> frames;
  std::vector<std::int64_t> vars;
  std::vector<bool> var_known;  // replay: whether the value follows from constants
  std::vector<std::int64_t> cursors;
  std::vector<int> copies_of_fill;           // by RingId: bulk copies issued since the last acquire
  std::vector<Tile> fragments;               // by FragmentId; empty for other roles'
  std::deque<Product> products;              // issued and not yet waited for
  std::int64_t groups = 0;                   // committed
  std::deque<std::pair<Time, bool>> stores;  // bulk stores not yet waited for: their time, has read
  Time stores_issued = 0;
  Time products_issued = 0;
  std::size_t next_decision = 0;

  VectorClock clock;
  Time now = 0;     // its own component of the clock
  Time synced = 0;  // see Toucher
  Fences fences;
  std::optional<std::int64_t> meeting;  // the generation it waits for
  bool conditional = false;             // inside an if_any
  unsigned active_warps = 0xf;          // there
  bool done = false;
  std::optional<std::uint64_t> blocked;  // the number of wakeups when it last found itself blocked
};

struct Block {
  explicit Block(const program::Program& program);
  SharedMemory memory;
  std::vector<std::vector<PhaseBarrier>> full;  // by RingId, slot
  std::vector<std::vector<PhaseBarrier>> empty;
  std::vector<std::vector<Meeting>> barriers;  // by BarrierId, index
  std::size_t running = 0;                     // actors not done
  std::map<std::size_t, Time> reached_from;    // actors of other blocks: when they last touched something here
};

enum class Step : std::uint8_t { advanced, blocked };

// Which items a cluster does.
class WorkPlan {
 public:
  WorkPlan(Launch& launch, FaultSink& faults);
  [[nodiscard]] std::int64_t clusters() const { return clusters_; }
  [[nodiscard]] std::vector<std::int64_t> items(program::WorkOrder order, std::int64_t count, int cluster) const;

 private:
  std::int64_t clusters_ = 1;
  std::uint64_t seed_ = 0;
};

class Cluster {
 public:
  Cluster(Launch& launch, GlobalMemory& global, const WorkPlan& plan, int index, FaultSink& faults);
  void run(RunReport& report);

 private:
  // cluster.cpp: scheduling
  struct Choice {
    enum class Kind : std::uint8_t { actor, copy, product, store } kind = Kind::actor;
    std::size_t index = 0;
  };
  [[nodiscard]] std::vector<Choice> choices() const;
  Choice choose(const std::vector<Choice>& choices);
  void reshuffle();
  void act(const Choice& choice, RunReport& report);
  void step(Actor& actor, RunReport& report);
  void finish(Actor& actor);
  void check_end_of_blocks();
  void report_deadlock();
  [[nodiscard]] std::string waiting_for(const Actor& actor) const;
  [[nodiscard]] std::string state_of(const PhaseBarrier& barrier) const;
  [[nodiscard]] std::string names_of(const std::vector<std::size_t>& actors) const;
  [[nodiscard]] std::string name_of(const Actor& actor) const;
  [[nodiscard]] std::string name_of(Component component) const;
  [[nodiscard]] std::string name_of(const SlotRef& ref) const;

  // control.cpp
  const program::Instr* current(Actor& actor);  // null: the role is at its end
  bool next_trip(Actor& actor, Frame& frame);
  const std::vector<std::int64_t>& items_of(program::WorkOrder order, std::int64_t count);
  bool enter_item(Actor& actor, Frame& frame);
  [[nodiscard]] bool known(const Actor& actor, program::ExprId expr) const;
  bool decide(Actor& actor);
  Step execute(Actor& actor, const program::Instr& instr, const program::ForWork& op);
  Step execute(Actor& actor, const program::Instr& instr, const program::For& op);
  Step execute(Actor& actor, const program::Instr& instr, const program::If& op);
  Step execute(Actor& actor, const program::Instr& instr, const program::IfAny& op);
  Step execute(Actor& actor, const program::Instr& instr, const program::Let& op);
  Step execute(Actor& actor, const program::Instr& instr, const std::monostate& op);

  // synchronise.cpp
  Step execute(Actor& actor, const program::Instr& instr, const program::RingAcquire& op);
  Step execute(Actor& actor, const program::Instr& instr, const program::RingCommit& op);
  Step execute(Actor& actor, const program::Instr& instr, const program::RingWait& op);
  Step execute(Actor& actor, const program::Instr& instr, const program::RingRelease& op);
  Step execute(Actor& actor, const program::Instr& instr, const program::RingAdvance& op);
  Step execute(Actor& actor, const program::Instr& instr, const program::BarrierSync& op);
  Step execute(Actor& actor, const program::Instr& instr, const program::BarrierArrive& op);
  Step execute(Actor& actor, const program::Instr& instr, const program::ProxyFence& op);
  Step execute(Actor& actor, const program::Instr& instr, const program::ClusterSync& op);
  Step execute(Actor& actor, const program::Instr& instr, const program::BulkStoreWait& op);
  Step execute(Actor& actor, const program::Instr& instr, const program::MmaCommit& op);
  Step execute(Actor& actor, const program::Instr& instr, const program::MmaWait& op);
  struct RingPlace {
    int slot = 0;
    std::int64_t fill = 0;
  };
  RingPlace place_in(const Actor& actor, program::RingId ring, int lag) const;
  struct BarrierPlace {
    std::size_t block = 0;
    program::RingId ring;
    int slot = 0;
    bool full = true;
  };
  PhaseBarrier& barrier_at(const BarrierPlace& place);
  std::string name_of(const BarrierPlace& place) const;
  bool knows_phases(const VectorClock& clock, std::int64_t count, const BarrierPlace& place, std::string_view what);
  Step wait(Actor& actor, std::int64_t phase, const BarrierPlace& place);
  void arrive(Actor& actor, std::int64_t phase, const BarrierPlace& place);
  void receive(Actor& actor, const VectorClock& clock);
  void count_bytes(const BulkRead& copy);
  void settle(const BarrierPlace& place);
  void check_filled(const BarrierPlace& place, std::int64_t fill);
  void reach(const Actor& actor, std::size_t block);
  Step meet(Actor& actor, Meeting& meeting, bool wait);
  Meeting* meeting_of(Actor& actor, program::BarrierId barrier, const std::optional<program::ExprId>& index);

  // memory.cpp: shared memory as everybody touches it
  SlotRef slot_of(const Actor& actor, const program::BufferRef& ref) const;
  [[nodiscard]] Toucher toucher(const Actor& actor, const program::Instr* instr) const;
  [[nodiscard]] Toucher toucher(const Issue& issue) const;
  Issue issue(Actor& actor, const program::Instr& instr, Component component, Time time) const;
  [[nodiscard]] FaultKind outside() const;
  void touch(std::size_t block, const SlotRef& ref, const Region& region, bool write, const Toucher& now);
  void begin_read(std::size_t block, const SlotRef& ref, const Region& region, const Toucher& now);
  void begin_write(std::size_t block, const SlotRef& ref, const Region& region, const Toucher& now);
  // Elements scattered by coordinates: rows and cols hold one a tile element.
  void touch_elements(std::size_t block, const SlotRef& ref, const std::vector<int>& rows, const std::vector<int>& cols,
                      bool write, const Toucher& now);
  void check_written(std::size_t block, const SlotRef& ref, const Region& region);

  // transfer.cpp
  Step execute(Actor& actor, const program::Instr& instr, const program::CopyBulk& op);
  Step execute(Actor& actor, const program::Instr& instr, const program::CopyPlain& op);
  Step execute(Actor& actor, const program::Instr& instr, const program::LoadGlobal& op);
  Step execute(Actor& actor, const program::Instr& instr, const program::StoreGlobal& op);
  Step execute(Actor& actor, const program::Instr& instr, const program::LoadShared& op);
  Step execute(Actor& actor, const program::Instr& instr, const program::StoreShared& op);
  Step execute(Actor& actor, const program::Instr& instr, const program::BulkStore& op);
  void copy_piece(std::size_t index);
  void store_piece(std::size_t index);

  // arithmetic.cpp
  Step execute(Actor& actor, const program::Instr& instr, const program::Mma& op);
  Step execute(Actor& actor, const program::Instr& instr, const program::Map& op);
  Step execute(Actor& actor, const program::Instr& instr, const program::Reduce& op);
  Step execute(Actor& actor, const program::Instr& instr, const program::Relayout& op);
  void multiply(Actor& actor, Product& product);
  std::vector<float> gather(Actor& actor, const Product& product, const program::Operand& operand, const SlotRef& ref,
                            const Product::Origin& first, int outer, bool k_first);
  void touch_scratch(Actor& actor, const program::Instr& instr, program::BufferId scratch, int elements);
  [[nodiscard]] Uniforms uniforms(const Actor& actor) const;
  [[nodiscard]] int cluster_rank(const Actor& actor) const { return static_cast<int>(actor.block); }
  // The tile, after a check that no product uses it and, for a read, that somebody wrote it.
  Tile& fragment_to_read(Actor& actor, program::FragmentId id);
  Tile& fragment_to_write(Actor& actor, program::FragmentId id);
  void check_not_in_flight(const Actor& actor, program::FragmentId id);
  std::vector<const float*> fragments_to_read(Actor& actor, const Code& code);

  const program::Program& program_;
  Launch& launch_;
  GlobalMemory& global_;
  const WorkPlan& plan_;
  FaultSink& faults_;
  int index_ = 0;
  Random random_;
  std::vector<Block> blocks_;
  std::vector<Actor> actors_;
  std::vector<BulkRead> copies_;
  std::vector<BulkWrite> stores_;
  Meeting everybody_;
  std::int64_t items_ = 0;  // begun by the first actor
  std::map<std::pair<program::WorkOrder, std::int64_t>, std::vector<std::int64_t>> item_lists_;
  std::uint64_t wakeups_ = 0;  // counts what may let a blocked actor go on
  FencesOf fences_of_;

  // Components: actors first, then each actor's tensor queue, bulk-store reads, bulk-store writes; barriers; copies.
  [[nodiscard]] Component tensor_queue(const Actor& a) const { return component(1, a); }
  [[nodiscard]] Component store_reads(const Actor& a) const { return component(2, a); }
  [[nodiscard]] Component store_writes(const Actor& a) const { return component(3, a); }
  [[nodiscard]] Component component(std::size_t kind, const Actor& a) const {
    return static_cast<Component>(kind * actors_.size() + a.index);
  }
  // A bulk copy's: target block, ring, slot, issuing actor, number within the fill.
  Component first_copy_ = 0;
  using CopyKey = std::tuple<std::size_t, int, int, std::size_t, int>;
  std::map<CopyKey, std::size_t> copy_components_;
  std::vector<CopyKey> copy_keys_;
  std::vector<Time> copy_times_;

  // Adversarial scheduling: higher goes first.
  std::vector<int> actor_priority_;
  int unit_priority_[3] = {0, 0, 0};  // copies, products, stores
};

}  // namespace pipethreader::interpret
