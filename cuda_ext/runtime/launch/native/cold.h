/* COLD marks functions that a common launch does not call: the compiler keeps them apart from those that it does. */
#ifndef CUDA_EXT_COLD_H
#define CUDA_EXT_COLD_H

#if defined(__GNUC__)
#define COLD __attribute__((cold, noinline))
#elif defined(_MSC_VER)
#define COLD __declspec(noinline)
#else
#define COLD
#endif

#endif
