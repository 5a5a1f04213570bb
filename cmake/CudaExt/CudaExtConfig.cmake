#[=======================================================================[.rst:
CudaExt
-------

CUDA kernels in a C++ project, without a CUDA toolkit::

  find_package(CudaExt REQUIRED)

scikit-build-core finds the package by itself. Elsewhere, set ``CMAKE_PREFIX_PATH`` to the directory that
``python -m cuda_ext cmake-dir`` prints, or ``CudaExt_DIR`` if a toolchain file restricts ``find_package`` to a root path.
A requested version must have the same minor version (``SameMinorVersion``) or be a range. There are no components.
The package defines :command:`cuda_ext_add_module` and

``CudaExt::loader``
  A target for code that includes ``cuda_ext/interface.hpp`` but no generated header, as to catch ``cuda_ext::Error``.
``CudaExt_PYTHON_EXECUTABLE``
  The Python that compiles. It must have cuda-ext with a compiler, ``cuda-ext[cu13]``. The default is the Python of this
  package's environment, or else ``Python_EXECUTABLE``, ``Python3_EXECUTABLE``, or the first on PATH. You can set it at any
  time before :command:`cuda_ext_add_module`. If you set it before :command:`find_package`, this command fails if that
  Python cannot be used.
#]=======================================================================]
if(CMAKE_VERSION VERSION_LESS 3.24)
  set(CudaExt_FOUND FALSE)
  set(CudaExt_NOT_FOUND_MESSAGE
      "CudaExt needs CMake 3.24 or newer, and this is ${CMAKE_VERSION}; install a newer one, such as the registry's (pip install cmake)")
  return()
endif()
foreach(component IN LISTS CudaExt_FIND_COMPONENTS)
  if(CudaExt_FIND_REQUIRED_${component})
    set(CudaExt_FOUND FALSE)
    set(CudaExt_NOT_FOUND_MESSAGE "CudaExt has no components, and COMPONENTS has ${component}; leave out COMPONENTS")
    return()
  endif()
endforeach()

include("${CMAKE_CURRENT_LIST_DIR}/CudaExt.cmake")
unset(CudaExt_NOT_FOUND_MESSAGE)
# A Python that is not chosen yet may be chosen before cuda_ext_add_module is called.
if(CudaExt_PYTHON_EXECUTABLE)
  _cuda_ext_check_python("${CudaExt_PYTHON_EXECUTABLE}" CudaExt_NOT_FOUND_MESSAGE)
  if(CudaExt_NOT_FOUND_MESSAGE)
    set(CudaExt_FOUND FALSE)
  endif()
endif()
