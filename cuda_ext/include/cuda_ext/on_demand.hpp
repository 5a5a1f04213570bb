// Compilation on demand, for generated sources; loader.hpp does not include it.
//
// It shares its cache with the Python package, but no entry: keys differ.
//
// All of it belongs to the one source that includes this. Without names for the linker, the instantiations of
// standard templates with our types have none either, which gcc shows to all even if the types are hidden.

#pragma once

#include "data.hpp"
#include "demand.hpp"
#include "error.hpp"
#include "text.hpp"

#if defined(_WIN32)

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {
namespace {

inline void prepare_demand(Demand& demand) { demand.unavailable = "not under Windows"; }
inline void fulfil_demand(Demand& demand) { demand.unavailable = "not under Windows"; }

}  // namespace
}  // namespace v1
}  // namespace cuda_ext

#else

#include "names.hpp"
#include "on_demand/bundled_headers.hpp"
#include "on_demand/compilation.hpp"
#include "on_demand/expressions.hpp"
#include "on_demand/fields.hpp"
#include "on_demand/nvrtc.hpp"
#include "on_demand/paths.hpp"
#include "on_demand/record.hpp"
#include "on_demand/sha256.hpp"
#include "on_demand/store.hpp"
#include "on_demand/toolkit.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {
namespace {

// A record, and the tables that say the same.
class RecordedUnit final : public CompiledUnit {
 public:
  RecordedUnit(Record record, std::size_t unit)
      : record_(std::move(record)),
        parameters_(new ParameterData[count_parameters()]),
        kernels_(new KernelData[record_.kernels.size()]),
        symbols_(new SymbolData[record_.symbols.size()]) {
    image = {record_.architecture.c_str(), reinterpret_cast<const unsigned char*>(record_.image.c_str()),
             record_.image.size()};
    ParameterData* parameter = parameters_.get();
    for (const RecordedKernel& kernel : record_.kernels) {
      kernels_[kernels.size++] = {
          kernel.expression.c_str(), kernel.lowered.c_str(), unit, {parameter, kernel.parameters.size()}, {}};
      for (const RecordedParameter& each : kernel.parameters) {
        *parameter++ = {each.name.c_str(), each.type.c_str(), each.size};
      }
    }
    for (const RecordedSymbol& symbol : record_.symbols) {
      symbols_[symbols.size++] = {
          symbol.name.c_str(), symbol.lowered.c_str(), unit, symbol.type.c_str(), symbol.size, {}};
    }
    kernels.data = kernels_.get();
    symbols.data = symbols_.get();
  }

 private:
  std::size_t count_parameters() const noexcept {
    std::size_t count = 0;
    for (const RecordedKernel& kernel : record_.kernels) count += kernel.parameters.size();
    return count;
  }

  Record record_;
  std::unique_ptr<ParameterData[]> parameters_;
  std::unique_ptr<KernelData[]> kernels_;
  std::unique_ptr<SymbolData[]> symbols_;
};

// The tool chain that this process compiles with, found when it is first needed, and kept.
inline std::mutex finding_toolkit;
inline const Toolkit* found_toolkit = nullptr;
inline const Nvrtc* opened_nvrtc = nullptr;

// The toolkit; nullptr, and the `reason`, where there is none.
inline const Toolkit* find_toolkit(int newest, std::string& reason) {
  const std::lock_guard<std::mutex> lock(finding_toolkit);
  if (!found_toolkit) {
    const ToolkitSearch search(newest);
    reason = search.reason();
    if (!search.found().library.empty()) found_toolkit = new Toolkit(search.found());
  }
  return found_toolkit;
}

// Its NVRTC; nullptr, and the `reason`, where that cannot be opened.
inline const Nvrtc* open_nvrtc(const Toolkit& toolkit, std::string& reason) {
  const std::lock_guard<std::mutex> lock(finding_toolkit);
  if (!opened_nvrtc) {
    auto nvrtc = std::make_unique<Nvrtc>();
    reason = nvrtc->open(toolkit.library);
    if (reason.empty()) opened_nvrtc = nvrtc.release();
  }
  return opened_nvrtc;
}

// Fulfils one demand: from the cache, or by compiling.
class Fulfilment {
 public:
  explicit Fulfilment(Demand& demand)
      : demand_(demand), on_demand_(*demand.module.on_demand), recipes_(on_demand_.units[demand.unit]) {
    for (const ImageData& image : demand.module.units[demand.unit].images) {
      const char last = image.architecture[std::string_view(image.architecture).size() - 1];
      is_special_ = is_special_ || !is_digit(last);
    }
  }

  void run() {
    std::string reason;
    const Toolkit* toolkit = find_toolkit(demand_.driver_version / 1000, reason);
    if (!toolkit) return without_nvrtc(reason);
    const Store store;
    const std::string key = key_of(*toolkit);
    if (look_up(store, key)) return;
    if (on_demand_.link || is_assembly()) {
      demand_.unavailable = joined({on_demand_.link ? "linked modules are" : "PTX is",
                                    " compiled on demand by Python only"});
      return;
    }
    const auto lock = store.alone(key);
    if (look_up(store, key)) return;
    const Nvrtc* nvrtc = open_nvrtc(*toolkit, reason);
    if (!nvrtc) return without_nvrtc(reason);
    compile(*nvrtc, *toolkit, store, key);
  }

 private:
  void without_nvrtc(const std::string& reason) {
    demand_.unavailable = joined({"NVRTC cannot be loaded (", reason,
                                  "); install it with \"cuda-ext[cu13]\" ", "(or \"cuda-ext[cu12]\")"});
  }

  std::string key_of(const Toolkit& toolkit) const {
    FieldWriter fields;
    fields.add("on demand 1").add(toolkit.identity);
    fields.add(joined({"sm_", demand_.capability, is_special_ ? "a" : ""}));
    on_demand_.link ? fields.add(on_demand_.link) : fields.add_absent();
    fields.add(recipes_.size);
    for (const RecipeData& recipe : recipes_) {
      fields.add(recipe.name).add(recipe.sha256).add(recipe.options.size);
      for (const char* option : recipe.options) fields.add(option);
      std::set<std::string> expressions;
      for (const std::string& expression : expressions_of(recipe)) expressions.insert(normalised(expression));
      fields.add(expressions.size());
      for (const std::string& expression : expressions) fields.add(expression);
    }
    return sha256_hex(fields.bytes());
  }

  // What the source is to be instantiated for.
  std::vector<std::string> expressions_of(const RecipeData& recipe) const {
    if (demand_.expression.empty()) return {recipe.instantiate.begin(), recipe.instantiate.end()};
    if (&recipe != &recipes_[demand_.source]) return {};
    return {demand_.expression};
  }

  // Whether the source is PTX, for which it takes another library than NVRTC.
  bool is_assembly() const {
    const std::string_view name = recipes_[0].name;
    return name.size() > 4 && name.substr(name.size() - 4) == ".ptx";
  }

  // Whether the cache has what is asked for.
  bool look_up(const Store& store, const std::string& key) {
    auto content = store.get(key);
    if (const auto other = content ? RecordReader(*content).reference() : std::nullopt) {
      content = is_key(*other) ? store.get(*other) : std::nullopt;
    }
    auto record = content ? RecordReader(*content).record() : std::nullopt;
    if (!record || !has_all(*record)) return false;
    demand_.compiled = std::make_unique<RecordedUnit>(std::move(*record), demand_.unit);
    return true;
  }

  static bool is_key(std::string_view text) noexcept {
    return text.size() == 2 * Sha256::size && text.find_first_not_of("0123456789abcdef") == text.npos;
  }

  bool has_all(const Record& record) const {
    return demand_.expression.empty() ||
           std::any_of(record.kernels.begin(), record.kernels.end(),
                       [&](const RecordedKernel& kernel) { return kernel.expression == demand_.expression; });
  }

  void compile(const Nvrtc& nvrtc, const Toolkit& toolkit, const Store& store, const std::string& key) {
    BundledHeaders bundled;
    demand_.reason = bundled.find(nvrtc);
    if (demand_.reason) return;
    std::vector<std::string> directories;
    if (!bundled.directory().empty()) directories = {bundled.directory(), bundled.directory() + "/cccl"};
    directories.insert(directories.end(), toolkit.header_directories.begin(),
                       toolkit.header_directories.end());
    const RecipeData& recipe = recipes_[0];
    Compilation compilation(nvrtc, recipe, demand_.module.headers, expressions_of(recipe), directories);
    auto record = compilation.run(demand_.capability, is_special_);
    if (!record) {
      demand_.reason = std::move(record).failure();
      return;
    }
    store.put(key, encoded(*record));
    store.prune();
    demand_.compiled = std::make_unique<RecordedUnit>(*std::move(record), demand_.unit);
  }

  Demand& demand_;
  const OnDemandData& on_demand_;
  const Array<RecipeData>& recipes_;
  bool is_special_ = false;
};

// Finds the source that defines the template of an instantiation, and the unit that this is in: what has
// others of it, as far as that tells, or else what has its text.
class OwnerSearch {
 public:
  explicit OwnerSearch(Demand& demand)
      : demand_(demand), module_(demand.module), plain_(plain_name(demand.expression)) {}

  void run() {
    std::set<std::size_t> built;
    for (const KernelData& kernel : module_.kernels) {
      if (is_spelled_alike(plain_, plain_name(kernel.expression))) built.insert(kernel.unit);
    }
    for (std::size_t i = 0; i < module_.on_demand->units.size; i++) {
      if (!built.empty() && !built.count(i)) continue;
      for (const RecipeData& recipe : module_.on_demand->units[i]) consider({i, &recipe});
    }
    if (built.empty() || owners_.size() > 1) narrow();
    if (owners_.empty()) {
      demand_.reason = not_found(module_, demand_.expression);
    } else if (owners_.size() > 1) {
      demand_.reason = failure(ErrorKind::kernel_not_found,
                               {module_.name, ": ", demand_.expression, " was not built ahead, and ",
                                owners_[0].recipe->name, " and ", owners_[1].recipe->name, " each define ",
                                plain_, "; add it to `instantiate` of one of them and build again"});
    } else {
      demand_.unit = owners_[0].unit;
      const RecipeData* first = module_.on_demand->units[demand_.unit].data;
      demand_.source = static_cast<std::size_t>(owners_[0].recipe - first);
      check_variables();
    }
  }

 private:
  struct Owner {
    std::size_t unit;
    const RecipeData* recipe;
  };

  // A source whose instantiations were split into units is in the first of them.
  void consider(Owner owner) {
    for (const Owner& other : owners_) {
      if (std::string_view(other.recipe->name) == owner.recipe->name) return;
    }
    owners_.push_back(owner);
  }

  // Leaves those whose own text has it, or else those that can reach a header that has.
  void narrow() {
    const std::size_t scope = plain_.rfind("::");
    const std::string_view name = scope == plain_.npos ? plain_ : plain_.substr(scope + 2);
    std::vector<Owner> in_sources;
    std::vector<Owner> in_headers;
    for (const Owner& owner : owners_) {
      if (defines_kernel(owner.recipe->text, name)) in_sources.push_back(owner);
      for (const std::size_t header : owner.recipe->headers) {
        if (!defines_kernel(module_.headers.texts[header], name)) continue;
        in_headers.push_back(owner);
        break;
      }
    }
    owners_ = in_sources.empty() ? in_headers : in_sources;
  }

  void check_variables() {
    for (const SymbolData& symbol : module_.symbols) {
      if (symbol.unit != demand_.unit) continue;
      demand_.reason = failure(
          ErrorKind::kernel_not_found,
          {module_.name, ": ", demand_.expression,
           " was not built ahead and cannot be compiled on demand: ", module_.units[demand_.unit].sources,
           " has the variable '", symbol.name, "', of which it would have a copy of its own; add \"",
           demand_.expression, "\" to `instantiate` and build again"});
      return;
    }
  }

  Demand& demand_;
  const ModuleData& module_;
  std::string_view plain_;
  std::vector<Owner> owners_;
};

inline bool is_turned_off(Demand& demand) {
  if (setting("CUDA_EXT_JIT") != "0") return false;
  demand.unavailable = "turned off by CUDA_EXT_JIT=0";
  return true;
}

// Spells the expression of `demand` as names are compared, and finds its unit.
inline void prepare_demand(Demand& demand) {
  demand.expression = normalised(demand.expression);
  OwnerSearch(demand).run();
  if (!demand.reason) is_turned_off(demand);
}

// Compile `demand`, unless it is compiled already.
inline void fulfil_demand(Demand& demand) {
  if (is_turned_off(demand)) return;
  const Array<RecipeData>& recipes = demand.module.on_demand->units[demand.unit];
  if (!recipes.size) {
    demand.unavailable =
        joined({demand.module.units[demand.unit].sources,
                " is not embedded, since NVRTC does not compile it, or not in the same way everywhere"});
    return;
  }
  if (!demand.expression.empty() && recipes.size > 1) OwnerSearch(demand).run();
  Fulfilment(demand).run();
}

}  // namespace
}  // namespace v1
}  // namespace cuda_ext

#endif
