// Compilation on demand, for all modules of a program.

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../compile.hpp"
#include "../data.hpp"
#include "../demand.hpp"
#include "../error.hpp"
#include "../library.hpp"
#include "../names.hpp"
#include "../text.hpp"
#include "hash.hpp"
#include "nvrtc.hpp"
#include "store.hpp"

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {
namespace {

// Change it whenever the same key is to have another result.
constexpr std::string_view key_format = "cuda-ext on demand in C++ 1";
// That of all entries (cuda_ext/runtime/jit/entry.py). Those of C++ have kernels without parameters, no
// symbols, and keys of their own.
constexpr std::string_view entry_format = "cuda-ext on demand 1";

constexpr std::string_view zero{"\0", 1};

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

std::string encode_entry(const CompiledUnit& unit) {
  std::string kernels;
  std::size_t count = 0;
  for (const char* at = unit.names.c_str(); *at; count++) {
    const char* lowered = at + std::string_view(at).size() + 1;
    kernels += encode({at, lowered, 0});
    at = lowered + std::string_view(lowered).size() + 1;
  }
  return encode({entry_format, unit.architecture, unit.image, count}) + kernels + encode({0});
}

// Whether `content` is an entry, which becomes `unit`.
bool decode_entry(const std::string& content, CompiledUnit& unit) {
  const std::vector<std::string_view> fields = decode(content);
  if (fields.size() % 3 != 2 || fields.size() < 5 || fields[0] != entry_format) return false;
  unit = {std::string(fields[1]), std::string(fields[2]), ""};
  for (std::size_t i = 4; i + 1 < fields.size(); i += 3) {
    unit.names += joined({fields[i], zero, fields[i + 1], zero});
  }
  return encode_entry(unit) == content;
}

// The toolkit for a driver of that major version, found at the first use.
const Toolkit& find_toolkit(int major) {
  static const Toolkit newest(13);
  if (major >= 13) return newest;
  static const Toolkit older(major);
  return older;
}

// Takes one demand from the cache, or compiles it.
class Fulfilment {
 public:
  explicit Fulfilment(Demand& demand)
      : demand_(demand), recipe_(demand.module.on_demand->units[demand.unit][demand.source]) {
    expressions_.assign(recipe_.instantiate.begin(), recipe_.instantiate.end());
    if (!demand.expression.empty()) expressions_ = {demand.expression};
    is_specific_ = recipe_.is_specific;
    for (const ImageData& image : demand.module.units[demand.unit].images) {
      is_specific_ = is_specific_ || !std::isdigit(std::string_view(image.architecture).back());
    }
  }

  void run() {
    const Toolkit& toolkit = find_toolkit(demand_.driver_version / 1000);
    if (toolkit.library.empty())
      return without_nvrtc("it is neither in the active environment nor in CUDA_PATH");
    const Store store;
    const std::string key = key_of(encode({key_format, toolkit.identity, demand_.capability, is_specific_,
                                           recipe_.name, recipe_.sha256}) +
                                   encode_list(recipe_.options) + encode_list(expressions_));
    if (look_up(store, key)) return;
    const auto lock = store.lock(key);
    if (look_up(store, key)) return;
    static const Nvrtc nvrtc(toolkit.library);
    if (!nvrtc.reason.empty()) return without_nvrtc(nvrtc.reason);
    CompiledUnit unit;
    demand_.reason = compile(nvrtc, toolkit, unit);
    if (demand_.reason) return;
    store.put(key, encode_entry(unit));
    demand_.compiled = std::make_unique<CompiledUnit>(std::move(unit));
  }

 private:
  void without_nvrtc(const std::string& reason) {
    demand_.unavailable =
        joined({"NVRTC cannot be loaded (", reason, "); install it with \"cuda-ext[cu13]\" ",
                "(or \"cuda-ext[cu12]\"), or set CUDA_PATH to a CUDA toolkit"});
  }

  bool look_up(const Store& store, const std::string& key) {
    CompiledUnit unit;
    if (!decode_entry(store.get(key), unit)) return false;
    demand_.compiled = std::make_unique<CompiledUnit>(std::move(unit));
    return true;
  }

  Failure compile(const Nvrtc& nvrtc, const Toolkit& toolkit, CompiledUnit& unit) const {
    const std::vector<int>& known = nvrtc.architectures;
    const auto newer = std::upper_bound(known.begin(), known.end(), demand_.capability);
    if (newer == known.begin()) {
      return failure(ErrorKind::compilation,
                     {"nvrtc ", nvrtc.version, " cannot compile for sm_", demand_.capability,
                      ": it begins with sm_", known.front(), "; older GPUs take an older CUDA"});
    }
    // For a GPU that is newer than the compiler, a cubin of the same generation, or else PTX.
    const int target = newer[-1];
    const bool is_ptx = target / 10 != demand_.capability / 10;
    const char* suffix = is_specific_ && target == demand_.capability ? "a" : "";
    unit.architecture = joined({is_ptx ? "compute_" : "sm_", target, suffix});

    std::vector<const char*> texts;
    std::vector<const char*> names;
    bool may_include = contains(recipe_.text, "include");
    for (const std::size_t index : recipe_.headers) {
      texts.push_back(demand_.module.headers.texts[index]);
      names.push_back(demand_.module.headers.names[index]);
    }
    std::vector<std::string> options{"-arch=" + unit.architecture};
    for (const char* option : recipe_.options) {
      options.emplace_back(option);
      may_include = may_include || contains(option, "include");
    }
    if (may_include) {
      fs::path bundled;
      if (auto failed = nvrtc.unpack_headers(bundled)) return failed;
      Paths directories = toolkit.include_directories;
      if (!bundled.empty()) directories.insert(directories.begin(), {bundled, bundled / "cccl"});
      for (const fs::path& directory : directories) options.push_back("-I" + directory.string());
    }
    NvrtcProgram program(nvrtc);
    std::string failed;
    if (!program.compile(recipe_, texts, names, expressions_, options)) failed = program.log();
    for (const std::string& each : expressions_) {
      if (!failed.empty()) break;
      unit.names += joined({each, zero, program.lowered_name(each), zero});
    }
    unit.image = failed.empty() ? program.image(is_ptx) : "";
    if (!unit.image.empty()) return nullptr;
    return failure(ErrorKind::compilation,
                   {failed, "\n(compiling ", recipe_.name, " for ", unit.architecture, ")"});
  }

  Demand& demand_;
  const RecipeData& recipe_;
  std::vector<std::string> expressions_;
  bool is_specific_;
};

// Without white space, except between words.
std::string squeeze(std::string_view expression) {
  const auto is_word = [](char letter) {
    return std::isalnum(static_cast<unsigned char>(letter)) || letter == '_';
  };
  std::string text;
  bool is_apart = false;
  for (const char letter : expression) {
    if (!is_white_space(letter)) {
      if (is_apart && !text.empty() && is_word(text.back()) && is_word(letter)) text += ' ';
      text += letter;
    }
    is_apart = is_white_space(letter);
  }
  return text;
}

// Find the source that defines the template of an instantiation, and its unit: those with other
// instantiations of it come before those that define a kernel of its name.
void find_owner(Demand& demand) {
  const ModuleData& module = demand.module;
  const std::string_view plain = plain_name(demand.expression);
  const std::string_view name = plain.substr(plain.rfind(':') + 1);
  using Owners = std::map<std::string_view, std::pair<std::size_t, std::size_t>>;  // unit and source, by name
  Owners built;
  Owners defining;
  for (std::size_t unit = 0; unit < module.on_demand->units.size; unit++) {
    bool is_built = false;
    for (const KernelData& kernel : module.kernels) {
      is_built = is_built || (kernel.unit == unit && is_spelled_alike(plain, plain_name(kernel.expression)));
    }
    const Array<RecipeData>& recipes = module.on_demand->units[unit];
    for (std::size_t i = 0; i < recipes.size; i++) {
      // What was split into units is in the first of them.
      if (is_built) built.emplace(recipes[i].name, std::pair(unit, i));
      for (const char* defined : recipes[i].templates) {
        if (name == defined) defining.emplace(recipes[i].name, std::pair(unit, i));
      }
    }
  }
  const Owners& owners = built.size() == 1 || defining.empty() ? built : defining;
  if (owners.empty()) {
    demand.reason = not_found(module, demand.expression);
  } else if (owners.size() > 1) {
    demand.reason =
        failure(ErrorKind::kernel_not_found,
                {module.name, ": ", demand.expression, " was not built ahead, and ", owners.begin()->first,
                 " and ", std::next(owners.begin())->first, " each define ", plain,
                 "; add it to `instantiate` of one of them and build again"});
  } else {
    std::tie(demand.unit, demand.source) = owners.begin()->second;
  }
}

// A variable of the unit exists once; the image of one more instantiation would have another one.
Failure check_variables(const Demand& demand) {
  for (const SymbolData& symbol : demand.module.symbols) {
    if (symbol.unit != demand.unit) continue;
    return failure(
        ErrorKind::kernel_not_found,
        {demand.module.name, ": ", demand.expression,
         " was not built ahead and cannot be compiled on demand: ", demand.module.units[demand.unit].sources,
         " has the variable '", symbol.name, "', of which it would have a copy of its own; add \"",
         demand.expression, "\" to `instantiate` and build again"});
  }
  return nullptr;
}

// Why the unit of `demand` is not compiled in this process; empty if it is.
std::string find_obstacle(const Demand& demand) {
  const Array<RecipeData>& recipes = demand.module.on_demand->units[demand.unit];
  if (setting("CUDA_EXT_JIT") == "0") return "turned off by CUDA_EXT_JIT=0";
  if (demand.module.on_demand->is_linked) return "linked modules are compiled on demand by Python only";
  if (recipes.size && fs::path(recipes[0].name).extension() != ".ptx") return "";
  return joined({demand.module.units[demand.unit].sources,
                 " is not embedded, since NVRTC does not compile it, ", "or not in the same way everywhere"});
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
      header_texts_.assign(embedded->texts, embedded->texts + embedded->count);
      header_names_.assign(embedded->names, embedded->names + embedded->count);
    }
    for (const auto& [name, text] : options_.texts) {
      identity += encode({name, text});
      header_texts_.push_back(text.c_str());
      header_names_.push_back(name.c_str());
    }
    for (const std::string& directory : options_.include_directories) {
      options_.options.push_back("-I" + directory);
      identity += describe(directory);
    }
    sha256_ = key_of(identity);
    options_.options.push_back("--frandom-seed=" + options_.name);
    for (const std::string& each : options_.options) option_texts_.push_back(each.c_str());
    for (std::size_t i = 0; i < header_texts_.size(); i++) header_indices_.push_back(i);
    for (const std::string& each : names_) {
      expressions_.push_back(each.c_str());
      kernels_.push_back({each.c_str(), "", 0, {}, {}, false});
    }
    const char* name = options_.name.c_str();
    recipe_ = {name,
               source_.c_str(),
               sha256_.c_str(),
               array(option_texts_),
               array(expressions_),
               array(header_indices_),
               {},
               options_.is_specific};
    unit_.sources = name;
    // CUDA_EXT_JIT=0 is for what the program did not ask to be compiled.
    const auto compile = [](Demand& demand) { Fulfilment(demand).run(); };
    on_demand_ = {prepare_demand, compile, {&recipes_, 1}, false};
    data = {name, "nvrtc", true, {&unit_, 1}, array(kernels_), {}, {}, {}, &on_demand_};
    data.headers = {static_cast<int>(header_texts_.size()), header_texts_.data(), header_names_.data(), ""};
  }

 private:
  template <class T>
  static Array<T> array(const std::vector<T>& items) noexcept {
    return {items.data(), items.size()};
  }

  // The names, sizes and times of all files in a directory.
  static std::string describe(const std::string& directory) {
    std::vector<std::string> files;
    std::error_code error;
    std::error_code gone;
    for (fs::recursive_directory_iterator at(directory, error), end; !error && at != end;
         at.increment(error)) {
      if (!at->is_regular_file(gone)) continue;
      const auto time = at->last_write_time(gone).time_since_epoch().count();
      files.push_back(encode({at->path().string(), at->file_size(gone), time}));
    }
    std::sort(files.begin(), files.end());
    return encode_list(files);
  }

  const std::string source_;
  CompileOptions options_;
  const std::vector<std::string> names_;
  std::string sha256_;
  std::vector<const char*> header_texts_;
  std::vector<const char*> header_names_;
  std::vector<std::size_t> header_indices_;
  std::vector<const char*> option_texts_;
  std::vector<const char*> expressions_;
  std::vector<KernelData> kernels_;
  RecipeData recipe_{};
  const Array<RecipeData> recipes_{&recipe_, 1};
  UnitData unit_{};
  OnDemandData on_demand_{};
};

}  // namespace

CUDA_EXT_WEAK void prepare_demand(Demand& demand) {
  demand.expression = squeeze(demand.expression);
  find_owner(demand);
  if (!demand.reason) demand.reason = check_variables(demand);
  if (!demand.reason) demand.unavailable = find_obstacle(demand);
}

CUDA_EXT_WEAK void fulfil_demand(Demand& demand) {
  if (!demand.expression.empty()) find_owner(demand);
  demand.unavailable = find_obstacle(demand);
  if (!demand.reason && demand.unavailable.empty()) Fulfilment(demand).run();
}

CUDA_EXT_WEAK Result<Library> try_compile(const std::string& source, const std::vector<std::string>& names,
                                          const CompileOptions& options) noexcept {
  if (names.empty())
    return failure(ErrorKind::argument, {options.name, ": expected names of kernels, found none"});
  Library library(std::make_unique<SourceModule>(source, names, options));
  auto prepared = library.try_prepare();
  if (!prepared) return std::move(prepared).failure();
  return library;
}

CUDA_EXT_WEAK std::vector<std::string> toolkit_directories() {
  std::vector<std::string> directories;
  auto driver = open_driver();
  for (const fs::path& each : find_toolkit(driver ? (*driver)->version / 1000 : 13).include_directories) {
    directories.push_back(each.string());
  }
  return directories;
}

}  // namespace v1
}  // namespace cuda_ext CUDA_EXT_HIDDEN
