// What NVRTC has built in, declared for clangd. No compiler reads this.
//
// It takes no header of a CUDA toolkit, as NVRTC itself takes none: a source is shown as the build sees it.
// Headers that NVRTC skips when a source includes them, such as cuda_runtime.h, are skipped here too.

// These are no system headers: of those, clangd completes no name that begins with two underscores.

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
