// Names and types of kernels and variables, from a compiler's debug information: cuda_ext/compiler/signatures.py
// in C++.

#pragma once

#include "../data.hpp"
#include "dwarf.hpp"
#include "expressions.hpp"
#include "paths.hpp"
#include "ptx.hpp"
#include "record.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {
namespace {

// Spells the types of debug information in C++, without typedefs. Damaged ones may refer to themselves, so
// that there is an end to what is looked at.
class TypeSpeller {
 public:
  using Type = std::optional<std::size_t>;  // none is void

  explicit TypeSpeller(const DebugInfo& info) noexcept : info_(info) {}

  // Without typedefs and qualifiers.
  Type resolved(Type type) noexcept {
    while (type && is_transparent(info_[*type].tag) && may_go_on()) type = info_.type_of(info_[*type]);
    return type;
  }

  // Whether the type, or what it is an array of, is const.
  bool is_const(Type type) noexcept {
    while (type && may_go_on()) {
      const std::uint64_t tag = info_[*type].tag;
      if (tag == dwarf::const_type) return true;
      if (!is_transparent(tag) && tag != dwarf::array_type) break;
      type = info_.type_of(info_[*type]);
    }
    return false;
  }

  // "const float*", "float[9]", "void(*)(int)"
  std::string spelled(Type type) {
    if (!type) return "void";
    const Deeper deeper(depth_);
    if (depth_ > deepest) left_ = 0;
    if (!may_go_on()) return "";
    const DebugEntry& entry = info_[*type];
    switch (entry.tag) {
      case dwarf::const_type: return qualified(entry, "const");
      case dwarf::volatile_type: return qualified(entry, "volatile");
      case dwarf::pointer_type: return pointer(entry, "*");
      case dwarf::reference_type: return pointer(entry, "&");
      case dwarf::array_type: return array(*type);
      case dwarf::subroutine_type: return function(*type);
      case dwarf::typedef_type:
      case dwarf::restrict_type: return spelled(info_.type_of(entry));
      default: return named(entry.name);
    }
  }

  // Whether all was spelled to its end.
  bool succeeded() const noexcept { return left_ > 0; }

 private:
  struct Deeper {
    explicit Deeper(int& depth) noexcept : depth_(depth) { depth_++; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    ~Deeper() { depth_--; }
    int& depth_;
  };

  static constexpr int deepest = 200;

  static constexpr bool is_transparent(std::uint64_t tag) noexcept {
    return tag == dwarf::typedef_type || tag == dwarf::const_type || tag == dwarf::volatile_type ||
           tag == dwarf::restrict_type;
  }

  bool may_go_on(std::size_t cost = 1) noexcept {
    left_ -= left_ < cost ? left_ : cost;
    return left_ > 0;
  }

  std::string qualified(const DebugEntry& entry, std::string_view word) {
    const std::string inner = spelled(info_.type_of(entry));
    const bool is_pointer = !inner.empty() && inner.back() == '*';
    return is_pointer ? joined({inner, " ", word}) : joined({word, " ", inner});
  }

  std::string pointer(const DebugEntry& entry, std::string_view sign) {
    const Type target = info_.type_of(entry);
    std::string inner = spelled(target);
    const Type plain = resolved(target);
    const std::uint64_t tag = plain ? info_[*plain].tag : 0;
    if (tag != dwarf::array_type && tag != dwarf::subroutine_type) return joined({inner, sign});
    const std::size_t place = inner.find(tag == dwarf::array_type ? '[' : '(');
    if (place != inner.npos) inner.insert(place, joined({"(", sign, ")"}));
    return inner;
  }

  std::string array(std::size_t index) {
    std::string counts;
    info_.for_each_child(index, [&](const DebugEntry& child, std::size_t) {
      if (child.tag != dwarf::subrange_type || !may_go_on()) return;
      counts += joined({"[", child.count ? child.count : child.upper_bound + 1, "]"});
    });
    return spelled(info_.type_of(info_[index])) + counts;
  }

  std::string function(std::size_t index) {
    std::string parameters;
    bool is_first = true;
    info_.for_each_child(index, [&](const DebugEntry& child, std::size_t) {
      if (child.tag != dwarf::formal_parameter || !may_go_on()) return;
      if (!std::exchange(is_first, false)) parameters += ", ";
      parameters += spelled(info_.type_of(child));
    });
    return joined({spelled(info_.type_of(info_[index])), "(", parameters, ")"});
  }

  // An enumeration in a namespace has its lowered name.
  std::string named(std::string_view name) {
    if (!may_go_on(name.size())) return "";
    const std::string plain = begins_with(name, "_Z") ? nested_name(name) : normalised(name);
    return plain.empty() ? "struct" : plain;
  }

  const DebugInfo& info_;
  std::size_t left_ = std::size_t{1} << 24;
  int depth_ = 0;
};

// The kernels and variables of a translation unit, by lowered name. The expression of a kernel is its C++
// name.
struct Survey {
  std::map<std::string, RecordedKernel, std::less<>> kernels;
  std::map<std::string, RecordedSymbol, std::less<>> symbols;
};

// Describes what is in PTX that was compiled with debug information. Variables count where a file of the
// project declares them and they can be written.
class Surveyor {
 public:
  using Files = std::set<std::string, std::less<>>;

  explicit Surveyor(std::string_view ptx)
      : ptx_(ptx),
        info_bytes_(PtxSection::bytes(ptx, ".debug_info")),
        abbreviations_(PtxSection::bytes(ptx, ".debug_abbrev")),
        strings_(PtxSection::bytes(ptx, ".debug_str")),
        info_(info_bytes_, abbreviations_, strings_),
        types_(info_) {}
  Surveyor(const Surveyor&) = delete;
  Surveyor& operator=(const Surveyor&) = delete;
  ~Surveyor() = default;

  // None where the debug information is damaged.
  std::optional<Survey> survey(const Files& project_files) {
    for (const std::size_t unit : info_.units()) {
      const std::string directory = joined({info_[unit].directory, "/"});
      info_.for_each_child(unit, [&](const DebugEntry& entry, std::size_t index) {
        if (entry.tag == dwarf::subprogram) add_kernel(entry, index);
        if (entry.tag == dwarf::variable) add_symbol(entry, directory, project_files);
      });
    }
    if (!types_.succeeded()) return std::nullopt;
    return std::move(found_);
  }

 private:
  void add_kernel(const DebugEntry& entry, std::size_t index) {
    const auto declared = ptx_.kernels.find(entry.linkage_name);
    if (declared == ptx_.kernels.end()) return;
    std::vector<const DebugEntry*> described;
    info_.for_each_child(index, [&](const DebugEntry& child, std::size_t) {
      if (child.tag == dwarf::formal_parameter) described.push_back(&child);
    });
    const bool is_described = described.size() == declared->second.size();
    RecordedKernel kernel{qualified_name(entry), declared->first, {}};
    std::size_t offset = 0;
    for (std::size_t i = 0; i < declared->second.size(); i++) {
      const PtxParameter& slot = declared->second[i];
      offset = (offset + slot.align - 1) / slot.align * slot.align;
      RecordedParameter parameter = is_described ? typed(slot, *described[i], i) : untyped(slot, i);
      parameter.size = slot.size;
      parameter.offset = offset;
      kernel.parameters.push_back(std::move(parameter));
      offset += slot.size;
    }
    found_.kernels.insert_or_assign(declared->first, std::move(kernel));
  }

  void add_symbol(const DebugEntry& entry, std::string_view directory, const Files& project_files) {
    const auto variable = ptx_.variables.find(entry.linkage_name);
    if (variable == ptx_.variables.end()) return;
    const auto declared_in = ptx_.files.find(entry.file);
    std::string_view file = declared_in == ptx_.files.end() ? std::string_view() : declared_in->second;
    if (begins_with(file, directory)) file.remove_prefix(directory.size());
    const auto type = info_.type_of(entry);
    if (!project_files.count(normal_path(file)) || types_.is_const(type)) return;
    RecordedSymbol symbol{qualified_name(entry), variable->first, "device", types_.spelled(type),
                          variable->second.size};
    if (variable->second.is_constant) symbol.space = "constant";
    found_.symbols.insert_or_assign(variable->first, std::move(symbol));
  }

  // Names and types as debug information has them.
  RecordedParameter typed(const PtxParameter& slot, const DebugEntry& entry, std::size_t index) {
    RecordedParameter parameter;
    const auto type = types_.resolved(info_.type_of(entry));
    parameter.name = entry.name.empty() ? joined({"arg", index}) : std::string(entry.name);
    parameter.type = types_.spelled(type);
    parameter.kind = "struct";
    if (!type) return parameter;
    const DebugEntry& described = info_[*type];
    switch (described.tag) {
      case dwarf::pointer_type:
      case dwarf::reference_type: {
        const auto element = info_.type_of(described);
        parameter.kind = "pointer";
        parameter.element = types_.spelled(types_.resolved(element));
        parameter.is_const = types_.is_const(element);
        break;
      }
      case dwarf::base_type: parameter.kind = kind_of(described.encoding, slot.size); break;
      case dwarf::enumeration_type: parameter.kind = "enum"; break;
      default: break;
    }
    return parameter;
  }

  // Of a base type: DW_AT_encoding, from section 7.8 of the DWARF 2 standard.
  static const char* kind_of(std::uint64_t encoding, std::size_t size) noexcept {
    switch (encoding) {
      case 0x02: return "bool";
      case 0x04: return size > 8 ? "opaque" : "float";
      case 0x05:
      case 0x06: return "integer";
      case 0x07:
      case 0x08: return "unsigned";
      default: return "opaque";
    }
  }

  // What PTX says for sure. Compilers write u32 for signed integers too, and u64 for addresses.
  static RecordedParameter untyped(const PtxParameter& slot, std::size_t index) {
    struct Known {
      const char* slot;
      const char* kind;
      const char* type;
    };
    static constexpr Known all_known[] = {{"f32", "float", "float"},        {"f64", "float", "double"},
                                          {"s8", "integer", "signed char"}, {"s16", "integer", "short"},
                                          {"s32", "integer", "int"},        {"s64", "integer", "long long"}};
    RecordedParameter parameter;
    parameter.name = is_numbered(slot.name, index) ? joined({"arg", index}) : slot.name;
    parameter.kind = "opaque";
    parameter.type = joined({".", slot.type});
    if (slot.is_pointer) {
      parameter.kind = "pointer";
      parameter.type = "void*";
      parameter.element = "void";
    } else if (slot.is_array) {
      parameter.type += joined({"[", slot.count, "]"});
    } else {
      for (const Known& known : all_known) {
        if (slot.type != known.slot) continue;
        parameter.kind = known.kind;
        parameter.type = known.type;
      }
    }
    return parameter;
  }

  // Compilers number the parameters of a kernel; people name them.
  static bool is_numbered(std::string_view name, std::size_t index) {
    const std::string end = joined({"_param_", index});
    return name.size() >= end.size() && name.substr(name.size() - end.size()) == end;
  }

  // With its namespaces, which debug information leaves out and the lowered name has.
  static std::string qualified_name(const DebugEntry& entry) {
    std::string_view lowered = entry.linkage_name;
    constexpr std::string_view internal = "__nv_static_";
    // Relocatable code: an identifier of so many letters stands before a name of internal linkage.
    if (begins_with(lowered, internal)) {
      const std::size_t digits = lowered.find('_', internal.size());
      const auto length = decimal(lowered.substr(internal.size(), digits - internal.size()));
      if (digits != lowered.npos && length && *length + 2 <= lowered.size() - digits) {
        lowered.remove_prefix(digits + 1 + *length + 1);
      }
    }
    if (entry.name == lowered && begins_with(lowered, "_Z")) return nested_name(lowered);
    return normalised(scope_of(lowered) + std::string(entry.name));
  }

  Ptx ptx_;
  std::string info_bytes_;
  std::string abbreviations_;
  std::string strings_;
  DebugInfo info_;
  TypeSpeller types_;
  Survey found_;
};

}  // namespace
}  // namespace v1
}  // namespace cuda_ext
