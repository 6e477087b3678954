// Kernels written in C++: pipethreader::build makes the same kernels as text in the kernel language, name for name, and
// what it makes is taken by pipethreader::compile.
//
//   using namespace pipethreader::build;
//   Builder k("scale");
//   Term N = k.dim("N");
//   Tensor X = k.input("X", ScalarType::f32, {N}), Y = k.output("Y", ScalarType::f32, {N});
//   Term factor = k.scalar("factor", ScalarType::f32);
//   Axis n = k.parallel("n", N);
//   Y(n) = factor * X(n);
//   pipethreader::Result<pipethreader::Kernel> kernel = k.finish();
//
// docs/language.md states the meaning of every part, and what each is in text.
#pragma once

#include "base/scalar_type.h"
#include "kernel/builder.h"

namespace pipethreader {

// A kernel in index notation, out of a text or a builder.
using kernel::Kernel;

namespace build {

// Builder declares dims, tensors, scalars, options and axes, gathers the statements, and gives the kernel: finish().
using kernel::build::Builder;
// What LoopOptions say of a loop: its `where`, whether it is ordered, how partial states combine.
using kernel::build::LoopOptions;
// Expressions, axes, and the names of tensors and values; called with indices, a name is an element: C(m, n).
using kernel::build::Axes;
using kernel::build::Axis;
using kernel::build::Element;
using kernel::build::Guarded;
using kernel::build::Tensor;
using kernel::build::Term;
using kernel::build::Value;
// Functions of elements; operators are those of C++. call() takes any function of the language.
using kernel::build::call;
using kernel::build::convert;
using kernel::build::exp;
using kernel::build::exp2;
using kernel::build::max;
using kernel::build::min;
using kernel::build::select;
// Reductions over axes.
using kernel::build::reduce;
using kernel::build::reduce_max;
using kernel::build::reduce_min;
using kernel::build::sum;

using kernel::ReduceOp;
using pipethreader::Function;
using pipethreader::ScalarType;

}  // namespace build

}  // namespace pipethreader
