/* The launch configuration: the keywords of a call, checked against what a loaded kernel supports. */
#ifndef CUDA_EXT_CONFIGURATION_H
#define CUDA_EXT_CONFIGURATION_H

#include "integers.h"
#include "state.h"

/* The launch options of a call; NULL where one is not given. */
typedef struct Options {
  PyObject *grid, *block, *threads, *shared, *stream, *like;
} Options;

/* A kernel that is loaded on a device, and the limits of its launches. */
typedef struct LoadedKernel {
  CUfunction function; /* NULL if it is not loaded */
  CUcontext context;
  unsigned largest_grid[3], largest_block[3];
  unsigned most_threads;             /* in a block */
  unsigned allowed_shared;           /* dynamic shared memory, in bytes; it only grows */
  unsigned best_block, best_shared;  /* the block with the best occupancy for that much of it; 0 if not known */
} LoadedKernel;

/* Whether `name` is an option that only the careful launcher takes, even if a parameter has that name. */
static int is_careful_option(const Names* names, PyObject* name) {
  return name == names->cluster || name == names->cooperative || name == names->dependent || name == names->wait;
}

/* Where to store the value of the option `name`; NULL if that is none, or one that is taken carefully. */
static PyObject** find_option(const Names* names, Options* options, PyObject* name) {
  if (name == names->grid) return &options->grid;
  if (name == names->block) return &options->block;
  if (name == names->stream) return &options->stream;
  if (name == names->threads) return &options->threads;
  if (name == names->shared) return &options->shared;
  if (name == names->like) return &options->like;
  return NULL;
}

static int is_given(PyObject* option) {
  return option && option != Py_None;
}

static int take_count(PyObject* object, long long lowest, long long highest, unsigned* count) {
  if (!PyLong_CheckExact(object)) return -1;
  long long value;
  if (take_long_long(object, &value) || value < lowest || value > highest) return -1;
  *count = (unsigned)value;
  return 0;
}

/* An int, or a tuple of up to three. */
static int take_extents(PyObject* object, const unsigned largest[3], unsigned extents[3]) {
  extents[0] = extents[1] = extents[2] = 1;
  if (!PyTuple_CheckExact(object)) return take_count(object, 1, largest[0], &extents[0]);
  const Py_ssize_t size = PyTuple_GET_SIZE(object);
  if (size < 1 || size > 3) return -1;
  for (Py_ssize_t i = 0; i < size; i++) {
    if (take_count(PyTuple_GET_ITEM(object, i), 1, largest[i], &extents[i])) return -1;
  }
  return 0;
}

/* Divide `threads` into blocks, which have the best occupancy unless the call says their size. */
static int divide(PyObject* threads, const LoadedKernel* kernel, LaunchConfig* config, unsigned block) {
  long long count;
  if (!PyLong_CheckExact(threads) || take_long_long(threads, &count) || count < 0 || !block) return -1;
  const long long blocks = count ? (count - 1) / block + 1 : 1;
  if (blocks > kernel->largest_grid[0]) return -1;
  config->grid[0] = (unsigned)blocks;
  config->grid[1] = config->grid[2] = 1;
  return 0;
}

/* Check `options` and fill `config`, but for its stream. Returns 0, or -1 where they have to be checked carefully. */
static int configure(const Options* options, const LoadedKernel* kernel, LaunchConfig* config) {
  config->attributes = NULL;
  config->attribute_count = 0;
  config->shared = 0;
  if (options->shared && take_count(options->shared, 0, kernel->allowed_shared, &config->shared)) return -1;
  unsigned* block = config->block;
  unsigned long long count;
  if (is_given(options->block)) {
    if (take_extents(options->block, kernel->largest_block, block)) return -1;
    count = (unsigned long long)block[0] * block[1] * block[2];
  } else {
    if (!is_given(options->threads) || kernel->best_shared != config->shared) return -1;
    count = block[0] = kernel->best_block;
    block[1] = block[2] = 1;
  }
  if (count > kernel->most_threads) return -1;
  if (!is_given(options->threads)) {
    return is_given(options->grid) ? take_extents(options->grid, kernel->largest_grid, config->grid) : -1;
  }
  return is_given(options->grid) ? -1 : divide(options->threads, kernel, config, (unsigned)count);
}

/* Fill the grid of `config`, a fixed configuration, whose grid is the number of blocks for each element of the grid of
 * the call. Returns as above. */
static int configure_grid(const Options* options, const LoadedKernel* kernel, LaunchConfig* config) {
  const unsigned blocks[3] = {config->grid[0], config->grid[1], config->grid[2]};
  if (options->block || options->threads || options->shared || !is_given(options->grid)) return -1;
  unsigned largest[3];
  for (int i = 0; i < 3; i++) largest[i] = kernel->largest_grid[i] / blocks[i];
  if (take_extents(options->grid, largest, config->grid)) return -1;
  for (int i = 0; i < 3; i++) config->grid[i] *= blocks[i];
  return 0;
}

#endif
