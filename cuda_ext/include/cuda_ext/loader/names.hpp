// Look up kernels and symbols by name, and suggest the nearest name if there is none.

#pragma once

#include "failure.hpp"

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

inline bool is_white_space(char letter) noexcept {
  return letter == ' ' || ('\t' <= letter && letter <= '\r');
}

// True if both are equal except for white space.
CUDA_EXT_COLD inline bool is_spelled_alike(std::string_view left, std::string_view right) noexcept {
  std::size_t i = 0;
  std::size_t j = 0;
  while (true) {
    while (i < left.size() && is_white_space(left[i])) i++;
    while (j < right.size() && is_white_space(right[j])) j++;
    if (i == left.size() || j == right.size()) return i == left.size() && j == right.size();
    if (left[i++] != right[j++]) return false;
  }
}

// Removes template arguments and parameters.
inline std::string_view plain_name(std::string_view expression) noexcept {
  std::string_view plain = expression.substr(0, expression.find_first_of("<("));
  while (!plain.empty() && is_white_space(plain.back())) plain.remove_suffix(1);
  return plain;
}

// Returns the number of letters to insert, remove or replace to turn one into the other.
CUDA_EXT_COLD inline std::size_t edit_distance(std::string_view from, std::string_view to) {
  const auto row = std::make_unique<std::size_t[]>(to.size() + 1);
  for (std::size_t j = 0; j <= to.size(); j++) row[j] = j;
  for (std::size_t i = 0; i < from.size(); i++) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < to.size(); j++) {
      const std::size_t replaced = diagonal + (from[i] != to[j]);
      diagonal = row[j + 1];
      const std::size_t shifted = (row[j] < diagonal ? row[j] : diagonal) + 1;
      row[j + 1] = replaced < shifted ? replaced : shifted;
    }
  }
  return row[to.size()];
}

// Finds the considered name that is nearest to `wanted`, if any is near.
class NearestName {
 public:
  explicit NearestName(std::string_view wanted) noexcept : wanted_(wanted) {}

  void consider(std::string_view name) {
    const std::size_t longer = name.size() > wanted_.size() ? name.size() : wanted_.size();
    const std::size_t found = edit_distance(wanted_, name);
    if (5 * found > 2 * longer || (!nearest_.empty() && found >= distance_)) return;
    nearest_ = name;
    distance_ = found;
  }

  // "; did you mean 'axpy'?", or nothing.
  std::string hint() const { return nearest_.empty() ? "" : joined({"; did you mean '", nearest_, "'?"}); }

 private:
  std::string_view wanted_;
  std::string_view nearest_;
  std::size_t distance_ = 0;
};

// Lists the first twenty names, and the number of the others.
class ListOfNames {
 public:
  void add(std::string_view name) {
    if (count_++ >= most_) return;
    text_ += text_.empty() ? "" : ", ";
    text_ += name;
  }

  bool empty() const noexcept { return count_ == 0; }
  std::string text() const {
    return count_ > most_ ? joined({text_, " and ", count_ - most_, " more"}) : text_;
  }

 private:
  static constexpr std::size_t most_ = 20;
  std::string text_;
  std::size_t count_ = 0;
};

// True if kernels of this name were built ahead, none of them from a template.
CUDA_EXT_COLD inline bool is_no_template(const ModuleData& module, std::string_view name) noexcept {
  bool is_built = false;
  for (const KernelData& kernel : module.kernels) {
    const std::string_view expression = kernel.expression;
    if (!is_spelled_alike(plain_name(expression), plain_name(name))) continue;
    if (expression.find('<') != std::string_view::npos) return false;
    is_built = true;
  }
  return is_built;
}

// Returns the template that `name` instantiates and that is compiled on demand, or nullptr.
CUDA_EXT_COLD inline const TemplateData* find_template(const ModuleData& module, std::string_view name) {
  if (!module.on_demand || name.find('>') == name.npos || is_no_template(module, name)) return nullptr;
  const std::string_view plain = plain_name(name);
  const std::string_view last = plain.substr(plain.rfind(':') + 1);
  for (const TemplateData& each : module.on_demand->templates) {
    if (each.is_qualified ? is_spelled_alike(plain, each.name) : last == each.name) return &each;
  }
  return nullptr;
}

// Says why nothing is compiled on demand in this process, if `is_jit_off`.
inline constexpr const char* jit_off = "turned off by CUDA_EXT_JIT=0";
inline bool is_jit_off() { return setting("CUDA_EXT_JIT") == "0"; }

// Writes "jit: off; ", or nothing if there is no reason against compilation on demand.
inline std::string describe_jit(std::string_view jit) {
  return jit.empty() ? "" : joined({"jit: ", jit, "; "});
}

// True if the program itself compiled the module (compile.hpp). A build writes the compiler's version, too.
inline bool is_of_program(const ModuleData& module) noexcept { return !std::strchr(module.compiler, ' '); }

// Remove the :: of the global namespace.
inline std::string_view unrooted(std::string_view name) noexcept {
  while (!name.empty() && is_white_space(name.front())) name.remove_prefix(1);
  return name.substr(0, 2) == "::" ? name.substr(2) : name;
}

// The error if no kernel or symbol has this name. `jit` says why an instantiation of a known template is not
// compiled on demand.
CUDA_EXT_COLD inline Failure not_found(const ModuleData& module, std::string_view name,
                                       std::string_view jit = {}) {
  ListOfNames built;
  ListOfNames all;
  NearestName nearest(name);
  const auto is_other = [&](const char* is, const char* use) {
    return failure(ErrorKind::kernel_not_found, {module.name, ": '", name, "' is ", is, "; use ", use});
  };
  for (const KernelData& kernel : module.kernels) {
    const std::string_view expression = kernel.expression;
    const std::string_view plain = plain_name(expression);
    nearest.consider(expression);
    nearest.consider(plain);
    all.add(expression);
    if (is_spelled_alike(unrooted(name), expression)) return is_other("a kernel", "kernel()");
    if (!is_spelled_alike(plain, plain_name(name))) continue;
    built.add(expression);
  }
  for (const SymbolData& symbol : module.symbols) {
    nearest.consider(symbol.name);
    all.add(symbol.name);
    if (is_spelled_alike(unrooted(name), symbol.name)) return is_other("a variable", "symbol()");
  }
  if (built.empty() && jit.empty()) {
    return failure(ErrorKind::kernel_not_found, {module.name, " has no kernel or symbol '", name,
                                                 is_of_program(module) ? "' among its names" : "'",
                                                 nearest.hint(), "; it has: ", all.text()});
  }
  const bool has_arguments = name.find('<') != std::string_view::npos;
  if (jit.empty() && !module.on_demand && !is_of_program(module)) jit = "off";
  const std::string remedy = is_of_program(module)
                                 ? "pass it to compile() as one of the names"
                                 : joined({"add \"", name, "\" to `instantiate` and build again"});
  std::string reason = joined({" was not built ahead; built: ", built.empty() ? "none" : built.text(), "; ",
                               describe_jit(jit), remedy});
  if (has_arguments && name.find('>') == name.npos) {
    reason = joined({" lacks a closing '>'; built: ", built.empty() ? "none" : built.text()});
  } else if (has_arguments && is_no_template(module, name)) {
    name = plain_name(name);
    reason = joined({" is not a template; built: ", built.text()});
  } else if (plain_name(name) == name) {
    reason = joined({" stands for several kernels; name one of ", built.text()});
  }
  return failure(ErrorKind::kernel_not_found, {module.name, ": ", name, reason});
}

// Finds the index of the kernel that `name` spells.
CUDA_EXT_COLD inline Result<std::size_t> find_kernel(const ModuleData& module, std::string_view name) {
  for (std::size_t i = 0; i < module.kernels.size; i++) {
    if (name == module.kernels[i].expression) return i;
  }
  for (std::size_t i = 0; i < module.kernels.size; i++) {
    if (is_spelled_alike(unrooted(name), module.kernels[i].expression)) return i;
  }
  return not_found(module, name);
}

// Finds the index of the symbol of this name.
CUDA_EXT_COLD inline Result<std::size_t> find_symbol(const ModuleData& module, std::string_view name) {
  const std::size_t none = module.symbols.size;
  std::size_t found = none;
  for (std::size_t i = 0; i < module.symbols.size; i++) {
    if (!is_spelled_alike(unrooted(name), module.symbols[i].name)) continue;
    if (found != none) {
      const auto source = [&](std::size_t symbol) {
        return module.units[module.symbols[symbol].unit].sources;
      };
      return failure(ErrorKind::kernel_not_found, {module.name, ": ", source(found), " and ", source(i),
                                                   " each have a variable ", module.symbols[i].name,
                                                   " of their own; rename them",
                                                   is_of_program(module) ? ""
                                                                         : ", or link the units into one library "
                                                                           "with link = true"});
    }
    found = i;
  }
  if (found == none) return not_found(module, name);
  return found;
}

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
