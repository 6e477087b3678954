// Which choices a kernel is compiled with: what the search ranks first, with what the user forces put over it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "driver/pipeline.h"

namespace pipethreader::driver {

struct Candidate {
  Choices choices;
  double predicted_us = 0;
  std::string bound;
};

using Forced = std::vector<std::pair<std::string, std::string>>;

// Puts the forced choices over `choices`. Keys: split, row, column, stream, element, lanes, teams, blocks, share,
// overlap, depth, outer, turns, staged, order, raster, band, cluster, walk, hold, pass, bulk. Unknown keys and values
// are errors that list the known.
[[nodiscard]] Result<void> force(Choices& choices, const Forced& forced);

// Best first; never empty. What is forced narrows down what the search ranks; where nothing ranked has it, it is put
// over what has, fewest changes first.
[[nodiscard]] Result<std::vector<Candidate>> choices_for(const kernel::Kernel& specialised,
                                                         const device::Device& device, const Forced& forced);

// In the words of `--force`: "row=128 column=128 stream=64 lanes=2 overlap=delayed depth=2 order=single"; of a kernel
// without products on the tensor core, what counts there. Other choices are named where they are not the plain ones.
[[nodiscard]] std::string describe(const Choices& choices, bool products = true);

}  // namespace pipethreader::driver
