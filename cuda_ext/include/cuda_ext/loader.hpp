// The loader of kernels that were compiled into a program: everything that generated headers use.
//
//   #include "project/kernels.h"                                  // generated
//
//   project::kernels::axpy<float>({grid, block, stream}, n, 2.0f, x, y);
//
// or, by name,
//
//   cuda_ext::Kernel axpy = project::kernels::cuda_ext_library().kernel("axpy<float>");
//   axpy.launch({grid, block, stream}, n, 2.0f, x, y);
//
// It is C++17 and takes neither CUDA's headers nor its runtime, and no driver before the first launch.

#pragma once

#include "argument.hpp"
#include "data.hpp"
#include "driver.hpp"
#include "error.hpp"
#include "launch.hpp"
#include "library.hpp"
#include "overload.hpp"
#include "type_id.hpp"
