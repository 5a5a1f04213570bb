/* The arrays of other libraries: where their memory is, what it holds, and which stream their library works in.
 *
 * A library is known by the types of its arrays and numbers, which Python registers after a launch with one.
 */
#ifndef CUDA_EXT_ARRAYS_H
#define CUDA_EXT_ARRAYS_H

#include <Python.h>
#include <stdint.h>

#include "concurrency.h"
#include "dlpack.h"
#include "driver.h"
#include "integers.h"
#include "names.h"

/* Dtypes of memory, as bits of a set. Complex arrays are read carefully, since they may be conjugated views. */
enum {
  DTYPE_BOOL, DTYPE_INT8, DTYPE_UINT8, DTYPE_INT16, DTYPE_UINT16, DTYPE_INT32, DTYPE_UINT32, DTYPE_INT64, DTYPE_UINT64,
  DTYPE_FLOAT16, DTYPE_BFLOAT16, DTYPE_FLOAT32, DTYPE_FLOAT64, DTYPE_COUNT,
};
enum { OTHER_DTYPE = 1 << DTYPE_COUNT, ANY_DTYPE = (1 << (DTYPE_COUNT + 1)) - 1 };
static const char* const dtype_names[DTYPE_COUNT] = {
    [DTYPE_BOOL] = "bool",       [DTYPE_INT8] = "int8",       [DTYPE_UINT8] = "uint8",         [DTYPE_INT16] = "int16",
    [DTYPE_UINT16] = "uint16",   [DTYPE_INT32] = "int32",     [DTYPE_UINT32] = "uint32",       [DTYPE_INT64] = "int64",
    [DTYPE_UINT64] = "uint64",   [DTYPE_FLOAT16] = "float16", [DTYPE_BFLOAT16] = "bfloat16",
    [DTYPE_FLOAT32] = "float32", [DTYPE_FLOAT64] = "float64",
};

typedef struct ArrayType ArrayType;

typedef struct Memory {
  uint64_t address;
  uint32_t dtype; /* one bit; 0 for complex numbers */
  int device;
} Memory;

struct ArrayType {
  PyTypeObject* type;
  /* Both return 0, or -1, perhaps with an exception, where the array has to be read carefully. */
  int (*read)(const Names*, const ArrayType*, PyObject* array, Memory* memory);
  int (*current_stream)(const Names*, const ArrayType*, int device, CUstream* stream);
  const DLExchange* exchange;
  PyObject* is_neg;                /* Tensor.is_neg, or NULL if the library has no negated views */
  PyObject *data_ptr, *get_device; /* of PyTorch without an exchange: methods of Tensor */
  PyObject* stream_of_device;      /* of libraries without an exchange: a function */
  PyObject* dtypes[DTYPE_COUNT];   /* of libraries without an exchange: its objects, or NULL */
};

enum { MOST_ARRAY_TYPES = 16, MOST_VALUE_TYPES = 64 };

/* Tables that only grow. */
typedef struct KnownTypes {
  ArrayType arrays[MOST_ARRAY_TYPES];
  int array_count;
  PyTypeObject* values[MOST_VALUE_TYPES]; /* numbers of numpy, and structures of numpy and ctypes */
  int value_count;
} KnownTypes;

/* The type of `array`, or NULL if it is not registered. */
static const ArrayType* find_array_type(const KnownTypes* types, PyObject* array) {
  const int count = LOAD(types->array_count);
  for (int i = 0; i < count; i++) {
    if (types->arrays[i].type == Py_TYPE(array)) return &types->arrays[i];
  }
  return NULL;
}

/* Whether the type of `object` is registered as one of values: its conversions run no code that is unknown. */
static int is_known_value(const KnownTypes* types, PyObject* object) {
  const int count = LOAD(types->value_count);
  for (int i = 0; i < count; i++) {
    if (types->values[i] == Py_TYPE(object)) return 1;
  }
  return 0;
}

static uint32_t dtype_of_dlpack(DLDataType dtype) {
  enum { OTHER = DTYPE_COUNT };
  /* By code, and by size: 8, 16, 32 and 64 bits. */
  static const uint8_t dtypes[][4] = {
      [kDLInt] = {DTYPE_INT8, DTYPE_INT16, DTYPE_INT32, DTYPE_INT64},
      [kDLUInt] = {DTYPE_UINT8, DTYPE_UINT16, DTYPE_UINT32, DTYPE_UINT64},
      [kDLFloat] = {OTHER, DTYPE_FLOAT16, DTYPE_FLOAT32, DTYPE_FLOAT64},
      [kDLOpaqueHandle] = {OTHER, OTHER, OTHER, OTHER},
      [kDLBfloat] = {OTHER, DTYPE_BFLOAT16, OTHER, OTHER},
      [kDLComplex] = {OTHER, OTHER, OTHER, OTHER},
      [kDLBool] = {DTYPE_BOOL, OTHER, OTHER, OTHER},
  };
  if (dtype.code == kDLComplex) return 0;
  if (dtype.code > kDLBool || dtype.lanes != 1) return OTHER_DTYPE;
  switch (dtype.bits) {
    case 8: return 1u << dtypes[dtype.code][0];
    case 16: return 1u << dtypes[dtype.code][1];
    case 32: return 1u << dtypes[dtype.code][2];
    case 64: return 1u << dtypes[dtype.code][3];
    default: return OTHER_DTYPE;
  }
}

static uint32_t dtype_of_object(const ArrayType* type, PyObject* dtype) {
  for (int i = 0; i < DTYPE_COUNT; i++) {
    if (type->dtypes[i] == dtype) return 1u << i;
  }
  return 0; /* it may be complex */
}

/* Convert `number`, which may be NULL, and drop the reference to it. */
static int take_unsigned(PyObject* number, uint64_t* value) {
  if (!number) return -1;
  const int outcome = PyLong_CheckExact(number) ? take_unsigned_long_long(number, value) : -1;
  Py_DECREF(number);
  return outcome;
}

static int take_device(PyObject* number, int* device) {
  uint64_t value;
  if (take_unsigned(number, &value) || value > INT32_MAX) return -1;
  *device = (int)value;
  return 0;
}

/* Whether `predicate` says False of `array`. */
static int is_not(PyObject* predicate, PyObject* array) {
  PyObject* answer = PyObject_CallOneArg(predicate, array);
  const int is_false = answer == Py_False;
  Py_XDECREF(answer);
  return is_false;
}

/* Arrays of a type with `__dlpack_c_exchange_api__`. */

/* Whether `tensor` may be a negated view. Such a view is the imaginary part of a conjugated tensor: it begins at an odd
 * multiple of its elements' size, and all of its strides are even. Only as_strided() with an offset of its own makes
 * another one of that. Asking is_neg() of every tensor would take longer than all else here. */
static int may_be_negated(const DLTensor* tensor, uint64_t address) {
  const uint64_t two_elements = tensor->dtype.bits / 4; /* of a size that is a power of two */
  if (!tensor->strides || (address & (two_elements - 1)) != 0) return 1;
  for (int32_t i = 0; i < tensor->ndim; i++) {
    if (tensor->shape[i] > 1 && tensor->strides[i] % 2 != 0) return 0;
  }
  return 1;
}

static int read_exchanged(const Names* names, const ArrayType* type, PyObject* array, Memory* memory) {
  (void)names;
  DLTensor tensor;
  if (type->exchange->tensor_from_object(array, &tensor)) return -1;
  if (tensor.device.device_type != kDLCUDA) return -1;
  memory->address = tensor.data ? (uint64_t)(uintptr_t)tensor.data + tensor.byte_offset : 0;
  memory->dtype = dtype_of_dlpack(tensor.dtype);
  if (type->is_neg && may_be_negated(&tensor, memory->address) && !is_not(type->is_neg, array)) return -1;
  memory->device = tensor.device.device_id;
  return 0;
}

static int stream_exchanged(const Names* names, const ArrayType* type, int device, CUstream* stream) {
  (void)names;
  void* handle;
  if (type->exchange->current_stream(kDLCUDA, device, &handle)) return -1;
  *stream = handle;
  return 0;
}

/* Tensors of a PyTorch without it. */

static int read_tensor(const Names* names, const ArrayType* type, PyObject* array, Memory* memory) {
  PyObject* dtype = PyObject_GetAttr(array, names->dtype);
  if (!dtype) return -1;
  memory->dtype = dtype_of_object(type, dtype);
  Py_DECREF(dtype);
  /* On the host, the device is -1. */
  if (take_device(PyObject_CallOneArg(type->get_device, array), &memory->device)) return -1;
  if (!is_not(type->is_neg, array)) return -1;
  return take_unsigned(PyObject_CallOneArg(type->data_ptr, array), &memory->address);
}

static int stream_of_torch(const Names* names, const ArrayType* type, int device, CUstream* stream) {
  (void)names;
  PyObject* number = PyLong_FromLong(device);
  if (!number) return -1;
  uint64_t handle;
  const int outcome = take_unsigned(PyObject_CallOneArg(type->stream_of_device, number), &handle);
  Py_DECREF(number);
  if (!outcome) *stream = (CUstream)(uintptr_t)handle;
  return outcome;
}

/* Arrays of CuPy: `array.dtype`, `array.data.ptr` and `array.data.device_id`. */

static int read_cupy(const Names* names, const ArrayType* type, PyObject* array, Memory* memory) {
  PyObject* dtype = PyObject_GetAttr(array, names->dtype);
  if (!dtype) return -1;
  memory->dtype = dtype_of_object(type, dtype);
  Py_DECREF(dtype);
  PyObject* data = PyObject_GetAttr(array, names->data);
  if (!data) return -1;
  const int outcome = take_unsigned(PyObject_GetAttr(data, names->ptr), &memory->address) ||
                      take_device(PyObject_GetAttr(data, names->device_id), &memory->device);
  Py_DECREF(data);
  return outcome ? -1 : 0;
}

static int stream_of_cupy(const Names* names, const ArrayType* type, int device, CUstream* stream) {
  PyObject* number = PyLong_FromLong(device);
  if (!number) return -1;
  PyObject* object = PyObject_CallOneArg(type->stream_of_device, number);
  Py_DECREF(number);
  if (!object) return -1;
  uint64_t handle;
  const int outcome = take_unsigned(PyObject_GetAttr(object, names->ptr), &handle);
  Py_DECREF(object);
  if (!outcome) *stream = (CUstream)(uintptr_t)handle;
  return outcome;
}

#endif
