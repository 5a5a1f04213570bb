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

// The toolkit for this machine's driver, found at the first use.
const Toolkit& find_toolkit() {
  const int version = driver_version();
  static const Toolkit toolkit(version ? version / 1000 : 13);
  return toolkit;
}

// Its NVRTC, opened at the first use.
const Nvrtc& open_nvrtc() {
  static const Nvrtc nvrtc(find_toolkit().library);
  return nvrtc;
}

// List the include directories of CUDA and CCCL; those that NVRTC contains come first.
Failure list_directories(Paths& directories) {
  fs::path bundled;
  if (auto failed = open_nvrtc().unpack_headers(bundled)) return failed;
  directories = find_toolkit().include_directories;
  if (!bundled.empty()) directories.insert(directories.begin(), {bundled, bundled / "cccl"});
  return nullptr;
}

// Compile `recipe` for the GPU of `demand`.
Failure compile_recipe(const RecipeData& recipe, const Array<const char*>& expressions, const Demand& demand,
                       CompiledUnit& unit) {
  const Nvrtc& nvrtc = open_nvrtc();
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
  if (auto failed = may_include ? list_directories(directories) : nullptr) return failed;
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

// What NVRTC would refuse without a reason, or ignore.
Failure check_arguments(const std::string& source, const std::vector<std::string>& names,
                        const CompileOptions& options) {
  const auto refuse = [&](Parts problem) {
    return failure(ErrorKind::argument,
                   {options.name.empty() ? "cuda_ext::compile" : options.name, ": ", joined(problem)});
  };
  std::vector<std::pair<std::string, std::string_view>> given{{"source", source}, {"name", options.name}};
  const auto add = [&](const char* what, const std::vector<std::string>& texts) {
    for (std::size_t i = 0; i < texts.size(); i++) given.emplace_back(joined({what, "[", i, "]"}), texts[i]);
  };
  add("names", names);
  add("options", options.options);
  add("include_directories", options.include_directories);
  Texts known;
  for (const auto& [name, text] : options.texts) {
    if (has_text(known, name)) return refuse({"texts: two headers have the name '", name, "'; rename one"});
    known.emplace_back(name, "");
    given.emplace_back("texts: the name of a header", name);
    if (!text.empty()) given.emplace_back(joined({"texts: the header '", name, "'"}), text);
  }
  for (const auto& [what, text] : given) {
    const std::size_t nul = text.find('\0');
    if (text.empty()) return refuse({what, " is empty"});
    if (nul != text.npos) return refuse({what, " has a NUL character, at byte ", nul, "; remove it"});
  }
  if (names.empty()) return refuse({"expected names of kernels, found none"});
  for (const std::string& name : names) {
    if (name[0] == '&') return refuse({"names: '", name, "' is the address of a variable; name kernels"});
    if (std::count(names.begin(), names.end(), name) > 1) {
      return refuse({"names: '", name, "' is given twice; remove one"});
    }
  }
  for (const std::string& option : options.options) {
    const std::string name = option.substr(0, option.find('='));
    if (name == "-arch" || name == "--gpu-architecture") {
      return refuse({"options: ", option, ": the architecture is that of the GPU; remove it"});
    }
    // Headers behind these would not be in the key of the cache.
    if (option.compare(0, 2, "-I") == 0 || name == "--include-path" || name == "--pre-include") {
      return refuse({"options: ", option, ": headers are found through include_directories and texts"});
    }
  }
  for (const std::string& directory : options.include_directories) {
    if (!is_existing_directory(directory)) {
      return refuse(
          {"include_directories: there is no directory '", directory, "'; create it, or correct it"});
    }
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
    data.headers = {static_cast<int>(header_texts_.size()), header_texts_.data(), header_names_.data(),
                    sha256_.c_str()};
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
  const Store store;
  const std::string key = key_of(encode({key_format, find_toolkit().identity, demand.capability,
                                         recipe.is_specific, recipe.name, recipe.sha256}) +
                                 encode_list(recipe.options) + encode_list(expressions));
  demand.compiled = decode_entry(store.get(key));
  if (demand.compiled) return;
  const auto lock = store.lock(key);
  demand.compiled = decode_entry(store.get(key));
  if (demand.compiled) return;
  demand.unavailable = open_nvrtc().reason;
  if (!demand.unavailable.empty()) return;
  auto unit = std::make_unique<CompiledUnit>();
  demand.reason = compile_recipe(recipe, expressions, demand, *unit);
  if (demand.reason) return;
  store.put(key, encode_entry(*unit));
  demand.compiled = std::move(unit);
}

CUDA_EXT_WEAK Result<Library> try_compile(const std::string& source, const std::vector<std::string>& names,
                                          const CompileOptions& options) noexcept {
  return guarded([&]() -> Result<Library> {
    if (auto failed = check_arguments(source, names, options)) return failed;
    return open_source(std::make_unique<SourceModule>(source, names, options));
  });
}

CUDA_EXT_WEAK Result<std::vector<std::string>> try_toolkit_directories() noexcept {
  return guarded([]() -> Result<std::vector<std::string>> {
    const std::string& reason = open_nvrtc().reason;
    if (!reason.empty()) return failure(ErrorKind::toolchain, {reason});
    Paths directories;
    if (auto failed = list_directories(directories)) return failed;
    std::vector<std::string> paths;
    for (const fs::path& each : directories) paths.push_back(each.string());
    return paths;
  });
}

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
