// Names of types, compared as text. They identify types that only device code has, or that a header cannot
// name.

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

// The name of a type in device code, if it differs from the name in host code. If a class app::Params has the
// members of device code's ns::Params, a project specializes this before the first launch:
//
//   template <>
//   inline constexpr const char* cuda_ext::device_name<app::Params> = "ns::Params";
template <class T>
inline constexpr const char* device_name = nullptr;

// A part of a text, in constant expressions.
struct TypeText {
  const char* data = nullptr;
  std::size_t size = 0;

  constexpr TypeText() noexcept = default;
  constexpr TypeText(const char* text, std::size_t length) noexcept : data(text), size(length) {}
  template <std::size_t length>
  constexpr TypeText(const char (&text)[length]) noexcept : data(text), size(length - 1) {}

  constexpr bool empty() const noexcept { return size == 0; }
  constexpr TypeText from(std::size_t start) const noexcept { return {data + start, size - start}; }
  constexpr bool starts_with(TypeText other) const noexcept {
    for (std::size_t i = 0; i < other.size; i++) {
      if (i == size || data[i] != other.data[i]) return false;
    }
    return true;
  }
  constexpr bool operator==(TypeText other) const noexcept {
    return size == other.size && starts_with(other);
  }
};

constexpr bool is_digit(char letter) noexcept { return '0' <= letter && letter <= '9'; }
constexpr bool is_of_word(char letter) noexcept {
  return ('a' <= letter && letter <= 'z') || ('A' <= letter && letter <= 'Z') || is_digit(letter) || letter == '_';
}

// A type in a canonical spelling: tokens, each followed by a space, without the words class, struct, union
// and enum. `const` follows the type that it qualifies, and integer types are spelled as `unsigned long`.
// `capacity` suffices for a text of half that length.
template <std::size_t capacity>
class Spelling {
 public:
  explicit constexpr Spelling(TypeText text) noexcept : text_(text) {
    advance();
    while (!token_.empty()) {
      read_type();
      if (!token_.empty()) take();
    }
  }

  constexpr TypeText text() const noexcept { return {spelled_, size_}; }

 private:
  // The words of an integer type, in any order.
  struct IntegerWords {
    bool is_any = false;
    bool is_signed = false;
    bool is_unsigned = false;
    TypeText length{};

    constexpr bool takes(TypeText word) noexcept {
      if (word == "signed") {
        is_signed = true;
      } else if (word == "unsigned") {
        is_unsigned = true;
      } else if (word == "long") {
        length = length == "long" ? TypeText("longlong") : TypeText("long");
      } else if (word == "__int64") {
        length = "longlong";
      } else if (word == "char" || word == "short" || word == "__int128") {
        length = word;
      } else if (!(word == "int")) {
        return false;
      }
      return is_any = true;
    }
  };

  struct Qualifiers {
    bool is_const = false;
    bool is_volatile = false;

    constexpr bool takes(TypeText word) noexcept {
      is_const = is_const || word == "const";
      is_volatile = is_volatile || word == "volatile";
      return word == "const" || word == "volatile";
    }
  };

  // Reads up to the end of a type among others.
  constexpr void read_type() noexcept {
    IntegerWords integer;
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

  constexpr void put(TypeText text) noexcept {
    for (std::size_t i = 0; i < text.size; i++) spelled_[size_++] = text.data[i];
    if (text.size) spelled_[size_++] = ' ';
  }

  constexpr void put(IntegerWords& integer) noexcept {
    if (integer.is_any) {
      if (integer.is_unsigned) put("unsigned");
      if (integer.is_signed && integer.length == "char") put("signed");
      put(integer.length.empty() ? TypeText("int") : integer.length);
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
      while (!text_.empty() && *text_.data == ' ') text_ = text_.from(1);
      // gcc, clang and MSVC print anonymous namespaces in these ways. Names of device code do not contain
      // them.
      for (TypeText scope : {TypeText("{anonymous}::"), TypeText("(anonymous namespace)::"),
                             TypeText("`anonymous-namespace'::")}) {
        if (text_.starts_with(scope)) text_ = text_.from(scope.size);
      }
      token_ = {text_.data, length_of_token()};
      text_ = text_.from(token_.size);
    } while (token_ == "class" || token_ == "struct" || token_ == "union" || token_ == "enum");
    // The tag of the structure in <cuda.h>. Device code that cannot include it declares a structure with the
    // typedef's name.
    if (token_ == "CUtensorMap_st") token_ = "CUtensorMap";
    // A number may have a suffix, 64u.
    while (token_.size > 1 && is_digit(*token_.data) && is_suffix(token_.data[token_.size - 1]))
      token_.size--;
  }

  // The length of a word or a number, or else 1.
  constexpr std::size_t length_of_token() const noexcept {
    std::size_t length = 0;
    while (length < text_.size && is_of_word(text_.data[length])) length++;
    return length || text_.empty() ? length : 1;
  }

  static constexpr bool is_suffix(char letter) noexcept {
    return letter == 'u' || letter == 'U' || letter == 'l' || letter == 'L';
  }

  TypeText text_;
  TypeText token_{};
  char spelled_[capacity] = {};
  std::size_t size_ = 0;
};

constexpr std::size_t length_of_token(TypeText spelled) noexcept {
  std::size_t end = 0;
  while (end < spelled.size && spelled.data[end] != ' ') end++;
  return end < spelled.size ? end + 1 : end;
}

// The text without its first token and the two colons after it, or the whole text if no colons follow.
constexpr TypeText without_scope(TypeText spelled) noexcept {
  const TypeText rest = spelled.from(length_of_token(spelled));
  return rest.starts_with(": : ") ? rest.from(4) : spelled;
}

// True if both are one type; `full` has all of its namespaces. clang prints no inline namespaces, so under
// clang any inner namespace may be missing. The inline namespaces of the C++ libraries, such as std::__1,
// differ between host and device.
constexpr bool is_same_type(TypeText full, TypeText printed) noexcept {
#if defined(__clang__)
  constexpr bool prints_inline_namespaces = false;
#else
  constexpr bool prints_inline_namespaces = true;
#endif
  bool is_within = false;  // true within a namespace
  while (!full.empty() && !printed.empty()) {
    const std::size_t length = length_of_token(full);
    if (TypeText(full.data, length) == TypeText(printed.data, length_of_token(printed))) {
      is_within = *full.data == ':';
      full = full.from(length);
      printed = printed.from(length);
    } else if (without_scope(full).size < full.size &&
               (full.starts_with("__") || (is_within && !prints_inline_namespaces))) {
      full = without_scope(full);
    } else if (without_scope(printed).size < printed.size && printed.starts_with("__")) {
      printed = without_scope(printed);
    } else {
      return false;
    }
  }
  return full.empty() && printed.empty();
}

template <class T>
constexpr TypeText printed() noexcept {
#if defined(_MSC_VER) && !defined(__clang__)
  return __FUNCSIG__;
#else
  return __PRETTY_FUNCTION__;
#endif
}

// Returns the part of `text` at the place of `part` in `example`. Both texts are the same around it.
constexpr TypeText difference(TypeText text, TypeText example, TypeText part) noexcept {
  std::size_t before = 0;
  while (!example.from(before).starts_with(part)) before++;
  return {text.data + before, text.size - (example.size - part.size)};
}

template <class... Types>
struct OfTypes {};
template <auto value>
struct OfValue {};

// A value as the compiler spells it.
template <auto value>
constexpr TypeText printed_value() noexcept {
  return difference(printed<OfValue<value>>(), printed<OfValue<271828>>(), "271828");
}

// The name of T in device code, as a project states it, or else as the compiler spells it. It is printed in a
// pack, because gcc leaves out default template arguments elsewhere. Newer versions of clang leave them out
// everywhere.
template <class T>
constexpr TypeText type_name() noexcept {
  if constexpr (device_name<T> != nullptr) {
    std::size_t size = 0;
    while (device_name<T>[size]) size++;
    return {device_name<T>, size};
  } else {
    return difference(printed<OfTypes<T>>(), printed<OfTypes<double>>(), "double");
  }
}

template <class T>
inline constexpr Spelling<2 * type_name<T>().size + 16> spelling{type_name<T>()};

// True if T has this name.
template <class T, std::size_t size>
constexpr bool is_named(const char (&name)[size]) noexcept {
  return is_same_type(Spelling<2 * size + 16>(name).text(), spelling<T>.text());
}

// The value of an argument that stands for a `template <auto>`.
template <auto value>
constexpr long long number() noexcept {
  using Type = decltype(value);
  static_assert(std::is_integral_v<Type> || std::is_enum_v<Type>,
                "a kernel's template arguments are types and integers");
  return static_cast<long long>(value);
}

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
