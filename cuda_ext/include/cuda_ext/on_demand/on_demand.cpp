// Compilation on demand, for all modules of a program.

#include "compilers.hpp"
#include "source.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {
namespace {

// Change it whenever the same key must have another result.
constexpr std::string_view key_format = "cuda-ext on demand in C++ 3";

std::string encode_entry(const Image& image) {
  std::string bytes = encode({image.architecture, image.data, image.log});
  for (const auto& [expression, lowered] : image.names) bytes += encode({expression, lowered});
  return bytes;
}

// Reads the image of an entry; returns nullptr if `content` is not an entry.
std::unique_ptr<Image> decode_entry(const std::string& content) {
  const std::vector<std::string_view> fields = decode(content);
  if (fields.size() % 2 == 0) return nullptr;
  auto image = std::make_unique<Image>();
  image->architecture = fields[0];
  image->data = fields[1];
  image->log = fields[2];
  for (std::size_t i = 3; i < fields.size(); i += 2) image->names.emplace_back(fields[i], fields[i + 1]);
  return image;
}

// Returns the entry of `key`. If there is none, `make` makes it, once for all processes, unless it fails.
template <class Make>
Result<std::unique_ptr<Image>> find_or_make(const std::string& key, const Make& make) {
  const Store store;
  if (auto known = decode_entry(store.get(key))) return known;
  const auto lock = store.lock(key);
  if (auto known = decode_entry(store.get(key))) return known;
  auto image = std::make_unique<Image>();
  if (Failure failed = make(*image)) return failed;
  store.put(key, encode_entry(*image));
  return image;
}

// The toolkit for this machine's driver, found at the first use.
const Toolkit& find_toolkit() {
  static const Toolkit toolkit(driver_version());
  return toolkit;
}

// The toolkit's NVRTC, opened at the first use.
const Nvrtc& open_nvrtc() {
  static const Nvrtc nvrtc(find_toolkit().library);
  return nvrtc;
}

// The toolkit's nvJitLink, opened at the first use.
const NvJitLink& open_linker() {
  static const NvJitLink linker(find_toolkit().linker);
  return linker;
}

// Compiles `recipe` for `target`, which is an architecture or the capability of a GPU.
Failure compile_recipe(const RecipeData& recipe, const Array<const char*>& expressions, const std::string& target,
                       Image& image) {
  const Nvrtc& nvrtc = open_nvrtc();
  if (!nvrtc.reason.empty()) return failure(ErrorKind::toolchain, {nvrtc.reason});
  const std::vector<int>& known = nvrtc.architectures;
  const Architecture wanted(target);
  const int number = wanted.number ? wanted.number : std::atoi(target.c_str());
  const auto newer = std::upper_bound(known.begin(), known.end(), number);
  if (newer == known.begin()) {
    return failure(ErrorKind::compilation,
                   {"nvrtc ", nvrtc.version, " cannot compile for sm_", number, ": it begins with sm_",
                    known.front(), "; older GPUs require an older CUDA"});
  }
  // For a GPU that is newer than the compiler, compile a cubin of the same generation, or else PTX.
  const int nearest = newer[-1];
  if (wanted.number && nearest != number) {
    return failure(ErrorKind::compilation, {"nvrtc ", nvrtc.version, " cannot compile for ", target,
                                            "; the nearest that it knows is sm_", nearest});
  }
  image.architecture = wanted.number ? target
                                     : joined({nearest / 10 == number / 10 ? "sm_" : "compute_", nearest,
                                               recipe.is_specific && nearest == number ? "a" : ""});
  const bool is_lto = wanted.kind == "lto";
  std::vector<std::string> options{"-arch=" + (is_lto ? "sm_" + wanted.target() : image.architecture)};
  if (is_lto) options.push_back("-dlto");
  options.insert(options.end(), recipe.options.begin(), recipe.options.end());
  const std::string given = recipe.text + encode_list(recipe.options);
  const bool may_include = given.find("include") != given.npos;
  Paths directories = find_toolkit().include_directories;
  if (auto failed = may_include ? nvrtc.unpack_headers(directories) : nullptr) return failed;
  for (const fs::path& directory : directories) options.push_back("-I" + directory.string());
  const std::string log = nvrtc.compile(recipe, pointers(options), expressions, image);
  if (log.empty()) return nullptr;
  return failure(ErrorKind::compilation,
                 {log, "\n(compiling ", recipe.name, " for ", image.architecture, ")"});
}

// Takes the image of `recipe` for `target` from the cache, or compiles it.
Result<std::unique_ptr<Image>> obtain(const RecipeData& recipe, const Array<const char*>& expressions,
                                      const std::string& target) {
  const std::string key = sha256(encode({key_format, find_toolkit().identity, target, recipe.is_specific,
                                         recipe.name, recipe.sha256}) +
                                 encode_list(recipe.options) + encode_list(expressions));
  return find_or_make(key, [&](Image& image) { return compile_recipe(recipe, expressions, target, image); });
}

// Compiles `source` for the architecture among its options, or else for the GPU of the current context, whose
// `capability` this sets.
Result<Image> compile_source(const ProgramSource& source, const CompileOptions& options, int& capability) {
  std::string target = options.architecture;
  if (target.empty()) {
    auto current = current_capability();
    if (!current) return std::move(current).failure();
    capability = *current;
    target = joined({capability});
  }
  auto image = obtain(source.recipe, source.recipe.instantiate, target);
  if (image) return std::move(**image);
  if (image.error().kind != ErrorKind::toolchain) return std::move(image).failure();
  return failure(ErrorKind::toolchain, {options.name, " cannot be compiled: ", image.error().message});
}

// std::make_shared has a tag that gcc makes a unique symbol, as std::to_string has a table.
Library open(Image image, std::string name, std::shared_ptr<const ProgramSource> source, int capability) {
  return Library(*open_owned(std::shared_ptr<ProgramModule>(
      new ProgramModule(std::move(image), std::move(name), std::move(source), capability))));
}

Failure refuse(const std::string& name, const std::string& mistake) {
  return failure(ErrorKind::argument, {name, name.empty() ? "" : ": ", mistake});
}

}  // namespace

CUDA_EXT_WEAK void fulfil_demand(Demand& demand) {
  const RecipeData& recipe = demand.module.on_demand->units[demand.unit];
  const char* expression = demand.expression.c_str();
  const Array<const char*> expressions =
      *expression ? Array<const char*>{&expression, 1} : recipe.instantiate;
  auto image = obtain(recipe, expressions, joined({demand.capability}));
  if (image) {
    demand.compiled = std::move(*image);
  } else if (image.error().kind == ErrorKind::toolchain && !open_nvrtc().reason.empty()) {
    demand.unavailable = image.error().message;
  } else {
    demand.reason = std::move(image).failure();
  }
}

CUDA_EXT_WEAK Result<Image> try_compile_image(const std::string& source, const std::vector<std::string>& names,
                                              const CompileOptions& options) noexcept {
  return guarded([&]() -> Result<Image> {
    const std::string mistake = find_mistake(source, names, options, Product::image);
    if (!mistake.empty()) return refuse(options.name, mistake);
    int capability = 0;
    return compile_source(ProgramSource(source, names, options), options, capability);
  });
}

CUDA_EXT_WEAK Result<Image> try_link_images(const std::vector<Image>& images, const std::string& architecture,
                                            const std::vector<std::string>& options) noexcept {
  return guarded([&]() -> Result<Image> {
    Image linked;
    linked.architecture = architecture;
    if (!images.empty() && architecture.empty()) {
      const Architecture first(images[0].architecture);
      if (first.number) linked.architecture = "sm_" + first.target();
    }
    const Architecture target(linked.architecture);
    if (images.empty()) return refuse("link_images", "expected images, found none");
    if (!target.number || target.kind == "lto") {
      return refuse("link_images", joined({"architecture: '", linked.architecture,
                                           "' cannot be that of a linked image; write one such as sm_90, or compute_90"}));
    }
    std::vector<std::string> all{"-arch=sm_" + target.target()};
    if (target.kind == "compute") all.push_back("-ptx");
    const auto is_lto = [](const Image& image) { return image.architecture[0] == 'l'; };
    if (std::any_of(images.begin(), images.end(), is_lto)) all.push_back("-lto");
    all.insert(all.end(), options.begin(), options.end());
    const auto spelled = pointers(all);
    std::string identity =
        encode({key_format, find_toolkit().linker_identity}) + encode_list({spelled.data(), spelled.size()});
    for (const Image& image : images) identity += encode({image.data});
    auto made = find_or_make(sha256(identity), [&](Image& image) -> Failure {
      const NvJitLink& linker = open_linker();
      if (!linker.reason.empty()) return failure(ErrorKind::toolchain, {linker.reason});
      image.architecture = linked.architecture;
      const std::string log = linker.link(images, spelled, image);
      if (log.empty()) return nullptr;
      return failure(ErrorKind::compilation, {log, "\n(linking for ", image.architecture, ")"});
    });
    if (!made) return std::move(made).failure();
    for (const Image& image : images) {
      for (const auto& [expression, lowered] : image.names) {
        if (!(*made)->lowered_name(expression)) (*made)->names.emplace_back(expression, lowered);
      }
    }
    return std::move(**made);
  });
}

CUDA_EXT_WEAK Result<Library> try_load_image(Image image, std::string name) noexcept {
  return guarded([&]() -> Result<Library> {
    const Architecture architecture(image.architecture);
    const Cubin cubin = kind_of_cubin(image.data);
    const bool is_ptx = architecture.kind == "compute" && image.data.find(".target") != image.data.npos;
    std::string mistake;
    if (!architecture.number) mistake = joined({"architecture: '", image.architecture, "' is none; ", architectures});
    if (architecture.kind == "lto" || cubin == Cubin::to_link) {
      mistake = "the image has to be linked; use link_images()";
    } else if (mistake.empty() && !is_ptx && !(architecture.kind == "sm" && cubin == Cubin::whole)) {
      mistake = joined({"the data is not a complete image for ", image.architecture, "; keep what compile_image() returned"});
    }
    if (!mistake.empty()) return refuse(name, mistake);
    return open(std::move(image), std::move(name), nullptr, 0);
  });
}

CUDA_EXT_WEAK Result<Library> try_compile(const std::string& source, const std::vector<std::string>& names,
                                          const CompileOptions& options) noexcept {
  return guarded([&]() -> Result<Library> {
    const std::string mistake = find_mistake(source, names, options, Product::library);
    if (!mistake.empty()) return refuse(options.name, mistake);
    const std::shared_ptr<const ProgramSource> compiled(new ProgramSource(source, names, options));
    int capability = 0;
    auto image = compile_source(*compiled, options, capability);
    if (!image) return std::move(image).failure();
    return open(*std::move(image), options.name, capability ? compiled : nullptr, capability);
  });
}

CUDA_EXT_WEAK Result<std::vector<std::string>> try_toolkit_directories() noexcept {
  return guarded([]() -> Result<std::vector<std::string>> {
    const std::string& reason = open_nvrtc().reason;
    if (!reason.empty()) return failure(ErrorKind::toolchain, {reason});
    Paths directories = find_toolkit().include_directories;
    if (auto failed = open_nvrtc().unpack_headers(directories)) return failed;
    std::vector<std::string> paths;
    for (const fs::path& each : directories) paths.push_back(each.string());
    return paths;
  });
}

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
