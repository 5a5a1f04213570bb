/* The parameters of a kernel, and the conversion of arguments to what the driver copies. */
#ifndef CUDA_EXT_ARGUMENTS_H
#define CUDA_EXT_ARGUMENTS_H

#include <math.h>
#include <string.h>

#include "cold.h"
#include "integers.h"
#include "state.h"
#include "structures.h"

enum { MOST_PARAMETERS = 128, MOST_BYTES = 4096 };

/* What a parameter takes. */
typedef enum Kind {
  SIGNED = 'i',
  UNSIGNED = 'u',
  EITHER_SIGN = 'e', /* an enumeration, whose underlying type may be signed or not */
  BOOLEAN = 'b',
  REAL = 'f',
  BRAIN = 'g', /* bfloat16 */
  COMPLEX = 'c',
  BYTES = 's',   /* which may hold addresses */
  NUMBERS = 'v', /* the bytes of a vector or another structure that holds none */
  POINTER = 'p',
} Kind;

typedef struct Parameter {
  uint32_t dtypes;         /* of arrays that a pointer takes */
  uint16_t offset, size;   /* of the value in the memory of a launch, in bytes */
  uint8_t kind;            /* a Kind */
  uint8_t has_pointers;    /* whether it is a structure with pointers */
  PyTypeObject* structure; /* the class of the structures that it takes, a subclass of Structure; NULL for none */
} Parameter;

/* Whether C takes values of `kind` in so many bytes. */
static int is_supported(int kind, unsigned size) {
  switch (kind) {
    case SIGNED:
    case UNSIGNED:
    case EITHER_SIGN: return size == 1 || size == 2 || size == 4 || size == 8;
    case BOOLEAN: return size == 1;
    case BRAIN: return size == 2;
    case REAL: return size == 2 || size == 4 || size == 8;
    case COMPLEX: return size == 8 || size == 16;
    case POINTER: return size == 8;
    case NUMBERS:
    case BYTES: return size > 0 && size <= UINT16_MAX; /* with more than MOST_BYTES, launches are careful */
  }
  return 0;
}

static int parse_dtypes(PyObject* names, uint32_t* dtypes) {
  *dtypes = PyTuple_GET_SIZE(names) ? 0 : ANY_DTYPE;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
    const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, i));
    if (!name) return -1;
    for (int j = 0; j < DTYPE_COUNT; j++) {
      if (!strcmp(name, dtype_names[j])) *dtypes |= 1u << j;
    }
  }
  return 0;
}

/* Read (name, kind, size, (dtype, ...), structure); without dtypes, a pointer takes arrays of any. The name is interned.
 * It and the structure are new references. Returns 0, or -1 with an exception and without references. */
static int parse_parameter(const State* state, PyObject* source, Parameter* parameter, PyObject** name) {
  int kind;
  unsigned size;
  PyObject *dtypes, *structure = Py_None;
  if (!PyArg_ParseTuple(source, "UCIO!|O", name, &kind, &size, &PyTuple_Type, &dtypes, &structure)) return -1;
  if (structure != Py_None &&
      !(PyType_Check(structure) && PyType_IsSubtype((PyTypeObject*)structure, state->structure_type))) {
    PyErr_Format(PyExc_TypeError, "expected a class of structures, found %R", structure);
    return -1;
  }
  int has_pointers = 0;
  if (structure != Py_None) {
    PyObject* references = PyObject_GetAttr(structure, state->names.references);
    has_pointers = references ? PyObject_IsTrue(references) : -1;
    Py_XDECREF(references);
    if (has_pointers < 0) return -1;
  }
  if (!is_supported(kind, size)) {
    PyErr_Format(PyExc_ValueError, "invalid kind %c of %u bytes", kind, size);
    return -1;
  }
  parameter->kind = (uint8_t)kind;
  parameter->size = (uint16_t)size;
  if (parse_dtypes(dtypes, &parameter->dtypes)) return -1;
  Py_INCREF(*name);
  PyUnicode_InternInPlace(name);
  parameter->structure = structure == Py_None ? NULL : (PyTypeObject*)Py_NewRef(structure);
  parameter->has_pointers = (uint8_t)has_pointers;
  return 0;
}

/* Where a value of so many bytes ends that begins at `offset`; small values take 8 bytes, too. */
static unsigned end_of(unsigned offset, unsigned size) {
  return offset + (size + 7u) / 8 * 8;
}

/* Place the value of `parameter` behind those that end at `end`, and return where it ends. */
static unsigned place_parameter(Parameter* parameter, unsigned end) {
  parameter->offset = (uint16_t)end;
  return end_of(end, parameter->size);
}

static int take_integer(const Parameter* parameter, PyObject* number, unsigned char* memory) {
  const unsigned bits = 8 * parameter->size;
  long long value;
  if (take_long_long(number, &value)) {
    /* Of these numbers, only 64 bits without a sign hold any. */
    uint64_t large;
    if (bits < 64 || parameter->kind == SIGNED || take_unsigned_long_long(number, &large)) return -1;
    memcpy(memory, &large, sizeof large);
    return 0;
  }
  if (bits < 64) {
    const long long half = 1LL << (bits - 1);
    if (value < (parameter->kind == UNSIGNED ? 0 : -half)) return -1;
    if (value >= (parameter->kind == SIGNED ? half : 2 * half)) return -1;
  } else if (value < 0 && parameter->kind == UNSIGNED) {
    return -1;
  }
  memcpy(memory, &value, sizeof value); /* little-endian, as every machine with a GPU */
  return 0;
}

/* An integer of numpy. */
COLD static int convert_integer(const State* state, const Parameter* parameter, PyObject* argument,
                                unsigned char* memory) {
  if (!is_known_value(&state->types, argument)) return -1;
  PyObject* number = PyNumber_Index(argument);
  const int outcome = number ? take_integer(parameter, number, memory) : -1;
  Py_XDECREF(number);
  return outcome;
}

static int take_boolean(PyObject* number, unsigned char* memory) {
  long long value;
  if (take_long_long(number, &value) || (value != 0 && value != 1)) return -1;
  *memory = (unsigned char)value;
  return 0;
}

static int write_real(double value, unsigned size, unsigned char* memory) {
  if (size == 2) return PyFloat_Pack2(value, (char*)memory, 1);
  if (size == 8) {
    memcpy(memory, &value, sizeof value);
    return 0;
  }
  const float single = (float)value;
  if (isinf(single) && !isinf(value)) return -1;
  memcpy(memory, &single, sizeof single);
  return 0;
}

/* The upper half of a float with eight significant bits, rounded just once. */
COLD static int write_bfloat16(double value, unsigned char* memory) {
  if (isfinite(value)) {
    int exponent;
    frexp(value, &exponent);
    if (exponent < -125) exponent = -125; /* of the smallest normal number */
    value = ldexp(rint(ldexp(value, 8 - exponent)), exponent - 8);
  }
  unsigned char single[4];
  if (write_real(value, sizeof single, single)) return -1;
  memcpy(memory, single + 2, 2);
  return 0;
}

COLD static int convert_to_double(const State* state, PyObject* argument, double* value) {
  if (!PyLong_CheckExact(argument) && !is_known_value(&state->types, argument)) return -1;
  *value = PyFloat_AsDouble(argument);
  return *value == -1 && PyErr_Occurred() ? -1 : 0;
}

/* A number of Python or numpy as a double. */
static int take_double(const State* state, PyObject* argument, double* value) {
  if (!PyFloat_CheckExact(argument)) return convert_to_double(state, argument, value);
  *value = PyFloat_AS_DOUBLE(argument);
  return 0;
}

COLD static int take_complex(const State* state, unsigned size, PyObject* argument, unsigned char* memory) {
  Py_complex value = {0, 0};
  if (PyComplex_CheckExact(argument)) {
    value = PyComplex_AsCComplex(argument);
  } else if (take_double(state, argument, &value.real)) {
    return -1;
  }
  return write_real(value.real, size / 2, memory) || write_real(value.imag, size / 2, memory + size / 2) ? -1 : 0;
}

COLD static int take_bytes(const State* state, unsigned size, PyObject* argument, unsigned char* memory) {
  if (PyBytes_CheckExact(argument)) {
    if (PyBytes_GET_SIZE(argument) != (Py_ssize_t)size) return -1;
    memcpy(memory, PyBytes_AS_STRING(argument), size);
    return 0;
  }
  Py_buffer buffer;
  if (!is_known_value(&state->types, argument)) return -1;
  if (PyObject_GetBuffer(argument, &buffer, PyBUF_CONTIG_RO | PyBUF_FORMAT)) return -1;
  /* A structure may hold Python objects. */
  const int fits = buffer.len == (Py_ssize_t)size && !(buffer.format && strchr(buffer.format, 'O'));
  if (fits) memcpy(memory, buffer.buf, size);
  PyBuffer_Release(&buffer);
  return fits ? 0 : -1;
}

static int take_pointer(const State* state, const Parameter* parameter, PyObject* argument, unsigned char* memory,
                        Placement* placement) {
  uint64_t address = 0;
  if (PyLong_CheckExact(argument)) {
    if (take_unsigned_long_long(argument, &address)) return -1;
  } else if (argument != Py_None) {
    const ArrayType* type = find_array_type(&state->types, argument);
    Memory array;
    if (!type || type->read(&state->names, type, argument, &array)) return -1;
    /* An address of 0 is that of an empty array, or of memory that has been freed. */
    if (!array.address || !(array.dtype & parameter->dtypes)) return -1;
    if (place_array(placement, type, array.device)) return -1;
    address = array.address;
  }
  memcpy(memory, &address, sizeof address);
  return 0;
}

/* The bytes of a structure of the class that `parameter` takes, made of the members in `members`. */
COLD static int take_members(const Parameter* parameter, PyObject* members, unsigned char* memory,
                             Placement* placement) {
  PyObject* made = PyObject_VectorcallDict((PyObject*)parameter->structure, NULL, 0, members);
  if (!made) return -1;
  const int fits = Py_TYPE(made) == parameter->structure && ((Structure*)made)->size == parameter->size;
  const int outcome = fits ? copy_structure((Structure*)made, memory, placement) : -1;
  Py_DECREF(made); /* the members live as long as the call */
  return outcome;
}

/* Write the value of `argument` for `parameter` to `memory`, where that has been placed. Returns 0, or -1, perhaps with
 * an exception, where the argument has to be checked carefully. */
static int take_argument(const State* state, const Parameter* parameter, PyObject* argument, unsigned char* memory,
                         Placement* placement) {
  double real;
  switch (parameter->kind) {
    case POINTER: return take_pointer(state, parameter, argument, memory, placement);
    case SIGNED:
    case UNSIGNED:
    case EITHER_SIGN:
      if (PyLong_CheckExact(argument) || PyBool_Check(argument)) return take_integer(parameter, argument, memory);
      return convert_integer(state, parameter, argument, memory);
    case BOOLEAN:
      if (!PyLong_CheckExact(argument) && !PyBool_Check(argument)) return -1;
      return take_boolean(argument, memory);
    case REAL: return take_double(state, argument, &real) ? -1 : write_real(real, parameter->size, memory);
    case BRAIN: return take_double(state, argument, &real) ? -1 : write_bfloat16(real, memory);
    case COMPLEX: return take_complex(state, parameter->size, argument, memory);
    case NUMBERS:
    case BYTES:
      placement->has_addresses |= parameter->kind == BYTES;
      if (parameter->structure && Py_TYPE(argument) == parameter->structure) {
        Structure* structure = (Structure*)argument;
        return structure->size == parameter->size ? copy_structure(structure, memory, placement) : -1;
      }
      if (parameter->structure && PyDict_CheckExact(argument)) {
        return take_members(parameter, argument, memory, placement);
      }
      placement->has_addresses |= parameter->has_pointers;
      return take_bytes(state, parameter->size, argument, memory);
  }
  return -1;
}

#endif
