// The C++ interface of modules: errors, launch configurations, and kernels as typed objects.
//
//   #include "project/kernels.h"                                  // generated, and includes this
//
//   project::kernels::axpy<float>({grid, block, stream}, n, 2.0f, x, y);
//
// or, by name,
//
//   cuda_ext::Kernel axpy = project::kernels::cuda_ext_library().kernel("axpy<float>");
//   axpy.launch({grid, block, stream}, n, 2.0f, x, y);
//
// It requires C++17, but no CUDA headers and no standard headers that are slow to compile. The loader behind
// it (loader/loader.cpp) is compiled once for all modules of a project and called through pointers. The
// namespace is named after the version, so that libraries built by two versions can be linked into one
// program.

#ifndef CUDA_EXT_INTERFACE_v0_1_0
#define CUDA_EXT_INTERFACE_v0_1_0

#if (defined(_MSVC_LANG) && _MSVC_LANG < 201703L) || (!defined(_MSVC_LANG) && __cplusplus < 201703L)
#error "cuda-ext's headers need C++17: compile with -std=c++17 or newer (/std:c++17), or link the CMake target"
#endif

#undef CUDA_EXT_ABI
#define CUDA_EXT_ABI v0_1_0

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <type_traits>
#include <utility>

// Functions have hidden visibility: shared objects of one process do not share them. Types that projects use
// in their own declarations are visible, so that these declarations can be exported and exceptions can be
// caught.
#if !defined(CUDA_EXT_HIDDEN)
#if defined(__GNUC__) && !defined(_WIN32)
#define CUDA_EXT_HIDDEN __attribute__((visibility("hidden")))
#define CUDA_EXT_VISIBLE [[gnu::visibility("default")]]
#else
#define CUDA_EXT_HIDDEN
#define CUDA_EXT_VISIBLE
#endif
#endif

// For definitions that several libraries of one program may share.
#if !defined(CUDA_EXT_WEAK)
#if defined(__GNUC__) && !defined(_WIN32)
#define CUDA_EXT_WEAK __attribute__((weak))
#else
#define CUDA_EXT_WEAK
#endif
#endif

// True if functions that throw are declared. A project can define this as 0. It is 0 if the compiler has no
// exceptions. Nothing else changes.
#if !defined(CUDA_EXT_EXCEPTIONS)
#if defined(__cpp_exceptions) || defined(_CPPUNWIND)
#define CUDA_EXT_EXCEPTIONS 1
#else
#define CUDA_EXT_EXCEPTIONS 0
#endif
#endif

#include "interface/data.hpp"
#include "interface/error.hpp"
#include "interface/launch.hpp"
#include "interface/module.hpp"
#include "interface/type_name.hpp"
#include "interface/argument.hpp"
#include "interface/kernel.hpp"
#include "interface/instantiation.hpp"
#include "interface/variable.hpp"

#endif
