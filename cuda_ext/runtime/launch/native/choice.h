/* Which of several variants a launch takes: comparisons of its integers, each with two ways to go on. */
#ifndef CUDA_EXT_CHOICE_H
#define CUDA_EXT_CHOICE_H

#include <string.h>

#include "extents.h"

/* `term % modulus <symbol> number`, without the remainder if the modulus is 0. `then` and `otherwise` are the
 * positions of earlier comparisons, or candidates: -1 is the first, -2 the second, and so on; the number behind the last
 * candidate is where none is taken. */
typedef struct Comparison {
  Term term;
  long long modulus;
  enum { LESS, LESS_OR_EQUAL, EQUAL, NOT_EQUAL, GREATER_OR_EQUAL, GREATER } symbol;
  long long number;
  int then, otherwise;
} Comparison;

typedef struct Choice {
  int start; /* where to begin, as in `then` */
  Comparison comparisons[];
} Choice;

static int parse_symbol(const char* text) {
  static const char* const symbols[] = {"<", "<=", "==", "!=", ">=", ">"};
  for (int i = LESS; i <= GREATER; i++) {
    if (!strcmp(symbols[i], text)) return i;
  }
  return -1;
}

/* Whether a comparison at `position`, or the start behind all, may go on with `target`: so no choice is endless. */
static int is_target(int target, Py_ssize_t position, Py_ssize_t candidate_count) {
  return target < 0 ? -(Py_ssize_t)target <= candidate_count + 1 : target < position;
}

/* Whether values of `parameter` are compared, or what is taken of an array that it takes. */
static int is_comparable(const Parameter* parameter, int part) {
  return part != ITSELF || parameter->kind == SIGNED || parameter->kind == UNSIGNED || parameter->kind == POINTER;
}

/* Read (start, ((argument, part, axis, modulus, operator, number, then, otherwise), ...)), the symbol as Python writes it.
 * NULL with an exception if it is invalid. To be freed with PyMem_Free. */
static Choice* parse_choice(PyObject* source, const Parameter* parameters, int parameter_count,
                            Py_ssize_t candidate_count) {
  int start;
  PyObject* comparisons;
  if (!PyArg_ParseTuple(source, "iO!", &start, &PyTuple_Type, &comparisons)) return NULL;
  const Py_ssize_t count = PyTuple_GET_SIZE(comparisons);
  Choice* choice = PyMem_Malloc(sizeof *choice + (size_t)count * sizeof *choice->comparisons);
  if (!choice) return (Choice*)PyErr_NoMemory();
  choice->start = start;
  int is_valid = is_target(start, count, candidate_count);
  for (Py_ssize_t i = 0; i < count && is_valid; i++) {
    Comparison* each = &choice->comparisons[i];
    const char* text;
    unsigned argument, axis;
    int part;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(comparisons, i), "ICILsLii", &argument, &part, &axis, &each->modulus, &text,
                          &each->number, &each->then, &each->otherwise)) {
      PyMem_Free(choice);
      return NULL;
    }
    const int symbol = parse_symbol(text);
    is_valid = symbol >= 0 && each->modulus >= 0 && is_term(parameters, parameter_count, argument, part, axis) &&
               is_comparable(&parameters[argument], part) && is_target(each->then, i, candidate_count) &&
               is_target(each->otherwise, i, candidate_count);
    if (is_valid) {
      each->symbol = symbol;
      each->term = (Term){(uint16_t)argument, (uint8_t)part, (uint8_t)axis};
    }
  }
  if (is_valid) return choice;
  PyMem_Free(choice);
  PyErr_SetString(PyExc_ValueError, "invalid choice");
  return NULL;
}

static int holds(const Comparison* comparison, long long value) {
  if (comparison->modulus) {
    value %= comparison->modulus;
    if (value < 0) value += comparison->modulus; /* as in Python */
  }
  switch (comparison->symbol) {
    case LESS: return value < comparison->number;
    case LESS_OR_EQUAL: return value <= comparison->number;
    case EQUAL: return value == comparison->number;
    case NOT_EQUAL: return value != comparison->number;
    case GREATER_OR_EQUAL: return value >= comparison->number;
    case GREATER: return value > comparison->number;
  }
  return 0;
}

/* The value that `term` has of the `arguments`, whose values are in `memory`. Returns as take_extent. */
static int take_term(const State* state, const Term* term, const Parameter* parameters, PyObject* const* arguments,
                     const unsigned char* memory, Layout* layout, long long* value) {
  if (term->part != ITSELF) return take_extent(state, term, arguments, layout, value);
  const Parameter* parameter = &parameters[term->argument];
  memcpy(value, memory + parameter->offset, sizeof *value);
  return *value < 0 && parameter->kind != SIGNED ? -1 : 0; /* beyond what a signed integer holds */
}

/* The number of the candidate that the `arguments` choose; -1 if that has to be found out carefully. */
static int choose(const State* state, const Choice* choice, const Parameter* parameters, PyObject* const* arguments,
                  const unsigned char* memory, Layout* layout) {
  int at = choice->start;
  while (at >= 0) {
    const Comparison* comparison = &choice->comparisons[at];
    long long value;
    if (take_term(state, &comparison->term, parameters, arguments, memory, layout, &value)) return -1;
    at = holds(comparison, value) ? comparison->then : comparison->otherwise;
  }
  return -1 - at;
}

#endif
