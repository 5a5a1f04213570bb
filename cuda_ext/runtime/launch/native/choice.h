/* Which of several variants a launch takes: comparisons of its integers, each with two ways to go on. */
#ifndef CUDA_EXT_CHOICE_H
#define CUDA_EXT_CHOICE_H

#include <string.h>

#include "arguments.h"

/* `argument % modulus <symbol> number`, without the remainder if the modulus is 0. `then` and `otherwise` are the
 * positions of earlier comparisons, or candidates: -1 is the first, -2 the second, and so on; the number behind the last
 * candidate is where none is taken. */
typedef struct Comparison {
  unsigned parameter;
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

static int is_integer(const Parameter* parameter) {
  return parameter->kind == SIGNED || parameter->kind == UNSIGNED || parameter->kind == POINTER;
}

/* Read (start, ((parameter, modulus, operator, number, then, otherwise), ...)), the symbol as Python writes it.
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
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(comparisons, i), "ILsLii", &each->parameter, &each->modulus, &text,
                          &each->number, &each->then, &each->otherwise)) {
      PyMem_Free(choice);
      return NULL;
    }
    const int symbol = parse_symbol(text);
    is_valid = symbol >= 0 && each->modulus >= 0 && each->parameter < (unsigned)parameter_count &&
               is_integer(&parameters[each->parameter]) && is_target(each->then, i, candidate_count) &&
               is_target(each->otherwise, i, candidate_count);
    if (is_valid) each->symbol = symbol;
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

/* The number of the candidate that the values in `memory` choose; -1 if that has to be found out carefully. */
static int choose(const Choice* choice, const Parameter* parameters, const unsigned char* memory) {
  int at = choice->start;
  while (at >= 0) {
    const Comparison* comparison = &choice->comparisons[at];
    const Parameter* parameter = &parameters[comparison->parameter];
    long long value;
    memcpy(&value, memory + parameter->offset, sizeof value);
    if (value < 0 && parameter->kind != SIGNED) return -1; /* beyond what a signed integer holds */
    at = holds(comparison, value) ? comparison->then : comparison->otherwise;
  }
  return -1 - at;
}

#endif
