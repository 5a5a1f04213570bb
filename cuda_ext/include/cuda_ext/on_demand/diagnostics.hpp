// What NVRTC says of a failed compilation, with what to do about the most frequent mistakes.

#pragma once

#include "../loader/names.hpp"
#include "../loader/text.hpp"

#include <cctype>
#include <cstddef>
#include <string>
#include <string_view>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {
namespace {

// What is in `text` between `before` and `after`; empty if it is not there.
std::string_view between(std::string_view text, std::string_view before, std::string_view after) {
  const std::size_t found = text.find(before);
  if (found == text.npos) return {};
  text.remove_prefix(found + before.size());
  return text.substr(0, text.find(after));
}

// The identifier that ends `text`.
std::string_view last_identifier(std::string_view text) {
  while (!text.empty() && is_white_space(text.back())) text.remove_suffix(1);
  std::size_t begin = text.size();
  while (begin && (text[begin - 1] == '_' || std::isalnum(static_cast<unsigned char>(text[begin - 1]))))
    begin--;
  return text.substr(begin);
}

// What `expression` may mean: a kernel of `source` with a similar name, or one of those that it defines.
std::string suggest_kernel(std::string_view expression, std::string_view source) {
  const std::string_view name = last_identifier(plain_name(expression));
  NearestName nearest(name);
  ListOfNames all;
  for (std::size_t at = 0; (at = source.find("__global__", at)) != source.npos; at++) {
    const std::string_view kernel = last_identifier(source.substr(at, source.find('(', at) - at));
    if (kernel == "__launch_bounds__") continue;
    if (kernel == name) return expression.find('<') == expression.npos ? "; name an instantiation" : "";
    nearest.consider(kernel);
    all.add(kernel);
  }
  const std::string hint = nearest.hint();
  return !hint.empty() || all.empty() ? hint : joined({"; the source defines ", all.text()});
}

// What to do without the header `name`.
const char* suggest_header(std::string_view name) {
  const bool is_of_host =
      name.find('/') == name.npos && (name.find('.') == name.npos || name.find("std") == 0);
  if (is_of_host) return "NVRTC has no headers of the host; <cuda/std/...> has what replaces many of them";
  return "it is neither among the headers that are given nor in an include directory; correct its name, or "
         "add it";
}

// NVRTC's `log` of a compilation of `source`, without its counts and excerpts of name expressions.
std::string explain(std::string_view log, std::string_view source, const Array<const char*>& expressions) {
  std::string text;
  std::string_view refusal;  // the first error of a name expression
  bool is_shown = true;      // the lines that belong to the last message
  while (!log.empty()) {
    const std::string_view line = log.substr(0, log.find('\n'));
    log.remove_prefix(line.size() + (line.size() < log.size()));
    if (!line.empty() && !is_white_space(line[0])) {
      const std::string_view error = between(line, "error: ", "\n");
      const std::string_view header = between(line, "cannot open source file \"", "\"");
      std::string_view name = between(line, "Input name expression was: \"", "\"");
      for (const char* each : expressions) name = is_spelled_alike(name, each) ? each : name;
      const bool is_of_name = line.substr(0, 14) == "__nv_name_map(";
      is_shown = !is_of_name && line.find(" detected in the compilation of ") == line.npos &&
                 line.substr(0, 7) != "Remark:" && line != "Compilation terminated.";
      if (is_of_name && refusal.empty()) refusal = error.substr(0, error.find(" Input name expression"));
      if (is_of_name && line.find("Input name expression was: ") != line.npos) {
        text += joined({"there is no kernel '", name, "': ", refusal, suggest_kernel(name, source), "\n"});
        refusal = {};
      }
      if (!header.empty()) {
        text += joined({line, "; ", suggest_header(header), "\n"});
        is_shown = false;  // the excerpt says nothing more
      }
    }
    if (is_shown) text += joined({line, "\n"});
  }
  text += refusal;  // of an NVRTC that does not repeat the name
  text.erase(text.find_last_not_of(std::string_view("\0 \n", 3)) + 1);
  return text;
}

}  // namespace
}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
