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

// Change it whenever the same key must have another result.
constexpr std::string_view key_format = "cuda-ext on demand in C++ 2";

std::string encode_entry(const CompiledUnit& unit) {
  std::string bytes = encode({unit.architecture, unit.image});
  for (const auto& [expression, lowered] : unit.names) bytes += encode({expression, lowered});
  return bytes;
}

// Reads the unit of an entry; returns nullptr if `content` is not an entry.
std::unique_ptr<const CompiledUnit> decode_entry(const std::string& content) {
  const std::vector<std::string_view> fields = decode(content);
  if (fields.empty() || fields.size() % 2) return nullptr;
  auto unit = std::make_unique<CompiledUnit>();
  unit->architecture = fields[0];
  unit->image = fields[1];
  for (std::size_t i = 2; i < fields.size(); i += 2) unit->names.emplace_back(fields[i], fields[i + 1]);
  return unit;
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

std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> all;
  for (const std::string& text : texts) all.push_back(text.c_str());
  return all;
}

// Compiles `recipe` for the GPU of `demand`.
Failure compile_recipe(const RecipeData& recipe, const Array<const char*>& expressions, const Demand& demand,
                       CompiledUnit& unit) {
  const Nvrtc& nvrtc = open_nvrtc();
  const std::vector<int>& known = nvrtc.architectures;
  const auto newer = std::upper_bound(known.begin(), known.end(), demand.capability);
  if (newer == known.begin()) {
    return failure(ErrorKind::compilation,
                   {"nvrtc ", nvrtc.version, " cannot compile for sm_", demand.capability,
                    ": it begins with sm_", known.front(), "; older GPUs require an older CUDA"});
  }
  // For a GPU that is newer than the compiler, compile a cubin of the same generation, or else PTX.
  const int target = newer[-1];
  unit.architecture = joined({target / 10 == demand.capability / 10 ? "sm_" : "compute_", target,
                              recipe.is_specific && target == demand.capability ? "a" : ""});
  std::vector<std::string> options{"-arch=" + unit.architecture};
  options.insert(options.end(), recipe.options.begin(), recipe.options.end());
  const std::string given = recipe.text + encode_list(recipe.options);
  const bool may_include = given.find("include") != given.npos;
  Paths directories = find_toolkit().include_directories;
  if (auto failed = may_include ? nvrtc.unpack_headers(directories) : nullptr) return failed;
  for (const fs::path& directory : directories) options.push_back("-I" + directory.string());
  const std::string log = nvrtc.compile(recipe, pointers(options), expressions, unit);
  if (log.empty()) return nullptr;
  return failure(ErrorKind::compilation,
                 {log, "\n(compiling ", recipe.name, " for ", unit.architecture, ")"});
}

std::size_t count_texts(const CompileOptions& options, std::string_view name) {
  std::size_t count = 0;
  for (const auto& text : options.texts) count += text.first == name;
  return count;
}

// Finds options that NVRTC would refuse without a reason, or ignore; returns an empty string if there are
// none.
std::string find_mistake(const std::string& source, const std::vector<std::string>& names,
                         const CompileOptions& options) {
  std::string mistake = names.empty() ? "expected names of kernels, found none" : "";
  const auto check = [&](const char* what, const std::string& text) {
    if (text.empty()) mistake = joined({what, " is empty"});
    if (text.find('\0') != text.npos) mistake = joined({what, " has a NUL character; remove it"});
  };
  check("source", source);
  check("name", options.name);
  for (const std::string& name : names) {
    check("names: one", name);
    if (name[0] == '&') mistake = joined({"names: '", name, "' is the address of a variable; name kernels"});
  }
  for (const auto& [name, text] : options.texts) {
    if (count_texts(options, name) > 1) {
      mistake = joined({"texts: two headers have the name '", name, "'; rename one"});
    }
    check("texts: the name of a header", name);
    if (!text.empty()) check("texts: a header", text);
  }
  for (const std::string& option : options.options) {
    check("options: one", option);
    const std::string name = option.substr(0, option.find('='));
    if (name == "-arch" || name == "--gpu-architecture") {
      mistake = joined({"options: ", option, ": the architecture is that of the GPU; remove it"});
    }
    // These options add headers that the cache key would not cover.
    if (option.compare(0, 2, "-I") == 0 || name == "--include-path" || name == "--pre-include") {
      mistake = joined({"options: ", option, ": headers are found through include_directories and texts"});
    }
  }
  for (const std::string& each : options.include_directories) {
    if (!is_existing_directory(each)) {
      mistake = joined({"include_directories: there is no directory '", each, "'; create it, or correct it"});
    }
  }
  return mistake;
}

// The module of a source that is compiled at run time.
struct SourceModule final : ModuleData {
  SourceModule(const std::string& source, const std::vector<std::string>& names,
               const CompileOptions& options)
      : source_(source), options_(options), names_(names) {
    std::string identity = encode({source_});
    if (const HeaderData* embedded = options_.headers) {
      identity += encode({embedded->sha256});
      for (int i = 0; i < embedded->count; i++) {
        if (count_texts(options_, embedded->names[i])) continue;
        header_names_.push_back(embedded->names[i]);
        header_texts_.push_back(embedded->texts[i]);
      }
    }
    for (const auto& [header, text] : options_.texts) {
      identity += encode({header, text});
      header_names_.push_back(header.c_str());
      header_texts_.push_back(text.c_str());
    }
    for (const std::string& directory : options_.include_directories) {
      options_.options.push_back("-I" + directory);
      const Files files = list_files(directory);
      identity += encode({files.size()});
      for (const auto& [time, size, path] : files) identity += encode({time, size, path});
    }
    sha256_ = hexadecimal(sha256(identity));
    options_.options.push_back("--frandom-seed=" + options_.name);
    option_texts_ = pointers(options_.options);
    expressions_ = pointers(names_);
    for (const char* each : expressions_) kernels_.push_back({each, "", 0, {}, {}, false});
    const char* source_name = options_.name.c_str();
    const char* key = sha256_.c_str();
    headers = {static_cast<int>(header_texts_.size()), header_texts_.data(), header_names_.data(), key};
    recipe_ = {source_name, source_.c_str(), key, {option_texts_.data(), option_texts_.size()},
               {expressions_.data(), expressions_.size()}, headers, options_.is_specific, ""};
    on_demand_ = {fulfil_demand, {&recipe_, 1}, {}};
    unit_ = {source_name, {}, "none; PTX: none"};
    static_cast<ModuleData&>(*this) = {open_module, source_name, "nvrtc", true, {&unit_, 1},
                                       {kernels_.data(), kernels_.size()}, {}, {}, headers, &on_demand_};
  }

 private:
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
  const std::string key = sha256(encode({key_format, find_toolkit().identity, demand.capability,
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
    const std::string mistake = find_mistake(source, names, options);
    // std::make_shared has a tag that gcc makes a unique symbol, as std::to_string has one.
    if (mistake.empty()) return open_source(std::shared_ptr<SourceModule>(new SourceModule(source, names, options)));
    return failure(ErrorKind::argument, {options.name, options.name.empty() ? "" : ": ", mistake});
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
