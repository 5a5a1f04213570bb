/* Shapes and strides of array arguments, which hidden parameters take and conditions compare, and members of structures. */
#ifndef CUDA_EXT_EXTENTS_H
#define CUDA_EXT_EXTENTS_H

#include "arguments.h"

/* What is taken of an argument; or a letter of `struct` for an integer that is a member of a structure. */
typedef enum Part {
  ITSELF = 'v', /* its value */
  SHAPE = 's',
  STRIDE = 'd',
} Part;

typedef struct Term {
  uint16_t argument; /* its position among the parameters that are no hidden ones */
  uint8_t part;      /* a Part, or the letter of a member */
  uint16_t axis;     /* or the offset of a member */
} Term;

/* The bytes of the member that `part` is the letter of; 0 if it is none. Capitals have no sign. */
static unsigned member_size(int part) {
  switch (part) {
    case 'b':
    case 'B': return 1;
    case 'h':
    case 'H': return 2;
    case 'i':
    case 'I': return 4;
    case 'q':
    case 'Q': return 8;
  }
  return 0;
}

/* Whether `term` is one of a launch with these parameters. */
static int is_term(const Parameter* parameters, int parameter_count, unsigned argument, int part, unsigned axis) {
  if (argument >= (unsigned)parameter_count || axis >= MOST_AXES) return 0;
  return part == ITSELF || ((part == SHAPE || part == STRIDE) && parameters[argument].kind == POINTER);
}

/* An entry of the shape or the strides of an argument; `layout` is that of an earlier call, or has no array. Returns 0, or
 * -1, perhaps with an exception, where the array has to be read carefully. */
static int take_extent(const State* state, const Term* term, PyObject* const* arguments, Layout* layout,
                       long long* extent) {
  PyObject* array = arguments[term->argument];
  if (layout->array != array) {
    layout->array = NULL;
    const ArrayType* type = find_array_type(&state->types, array);
    if (!type || type->read_layout(&state->names, type, array, layout)) return -1;
    layout->array = array;
  }
  if (term->axis >= layout->axes) return -1;
  *extent = (term->part == SHAPE ? layout->shape : layout->strides)[term->axis];
  return 0;
}

#endif
