#[=======================================================================[.rst:
CudaExt
-------

CUDA kernels in a C++ project, without a CUDA toolkit::

  find_package(CudaExt REQUIRED)

Found by itself under scikit-build-core, elsewhere through ``CMAKE_PREFIX_PATH``, to which
``python -m cuda_ext cmake-dir`` prints the directory. Defines :command:`cuda_ext_add_module` and

``CudaExt::loader``
  The headers that generated ones build upon, for code that uses ``cuda_ext/loader.hpp`` by itself.
``CudaExt_PYTHON_EXECUTABLE``
  The Python that compiles: one that has cuda-ext with a compiler, ``cuda-ext[cu13]``. By default that of the
  environment in which this file lies, or else ``Python_EXECUTABLE``, ``Python3_EXECUTABLE``, or the first on PATH.
#]=======================================================================]
if(CMAKE_VERSION VERSION_LESS 3.24)
  set(CudaExt_FOUND FALSE)
  set(CudaExt_NOT_FOUND_MESSAGE
      "CudaExt needs CMake 3.24 or newer, and this is ${CMAKE_VERSION}; install a newer one, such as the registry's (pip install cmake)")
  return()
endif()

include("${CMAKE_CURRENT_LIST_DIR}/CudaExt.cmake")
set_property(GLOBAL PROPERTY CUDA_EXT_VERSION "${CudaExt_VERSION}")
