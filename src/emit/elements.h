// The instructions that work element by element on register tiles, alike on every CUDA-like target: maps, reductions
// within a warpgroup, moves between layouts, and guarded accesses to global memory.
#pragma once

#include "emit/emission.h"

namespace pipethreader::emit {

// Assigns every element of a fragment. `operand`: the fragment feeds a product from registers.
void write_map(Emission& emission, const program::Map& map, bool operand);

// Opens an `if` for warps that hold an element of the domain where the predicate is true; the caller closes it.
void open_if_any(Emission& emission, const layout::Layout& domain, program::ExprId predicate);

// Registers, then lanes, then warps through scratch memory.
void write_reduce(Emission& emission, const program::Reduce& reduce);

void write_load_global(Emission& emission, const program::LoadGlobal& load);
void write_store_global(Emission& emission, const program::StoreGlobal& store);

// A relayout whose elements all stay in their warp.
void write_relayout(Emission& emission, const program::Relayout& relayout);

// "tensor[offset]" for an access at a site, with 64-bit offsets; `address` instead gives "tensor + offset".
[[nodiscard]] std::string global_offset(Emission& emission, const program::Access& access, const struct Site& site);

// The largest vector (1, 2, 4, ... elements, at most 16 bytes) that starts at coordinates which are multiples of
// `coords` and runs along `dim`, for which one aligned access is provably right.
[[nodiscard]] int provable_vector(Emission& emission, const program::Access& access, int dim, int limit,
                                  const std::vector<int>& coords);

// True on the thread that writes an element held by several; empty when every thread does.
[[nodiscard]] std::string owner_condition(const layout::Layout& layout);

}  // namespace pipethreader::emit
