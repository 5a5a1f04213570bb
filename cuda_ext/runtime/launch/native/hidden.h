/* Hidden parameters, which are no arguments of a call, since a launch derives their values. */
#ifndef CUDA_EXT_HIDDEN_H
#define CUDA_EXT_HIDDEN_H

#include "extents.h"

/* Where the value comes from, if it is no Part of an argument. */
typedef enum Source {
  ZERO = 'z',
  SCRATCH = 'm', /* the address of memory */
} Source;

typedef struct Hidden {
  uint16_t position;     /* among all parameters */
  uint16_t offset, size; /* as those of a Parameter */
  Term term;             /* its part may be a Source, which needs no argument */
} Hidden;

/* Read (position, size, source, argument, axis) as one of `count` parameters in all, of which these take arguments.
 * Returns 0, or -1 with an exception. */
static int parse_hidden(PyObject* source, const Parameter* parameters, int parameter_count, int count, Hidden* hidden) {
  unsigned position, size, argument, axis;
  int part;
  if (!PyArg_ParseTuple(source, "IICII", &position, &size, &part, &argument, &axis)) return -1;
  int is_valid = position < (unsigned)count && size > 0 && size <= UINT16_MAX;
  if (part == SCRATCH) {
    is_valid = is_valid && size == sizeof(CUdeviceptr);
  } else if (part != ZERO) {
    const int is_whole = size == 1 || size == 2 || size == 4 || size == 8;
    is_valid = is_valid && is_whole && part != ITSELF && is_term(parameters, parameter_count, argument, part, axis);
  }
  if (!is_valid) {
    PyErr_SetString(PyExc_ValueError, "invalid hidden parameter");
    return -1;
  }
  *hidden = (Hidden){(uint16_t)position, 0, (uint16_t)size, {(uint16_t)argument, (uint8_t)part, (uint16_t)axis}};
  return 0;
}

/* Write the value of `hidden`, and 0 for an address that is not known yet. Returns as take_extent. */
static int derive_value(const State* state, const Hidden* hidden, PyObject* const* arguments, Layout* layout,
                        unsigned char* memory) {
  if (hidden->term.part == ZERO || hidden->term.part == SCRATCH) {
    memset(memory, 0, hidden->size);
    return 0;
  }
  long long extent;
  if (take_extent(state, &hidden->term, arguments, layout, &extent)) return -1;
  const unsigned bits = 8u * hidden->size;
  if (bits < 64 && (extent < -(1LL << (bits - 1)) || extent >= 1LL << (bits - 1))) return -1;
  memcpy(memory, &extent, sizeof extent); /* which have 8 bytes in any case */
  return 0;
}

#endif
