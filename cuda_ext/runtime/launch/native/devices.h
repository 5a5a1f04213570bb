/* What is known of launches on each device, and the methods of `Launch` by which the careful launcher adds to that. */
#ifndef CUDA_EXT_DEVICES_H
#define CUDA_EXT_DEVICES_H

#include <stddef.h>
#include <string.h>

#include "choice.h"
#include "concurrency.h"
#include "configuration.h"

/* A configuration that is bound, or that the image fixes, for one device. It does not change. In a fixed one,
 * `config.grid` is the number of blocks for each element of the grid of a call. */
typedef struct Prepared {
  LaunchConfig config;
  Scratch scratch; /* for each block */
  LaunchAttribute attributes[3];
} Prepared;

typedef struct OnDevice {
  LoadedKernel kernel;
  Prepared* prepared; /* of a bound launch, or a kernel with a fixed configuration; NULL otherwise */
  Choice* choice;     /* of variants; NULL otherwise */
} OnDevice;

/* By ordinal; to be used in a critical section of the launch. */
typedef struct Devices {
  OnDevice* entries;
  int count;
} Devices;

enum { MOST_DEVICES = 1024 };

/* The entry of `device`, a new one if necessary; NULL without memory. */
static OnDevice* reserve_device(Devices* devices, int device) {
  if (device >= devices->count) {
    OnDevice* entries = PyMem_Realloc(devices->entries, ((size_t)device + 1) * sizeof *entries);
    if (!entries) return NULL;
    devices->entries = entries;
    while (devices->count <= device) entries[devices->count++] = (OnDevice){.choice = NULL};
  }
  return &devices->entries[device];
}

/* Store `made`, from PyMem_Malloc, in the pointer at `offset` in the entry of `device`, or free it if one is there:
 * launches of other threads may be using that. Returns None. */
static PyObject* keep_first(PyObject* launch, Devices* devices, int device, size_t offset, void* made) {
  OnDevice* entry;
  (void)launch; /* which Python 3.13 ignores if it has a GIL */
  Py_BEGIN_CRITICAL_SECTION(launch);
  entry = reserve_device(devices, device);
  if (entry) {
    char* place = (char*)entry + offset;
    void* kept;
    memcpy(&kept, place, sizeof kept);
    if (!kept) {
      memcpy(place, &made, sizeof made);
      made = NULL;
    }
  }
  Py_END_CRITICAL_SECTION();
  PyMem_Free(made);
  if (!entry) return PyErr_NoMemory();
  Py_RETURN_NONE;
}

static void free_devices(Devices* devices) {
  for (int i = 0; i < devices->count; i++) {
    PyMem_Free(devices->entries[i].prepared);
    PyMem_Free(devices->entries[i].choice);
  }
  PyMem_Free(devices->entries);
}

/* A converter for PyArg_ParseTuple. */
static int parse_device(PyObject* object, void* result) {
  const long device = PyLong_AsLong(object);
  if (device < 0 || device >= MOST_DEVICES) {
    if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "invalid device %ld", device);
    return 0;
  }
  *(int*)result = (int)device;
  return 1;
}

/* Read a tuple of (attribute, number, ...). Returns 0, or -1 with an exception. */
static int parse_attributes(PyObject* source, Prepared* prepared) {
  enum { MOST = sizeof prepared->attributes / sizeof *prepared->attributes };
  const Py_ssize_t count = PyTuple_GET_SIZE(source);
  if (count > MOST) {
    PyErr_SetString(PyExc_ValueError, "too many launch attributes");
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    LaunchAttribute* each = &prepared->attributes[i];
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(source, i), "II|II", &each->id, &each->numbers[0], &each->numbers[1],
                          &each->numbers[2])) {
      return -1;
    }
  }
  prepared->config.attributes = prepared->attributes;
  prepared->config.attribute_count = (unsigned)count;
  return 0;
}

#endif
