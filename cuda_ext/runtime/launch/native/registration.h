/* The functions of the module by which Python registers the types of arrays and values. */
#ifndef CUDA_EXT_REGISTRATION_H
#define CUDA_EXT_REGISTRATION_H

#include "concurrency.h"
#include "state.h"

/* Types are never removed, so launches read the tables without a lock. */
static void add_array_type(PyObject* module, const ArrayType* added) {
  KnownTypes* types = &((State*)PyModule_GetState(module))->types;
  Py_BEGIN_CRITICAL_SECTION(module);
  const int count = types->array_count;
  int i = 0;
  while (i < count && types->arrays[i].type != added->type) i++;
  if (i == count && count < MOST_ARRAY_TYPES) {
    types->arrays[count] = *added;
    Py_INCREF(added->type);
    Py_XINCREF(added->is_neg);
    Py_XINCREF(added->data_ptr);
    Py_XINCREF(added->get_device);
    Py_XINCREF(added->stream_of_device);
    for (int j = 0; j < DTYPE_COUNT; j++) Py_XINCREF(added->dtypes[j]);
    STORE(types->array_count, count + 1);
  }
  Py_END_CRITICAL_SECTION();
}

/* Take the objects of `dtypes`, a dictionary by name, which keeps them alive. */
static int take_dtypes(ArrayType* type, PyObject* dtypes) {
  for (int i = 0; i < DTYPE_COUNT; i++) {
    type->dtypes[i] = PyDict_GetItemString(dtypes, dtype_names[i]);
  }
  return PyErr_Occurred() ? -1 : 0;
}

/* The table of version 1 in `capsule`; NULL if there is none. */
static const DLExchange* find_exchange(PyObject* capsule) {
  static const char name[] = "dlpack_exchange_api";
  const DLExchange* exchange = PyCapsule_IsValid(capsule, name) ? PyCapsule_GetPointer(capsule, name) : NULL;
  while (exchange && exchange->major != 1) exchange = exchange->previous;
  return exchange && exchange->tensor_from_object && exchange->current_stream ? exchange : NULL;
}

static PyObject* register_exchange(PyObject* module, PyObject* arguments) {
  ArrayType added = {.read = read_exchanged, .current_stream = stream_exchanged};
  PyObject *capsule, *is_neg;
  if (!PyArg_ParseTuple(arguments, "O!OO", &PyType_Type, &added.type, &capsule, &is_neg)) return NULL;
  added.is_neg = is_neg == Py_None ? NULL : is_neg;
  added.exchange = find_exchange(capsule);
  if (added.exchange) add_array_type(module, &added);
  return PyBool_FromLong(added.exchange != NULL);
}

static PyObject* register_torch(PyObject* module, PyObject* arguments) {
  ArrayType added = {.read = read_tensor, .current_stream = stream_of_torch};
  PyObject* dtypes;
  if (!PyArg_ParseTuple(arguments, "O!OOOOO!", &PyType_Type, &added.type, &added.is_neg, &added.data_ptr,
                        &added.get_device, &added.stream_of_device, &PyDict_Type, &dtypes)) {
    return NULL;
  }
  if (take_dtypes(&added, dtypes)) return NULL;
  add_array_type(module, &added);
  Py_RETURN_NONE;
}

static PyObject* register_cupy(PyObject* module, PyObject* arguments) {
  ArrayType added = {.read = read_cupy, .current_stream = stream_of_cupy};
  PyObject* dtypes;
  if (!PyArg_ParseTuple(arguments, "O!OO!", &PyType_Type, &added.type, &added.stream_of_device, &PyDict_Type,
                        &dtypes)) {
    return NULL;
  }
  if (take_dtypes(&added, dtypes)) return NULL;
  add_array_type(module, &added);
  Py_RETURN_NONE;
}

static PyObject* register_value(PyObject* module, PyObject* type) {
  if (!PyType_Check(type)) return PyErr_Format(PyExc_TypeError, "expected a type, found %R", type);
  KnownTypes* types = &((State*)PyModule_GetState(module))->types;
  Py_BEGIN_CRITICAL_SECTION(module);
  const int count = types->value_count;
  int i = 0;
  while (i < count && types->values[i] != (PyTypeObject*)type) i++;
  if (i == count && count < MOST_VALUE_TYPES) {
    types->values[count] = (PyTypeObject*)Py_NewRef(type);
    STORE(types->value_count, count + 1);
  }
  Py_END_CRITICAL_SECTION();
  Py_RETURN_NONE;
}

static PyMethodDef type_functions[] = {
    {"register_exchange", register_exchange, METH_VARARGS,
     "register_exchange(type, capsule, is_neg)\n--\n\nRead arrays of `type` through the functions in `capsule`."},
    {"register_torch", register_torch, METH_VARARGS,
     "register_torch(type, is_neg, data_ptr, get_device, current_stream, dtypes)\n--\n\n"
     "Read tensors of `type` through these methods."},
    {"register_cupy", register_cupy, METH_VARARGS,
     "register_cupy(type, current_stream, dtypes)\n--\n\nRead arrays of `type` through their attributes."},
    {"register_value", register_value, METH_O,
     "register_value(type)\n--\n\nTake values of `type`, which is one of numpy or ctypes."},
    {NULL, NULL, 0, NULL},
};

static int visit_types(KnownTypes* types, visitproc visit, void* arg) {
  for (int i = 0; i < types->array_count; i++) {
    ArrayType* each = &types->arrays[i];
    Py_VISIT(each->type);
    Py_VISIT(each->is_neg);
    Py_VISIT(each->data_ptr);
    Py_VISIT(each->get_device);
    Py_VISIT(each->stream_of_device);
    for (int j = 0; j < DTYPE_COUNT; j++) Py_VISIT(each->dtypes[j]);
  }
  for (int i = 0; i < types->value_count; i++) Py_VISIT(types->values[i]);
  return 0;
}

static void clear_types(KnownTypes* types) {
  while (types->array_count) {
    ArrayType each = types->arrays[--types->array_count];
    Py_DECREF(each.type);
    Py_XDECREF(each.is_neg);
    Py_XDECREF(each.data_ptr);
    Py_XDECREF(each.get_device);
    Py_XDECREF(each.stream_of_device);
    for (int j = 0; j < DTYPE_COUNT; j++) Py_XDECREF(each.dtypes[j]);
  }
  while (types->value_count) Py_DECREF(types->values[--types->value_count]);
}

#endif
