// The result of one compilation, and its bytes in the cache: cuda_ext/runtime/jit/entry.py in C++.

#pragma once

#include "../data.hpp"
#include "fields.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {
namespace {

// A parameter of a kernel, as the manifest describes it.
struct RecordedParameter {
  std::string name;
  std::string type;
  std::string kind;
  std::size_t size = 0;
  std::size_t offset = 0;
  std::optional<std::string> element;
  bool is_const = false;
};

struct RecordedKernel {
  std::string expression;
  std::string lowered;
  std::vector<RecordedParameter> parameters;
};

struct RecordedSymbol {
  std::string name;
  std::string lowered;
  std::string space;
  std::string type;
  std::size_t size = 0;
};

// Kernels are sorted by expression, and symbols by name.
struct Record {
  std::string architecture;
  std::string image;
  std::vector<RecordedKernel> kernels;
  std::vector<RecordedSymbol> symbols;
};

inline constexpr std::string_view record_format = "cuda-ext on demand 1";

inline std::string encoded(const Record& record) {
  FieldWriter fields;
  fields.add(record_format).add(record.architecture).add(record.image).add(record.kernels.size());
  for (const RecordedKernel& kernel : record.kernels) {
    fields.add(kernel.expression).add(kernel.lowered).add(kernel.parameters.size());
    for (const RecordedParameter& parameter : kernel.parameters) {
      fields.add(parameter.name)
          .add(parameter.type)
          .add(parameter.kind)
          .add(parameter.size)
          .add(parameter.offset);
      parameter.element ? fields.add(*parameter.element) : fields.add_absent();
      fields.add(parameter.is_const ? "1" : "0");
    }
  }
  fields.add(record.symbols.size());
  for (const RecordedSymbol& symbol : record.symbols) {
    fields.add(symbol.name).add(symbol.lowered).add(symbol.space).add(symbol.type).add(symbol.size);
  }
  return fields.bytes();
}

// Reads the bytes of a record, whatever these are.
class RecordReader {
 public:
  explicit RecordReader(std::string_view bytes) noexcept : fields_(bytes) {}

  // The record, if the bytes are one.
  std::optional<Record> record() {
    Record record;
    if (!is_of_format() || !read(record.architecture) || !read(record.image)) return std::nullopt;
    if (!read_all(record.kernels) || !read_all(record.symbols) || !fields_.at_end()) return std::nullopt;
    return record;
  }

  // The key of the record to which the bytes refer, if they do.
  std::optional<std::string> reference() {
    std::optional<std::string_view> architecture;
    std::string key;
    if (!is_of_format() || !fields_.read(architecture) || architecture) return std::nullopt;
    if (!read(key) || !fields_.at_end()) return std::nullopt;
    return key;
  }

 private:
  bool is_of_format() noexcept {
    std::string_view format;
    return fields_.read(format) && format == record_format;
  }

  bool read(std::string& text) {
    std::string_view field;
    if (!fields_.read(field)) return false;
    text = field;
    return true;
  }
  bool read(std::size_t& number) noexcept { return fields_.read(number); }

  bool read(RecordedParameter& parameter) {
    std::optional<std::string_view> element;
    std::string_view is_const;
    if (!read(parameter.name) || !read(parameter.type) || !read(parameter.kind) || !read(parameter.size) ||
        !read(parameter.offset) || !fields_.read(element) || !fields_.read(is_const)) {
      return false;
    }
    if (element) parameter.element = *element;
    parameter.is_const = is_const == "1";
    return is_const == "0" || is_const == "1";
  }
  bool read(RecordedKernel& kernel) {
    return read(kernel.expression) && read(kernel.lowered) && read_all(kernel.parameters);
  }
  bool read(RecordedSymbol& symbol) {
    return read(symbol.name) && read(symbol.lowered) && read(symbol.space) && read(symbol.type) &&
           read(symbol.size);
  }

  // Their number, and each of them. The number alone allocates nothing.
  template <class T>
  bool read_all(std::vector<T>& items) {
    std::size_t count = 0;
    if (!read(count)) return false;
    while (count--) {
      if (!read(items.emplace_back())) return false;
    }
    return true;
  }

  FieldReader fields_;
};

}  // namespace
}  // namespace v1
}  // namespace cuda_ext
