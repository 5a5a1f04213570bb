// nvJitLink: link images when the program runs (cuda_ext/toolchain/nvjitlink.py).

#pragma once

#include "../compile.hpp"
#include "../loader/shared_library.hpp"
#include "../loader/text.hpp"
#include "toolkit.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {
namespace {

// The constructor opens it; it is never closed.
class NvJitLink {
 public:
  std::string reason;  // why it cannot be used; empty if it can

  explicit NvJitLink(const fs::path& path) {
    reason = "it is not beside NVRTC";
    if (!path.empty()) {
      const SharedLibrary library(path.c_str(), LibrarySearch::its_directory);
      reason = library.reason();
      const bool is_whole =
          library.find(create_, "nvJitLinkCreate") && library.find(destroy_, "nvJitLinkDestroy") &&
          library.find(add_, "nvJitLinkAddData") && library.find(complete_, "nvJitLinkComplete") &&
          library.find(cubin_size_, "nvJitLinkGetLinkedCubinSize") && library.find(cubin_, "nvJitLinkGetLinkedCubin") &&
          library.find(ptx_size_, "nvJitLinkGetLinkedPtxSize") && library.find(ptx_, "nvJitLinkGetLinkedPtx") &&
          library.find(error_size_, "nvJitLinkGetErrorLogSize") && library.find(error_, "nvJitLinkGetErrorLog") &&
          library.find(info_size_, "nvJitLinkGetInfoLogSize") && library.find(info_, "nvJitLinkGetInfoLog");
      if (reason.empty() && !is_whole) reason = path.string() + " is not that of CUDA 12 or newer";
    }
    if (reason.empty()) return;
    reason = joined({"nvJitLink cannot be loaded (", reason,
                     "); install it with \"cuda-ext[cu13]\" (or \"cuda-ext[cu12]\"), or set CUDA_PATH to a CUDA toolkit"});
  }

  // Links `images` with `options` to the data of `linked`. Returns the linker's message if that fails.
  //
  // nvJitLink keeps state for each thread: after an error, all links in the thread may fail, or succeed wrongly.
  std::string link(const std::vector<Image>& images, const std::vector<const char*>& options, Image& linked) const {
    std::string failure;
    std::thread([&] { failure = link_here(images, options, linked); }).join();
    return failure;
  }

 private:
  using Handle = void*;
  using Code = int;  // nvJitLinkResult
  using GetSize = Code (*)(Handle handle, std::size_t* size);
  using Get = Code (*)(Handle handle, char* bytes);

  std::string link_here(const std::vector<Image>& images, const std::vector<const char*>& options, Image& linked) const {
    Handle handle = nullptr;
    Code code = create_(&handle, static_cast<std::uint32_t>(options.size()), options.data());
    if (code) {
      std::string refused = "nvJitLink refuses the options";
      for (const char* option : options) refused += joined({" ", option});
      return refused;
    }
    std::vector<std::string> names;
    for (std::size_t i = 0; i < images.size(); i++) names.push_back(joined({"image ", i + 1}));
    for (std::size_t i = 0; i < images.size() && !code; i++) {
      const std::string& data = images[i].data;
      code = add_(handle, any, data.data(), data.size(), names[i].c_str());
    }
    code = code ? code : complete_(handle);
    const bool is_ptx = linked.architecture[0] == 'c';
    if (!code) code = read(handle, is_ptx ? ptx_size_ : cubin_size_, is_ptx ? ptx_ : cubin_, linked.data);
    std::string log;
    read(handle, code ? error_size_ : info_size_, code ? error_ : info_, log);
    log.erase(std::min(log.rfind("\nERROR "), log.size()));  // only says that there was one
    log.erase(log.find_last_not_of(std::string_view("\0 \n", 3)) + 1);
    destroy_(&handle);
    if (code) return log.empty() ? joined({"nvJitLink: error ", code}) : log;
    linked.log = log;
    return "";
  }

  static Code read(Handle handle, GetSize get_size, Get get, std::string& bytes) {
    std::size_t size = 0;
    const Code code = get_size(handle, &size);
    bytes.resize(size);
    return code || !size ? code : get(handle, bytes.data());
  }

  static constexpr int any = 10;  // nvJitLinkInputType: the linker sees what the data is

  Code (*create_)(Handle* handle, std::uint32_t count, const char* const* options) = nullptr;
  Code (*destroy_)(Handle* handle) = nullptr;
  Code (*add_)(Handle handle, int type, const void* data, std::size_t size, const char* name) = nullptr;
  Code (*complete_)(Handle handle) = nullptr;
  GetSize cubin_size_ = nullptr, ptx_size_ = nullptr, error_size_ = nullptr, info_size_ = nullptr;
  Get cubin_ = nullptr, ptx_ = nullptr, error_ = nullptr, info_ = nullptr;
};

}  // namespace
}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
