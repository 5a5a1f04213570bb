// Sources that a program compiles: their headers in memory, what may be wrong with them, and their modules.

#pragma once

#include "../loader/demand.hpp"
#include "image.hpp"
#include "standard.hpp"
#include "store.hpp"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {
namespace {

// Headers by name. Each name is there once.
class Headers {
 public:
  // Adds a header, unless there is one of this name.
  void add(std::string name, std::string text) {
    if (!has(name)) headers_.emplace_back(std::move(name), std::move(text));
  }

  bool has(const std::string& name) const {
    for (const auto& header : headers_) {
      if (header.first == name) return true;
    }
    return false;
  }

  // Returns `text` of the file `includer`, in which quoted names of headers that lie beside it are full ones:
  // NVRTC looks up a header in memory by the name that is written, and in no directory.
  std::string with_full_names(const std::string& includer, const std::string& text) const {
    const std::filesystem::path directory = std::filesystem::path(includer).parent_path();
    std::string written;
    for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end) {
      end = std::min(text.find('\n', begin), text.size() - 1) + 1;
      written += with_full_name(directory, text.substr(begin, end - begin));
    }
    return written;
  }

  // Writes full names in all headers.
  void resolve() {
    for (auto& [name, text] : headers_) text = with_full_names(name, std::move(text));
  }

  const std::vector<std::pair<std::string, std::string>>& all() const noexcept { return headers_; }

 private:
  std::string with_full_name(const std::filesystem::path& directory, std::string line) const {
    constexpr std::string_view word = "include";
    const std::size_t hash = line.find_first_not_of(" \t");
    if (hash == line.npos || line[hash] != '#') return line;
    const std::size_t directive = line.find_first_not_of(" \t", hash + 1);
    if (directive == line.npos || line.compare(directive, word.size(), word) != 0) return line;
    const std::size_t begin = line.find_first_not_of(" \t", directive + word.size());
    const std::size_t end = begin == line.npos || line[begin] != '"' ? line.npos : line.find('"', begin + 1);
    if (end == line.npos) return line;
    const std::string name = line.substr(begin + 1, end - begin - 1);
    const std::string full = (directory / name).lexically_normal().generic_string();
    return has(full) ? line.replace(begin + 1, name.size(), full) : line;
  }

  std::vector<std::pair<std::string, std::string>> headers_;
};

std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> all;
  for (const std::string& text : texts) all.push_back(text.c_str());
  return all;
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
  const auto& texts = options.texts;
  for (const auto& [name, text] : texts) {
    const auto is_alike = [&, &name = name](const auto& other) { return other.first == name; };
    if (std::count_if(texts.begin(), texts.end(), is_alike) > 1) {
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

// A source that is compiled at run time, and how.
struct ProgramSource {
  RecipeData recipe{};

  ProgramSource(const std::string& source, const std::vector<std::string>& names, const CompileOptions& options)
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
    for (const auto& [header, text] : standard_headers()) {
      identity += encode({header, text});
      headers_.add(header, text);
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
    recipe = {options_.name.c_str(), source_.c_str(), sha256_.c_str(), {option_texts_.data(), option_texts_.size()},
              {expressions_.data(), expressions_.size()},
              {static_cast<int>(header_texts_.size()), header_texts_.data(), header_names_.data(), sha256_.c_str()},
              options_.is_specific, ""};
  }
  ProgramSource(const ProgramSource&) = delete;
  ProgramSource& operator=(const ProgramSource&) = delete;

 private:
  std::string source_, sha256_;
  CompileOptions options_;
  const std::vector<std::string> names_;
  Headers headers_;
  std::vector<const char*> header_texts_, header_names_, option_texts_, expressions_;
};

// The module of one image, and of the source that it was compiled from for the GPU of `capability`. Other GPUs get
// images of their own. Without a source, the capability is 0.
struct ProgramModule final : ModuleData {
  ProgramModule(Image image, std::string title, std::shared_ptr<const ProgramSource> source, int capability)
      : image_(std::move(image)), name_(std::move(title)), source_(std::move(source)), variables_(variables_in(image_)) {
    const Architecture architecture(image_.architecture);
    for (const auto& [expression, lowered] : image_.names) {
      if (expression[0] != '&') kernels_.push_back({expression.c_str(), lowered.c_str(), 0, {}, {}, false});
    }
    for (const auto& [variable, lowered] : variables_) {
      symbols_.push_back({variable.c_str(), lowered.c_str(), 0, "", 0, {}});
    }
    built_ = image_.architecture[0] == 'c' ? "none; PTX: " + image_.architecture : image_.architecture + "; PTX: none";
    data_ = {image_.architecture.c_str(), capability ? capability : architecture.number,
             capability ? capability : architecture.last_gpu(), 0, "which is of a newer CUDA",
             reinterpret_cast<const unsigned char*>(image_.data.c_str()), image_.data.size()};
    unit_ = {name_.c_str(), {&data_, 1}, built_.c_str()};
    if (source_) on_demand_ = {fulfil_demand, {&source_->recipe, 1}, {}};
    static_cast<ModuleData&>(*this) = {open_module, name_.c_str(), "nvrtc", source_ != nullptr, {&unit_, 1},
                                       {kernels_.data(), kernels_.size()}, {symbols_.data(), symbols_.size()}, {},
                                       source_ ? source_->recipe.headers : HeaderData{0, nullptr, nullptr, ""},
                                       source_ ? &on_demand_ : nullptr};
  }

 private:
  const Image image_;
  const std::string name_;
  const std::shared_ptr<const ProgramSource> source_;
  const Names variables_;
  std::string built_;
  std::vector<KernelData> kernels_;
  std::vector<SymbolData> symbols_;
  ImageData data_{};
  UnitData unit_{};
  OnDemandData on_demand_{};
};

}  // namespace
}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
