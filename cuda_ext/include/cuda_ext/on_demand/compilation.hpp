// Compile a source to a record: the image and its content.

#pragma once

#include "../data.hpp"
#include "../error.hpp"
#include "../text.hpp"
#include "cubin.hpp"
#include "expressions.hpp"
#include "nvrtc.hpp"
#include "ptx.hpp"
#include "record.hpp"
#include "survey.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {
namespace {

// Compiles one source for a GPU, in two passes: for the image, and for its debug information, which is
// described and thrown away.
class Compilation {
 public:
  // `expressions` are instantiated, besides what the source does itself.
  Compilation(const Nvrtc& nvrtc, const RecipeData& recipe, const HeaderData& headers,
              std::vector<std::string> expressions, const std::vector<std::string>& header_directories)
      : nvrtc_(nvrtc), recipe_(recipe), expressions_(std::move(expressions)) {
    for (const std::size_t index : recipe.headers) {
      headers_.push_back(headers.texts[index]);
      header_names_.push_back(headers.names[index]);
    }
    for (const std::string& directory : header_directories) search_path_.push_back("-I" + directory);
  }

  // For a GPU of `capability`, with all that only such a GPU has if it is `special`.
  Result<Record> run(int capability, bool special) {
    if (auto failed = choose_target(capability, special)) return failed;
    Record record;
    ImageContents contents;
    if (auto failed = compile(record, contents)) return failed;
    NvrtcProgram program = started();
    std::vector<std::string> options = all_options();
    options.erase(std::remove_if(options.begin(), options.end(), is_not_with_debug), options.end());
    options.insert(options.end(), {"-arch=compute_" + target_, "-G"});
    if (auto failed = finish(program, options)) return failed;
    auto survey = Surveyor(program.ptx()).survey(project_files());
    Names names;
    for (const std::string& expression : expressions_) {
      names[normalised(expression)] = program.lowered_name(expression.c_str());
    }
    if (!program.failure().empty()) return refused(program.failure());
    if (!survey) return refused("NVRTC: its debug information is damaged");
    if (auto failed = describe(record, contents, *survey, names)) return failed;
    return record;
  }

 private:
  using Names = std::map<std::string, std::string>;

  // Options that debug information excludes.
  static bool is_not_with_debug(const std::string& option) noexcept {
    constexpr std::string_view excluded[] = {"-lineinfo", "--generate-line-info", "-dlto", "-lto",
                                             "--lto",     "--dlink-time-opt",     "-G"};
    return std::find(std::begin(excluded), std::end(excluded), option) != std::end(excluded);
  }

  // What to compile for, so that the GPU runs it: for one that is newer than the compiler, a cubin of its
  // generation, or else PTX.
  Failure choose_target(int capability, bool special) {
    if (nvrtc_.supports(capability) && (!special || compiles_for(joined({capability, "a"})))) {
      target_ = joined({capability, special ? "a" : ""});
      return nullptr;
    }
    const std::vector<int>& all = nvrtc_.architectures;
    const auto newer = std::upper_bound(all.begin(), all.end(), capability);
    if (newer == all.begin()) {
      return failure(ErrorKind::compilation, {"nvrtc ", nvrtc_.version, " cannot compile for sm_", capability,
                                              ": it begins with sm_", all.front(), "; older GPUs take an older CUDA"});
    }
    target_ = std::to_string(newer[-1]);
    is_ptx_ = newer[-1] / 10 != capability / 10;
    return nullptr;
  }

  bool compiles_for(const std::string& target) const {
    NvrtcProgram program(nvrtc_, "", "empty.cu", {}, {});
    return program.compile({"-arch=compute_" + target});
  }

  Failure compile(Record& record, ImageContents& contents) const {
    record.architecture = architecture();
    NvrtcProgram program = started();
    std::vector<std::string> options = all_options();
    options.push_back("-arch=" + record.architecture);
    // As every build does (cuda_ext/formats/resources.py). Images tell what ptxas was asked.
    if (!is_ptx_) options.insert(options.end(), {"-Xptxas", "-v"});
    if (auto failed = finish(program, options)) return failed;
    record.image = is_ptx_ ? program.ptx() : program.cubin();
    contents = is_ptx_ ? contents_of(Ptx(record.image)) : Cubin(record.image).contents();
    return program.failure().empty() ? nullptr : refused(program.failure());
  }

  NvrtcProgram started() const { return {nvrtc_, recipe_.text, recipe_.name, headers_, header_names_}; }

  std::vector<std::string> all_options() const {
    std::vector<std::string> options(recipe_.options.begin(), recipe_.options.end());
    options.insert(options.end(), search_path_.begin(), search_path_.end());
    return options;
  }

  Failure finish(NvrtcProgram& program, const std::vector<std::string>& options) const {
    for (const std::string& expression : expressions_) program.add_name_expression(expression.c_str());
    const bool succeeded = program.compile(options);
    if (!program.failure().empty()) return refused(program.failure());
    return succeeded ? nullptr : refused(program.log());
  }

  std::string architecture() const { return joined({is_ptx_ ? "compute_" : "sm_", target_}); }

  Failure refused(std::string_view text) const {
    return failure(ErrorKind::compilation,
                   {text, "\n(compiling ", recipe_.name, " for ", architecture(), ")"});
  }

  Surveyor::Files project_files() const {
    Surveyor::Files files(header_names_.begin(), header_names_.end());
    files.insert(recipe_.name);
    return files;
  }

  static ImageContents contents_of(const Ptx& ptx) {
    ImageContents contents;
    for (const auto& kernel : ptx.kernels) contents.kernels.insert(kernel.first);
    for (const auto& variable : ptx.variables) contents.variables.insert(variable.first);
    return contents;
  }

  // The kernels and symbols of the image, under the expressions that were asked for or the compiler gave.
  Failure describe(Record& record, const ImageContents& contents, const Survey& survey,
                   const Names& names) const {
    if (contents.kernels.empty()) return refused(joined({recipe_.name, ": defines no kernel"}));
    std::map<std::string, const RecordedKernel*> kernels;
    std::set<std::string_view> named;
    for (const auto& [expression, lowered] : names) {
      if (!contents.kernels.count(lowered) && !contents.variables.count(lowered)) {
        return refused(
            joined({recipe_.name, ": instantiation '", expression, "' is missing from the image"}));
      }
      const auto found = survey.kernels.find(lowered);
      if (found == survey.kernels.end() || !contents.kernels.count(lowered)) continue;
      kernels[expression] = &found->second;
      named.insert(lowered);
    }
    std::map<std::string_view, std::size_t> overloads;
    for (const auto& [lowered, kernel] : survey.kernels) {
      overloads[kernel.expression] += contents.kernels.count(lowered);
    }
    for (const auto& [lowered, kernel] : survey.kernels) {
      if (!contents.kernels.count(lowered) || named.count(lowered)) continue;
      const bool is_overloaded = overloads[kernel.expression] > 1;
      kernels[is_overloaded ? with_parameters(kernel) : kernel.expression] = &kernel;
    }
    for (const auto& [expression, kernel] : kernels) {
      record.kernels.push_back({expression, kernel->lowered, kernel->parameters});
    }
    add_symbols(record, contents, survey);
    return nullptr;
  }

  // "axpy(int, const float*)"
  static std::string with_parameters(const RecordedKernel& kernel) {
    std::string text = kernel.expression + "(";
    for (const RecordedParameter& parameter : kernel.parameters) {
      text += joined({&parameter == &kernel.parameters.front() ? "" : ", ", parameter.type});
    }
    return text + ")";
  }

  // Those that can be told apart by name.
  static void add_symbols(Record& record, const ImageContents& contents, const Survey& survey) {
    std::map<std::string_view, std::vector<const RecordedSymbol*>> symbols;
    for (const auto& [lowered, symbol] : survey.symbols) {
      if (contents.variables.count(lowered)) symbols[symbol.name].push_back(&symbol);
    }
    for (const auto& [name, found] : symbols) {
      if (found.size() == 1) record.symbols.push_back(*found.front());
    }
  }

  const Nvrtc& nvrtc_;
  const RecipeData& recipe_;
  std::vector<std::string> expressions_;
  std::vector<const char*> headers_;
  std::vector<const char*> header_names_;
  std::vector<std::string> search_path_;
  std::string target_;  // "90a"
  bool is_ptx_ = false;
};

}  // namespace
}  // namespace v1
}  // namespace cuda_ext
