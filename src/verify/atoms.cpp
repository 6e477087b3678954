#include "verify/atoms.h"

namespace pipethreader::verify {

using namespace program;

void cut_buffers(const Program& program, Compiled& compiled) {
  std::vector<std::vector<Rectangle>> parts(program.buffers.size());
  const auto each_access = [&](auto visit) {
    for (Code& code : compiled.codes) {
      for (Step& step : code.steps) {
        for (SharedAccess& access : step.shared) visit(access);
      }
    }
  };
  each_access([&](const SharedAccess& access) {
    parts[static_cast<std::size_t>(access.ref.buffer.index)].push_back(access.part);
  });
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    compiled.atoms.push_back(cut(program.buffers[b], parts[b]));
    compiled.atom_counts.push_back(static_cast<int>(compiled.atoms.back().size()));
  }
  each_access([&](SharedAccess& access) {
    const auto& atoms = compiled.atoms[static_cast<std::size_t>(access.ref.buffer.index)];
    for (std::size_t i = 0; i < atoms.size(); ++i) {
      if (inside(atoms[i], access.part)) access.atoms.push_back(static_cast<int>(i));
    }
  });
}

}  // namespace pipethreader::verify
