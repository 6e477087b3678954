// Hopper: ring slots are transaction barriers, tiles come by bulk tensor copies, products are wgmma, roles trade
// registers. The frame (parameters, shared memory, barrier initialisation, who plays which role) and the hooks.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "emit/emission.h"
#include "emit/emit.h"
#include "emit/walk.h"

namespace pipethreader::emit {

class Sm90a final : public Target {
 public:
  explicit Sm90a(Emission& emission);

  [[nodiscard]] CudaSource source();

  void begin(const program::Instr& instr) override;
  void open_work(const program::ForWork& work) override;
  void close_work(const program::ForWork& work) override;
  void write(const program::RingAcquire& op) override;
  void write(const program::RingCommit& op) override;
  void write(const program::RingWait& op) override;
  void write(const program::RingRelease& op) override;
  void write(const program::RingAdvance& op) override;
  void write(const program::CopyBulk& op) override;
  void write(const program::CopyPlain& op) override;
  void write(const program::LoadShared& op) override;
  void write(const program::StoreShared& op) override;
  void write(const program::BulkStore& op) override;
  void write(const program::BulkStoreWait& op) override;
  void write(const program::Mma& op) override;
  void write(const program::MmaCommit& op) override;
  void write(const program::MmaWait& op) override;
  void write(const program::Relayout& op) override;
  void write(const program::BarrierSync& op) override;
  void write(const program::BarrierArrive& op) override;
  void write(const program::ProxyFence& op) override;
  void write(const program::ClusterSync& op) override;

 private:
  // sm_90a.cpp: the frame
  struct Seat {  // where a role sits in the block
    int first_group = 0;
    int warp = -1;  // of a narrow copier
  };
  void seat_roles();
  void write_parameters(Writer& out, const CudaSource& source) const;
  void write_shared_layout(Writer& out) const;
  void write_init(Writer& out);
  void write_roles(Writer& out);
  void write_narrow_roles(Writer& out);
  void write_role_body(Writer& out, program::RoleId id);
  void write_registers(Writer& out, int registers);
  void write_declarations(Writer& out, program::RoleId id);

  // sm_90a_work.cpp
  void open_dynamic_work(const std::string& item, const std::string& first, const std::string& all,
                         const std::string& count);
  void hand_out_item(const std::string& item, const std::string& count);
  [[nodiscard]] std::string who_draws() const;
  [[nodiscard]] bool draws_late() const;
  void read_item(const std::string& item);
  void free_item(const std::string& condition);
  [[nodiscard]] std::string wait_for_work();
  [[nodiscard]] program::RoleId work_taker() const;
  [[nodiscard]] bool work_taker_reads() const;
  [[nodiscard]] int work_readers() const;
  [[nodiscard]] std::vector<Argument> arguments() const;
  [[nodiscard]] int threads() const { return groups_ * layout::threads_of_group; }

  // sm_90a_rings.cpp
  [[nodiscard]] const std::string& cursor(program::RingId ring) const;  // the name that begins its variables
  [[nodiscard]] std::string slot(program::RingId ring, int lag) const;
  [[nodiscard]] std::string phase(program::RingId ring, int lag) const;
  [[nodiscard]] std::string full(program::RingId ring, int lag) const;
  [[nodiscard]] std::string empty(program::RingId ring, int lag) const;
  [[nodiscard]] std::string slot_address(const program::BufferRef& ref) const;
  void write_release(program::RingId ring, const std::string& barrier);
  // Runs a statement on the one thread that speaks for the role instance.
  void by_leader(const std::string& statement);
  void open_leader();
  void close_leader();
  [[nodiscard]] std::string leader() const;  // its condition; empty when only that thread is here
  [[nodiscard]] std::string hardware_barrier(program::BarrierId id, const std::optional<program::ExprId>& index);

  [[nodiscard]] int loads_under_way() const;
  void copy_elements(const program::CopyPlain& op);                                     // sm_90a_copy.cpp
  bool write_descriptor(const program::Operand& operand, const std::string& variable);  // sm_90a_mma.cpp
  bool add_k_origin(const program::Operand& operand, std::string& offset);

  Emission& emission_;
  const program::Program& program_;
  Writer& out_;
  std::vector<Seat> seats_;
  int groups_ = 0;
  bool shared_copier_group_ = false;  // group 0 holds narrow copiers, a warp each
  std::int64_t work_offset_ = -1;     // items and barriers that hand out work in dynamic order
  bool fenced_ = false;               // tensor-core operands in registers are ordered before the next product
  // Loads from a ring's slots since its last release, as the source has them.
  struct LoadsUnderWay {
    std::vector<std::string> bits;  // of one register of each
    std::set<program::FragmentId> targets;
    bool known = true;  // the registers still hold what was loaded
  };
  std::vector<LoadsUnderWay> loads_under_way_;  // [ring]
};

// Helpers shared by the target's files.

// Byte offset of an element inside a slot, as C text over texts; `element` counts columns.
[[nodiscard]] std::string element_offset(Emission& emission, const program::Buffer& buffer, const std::string& row,
                                         const std::string& col);
// Rows and columns after which the swizzle of a slot begins anew, and the offset of such a place: there an element's
// offset is the sum of both.
struct Periods {
  int rows = 1;
  int cols = 1;
};
[[nodiscard]] Periods swizzle_periods(const program::Buffer& buffer);
[[nodiscard]] std::string shifted_offset(const program::Buffer& buffer, const std::string& row, const std::string& col);
[[nodiscard]] std::int64_t box_bytes(const program::Buffer& buffer);
[[nodiscard]] std::int64_t row_bytes(const program::Buffer& buffer);  // of one row of a box

// How copy instructions cut a map's tile.
struct CopyShape {
  std::vector<int> box;  // elements along each dim of one instruction
  int boxes = 1;         // instructions, side by side along the innermost dim
};
[[nodiscard]] CopyShape copy_shape(const program::Program& program, const program::TensorMap& map);

}  // namespace pipethreader::emit
