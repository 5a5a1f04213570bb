// Compilation on demand, for the sources that hold a module: loader.hpp does without.
//
// What was compiled is kept in the same cache, under the same keys, as the Python package does.

#pragma once

#include "data.hpp"
#include "demand.hpp"
#include "error.hpp"
#include "text.hpp"

#if defined(_WIN32)

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {

inline void prepare_demand(Demand& demand) { demand.unavailable = "not under Windows"; }
inline void fulfil_demand(Demand& demand) { demand.unavailable = "not under Windows"; }

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
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {

// A record, and the tables that say the same.
class RecordedUnit final : public CompiledUnit {
 public:
  RecordedUnit(Record record, std::size_t unit) : record_(std::move(record)) {
    image = {record_.architecture.c_str(), reinterpret_cast<const unsigned char*>(record_.image.c_str()),
             record_.image.size()};
    parameters_.resize(record_.kernels.size());
    for (std::size_t i = 0; i < record_.kernels.size(); i++) {
      const RecordedKernel& kernel = record_.kernels[i];
      for (const RecordedParameter& parameter : kernel.parameters) {
        parameters_[i].push_back({parameter.name.c_str(), parameter.type.c_str(), parameter.size});
      }
      kernels_.push_back({kernel.expression.c_str(), kernel.lowered.c_str(), unit,
                          {parameters_[i].data(), parameters_[i].size()}, {}});
    }
    for (const RecordedSymbol& symbol : record_.symbols) {
      symbols_.push_back({symbol.name.c_str(), symbol.lowered.c_str(), unit, symbol.type.c_str(), symbol.size, {}});
    }
    kernels = {kernels_.data(), kernels_.size()};
    symbols = {symbols_.data(), symbols_.size()};
  }

 private:
  Record record_;
  std::vector<std::vector<ParameterData>> parameters_;
  std::vector<KernelData> kernels_;
  std::vector<SymbolData> symbols_;
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
    if (!demand.expression.empty()) {
      expressions_ = {demand.expression};
      return;
    }
    for (const RecipeData& recipe : recipes_) {
      for (const char* expression : recipe.instantiate) expressions_.push_back(normalised(expression));
    }
    std::sort(expressions_.begin(), expressions_.end());
    expressions_.erase(std::unique(expressions_.begin(), expressions_.end()), expressions_.end());
  }

  void run() {
    std::string reason;
    const Toolkit* toolkit = find_toolkit(demand_.driver_version / 1000, reason);
    if (!toolkit) return without_nvrtc(reason);
    const Store store;
    const std::string key = key_of(*toolkit);
    if (look_up(store, key)) return;
    if (on_demand_.link) {
      demand_.unavailable = "linked modules are compiled on demand by Python only";
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
    demand_.unavailable = joined({"NVRTC cannot be loaded (", reason, "); install it with \"cuda-ext[cu13]\" ",
                                  "(or \"cuda-ext[cu12]\")"});
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
    }
    for (const std::string& expression : expressions_) fields.add(expression);
    return sha256_hex(fields.bytes());
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
    directories.insert(directories.end(), toolkit.header_directories.begin(), toolkit.header_directories.end());
    const RecipeData& recipe = recipes_[0];
    std::vector<std::string> expressions = expressions_;
    if (demand_.expression.empty()) expressions.assign(recipe.instantiate.begin(), recipe.instantiate.end());
    Compilation compilation(nvrtc, recipe, demand_.module.headers, std::move(expressions), directories);
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
  std::vector<std::string> expressions_;  // normalised, sorted, each once
};

// Finds the unit that an instantiation is of: one that has others of the same template, or else one whose text
// has the template.
class OwnerSearch {
 public:
  explicit OwnerSearch(Demand& demand) : demand_(demand), on_demand_(*demand.module.on_demand) {}

  void run() {
    const ModuleData& module = demand_.module;
    const std::string_view plain = plain_name(demand_.expression);
    for (const KernelData& kernel : module.kernels) {
      if (is_spelled_alike(plain, plain_name(kernel.expression))) consider(kernel.unit);
    }
    if (owners_.empty()) {
      const std::size_t scope = plain.rfind("::");
      const std::string_view name = scope == plain.npos ? plain : plain.substr(scope + 2);
      for (std::size_t i = 0; i < on_demand_.units.size; i++) {
        for (const RecipeData& recipe : on_demand_.units[i]) {
          if (!name.empty() && defines_kernel(recipe.text, name)) consider(i);
        }
      }
    }
    if (owners_.empty()) {
      demand_.reason = not_found(module, demand_.expression);
    } else if (owners_.size() > 1) {
      refuse({module.units[owners_[0]].sources, " and ", module.units[owners_[1]].sources,
              " each have a kernel of that name"});
    } else {
      demand_.unit = owners_[0];
      check_symbols();
    }
  }

 private:
  // Instantiations of one source that were split into units are all the same to it.
  void consider(std::size_t unit) {
    const Array<RecipeData>& recipes = on_demand_.units[unit];
    if (!recipes.size) return;
    for (const std::size_t owner : owners_) {
      if (owner == unit || std::string_view(on_demand_.units[owner][0].name) == recipes[0].name) return;
    }
    owners_.push_back(unit);
  }

  void check_symbols() {
    for (const SymbolData& symbol : demand_.module.symbols) {
      if (symbol.unit != demand_.unit) continue;
      return refuse({demand_.module.units[demand_.unit].sources, " has the variable '", symbol.name,
                     "', of which it would have a copy of its own"});
    }
  }

  void refuse(Parts parts) {
    demand_.reason = failure(ErrorKind::kernel_not_found,
                             {demand_.module.name, ": ", demand_.expression,
                              " was not built ahead and cannot be compiled on demand: ", joined(parts), "; add \"",
                              demand_.expression, "\" to `instantiate` and build again"});
  }

  Demand& demand_;
  const OnDemandData& on_demand_;
  std::vector<std::size_t> owners_;
};

inline bool is_turned_off(Demand& demand) {
  if (setting("CUDA_EXT_JIT") != "0") return false;
  demand.unavailable = "turned off by CUDA_EXT_JIT=0";
  return true;
}

// Spells the expression of `demand` as names are compared, and finds its unit.
inline void prepare_demand(Demand& demand) {
  demand.expression = normalised(demand.expression);
  if (begins_with(demand.expression, "::")) demand.expression.erase(0, 2);
  OwnerSearch(demand).run();
  if (!demand.reason) is_turned_off(demand);
}

// Has `demand` compiled, if nobody has done that before.
inline void fulfil_demand(Demand& demand) {
  if (is_turned_off(demand)) return;
  if (demand.module.on_demand->units[demand.unit].size) return Fulfilment(demand).run();
  demand.unavailable = "there is no source of it";
}

}  // namespace v1
}  // namespace cuda_ext

#endif
