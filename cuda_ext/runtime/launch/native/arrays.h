/* The arrays of other libraries: where their memory is, what it holds, and which stream their library works in.
 *
 * A library is known by the types of its arrays and numbers, which Python registers after a launch with one.
 */
#ifndef CUDA_EXT_ARRAYS_H
#define CUDA_EXT_ARRAYS_H

#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "cold.h"
#include "concurrency.h"
#include "dlpack.h"
#include "driver.h"
#include "integers.h"
#include "names.h"

/* Dtypes of memory, as bits of a set. */
enum {
  DTYPE_BOOL, DTYPE_INT8, DTYPE_UINT8, DTYPE_INT16, DTYPE_UINT16, DTYPE_INT32, DTYPE_UINT32, DTYPE_INT64, DTYPE_UINT64,
  DTYPE_FLOAT16, DTYPE_BFLOAT16, DTYPE_FLOAT32, DTYPE_FLOAT64, DTYPE_COMPLEX64, DTYPE_COMPLEX128, DTYPE_COUNT,
};
enum { COMPLEX_DTYPES = 1 << DTYPE_COMPLEX64 | 1 << DTYPE_COMPLEX128, OTHER_DTYPE = 1 << DTYPE_COUNT, ANY_DTYPE = (1 << (DTYPE_COUNT + 1)) - 1 };
static const char* const dtype_names[DTYPE_COUNT] = {
    [DTYPE_BOOL] = "bool",       [DTYPE_INT8] = "int8",       [DTYPE_UINT8] = "uint8",         [DTYPE_INT16] = "int16",
    [DTYPE_UINT16] = "uint16",   [DTYPE_INT32] = "int32",     [DTYPE_UINT32] = "uint32",       [DTYPE_INT64] = "int64",
    [DTYPE_UINT64] = "uint64",   [DTYPE_FLOAT16] = "float16", [DTYPE_BFLOAT16] = "bfloat16",
    [DTYPE_FLOAT32] = "float32", [DTYPE_FLOAT64] = "float64", [DTYPE_COMPLEX64] = "complex64",
    [DTYPE_COMPLEX128] = "complex128",
};

typedef struct ArrayType ArrayType;

typedef struct Memory {
  uint64_t address;
  uint32_t dtype; /* one bit; 0 if it is not known */
  int device;
} Memory;

enum { MOST_AXES = 16 };

/* Where the elements of an array lie. The numbers, which count elements, are the array's own, or `numbers`. */
typedef struct Layout {
  PyObject* array; /* whose layout this is; NULL for none */
  int axes;
  const int64_t *shape, *strides;
  int64_t numbers[2 * MOST_AXES];
} Layout;

/* Where tensors of PyTorch say that they are negated or conjugated views; known_types.py finds out. */
typedef struct Negation {
  PyObject* is_neg;        /* the method, asked if there are no keys; NULL if the library has no such views */
  unsigned implementation; /* offset in the Python object of the pointer to the tensor's implementation */
  unsigned keys;           /* offset in that of the tensor's set of dispatch keys */
  unsigned long long key;  /* those of negated and of conjugated views; 0 if they are not known */
} Negation;

struct ArrayType {
  PyTypeObject* type;
  /* Both return 0, or -1, perhaps with an exception, where the array has to be read carefully. */
  int (*read)(const Names*, const ArrayType*, PyObject* array, Memory* memory);
  int (*read_layout)(const Names*, const ArrayType*, PyObject* array, Layout* layout);
  int (*current_stream)(const Names*, const ArrayType*, int device, CUstream* stream);
  const DLExchange* exchange;
  Negation negation;
  PyObject *data_ptr, *get_device; /* of PyTorch without an exchange: methods of Tensor */
  PyObject* stream_of_device;      /* of libraries without an exchange: a function */
  PyObject* dtypes[DTYPE_COUNT];   /* of libraries without an exchange: its objects, or NULL */
};

enum { MOST_ARRAY_TYPES = 16 }; /* a handful of libraries, each with one or two */

typedef struct KnownTypes {
  ArrayType arrays[MOST_ARRAY_TYPES]; /* which only grow */
  int array_count;
  PyObject* values; /* a dictionary whose keys are addresses of types: numbers of numpy, and structures. Python adds a
                     * type after a launch with one, and removes it when the type dies. */
} KnownTypes;

/* The type of `array`, or NULL if it is not registered. */
static const ArrayType* find_array_type(const KnownTypes* types, PyObject* array) {
  const int count = LOAD(types->array_count);
  for (int i = 0; i < count; i++) {
    if (types->arrays[i].type == Py_TYPE(array)) return &types->arrays[i];
  }
  return NULL;
}

/* Whether C may convert `object`: its type is one of numpy or ctypes, whose conversions it knows. */
static int is_known_value(const KnownTypes* types, PyObject* object) {
  PyObject* address = PyLong_FromVoidPtr(Py_TYPE(object));
  const int is_known = address && PyDict_Contains(types->values, address) == 1;
  Py_XDECREF(address);
  return is_known;
}

static uint32_t dtype_of_dlpack(DLDataType dtype) {
  enum { OTHER = DTYPE_COUNT };
  /* By code, and by size: 8, 16, 32, 64 and 128 bits. */
  static const uint8_t dtypes[][5] = {
      [kDLInt] = {DTYPE_INT8, DTYPE_INT16, DTYPE_INT32, DTYPE_INT64, OTHER},
      [kDLUInt] = {DTYPE_UINT8, DTYPE_UINT16, DTYPE_UINT32, DTYPE_UINT64, OTHER},
      [kDLFloat] = {OTHER, DTYPE_FLOAT16, DTYPE_FLOAT32, DTYPE_FLOAT64, OTHER},
      [kDLOpaqueHandle] = {OTHER, OTHER, OTHER, OTHER, OTHER},
      [kDLBfloat] = {OTHER, DTYPE_BFLOAT16, OTHER, OTHER, OTHER},
      [kDLComplex] = {OTHER, OTHER, OTHER, DTYPE_COMPLEX64, DTYPE_COMPLEX128},
      [kDLBool] = {DTYPE_BOOL, OTHER, OTHER, OTHER, OTHER},
  };
  if (dtype.code > kDLBool || dtype.lanes != 1) return OTHER_DTYPE;
  switch (dtype.bits) {
    case 8: return 1u << dtypes[dtype.code][0];
    case 16: return 1u << dtypes[dtype.code][1];
    case 32: return 1u << dtypes[dtype.code][2];
    case 64: return 1u << dtypes[dtype.code][3];
    case 128: return 1u << dtypes[dtype.code][4];
    default: return OTHER_DTYPE;
  }
}

static uint32_t dtype_of_object(const ArrayType* type, PyObject* dtype) {
  for (int i = 0; i < DTYPE_COUNT; i++) {
    if (type->dtypes[i] == dtype) return 1u << i;
  }
  return 0;
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

/* Whether `array`, of this dtype, is neither negated nor conjugated. The methods take longer than all else here, so look at
 * what they look at. */
static int is_as_in_memory(const Negation* negation, PyObject* array, uint32_t dtype) {
  if (negation->key) {
    const char* implementation;
    unsigned long long keys;
    memcpy(&implementation, (const char*)array + negation->implementation, sizeof implementation);
    if (!implementation) return 0;
    memcpy(&keys, implementation + negation->keys, sizeof keys);
    return !(keys & negation->key);
  }
  if (dtype & COMPLEX_DTYPES) return 0;
  PyObject* answer = PyObject_CallOneArg(negation->is_neg, array);
  Py_XDECREF(answer); /* True and False live longer */
  return answer == Py_False;
}

/* Set the `axes` entries of `shape` or `strides` in the numbers of `layout` to those of a tuple, to which this drops the
 * reference, and which may be NULL; they are multiples of `unit`. */
COLD static int take_numbers(Layout* layout, PyObject* tuple, int64_t* numbers, long long unit) {
  if (!tuple) return -1;
  const Py_ssize_t count = PyTuple_Check(tuple) ? PyTuple_GET_SIZE(tuple) : -1;
  int outcome = count < 0 || count > MOST_AXES || (layout->axes >= 0 && count != layout->axes) || unit <= 0;
  for (Py_ssize_t i = 0; i < count && !outcome; i++) {
    long long number;
    PyObject* item = PyTuple_GET_ITEM(tuple, i);
    outcome = !PyLong_CheckExact(item) || take_long_long(item, &number) || number % unit;
    if (!outcome) numbers[i] = number / unit;
  }
  layout->axes = (int)count;
  Py_DECREF(tuple);
  return outcome ? -1 : 0;
}

/* Set `layout` to these tuples, of which the second counts units. */
COLD static int take_layout(Layout* layout, PyObject* shape, PyObject* strides, long long unit) {
  layout->axes = -1;
  layout->shape = layout->numbers;
  layout->strides = layout->numbers + MOST_AXES;
  const int outcome = take_numbers(layout, shape, layout->numbers, 1);
  return take_numbers(layout, strides, layout->numbers + MOST_AXES, unit) || outcome ? -1 : 0;
}

/* Arrays of a type with `__dlpack_c_exchange_api__`. */

static int read_exchanged(const Names* names, const ArrayType* type, PyObject* array, Memory* memory) {
  (void)names;
  DLTensor tensor;
  if (type->exchange->tensor_from_object(array, &tensor)) return -1;
  if (tensor.device.device_type != kDLCUDA) return -1;
  memory->address = tensor.data ? (uint64_t)(uintptr_t)tensor.data + tensor.byte_offset : 0;
  memory->dtype = dtype_of_dlpack(tensor.dtype);
  if (type->negation.is_neg && !is_as_in_memory(&type->negation, array, memory->dtype)) return -1;
  memory->device = tensor.device.device_id;
  return 0;
}

static int layout_exchanged(const Names* names, const ArrayType* type, PyObject* array, Layout* layout) {
  (void)names;
  DLTensor tensor;
  if (type->exchange->tensor_from_object(array, &tensor)) return -1;
  if (!tensor.shape || !tensor.strides) return -1; /* a scalar, or contiguous elements */
  layout->axes = tensor.ndim;
  layout->shape = tensor.shape;
  layout->strides = tensor.strides;
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
  PyObject* is_cuda = PyObject_GetAttr(array, names->is_cuda); /* other accelerators number their devices, too */
  Py_XDECREF(is_cuda);
  if (is_cuda != Py_True) return -1;
  if (take_device(PyObject_CallOneArg(type->get_device, array), &memory->device)) return -1;
  if (!is_as_in_memory(&type->negation, array, memory->dtype)) return -1;
  return take_unsigned(PyObject_CallOneArg(type->data_ptr, array), &memory->address);
}

static int layout_of_tensor(const Names* names, const ArrayType* type, PyObject* array, Layout* layout) {
  (void)type;
  PyObject* shape = PyObject_GetAttr(array, names->shape);
  return take_layout(layout, shape, shape ? PyObject_CallMethodNoArgs(array, names->stride) : NULL, 1);
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

static int layout_of_cupy(const Names* names, const ArrayType* type, PyObject* array, Layout* layout) {
  (void)type;
  uint64_t size;
  if (take_unsigned(PyObject_GetAttr(array, names->itemsize), &size) || size > INT32_MAX) return -1;
  PyObject* shape = PyObject_GetAttr(array, names->shape);
  return take_layout(layout, shape, shape ? PyObject_GetAttr(array, names->strides) : NULL, (long long)size);
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
