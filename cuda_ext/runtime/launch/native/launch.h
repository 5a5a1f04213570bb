/* `Launch`: a kernel, or a bound launch of one, as a vectorcall object. */
#ifndef CUDA_EXT_LAUNCH_H
#define CUDA_EXT_LAUNCH_H

#include "arguments.h"
#include "callable.h"
#include "concurrency.h"
#include "configuration.h"
#include "devices.h"
#include "hidden.h"

typedef struct Launch {
  Callable base;
  Parameter* parameters; /* NULL if launches are always checked carefully */
  PyObject** names;      /* of the parameters; interned */
  int parameter_count;
  Hidden* hidden; /* in the order of their positions */
  int hidden_count;
  PyObject* constants; /* a tuple of (name, value): constants that a call may repeat; NULL for none */
  PyObject* order;     /* the names of parameters and constants, where constants may be given by position; NULL for none */
  PyObject* candidates; /* of variants: a tuple of launches with the same parameters; NULL otherwise */
  int is_bound;         /* whether the configuration is fixed */
  int has_stream;       /* whether the stream is fixed, too */
  CUstream stream;
  Devices devices;
} Launch;

static void free_parameters(Launch* launch) {
  for (int i = 0; i < launch->parameter_count; i++) Py_DECREF(launch->names[i]);
  PyMem_Free(launch->names);
  PyMem_Free(launch->parameters);
  PyMem_Free(launch->hidden);
  launch->names = NULL;
  launch->parameters = NULL;
  launch->hidden = NULL;
  launch->parameter_count = launch->hidden_count = 0;
}

/* Copy what `launch` knows of `device`. Returns 0, or -1. */
static int find_device(Launch* launch, int device, OnDevice* copy) {
  int outcome = -1;
  Py_BEGIN_CRITICAL_SECTION(launch);
  if (device >= 0 && device < launch->devices.count) {
    *copy = launch->devices.entries[device];
    outcome = 0;
  }
  Py_END_CRITICAL_SECTION();
  return outcome;
}

/* Whether `value`, an argument called `name`, repeats a constant of the kernel. */
static int is_constant(const Launch* launch, PyObject* name, PyObject* value) {
  for (Py_ssize_t i = 0; launch->constants && i < PyTuple_GET_SIZE(launch->constants); i++) {
    PyObject* constant = PyTuple_GET_ITEM(launch->constants, i);
    if (PyTuple_GET_ITEM(constant, 0) == name && are_equal_constants(PyTuple_GET_ITEM(constant, 1), value)) return 1;
  }
  return 0;
}

/* Put the `count` arguments, among which constants are given by position, into `ordered` without these. Returns the number
 * of the others, or -1 if a constant is not repeated, or parameters are left out between them. */
static int take_by_order(const Launch* launch, PyObject* const* arguments, Py_ssize_t count, PyObject** ordered) {
  int taken = 0;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* name = PyTuple_GET_ITEM(launch->order, i);
    if (taken < launch->parameter_count && launch->names[taken] == name) {
      ordered[taken++] = arguments[i];
    } else if (!is_constant(launch, name, arguments[i])) {
      return -1;
    }
  }
  return taken;
}

/* Put the values of the keywords `names`, which lie behind the `count` arguments by position, into `options`, or into
 * `ordered` at the positions of the parameters, where `taken` lie already. Returns 0, or -1. */
static int take_keywords(const Launch* launch, PyObject* const* arguments, Py_ssize_t count, PyObject* names, int taken,
                         PyObject** ordered, Options* options) {
  const int parameter_count = launch->parameter_count;
  Py_ssize_t missing = parameter_count - taken;
  for (Py_ssize_t j = 0; names && j < PyTuple_GET_SIZE(names); j++) {
    PyObject* name = PyTuple_GET_ITEM(names, j);
    if (!launch->is_bound && is_careful_option(&launch->base.state->names, name)) return -1;
    PyObject** place = launch->is_bound ? NULL : find_option(&launch->base.state->names, options, name);
    for (int i = taken; i < parameter_count && !place; i++) {
      if (launch->names[i] == name) {
        place = &ordered[i];
        missing--;
      }
    }
    PyObject* value = arguments[count + j];
    if (!place && is_constant(launch, name, value)) continue;
    if (!place || *place) return -1;
    *place = value;
  }
  return missing ? -1 : 0;
}

/* The launch on `device` that the `arguments` choose, whose values are in `memory`: `launch` itself, unless it has variants.
 * Fills `known`, what it knows of the device; NULL, perhaps with an exception, if that does not suffice. */
static Launch* choose_candidate(Launch* launch, int device, PyObject* const* arguments, const unsigned char* memory,
                                Layout* layout, OnDevice* known) {
  if (find_device(launch, device, known)) return NULL;
  if (known->choice) {
    const int number = choose(launch->base.state, known->choice, launch->parameters, arguments, memory, layout);
    if (number < 0 || !launch->candidates || number >= PyTuple_GET_SIZE(launch->candidates)) return NULL;
    launch = (Launch*)PyTuple_GET_ITEM(launch->candidates, number);
    if (!launch->parameters || find_device(launch, device, known)) return NULL;
  }
  return known->kernel.function ? launch : NULL;
}

/* Put the values of the hidden parameters among the `values` of the `arguments`. Returns 0, or -1, perhaps with an
 * exception, if they have to be derived carefully. */
static int insert_hidden(const Launch* launch, PyObject* const* arguments, Layout* layout, unsigned char* memory,
                         void** values, Scratch* scratch) {
  int argument = launch->parameter_count;
  int at = argument + launch->hidden_count;
  for (int i = launch->hidden_count; i-- > 0;) {
    const Hidden* hidden = &launch->hidden[i];
    while (--at > hidden->position) values[at] = values[--argument];
    values[at] = memory + hidden->offset;
    if (derive_value(launch->base.state, hidden, arguments, layout, values[at])) return -1;
    if (hidden->term.part == SCRATCH) scratch->address = values[at];
  }
  return 0;
}

/* Launch if everything is common. Returns 0, or -1, perhaps with an exception, if nothing was launched. */
static int launch_at_once(Launch* launch, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  const State* state = launch->base.state;
  if (!launch->parameters || !LOAD(state->is_connected)) return -1;
  PyObject* const* ordered = arguments;
  PyObject* by_name[MOST_PARAMETERS];
  int taken = (int)count;
  if (count > launch->parameter_count) {
    if (!launch->order || count > PyTuple_GET_SIZE(launch->order)) return -1;
    taken = take_by_order(launch, arguments, count, by_name);
    if (taken < 0) return -1;
    ordered = by_name;
  } else if (count < launch->parameter_count) {
    for (int i = 0; i < count; i++) by_name[i] = arguments[i];
    ordered = by_name;
  }
  for (int i = taken; i < launch->parameter_count; i++) by_name[i] = NULL;
  Options options = {NULL};
  if (take_keywords(launch, arguments, count, names, taken, by_name, &options)) return -1;

  unsigned char memory[MOST_BYTES];
  void* values[MOST_PARAMETERS];
  Placement placement = {-1, NULL};
  for (int i = 0; i < launch->parameter_count; i++) {
    const Parameter* parameter = &launch->parameters[i];
    values[i] = memory + parameter->offset;
    if (take_argument(state, parameter, ordered[i], values[i], &placement)) return -1;
  }

  CUstream stream = launch->stream;
  int has_stream = launch->has_stream;
  if (options.stream && options.stream != Py_None) {
    if (take_stream(state, options.stream, &stream)) return -1;
    has_stream = 1;
  }
  int device = placement.device;
  if (device < 0) {
    device = 0;
    if (state->driver.gpu_count > 1 && find_device_of_stream(&state->driver, stream, &device)) return -1;
  }
  if (!has_stream && placement.first) {
    if (placement.first->current_stream(&state->names, placement.first, device, &stream)) return -1;
  }

  OnDevice known;
  Layout layout;
  layout.array = NULL;
  const Launch* chosen = choose_candidate(launch, device, ordered, memory, &layout, &known);
  if (!chosen) return -1;
  LaunchConfig config;
  Scratch scratch = {.size = 0};
  if (known.prepared) {
    config = known.prepared->config;
    if (!launch->is_bound && configure_grid(&options, &known.kernel, &config)) return -1;
    scratch = known.prepared->scratch;
  } else if (launch->is_bound || configure(&options, &known.kernel, &config)) {
    return -1;
  }
  config.stream = stream;
  if (chosen->hidden_count && insert_hidden(chosen, ordered, &layout, memory, values, &scratch)) return -1;
  const LoadedKernel* kernel = &known.kernel;
  if (!scratch.size) return launch_function(&state->driver, kernel->function, kernel->context, &config, values);
  const uint64_t blocks = (uint64_t)config.grid[0] * config.grid[1] * config.grid[2];
  if (!scratch.address || blocks > INT64_MAX / scratch.size) return -1;
  scratch.size *= blocks;
  return launch_with_scratch(&state->driver, kernel->function, kernel->context, &config, values, &scratch);
}

static PyObject* call_launch(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* names) {
  Launch* launch = (Launch*)self;
  if (!launch_at_once(launch, arguments, PyVectorcall_NARGS(flags), names)) Py_RETURN_NONE;
  return launch_carefully(self, arguments, flags, names);
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
    if (parse_parameter(PyTuple_GET_ITEM(source, i), &launch->parameters[i], &launch->names[i])) return -1;
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
  static char* names[] = {"parameters", "candidates", "is_bound", "stream", "hidden", "constants", "order", NULL};
  PyObject *parameters, *hidden = NULL, *constants = NULL, *order = NULL, *candidates = NULL, *stream = Py_None;
  int is_bound = 0;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|O!pOO!O!O!:Launch", names, &parameters, &PyTuple_Type,
                                   &candidates, &is_bound, &stream, &PyTuple_Type, &hidden, &PyTuple_Type, &constants,
                                   &PyTuple_Type, &order)) {
    return NULL;
  }
  if (parameters != Py_None && !PyTuple_Check(parameters)) {
    return PyErr_Format(PyExc_TypeError, "expected parameters in a tuple, found %R", parameters);
  }
  Launch* launch = new_callable(type, call_launch);
  if (!launch) return NULL;
  launch->is_bound = is_bound;
  if (stream != Py_None) {
    launch->stream = (CUstream)(uintptr_t)PyLong_AsUnsignedLongLong(stream);
    launch->has_stream = 1;
  }
  if (PyErr_Occurred() || (parameters != Py_None && set_parameters(launch, parameters)) ||
      (hidden && set_hidden(launch, hidden)) || (constants && set_constants(launch, constants)) ||
      (order && set_order(launch, order)) || (candidates && set_candidates(launch, candidates))) {
    Py_DECREF(launch);
    return NULL;
  }
  return (PyObject*)launch;
}

static int traverse_launch(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(((Launch*)self)->constants);
  Py_VISIT(((Launch*)self)->order);
  Py_VISIT(((Launch*)self)->candidates);
  return visit_callable(self, visit, arg);
}

static int clear_launch(PyObject* self) {
  Py_CLEAR(((Launch*)self)->constants);
  Py_CLEAR(((Launch*)self)->order);
  Py_CLEAR(((Launch*)self)->candidates);
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
     "Launch(parameters, candidates=(), is_bound=False, stream=None, hidden=(), constants=(), order=())\n--\n\n"
     "A launch: in C if all is common, else by the method ``__launch_carefully__`` of a subclass."},
    {Py_tp_new, new_launch},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, traverse_launch},
    {Py_tp_clear, clear_launch},
    {Py_tp_dealloc, deallocate_launch},
    {Py_tp_methods, launch_methods},
    {Py_tp_members, callable_members},
    {0, NULL},
};

static PyType_Spec launch_spec = {
    .name = "cuda_ext.runtime.launch._launch.Launch",
    .basicsize = sizeof(Launch),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = launch_slots,
};

#endif
