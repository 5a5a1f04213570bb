/* What a launch takes of the CUDA driver, as cuda.h declares it; and the functions, once they are connected. */
#ifndef CUDA_EXT_DRIVER_H
#define CUDA_EXT_DRIVER_H

#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "cold.h"

enum { CUDA_SUCCESS = 0 };

typedef int CUresult;
typedef int CUdevice;
typedef struct CUctx_st* CUcontext;
typedef struct CUfunc_st* CUfunction;
typedef struct CUstream_st* CUstream;

typedef struct LaunchAttribute {
  uint32_t id;
  uint32_t padding;
  uint32_t numbers[16]; /* of the attributes used here, one number or the three extents of a cluster */
} LaunchAttribute;

typedef uint64_t CUdeviceptr;
typedef struct CUmemPoolHandle_st* CUmemoryPool;

typedef struct LaunchConfig {
  unsigned grid[3], block[3];
  unsigned shared; /* dynamic shared memory, in bytes */
  CUstream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
} LaunchConfig;

typedef struct Driver {
  CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned shared, CUstream,
                     void** parameters, void** extra);
  CUresult (*launch_with_attributes)(const LaunchConfig*, CUfunction, void** parameters, void** extra);
  CUresult (*current_context)(CUcontext*);
  CUresult (*current_device)(CUdevice*);
  CUresult (*context_of_stream)(CUstream, CUcontext*);
  CUresult (*push_context)(CUcontext);
  CUresult (*pop_context)(CUcontext*);
  CUresult (*allocate)(CUdeviceptr*, size_t, CUmemoryPool, CUstream);
  CUresult (*release)(CUdeviceptr, CUstream);
  int gpu_count;
} Driver;

/* NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD exist in every context. */
static int is_default(CUstream stream) {
  return (uintptr_t)stream <= 2;
}

/* The device of `stream`; for a default stream, that of the current context, or the first if there is none. Returns 0,
 * or -1. */
COLD static int find_device_of_stream(const Driver* driver, CUstream stream, int* device) {
  CUcontext context;
  if (is_default(stream)) {
    *device = 0;
    if (driver->current_context(&context) != CUDA_SUCCESS) return -1;
    return !context || driver->current_device(device) == CUDA_SUCCESS ? 0 : -1;
  }
  if (driver->context_of_stream(stream, &context) != CUDA_SUCCESS) return -1;
  if (driver->push_context(context) != CUDA_SUCCESS) return -1;
  const CUresult status = driver->current_device(device);
  driver->pop_context(&context);
  return status == CUDA_SUCCESS ? 0 : -1;
}

static CUresult call_driver(const Driver* driver, CUfunction function, const LaunchConfig* c, void** parameters) {
  if (c->attribute_count) return driver->launch_with_attributes(c, function, parameters, NULL);
  return driver->launch(function, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2], c->shared,
                        c->stream, parameters, NULL);
}

COLD static CUresult call_driver_in(CUcontext context, const Driver* driver, CUfunction function,
                                    const LaunchConfig* config, void** parameters) {
  CUresult status = driver->push_context(context);
  if (status != CUDA_SUCCESS) return status;
  status = call_driver(driver, function, config, parameters);
  driver->pop_context(&context);
  return status;
}

/* Launch `function` of `context`, and release the interpreter meanwhile. Returns 0, or -1 if nothing was launched. */
static int launch_function(const Driver* driver, CUfunction function, CUcontext context, const LaunchConfig* config,
                           void** parameters) {
  CUresult status;
  Py_BEGIN_ALLOW_THREADS;
  /* A default stream is that of the current context. There may be none, or one of another GPU: so ask, since a failed
   * launch would be reported by tools such as compute-sanitizer. */
  CUcontext current = context;
  if (is_default(config->stream)) driver->current_context(&current);
  status = current == context ? call_driver(driver, function, config, parameters)
                              : call_driver_in(context, driver, function, config, parameters);
  Py_END_ALLOW_THREADS;
  return status == CUDA_SUCCESS ? 0 : -1;
}

/* The global memory that a launch allocates for the kernel. */
typedef struct Scratch {
  uint64_t size; /* in bytes; 0 for none */
  CUmemoryPool pool;
  void* address; /* where the parameter is that takes the address */
} Scratch;

/* Launch as above, with memory that is allocated and freed in the order of the stream. */
COLD static int launch_with_scratch(const Driver* driver, CUfunction function, CUcontext context,
                                    const LaunchConfig* config, void** parameters, const Scratch* scratch) {
  CUresult status;
  Py_BEGIN_ALLOW_THREADS;
  status = driver->push_context(context);
  if (status == CUDA_SUCCESS) {
    CUdeviceptr memory;
    status = driver->allocate(&memory, scratch->size, scratch->pool, config->stream);
    if (status == CUDA_SUCCESS) {
      memcpy(scratch->address, &memory, sizeof memory);
      status = call_driver(driver, function, config, parameters);
      driver->release(memory, config->stream);
    }
    driver->pop_context(&context);
  }
  Py_END_ALLOW_THREADS;
  return status == CUDA_SUCCESS ? 0 : -1;
}

#endif
