// NVRTC's builtin declarations, for clangd. No compiler reads these headers.
//
// Like NVRTC they need no header of a CUDA toolkit, so that clangd sees a source as the build does. Headers that
// NVRTC ignores when a source includes them, such as cuda_runtime.h, are ignored here, too.
//
// clang's own CUDA headers (__clang_cuda_device_functions.h and others) do not replace them. Those lie in
// clangd's resource directory, which only -nostdlibinc leaves on the search path; <stdint.h> and <limits.h>,
// which NVRTC does not have, would then be found there. They lack atomics, textures, surfaces, address spaces
// and more, and differ between versions of clang. As system headers, they would also remove names that begin
// with two underscores from the completion.

#pragma once

#include "qualifiers.hpp"

#include "types.hpp"

#include "arithmetic.hpp"
#include "math.hpp"
#include "memory.hpp"
#include "textures.hpp"
#include "threads.hpp"

#if __has_include(<nv/target>)
#include <nv/target>
#endif
