include_guard(GLOBAL)
cmake_policy(VERSION 3.24...4.4)

# The headers lie beside this folder in an installed package, and within the package in a checkout.
find_path(_cuda_ext_include cuda_ext/interface.hpp
          PATHS "${CMAKE_CURRENT_LIST_DIR}/../include" "${CMAKE_CURRENT_LIST_DIR}/../../cuda_ext/include"
          NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH NO_CACHE REQUIRED)
add_library(CudaExt::loader INTERFACE IMPORTED GLOBAL)
set_target_properties(CudaExt::loader PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES "${_cuda_ext_include}"
  INTERFACE_COMPILE_FEATURES cxx_std_17
  INTERFACE_LINK_LIBRARIES "${CMAKE_DL_LIBS}")
unset(_cuda_ext_include)

#[=======================================================================[.rst:
cuda_ext_add_module
-------------------

Compile device sources, and embed them in C++ and in a Python package::

  cuda_ext_add_module(<target>
    NAME <import name>
    [SOURCES <path or glob>...]
    [ARCHITECTURES <architecture>...]
    [INCLUDE_DIRECTORIES <directory>...]
    [INSTANTIATE <name expression>...]
    [CONSTANTS <expression>...]
    [JIT]
    [EMBED_SOURCES <path or glob>...]
    [<KEY> <value>...]...
    [DEPENDS <target or file>...]
    [PYTHON_DESTINATION <directory>]
    [CXX_NAMESPACE <namespace>]
    [C_INTERFACE]
    [EMBED <form>]
    [OVERRIDE SOURCES <path or glob>... [<KEY> <value>...]...]...)

  cuda_ext_add_module(<target> FROM_PYPROJECT [NAME <import name>] [JIT]
    [DEPENDS <target or file>...]
    [PYTHON_DESTINATION <directory>])

``<target>`` is a static library. Targets that link it include ``<example_project/kernels.h>`` for the import name
``example_project.kernels``, and need C++17 but no CUDA. The kernels are in the namespace ``example_project::kernels``,
or that of ``CXX_NAMESPACE``. You can install and export the library with its headers:
``install(TARGETS <target> EXPORT ... FILE_SET HEADERS)``.

With ``C_INTERFACE``, C can include ``<example_project/kernels.h>``, too, and so can languages that read headers of C.

With ``PYTHON_ONLY`` there is no library and no C++: ``<target>`` is a custom target that builds the Python package, as
part of ``all``. This is the default in a project without the language CXX.

With ``JIT``, C++ and Python programs compile missing kernels when they run. Without ``JIT``, only Python does, if the
package contains its sources, which is the default. With ``JIT OFF``, neither does.

Instantiations of Python functions, such as Triton's, contain the types of their parameters:
``INSTANTIATE "scale(x: *fp32, n: i32, BLOCK=128)"``.

``EMBED_SOURCES`` are device headers and sources, with the headers that they include, for ``cuda_ext::compile`` or for
NVRTC. The generated header declares them by name. A module may consist of them alone.

``EMBED`` chooses the form of images in C++. With ``incbin``, the default for gcc and clang, the assembler reads files.
``literal``, the default for other compilers and for Windows, writes string literals. ``object`` writes an object file
(ELF, x86-64 or AArch64), which every linker takes.

The keys are those of ``[tool.cuda_ext]``, in upper case with underscores, and mean the same; ``include-dirs`` is
``INCLUDE_DIRECTORIES``. Write paths relative to the current source directory, within ``PROJECT_SOURCE_DIR`` or
``PROJECT_BINARY_DIR``; sources that ``add_custom_command`` makes may lie anywhere. Boolean
keys, such as ``LINK``, need no value; 0 and 1 are OFF and ON. ``DEFINE`` takes ``NAME=value``. Write tables as in TOML:
``INSTANTIATE "{ kernel = 'reduce<{T}>', T = ['float', 'double'] }"``. With ``FROM_PYPROJECT``, the keys come from the
pyproject.toml in ``PROJECT_SOURCE_DIR``.

``ARCHITECTURES`` takes nvcc's spelling and CMake's: ``sm_90`` or ``90-real``, ``compute_90`` or ``90-virtual``, ``90``
for both. The default is ``CMAKE_CUDA_ARCHITECTURES``. ``CUDAARCHS`` in the environment overrides both. CMake checks
the calls of all modules together, when it has read the project.

If ``CMAKE_EXPORT_COMPILE_COMMANDS`` is true, ``cuda_ext/<target>/compile_commands.json`` in the current binary
directory tells clangd how to read the sources. CMake's own compile_commands.json is unchanged. clangd reads both if
you name the directory in a ``.clangd`` beside the project's CMakeLists.txt::

  If:
    PathMatch: device/.*
  CompileFlags:
    CompilationDatabase: build/cuda_ext/<target>

``DEPENDS`` are targets and files that must exist before the sources are compiled, such as generated headers.

CMake installs the Python package into ``PYTHON_DESTINATION``, as the component ``<target>``, and under scikit-build-core
into the wheel. In the build tree, the target property ``CUDA_EXT_PYTHON_PACKAGE`` names the directory of the package. The
directories ``python``, ``include`` and ``embedded`` of ``cuda_ext/<target>`` in the binary directory belong to the
function, which removes all other files from them.
#]=======================================================================]
function(cuda_ext_add_module target)
  list(APPEND CMAKE_MESSAGE_CONTEXT "cuda_ext")
  set(call "cuda_ext_add_module(${target})")
  if(NOT target MATCHES "^[A-Za-z0-9_.+-]+$")
    message(FATAL_ERROR "${call}: invalid target name; use letters, digits and _.+-")
  endif()
  # CMake's generators reserve these names.
  if(target MATCHES "^(all|clean|depend|edit_cache|help|install|list_install_components|package|package_source|preinstall|rebuild_cache|test|ALL_BUILD|INSTALL|PACKAGE|RUN_TESTS|ZERO_CHECK)$")
    message(FATAL_ERROR "${call}: the target name ${target} is reserved; choose another name")
  endif()
  foreach(name "${target}" "${target}_generate")
    if(TARGET "${name}")
      message(FATAL_ERROR "${call}: a target ${name} exists already; choose another name")
    endif()
  endforeach()

  # Python checks the arguments when the project is complete, in one process for all modules. Targets need these before.
  set(keywords
    NAME FROM_PYPROJECT PYTHON_DESTINATION PYTHON_ONLY CXX_NAMESPACE C_INTERFACE EMBED DEPENDS OVERRIDE
    SOURCES ARCHITECTURES INCLUDE_DIRECTORIES COMPILER NVCC LAUNCHER STD DEFINE OPTIONS PRE_INCLUDE FAST_MATH
    RELAXED_CONSTEXPR STD_HEADERS HOST_CODE INSTANTIATE CONSTANTS SPLIT_INSTANTIATIONS VARIANTS TUNE COMPRESS EMIT JIT EMBED_SOURCES LINK)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "${keywords}")
  foreach(keyword IN ITEMS FROM_PYPROJECT JIT PYTHON_ONLY C_INTERFACE)
    if(keyword IN_LIST arg_KEYWORDS_MISSING_VALUES)
      set(arg_${keyword} ON)
    endif()
  endforeach()
  foreach(keyword IN ITEMS DEPENDS SOURCES EMBED_SOURCES)  # a value may be a list
    string(REPLACE "\\;" ";" arg_${keyword} "${arg_${keyword}}")
  endforeach()
  # Find Python here and not in find_package, since a project may choose a Python after that.
  _cuda_ext_find_python(python)
  set(directory "${CMAKE_CURRENT_BINARY_DIR}/cuda_ext/${target}")
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if(NOT "CXX" IN_LIST languages)
    set(embed none)
  elseif(CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang" AND NOT WIN32)
    set(embed incbin)
  else()
    set(embed literal)
  endif()
  set(machine)
  if(CMAKE_EXECUTABLE_FORMAT STREQUAL "ELF" AND CMAKE_SIZEOF_VOID_P EQUAL 8)
    string(TOLOWER "${CMAKE_SYSTEM_PROCESSOR}" machine)
  endif()
  set(exported OFF)
  if(CMAKE_EXPORT_COMPILE_COMMANDS)
    set(exported ON)
  endif()
  string(ASCII 31 separator)
  string(JOIN "${separator}" arguments "${target}" "${PROJECT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}"
    "${PROJECT_BINARY_DIR}" "${CMAKE_CURRENT_LIST_FILE}" "${CMAKE_CUDA_ARCHITECTURES}" ${embed} "${CMAKE_GENERATOR}" ${exported}
    "${machine}")
  # Not ARGN, since a value may contain a semicolon or a newline.
  math(EXPR last "${ARGC} - 1")
  foreach(index RANGE ${last})
    if(index GREATER 0)
      string(APPEND arguments "${separator}${ARGV${index}}")
    endif()
  endforeach()
  file(WRITE "${directory}/arguments.txt" "${arguments}")
  set_property(GLOBAL PROPERTY CUDA_EXT_CALL_${target} "${call} in ${CMAKE_CURRENT_LIST_FILE}")
  set_property(GLOBAL PROPERTY CUDA_EXT_DEPENDS_${target} "${arg_DEPENDS}")
  set(inputs)
  foreach(source IN LISTS arg_SOURCES arg_EMBED_SOURCES)
    # The depfile has the files that a glob matches, and all headers.
    if(NOT source MATCHES "[*?]|\\[")
      get_filename_component(source "${source}" ABSOLUTE)
      list(APPEND inputs "${source}")
    endif()
  endforeach()
  set_property(GLOBAL PROPERTY CUDA_EXT_INPUTS_${target} "${inputs}")
  _cuda_ext_defer(${target} "${directory}" "${python}")

  set(cuda_ext_name "${arg_NAME}")
  set(cuda_ext_on_demand OFF)
  if(arg_JIT OR arg_EMBED_SOURCES)
    set(cuda_ext_on_demand ON)
  endif()
  set(cuda_ext_pyproject)
  list(LENGTH arg_NAME names)
  if(arg_FROM_PYPROJECT OR NOT names EQUAL 1)
    # Only Python reads pyproject.toml, and says what is wrong with a name.
    _cuda_ext_configure()
    include("${directory}/module.cmake")
  endif()
  list(APPEND inputs ${cuda_ext_pyproject})
  string(REPLACE "." "/" path "${cuda_ext_name}")

  set(package "${directory}/python/${path}")
  set(headers)
  set(code)
  if(NOT embed STREQUAL none AND NOT arg_PYTHON_ONLY)
    get_filename_component(code "${path}" NAME)
    set(object)
    if(arg_EMBED STREQUAL "object")
      set(object "${directory}/${code}.images.o")
      set_source_files_properties("${object}" PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    endif()
    set(code "${directory}/${code}.cpp" ${object})
    set(headers "${directory}/include/${path}.h" "${directory}/include/${path}/cuda_ext.hpp")
    if(cuda_ext_on_demand)
      list(APPEND headers "${directory}/include/${path}/compile.hpp")
    endif()
    if(arg_C_INTERFACE)
      list(APPEND headers "${directory}/include/${path}/c.h")
    endif()
  endif()
  # One command for a module: it compiles in as many processes as there are cores. Ninja runs one command with a
  # terminal at a time. Files whose content stays the same are not written, so that C++ is compiled only when needed.
  # Deleted files are generated again: Ninja knows the byproducts, and the depfile lists all other files.
  add_custom_command(
    OUTPUT "${directory}/module.stamp"
    BYPRODUCTS ${headers} ${code} "${package}/manifest.json"
    COMMAND "${python}" -P -m cuda_ext.integrations.cmake build "${directory}" "${target}"
            "${directory}/module.stamp" "${directory}/module.stamp.d"
    DEPENDS "${directory}/module.json" ${inputs} ${arg_DEPENDS}
    DEPFILE "${directory}/module.stamp.d"
    COMMENT "Compiling ${cuda_ext_name}"
    USES_TERMINAL
    VERBATIM)
  # The root of scikit-build-core's wheel, for one platform or for all (wheel.platlib = false).
  foreach(root IN ITEMS "${SKBUILD_PLATLIB_DIR}" "${SKBUILD_PURELIB_DIR}")
    if(NOT arg_PYTHON_DESTINATION)
      set(arg_PYTHON_DESTINATION "${root}")
    endif()
  endforeach()
  # A package that is installed must be built even if no target links the library.
  set(all)
  if(arg_PYTHON_DESTINATION OR NOT code)
    set(all ALL)
  endif()
  set(generate "${target}")
  if(code)
    set(generate "${target}_generate")
    _cuda_ext_add_library(${target} "${directory}/include" "${headers}" "${code}")
    if(embed STREQUAL incbin AND NOT arg_EMBED MATCHES "^(literal|object)$")
      # Paths in the source are relative to this directory, of which the linker would not know.
      target_include_directories(${target} PRIVATE "${directory}")
      target_compile_options(${target} PRIVATE -fno-lto)
      set_target_properties(${target} PROPERTIES INTERPROCEDURAL_OPTIMIZATION OFF)
    endif()
    _cuda_ext_add_object(${target} loader)
    if(cuda_ext_on_demand)
      # It runs rarely, and small code compiles faster.
      _cuda_ext_add_object(${target} on_demand "$<$<AND:$<CXX_COMPILER_ID:GNU,Clang,AppleClang>,$<NOT:$<CONFIG:Debug>>>:-Os>")
    endif()
    add_dependencies(${target} ${generate})
  endif()
  add_custom_target(${generate} ${all} DEPENDS "${directory}/module.stamp")
  set_target_properties(${generate} PROPERTIES
    ADDITIONAL_CLEAN_FILES "${directory}/python;${directory}/include;${directory}/embedded")
  set_target_properties(${target} PROPERTIES CUDA_EXT_PYTHON_PACKAGE "${package}")

  if(arg_PYTHON_DESTINATION)
    install(DIRECTORY "${package}/" DESTINATION "${arg_PYTHON_DESTINATION}/${path}" COMPONENT "${target}")
  endif()
endfunction()

# Add the static library `target` of the sources `code`, with its `headers` below `include`.
function(_cuda_ext_add_library target include headers code)
  add_library(${target} STATIC)
  target_sources(${target}
    PRIVATE ${code}
    PUBLIC FILE_SET HEADERS BASE_DIRS "${include}" FILES ${headers})
  target_include_directories(${target} SYSTEM INTERFACE "$<BUILD_INTERFACE:${include}>")
  target_link_libraries(${target} PUBLIC ${CMAKE_DL_LIBS})
  _cuda_ext_set_up_cxx(${target} PUBLIC)
endfunction()

# Add `name`, the loader or compilation on demand, to the library `target`: one object for all modules of the project, or
# of its directories with the same compiler options. It is part of each library, so that each can be installed alone; the
# linker takes it from the first library.
function(_cuda_ext_add_object target name)
  get_directory_property(options COMPILE_OPTIONS)
  get_directory_property(definitions COMPILE_DEFINITIONS)
  set(variables "${CMAKE_CXX_FLAGS};${CMAKE_CXX_STANDARD};${CMAKE_INTERPROCEDURAL_OPTIMIZATION};${CMAKE_MSVC_RUNTIME_LIBRARY}")
  string(SHA256 key "${variables};${options};${definitions}")
  string(SUBSTRING "${key}" 0 8 key)
  set(object "cuda_ext_${name}_${key}")
  if(NOT TARGET ${object})
    get_target_property(include CudaExt::loader INTERFACE_INCLUDE_DIRECTORIES)
    add_library(${object} OBJECT EXCLUDE_FROM_ALL "${include}/cuda_ext/${name}/${name}.cpp")
    target_compile_options(${object} PRIVATE ${ARGN})
    _cuda_ext_set_up_cxx(${object} PRIVATE)
  endif()
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${object}>)
endfunction()

# Compile `target` for static and shared libraries, without the warnings and checks of the project, which are meant for its
# own code.
function(_cuda_ext_set_up_cxx target scope)
  target_compile_features(${target} ${scope} cxx_std_17)
  target_compile_options(${target} PRIVATE "$<IF:$<CXX_COMPILER_ID:MSVC>,/w,-w>")
  set_target_properties(${target} PROPERTIES
    POSITION_INDEPENDENT_CODE ON CXX_SCAN_FOR_MODULES OFF
    CXX_CLANG_TIDY "" CXX_CPPCHECK "" CXX_CPPLINT "" CXX_INCLUDE_WHAT_YOU_USE "")
endfunction()

# Have Python check the call of `target` when the whole project is known.
function(_cuda_ext_defer target directory python)
  get_property(pending GLOBAL PROPERTY CUDA_EXT_PENDING)
  if(NOT pending)
    cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL _cuda_ext_finish)
  endif()
  set_property(GLOBAL APPEND PROPERTY CUDA_EXT_TARGETS ${target})
  set_property(GLOBAL APPEND PROPERTY CUDA_EXT_PENDING "${directory}")
  set_property(GLOBAL APPEND PROPERTY CUDA_EXT_PYTHONS "${python}")
endfunction()

# Check all calls since the last time.
function(_cuda_ext_finish)
  _cuda_ext_configure()
  get_property(targets GLOBAL PROPERTY CUDA_EXT_TARGETS)
  set_property(GLOBAL PROPERTY CUDA_EXT_TARGETS)
  foreach(target IN LISTS targets)
    _cuda_ext_check_depends(${target})
  endforeach()
endfunction()

# Check and plan the modules that are pending: one process of each Python reads all of their calls.
function(_cuda_ext_configure)
  get_property(pending GLOBAL PROPERTY CUDA_EXT_PENDING)
  get_property(pythons GLOBAL PROPERTY CUDA_EXT_PYTHONS)
  set_property(GLOBAL PROPERTY CUDA_EXT_PENDING)
  set_property(GLOBAL PROPERTY CUDA_EXT_PYTHONS)
  foreach(directory IN LISTS pending)
    get_filename_component(target "${directory}" NAME)
    get_property(inputs GLOBAL PROPERTY CUDA_EXT_INPUTS_${target})
    set(generated)
    foreach(input IN LISTS inputs)
      get_source_file_property(is_generated "${input}" GENERATED)
      if(is_generated)
        list(APPEND generated "${input}")
      endif()
    endforeach()
    list(JOIN generated "\n" generated)
    file(WRITE "${directory}/generated.txt" "${generated}")
  endforeach()
  set(different ${pythons})
  list(REMOVE_DUPLICATES different)
  foreach(python IN LISTS different)
    set(own)
    foreach(directory other IN ZIP_LISTS pending pythons)
      if(other STREQUAL python)
        list(APPEND own "${directory}")
      endif()
    endforeach()
    _cuda_ext_run_python("${python}" "${own}")
  endforeach()
  foreach(directory IN LISTS pending)
    include("${directory}/module.cmake")
    # Configure again when the settings change, or when files that match a glob are added or removed.
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${directory}/module.json" ${cuda_ext_pyproject})
    foreach(glob IN LISTS cuda_ext_globs)
      file(GLOB _ CONFIGURE_DEPENDS "${glob}")
    endforeach()
    foreach(glob IN LISTS cuda_ext_recursive_globs)
      file(GLOB_RECURSE _ CONFIGURE_DEPENDS "${glob}")
    endforeach()
  endforeach()
endfunction()

# Run the step that checks the calls of the modules in the directories `own`.
function(_cuda_ext_run_python python own)
  get_property(planned GLOBAL PROPERTY CUDA_EXT_PLANNED)
  set_property(GLOBAL APPEND PROPERTY CUDA_EXT_PLANNED "${own}")
  # Not CudaExt_VERSION, which include(CudaExt) does not set.
  include("${CMAKE_CURRENT_FUNCTION_LIST_DIR}/CudaExtConfigVersion.cmake")
  set(result "it is missing")
  if(python)
    execute_process(
      COMMAND "${python}" -P -m cuda_ext.integrations.cmake configure "${PACKAGE_VERSION}" ${own} -- ${planned}
      RESULT_VARIABLE result
      OUTPUT_VARIABLE output
      ERROR_VARIABLE output
      OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_STRIP_TRAILING_WHITESPACE)
  endif()
  list(GET own 0 directory)
  if(NOT result EQUAL 0 OR NOT EXISTS "${directory}/module.cmake")
    _cuda_ext_check_python("${python}" problem)
    if(problem)
      get_filename_component(target "${directory}" NAME)
      set(output "cuda_ext_add_module(${target}): ${problem}")
    elseif(output STREQUAL "")
      set(output "${python} cannot be run (${result}); run it by hand")
    endif()
    message(FATAL_ERROR "${output}")
  endif()
  if(output)
    message(WARNING "${output}")
  endif()
endfunction()

# Stop if one of the DEPENDS of `target` is neither a target nor a file.
function(_cuda_ext_check_depends target)
  get_property(call GLOBAL PROPERTY CUDA_EXT_CALL_${target})
  get_property(depends GLOBAL PROPERTY CUDA_EXT_DEPENDS_${target})
  get_target_property(source ${target} SOURCE_DIR)
  get_target_property(binary ${target} BINARY_DIR)
  foreach(name IN LISTS depends)
    get_filename_component(in_source "${name}" ABSOLUTE BASE_DIR "${source}")
    get_filename_component(in_binary "${name}" ABSOLUTE BASE_DIR "${binary}")
    set(found FALSE)
    foreach(file IN ITEMS "${in_source}" "${in_binary}")
      get_source_file_property(generated "${file}" GENERATED)
      if(generated OR EXISTS "${file}")
        set(found TRUE)
      endif()
    endforeach()
    if(NOT found AND NOT TARGET "${name}")
      message(FATAL_ERROR "${call}: DEPENDS: '${name}' is neither a target, nor a file, nor the output of a command; correct it")
    endif()
  endforeach()
endfunction()

# Set `problem` to the reason why `python` cannot compile for these files, or to an empty string.
function(_cuda_ext_check_python python problem)
  set(${problem} "" PARENT_SCOPE)
  get_property(checked GLOBAL PROPERTY CUDA_EXT_CHECKED_PYTHON)
  if(python AND "${python}" STREQUAL "${checked}")
    return()
  endif()
  set(advice "set CudaExt_PYTHON_EXECUTABLE to one in which \"cuda-ext[cu13]\" is installed")
  if(NOT python)
    set(${problem} "there is no Python; ${advice}" PARENT_SCOPE)
    return()
  endif()
  execute_process(
    COMMAND "${python}" -P -X utf8 -c "import cuda_ext; print(cuda_ext.__version__)"
    RESULT_VARIABLE result
    OUTPUT_VARIABLE version
    ERROR_VARIABLE error
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_STRIP_TRAILING_WHITESPACE)
  if(NOT result EQUAL 0 OR NOT version MATCHES "^[0-9][^ \n]*$")
    if(error MATCHES "No module named '?cuda_ext|unknown option -P|Unknown option: -P")
      set(reason "has no cuda-ext for Python 3.11 or newer")
    elseif(error STREQUAL "")
      set(reason "cannot be run (${result})")
    else()
      string(REGEX MATCH "[^\n]*$" error "${error}")
      set(reason "cannot import cuda_ext: ${error}")
    endif()
    set(${problem} "${python} ${reason}; ${advice}" PARENT_SCOPE)
    return()
  endif()
  # Not CudaExt_VERSION, which include(CudaExt) does not set.
  include("${CMAKE_CURRENT_FUNCTION_LIST_DIR}/CudaExtConfigVersion.cmake")
  if(NOT version STREQUAL PACKAGE_VERSION)
    set(${problem} "${python} has cuda-ext ${version}, and CMake found CudaExt ${PACKAGE_VERSION}; set CudaExt_PYTHON_EXECUTABLE and CMAKE_PREFIX_PATH to the same environment" PARENT_SCOPE)
    return()
  endif()
  set_property(GLOBAL PROPERTY CUDA_EXT_CHECKED_PYTHON "${python}")
endfunction()

# Set `variable` to CudaExt_PYTHON_EXECUTABLE, the Python of the environment around this file, or another.
function(_cuda_ext_find_python variable)
  set(python "${CudaExt_PYTHON_EXECUTABLE}")
  if(NOT python)
    unset(python)
    # This directory is <prefix>/lib/python3.12/site-packages/cuda_ext/cmake or <prefix>/Lib/site-packages/cuda_ext/cmake.
    if(CMAKE_CURRENT_FUNCTION_LIST_DIR MATCHES "^(.*)/[Ll]ib(64)?/((python3[0-9.]*)/)?[^/]*-packages/cuda_ext/cmake$")
      find_program(python NAMES ${CMAKE_MATCH_4} python3 python
                   PATHS "${CMAKE_MATCH_1}" PATH_SUFFIXES bin Scripts NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH NO_CACHE)
    endif()
  endif()
  foreach(known Python_EXECUTABLE Python3_EXECUTABLE PYTHON_EXECUTABLE)
    if(NOT python AND ${known})
      set(python "${${known}}")
    endif()
  endforeach()
  if(NOT python)
    unset(python)
    find_program(python NAMES python3 python NO_CMAKE_FIND_ROOT_PATH NO_CACHE)
  endif()
  set(${variable} "${python}" PARENT_SCOPE)
endfunction()
