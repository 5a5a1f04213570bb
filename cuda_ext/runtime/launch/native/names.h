/* Names that are compared by identity, or looked up as attributes. */
#ifndef CUDA_EXT_NAMES_H
#define CUDA_EXT_NAMES_H

#include <Python.h>

/* Interned, so that a keyword of a call is usually one of these very objects. */
#define FOR_EACH_NAME(NAME)                \
  NAME(grid, "grid")                       \
  NAME(block, "block")                     \
  NAME(threads, "threads")                 \
  NAME(shared, "shared")                   \
  NAME(stream, "stream")                   \
  NAME(like, "like")                       \
  NAME(cluster, "cluster")                 \
  NAME(cooperative, "cooperative")         \
  NAME(dependent, "dependent")             \
  NAME(wait, "wait")                       \
  NAME(dtype, "dtype")                     \
  NAME(shape, "shape")                     \
  NAME(stride, "stride")                   \
  NAME(strides, "strides")                 \
  NAME(itemsize, "itemsize")               \
  NAME(is_cuda, "is_cuda")                 \
  NAME(data, "data")                       \
  NAME(ptr, "ptr")                         \
  NAME(device_id, "device_id")             \
  NAME(device_index, "device_index")       \
  NAME(torch, "torch")                     \
  NAME(cupy, "cupy")                       \
  NAME(cuda_stream, "cuda_stream")         \
  NAME(stream_protocol, "__cuda_stream__") \
  NAME(carefully, "__launch_carefully__")  \
  NAME(size, "__size__")                   \
  NAME(references, "__references__")       \
  NAME(assign, "__assign__")               \
  NAME(read, "__read__")                   \
  NAME(choose, "__choose_carefully__")     \
  NAME(select, "__select_carefully__")

typedef struct Names {
#define DECLARE(name, text) PyObject* name;
  FOR_EACH_NAME(DECLARE)
#undef DECLARE
} Names;

static int intern_names(Names* names) {
#define INTERN(name, text)                        \
  names->name = PyUnicode_InternFromString(text); \
  if (!names->name) return -1;
  FOR_EACH_NAME(INTERN)
#undef INTERN
  return 0;
}

static void clear_names(Names* names) {
#define CLEAR(name, text) Py_CLEAR(names->name);
  FOR_EACH_NAME(CLEAR)
#undef CLEAR
}

/* The attribute `name` of `object`; NULL without an exception if there is none. */
static PyObject* optional_attribute(PyObject* object, PyObject* name) {
  PyObject* value;
#if PY_VERSION_HEX >= 0x030D0000
  PyObject_GetOptionalAttr(object, name, &value);
#else
  _PyObject_LookupAttr(object, name, &value);
#endif
  return value;
}

#endif
