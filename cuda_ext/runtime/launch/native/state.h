/* What belongs to the module in one interpreter: the driver, the known types, and names. */
#ifndef CUDA_EXT_STATE_H
#define CUDA_EXT_STATE_H

#include "arrays.h"
#include "driver.h"
#include "names.h"

typedef struct State {
  Driver driver;
  int is_connected; /* to the driver; stored after its functions, and reset in a forked child */
  KnownTypes types;
  Names names;
  PyTypeObject *launch_type, *overloads_type, *grid_launch_type, *structure_type;
} State;

static struct PyModuleDef module_definition; /* by which types find the state; see module.c */

#endif
