#include "emit/emit.h"

#include <algorithm>

#include "emit/emission.h"
#include "emit/sm_90a.h"

namespace pipethreader::emit {

std::int64_t LaunchShape::grid(const program::Program& program, const std::vector<double>& params, int units) const {
  const std::int64_t items = count.valid() ? program::evaluate(program, count, params) : 1;
  if (order == program::WorkOrder::single) return items * cluster;
  const std::int64_t clusters = static_cast<std::int64_t>(units) * blocks_per_unit / cluster;
  return std::min(items, std::max<std::int64_t>(clusters, 1)) * cluster;
}

Result<CudaSource> emit_unproved(const program::Program& program) {
  Emission emission(program);
  Sm90a target(emission);
  CudaSource source = target.source();
  if (!emission.problems().empty()) {
    Error error;
    error.diagnostics = emission.problems();
    return tl::unexpected(std::move(error));
  }
  return source;
}

Result<CudaSource> emit(const verify::VerifiedProgram& program) { return emit_unproved(program.program()); }

}  // namespace pipethreader::emit
