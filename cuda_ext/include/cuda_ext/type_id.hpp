// Ids of types, the same whether computed from the type or from its name.
//
// Generated headers look up instantiations of kernel templates by these, for types too that only device code
// has.

#pragma once

#include "data.hpp"

#include <cstddef>
#include <string_view>
#include <type_traits>

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace v1 {

using TypeId = unsigned long long;

// FNV-1a, 64 bits.
constexpr TypeId hashed(TypeId hash, std::string_view text) noexcept {
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  return hash;
}

// Reads a type as some compiler or programmer spells it, and hashes it in one spelling: without white space
// and without the words class, struct, union and enum, with const behind what it belongs to, and integer
// types as `unsigned long`.
class TypeName {
 public:
  static constexpr TypeId id(std::string_view text) noexcept {
    TypeName name(text);
    while (!name.token_.empty()) {
      name.read_type();
      if (!name.token_.empty()) name.take();
    }
    return name.hash_;
  }

 private:
  // The words of an integer type, in any order.
  struct Integer {
    bool is_any = false;
    bool is_signed = false;
    bool is_unsigned = false;
    std::string_view length{};

    constexpr bool takes(std::string_view word) noexcept {
      if (word == "signed") {
        is_signed = true;
      } else if (word == "unsigned") {
        is_unsigned = true;
      } else if (word == "long") {
        length = length == "long" ? "longlong" : "long";
      } else if (word == "__int64") {
        length = "longlong";
      } else if (word == "char" || word == "short" || word == "__int128") {
        length = word;
      } else if (word != "int") {
        return false;
      }
      return is_any = true;
    }
  };

  struct Qualifiers {
    bool is_const = false;
    bool is_volatile = false;

    constexpr bool takes(std::string_view word) noexcept {
      is_const = is_const || word == "const";
      is_volatile = is_volatile || word == "volatile";
      return word == "const" || word == "volatile";
    }
  };

  explicit constexpr TypeName(std::string_view text) noexcept : text_(text) { advance(); }

  // Up to what ends a type among others.
  constexpr void read_type() noexcept {
    Integer integer;
    Qualifiers qualifiers;
    bool is_pointer = false;  // whose const is behind it already
    while (!is_end()) {
      if ((!is_pointer && qualifiers.takes(token_)) || integer.takes(token_)) {
        advance();
        continue;
      }
      put(integer);
      const bool is_declarator = token_ == "*" || token_ == "&";
      const bool is_list = token_ == "<" || token_ == "(";
      if (is_declarator) put(qualifiers);
      is_pointer = is_pointer || is_declarator;
      take();
      if (is_list) read_list();
    }
    put(integer);
    put(qualifiers);
  }

  constexpr void read_list() noexcept {
    read_type();
    while (token_ == ",") {
      take();
      read_type();
    }
    if (!token_.empty()) take();
  }

  constexpr bool is_end() const noexcept {
    return token_.empty() || token_ == "," || token_ == ">" || token_ == ")";
  }

  constexpr void put(std::string_view text) noexcept { hash_ = hashed(hash_, text); }

  constexpr void put(Integer& integer) noexcept {
    if (integer.is_any) {
      if (integer.is_unsigned) put("unsigned");
      if (integer.is_signed && integer.length == "char") put("signed");
      put(integer.length.empty() ? "int" : integer.length);
    }
    integer = {};
  }

  constexpr void put(Qualifiers& qualifiers) noexcept {
    if (qualifiers.is_const) put("const");
    if (qualifiers.is_volatile) put("volatile");
    qualifiers = {};
  }

  constexpr void take() noexcept {
    put(token_);
    advance();
  }

  constexpr void advance() noexcept {
    do {
      text_.remove_prefix(length_of_white_space());
      token_ = text_.substr(0, length_of_token());
      text_.remove_prefix(token_.size());
    } while (token_ == "class" || token_ == "struct" || token_ == "union" || token_ == "enum");
    // A number may have a suffix, 64u.
    while (token_.size() > 1 && is_digit(token_.front()) && is_suffix(token_.back())) token_.remove_suffix(1);
  }

  constexpr std::size_t length_of_white_space() const noexcept {
    std::size_t length = 0;
    while (length < text_.size() && text_[length] == ' ') length++;
    return length;
  }

  // Of a word or a number, or else of one letter.
  constexpr std::size_t length_of_token() const noexcept {
    std::size_t length = 0;
    while (length < text_.size() && is_of_word(text_[length])) length++;
    return length || text_.empty() ? length : 1;
  }

  static constexpr bool is_digit(char letter) noexcept { return '0' <= letter && letter <= '9'; }
  static constexpr bool is_suffix(char letter) noexcept {
    return letter == 'u' || letter == 'U' || letter == 'l' || letter == 'L';
  }
  static constexpr bool is_of_word(char letter) noexcept {
    return ('a' <= letter && letter <= 'z') || ('A' <= letter && letter <= 'Z') || is_digit(letter) ||
           letter == '_';
  }

  std::string_view text_;
  std::string_view token_{};
  TypeId hash_ = 0xcbf29ce484222325;
};

// The id of the type of that name.
constexpr TypeId named_type(std::string_view name) noexcept { return TypeName::id(name); }

// The id of an integer as a template argument.
constexpr TypeId value_id(long long value) noexcept {
  TypeId hash = hashed(0xcbf29ce484222325, "value");
  for (int shift = 0; shift < 64; shift += 8) {
    const char byte[] = {static_cast<char>(static_cast<TypeId>(value) >> shift & 0xff)};
    hash = hashed(hash, {byte, 1});
  }
  return hash;
}

// The same of an argument that stands for a `template <auto>`.
template <auto value>
constexpr TypeId id_of_value() noexcept {
  using Type = decltype(value);
  static_assert(std::is_integral_v<Type> || std::is_enum_v<Type>, "a kernel's template arguments are types and integers");
  return value_id(static_cast<long long>(value));
}

template <class T>
constexpr std::string_view printed() noexcept {
#if defined(_MSC_VER) && !defined(__clang__)
  return __FUNCSIG__;
#else
  return __PRETTY_FUNCTION__;
#endif
}

// T as the compiler spells it.
template <class T>
constexpr std::string_view printed_type() noexcept {
  constexpr std::string_view example = printed<double>();
  constexpr std::size_t before = example.find("double");
  constexpr std::size_t after = example.size() - before - 6;
  return printed<T>().substr(before, printed<T>().size() - before - after);
}

template <class T>
inline constexpr TypeId type_id = named_type(printed_type<T>());

}  // namespace v1
}  // namespace cuda_ext
