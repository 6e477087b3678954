// One walk over a role's instructions, shared by all targets: control flow, names, elementwise work and comments are
// written here; what differs between machines is a hook that each target fills.
#pragma once

#include "emit/emission.h"

namespace pipethreader::emit {

class Target {
 public:
  virtual ~Target() = default;

  // Called before each instruction is written.
  virtual void begin(const program::Instr& instr) = 0;

  virtual void open_work(const program::ForWork& work) = 0;
  virtual void close_work(const program::ForWork& work) = 0;

  virtual void write(const program::RingAcquire& op) = 0;
  virtual void write(const program::RingCommit& op) = 0;
  virtual void write(const program::RingWait& op) = 0;
  virtual void write(const program::RingRelease& op) = 0;
  virtual void write(const program::RingAdvance& op) = 0;
  virtual void write(const program::CopyBulk& op) = 0;
  virtual void write(const program::CopyPlain& op) = 0;
  virtual void write(const program::LoadShared& op) = 0;
  virtual void write(const program::StoreShared& op) = 0;
  virtual void write(const program::BulkStore& op) = 0;
  virtual void write(const program::BulkStoreWait& op) = 0;
  virtual void write(const program::Mma& op) = 0;
  virtual void write(const program::MmaCommit& op) = 0;
  virtual void write(const program::MmaWait& op) = 0;
  virtual void write(const program::Relayout& op) = 0;
  virtual void write(const program::BarrierSync& op) = 0;
  virtual void write(const program::BarrierArrive& op) = 0;
  virtual void write(const program::ProxyFence& op) = 0;
  virtual void write(const program::ClusterSync& op) = 0;
};

void walk(Emission& emission, Target& target, const program::Block& block);

}  // namespace pipethreader::emit
