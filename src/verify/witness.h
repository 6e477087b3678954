// From a way through the exploration to what a person, or the interpreter, can follow: the exploration forgets exact
// counts, so the way is walked once more without forgetting.
#pragma once

#include <memory>

#include "verify/explore.h"

namespace pipethreader::verify {

// `terms` are those of the model; the witness keeps them. Its fault is `none` when nothing happens with exact counts.
[[nodiscard]] Witness make_witness(const Model& model, std::shared_ptr<const Terms> terms, const Exploration& found);

}  // namespace pipethreader::verify
