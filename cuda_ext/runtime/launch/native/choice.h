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

/* Whether conditions compare this part of the argument: its value, what is taken of an array, or a member behind `axis`
 * bytes. */
static int is_comparable(const Parameter* parameters, int parameter_count, unsigned argument, int part, unsigned axis) {
  const unsigned size = member_size(part);
  if (!size && !is_term(parameters, parameter_count, argument, part, axis)) return 0;
  if (argument >= (unsigned)parameter_count) return 0;
  const Parameter* parameter = &parameters[argument];
  if (size) {
    return (parameter->kind == BYTES || parameter->kind == NUMBERS) && axis <= parameter->size &&
           size <= parameter->size - axis;
  }
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
    is_valid = symbol >= 0 && each->modulus >= 0 && is_comparable(parameters, parameter_count, argument, part, axis) && each->candidate >= 0 && each->candidate < candidate_count;
    if (is_valid) {
      each->symbol = symbol;
      each->term = (Term){(uint16_t)argument, (uint8_t)part, (uint16_t)axis};
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

/* The integer of `size` bytes at `memory`. Returns 0, or -1 beyond what a signed integer holds. */
static int take_member(const unsigned char* memory, unsigned size, int is_signed, long long* value) {
  uint64_t bits = 0;
  memcpy(&bits, memory, size); /* little-endian, as every machine with a GPU */
  const uint64_t sign = (uint64_t)1 << (8 * size - 1);
  if (is_signed) bits = (bits ^ sign) - sign;
  memcpy(value, &bits, sizeof *value);
  return *value < 0 && !is_signed ? -1 : 0;
}

/* The value that `term` has of the `arguments`, whose values are in `memory`. Returns as take_extent. */
static int take_term(const State* state, const Term* term, const Parameter* parameters, PyObject* const* arguments,
                     const unsigned char* memory, Layout* layout, long long* value) {
  const Parameter* parameter = &parameters[term->argument];
  const unsigned size = member_size(term->part);
  if (size) return take_member(memory + parameter->offset + term->axis, size, term->part >= 'a', value);
  if (term->part != ITSELF) return take_extent(state, term, arguments, layout, value);
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
