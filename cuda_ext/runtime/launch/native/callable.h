/* What `Launch` and `Overloads` have in common: vectorcall objects that leave what they cannot do to the method
 * `__launch_carefully__`. */
#ifndef CUDA_EXT_CALLABLE_H
#define CUDA_EXT_CALLABLE_H

#include <stddef.h>
#include <structmember.h>

#include "cold.h"
#include "state.h"

typedef struct Callable {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject* module; /* keeps `state`: the collector may clear a type's reference to its module before this object */
  State* state;
  char takes_grid; /* whether brackets of numbers are a grid; a careful look at the first brackets finds out */
} Callable;

static PyMemberDef callable_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Callable, vectorcall), READONLY, NULL},
    {"__takes_grid__", T_BOOL, offsetof(Callable, takes_grid), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* Python 3.11 does not give a class in Python the vectorcall flag of its base, and calls such objects through tuples and
 * dictionaries. Set it, unless the class has a `__call__` of its own; later versions inherit it themselves. */
static void inherit_vectorcall(PyTypeObject* type) {
#if PY_VERSION_HEX < 0x030C0000
  if (type->tp_call == PyVectorcall_Call) type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
#else
  (void)type;
#endif
}

/* A new object of `type` whose own members are 0; NULL with an exception. */
static void* new_callable(PyTypeObject* type, vectorcallfunc vectorcall) {
  PyObject* module = PyType_GetModuleByDef(type, &module_definition);
  if (!module) return NULL;
  inherit_vectorcall(type);
  Callable* callable = (Callable*)type->tp_alloc(type, 0);
  if (!callable) return NULL;
  callable->vectorcall = vectorcall;
  callable->module = Py_NewRef(module);
  callable->state = PyModule_GetState(module);
  return callable;
}

static int visit_callable(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(((Callable*)self)->module);
  return 0;
}

/* The last step of a deallocation. */
static void free_callable(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject* module = ((Callable*)self)->module;
  type->tp_free(self);
  Py_DECREF(type);
  Py_XDECREF(module);
}

/* Drop the exception of a failed attempt, if there is one. Returns 0, or -1 for what interrupts all attempts, such as
 * KeyboardInterrupt. */
static int drop_exception(void) {
  if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) return -1;
  PyErr_Clear();
  return 0;
}

/* Call the method `__launch_carefully__` of `self` after a failed attempt. */
COLD static PyObject* launch_carefully(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* names) {
  if (drop_exception()) return NULL;
  PyObject* method = PyObject_GetAttr(self, ((Callable*)self)->state->names.carefully);
  if (!method) return NULL;
  PyObject* result = PyObject_Vectorcall(method, arguments, (size_t)PyVectorcall_NARGS(flags), names);
  Py_DECREF(method);
  return result;
}

#endif
