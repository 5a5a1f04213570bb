/* `Overloads`: kernels of one name as a vectorcall object, which calls the one that fits the types of the arguments. */
#ifndef CUDA_EXT_OVERLOADS_H
#define CUDA_EXT_OVERLOADS_H

#include "arguments.h"
#include "brackets.h"
#include "callable.h"
#include "concurrency.h"
#include "configuration.h"

/* What chooses a kernel, in the order of the arguments, behind one key for a choice by constants alone. For each keyword
 * its name; then, for a constant that a kernel has, its value, and for all else the type, with the dtype behind it unless
 * it is a number of Python. Equal values are the same object here, so that pointers are compared. */
enum { MOST_KEYS = 1 + 3 * MOST_PARAMETERS };

typedef struct Keys {
  PyObject* items[MOST_KEYS];
  int count;
  size_t hash;
} Keys;

/* The kernel that was chosen for these keys. It does not change. One that takes more calls may replace it, as one that was
 * compiled on demand; since other threads may be reading it, it is freed with the object. */
typedef struct Chosen {
  struct Chosen* replaced;
  PyObject* kernel;
  size_t hash;
  int count;
  PyObject* keys[];
} Chosen;

/* A hash table with open addressing, at most half full. A full one is followed by another of twice the size; since other
 * threads may be reading it, it is freed with the object. */
typedef struct Table {
  struct Table* older;
  size_t size; /* a power of two */
  Chosen* slots[];
} Table;

enum { FIRST_SIZE = 16, MOST_CHOSEN = 1 << 16 };

typedef struct Overloads {
  Callable base;
  PyObject* only;      /* the kernel, if there is just one; NULL otherwise */
  PyObject* choosing;  /* the names of its constants, interned */
  PyObject* constants; /* by name and type, dictionaries of values to themselves; NULL as long as none is known */
  PyObject* order;     /* the names of the function's arguments, by which constants are given by position */
  Py_ssize_t fewest;   /* parameters of a kernel: constants are given by position if there are more arguments */
  Table* table;        /* NULL as long as nothing was chosen */
  int chosen_count;
} Overloads;

/* Add `item`, and a reference to it. */
static void add_key(Keys* keys, PyObject* item) {
  keys->items[keys->count++] = Py_NewRef(item);
  keys->hash = (keys->hash ^ ((size_t)item >> 4)) * (size_t)0x9E3779B97F4A7C15u;
}

/* Add the type and dtype of `argument`. Returns 0, or -1 if more than these may choose. */
static int add_type_keys(const State* state, PyObject* argument, Keys* keys) {
  PyTypeObject* type = Py_TYPE(argument);
  add_key(keys, (PyObject*)type);
  if (type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type || type == &PyComplex_Type ||
      argument == Py_None || type == &PyBytes_Type || PyType_IsSubtype(type, state->structure_type)) {
    return 0;
  }
  PyObject* dtype = optional_attribute(argument, state->names.dtype);
  if (!dtype && !PyErr_Occurred() && is_known_value(&state->types, argument)) return 0; /* a structure of ctypes */
  if (!dtype || Py_TYPE(argument) != type) { /* the look-up may have changed the class */
    Py_XDECREF(dtype);
    return -1;
  }
  if (PyUnicode_Check(dtype)) { /* tvm_ffi makes a new text at each look-up */
    Py_SETREF(dtype, PyUnicode_FromObject(dtype));
    if (!dtype) return -1;
    PyUnicode_InternInPlace(&dtype);
  }
  add_key(keys, dtype);
  Py_DECREF(dtype);
  return 0;
}

/* Whether `argument` may be equal to a constant: anything that is like a number, a text or a tuple. */
static int can_be_constant(PyObject* argument) {
  return argument == Py_None || PyIndex_Check(argument) || PyFloat_Check(argument) || PyUnicode_Check(argument) ||
         PyTuple_Check(argument);
}

/* Add the value of `argument` if it is one of the constants that kernels have, by their types, or is known to mean one; or
 * its type, if all other values choose the same kernel. Returns as above. */
static int add_constant_key(const State* state, PyObject* by_type, PyObject* argument, Keys* keys) {
  if (find_array_type(&state->types, argument)) return add_type_keys(state, argument, keys);
  PyObject* values = PyDict_GetItemWithError(by_type, (PyObject*)Py_TYPE(argument));
  if (!values && !PyErr_Occurred() && !can_be_constant(argument)) return add_type_keys(state, argument, keys);
  PyObject* known = values ? PyDict_GetItemWithError(values, argument) : NULL;
  if (PyErr_Occurred()) return -1;
  const int is_number = PyLong_CheckExact(argument) || PyFloat_CheckExact(argument);
  if (known ? !are_equal_constants(known, argument) : !is_number) return -1;
  add_key(keys, known ? known : (PyObject*)Py_TYPE(argument));
  return 0;
}

/* Add what chooses of an argument that may be called `name`. */
static int add_keys(const Overloads* overloads, PyObject* name, PyObject* argument, Keys* keys) {
  PyObject* by_type = name && overloads->constants ? PyDict_GetItemWithError(overloads->constants, name) : NULL;
  if (by_type) return add_constant_key(overloads->base.state, by_type, argument, keys);
  return PyErr_Occurred() ? -1 : add_type_keys(overloads->base.state, argument, keys);
}

static void release_keys(PyObject* const* keys, int count) {
  for (int i = 0; i < count; i++) Py_DECREF(keys[i]);
}

/* What asks for a kernel: a launch, or constants alone, with a key of their own. */
typedef enum { LAUNCH, CHOICE } Asked;

/* Fill `keys` with those of the `count` arguments, and of the keywords `names` behind them that are no options of a launch,
 * to be released in any case. Returns 0, or -1, perhaps with an exception. */
static int find_keys(const Overloads* overloads, Asked asked, PyObject* const* arguments, Py_ssize_t count,
                     PyObject* names, Keys* keys) {
  keys->count = 0;
  keys->hash = (size_t)count;
  if (asked == CHOICE) add_key(keys, Py_Ellipsis);
  if (count + (names ? PyTuple_GET_SIZE(names) : 0) > MOST_PARAMETERS) return -1;
  const Py_ssize_t named_count = overloads->order ? PyTuple_GET_SIZE(overloads->order) : 0;
  const int by_order = count > overloads->fewest && count <= named_count;
  for (Py_ssize_t i = 0; i < count; i++) {
    if (add_keys(overloads, by_order ? PyTuple_GET_ITEM(overloads->order, i) : NULL, arguments[i], keys)) return -1;
  }
  Options options;
  for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); i++) {
    PyObject* name = PyTuple_GET_ITEM(names, i);
    if (asked == LAUNCH && find_option(&overloads->base.state->names, &options, name)) continue;
    add_key(keys, name);
    if (add_keys(overloads, name, arguments[count + i], keys)) return -1;
  }
  return 0;
}

/* What was chosen for `keys`; NULL if nothing was, with the slot of `table` where it belongs in `place`. Without a lock,
 * that must not be loaded again: another thread may have filled it for other keys. */
static const Chosen* find_chosen(Table* table, PyObject* const* keys, int count, size_t hash, Chosen*** place) {
  for (size_t i = hash >> (4 * sizeof hash);; i++) {
    *place = &table->slots[i & (table->size - 1)];
    const Chosen* chosen = LOAD_POINTER(**place);
    if (!chosen) return NULL;
    if (chosen->hash == hash && chosen->count == count && !memcmp(chosen->keys, keys, (size_t)count * sizeof *keys)) {
      return chosen;
    }
  }
}

/* The kernel that was chosen before for such arguments; NULL, perhaps with an exception, if none was. */
static PyObject* find_kernel(Overloads* overloads, Asked asked, PyObject* const* arguments, Py_ssize_t count,
                             PyObject* names) {
  Table* table = LOAD_POINTER(overloads->table);
  if (!table) return NULL;
  Keys keys;
  Chosen** place;
  const Chosen* chosen = NULL;
  if (!find_keys(overloads, asked, arguments, count, names, &keys)) {
    chosen = find_chosen(table, keys.items, keys.count, keys.hash, &place);
  }
  release_keys(keys.items, keys.count);
  return chosen ? chosen->kernel : NULL;
}

/* The only kernel, unless one of the keywords `names` is a constant, whose value may be another one; else NULL. */
static PyObject* find_only(const Overloads* overloads, PyObject* names) {
  for (Py_ssize_t i = 0; overloads->only && names && i < PyTuple_GET_SIZE(names); i++) {
    for (Py_ssize_t j = 0; j < PyTuple_GET_SIZE(overloads->choosing); j++) {
      if (PyTuple_GET_ITEM(names, i) == PyTuple_GET_ITEM(overloads->choosing, j)) return NULL;
    }
  }
  return overloads->only;
}

/* The kernel that a launch with these arguments takes. NULL as find_kernel. */
static PyObject* find_launched(Overloads* overloads, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  /* The only kernel that was built is not the only one as soon as another was chosen. */
  PyObject* kernel = find_kernel(overloads, LAUNCH, arguments, count, names);
  return kernel || PyErr_Occurred() ? kernel : find_only(overloads, names);
}

static PyObject* call_overloads(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* names) {
  PyObject* kernel = find_launched((Overloads*)self, arguments, PyVectorcall_NARGS(flags), names);
  if (!kernel) return launch_carefully(self, arguments, flags, names);
  return PyObject_Vectorcall(kernel, arguments, flags, names);
}

/* The table with room for one more; NULL without memory. */
static Table* reserve_slot(Overloads* overloads) {
  Table* table = overloads->table;
  if (table && (size_t)overloads->chosen_count < table->size / 2) return table;
  const size_t size = table ? 2 * table->size : FIRST_SIZE;
  Table* larger = PyMem_Calloc(1, sizeof *larger + size * sizeof *larger->slots);
  if (!larger) return NULL;
  larger->older = table;
  larger->size = size;
  for (size_t i = 0; table && i < table->size; i++) {
    Chosen* chosen = table->slots[i];
    Chosen** place;
    if (chosen && !find_chosen(larger, chosen->keys, chosen->count, chosen->hash, &place)) *place = chosen;
  }
  STORE_POINTER(overloads->table, larger);
  return larger;
}

static void free_chosen(Chosen* chosen) {
  while (chosen) {
    Chosen* replaced = chosen->replaced;
    release_keys(chosen->keys, chosen->count);
    Py_DECREF(chosen->kernel);
    PyMem_Free(chosen);
    chosen = replaced;
  }
}

/* Remember `kernel` for arguments like these. Returns 0, or -1 with an exception. */
static int store_kernel(Overloads* overloads, Asked asked, PyObject* kernel, PyObject* const* arguments, Py_ssize_t count,
                        PyObject* names) {
  Keys keys;
  const int failed = find_keys(overloads, asked, arguments, count, names, &keys);
  Chosen* chosen = failed ? NULL : PyMem_Malloc(sizeof *chosen + (size_t)keys.count * sizeof *chosen->keys);
  if (!chosen) {
    release_keys(keys.items, keys.count);
    if (!failed) PyErr_NoMemory();
    return failed ? drop_exception() : -1;
  }
  *chosen = (Chosen){.kernel = Py_NewRef(kernel), .hash = keys.hash, .count = keys.count};
  memcpy(chosen->keys, keys.items, (size_t)keys.count * sizeof *chosen->keys); /* with their references */
  Py_BEGIN_CRITICAL_SECTION(overloads);
  Table* table = overloads->chosen_count < MOST_CHOSEN ? reserve_slot(overloads) : NULL;
  Chosen** place;
  const Chosen* known = table ? find_chosen(table, keys.items, keys.count, keys.hash, &place) : NULL;
  if (table && (!known || known->kernel != kernel)) {
    chosen->replaced = known ? *place : NULL;
    if (!known) overloads->chosen_count++;
    STORE_POINTER(*place, chosen);
    chosen = NULL;
  }
  Py_END_CRITICAL_SECTION();
  if (chosen) free_chosen(chosen);
  return 0;
}

static PyObject* remember(PyObject* self, PyObject* const* given, Py_ssize_t given_count, PyObject* names) {
  if (given_count < 1) return PyErr_Format(PyExc_TypeError, "expected a kernel and arguments");
  if (store_kernel((Overloads*)self, LAUNCH, given[0], given + 1, given_count - 1, names)) return NULL;
  Py_RETURN_NONE;
}

static PyObject* choose_kernel(PyObject* self, PyObject* const* constants, Py_ssize_t count, PyObject* names) {
  Overloads* overloads = (Overloads*)self;
  if (count) return PyErr_Format(PyExc_TypeError, "expected constants by name, found %R", constants[0]);
  PyObject* known = find_kernel(overloads, CHOICE, constants, 0, names);
  if (known) return Py_NewRef(known);
  if (drop_exception()) return NULL;
  PyObject* method = PyObject_GetAttr(self, overloads->base.state->names.choose);
  PyObject* kernel = method ? PyObject_Vectorcall(method, constants, 0, names) : NULL;
  Py_XDECREF(method);
  if (kernel && store_kernel(overloads, CHOICE, kernel, constants, 0, names)) Py_CLEAR(kernel);
  return kernel;
}

static PyObject* choose_by(PyObject* self, PyObject* arguments) {
  Overloads* overloads = (Overloads*)self;
  PyObject *constants, *order;
  Py_ssize_t fewest;
  if (!PyArg_ParseTuple(arguments, "O!O!n:__choose_by__", &PyDict_Type, &constants, &PyTuple_Type, &order, &fewest)) {
    return NULL;
  }
  PyObject *name, *by_type;
  for (Py_ssize_t i = 0; PyDict_Next(constants, &i, &name, &by_type);) {
    if (!PyUnicode_CheckExact(name) || !PyDict_CheckExact(by_type)) {
      return PyErr_Format(PyExc_TypeError, "expected dictionaries by name, found %R", by_type);
    }
  }
  Py_BEGIN_CRITICAL_SECTION(self);
  if (!overloads->table && !overloads->constants) {
    overloads->order = Py_NewRef(order);
    overloads->fewest = fewest;
    overloads->constants = Py_NewRef(constants);
  } else if (constants == overloads->constants) { /* what was compiled on demand may have fewer parameters */
    if (!PyTuple_GET_SIZE(overloads->order)) overloads->order = Py_NewRef(order); /* nobody frees the empty tuple */
    overloads->fewest = fewest;
  }
  Py_END_CRITICAL_SECTION();
  Py_RETURN_NONE;
}

static PyMethodDef overloads_methods[] = {
    {"choose", (PyCFunction)(void (*)(void))choose_kernel, METH_FASTCALL | METH_KEYWORDS,
     "choose($self, /, **constants)\n--\n\n"
     "Return the kernel with these template parameters or constants, by their names.\n\n"
     "If several have them, it returns these kernels, among which a call or another choice decides."},
    {"__choose_by__", choose_by, METH_VARARGS,
     "__choose_by__(constants, order, fewest)\n--\n\n"
     "Let values of these constants choose, which are by name, type and value; by position where there are more "
     "arguments than the `fewest` parameters, in this order."},
    {"__remember__", (PyCFunction)(void (*)(void))remember, METH_FASTCALL | METH_KEYWORDS,
     "__remember__(kernel, *arguments, **named)\n--\n\nCall `kernel` for arguments of these types, and constants."},
    {NULL, NULL, 0, NULL},
};

static PyObject* new_overloads(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static char* names[] = {"kernels", "choosing", NULL};
  PyObject *kernels, *choosing;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!O!:Overloads", names, &PyTuple_Type, &kernels, &PyTuple_Type,
                                   &choosing)) {
    return NULL;
  }
  Overloads* overloads = new_callable(type, call_overloads);
  if (!overloads) return NULL;
  overloads->choosing = Py_NewRef(choosing);
  if (PyTuple_GET_SIZE(kernels) == 1) overloads->only = Py_NewRef(PyTuple_GET_ITEM(kernels, 0));
  return (PyObject*)overloads;
}

static int traverse_overloads(PyObject* self, visitproc visit, void* arg) {
  Overloads* overloads = (Overloads*)self;
  Py_VISIT(overloads->only);
  Py_VISIT(overloads->choosing);
  Py_VISIT(overloads->constants);
  Py_VISIT(overloads->order);
  for (size_t i = 0; overloads->table && i < overloads->table->size; i++) {
    for (const Chosen* chosen = overloads->table->slots[i]; chosen; chosen = chosen->replaced) {
      Py_VISIT(chosen->kernel);
      for (int j = 0; j < chosen->count; j++) Py_VISIT(chosen->keys[j]);
    }
  }
  return visit_callable(self, visit, arg);
}

static int clear_overloads(PyObject* self) {
  Overloads* overloads = (Overloads*)self;
  Table* table = overloads->table;
  overloads->table = NULL;
  overloads->chosen_count = 0;
  for (size_t i = 0; table && i < table->size; i++) {
    free_chosen(table->slots[i]);
  }
  while (table) {
    Table* older = table->older;
    PyMem_Free(table);
    table = older;
  }
  Py_CLEAR(overloads->only);
  Py_CLEAR(overloads->choosing);
  Py_CLEAR(overloads->constants);
  Py_CLEAR(overloads->order);
  return 0;
}

static void deallocate_overloads(PyObject* self) {
  PyObject_GC_UnTrack(self);
  clear_overloads(self);
  free_callable(self);
}

static PyType_Slot overloads_slots[] = {
    {Py_tp_doc,
     "Overloads(kernels, choosing)\n--\n\n"
     "Calls the kernel that ``__remember__`` has for the types of the arguments, else ``__launch_carefully__``."},
    {Py_tp_new, new_overloads},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, traverse_overloads},
    {Py_tp_clear, clear_overloads},
    {Py_tp_dealloc, deallocate_overloads},
    {Py_tp_methods, overloads_methods},
    {Py_tp_members, callable_members},
    {Py_mp_subscript, select_or_set_grid},
    {0, NULL},
};

static PyType_Spec overloads_spec = {
    .name = "cuda_ext.runtime.launch._launch.Overloads",
    .basicsize = sizeof(Overloads),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = overloads_slots,
};

#endif
