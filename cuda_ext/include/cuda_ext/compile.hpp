// Compile CUDA C++ when the program runs, with NVRTC. Targets have this if their module has JIT or
// EMBED_SOURCES.
//
//   cuda_ext::CompileOptions options;
//   options.headers = &project::kernels::cuda_ext_headers();  // embedded
//   const cuda_ext::Library library = cuda_ext::compile(text, {"scale<float>"}, options);
//   library.kernel("scale<float>").launch({grid, block, stream}, n, 2.0f, x);

#ifndef CUDA_EXT_COMPILE_v0_1_0
#define CUDA_EXT_COMPILE_v0_1_0

#include <string>
#include <utility>
#include <vector>

#include "interface.hpp"

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

struct CompileOptions {
  std::string name = "kernels.cu";                         // of the source, in messages
  std::vector<std::string> options;                        // of NVRTC, except for the architecture
  const HeaderData* headers = nullptr;                     // those that a module embeds
  std::vector<std::pair<std::string, std::string>> texts;  // name and text; replace those of `headers`
  std::vector<std::string> include_directories;            // searched before those of the toolkit
  bool is_specific = false;                                // with features of exactly one GPU: sm_90a
};

// Compile `source` for the GPU of the current context, or take the result from the cache. `names` are C++
// name expressions of the kernels: instantiations, and functions that are not templates. A GPU of another
// capability gets its own compilation at the first launch there.
//
// The cache key consists of the source, the headers, the options, and the toolkit's version. Files in
// `include_directories` count by name, size and time of modification.
Result<Library> try_compile(const std::string& source, const std::vector<std::string>& names,
                            const CompileOptions& options = {}) noexcept;

// Return the include directories with the headers of CUDA and CCCL that `compile` uses, for other compilers.
// Headers that NVRTC contains are unpacked into the cache.
Result<std::vector<std::string>> try_toolkit_directories() noexcept;

#if CUDA_EXT_EXCEPTIONS
inline Library compile(const std::string& source, const std::vector<std::string>& names,
                       const CompileOptions& options = {}) {
  return try_compile(source, names, options).value();
}
inline std::vector<std::string> toolkit_directories() { return try_toolkit_directories().value(); }
#endif

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext

#endif
