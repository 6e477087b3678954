#include "interpret/launch.h"

#include "program/walk.h"

namespace pipethreader::interpret {

using namespace program;

Launch::Launch(const Program& p, const Arguments& arguments, const RunOptions& o, FaultSink& faults)
    : program(p), options(o), params(arguments.params), read(p.tensors.size(), false), code(p) {
  params.resize(p.params.size(), 1.0);  // a replay may come without
  for (std::size_t i = 0; i < params.size(); ++i) params[i] = round_to(p.params[i].type, params[i]);
  const std::vector<std::int64_t> no_vars(p.vars.size(), 0);
  const Uniforms uniforms{&p, params, no_vars, 0, 0, &faults};
  for (const Tensor& tensor : p.tensors) {
    std::vector<std::int64_t>& shape = shapes.emplace_back();
    for (const ExprId extent : tensor.shape) shape.push_back(uniforms.integer(extent));
  }
  for (const TensorMap& map : p.maps) resolve_map(map, uniforms);
  bulk_.assign(p.roles.size(), std::vector<bool>(p.rings.size(), false));
  for_each_instr(p, [&](RoleId role, const Instr& instr, const Path& path) {
    places_[&instr] = print(p, role, path) + (instr.comment.empty() ? "" : ": " + instr.comment);
    note(at(role), instr);
  });
}

void Launch::resolve_map(const TensorMap& map, const Uniforms& uniforms) {
  ResolvedMap& out = maps.emplace_back();
  out.tensor = map.tensor;
  for (const TensorMap::MapDim& dim : map.dims) {
    out.extent.push_back(uniforms.integer(dim.extent));
    out.stride.push_back(uniforms.integer(dim.stride));
    out.box.push_back(dim.box);
    out.step.push_back(dim.step);
  }
  if (map.dims.empty()) return;
  out.cols = out.box[0];
  for (std::size_t d = 1; d < out.box.size(); ++d) out.rows *= out.box[d];
}

std::int64_t Launch::elements(TensorId tensor) const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shapes[at(tensor)]) count *= extent;
  return count;
}

bool Launch::fills_by_bulk(RoleId role, RingId ring) const { return bulk_[at(role)][at(ring)]; }

void Launch::note(std::size_t role, const Instr& instr) {
  if (const auto* work = std::get_if<ForWork>(&instr.op); work != nullptr && work_ == nullptr) work_ = work;
  if (const auto* copy = std::get_if<CopyBulk>(&instr.op)) {
    const RingId ring = program[copy->target.buffer].ring;
    if (ring.valid()) bulk_[role][at(ring)] = true;
    read[at(program[copy->map].tensor)] = true;
  }
  if (const auto* copy = std::get_if<CopyPlain>(&instr.op)) read[at(copy->source.tensor)] = true;
  if (const auto* load = std::get_if<LoadGlobal>(&instr.op)) read[at(load->source.tensor)] = true;
}

const std::vector<std::uint8_t>& Launch::warps_of(const layout::Layout& layout) {
  std::vector<std::uint8_t>& warps = warps_[&layout];  // layouts stay where they are in the program
  if (!warps.empty()) return warps;
  warps.assign(elements_of(layout.shape), 0);
  const std::vector<std::int64_t> strides = strides_of(layout.shape);
  const int registers = layout.registers();
  for (int thread = 0; thread < layout::threads_of_group; ++thread)
    for (int reg = 0; reg < registers; ++reg) {
      const std::vector<int> at_tile = layout.coordinates(thread, reg);
      std::int64_t element = 0;
      for (std::size_t d = 0; d < at_tile.size(); ++d) element += at_tile[d] * strides[d];
      warps[static_cast<std::size_t>(element)] |= static_cast<std::uint8_t>(1u << (thread / layout::lanes_of_warp));
    }
  return warps;
}

std::string Launch::place(const Instr* instr) const {
  const auto found = places_.find(instr);
  return found == places_.end() ? "nowhere" : found->second;
}

}  // namespace pipethreader::interpret
