/* `Overloads`: kernels of one name as a vectorcall object, which calls the one that fits the types of the arguments. */
#ifndef CUDA_EXT_OVERLOADS_H
#define CUDA_EXT_OVERLOADS_H

#include "arguments.h"
#include "callable.h"
#include "concurrency.h"
#include "configuration.h"

/* What chooses a kernel: the type of an argument, and its dtype unless it is a number of Python. Of a keyword it is the
 * name, with the value if that can be a constant; else the key of the argument follows. */
typedef struct Key {
  PyObject* type;
  PyObject* dtype;
} Key;

/* The kernel that was chosen for these arguments. It does not change. */
typedef struct Chosen {
  PyObject* kernel;
  Py_ssize_t count;
  Key keys[];
} Chosen;

enum { MOST_CHOSEN = 64, MOST_KEYS = 2 * MOST_PARAMETERS };

typedef struct Overloads {
  Callable base;
  PyObject* only; /* the kernel, if there is just one; NULL otherwise */
  Chosen* chosen[MOST_CHOSEN];
  int chosen_count;
} Overloads;

/* Set `key` to that of `argument`, with references. Returns 0, or -1 if more than types may choose. */
static int find_key(const State* state, PyObject* argument, Key* key) {
  PyTypeObject* type = (PyTypeObject*)Py_NewRef((PyObject*)Py_TYPE(argument)); /* the look-up may change the class */
  PyObject* dtype = NULL;
  if (type != &PyLong_Type && type != &PyFloat_Type && type != &PyBool_Type && type != &PyComplex_Type &&
      argument != Py_None && type != &PyBytes_Type) {
    dtype = optional_attribute(argument, state->names.dtype);
    if (!dtype) {
      Py_DECREF(type);
      return -1;
    }
  }
  *key = (Key){(PyObject*)type, dtype};
  return 0;
}

static void release_keys(Key* keys, Py_ssize_t count) {
  for (Py_ssize_t i = 0; i < count; i++) {
    Py_DECREF(keys[i].type);
    Py_XDECREF(keys[i].dtype);
  }
}

/* Whether a keyword chooses by this value. */
static int can_be_constant(PyObject* value) {
  return value == Py_None || PyBool_Check(value) || PyLong_CheckExact(value) || PyFloat_CheckExact(value) ||
         PyUnicode_CheckExact(value) || PyTuple_CheckExact(value);
}

/* Fill `keys` with those of the `count` arguments, and of the keywords `names` behind them that are no options. Returns
 * how many, or -1, perhaps with an exception, and no references. */
static Py_ssize_t find_keys(const State* state, PyObject* const* arguments, Py_ssize_t count, PyObject* names, Key* keys) {
  if (count + (names ? PyTuple_GET_SIZE(names) : 0) > MOST_PARAMETERS) return -1;
  Py_ssize_t found = 0;
  for (; found < count; found++) {
    if (find_key(state, arguments[found], &keys[found])) {
      release_keys(keys, found);
      return -1;
    }
  }
  Options options;
  for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); i++) {
    PyObject* name = PyTuple_GET_ITEM(names, i);
    if (find_option(&state->names, &options, name)) continue;
    PyObject* value = arguments[count + i];
    const int is_compared = can_be_constant(value);
    keys[found++] = (Key){Py_NewRef(name), is_compared ? Py_NewRef(value) : NULL};
    if (!is_compared && find_key(state, value, &keys[found++])) {
      release_keys(keys, found - 1);
      return -1;
    }
  }
  return found;
}

static int are_equal(const Key* keys, const Chosen* chosen, Py_ssize_t count) {
  if (chosen->count != count) return 0;
  for (Py_ssize_t i = 0; i < count; i++) {
    if (keys[i].type != chosen->keys[i].type) return 0;
    if (keys[i].dtype == chosen->keys[i].dtype) continue;
    if (!keys[i].dtype || !chosen->keys[i].dtype) return 0;
    if (!PyUnicode_CheckExact(keys[i].type) || !are_equal_constants(keys[i].dtype, chosen->keys[i].dtype)) return 0;
  }
  return 1;
}

/* The kernel that was chosen before for arguments of such types; NULL, perhaps with an exception, if none was. */
static PyObject* find_kernel(Overloads* overloads, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  if (overloads->only) return overloads->only;
  Key keys[MOST_KEYS];
  count = find_keys(overloads->base.state, arguments, count, names, keys);
  if (count < 0) return NULL;
  PyObject* kernel = NULL;
  const int chosen_count = LOAD(overloads->chosen_count);
  for (int i = 0; i < chosen_count && !kernel; i++) {
    if (are_equal(keys, overloads->chosen[i], count)) kernel = overloads->chosen[i]->kernel;
  }
  release_keys(keys, count);
  return kernel;
}

static PyObject* call_overloads(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* names) {
  Overloads* overloads = (Overloads*)self;
  PyObject* kernel = find_kernel(overloads, arguments, PyVectorcall_NARGS(flags), names);
  if (!kernel) return launch_carefully(self, arguments, flags, names);
  return PyObject_Vectorcall(kernel, arguments, flags, names);
}

static PyObject* remember(PyObject* self, PyObject* const* given, Py_ssize_t given_count, PyObject* names) {
  Overloads* overloads = (Overloads*)self;
  if (given_count < 1) return PyErr_Format(PyExc_TypeError, "expected a kernel and arguments");
  Chosen* chosen = PyMem_Malloc(sizeof *chosen + MOST_KEYS * sizeof *chosen->keys);
  if (!chosen) return PyErr_NoMemory();
  const Py_ssize_t count = find_keys(overloads->base.state, given + 1, given_count - 1, names, chosen->keys);
  if (count < 0) {
    PyMem_Free(chosen);
    if (drop_exception()) return NULL;
    Py_RETURN_NONE;
  }
  chosen->kernel = given[0];
  chosen->count = count;
  int is_new = 1;
  Py_BEGIN_CRITICAL_SECTION(self);
  const int known = overloads->chosen_count;
  for (int i = 0; i < known && is_new; i++) is_new = !are_equal(chosen->keys, overloads->chosen[i], count);
  if (known == MOST_CHOSEN) is_new = 0;
  if (is_new) {
    Py_INCREF(chosen->kernel);
    overloads->chosen[known] = chosen;
    STORE(overloads->chosen_count, known + 1);
  }
  Py_END_CRITICAL_SECTION();
  if (!is_new) {
    release_keys(chosen->keys, count);
    PyMem_Free(chosen);
  }
  Py_RETURN_NONE;
}

static PyMethodDef overloads_methods[] = {
    {"__remember__", (PyCFunction)(void (*)(void))remember, METH_FASTCALL | METH_KEYWORDS,
     "__remember__(kernel, *arguments, **named)\n--\n\nCall `kernel` for arguments of these types, and constants."},
    {NULL, NULL, 0, NULL},
};

static PyObject* new_overloads(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static char* names[] = {"kernels", NULL};
  PyObject* kernels;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!:Overloads", names, &PyTuple_Type, &kernels)) return NULL;
  Overloads* overloads = new_callable(type, call_overloads);
  if (!overloads) return NULL;
  if (PyTuple_GET_SIZE(kernels) == 1) overloads->only = Py_NewRef(PyTuple_GET_ITEM(kernels, 0));
  return (PyObject*)overloads;
}

static int traverse_overloads(PyObject* self, visitproc visit, void* arg) {
  Overloads* overloads = (Overloads*)self;
  Py_VISIT(overloads->only);
  for (int i = 0; i < overloads->chosen_count; i++) {
    const Chosen* chosen = overloads->chosen[i];
    Py_VISIT(chosen->kernel);
    for (Py_ssize_t j = 0; j < chosen->count; j++) {
      Py_VISIT(chosen->keys[j].type);
      Py_VISIT(chosen->keys[j].dtype);
    }
  }
  return visit_callable(self, visit, arg);
}

static int clear_overloads(PyObject* self) {
  Overloads* overloads = (Overloads*)self;
  Py_CLEAR(overloads->only);
  while (overloads->chosen_count) {
    Chosen* chosen = overloads->chosen[--overloads->chosen_count];
    Py_DECREF(chosen->kernel);
    release_keys(chosen->keys, chosen->count);
    PyMem_Free(chosen);
  }
  return 0;
}

static void deallocate_overloads(PyObject* self) {
  PyObject_GC_UnTrack(self);
  clear_overloads(self);
  free_callable(self);
}

static PyType_Slot overloads_slots[] = {
    {Py_tp_doc,
     "Overloads(kernels)\n--\n\n"
     "Calls the kernel that ``__remember__`` has for the types of the arguments, else ``__launch_carefully__``."},
    {Py_tp_new, new_overloads},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, traverse_overloads},
    {Py_tp_clear, clear_overloads},
    {Py_tp_dealloc, deallocate_overloads},
    {Py_tp_methods, overloads_methods},
    {Py_tp_members, callable_members},
    {0, NULL},
};

static PyType_Spec overloads_spec = {
    .name = "cuda_ext.runtime.launch._launch.Overloads",
    .basicsize = sizeof(Overloads),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = overloads_slots,
};

#endif
