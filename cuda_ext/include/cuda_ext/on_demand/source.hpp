// Sources that a program compiles: what may be wrong with them, and their modules.

#pragma once

#include "../compile.hpp"
#include "../loader/demand.hpp"
#include "../loader/text.hpp"
#include "image.hpp"
#include "standard.hpp"
#include "store.hpp"
#include "texts.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {
namespace {

std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> all;
  for (const std::string& text : texts) all.push_back(text.c_str());
  return all;
}

std::size_t count_texts(const CompileOptions& options, std::string_view name) {
  std::size_t count = 0;
  for (const auto& text : options.texts) count += text.first == name;
  return count;
}

// Images may be ones to link; a library is complete.
enum class Product { library, image };

// Says why NVRTC must not get `option`, which it would refuse without a reason, ignore, or answer with an image of
// another kind; empty if it may.
std::string find_mistake(const std::string& option, Product product) {
  const std::string name = option.substr(0, option.find('='));
  const auto is = [&](std::initializer_list<const char*> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (is({"-arch", "--gpu-architecture"})) return "set `architecture`; without that, it is that of the GPU";
  if (is({"-dlto", "--dlink-time-opt"})) {
    return "set `architecture` to lto_90 or the like, and use compile_image() and link_images()";
  }
  const bool is_off = option.find("=false") != option.npos;
  if (product == Product::library && !is_off && is({"-rdc", "--relocatable-device-code", "-dc", "--device-c"})) {
    return "a library is complete; use compile_image() and link_images()";
  }
  // These options add headers that the cache key would not cover.
  if (option.compare(0, 2, "-I") == 0 || is({"--include-path", "--pre-include"})) {
    return "headers are found through include_directories and texts";
  }
  return "";
}

// Finds what is wrong with the arguments of a compilation; returns an empty string if nothing is.
std::string find_mistake(const std::string& source, const std::vector<std::string>& names,
                         const CompileOptions& options, Product product) {
  const bool is_nameless = names.empty() && product == Product::library;
  std::string mistake = is_nameless ? "expected names of kernels, found none" : "";
  const auto check = [&](const char* what, const std::string& text) {
    if (text.empty()) mistake = joined({what, " is empty"});
    if (text.find('\0') != text.npos) mistake = joined({what, " has a NUL character; remove it"});
  };
  check("source", source);
  check("name", options.name);
  for (const std::string& name : names) {
    check("names: one", name);
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
    const std::string reason = find_mistake(option, product);
    if (!reason.empty()) mistake = joined({"options: ", option, ": ", reason});
  }
  for (const std::string& each : options.include_directories) {
    if (!is_existing_directory(each)) {
      mistake = joined({"include_directories: there is no directory '", each, "'; create it, or correct it"});
    }
  }
  const Architecture architecture(options.architecture);
  if (!options.architecture.empty() && !architecture.number) {
    mistake = joined({"architecture: '", options.architecture, "' is none; ", architectures});
  } else if (product == Product::library && architecture.kind == "lto") {
    mistake = "architecture: a library cannot be LTO-IR; use compile_image() and link_images()";
  }
  return mistake;
}

// The module of a source that is compiled at run time.
struct SourceModule final : ModuleData {
  SourceModule(const std::string& source, const std::vector<std::string>& names,
               const CompileOptions& options)
      : options_(options), names_(names) {
    std::string identity = encode({source});
    for (const auto& [header, text] : options_.texts) {
      identity += encode({header, text});
      headers_.add(header, text);
    }
    if (const HeaderData* embedded = options_.headers) {
      identity += encode({embedded->sha256});
      for (int i = 0; i < embedded->count; i++) headers_.add(embedded->names[i], embedded->texts[i]);
    }
    for (const SourceData& each : standard_headers) {
      identity += encode({each.name, each.text});
      headers_.add(each.name, each.text);
    }
    headers_.resolve();
    source_ = headers_.with_full_names(options_.name, source);
    for (const auto& [header, text] : headers_.all()) {
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
    for (const char* each : expressions_) {
      if (*each != '&') kernels_.push_back({each, "", 0, {}, {}, false});
    }
    const char* source_name = options_.name.c_str();
    const char* key = sha256_.c_str();
    headers = {static_cast<int>(header_texts_.size()), header_texts_.data(), header_names_.data(), key};
    recipe_ = {source_name, source_.c_str(), key, {option_texts_.data(), option_texts_.size()},
               {expressions_.data(), expressions_.size()}, headers, options_.is_specific, ""};
    on_demand_ = {fulfil, {&recipe_, 1}, {}};
    unit_ = {source_name, {}, "none; PTX: none"};
    static_cast<ModuleData&>(*this) = {open_module, source_name, "nvrtc", true, {&unit_, 1},
                                       {kernels_.data(), kernels_.size()}, {}, {}, headers, &on_demand_};
  }

  const RecipeData& recipe() const noexcept { return recipe_; }

 private:
  // The first image, which is compiled before anything else uses the module, tells the variables.
  static void fulfil(Demand& demand) {
    fulfil_demand(demand);
    auto& self = const_cast<SourceModule&>(static_cast<const SourceModule&>(demand.module));
    if (!demand.compiled || self.is_described_.exchange(true)) return;
    self.variables_ = variables_in(*demand.compiled);
    for (const auto& [name, lowered] : self.variables_) {
      self.symbols_.push_back({name.c_str(), lowered.c_str(), 0, "", 0, {}});
    }
    self.symbols = {self.symbols_.data(), self.symbols_.size()};
  }

  std::string source_;
  CompileOptions options_;
  const std::vector<std::string> names_;
  Headers headers_;
  std::atomic<bool> is_described_{false};
  Names variables_;
  std::vector<SymbolData> symbols_;
  std::string sha256_;
  std::vector<const char*> header_texts_, header_names_, option_texts_, expressions_;
  std::vector<KernelData> kernels_;
  RecipeData recipe_{};
  UnitData unit_{};
  OnDemandData on_demand_{};
};

}  // namespace
}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
