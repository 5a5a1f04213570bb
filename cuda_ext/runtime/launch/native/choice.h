/* Which of several variants a launch takes: the first of which all comparisons hold. */
#ifndef CUDA_EXT_CHOICE_H
#define CUDA_EXT_CHOICE_H

#include <string.h>

#include "extents.h"

/* `term % modulus <symbol> number`, without the remainder if the modulus is 0, which a candidate requires. */
typedef struct Comparison {
  int candidate;
  Term term;
  long long modulus;
  enum { LESS, LESS_OR_EQUAL, EQUAL, NOT_EQUAL, GREATER_OR_EQUAL, GREATER } symbol;
  long long number;
} Comparison;

/* The comparisons of each candidate lie together. */
typedef struct Choice {
  int otherwise; /* the candidate that is taken if no other is; -1 if there is none */
  int count;
  Comparison comparisons[];
} Choice;

static int parse_symbol(const char* text) {
  static const char* const symbols[] = {"<", "<=", "==", "!=", ">=", ">"};
  for (int i = LESS; i <= GREATER; i++) {
    if (!strcmp(symbols[i], text)) return i;
  }
  return -1;
}

/* Whether values of `parameter` are compared, or what is taken of an array that it takes. */
static int is_comparable(const Parameter* parameter, int part) {
  return part != ITSELF || parameter->kind == SIGNED || parameter->kind == UNSIGNED || parameter->kind == POINTER;
}

/* Read (((candidate, argument, part, axis, modulus, operator, number), ...), otherwise), the operator as Python writes
 * it. NULL with an exception if it is invalid. To be freed with PyMem_Free. */
static Choice* parse_choice(PyObject* source, const Parameter* parameters, int parameter_count,
                            Py_ssize_t candidate_count) {
  int otherwise;
  PyObject* comparisons;
  if (!PyArg_ParseTuple(source, "O!i", &PyTuple_Type, &comparisons, &otherwise)) return NULL;
  const Py_ssize_t count = PyTuple_GET_SIZE(comparisons);
  Choice* choice = PyMem_Malloc(sizeof *choice + (size_t)count * sizeof *choice->comparisons);
  if (!choice) return (Choice*)PyErr_NoMemory();
  *choice = (Choice){otherwise, (int)count};
  int is_valid = otherwise >= -1 && otherwise < candidate_count;
  for (Py_ssize_t i = 0; i < count && is_valid; i++) {
    Comparison* each = &choice->comparisons[i];
    const char* text;
    unsigned argument, axis;
    int part;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(comparisons, i), "iICILsL", &each->candidate, &argument, &part, &axis,
                          &each->modulus, &text, &each->number)) {
      PyMem_Free(choice);
      return NULL;
    }
    const int symbol = parse_symbol(text);
    is_valid = symbol >= 0 && each->modulus >= 0 && is_term(parameters, parameter_count, argument, part, axis) &&
               is_comparable(&parameters[argument], part) && each->candidate >= 0 && each->candidate < candidate_count;
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
  for (int i = 0; i < choice->count;) {
    const int candidate = choice->comparisons[i].candidate;
    int is_taken = 1;
    for (; i < choice->count && choice->comparisons[i].candidate == candidate; i++) {
      const Comparison* comparison = &choice->comparisons[i];
      long long value;
      if (!is_taken) continue;
      if (take_term(state, &comparison->term, parameters, arguments, memory, layout, &value)) return -1;
      is_taken = holds(comparison, value);
    }
    if (is_taken) return candidate;
  }
  return choice->otherwise;
}

#endif
