/* The functions of the module by which Python registers the types of arrays. */
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
    Py_XINCREF(added->negation.is_neg);
    Py_XINCREF(added->data_ptr);
    Py_XINCREF(added->get_device);
    Py_XINCREF(added->stream_of_device);
    for (int j = 0; j < DTYPE_COUNT; j++) Py_XINCREF(added->dtypes[j]);
    STORE(types->array_count, count + 1);
  }
  Py_END_CRITICAL_SECTION();
}

/* Take the objects of `dtypes`, a tuple in the order of DTYPES with None for those that the library lacks. */
static int take_dtypes(ArrayType* type, PyObject* dtypes) {
  if (PyTuple_GET_SIZE(dtypes) != DTYPE_COUNT) {
    PyErr_Format(PyExc_ValueError, "expected %d dtypes, found %zd", DTYPE_COUNT, PyTuple_GET_SIZE(dtypes));
    return -1;
  }
  for (int i = 0; i < DTYPE_COUNT; i++) {
    PyObject* dtype = PyTuple_GET_ITEM(dtypes, i);
    type->dtypes[i] = dtype == Py_None ? NULL : dtype;
  }
  return 0;
}

/* A converter for PyArg_ParseTuple: (is_neg, implementation, keys, key), or None. */
static int parse_negation(PyObject* source, void* result) {
  Negation* n = result;
  if (source == Py_None) return 1;
  if (!PyTuple_Check(source)) {
    PyErr_Format(PyExc_TypeError, "expected a tuple or None, found %R", source);
    return 0;
  }
  return PyArg_ParseTuple(source, "OIIK", &n->is_neg, &n->implementation, &n->keys, &n->key);
}

/* The table of version 1 in `capsule`; NULL if there is none. */
static const DLExchange* find_exchange(PyObject* capsule) {
  static const char name[] = "dlpack_exchange_api";
  const DLExchange* exchange = PyCapsule_IsValid(capsule, name) ? PyCapsule_GetPointer(capsule, name) : NULL;
  while (exchange && exchange->major != 1) exchange = exchange->previous;
  return exchange && exchange->tensor_from_object && exchange->current_stream ? exchange : NULL;
}

static PyObject* register_exchange(PyObject* module, PyObject* arguments) {
  ArrayType added = {.read = read_exchanged, .read_layout = layout_exchanged, .current_stream = stream_exchanged};
  PyObject* capsule;
  if (!PyArg_ParseTuple(arguments, "O!OO&", &PyType_Type, &added.type, &capsule, parse_negation, &added.negation)) {
    return NULL;
  }
  added.exchange = find_exchange(capsule);
  if (added.exchange) add_array_type(module, &added);
  return PyBool_FromLong(added.exchange != NULL);
}

static PyObject* register_torch(PyObject* module, PyObject* arguments) {
  ArrayType added = {.read = read_tensor, .read_layout = layout_of_tensor, .current_stream = stream_of_torch};
  PyObject* dtypes;
  if (!PyArg_ParseTuple(arguments, "O!O&OOOO!", &PyType_Type, &added.type, parse_negation, &added.negation,
                        &added.data_ptr, &added.get_device, &added.stream_of_device, &PyTuple_Type, &dtypes)) {
    return NULL;
  }
  if (!added.negation.is_neg) return PyErr_Format(PyExc_TypeError, "expected a method that finds negated views");
  if (take_dtypes(&added, dtypes)) return NULL;
  add_array_type(module, &added);
  Py_RETURN_NONE;
}

static PyObject* register_cupy(PyObject* module, PyObject* arguments) {
  ArrayType added = {.read = read_cupy, .read_layout = layout_of_cupy, .current_stream = stream_of_cupy};
  PyObject* dtypes;
  if (!PyArg_ParseTuple(arguments, "O!OO!", &PyType_Type, &added.type, &added.stream_of_device, &PyTuple_Type,
                        &dtypes)) {
    return NULL;
  }
  if (take_dtypes(&added, dtypes)) return NULL;
  add_array_type(module, &added);
  Py_RETURN_NONE;
}

static PyMethodDef type_functions[] = {
    {"register_exchange", register_exchange, METH_VARARGS,
     "register_exchange(type, capsule, negation)\n--\n\nRead arrays of `type` through the functions in `capsule`."},
    {"register_torch", register_torch, METH_VARARGS,
     "register_torch(type, negation, data_ptr, get_device, current_stream, dtypes)\n--\n\n"
     "Read tensors of `type` through these methods."},
    {"register_cupy", register_cupy, METH_VARARGS,
     "register_cupy(type, current_stream, dtypes)\n--\n\nRead arrays of `type` through their attributes."},
    {NULL, NULL, 0, NULL},
};

static int visit_types(KnownTypes* types, visitproc visit, void* arg) {
  for (int i = 0; i < types->array_count; i++) {
    ArrayType* each = &types->arrays[i];
    Py_VISIT(each->type);
    Py_VISIT(each->negation.is_neg);
    Py_VISIT(each->data_ptr);
    Py_VISIT(each->get_device);
    Py_VISIT(each->stream_of_device);
    for (int j = 0; j < DTYPE_COUNT; j++) Py_VISIT(each->dtypes[j]);
  }
  Py_VISIT(types->values);
  return 0;
}

static void clear_types(KnownTypes* types) {
  while (types->array_count) {
    ArrayType each = types->arrays[--types->array_count];
    Py_DECREF(each.type);
    Py_XDECREF(each.negation.is_neg);
    Py_XDECREF(each.data_ptr);
    Py_XDECREF(each.get_device);
    Py_XDECREF(each.stream_of_device);
    for (int j = 0; j < DTYPE_COUNT; j++) Py_XDECREF(each.dtypes[j]);
  }
}

#endif
