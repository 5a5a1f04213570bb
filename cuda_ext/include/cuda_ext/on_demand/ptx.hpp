// Read the kernels, variables and debug information of PTX: cuda_ext/formats/ptx.py in C++.

#pragma once

#include "../data.hpp"
#include "expressions.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {
namespace {

// `type` is PTX's ("u64", "b8"), `size` and `align` count bytes; `is_array` says whether it has a count.
struct PtxParameter {
  std::string name;
  std::string type;
  std::size_t size = 0;
  std::size_t align = 0;
  std::size_t count = 0;
  bool is_array = false;
  bool is_pointer = false;
};

struct PtxVariable {
  bool is_constant = false;
  std::size_t size = 0;
};

// Reads words, numbers and signs, one after the other. Comments are white space.
class PtxScanner {
 public:
  explicit PtxScanner(std::string_view text) noexcept : rest_(text) {}

  // The next token; empty at the end. Words hold dots and dollar signs too.
  std::string_view next() noexcept {
    skip();
    std::size_t length = 0;
    while (length < rest_.size() && is_of_name(rest_[length])) length++;
    if (!length && !rest_.empty()) length = 1;
    const std::string_view token = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return token;
  }

  std::string_view peek() const noexcept { return PtxScanner(rest_).next(); }

  // Whether `token` is next; it is taken.
  bool take(std::string_view token) noexcept {
    if (peek() != token) return false;
    next();
    return true;
  }

  // The number that is next, or 0 where none is.
  std::size_t number() noexcept {
    std::size_t value = 0;
    for (const char letter : next()) {
      if (!is_digit(letter) || value > SIZE_MAX / 20) return 0;
      value = 10 * value + static_cast<std::size_t>(letter - '0');
    }
    return value;
  }

 private:
  static bool is_of_name(char letter) noexcept {
    return is_of_word(letter) || letter == '.' || letter == '$';
  }

  void skip() noexcept {
    while (!rest_.empty()) {
      if (is_white_space(rest_.front())) {
        rest_.remove_prefix(1);
      } else if (begins_with(rest_, "//")) {
        skip_through("\n");
      } else if (begins_with(rest_, "/*")) {
        skip_through("*/");
      } else {
        break;
      }
    }
  }

  void skip_through(std::string_view end) noexcept {
    const std::size_t found = rest_.find(end, 2);
    rest_.remove_prefix(found == rest_.npos ? rest_.size() : found + end.size());
  }

  std::string_view rest_;
};

// PTX as a compiler writes it: each statement at module scope begins a line.
class Ptx {
 public:
  std::map<std::string, std::vector<PtxParameter>, std::less<>> kernels;  // by lowered name
  std::map<std::string, PtxVariable, std::less<>> variables;              // at module scope
  std::map<std::size_t, std::string> files;                               // as debug information numbers them

  explicit Ptx(std::string_view text) {
    for (std::size_t start = 0; start < text.size();) {
      const std::size_t end = text.find('\n', start);
      read_statement(text.substr(start), text.substr(start, end - start));
      if (end == text.npos) break;
      start = end + 1;
    }
  }

 private:
  // What begins with `line`, if it is of interest.
  void read_statement(std::string_view text, std::string_view line) {
    if (is_data(line)) return;
    PtxScanner scanner(line);
    std::string_view token = scanner.next();
    if (token == ".file") return read_file(line, scanner);
    while (token == ".visible" || token == ".weak" || token == ".common") token = scanner.next();
    if (token == ".global" || token == ".const") return read_variable(token == ".const", scanner);
    if (token == ".entry") read_kernel(text.substr(text.find(".entry")));
  }

  // Most of the lines are of debug information.
  static bool is_data(std::string_view line) noexcept {
    while (!line.empty() && is_white_space(line.front())) line.remove_prefix(1);
    return begins_with(line, ".b8") || !begins_with(line, ".");
  }

  void read_kernel(std::string_view text) {
    PtxScanner scanner(text);
    scanner.next();
    std::vector<PtxParameter>& parameters = kernels[std::string(scanner.next())];
    parameters.clear();
    if (!scanner.take("(")) return;
    while (scanner.take(".param")) {
      parameters.push_back(parameter(scanner));
      if (!scanner.take(",")) break;
    }
  }

  static PtxParameter parameter(PtxScanner& scanner) {
    PtxParameter parameter;
    if (scanner.take(".align")) parameter.align = scanner.number();
    parameter.type = scanner.next();
    if (!parameter.type.empty()) parameter.type.erase(0, 1);
    // .ptr may be followed by a space and an alignment; the name is last.
    for (std::string_view next = scanner.peek(); is_of_parameter(next); next = scanner.peek()) {
      parameter.is_pointer = parameter.is_pointer || next == ".ptr";
      parameter.name = scanner.next();
    }
    const std::size_t width = width_of(parameter.type);
    parameter.is_array = scanner.take("[");
    if (parameter.is_array) {
      parameter.count = scanner.number();
      scanner.take("]");
    }
    parameter.size = width * (parameter.is_array ? parameter.count : 1);
    if (!parameter.align) parameter.align = width ? width : 1;
    return parameter;
  }

  static bool is_of_parameter(std::string_view token) noexcept {
    return !token.empty() && token != "," && token != ")" && token != "[";
  }

  void read_variable(bool is_constant, PtxScanner& scanner) {
    std::size_t elements = 1;
    std::string_view type = scanner.next();
    while (type == ".align" || type == ".attribute" || type == ".v2" || type == ".v4") {
      if (type == ".align") scanner.next();
      if (type == ".attribute") {
        while (!scanner.peek().empty() && scanner.next() != ")") continue;
      }
      if (begins_with(type, ".v")) elements = type == ".v2" ? 2 : 4;
      type = scanner.next();
    }
    const std::string name(scanner.next());
    while (scanner.take("[") && !scanner.peek().empty() && is_digit(scanner.peek()[0])) {
      elements *= scanner.number();
      scanner.take("]");
    }
    variables[name] = {is_constant, elements * width_of(type)};
  }

  void read_file(std::string_view line, PtxScanner& scanner) {
    const std::size_t number = scanner.number();
    const std::size_t start = line.find('"');
    const std::size_t end = line.find('"', start + 1);
    if (start != line.npos && end != line.npos)
      files[number] = unescaped(line.substr(start + 1, end - start - 1));
  }

  // PTX spells bytes beyond ASCII in octal.
  static std::string unescaped(std::string_view text) {
    std::string plain;
    while (!text.empty()) {
      const bool is_escape =
          text.size() >= 4 && text[0] == '\\' && is_octal(text[1]) && is_octal(text[2]) && is_octal(text[3]);
      plain += is_escape ? static_cast<char>((text[1] - '0') << 6 | (text[2] - '0') << 3 | (text[3] - '0'))
                         : text[0];
      text.remove_prefix(is_escape ? 4 : 1);
    }
    return plain;
  }
  static bool is_octal(char letter) noexcept { return '0' <= letter && letter <= '7'; }

  // Bytes of a PTX type, 8 of "u64".
  static std::size_t width_of(std::string_view type) noexcept {
    std::size_t bits = 0;
    for (const char letter : type) {
      if (is_digit(letter) && bits < 1000) bits = 10 * bits + static_cast<std::size_t>(letter - '0');
    }
    return (bits ? bits : 8) / 8;
  }
};

// The DWARF section `name` of `ptx`, turned from data directives into bytes. Addresses of symbols become
// zero.
class PtxSection {
 public:
  static std::string bytes(std::string_view ptx, std::string_view name) {
    PtxSection section;
    std::string_view body = body_of(ptx, name);
    while (!body.empty()) {
      const std::string_view line = body.substr(0, body.find('\n'));
      section.assemble(line);
      body.remove_prefix(line.size() + (line.size() < body.size()));
    }
    return std::move(section.bytes_);
  }

 private:
  // Up to the line that closes it.
  static std::string_view body_of(std::string_view ptx, std::string_view name) noexcept {
    constexpr std::string_view directive = ".section";
    for (std::size_t at = ptx.find(directive); at != ptx.npos; at = ptx.find(directive, at + 1)) {
      PtxScanner scanner(ptx.substr(at, directive.size() + name.size() + 16));
      scanner.next();
      if (scanner.next() != name) continue;
      const std::size_t start = ptx.find('{', at);
      if (start == ptx.npos) break;
      for (std::size_t end = ptx.find('\n', start); end != ptx.npos; end = ptx.find('\n', end + 1)) {
        std::size_t next = end;
        while (next < ptx.size() && is_white_space(ptx[next])) next++;
        if (next < ptx.size() && ptx[next] == '}') return ptx.substr(start + 1, end - start);
      }
      break;
    }
    return {};
  }

  // ".b8 1, 2, 3", ".b32 .debug_abbrev"
  void assemble(std::string_view line) {
    const std::size_t start = line.find(".b");
    if (start == line.npos) return;
    line.remove_prefix(start + 2);
    const std::size_t size = number(line) / 8;
    if (size != 1 && size != 2 && size != 4 && size != 8) return;
    while (true) {
      while (!line.empty() && is_white_space(line.front())) line.remove_prefix(1);
      const bool is_negative = !line.empty() && line.front() == '-';
      if (is_negative) line.remove_prefix(1);
      std::uint64_t value = number(line);
      if (is_negative) value = 0 - value;
      for (std::size_t i = 0; i < size; i++) bytes_ += static_cast<char>(value >> 8 * i & 0xff);
      const std::size_t comma = line.find(',');
      if (comma == line.npos) break;
      line.remove_prefix(comma + 1);
    }
  }

  // Takes the number, decimal or hexadecimal, that `text` begins with; 0 where it begins with none.
  static std::uint64_t number(std::string_view& text) noexcept {
    const bool is_hexadecimal = begins_with(text, "0x");
    if (is_hexadecimal) text.remove_prefix(2);
    std::uint64_t value = 0;
    for (; !text.empty(); text.remove_prefix(1)) {
      const int digit = value_of(text.front());
      if (digit < 0 || (digit > 9 && !is_hexadecimal)) break;
      value = (is_hexadecimal ? 16 : 10) * value + static_cast<std::uint64_t>(digit);
    }
    return value;
  }

  static int value_of(char digit) noexcept {
    if (is_digit(digit)) return digit - '0';
    const char lower = static_cast<char>(digit | 0x20);
    return 'a' <= lower && lower <= 'f' ? lower - 'a' + 10 : -1;
  }

  std::string bytes_;
};

}  // namespace
}  // namespace v1
}  // namespace cuda_ext
