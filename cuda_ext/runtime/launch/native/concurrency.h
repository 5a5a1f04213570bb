/* Locks and atomic accesses of free-threaded Python. With the interpreter's lock they cost nothing. */
#ifndef CUDA_EXT_CONCURRENCY_H
#define CUDA_EXT_CONCURRENCY_H

#include <Python.h>

#if PY_VERSION_HEX < 0x030D0000
#define Py_BEGIN_CRITICAL_SECTION(object) { \
  (void)(object);
#define Py_END_CRITICAL_SECTION() }
#define Py_BEGIN_CRITICAL_SECTION2(first, second) { \
  (void)(first), (void)(second);
#define Py_END_CRITICAL_SECTION2() }
#endif

/* A table that only grows: readers load its count, or a pointer in it, and a writer, alone in a critical section, stores
 * that last. */
#ifdef Py_GIL_DISABLED
#define LOAD(count) _Py_atomic_load_int_acquire(&(count))
#define STORE(count, value) _Py_atomic_store_int_release(&(count), (value))
#define LOAD_POINTER(pointer) _Py_atomic_load_ptr_acquire(&(pointer))
#define STORE_POINTER(pointer, value) _Py_atomic_store_ptr_release(&(pointer), (value))
#else
#define LOAD(count) (count)
#define STORE(count, value) ((count) = (value))
#define LOAD_POINTER(pointer) (pointer)
#define STORE_POINTER(pointer, value) ((pointer) = (value))
#endif

#endif
