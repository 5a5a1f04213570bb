/* Shapes and strides of array arguments, which hidden parameters take and conditions compare. */
#ifndef CUDA_EXT_EXTENTS_H
#define CUDA_EXT_EXTENTS_H

#include "arguments.h"

/* What is taken of an argument. */
typedef enum Part {
  ITSELF = 'v', /* its value */
  SHAPE = 's',
  STRIDE = 'd',
} Part;

typedef struct Term {
  uint16_t argument; /* its position among the parameters that are no hidden ones */
  uint8_t part;      /* a Part */
  uint8_t axis;
} Term;

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
