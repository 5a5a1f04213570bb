/* `Launch`: a kernel, or a bound launch of one, as a vectorcall object. */
#ifndef CUDA_EXT_LAUNCH_TYPE_H
#define CUDA_EXT_LAUNCH_TYPE_H

#include "brackets.h"
#include "launch.h"

static void free_parameters(Launch* launch) {
  for (int i = 0; i < launch->parameter_count; i++) {
    Py_DECREF(launch->names[i]);
    Py_XDECREF(launch->parameters[i].structure);
  }
  PyMem_Free(launch->names);
  PyMem_Free(launch->parameters);
  PyMem_Free(launch->hidden);
  launch->names = NULL;
  launch->parameters = NULL;
  launch->hidden = NULL;
  launch->parameter_count = launch->hidden_count = 0;
}

/* Methods, which the careful launcher calls with what it has found out. */

static PyObject* set_loaded(PyObject* self, PyObject* arguments) {
  Launch* launch = (Launch*)self;
  int device;
  LoadedKernel k;
  if (!PyArg_ParseTuple(arguments, "O&O&O&(III)(III)IIII:_set_loaded", parse_device, &device, parse_pointer, &k.function,
                        parse_pointer, &k.context, &k.largest_grid[0], &k.largest_grid[1], &k.largest_grid[2],
                        &k.largest_block[0], &k.largest_block[1], &k.largest_block[2], &k.most_threads,
                        &k.allowed_shared, &k.best_block, &k.best_shared)) {
    return NULL;
  }
  OnDevice* entry;
  Py_BEGIN_CRITICAL_SECTION(self);
  entry = reserve_device(&launch->devices, device);
  if (entry) entry->kernel = k;
  Py_END_CRITICAL_SECTION();
  if (!entry) return PyErr_NoMemory();
  Py_RETURN_NONE;
}

static PyObject* set_prepared(PyObject* self, PyObject* arguments) {
  Launch* launch = (Launch*)self;
  Prepared* prepared = PyMem_Calloc(1, sizeof *prepared);
  if (!prepared) return PyErr_NoMemory();
  LaunchConfig* c = &prepared->config;
  int device;
  PyObject* attributes;
  unsigned long long scratch = 0, pool = 0;
  if (!PyArg_ParseTuple(arguments, "O&(III)(III)IO!|KK:_set_prepared", parse_device, &device, &c->grid[0], &c->grid[1],
                        &c->grid[2], &c->block[0], &c->block[1], &c->block[2], &c->shared, &PyTuple_Type, &attributes,
                        &scratch, &pool) ||
      parse_attributes(attributes, prepared)) {
    PyMem_Free(prepared);
    return NULL;
  }
  prepared->scratch = (Scratch){scratch, (CUmemoryPool)(uintptr_t)pool, NULL};
  return keep_first(self, &launch->devices, device, offsetof(OnDevice, prepared), prepared);
}

static PyObject* set_choice(PyObject* self, PyObject* arguments) {
  Launch* launch = (Launch*)self;
  int device;
  PyObject* source;
  if (!launch->parameters) Py_RETURN_NONE; /* no choice without values */
  if (!PyArg_ParseTuple(arguments, "O&O!:_set_choice", parse_device, &device, &PyTuple_Type, &source)) return NULL;
  const Py_ssize_t candidate_count = launch->candidates ? PyTuple_GET_SIZE(launch->candidates) : 0;
  Choice* choice = parse_choice(source, launch->parameters, launch->parameter_count, candidate_count);
  if (!choice) return NULL;
  return keep_first(self, &launch->devices, device, offsetof(OnDevice, choice), choice);
}

static PyMethodDef launch_methods[] = {
    {"_set_loaded", set_loaded, METH_VARARGS,
     "_set_loaded(device, function, context, largest_grid, largest_block, most_threads, allowed_shared, best_block, "
     "best_shared)\n--\n\nLaunch this kernel, within these limits, on `device`."},
    {"_set_prepared", set_prepared, METH_VARARGS,
     "_set_prepared(device, grid, block, shared, attributes, scratch=0, pool=0)\n--\n\n"
     "Launch with this configuration on `device`: that of a bound launch, or one that leaves the grid to a call."},
    {"_set_choice", set_choice, METH_VARARGS,
     "_set_choice(device, choice)\n--\n\nChoose among the candidates on `device`."},
    {NULL, NULL, 0, NULL},
};

static int set_parameters(Launch* launch, PyObject* source) {
  const Py_ssize_t count = PyTuple_GET_SIZE(source);
  if (count > MOST_PARAMETERS) return 0;
  launch->parameters = PyMem_Calloc((size_t)count + 1, sizeof *launch->parameters);
  launch->names = PyMem_Calloc((size_t)count + 1, sizeof *launch->names);
  if (!launch->parameters || !launch->names) {
    PyErr_NoMemory();
    return -1;
  }
  unsigned end = 0;
  while (launch->parameter_count < count) {
    const int i = launch->parameter_count;
    PyObject* each = PyTuple_GET_ITEM(source, i);
    if (parse_parameter(launch->base.state, each, &launch->parameters[i], &launch->names[i])) return -1;
    launch->parameter_count++;
    end = place_parameter(&launch->parameters[i], end);
    if (end > MOST_BYTES) {
      free_parameters(launch);
      return 0;
    }
  }
  return 0;
}

/* Read a tuple of hidden parameters in the order of their positions. Without memory for all values, launches
 * are checked carefully. */
static int set_hidden(Launch* launch, PyObject* source) {
  const Py_ssize_t count = PyTuple_GET_SIZE(source);
  if (!count || !launch->parameters) return 0;
  const Parameter* last = launch->parameter_count ? &launch->parameters[launch->parameter_count - 1] : NULL;
  unsigned end = last ? end_of(last->offset, last->size) : 0;
  if (count + launch->parameter_count > MOST_PARAMETERS) {
    free_parameters(launch);
    return 0;
  }
  launch->hidden = PyMem_Calloc((size_t)count, sizeof *launch->hidden);
  if (!launch->hidden) {
    PyErr_NoMemory();
    return -1;
  }
  for (int i = 0; i < count; i++) {
    Hidden* hidden = &launch->hidden[i];
    const int all = launch->parameter_count + (int)count;
    if (parse_hidden(PyTuple_GET_ITEM(source, i), launch->parameters, launch->parameter_count, all, hidden)) return -1;
    if (i && hidden->position <= hidden[-1].position) {
      PyErr_SetString(PyExc_ValueError, "hidden parameters must be in the order of their positions");
      return -1;
    }
    hidden->offset = (uint16_t)end;
    end = end_of(end, hidden->size);
    if (end > MOST_BYTES) {
      free_parameters(launch);
      return 0;
    }
    launch->hidden_count = i + 1;
  }
  return 0;
}

static int set_candidates(Launch* launch, PyObject* candidates) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(candidates); i++) {
    PyObject* candidate = PyTuple_GET_ITEM(candidates, i);
    if (!PyObject_TypeCheck(candidate, launch->base.state->launch_type)) {
      PyErr_Format(PyExc_TypeError, "expected a launch as a candidate, found %R", candidate);
      return -1;
    }
  }
  launch->candidates = Py_NewRef(candidates);
  return 0;
}

/* Check that `constants` are pairs of a name, which is interned, and a value. */
static int set_constants(Launch* launch, PyObject* constants) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(constants); i++) {
    PyObject* pair = PyTuple_GET_ITEM(constants, i);
    if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2 || !PyUnicode_CheckExact(PyTuple_GET_ITEM(pair, 0)) ||
        !PyUnicode_CHECK_INTERNED(PyTuple_GET_ITEM(pair, 0))) {
      PyErr_Format(PyExc_TypeError, "expected a pair of an interned name and a value, found %R", pair);
      return -1;
    }
  }
  launch->constants = Py_NewRef(constants);
  return 0;
}

/* Check that `order` has names, which are interned. */
static int set_order(Launch* launch, PyObject* order) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(order); i++) {
    PyObject* name = PyTuple_GET_ITEM(order, i);
    if (!PyUnicode_CheckExact(name) || !PyUnicode_CHECK_INTERNED(name)) {
      PyErr_Format(PyExc_TypeError, "expected an interned name, found %R", name);
      return -1;
    }
  }
  launch->order = Py_NewRef(order);
  return 0;
}

static PyObject* new_launch(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static char* names[] = {"parameters", "candidates", "is_bound", "hidden", "constants", "order",
                          "given",      "is_in_order", "stream",  "device", "like",      NULL};
  PyObject *parameters, *hidden = NULL, *constants = NULL, *order = NULL, *given = NULL, *candidates = NULL,
                        *stream = Py_None, *like = Py_None;
  int is_bound = 0, is_in_order = 0, device = -1;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|O!pO!O!O!O!pOiO:Launch", names, &parameters, &PyTuple_Type,
                                   &candidates, &is_bound, &PyTuple_Type, &hidden, &PyTuple_Type, &constants,
                                   &PyTuple_Type, &order, &PyDict_Type, &given, &is_in_order, &stream, &device, &like)) {
    return NULL;
  }
  if (parameters != Py_None && !PyTuple_Check(parameters)) {
    return PyErr_Format(PyExc_TypeError, "expected parameters in a tuple, found %R", parameters);
  }
  Launch* launch = new_callable(type, call_launch);
  if (!launch) return NULL;
  launch->is_bound = is_bound;
  launch->given = Py_XNewRef(given);
  launch->is_in_order = is_in_order;
  launch->stream = (GivenStream){NULL, device, stream != Py_None};
  if (stream != Py_None) launch->stream.handle = (CUstream)(uintptr_t)PyLong_AsUnsignedLongLong(stream);
  launch->like = like == Py_None ? NULL : Py_NewRef(like);
  if (PyErr_Occurred() || (parameters != Py_None && set_parameters(launch, parameters)) ||
      (hidden && set_hidden(launch, hidden)) || (constants && set_constants(launch, constants)) ||
      (order && set_order(launch, order)) || (candidates && set_candidates(launch, candidates))) {
    Py_DECREF(launch);
    return NULL;
  }
  return (PyObject*)launch;
}

static int traverse_launch(PyObject* self, visitproc visit, void* arg) {
  const Launch* launch = (Launch*)self;
  for (int i = 0; i < launch->parameter_count; i++) Py_VISIT(launch->parameters[i].structure);
  Py_VISIT(((Launch*)self)->constants);
  Py_VISIT(((Launch*)self)->order);
  Py_VISIT(((Launch*)self)->given);
  Py_VISIT(((Launch*)self)->candidates);
  Py_VISIT(((Launch*)self)->like);
  return visit_callable(self, visit, arg);
}

static int clear_launch(PyObject* self) {
  Py_CLEAR(((Launch*)self)->constants);
  Py_CLEAR(((Launch*)self)->order);
  Py_CLEAR(((Launch*)self)->given);
  Py_CLEAR(((Launch*)self)->candidates);
  Py_CLEAR(((Launch*)self)->like);
  return 0;
}

static void deallocate_launch(PyObject* self) {
  Launch* launch = (Launch*)self;
  PyObject_GC_UnTrack(self);
  clear_launch(self);
  free_parameters(launch);
  free_devices(&launch->devices);
  free_callable(self);
}

static PyType_Slot launch_slots[] = {
    {Py_tp_doc,
     "Launch(parameters, candidates=(), is_bound=False, hidden=(), constants=(), order=(), given=None, is_in_order=False, "
     "stream=None, device=-1, like=None)\n--\n\n"
     "A launch: in C if all is common, else by the method ``__launch_carefully__`` of a subclass."},
    {Py_tp_new, new_launch},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, traverse_launch},
    {Py_tp_clear, clear_launch},
    {Py_tp_dealloc, deallocate_launch},
    {Py_tp_methods, launch_methods},
    {Py_tp_members, callable_members},
    {Py_mp_subscript, select_or_set_grid},
    {0, NULL},
};

static PyType_Spec launch_spec = {
    .name = "cuda_ext.runtime.launch._launch.Launch",
    .basicsize = sizeof(Launch),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = launch_slots,
};

#endif
