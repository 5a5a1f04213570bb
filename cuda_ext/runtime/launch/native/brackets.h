/* Brackets behind a kernel: a grid, as Triton writes it, `kernel[grid](x, n)`, or what selects a kernel. */
#ifndef CUDA_EXT_BRACKETS_H
#define CUDA_EXT_BRACKETS_H

#include "callable.h"

/* `kernel[grid]`, a call of which launches `kernel`. */
typedef struct GridLaunch {
  Callable base;
  PyObject* kernel; /* a Launch or Overloads */
  PyObject* grid;
} GridLaunch;

static PyObject* call_on_grid(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* names);

static PyObject* set_grid(const State* state, PyObject* kernel, PyObject* grid) {
  GridLaunch* launch = new_callable(state->grid_launch_type, call_on_grid);
  if (!launch) return NULL;
  launch->kernel = Py_NewRef(kernel);
  launch->grid = Py_NewRef(grid);
  return (PyObject*)launch;
}

/* Whether the brackets are a grid where they may be one: a number, a tuple of numbers, or a function. */
static int is_grid(PyObject* item) {
  if (PyLong_CheckExact(item) || PyFunction_Check(item)) return 1;
  if (!PyTuple_CheckExact(item) || !PyTuple_GET_SIZE(item)) return 0;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(item); i++) {
    if (!PyLong_CheckExact(PyTuple_GET_ITEM(item, i))) return 0;
  }
  return 1;
}

/* A subscript: all but common grids are left to the method `__select_carefully__`. */
static PyObject* select_or_set_grid(PyObject* self, PyObject* item) {
  const Callable* callable = (Callable*)self;
  if (callable->takes_grid && is_grid(item)) return set_grid(callable->state, self, item);
  return PyObject_CallMethodOneArg(self, callable->state->names.select, item);
}

#endif
