// C++ name expressions and the part of their mangling that is needed here:
// cuda_ext/formats/spelling.py in C++.

#pragma once

#include "../data.hpp"
#include "../names.hpp"
#include "../text.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {
namespace {

inline bool is_digit(char letter) noexcept { return '0' <= letter && letter <= '9'; }

// Whether it can stand in an identifier; the bytes of UTF-8 can.
inline bool is_of_word(char letter) noexcept {
  return ('a' <= letter && letter <= 'z') || ('A' <= letter && letter <= 'Z') || is_digit(letter) ||
         letter == '_' || static_cast<unsigned char>(letter) >= 0x80;
}

// One spelling for name expressions that name the same thing in plain sight. They may differ in white space,
// in the side on which const stands, in the words for an integer type, and in whether the global namespace is
// named.
class Normaliser {
 public:
  static std::string normalised(std::string_view expression) {
    Tokens tokens;
    while (skip_white_space(expression)) {
      const std::string_view token = expression.substr(0, length_of_token(expression));
      expression.remove_prefix(token.size());
      const bool is_behind =
          token == "const" && !tokens.empty() && (is_word(tokens.back()) || tokens.back() == ">");
      tokens.insert(is_behind ? start_of_type(tokens) : tokens.end(), token);
    }
    std::string text = spelled(with_plain_integers(tokens));
    if (text.compare(0, 2, "::") == 0) text.erase(0, 2);
    return text;
  }

 private:
  using Tokens = std::vector<std::string_view>;

  static bool skip_white_space(std::string_view& text) noexcept {
    while (!text.empty() && is_white_space(text.front())) text.remove_prefix(1);
    return !text.empty();
  }

  // Of a literal, a number, a word, or an operator.
  static std::size_t length_of_token(std::string_view text) noexcept {
    std::size_t length = 1;
    if (text[0] == '\'') {
      while (length < text.size() && text[length] != '\'') length += 1 + std::size_t{text[length] == '\\'};
      return length < text.size() ? length + 1 : 1;
    }
    if (is_digit(text[0])) {
      const auto continues = [&](std::size_t at) {
        return at < text.size() && (is_of_word(text[at]) || text[at] == '.');
      };
      while (continues(length) || (length < text.size() && text[length] == '\'' && continues(length + 1))) {
        length += 1 + std::size_t{text[length] == '\''};
      }
      return length;
    }
    if (is_of_word(text[0])) {
      while (length < text.size() && is_of_word(text[length])) length++;
      return length;
    }
    const std::string_view pair = text.substr(0, 2);
    return pair == "::" || pair == "->" || pair == "&&" ? 2 : 1;
  }

  static bool is_word(std::string_view token) noexcept { return is_of_word(token[0]) || token[0] == '\''; }

  // Where the type begins that `tokens` end with.
  static Tokens::iterator start_of_type(Tokens& tokens) noexcept {
    auto start = tokens.end();
    int depth = 0;
    while (start != tokens.begin() &&
           (depth || is_word(start[-1]) || start[-1] == "::" || start[-1] == ">")) {
      --start;
      depth += *start == ">" ? 1 : *start == "<" ? -1 : 0;
    }
    return start;
  }

  static bool is_of_integer(std::string_view token) noexcept {
    return token == "signed" || token == "unsigned" || token == "char" || token == "short" ||
           token == "int" || token == "long" || token == "__int128";
  }

  // `unsigned int` for `unsigned`, `long` for `long int`.
  static Tokens with_plain_integers(const Tokens& tokens) {
    Tokens plain;
    for (auto at = tokens.begin(); at != tokens.end();) {
      if (!is_of_integer(*at)) {
        plain.push_back(*at++);
        continue;
      }
      const auto end = std::find_if_not(at, tokens.end(), is_of_integer);
      Tokens words(at, end);
      at = end;
      const auto has = [&](std::string_view word) {
        return std::count(words.begin(), words.end(), word) > 0;
      };
      if (has("char") || has("__int128")) {
        std::sort(words.begin(), words.end(), std::greater<>());
      } else {
        const bool is_unsigned = has("unsigned");
        words.erase(std::remove_if(words.begin(), words.end(),
                                   [](std::string_view word) { return word != "short" && word != "long"; }),
                    words.end());
        if (words.empty()) words.push_back("int");
        if (is_unsigned) words.insert(words.begin(), "unsigned");
      }
      plain.insert(plain.end(), words.begin(), words.end());
    }
    return plain;
  }

  // With the white space that C++ needs, and what its readers are used to.
  static std::string spelled(const Tokens& tokens) {
    std::string text;
    std::string_view last;
    bool is_declarator = false;
    for (const std::string_view token : tokens) {
      const bool is_after_type = !last.empty() && (last == ">" || is_word(last));
      const bool would_merge = (last == "+" || last == "-" || last == "&") && token[0] == last[0];
      if (last == "," || (is_word(token) && (is_after_type || is_declarator)) ||
          (last == "const" && token == "::") || would_merge) {
        text += ' ';
      }
      // A star or an ampersand after a type belongs to it; elsewhere it is an operator.
      is_declarator = (token == "*" || token == "&" || token == "&&") && (is_after_type || is_declarator);
      text += token;
      last = token;
    }
    return text;
  }
};

inline std::string normalised(std::string_view expression) { return Normaliser::normalised(expression); }

// Reads the names of an Itanium-mangled name, each behind its length: "3foo3bar".
class MangledNames {
 public:
  explicit MangledNames(std::string_view mangled) noexcept : rest_(mangled) {}

  // Whether there was another name. What the length exceeds is cut off.
  bool next(std::string_view& name) noexcept {
    std::size_t digits = 0;
    std::size_t length = 0;
    for (; digits < rest_.size() && is_digit(rest_[digits]); digits++) {
      length = std::min(10 * length + static_cast<std::size_t>(rest_[digits] - '0'), rest_.size());
    }
    if (!digits) return false;
    name = rest_.substr(digits, length);
    rest_.remove_prefix(digits + name.size());
    return true;
  }

  // Whether `text` stands next before a name; it is passed over.
  bool skip(std::string_view text) noexcept {
    if (rest_.substr(0, text.size()) != text || !is_digit(rest_.substr(0, text.size() + 1).back()))
      return false;
    rest_.remove_prefix(text.size());
    return true;
  }

  std::string_view rest() const noexcept { return rest_; }

 private:
  std::string_view rest_;
};

inline bool begins_with(std::string_view text, std::string_view start) noexcept {
  return text.substr(0, start.size()) == start;
}

// "ns::inner::" of _ZN2ns5inner6reduceIfLi128EEEvxPKf. Anonymous namespaces are left out.
inline std::string scope_of(std::string_view lowered) {
  if (!begins_with(lowered, "_ZN")) return "";
  std::vector<std::string_view> names;
  MangledNames mangled(lowered.substr(3));
  while (true) {
    if (mangled.skip("St")) {
      names.push_back("std");
    } else {
      mangled.skip("L");
    }
    std::string_view name;
    if (!mangled.next(name)) break;
    names.push_back(name);
  }
  std::string scope;
  for (std::size_t i = 0; i + 1 < names.size(); i++) {
    if (!begins_with(names[i], "_GLOBAL__N_")) scope += joined({names[i], "::"});
  }
  return scope;
}

// "ns::weights" for _ZN2ns7weightsE; what is more than names within names stays as it is.
inline std::string nested_name(std::string_view lowered) {
  std::string nested;
  MangledNames mangled(begins_with(lowered, "_ZN") ? lowered.substr(3) : lowered);
  while (true) {
    mangled.skip("L");
    std::string_view name;
    if (!mangled.next(name)) break;
    if (begins_with(name, "_INTERNAL_") || begins_with(name, "_GLOBAL__N_")) continue;
    nested += joined({nested.empty() ? "" : "::", name});
  }
  return mangled.rest() == "E" ? nested : std::string(lowered);
}

// Whether `source` has a kernel of that name, which has no namespaces, as far as text tells.
inline bool defines_kernel(std::string_view source, std::string_view name) noexcept {
  constexpr std::string_view keyword = "__global__";
  for (std::size_t at = source.find(keyword); at != source.npos; at = source.find(keyword, at + 1)) {
    const std::string_view declaration = source.substr(at, source.find_first_of(";{}", at) - at);
    for (std::size_t found = declaration.find(name, keyword.size()); found != declaration.npos;
         found = declaration.find(name, found + 1)) {
      std::string_view behind = declaration.substr(found + name.size());
      while (!behind.empty() && is_white_space(behind.front())) behind.remove_prefix(1);
      if (!is_of_word(declaration[found - 1]) && !behind.empty() && behind.front() == '(') return true;
    }
  }
  return false;
}

}  // namespace
}  // namespace v1
}  // namespace cuda_ext
