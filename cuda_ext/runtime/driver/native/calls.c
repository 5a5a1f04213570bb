/* `cuda_ext.runtime.driver._calls`: functions of a shared library, called by address with integers.
 *
 * `ctypes_calls.py` does the same where this is not compiled. It is slower to import.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#else
#include <dlfcn.h>
#endif

enum { MOST_ARGUMENTS = 12 };

typedef uintptr_t Word;
/* In all calling conventions of CUDA's platforms, a function ignores arguments behind those that it takes, and the
 * upper half of one that is an int. */
typedef int (*Function)(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word);

static PyObject* open_library(PyObject* module, PyObject* argument) {
  (void)module;
  const char* name = PyUnicode_AsUTF8(argument);
  if (!name) return NULL;
#ifdef _WIN32
  void* library = (void*)LoadLibraryExA(name, NULL, LOAD_LIBRARY_SEARCH_SYSTEM32);
  if (!library) return PyErr_Format(PyExc_OSError, "%s: error %lu", name, GetLastError());
#else
  void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = dlerror();
    return PyErr_Format(PyExc_OSError, "%s", reason ? reason : name);
  }
#endif
  return PyLong_FromVoidPtr(library);
}

static PyObject* find_symbol(PyObject* module, PyObject* arguments) {
  (void)module;
  PyObject* library;
  const char* name;
  if (!PyArg_ParseTuple(arguments, "O!s:find_symbol", &PyLong_Type, &library, &name)) return NULL;
  void* handle = PyLong_AsVoidPtr(library);
  if (PyErr_Occurred()) return NULL;
#ifdef _WIN32
  return PyLong_FromVoidPtr((void*)GetProcAddress((HMODULE)handle, name));
#else
  return PyLong_FromVoidPtr(dlsym(handle, name));
#endif
}

static PyObject* call(PyObject* module, PyObject* const* arguments, Py_ssize_t count) {
  (void)module;
  if (count < 1 || count > 1 + MOST_ARGUMENTS) {
    return PyErr_Format(PyExc_TypeError, "expected a function and at most %d arguments", MOST_ARGUMENTS);
  }
  Word words[1 + MOST_ARGUMENTS] = {0};
  uint64_t results[MOST_ARGUMENTS] = {0};
  Py_ssize_t result_count = 0;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* argument = arguments[i];
    if (argument == Py_None) {
      words[i] = (Word)&results[result_count++];
    } else if (PyBytes_Check(argument)) {
      words[i] = (Word)PyBytes_AS_STRING(argument);
    } else if (PyLong_Check(argument)) {
      words[i] = (Word)PyLong_AsVoidPtr(argument);
      if (PyErr_Occurred()) return NULL;
    } else {
      return PyErr_Format(PyExc_TypeError, "expected an int, bytes or None, found %R", argument);
    }
  }
  if (!PyLong_Check(arguments[0]) || !words[0]) {
    return PyErr_Format(PyExc_ValueError, "expected the address of a function");
  }
  int status;
  Py_BEGIN_ALLOW_THREADS;
  const Word* w = words + 1;
  status = ((Function)words[0])(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11]);
  Py_END_ALLOW_THREADS;
  PyObject* returned = PyTuple_New(1 + result_count);
  for (Py_ssize_t i = 0; returned && i <= result_count; i++) {
    PyObject* number = i ? PyLong_FromUnsignedLongLong(results[i - 1]) : PyLong_FromLong(status);
    if (!number) Py_CLEAR(returned);
    else PyTuple_SET_ITEM(returned, i, number);
  }
  return returned;
}

static PyMethodDef functions[] = {
    {"open_library", open_library, METH_O,
     "open_library(name)\n--\n\nOpen a library of the system and return its handle. Raises OSError."},
    {"find_symbol", find_symbol, METH_VARARGS,
     "find_symbol(library, name)\n--\n\nThe address of what the library exports as `name`; 0 if it does not."},
    {"call", (PyCFunction)(void (*)(void))call, METH_FASTCALL,
     "call(function, *arguments)\n--\n\nCall the function at an address, and release the interpreter meanwhile.\n\n"
     "An argument is an integer, bytes for a pointer to them, or None for a pointer to a result. Return what the\n"
     "function returns, an int, and the results."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "cuda_ext.runtime.driver._calls",
    .m_doc = "Functions of a shared library, called by address with integers.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__calls(void) {
  return PyModuleDef_Init(&module_definition);
}
