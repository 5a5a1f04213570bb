// Compilation on demand, for all modules of a program.

#include "../compile.hpp"
#include "../loader/demand.hpp"
#include "../loader/failure.hpp"
#include "../loader/text.hpp"
#include "nvrtc.hpp"
#include "store.hpp"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {
namespace {

// Change it whenever the same key is to have another result.
constexpr std::string_view key_format = "cuda-ext on demand in C++ 1";
// That of all entries (cuda_ext/runtime/jit/entry.py). Those of C++ have kernels without parameters, no
// symbols, and keys of their own.
constexpr std::string_view entry_format = "cuda-ext on demand 1";

std::string encode_entry(const CompiledUnit& unit) {
  std::string bytes = encode({entry_format, unit.architecture, unit.image, unit.names.size()});
  for (const auto& [expression, lowered] : unit.names) bytes += encode({expression, lowered, 0});
  return bytes + encode({0});
}

// The unit of an entry; nullptr if `content` is none.
std::unique_ptr<const CompiledUnit> decode_entry(const std::string& content) {
  const std::vector<std::string_view> fields = decode(content);
  if (fields.size() % 3 != 2 || fields.size() < 5) return nullptr;
  auto unit = std::make_unique<CompiledUnit>();
  unit->architecture = fields[1];
  unit->image = fields[2];
  for (std::size_t i = 4; i + 1 < fields.size(); i += 3) unit->names.emplace_back(fields[i], fields[i + 1]);
  return encode_entry(*unit) == content ? std::move(unit) : nullptr;
}

// The toolkit for a driver of that major version, found at the first use.
const Toolkit& find_toolkit(int major) {
  static const Toolkit newest(13);
  if (major >= 13) return newest;
  static const Toolkit older(major);
  return older;
}

// Why nothing can be compiled: `reason`, or else there is no NVRTC.
std::string no_nvrtc(const std::string& reason) {
  return joined(
      {"NVRTC cannot be loaded (",
       reason.empty() ? "it is neither in the active environment nor in CUDA_PATH" : reason,
       "); install it with \"cuda-ext[cu13]\" (or \"cuda-ext[cu12]\"), or set CUDA_PATH to a CUDA toolkit"});
}

// NVRTC, opened at the first use.
const Nvrtc& open_nvrtc(const Toolkit& toolkit) {
  static const Nvrtc nvrtc(toolkit.library);
  return nvrtc;
}

// List the include directories of CUDA and CCCL; those that NVRTC contains come first.
Failure list_directories(const Toolkit& toolkit, const Nvrtc& nvrtc, Paths& directories) {
  fs::path bundled;
  if (auto failed = nvrtc.unpack_headers(bundled)) return failed;
  directories = toolkit.include_directories;
  if (!bundled.empty()) directories.insert(directories.begin(), {bundled, bundled / "cccl"});
  return nullptr;
}

// Compile `recipe` for the GPU of `demand`.
Failure compile_recipe(const RecipeData& recipe, const Array<const char*>& expressions,
                       const Toolkit& toolkit, const Nvrtc& nvrtc, const Demand& demand, CompiledUnit& unit) {
  const std::vector<int>& known = nvrtc.architectures;
  const auto newer = std::upper_bound(known.begin(), known.end(), demand.capability);
  if (newer == known.begin()) {
    return failure(ErrorKind::compilation,
                   {"nvrtc ", nvrtc.version, " cannot compile for sm_", demand.capability,
                    ": it begins with sm_", known.front(), "; older GPUs take an older CUDA"});
  }
  // For a GPU that is newer than the compiler, a cubin of the same generation, or else PTX.
  const int target = newer[-1];
  unit.architecture = joined({target / 10 == demand.capability / 10 ? "sm_" : "compute_", target,
                              recipe.is_specific && target == demand.capability ? "a" : ""});
  std::vector<std::string> options{"-arch=" + unit.architecture};
  bool may_include = std::string_view(recipe.text).find("include") != std::string_view::npos;
  for (const char* option : recipe.options) {
    options.emplace_back(option);
    may_include = may_include || options.back().find("include") != std::string::npos;
  }
  Paths directories;
  if (auto failed = may_include ? list_directories(toolkit, nvrtc, directories) : nullptr) return failed;
  for (const fs::path& directory : directories) options.push_back("-I" + directory.string());
  std::vector<const char*> given;
  for (const std::string& option : options) given.push_back(option.c_str());
  const std::string text = nvrtc.compile(recipe, given, expressions, unit);
  if (text.empty()) return nullptr;
  return failure(ErrorKind::compilation,
                 {text, "\n(compiling ", recipe.name, " for ", unit.architecture, ")"});
}

using Texts = std::vector<std::pair<std::string, std::string>>;

bool has_text(const Texts& texts, std::string_view name) {
  return std::any_of(texts.begin(), texts.end(), [&](const auto& each) { return each.first == name; });
}

// What NVRTC would refuse without a reason.
Failure check_texts(const std::string& source, const CompileOptions& options) {
  const auto refuse = [&](Parts problem) {
    return failure(ErrorKind::argument, {options.name, ": ", joined(problem)});
  };
  const std::size_t nul = source.find('\0');
  if (nul != source.npos) return refuse({"the source has a NUL character, at byte ", nul, "; remove it"});
  Texts known;
  for (const auto& [name, text] : options.texts) {
    const std::size_t at = text.find('\0');
    if (at != text.npos) {
      return refuse({"the header '", name, "' has a NUL character, at byte ", at, "; remove it"});
    }
    if (has_text(known, name)) return refuse({"texts: two headers have the name '", name, "'; rename one"});
    known.emplace_back(name, "");
  }
  return nullptr;
}

// The module of a source that is compiled at run time.
class SourceModule final : public OwnedModule {
 public:
  SourceModule(const std::string& source, const std::vector<std::string>& names,
               const CompileOptions& options)
      : source_(source), options_(options), names_(names) {
    std::string identity = encode({source_});
    if (const HeaderData* embedded = options_.headers) {
      identity += encode({embedded->sha256});
      for (int i = 0; i < embedded->count; i++) {
        if (has_text(options_.texts, embedded->names[i])) continue;
        header_texts_.push_back(embedded->texts[i]);
        header_names_.push_back(embedded->names[i]);
      }
    }
    for (const auto& [name, text] : options_.texts) {
      identity += encode({name, text});
      header_texts_.push_back(text.c_str());
      header_names_.push_back(name.c_str());
    }
    for (const std::string& directory : options_.include_directories) {
      options_.options.push_back("-I" + directory);
      const Files files = list_files(directory);
      identity += encode({files.size()});
      for (const auto& [time, size, path] : files) identity += encode({time, size, path});
    }
    sha256_ = key_of(identity);
    options_.options.push_back("--frandom-seed=" + options_.name);
    for (const std::string& each : options_.options) option_texts_.push_back(each.c_str());
    for (const std::string& each : names_) {
      expressions_.push_back(each.c_str());
      kernels_.push_back({each.c_str(), "", 0, {}, {}, false});
    }
    const char* name = options_.name.c_str();
    data = {open_module, name, "nvrtc", true, {&unit_, 1}, array(kernels_), {}, {}, {}, &on_demand_};
    data.headers = {static_cast<int>(header_texts_.size()), header_texts_.data(), header_names_.data(), ""};
    recipe_ = {name,
               source_.c_str(),
               sha256_.c_str(),
               array(option_texts_),
               array(expressions_),
               data.headers,
               options_.is_specific,
               ""};
    unit_.sources = name;
    on_demand_ = {fulfil_demand, {&recipe_, 1}, {}};
  }

 private:
  template <class T>
  static Array<T> array(const std::vector<T>& items) noexcept {
    return {items.data(), items.size()};
  }

  const std::string source_;
  CompileOptions options_;
  const std::vector<std::string> names_;
  std::string sha256_;
  std::vector<const char*> header_texts_, header_names_, option_texts_, expressions_;
  std::vector<KernelData> kernels_;
  RecipeData recipe_{};
  UnitData unit_{};
  OnDemandData on_demand_{};
};

}  // namespace

CUDA_EXT_WEAK void fulfil_demand(Demand& demand) {
  const RecipeData& recipe = demand.module.on_demand->units[demand.unit];
  const char* expression = demand.expression.c_str();
  const Array<const char*> expressions =
      *expression ? Array<const char*>{&expression, 1} : recipe.instantiate;
  const Toolkit& toolkit = find_toolkit(demand.driver_version / 1000);
  demand.unavailable = toolkit.library.empty() ? no_nvrtc("") : "";
  if (!demand.unavailable.empty()) return;
  const Store store;
  const std::string key = key_of(encode({key_format, toolkit.identity, demand.capability, recipe.is_specific,
                                         recipe.name, recipe.sha256}) +
                                 encode_list(recipe.options) + encode_list(expressions));
  demand.compiled = decode_entry(store.get(key));
  if (demand.compiled) return;
  const auto lock = store.lock(key);
  demand.compiled = decode_entry(store.get(key));
  if (demand.compiled) return;
  const Nvrtc& nvrtc = open_nvrtc(toolkit);
  demand.unavailable = nvrtc.reason.empty() ? "" : no_nvrtc(nvrtc.reason);
  if (!demand.unavailable.empty()) return;
  auto unit = std::make_unique<CompiledUnit>();
  demand.reason = compile_recipe(recipe, expressions, toolkit, nvrtc, demand, *unit);
  if (demand.reason) return;
  store.put(key, encode_entry(*unit));
  demand.compiled = std::move(unit);
}

CUDA_EXT_WEAK Result<Library> try_compile(const std::string& source, const std::vector<std::string>& names,
                                          const CompileOptions& options) noexcept {
  if (names.empty())
    return failure(ErrorKind::argument, {options.name, ": expected names of kernels, found none"});
  if (auto failed = check_texts(source, options)) return failed;
  return open_source(std::make_unique<SourceModule>(source, names, options));
}

CUDA_EXT_WEAK Result<std::vector<std::string>> try_toolkit_directories() noexcept {
  const int version = driver_version();
  const Toolkit& toolkit = find_toolkit(version ? version / 1000 : 13);
  if (toolkit.library.empty()) return failure(ErrorKind::toolchain, {no_nvrtc("")});
  Paths directories;
  const Nvrtc& nvrtc = open_nvrtc(toolkit);
  if (!nvrtc.reason.empty()) return failure(ErrorKind::toolchain, {no_nvrtc(nvrtc.reason)});
  if (auto failed = list_directories(toolkit, nvrtc, directories)) return failed;
  std::vector<std::string> paths;
  for (const fs::path& each : directories) paths.push_back(each.string());
  return paths;
}

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
