/* Where a launch runs: in a stream that is given, or in the current one of the library of an array. */
#ifndef CUDA_EXT_STREAMS_H
#define CUDA_EXT_STREAMS_H

#include "arguments.h"

/* A stream that is given or bound. */
typedef struct GivenStream {
  CUstream handle;
  int device;   /* -1 if only the handle tells it */
  int is_given; /* 0 for none */
} GivenStream;

static int take_handle(PyObject* number, CUstream* stream) {
  uint64_t handle;
  if (!PyLong_CheckExact(number) || take_unsigned_long_long(number, &handle)) return -1;
  *stream = (CUstream)(uintptr_t)handle;
  return 0;
}

/* The device that the attribute `name` of a stream tells; -1 if it does not. Returns 0, or -1 with an exception. */
static int take_device_of_stream(PyObject* object, PyObject* name, int* device) {
  long long number;
  PyObject* ordinal = optional_attribute(object, name);
  if (!ordinal) return PyErr_Occurred() ? -1 : 0;
  if (PyLong_CheckExact(ordinal) && !take_long_long(ordinal, &number) && number >= 0 && number <= INT32_MAX) {
    *device = (int)number;
  }
  Py_DECREF(ordinal);
  return 0;
}

/* A stream with `__cuda_stream__`, which returns the protocol's version, 0, and the handle. */
static int take_protocol(PyObject* method, CUstream* stream) {
  PyObject* answer = PyObject_CallNoArgs(method);
  if (!answer) return -1;
  int outcome = -1;
  if (PyTuple_CheckExact(answer) && PyTuple_GET_SIZE(answer) == 2) {
    PyObject* version = PyTuple_GET_ITEM(answer, 0);
    if (PyLong_CheckExact(version) && PyLong_AsLong(version) == 0) {
      outcome = take_handle(PyTuple_GET_ITEM(answer, 1), stream);
    }
  }
  Py_DECREF(answer);
  return outcome;
}

COLD static int take_handle_of_object(const State* state, PyObject* object, CUstream* stream) {
  PyObject* method = optional_attribute(object, state->names.stream_protocol);
  if (method) {
    const int outcome = take_protocol(method, stream);
    Py_DECREF(method);
    return outcome;
  }
  if (PyErr_Occurred()) return -1;
  PyObject* handle = optional_attribute(object, state->names.cuda_stream);
  if (!handle && !PyErr_Occurred()) handle = optional_attribute(object, state->names.ptr);
  if (!handle) return -1;
  const int outcome = take_handle(handle, stream);
  Py_DECREF(handle);
  return outcome;
}

COLD static int take_stream_object(const State* state, PyObject* object, GivenStream* stream) {
  if (take_handle_of_object(state, object, &stream->handle)) return -1;
  if (state->driver.gpu_count == 1) return 0;
  if (take_device_of_stream(object, state->names.device_index, &stream->device)) return -1;
  return stream->device < 0 ? take_device_of_stream(object, state->names.device_id, &stream->device) : 0;
}

/* A stream is an integer, its handle, or an object of any library. Returns 0, or -1 as above. */
static int take_stream(const State* state, PyObject* object, GivenStream* stream) {
  *stream = (GivenStream){NULL, -1, 1};
  return PyLong_CheckExact(object) ? take_handle(object, &stream->handle) : take_stream_object(state, object, stream);
}

/* Take the stream and the GPU of `array`, the value of `like`. */
COLD static int take_like(const State* state, PyObject* array, Placement* placement) {
  const ArrayType* type = find_array_type(&state->types, array);
  Memory memory;
  if (!type || type->read(&state->names, type, array, &memory) || !memory.address) return -1;
  if (placement->first && placement->device != memory.device) return -1;
  placement->device = memory.device;
  placement->first = type;
  return 0;
}

/* The device of the arrays, or else of `stream`. Returns 0, or -1 as above. */
static int find_device_of_launch(const State* state, const Placement* placement, const GivenStream* stream,
                                 int* device) {
  *device = placement->device;
  if (*device >= 0) return stream->device >= 0 && stream->device != *device ? -1 : 0;
  *device = state->driver.gpu_count == 1 ? 0 : stream->device;
  return *device < 0 ? find_device_of_stream(&state->driver, stream->handle, device) : 0;
}

/* Whether values in `memory` may have addresses of memory that a library uses in its current stream, which no array tells.
 * Whether a library that is loaded has one is for the careful launcher to find out. */
COLD static int may_need_stream(const Names* names, const Placement* placement, const Parameter* parameters, int count,
                                const unsigned char* memory) {
  uint64_t address = (uint64_t)placement->has_addresses;
  for (int i = 0; i < count && !address; i++) {
    if (parameters[i].kind == POINTER) memcpy(&address, memory + parameters[i].offset, sizeof address);
  }
  if (!address) return 0;
  PyObject* modules = PyImport_GetModuleDict();
  return PyDict_Contains(modules, names->torch) || PyDict_Contains(modules, names->cupy);
}

#endif
