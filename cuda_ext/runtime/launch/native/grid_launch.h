/* `GridLaunch`: a kernel, or kernels of one name, with a grid, as a vectorcall object. */
#ifndef CUDA_EXT_GRID_LAUNCH_H
#define CUDA_EXT_GRID_LAUNCH_H

#include "brackets.h"
#include "launch.h"
#include "overloads.h"

/* Call the method `__launch_carefully__` of `kernel` with the keyword `grid` behind all others. */
COLD static PyObject* launch_carefully_on_grid(PyObject* kernel, PyObject* grid, PyObject* const* arguments,
                                               Py_ssize_t count, PyObject* names) {
  if (drop_exception()) return NULL;
  PyObject* name = ((Callable*)kernel)->state->names.grid;
  const Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0;
  PyObject** given = PyMem_Malloc((size_t)(count + named + 1) * sizeof *given);
  PyObject* all = PyTuple_New(named + 1);
  PyObject* result = NULL;
  if (given && all) {
    if (count + named) memcpy(given, arguments, (size_t)(count + named) * sizeof *given);
    given[count + named] = grid;
    for (Py_ssize_t i = 0; i < named; i++) PyTuple_SET_ITEM(all, i, Py_NewRef(PyTuple_GET_ITEM(names, i)));
    PyTuple_SET_ITEM(all, named, Py_NewRef(name));
    if (named && PySequence_Contains(names, name)) {
      PyErr_Format(PyExc_TypeError, "%R has a grid, found another keyword 'grid'", kernel);
    } else {
      result = launch_carefully(kernel, given, (size_t)count, all);
    }
  } else if (!PyErr_Occurred()) {
    PyErr_NoMemory();
  }
  Py_XDECREF(all);
  PyMem_Free(given);
  return result;
}

static PyObject* call_on_grid(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* names) {
  const GridLaunch* launch = (GridLaunch*)self;
  const State* state = launch->base.state;
  const Py_ssize_t count = PyVectorcall_NARGS(flags);
  PyObject* kernel = launch->kernel;
  if (PyObject_TypeCheck(kernel, state->overloads_type)) {
    PyObject* found = find_launched((Overloads*)kernel, arguments, count, names);
    if (found && PyObject_TypeCheck(found, state->launch_type)) kernel = found;
  }
  if (PyObject_TypeCheck(kernel, state->launch_type) &&
      !launch_at_once((Launch*)kernel, arguments, count, names, launch->grid)) {
    Py_RETURN_NONE;
  }
  return launch_carefully_on_grid(kernel, launch->grid, arguments, count, names);
}

static PyObject* new_grid_launch(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static char* names[] = {"kernel", "grid", NULL};
  PyObject *kernel, *grid;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO:GridLaunch", names, &kernel, &grid)) return NULL;
  PyObject* module = PyType_GetModuleByDef(type, &module_definition);
  if (!module) return NULL;
  const State* state = PyModule_GetState(module);
  if (!PyObject_TypeCheck(kernel, state->launch_type) && !PyObject_TypeCheck(kernel, state->overloads_type)) {
    return PyErr_Format(PyExc_TypeError, "expected a kernel, found %R", kernel);
  }
  return set_grid(state, kernel, grid);
}

static PyObject* represent_grid_launch(PyObject* self) {
  const GridLaunch* launch = (GridLaunch*)self;
  return PyUnicode_FromFormat("<launch of %R on the grid %R>", launch->kernel, launch->grid);
}

static int traverse_grid_launch(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(((GridLaunch*)self)->kernel);
  Py_VISIT(((GridLaunch*)self)->grid);
  return visit_callable(self, visit, arg);
}

static int clear_grid_launch(PyObject* self) {
  Py_CLEAR(((GridLaunch*)self)->kernel);
  Py_CLEAR(((GridLaunch*)self)->grid);
  return 0;
}

static void deallocate_grid_launch(PyObject* self) {
  PyObject_GC_UnTrack(self);
  clear_grid_launch(self);
  free_callable(self);
}

static PyType_Slot grid_launch_slots[] = {
    {Py_tp_doc, "GridLaunch(kernel, grid)\n--\n\nA kernel with a grid: what ``kernel[grid]`` is."},
    {Py_tp_new, new_grid_launch},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_repr, represent_grid_launch},
    {Py_tp_traverse, traverse_grid_launch},
    {Py_tp_clear, clear_grid_launch},
    {Py_tp_dealloc, deallocate_grid_launch},
    {Py_tp_members, callable_members},
    {0, NULL},
};

static PyType_Spec grid_launch_spec = {
    .name = "cuda_ext.runtime.launch._launch.GridLaunch",
    .basicsize = sizeof(GridLaunch),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = grid_launch_slots,
};

#endif
