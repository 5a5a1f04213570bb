/* Launching: the arguments of a call, what is derived from them, and the call of the driver. */
#ifndef CUDA_EXT_LAUNCH_H
#define CUDA_EXT_LAUNCH_H

#include "arguments.h"
#include "callable.h"
#include "concurrency.h"
#include "configuration.h"
#include "devices.h"
#include "hidden.h"
#include "streams.h"

typedef struct Launch {
  Callable base;
  Parameter* parameters; /* NULL if launches are always checked carefully */
  PyObject** names;      /* of the parameters; interned */
  int parameter_count;
  Hidden* hidden; /* in the order of their positions */
  int hidden_count;
  PyObject* constants; /* a tuple of (name, value): constants that a call may repeat; NULL for none. A dictionary has
                        * further values for the name, to themselves. */
  PyObject* given;     /* a dictionary of the constants, for functions of a grid, and of parameters' defaults */
  PyObject* order;     /* the names of parameters and constants, where constants may be given by position; NULL for none */
  int is_in_order;     /* whether constants have their positions even if there are no more arguments than parameters */
  PyObject* candidates; /* of variants: a tuple of launches with the same parameters; NULL otherwise */
  int is_bound;         /* whether the configuration is fixed */
  GivenStream stream;   /* that is fixed, too */
  PyObject* like;       /* the array that fixes the stream and the GPU; NULL for none */
  Devices devices;
} Launch;

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
    if (PyTuple_GET_ITEM(constant, 0) != name) continue;
    PyObject* known = PyTuple_GET_ITEM(constant, 1);
    if (PyDict_CheckExact(known)) known = PyDict_GET_SIZE(known) ? PyDict_GetItemWithError(known, value) : NULL;
    if (known && are_equal_constants(known, value)) return 1;
    if (PyErr_Occurred()) return 0;
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
  for (int i = taken; missing && launch->given && i < parameter_count; i++) {
    if (ordered[i]) continue;
    ordered[i] = PyDict_GetItemWithError(launch->given, launch->names[i]);
    if (!ordered[i]) return -1;
    missing--;
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

/* The grid that a function returns for the `arguments` and the constants of `chosen`, as a new reference; NULL with an
 * exception if it raises one. */
static PyObject* evaluate_grid(const Launch* launch, const Launch* chosen, PyObject* const* arguments,
                               PyObject* function) {
  PyObject* given = PyDict_Copy(chosen->given);
  int failed = !given;
  for (int i = 0; i < launch->parameter_count && !failed; i++) {
    failed = PyDict_SetItem(given, launch->names[i], arguments[i]);
  }
  PyObject* grid = failed ? NULL : PyObject_CallOneArg(function, given);
  Py_XDECREF(given);
  return grid;
}

/* What a launch passes: the arguments in the order of the parameters, and their values. */
typedef struct Passed {
  PyObject* const* arguments;
  unsigned char* memory;
  void** values;
  Layout layout;
  CUstream stream;
} Passed;

/* Launch `chosen`, a candidate of `launch`, of which so much is `known`. Returns as launch_at_once. */
static int launch_chosen(const Launch* launch, const Launch* chosen, const OnDevice* known, const Options* options,
                         Passed* passed) {
  const State* state = launch->base.state;
  const LoadedKernel* kernel = &known->kernel;
  LaunchConfig config;
  Scratch scratch = {.size = 0};
  if (known->prepared) {
    config = known->prepared->config;
    if (!launch->is_bound && configure_grid(options, kernel, &config)) return -1;
    scratch = known->prepared->scratch;
  } else if (launch->is_bound || configure(options, kernel, &config)) {
    return -1;
  }
  config.stream = passed->stream;
  void** values = passed->values;
  if (chosen->hidden_count &&
      insert_hidden(chosen, passed->arguments, &passed->layout, passed->memory, values, &scratch)) {
    return -1;
  }
  if (!scratch.size) return launch_function(&state->driver, kernel->function, kernel->context, &config, values);
  const uint64_t blocks = (uint64_t)config.grid[0] * config.grid[1] * config.grid[2];
  if (!scratch.address || blocks > INT64_MAX / scratch.size) return -1;
  scratch.size *= blocks;
  return launch_with_scratch(&state->driver, kernel->function, kernel->context, &config, values, &scratch);
}

/* Launch if everything is common, on `grid`, which is NULL if a keyword has it. Returns 0, or -1, perhaps with an exception,
 * if nothing was launched. */
static int launch_at_once(Launch* launch, PyObject* const* arguments, Py_ssize_t count, PyObject* names,
                          PyObject* grid) {
  const State* state = launch->base.state;
  if (!launch->parameters || !LOAD(state->is_connected)) return -1;
  PyObject* const* ordered = arguments;
  PyObject* by_name[MOST_PARAMETERS];
  int taken = (int)count;
  if (count > launch->parameter_count || (launch->is_in_order && count)) {
    if (!launch->order || count > PyTuple_GET_SIZE(launch->order)) return -1;
    taken = take_by_order(launch, arguments, count, by_name);
    if (taken < 0) return -1;
    ordered = by_name;
  } else if (count < launch->parameter_count) {
    for (int i = 0; i < count; i++) by_name[i] = arguments[i];
    ordered = by_name;
  }
  for (int i = taken; i < launch->parameter_count; i++) by_name[i] = NULL;
  Options options = {.grid = grid};
  if (take_keywords(launch, arguments, count, names, taken, by_name, &options)) return -1;

  unsigned char memory[MOST_BYTES];
  void* values[MOST_PARAMETERS];
  Placement placement = {-1, NULL, 0};
  for (int i = 0; i < launch->parameter_count; i++) {
    const Parameter* parameter = &launch->parameters[i];
    values[i] = memory + parameter->offset;
    if (take_argument(state, parameter, ordered[i], values[i], &placement)) return -1;
  }

  GivenStream stream = launch->stream;
  if (is_given(options.stream) && take_stream(state, options.stream, &stream)) return -1;
  PyObject* like = is_given(options.like) ? options.like : launch->like;
  if (like && (stream.is_given || take_like(state, like, &placement))) return -1;
  int device;
  if (find_device_of_launch(state, &placement, &stream, &device)) return -1;
  if (!stream.is_given && placement.first) {
    if (placement.first->current_stream(&state->names, placement.first, device, &stream.handle)) return -1;
  } else if (!stream.is_given && may_need_stream(&state->names, &placement, launch->parameters, launch->parameter_count, memory)) {
    return -1;
  }

  OnDevice known;
  Passed passed = {ordered, memory, values, {.array = NULL}, stream.handle};
  const Launch* chosen = choose_candidate(launch, device, ordered, memory, &passed.layout, &known);
  if (!chosen) return -1;
  if (!is_given(options.grid) || PyLong_CheckExact(options.grid) || PyTuple_CheckExact(options.grid)) {
    return launch_chosen(launch, chosen, &known, &options, &passed);
  }
  if (!chosen->given || !PyCallable_Check(options.grid)) return -1;
  PyObject* evaluated = evaluate_grid(launch, chosen, ordered, options.grid);
  if (!evaluated) return -1;
  options.grid = evaluated;
  const int outcome = launch_chosen(launch, chosen, &known, &options, &passed);
  Py_DECREF(evaluated);
  return outcome;
}

static PyObject* call_launch(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* names) {
  Launch* launch = (Launch*)self;
  if (!launch_at_once(launch, arguments, PyVectorcall_NARGS(flags), names, NULL)) Py_RETURN_NONE;
  return launch_carefully(self, arguments, flags, names);
}

#endif
