"""Sources that name headers, for the comparison with host compilers: the text of each, and more files.

All have the tree :data:`TREE`. Each header defines a kernel that is named after it, so that images show
which were included.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

INCLUDE_DIRS = ("inc", "inc2")


def kernel(path: str) -> str:
    """A kernel with the name of the file `path`."""
    return f"__global__ void {path.replace('/', '_').replace('.', '_').replace('-', '_')}() {{}}\n"


_PATHS = (
    *("device/h.h", "device/own.h", "device/sub/h.h", "device/sub/deep/d.h", "device/inc/h.h"),
    *("inc/h.h", "inc/config.h", "inc/lib/x.h", "inc/lib/y.h", "inc/one.h", "inc/two.h", "inc/plain"),
    *("inc2/h.h", "inc2/config.h", "inc2/only.h", "inc2/lib/x.h", "common/c.h", "top.h"),
)
TREE = {path: kernel(path) for path in _PATHS}
NEXT = "#include_next <h.h>\n" + kernel("inc/h.h")


class Case(NamedTuple):
    """A source ``device/a.cu`` with more files than the tree has, ``links`` to files, and macros.

    Compilers whose front end reads it in another way than GCC are not ``comparable`` with that.
    """

    source: str | bytes
    files: Mapping[str, str | bytes] = {}
    links: Mapping[str, str] = {}
    define: Mapping[str, str] = {}
    comparable: bool = True
    std: str = "c++17"


# Those that plain nvcc compiles, too, which takes longer.
BY_NVCC = (
    *("beside_before_directories", "angled_from_root", "below_own_directory_too", "cycle", "digraph"),
    *("form_feed", "splice_in_name", "splice_windows", "comment_before_sign", "separators_and_string"),
    *("raw_splice", "off_apostrophe_and_comment", "macro", "macro_angled", "macro_beside", "macro_by_option"),
    *("macro_of_condition", "macro_in_string", "macro_of_parts_of_condition", "has_from_root_taken_along"),
    *("has_by_parameter", "has_by_parameter_missing", "has_by_parameter_from_root_taken_along"),
    *("has_by_parameter_splice", "has_macro", "has_next", "has_next_missing", "next", "next_quoted"),
    *("next_below", "next_beside", "next_split", "link_looks_beside", "link_of_link", "link_and_target_once"),
    *("twins_of_counter", "twins_of_definitions", "same_name_once", "mark", "mac"),
)
# One of each way in which nvcc finds a header. The host compiler and NVRTC, compared in CI, read all cases.
QUICKLY_BY_NVCC = {"macro_beside", "has_by_parameter", "next", "link_looks_beside", "twins_of_definitions"}


def asks(condition: str, before: str = "") -> Case:
    """A case whose image shows if `condition` holds."""
    return Case(before + shows(condition))


def shows(condition: str) -> str:
    return f"#if {condition}\n__global__ void yes() {{}}\n#else\n__global__ void no() {{}}\n#endif\n"


HAS = "#define HAS(x) __has_include(x)\n"
STR = "#define STR_(x) #x\n#define STR(x) STR_(x)\n"
ONCE = "#pragma once\n"
CFG = '#pragma once\n#include "cfg.h"\n'
_H = '#include "h.h"\n'

CASES: dict[str, Case] = {
    # Where headers are found.
    "beside": Case('#include "own.h"'),
    "beside_before_directories": Case(_H),
    "angled_in_directories": Case("#include <h.h>"),
    "quoted_in_directories": Case('#include "config.h"'),
    "quoted_in_second_directory": Case('#include "only.h"'),
    "angled_in_second_directory": Case("#include <only.h>"),
    "angled_below_directory": Case("#include <lib/x.h>"),
    "without_ending": Case("#include <plain>"),
    "sub_directory": Case('#include "sub/h.h"'),
    "parent": Case('#include "../common/c.h"'),
    "parent_of_sub_directory": Case('#include "sub/../own.h"'),
    "here": Case('#include "./own.h"'),
    "double_slash": Case('#include "sub//h.h"'),
    "angled_parent": Case("#include <../common/c.h>"),
    "angled_from_root": Case("#include <common/c.h>"),
    "quoted_from_root": Case('#include "common/c.h"'),
    "quoted_top": Case('#include "top.h"'),
    "angled_top": Case("#include <top.h>"),
    "nested_beside": Case('#include "sub/n.h"', {"device/sub/n.h": _H}),
    "nested_from_directory": Case(
        "#include <lib/n.h>", {"inc/lib/n.h": '#include "y.h"\n#include "config.h"'}
    ),
    "below_own_directory": Case(
        '#include "own2.h"', {"device/own2.h": _H, "device/device/h.h": kernel("device/device/h.h")}
    ),
    "below_own_directory_too": Case(
        '#include "h.h"\n#include "device/h.h"', {"device/device/h.h": kernel("device/device/h.h")}
    ),
    "twice": Case(_H + _H, {"device/h.h": ONCE + TREE["device/h.h"]}),
    "missing": Case('#include "nowhere.h"'),
    "missing_angled": Case("#include <nowhere.h>"),
    "directory": Case('#include "sub"'),
    "spaces_in_name": Case('#include "with space.h"', {"device/with space.h": kernel("spaced")}),
    "spaces_around_name": Case('#include " h.h"'),
    "apostrophe_in_name": Case("#include <it's.h>\n#include <h.h>", {"inc/it's.h": kernel("its")}),
    "slashes_in_name": Case("#include <lib//x.h>\n#include <config.h>"),
    "letters": Case('#include "späße.h"', {"device/späße.h": kernel("spass")}),
    "source_in_source": Case('#include "b.cu"', {"device/b.cu": _H + kernel("b")}),
    "cycle": Case(
        '#include "p.h"',
        {"device/p.h": ONCE + '#include "q.h"\n', "device/q.h": ONCE + '#include "p.h"\n' + _H},
    ),
    "guarded_cycle": Case(
        '#include "p.h"',
        {
            "device/p.h": '#ifndef P\n#define P\n#include "q.h"\n#endif\n',
            "device/q.h": '#include "p.h"\n' + _H,
        },
    ),
    "self": Case('#ifndef S\n#define S\n#include "a.cu"\n#else\n' + kernel("again") + "#endif\n"),
    # How directives are spelled.
    "indented": Case('  \t #  include\t"h.h"'),
    "no_space": Case('#include"h.h"'),
    "no_space_angled": Case("#include<h.h>"),
    "trailing_comment": Case('#include "h.h" // why'),
    "trailing_block": Case('#include "h.h" /* why\n and so on */\n#include <config.h>'),
    "trailing_words": Case('#include "h.h" nonsense'),
    "comment_before_name": Case('#include /* why */ "h.h"'),
    "comment_before_sign": Case('/* why */ #include "h.h"'),
    "comment_over_lines_before_sign": Case('/* a\n   b */ #include "h.h"'),
    "comments_before_sign": Case('/* a */ /* b */\t/**/#include "h.h"'),
    "comment_behind_sign": Case('#/**/include "h.h"'),
    "comment_for_space": Case("#include/**/<h.h>"),
    "comment_over_lines_in_directive": Case('#include /* a\n b */ "h.h"'),
    "code_before_sign": Case('int x; #include "h.h"\n'),
    "code_and_comment_before_sign": Case('int x; /* */ #include "h.h"\n'),
    "code_and_lines_of_comment_before_sign": Case('int x; /* \n */ #include "h.h"\n'),
    "form_feed": Case('\f#include "h.h"'),
    "form_feed_within": Case('#\finclude\f"h.h"'),
    "vertical_tab": Case('\v#\vinclude\v"h.h"'),
    "form_feed_line": Case('int a;\f\n\f#include "h.h"'),
    "digraph": Case('%:include "h.h"'),
    "digraph_indented": Case("  %: include <h.h>"),
    "digraph_in_code": Case("int a<:3:>;\n" + _H),
    "digraph_in_line": Case('int a; %:include "h.h"\n'),
    "trigraph": Case('??=include "h.h"', comparable=False, std="c++14"),
    "trigraph_splice": Case('#incl??/\nude "h.h"', comparable=False, std="c++14"),
    "trigraph_in_comment": Case('// what??/\n#include "h.h"'),
    "trigraph_that_is_none": Case('// what??/\n#include "h.h"'),
    "trigraph_in_comment_of_2014": Case('// what??/\n#include "h.h"\n', comparable=False, std="c++14"),
    "trigraph_in_string": Case('const char* const s = "??/";\n#include "h.h"', comparable=False),
    "import": Case('#import "h.h"', comparable=False),
    "empty_directive": Case('#\n#include "h.h"'),
    "number_directive": Case('# 7\n#include "h.h"'),
    "line": Case('#line 99 "elsewhere.cu"\n#include "h.h"'),
    "unknown_directive_off": Case('#if 0\n#nonsense "\n#endif\n#include "h.h"'),
    # Continued lines.
    "splice_in_word": Case('#incl\\\nude "h.h"'),
    "splice_in_name": Case('#include "co\\\nnfig.h"'),
    "splice_in_angled_name": Case("#include <co\\\nnfig.h>"),
    "splice_behind_sign": Case('#\\\ninclude "h.h"'),
    "splice_before_sign": Case('\\\n#include "h.h"'),
    "splice_before_name": Case('#include \\\n "h.h"'),
    "splices": Case('#\\\n\\\ninc\\\nlude\\\n \\\n"h\\\n.h"'),
    "splice_windows": Case('#incl\\\r\nude "h.h"\r\n'),
    "splice_with_spaces": Case('#incl\\ \nude "h.h"', comparable=False),
    "splice_with_tab": Case('#include \\\t\n"h.h"', comparable=False),
    "splice_in_comment": Case('// continued \\\n#include "h.h"\n#include "own.h"'),
    "splice_with_spaces_in_comment": Case('// continued \\ \n#include "h.h"\n', comparable=False),
    "splice_windows_in_comment": Case('// continued \\\r\n#include "h.h"\r\n#include "own.h"\r\n'),
    "splice_opens_comment": Case('/\\\n* #include "h.h"\n#include "h.h"\n*/ int x;\n'),
    "splice_closes_comment": Case('/* *\\\n/\n#include "h.h"\n'),
    "splice_in_line_comment": Case('/\\\n/ #include "h.h"\nint x;\n'),
    "splice_in_string": Case('const char* const s = "a\\\n#include <h.h>";\n#include "own.h"'),
    "splice_at_end": Case('#include "h.h"\\\n'),
    "two_backslashes": Case('// a \\\\\n#include "h.h"'),
    # Comments.
    "commented": Case('// #include "h.h"\n'),
    "commented_block": Case('/*\n#include "h.h"\n*/'),
    "comment_in_comment": Case('/* // */ int x;\n#include "h.h"'),
    "block_in_line_comment": Case('// /*\n#include "h.h"\n// */'),
    "slash_star_slash": Case('/*/ #include <no>\n#include "h.h"\n*/ int x;\n'),
    "stars": Case('/****/ int x; /***/\n#include "h.h"'),
    "open_comment": Case('#include "own.h"\n/* open\n#include "h.h"'),
    "comment_sign_in_string": Case(
        'const char* const s = "/*";\n#include "h.h"\nconst char* const t = "*/";'
    ),
    "comment_sign_in_character": Case('const int c = \'"\'; // "\n#include "h.h"'),
    "line_comment_in_string": Case('const char* const s = "//"; \n#include "h.h"'),
    # Literals.
    "string": Case('const char* const s = "#include <h.h>";\n'),
    "string_with_quote": Case('const char* const s = "\\"";\n#include "h.h"'),
    "string_with_backslash": Case('const char* const s = "\\\\";\n#include "h.h"'),
    "character_quote": Case("const char c = '\"';\n#include \"h.h\"\nconst char d = '\"';"),
    "character_apostrophe": Case("const char c = '\\'';\n#include \"h.h\""),
    "wide_character": Case("const wchar_t c = L'\"';\n#include \"h.h\"\nconst wchar_t d = L'\"';"),
    "utf_character": Case("const char c = u8'\"';\n#include \"h.h\"\nconst char d = u8'\"';"),
    "separators": Case('constexpr int n = 1\'000;\n#include "h.h"'),
    "separators_and_string": Case(
        'int f(int, const char*);\nint x = f(1\'000, "it\'s /* here");\n#include "h.h"'
    ),
    "separators_hexadecimal": Case(
        "constexpr int n = 0xab'cd'ef;\n#include \"h.h\"\nconstexpr int m = 0b1'1;"
    ),
    "separators_of_letters": Case('constexpr int n = 0xff\'ff; const char* const s = "/*";\n#include "h.h"'),
    "separators_floating": Case("constexpr double n = 1'0.0'1e1'0;\n#include \"h.h\"\nconst char c = '\"';"),
    "separators_behind_point": Case("constexpr double n = .1'0; const char c = '\"';\n#include \"h.h\""),
    "separators_and_suffix": Case('constexpr auto n = 1\'0ull; const char* const s = "//";\n#include "h.h"'),
    "raw": Case('const char* const s = R"(\n#include "h.h"\n)";\n#include "own.h"'),
    "raw_fence": Case('const char* const s = R"x(\n)"\n#include "h.h"\n)x";\n#include "own.h"'),
    "raw_comment": Case('const char* const s = R"(/*)";\n#include "h.h"\nconst char* const t = "*/";'),
    "raw_quotes": Case('const char* const s = R"(")";\n#include "h.h"\nconst char* const t = R"(")";'),
    "raw_wide": Case('const wchar_t* const s = LR"(\n#include "h.h"\n)";\n#include "own.h"'),
    "raw_utf": Case('const char* const s = u8R"(\n#include "h.h"\n)";\n#include "own.h"'),
    "raw_backslash": Case('const char* const s = R"(\\)";\n#include "h.h"'),
    "raw_splice": Case('const char* const s = R"x()\\\nx"\n#include "h.h"\n)x";\n#include "own.h"'),
    "raw_splice_before": Case('int x; \\\nconst char* const s = R"(\n#include "h.h"\n)";\n#include "own.h"'),
    "raw_long_fence": Case(
        'const char* const s = R"0123456789abcdef(\n)"\n#include "h.h"\n)0123456789abcdef";'
    ),
    "raw_in_macro": Case('#define S R"(//)"\n#include "h.h"\nconst char* const s = S;'),
    "not_raw": Case('#define aR "x"\nconst char* const s = aR"("; // )"\n#include "h.h"'),
    "name_in_macro": Case('#define NAME "h.h"\nconst char* const s = NAME;'),
    "operator_literal": Case('int operator""_x(unsigned long long);\n#include "h.h"'),
    # What is compiled under a condition.
    "off": Case('#if 0\n#include "h.h"\n#endif'),
    "off_missing": Case('#ifdef NEVER\n#include "nowhere.h"\n#endif\n'),
    "otherwise": Case('#ifdef NEVER\n#include "h.h"\n#else\n#include "own.h"\n#endif'),
    "elif": Case('#if 0\n#include "h.h"\n#elif 1\n#include "own.h"\n#endif'),
    "off_prose": Case('#if 0\nit\'s not "here\n#endif\n#include "h.h"'),
    "off_apostrophe_and_comment": Case('#if 0\nit\'s /* here\n#endif\n#include "h.h"'),
    "off_quote_and_comment": Case('#if 0\na " /* quote\n#endif\n#include "h.h"'),
    "off_two_apostrophes": Case("#if 0\ndon't and won't\n#endif\n#include \"h.h\""),
    "error_off": Case('#if 0\n#error don\'t /* stop\n#endif\n#include "h.h"'),
    "pragma": Case('#pragma nv_diag_suppress 1 // it\'s\n#include "h.h"'),
    "defined_in_header": Case(
        '#include "d.h"\n#ifdef D\n#include "h.h"\n#endif', {"device/d.h": "#define D\n"}
    ),
    "defined_by_option": Case('#if D == 2\n#include "h.h"\n#endif', define={"D": "2"}),
    # Names that macros make.
    "macro": Case('#define NAME "h.h"\n#include NAME'),
    "macro_angled": Case("#define NAME <config.h>\n#include NAME"),
    "macro_top": Case("#define NAME <top.h>\n#include NAME"),
    "macro_beside": Case('#define NAME "own.h"\n#include NAME'),
    "macro_sub_directory": Case('#define NAME "sub/h.h"\n#include NAME'),
    "macro_in_directory": Case('#define NAME "lib/x.h"\n#include NAME'),
    "macro_by_option": Case("#include NAME", define={"NAME": "<lib/y.h>"}),
    "macro_by_option_quoted": Case("#include NAME", define={"NAME": '"only.h"'}),
    "macro_of_macro": Case("#define A <config.h>\n#define NAME A\n#include NAME"),
    "macro_in_header": Case('#include "n.h"\n#include NAME', {"device/n.h": "#define NAME <one.h>\n"}),
    "macro_for_header": Case('#define NAME <one.h>\n#include "n.h"', {"device/n.h": "#include NAME\n"}),
    "macro_of_condition": Case(
        "#if 1\n#define NAME <one.h>\n#else\n#define NAME <two.h>\n#endif\n#include NAME"
    ),
    "macro_defined_again": Case(
        "#define NAME <one.h>\n#include NAME\n#undef NAME\n#define NAME <two.h>\n#include NAME"
    ),
    "macro_in_string": Case(STR + "#include STR(own.h)"),
    "macro_of_parts": Case(STR + "#define DIR lib\n#include STR(DIR/x.h)"),
    "macro_of_parts_of_condition": Case(
        STR
        + "#if 0\n#define KIND one\n#else\n#define KIND two\n#endif\n#define FILE_OF(k) k.h\n"
        + "#include STR(FILE_OF(KIND))"
    ),
    "macro_with_parameter": Case("#define LIB(x) <lib/x.h>\n#include LIB(y)"),
    "macro_pasted": Case(STR + "#define ONE(x) x##ne.h\n#include STR(ONE(o))"),
    "macro_variadic": Case("#define ID(...) __VA_ARGS__\n#include ID(<one.h>)"),
    "macro_in_brackets_of_name": Case(
        "#define KIND one\n#include <KIND.h>\n", {"inc/KIND.h": kernel("kind")}
    ),
    "macro_expanded_in_brackets": Case(
        "#define LT <\n#define GT >\n#include LT one.h GT\n", comparable=False
    ),
    "macro_split": Case("#define NAME \\\n  <one.h>\n#include \\\n  NAME"),
    "macro_with_comment": Case("#define NAME /* which */ <one.h> // this\n#include NAME // that"),
    "macro_digraph": Case("%:define NAME <one.h>\n%:include NAME"),
    "macro_includes": Case('#define NAME "n.h"\n#include NAME', {"device/n.h": "#include <config.h>\n" + _H}),
    "macro_in_sub_directory": Case(
        '#define NAME "h.h"\n#include "sub/n.h"', {"device/sub/n.h": "#include NAME\n"}
    ),
    "macro_that_is_none": Case("#if 0\n#include NAME\n#endif\n#include <one.h>"),
    "x_macro_file": Case(
        '#define X(n) __global__ void n() {}\n#define LIST "x.def"\n#include LIST\n',
        {"device/x.def": "X(a)\nX(b)\n"},
    ),
    # Tests for headers.
    "has": asks("__has_include(<config.h>)"),
    "has_quoted": asks('__has_include("own.h")'),
    "has_missing": asks('__has_include("nowhere.h")'),
    "has_angled_beside": asks("__has_include(<own.h>)"),
    "has_from_root": asks("__has_include(<common/c.h>)"),
    "has_quoted_from_root": asks('__has_include("common/c.h")'),
    "has_from_root_taken_along": Case('#include "../common/c.h"\n' + shows("__has_include(<common/c.h>)")),
    "has_top_taken_along": Case('#include "../top.h"\n' + shows("__has_include(<top.h>)")),
    "has_spaces": asks("__has_include ( <config.h> )"),
    "has_comment": asks("__has_include/**/(/**/<config.h>/**/)"),
    "has_splice": asks("__has_\\\ninclude(<con\\\nfig.h>)"),
    "has_splice_between": asks("__has_include \\\n (<config.h>)"),
    "has_form_feed": asks("__has_include\f(\f<config.h>\f)"),
    "has_in_elif": Case("#if 0\n#elif __has_include(<config.h>)\n" + kernel("yes") + "#endif\n"),
    "has_defined": asks("defined(__has_include) && __has_include(<config.h>)"),
    "has_and_includes": Case("#if __has_include(<config.h>)\n#include <config.h>\n#endif"),
    "has_by_parameter": asks("HAS(<config.h>)", HAS),
    "has_by_parameter_quoted": asks('HAS("own.h")', HAS),
    "has_by_parameter_missing": asks("HAS(<nowhere.h>)", HAS),
    "has_by_parameter_from_root": asks("HAS(<common/c.h>)", HAS),
    "has_by_parameter_from_root_taken_along": Case(
        '#include "../common/c.h"\n' + HAS + shows("HAS(<common/c.h>)")
    ),
    "has_by_parameter_splice": asks("HAS(\\\n<config.h>)", HAS),
    "has_by_parameter_form_feed": asks("HAS\f(<config.h>)", "\f" + HAS),
    "has_by_parameter_in_header": Case('#include "d.h"\n' + shows("HAS(<config.h>)"), {"device/d.h": HAS}),
    "has_by_two_parameters": asks("HAS2(1, <config.h>)", "#define HAS2(a, x) (a && __has_include(x))\n"),
    "has_in_macro": asks("HAS_CONFIG", "#define HAS_CONFIG __has_include(<config.h>)\n"),
    "has_in_macro_missing": asks("HAS_CONFIG", "#define HAS_CONFIG __has_include(<nowhere.h>)\n"),
    "has_macro": asks("__has_include(NAME)", "#define NAME <config.h>\n"),
    "has_macro_missing": asks("__has_include(NAME)", "#define NAME <nowhere.h>\n"),
    "has_macro_by_parameter": asks("HAS(NAME)", HAS + "#define NAME <config.h>\n"),
    "has_macro_quoted": asks("HAS(NAME)", HAS + '#define NAME "own.h"\n'),
    "has_macro_by_option": Case(shows("__has_include(NAME)"), define={"NAME": "<only.h>"}),
    "has_stringized": asks("__has_include(STR(own.h))", STR),
    "has_next": Case("#include <n.h>", {"inc/n.h": shows("__has_include_next(<h.h>)")}),
    "has_next_missing": Case("#include <n.h>", {"inc/n.h": shows("__has_include_next(<nowhere.h>)")}),
    "has_next_not_before": Case("#include <n.h>", {"inc2/n.h": shows("__has_include_next(<one.h>)")}),
    "has_off": Case("#if 0\n#if __has_include(<x>)\n#endif\n#endif\n#include <one.h>"),
    # The next header of a name.
    "next": Case("#include <h.h>", {"inc/h.h": NEXT}),
    "next_quoted": Case('#include "config.h"', {"inc/config.h": '#include_next "config.h"\n'}),
    "next_of_other_name": Case("#include <n.h>", {"inc/n.h": "#include_next <config.h>\n"}),
    "next_of_second": Case("#include <n.h>", {"inc2/n.h": "#include_next <only.h>\n"}),
    "next_missing": Case("#include <n.h>", {"inc2/n.h": "#include_next <one.h>\n"}),
    "next_below": Case("#include <lib/x.h>", {"inc/lib/x.h": "#include_next <lib/x.h>\n"}),
    "next_beside": Case(_H, {"device/h.h": "#include_next <h.h>\n"}),
    "next_in_source": Case("#include_next <h.h>\n"),
    "next_split": Case("#include <h.h>", {"inc/h.h": "#inc\\\nlude_\\\nnext <h\\\n.h>\n"}),
    "next_digraph": Case("#include <h.h>", {"inc/h.h": "%:include_next <h.h>\n"}),
    # Links.
    "link": Case('#include "l.h"', links={"device/l.h": "../common/c.h"}),
    "link_looks_beside": Case(
        '#include "l.h"',
        {
            "common/l.h": '#include "cfg.h"\n',
            "common/cfg.h": kernel("common"),
            "device/cfg.h": kernel("beside"),
        },
        {"device/l.h": "../common/l.h"},
    ),
    "link_looks_in_directories": Case(
        '#include "l.h"',
        {"common/l.h": '#include "c.h"\n', "inc/c.h": kernel("inc/c.h")},
        {"device/l.h": "../common/l.h"},
    ),
    "link_in_directory": Case(
        "#include <l.h>",
        {
            "common/l.h": '#include "cfg.h"\n',
            "common/cfg.h": kernel("common"),
            "inc/cfg.h": kernel("inc/cfg.h"),
        },
        {"inc/l.h": "../common/l.h"},
    ),
    "link_of_link": Case(
        '#include "l.h"',
        {
            "common/l.h": '#include "cfg.h"\n',
            "common/cfg.h": kernel("common"),
            "device/cfg.h": kernel("beside"),
        },
        {"device/l.h": "k.h", "device/k.h": "../common/l.h"},
    ),
    "link_to_directory": Case(
        '#include "d/l.h"', {"common/l.h": '#include "c.h"\n'}, {"device/d": "../common"}
    ),
    "link_to_directory_and_parent": Case('#include "d/../top.h"', {}, {"device/d": "../common"}),
    "link_and_target_once": Case(
        '#include "l.h"\n#include "../common/l.h"',
        {"common/l.h": ONCE + kernel("l")},
        {"device/l.h": "../common/l.h"},
    ),
    "link_through_directories": Case(
        '#include "d/l.h"',
        {"common/l.h": '#include "m.h"\n', "common/m.h": '#include "../top.h"\n'},
        {"device/d": "../common"},
    ),
    "source_is_link": Case(
        b"", {"common/b.cu": _H, "common/h.h": kernel("common")}, {"device/a.cu": "../common/b.cu"}
    ),
    # Twins.
    "twins": Case(
        '#include "t.h"\n#include <t.h>',
        dict.fromkeys(("device/t.h", "inc/t.h"), ONCE + "VALUE\n"),
        define={"VALUE": "extern int twin;"},
    ),
    "twins_of_counter": Case(
        "#define J_(n) k##n\n#define J(n) J_(n)\n#define K(n) __global__ void J(n)() {}\n"
        '#include "t.h"\n#include <t.h>\n#include "sub/t.h"',
        dict.fromkeys(("device/t.h", "inc/t.h", "device/sub/t.h"), ONCE + "K(__COUNTER__)\n"),
        comparable=False,  # NVRTC has no __COUNTER__
    ),
    "twins_of_definitions": Case(
        '#define N first\n#include "t.h"\n#undef N\n#define N second\n#include <t.h>',
        dict.fromkeys(("device/t.h", "inc/t.h"), ONCE + "__global__ void N() {}\n"),
    ),
    "twins_not_once": Case(
        '#include "t.h"\n#include <t.h>', dict.fromkeys(("device/t.h", "inc/t.h"), "extern int twin;\n")
    ),
    "same_name_once": Case(
        '#include "h.h"\n#include <h.h>', {p: ONCE + kernel(p) for p in ("device/h.h", "inc/h.h")}
    ),
    "once_in_comment": Case(_H + _H, {"device/h.h": "/* #pragma once */ extern int x;\n"}),
    # Beginnings and ends.
    "mark": Case(b'\xef\xbb\xbf#include "h.h"\n'),
    "mark_in_header": Case('#include "m.h"', {"device/m.h": b'\xef\xbb\xbf#include "h.h"\n'}),
    "windows": Case('#include "h.h"\r\n#define V \\\r\n  1\r\n#include <config.h>\r\n'),
    "windows_comment": Case('// a\r\n#include "h.h"\r\n/* b\r\n*/\r\n#include "own.h"\r\n'),
    "mac": Case('#include "h.h"\r#include <config.h>\r', comparable=False),
    "mac_comment": Case('// a\r#include "h.h"\r', comparable=False),
    "mac_splice": Case('#include \\\r"h.h"\n', comparable=False),
    "no_line_end": Case('#include "h.h"'),
    "no_line_end_in_header": Case('#include "m.h"\n#include <config.h>', {"device/m.h": _H.strip()}),
    "bytes": Case(b'// caf\xe9 \xe8\n#include "h.h"\n'),
    "empty": Case(""),
    "empty_header": Case('#include "e.h"\n#include "h.h"', {"device/e.h": ""}),
}
