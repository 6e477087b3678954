// Turns a proved device program into the source of one kernel and the shape of its launch. The source is readable,
// names what the user named, and includes nothing: any run-time compiler takes it as it is. Emission judges nothing
// again; what the target has no instruction for is an error that names the instruction.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "program/program.h"
#include "verify/verify.h"

namespace pipethreader::emit {

// How many blocks of how many threads. Persistent and dynamic programs fill the device, the others have a block (or a
// cluster of blocks) for each work item.
struct LaunchShape {
  int threads = 0;
  int cluster = 1;
  std::int64_t shared_bytes = 0;  // dynamic shared memory of a block
  int blocks_per_unit = 1;
  program::WorkOrder order = program::WorkOrder::single;
  program::ExprId count;  // number of work items, over params; invalid: one

  // Blocks to launch on a device with `units` execution units; 0 when there is nothing to do.
  [[nodiscard]] std::int64_t grid(const program::Program& program, const std::vector<double>& params, int units) const;
};

// A kernel parameter, in the order of the kernel's list.
struct Argument {
  enum class Kind : std::uint8_t {
    tensor,   // device address, a multiple of 16; `index` counts Program::tensors
    param,    // i32 or f32 by `type`; `index` counts Program::params
    map,      // 128 opaque bytes by value, aligned to 64; `index` counts Program::maps
    counter,  // device address of one 32-bit word that was 0 before the first launch; every launch leaves it 0
  };
  Kind kind = Kind::tensor;
  int index = 0;
  std::string name;
  ScalarType type = ScalarType::f32;
  // map: what one copy instruction moves, elements along each dim as the host has to encode it, innermost first. The
  // innermost is cut to the swizzle span, the outermost to each block's share of a multicast.
  std::vector<int> box;
  std::vector<int> steps;
};

struct CudaSource {
  std::string text;
  std::string entry;  // the kernel's name, unmangled
  LaunchShape launch;
  std::vector<Argument> arguments;
};

[[nodiscard]] Result<CudaSource> emit(const verify::VerifiedProgram& program);

// For tests of the emitter alone: a validated, legalised program that nobody has proved.
[[nodiscard]] Result<CudaSource> emit_unproved(const program::Program& program);

}  // namespace pipethreader::emit
