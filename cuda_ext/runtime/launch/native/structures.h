/* Structures: their bytes, and the arrays whose addresses are in these. */
#ifndef CUDA_EXT_STRUCTURES_H
#define CUDA_EXT_STRUCTURES_H

#include "arrays.h"
#include "concurrency.h"

/* What the arrays of a launch have in common. */
typedef struct Placement {
  int device;             /* -1 without arrays */
  const ArrayType* first; /* the type of the first array, whose library has the stream */
  int has_addresses;      /* whether an argument may have addresses that come from no array */
} Placement;

/* What a pointer in a structure was given. */
typedef struct Reference {
  PyObject* object;      /* the array; NULL for an address */
  const ArrayType* type; /* NULL for an array that has to be read carefully */
  int device;
  uint64_t address; /* 0 for an array */
} Reference;

/* Its class in Python says how many bytes and references there are. Those of a member of another structure, or of an
 * item of one, lie in its owner. */
typedef struct Structure {
  PyObject_VAR_HEAD
  PyObject* owner; /* NULL for none */
  unsigned char* bytes;
  Reference* references;
  int size, reference_count;
} Structure;

/* The object whose lock guards the bytes of `structure`. */
static PyObject* owner_of(Structure* structure) {
  return structure->owner ? structure->owner : (PyObject*)structure;
}

/* Include an array in `placement`. Returns 0, or -1 if it is on another GPU. */
static int place_array(Placement* placement, const ArrayType* type, int device) {
  if (!placement->first) {
    placement->device = device;
    placement->first = type;
  }
  return placement->device == device ? 0 : -1;
}

/* Copy the bytes of `structure` to `memory`. Returns 0, or -1 where its arrays have to be checked carefully. */
static int copy_structure(Structure* structure, unsigned char* memory, Placement* placement) {
  int outcome = 0;
  PyObject* owner = owner_of(structure);
  (void)owner; /* which Python 3.13 ignores if it has a GIL */
  Py_BEGIN_CRITICAL_SECTION(owner);
  memcpy(memory, structure->bytes, (size_t)structure->size);
  for (int i = 0; i < structure->reference_count && !outcome; i++) {
    const Reference* each = &structure->references[i];
    if (each->object) outcome = each->type ? place_array(placement, each->type, each->device) : -1;
    if (each->address) placement->has_addresses = 1;
  }
  Py_END_CRITICAL_SECTION();
  return outcome;
}

#endif
