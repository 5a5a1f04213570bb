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
#include <string_view>
#include <utility>
#include <vector>

#include "interface.hpp"

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

struct CompileOptions {
  std::string name = "kernels.cu";                         // of the source, in messages
  std::vector<std::string> options;                        // of NVRTC
  const HeaderData* headers = nullptr;                     // those that a module embeds
  std::vector<std::pair<std::string, std::string>> texts;  // name and text; replace those of `headers`
  std::vector<std::string> include_directories;            // searched before those of the toolkit
  bool is_specific = false;  // with features of exactly one GPU: sm_90a
  std::string architecture;  // to compile for, instead of the GPU: "sm_90a", "compute_90" (PTX), "lto_90" (LTO-IR)
};

// What was compiled or linked for one architecture: the bytes of a cubin, PTX or LTO-IR, the lowered names of the
// name expressions, and the warnings of the compiler.
struct Image {
  std::string architecture;
  std::string data;
  std::string log;
  std::vector<std::pair<std::string, std::string>> names;  // expression and lowered name

  // Returns the lowered name of `expression`, or nullptr if it is not among the names.
  const char* lowered_name(std::string_view expression) const noexcept {
    for (const auto& [name, lowered] : names) {
      if (name == expression) return lowered.c_str();
    }
    return nullptr;
  }
};

// Compile `source` for the GPU of the current context, or take the result from the cache. `names` are C++
// name expressions of the kernels: instantiations, and functions that are not templates; and of variables, with
// an &, "&ns::table<float>". Variables that are not templates are found without that. A GPU of another
// capability gets its own compilation at the first launch there. With an `architecture`, no GPU is needed, and
// the library has the one image for it.
//
// The cache key consists of the source, the headers, the options, and the toolkit's version. Files in
// `include_directories` count by name, size and time of modification.
Result<Library> try_compile(const std::string& source, const std::vector<std::string>& names,
                            const CompileOptions& options = {}) noexcept;

// Compile `source`, and return the image. It may be one to link: LTO-IR, or with the option -rdc=true. `names` may
// be empty then.
Result<Image> try_compile_image(const std::string& source, const std::vector<std::string>& names,
                                const CompileOptions& options = {}) noexcept;

// Link images of one program with nvJitLink to a cubin for `architecture`, or to PTX if all are LTO-IR. Without an
// `architecture`, it is a cubin for that of the first image. The data of an image may also be a fatbin, or an object
// or a static library of the host with device code. `options` are those of nvJitLink.
Result<Image> try_link_images(const std::vector<Image>& images, const std::string& architecture = {},
                              const std::vector<std::string>& options = {}) noexcept;

// Return the library of an image, which may come from a file. `name` stands for it in messages.
Result<Library> try_load_image(Image image, std::string name = "kernels.cu") noexcept;

// Return the include directories with the headers of CUDA and CCCL that `compile` uses, for other compilers.
// Headers that NVRTC contains are unpacked into the cache.
Result<std::vector<std::string>> try_toolkit_directories() noexcept;

#if CUDA_EXT_EXCEPTIONS
inline Library compile(const std::string& source, const std::vector<std::string>& names,
                       const CompileOptions& options = {}) {
  return try_compile(source, names, options).value();
}
inline Image compile_image(const std::string& source, const std::vector<std::string>& names,
                           const CompileOptions& options = {}) {
  return try_compile_image(source, names, options).value();
}
inline Image link_images(const std::vector<Image>& images, const std::string& architecture = {},
                         const std::vector<std::string>& options = {}) {
  return try_link_images(images, architecture, options).value();
}
inline Library load_image(Image image, std::string name = "kernels.cu") {
  return try_load_image(std::move(image), std::move(name)).value();
}
inline std::vector<std::string> toolkit_directories() { return try_toolkit_directories().value(); }
#endif

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext

#endif
