/* Python's integers as those of C. */
#ifndef CUDA_EXT_INTEGERS_H
#define CUDA_EXT_INTEGERS_H

#include <Python.h>
#include <stdint.h>
#include <string.h>

/* The value of `number`, an int. Returns 0, or the sign of a number that does not fit. */
static inline int take_long_long(PyObject* number, long long* value) {
#if PY_VERSION_HEX >= 0x030C0000
  if (PyUnstable_Long_IsCompact((PyLongObject*)number)) {
    *value = PyUnstable_Long_CompactValue((PyLongObject*)number);
    return 0;
  }
#endif
  int overflow;
  *value = PyLong_AsLongLongAndOverflow(number, &overflow);
  return overflow;
}

/* The value of `number`, an int from 0 to 2**64 - 1. Returns 0, or -1, perhaps with an exception. */
static inline int take_unsigned_long_long(PyObject* number, uint64_t* value) {
  long long small;
  if (!take_long_long(number, &small)) {
    *value = (uint64_t)small;
    return small < 0 ? -1 : 0;
  }
  *value = PyLong_AsUnsignedLongLong(number);
  return *value == UINT64_MAX && PyErr_Occurred() ? -1 : 0;
}

/* A converter for PyArg_ParseTuple: an int to a pointer, to data or to a function, that is not NULL. */
static int parse_pointer(PyObject* object, void* result) {
  void* address = PyLong_AsVoidPtr(object);
  if (!address && !PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "invalid address 0");
  memcpy(result, &address, sizeof address);
  return address != NULL;
}

/* Whether two objects are equal that are None, booleans, integers, floats of the same bits, texts, or tuples of these;
 * others count as different. */
static int are_equal_constants(PyObject* one, PyObject* other) {
  if (one == other) return 1;
  if (Py_TYPE(one) != Py_TYPE(other)) return 0;
  if (PyLong_CheckExact(one)) return PyObject_RichCompareBool(one, other, Py_EQ) == 1;
  if (PyUnicode_CheckExact(one)) return PyUnicode_Compare(one, other) == 0;
  if (PyFloat_CheckExact(one)) {
    const double values[] = {PyFloat_AS_DOUBLE(one), PyFloat_AS_DOUBLE(other)};
    return !memcmp(&values[0], &values[1], sizeof *values);
  }
  if (!PyTuple_CheckExact(one) || PyTuple_GET_SIZE(one) != PyTuple_GET_SIZE(other)) return 0;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(one); i++) { /* constants of a kernel are no deep tuples */
    PyObject* item = PyTuple_GET_ITEM(one, i);
    if (PyTuple_CheckExact(item) || !are_equal_constants(item, PyTuple_GET_ITEM(other, i))) return 0;
  }
  return 1;
}

#endif
