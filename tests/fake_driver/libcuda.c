// A CUDA driver without a GPU: as much of it as the loader calls, with a log of the calls that matter.
//
// What it is, it reads from the environment:
//   FAKE_CUDA_VERSION     what cuDriverGetVersion says (13000)
//   FAKE_CUDA_DEVICES     how many devices there are (1)
//   FAKE_CUDA_CAPABILITY  their compute capability (90)
//   FAKE_CUDA_FAIL        functions and the errors that they give, cuInit=100,cuLaunchKernel=719
//   FAKE_CUDA_LOG         the file that calls are written to
//
// An image is text, which may lie behind the headers of a fatbin. Each line describes a kernel by its lowered
// name, its static shared memory, and the sizes of its parameters, or a symbol by its name and size:
//   kernel _Z4axpyIfEvi 0 4 4
//   symbol weights 36

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
enum { SUCCESS = 0, INVALID_VALUE = 1, INVALID_CONTEXT = 201, NOT_FOUND = 500 };

typedef struct Kernel {
  char name[256];
  int static_shared;
  int count;
  int sizes[64];
} Kernel;

typedef struct Symbol {
  char name[256];
  size_t size;
  void* memory;
} Symbol;

typedef struct Library {
  int kernel_count, symbol_count;
  Kernel kernels[32];
  Symbol symbols[32];
} Library;

typedef struct Context {
  int device;
} Context;

static int setting(const char* name, int fallback) {
  const char* value = getenv(name);
  return value ? atoi(value) : fallback;
}

// The error that FAKE_CUDA_FAIL names for `function`.
static CUresult fault(const char* function) {
  const char* at = getenv("FAKE_CUDA_FAIL");
  const size_t length = strlen(function);
  for (; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
    if (!strncmp(at, function, length) && at[length] == '=') return atoi(at + length + 1);
  }
  return SUCCESS;
}

// One write per line, so that the lines of several threads stay whole.
static void record(const char* line) {
  const char* path = getenv("FAKE_CUDA_LOG");
  FILE* file = path ? fopen(path, "a") : NULL;
  if (!file) return;
  fprintf(file, "%s\n", line);
  fclose(file);
}

#define BEGIN(function)                                  \
  do {                                                   \
    const CUresult error = fault(#function);             \
    if (error) return error;                             \
  } while (0)

#define RECORD(...)                                      \
  do {                                                   \
    char line[4096];                                     \
    snprintf(line, sizeof line, __VA_ARGS__);            \
    record(line);                                        \
  } while (0)

static CUresult cuInit(unsigned flags) {
  (void)flags;
  RECORD("cuInit");
  BEGIN(cuInit);
  return SUCCESS;
}

static CUresult cuDriverGetVersion(int* version) {
  BEGIN(cuDriverGetVersion);
  *version = setting("FAKE_CUDA_VERSION", 13000);
  return SUCCESS;
}

static CUresult cuGetErrorName(CUresult error, const char** text) {
  static __thread char name[32];
  snprintf(name, sizeof name, "FAKE_ERROR_%d", error);
  *text = name;
  return SUCCESS;
}

static CUresult cuGetErrorString(CUresult error, const char** text) {
  static __thread char description[64];
  snprintf(description, sizeof description, "fake description of %d", error);
  *text = description;
  return SUCCESS;
}

// Devices and contexts

static Context contexts[8] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};
static __thread Context* stack[16];
static __thread int depth;

static CUresult cuDeviceGetCount(int* count) {
  BEGIN(cuDeviceGetCount);
  *count = setting("FAKE_CUDA_DEVICES", 1);
  return SUCCESS;
}

static CUresult cuDeviceGet(int* device, int ordinal) {
  BEGIN(cuDeviceGet);
  *device = ordinal;
  return SUCCESS;
}

static CUresult cuDeviceGetAttribute(int* value, int attribute, int device) {
  (void)device;
  BEGIN(cuDeviceGetAttribute);
  const int capability = setting("FAKE_CUDA_CAPABILITY", 90);
  switch (attribute) {
    case 1: *value = 1024; return SUCCESS;              // MAX_THREADS_PER_BLOCK
    case 2: *value = 1024; return SUCCESS;              // MAX_BLOCK_DIM_X
    case 3: *value = 1024; return SUCCESS;              // MAX_BLOCK_DIM_Y
    case 4: *value = 64; return SUCCESS;                // MAX_BLOCK_DIM_Z
    case 5: *value = 0x7fffffff; return SUCCESS;        // MAX_GRID_DIM_X
    case 6: *value = 65535; return SUCCESS;             // MAX_GRID_DIM_Y
    case 7: *value = 65535; return SUCCESS;             // MAX_GRID_DIM_Z
    case 16: *value = 132; return SUCCESS;              // MULTIPROCESSOR_COUNT
    case 39: *value = 2048; return SUCCESS;             // MAX_THREADS_PER_MULTIPROCESSOR
    case 75: *value = capability / 10; return SUCCESS;  // COMPUTE_CAPABILITY_MAJOR
    case 76: *value = capability % 10; return SUCCESS;  // COMPUTE_CAPABILITY_MINOR
    case 95: *value = 1; return SUCCESS;                // COOPERATIVE_LAUNCH
    case 97: *value = 232448; return SUCCESS;           // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    case 120: *value = capability >= 90; return SUCCESS;  // CLUSTER_LAUNCH
  }
  return INVALID_VALUE;
}

static CUresult cuDevicePrimaryCtxRetain(Context** context, int device) {
  RECORD("cuDevicePrimaryCtxRetain %d", device);
  BEGIN(cuDevicePrimaryCtxRetain);
  *context = &contexts[device];
  return SUCCESS;
}

static CUresult cuCtxGetCurrent(Context** context) {
  BEGIN(cuCtxGetCurrent);
  *context = depth ? stack[depth - 1] : NULL;
  return SUCCESS;
}

static CUresult cuCtxPushCurrent(Context* context) {
  RECORD("cuCtxPushCurrent %d", context->device);
  BEGIN(cuCtxPushCurrent);
  stack[depth++] = context;
  return SUCCESS;
}

static CUresult cuCtxPopCurrent(Context** context) {
  RECORD("cuCtxPopCurrent");
  BEGIN(cuCtxPopCurrent);
  if (!depth) return INVALID_CONTEXT;
  *context = stack[--depth];
  return SUCCESS;
}

static CUresult cuCtxGetDevice(int* device) {
  BEGIN(cuCtxGetDevice);
  if (!depth) return INVALID_CONTEXT;
  *device = stack[depth - 1]->device;
  return SUCCESS;
}

// Libraries

static CUresult cuLibraryLoadData(Library** out, const void* code, int* jit_options, void** jit_values, unsigned jit_count,
                                  int* options, void** values, unsigned count) {
  (void)jit_options, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
  const char* text = code;
  if (*(const uint32_t*)code == 0xba55ed50) {
    const char* entry = text + 16;
    text = entry + *(const uint32_t*)(entry + 4);
  }
  RECORD("cuLibraryLoadData");
  BEGIN(cuLibraryLoadData);
  Library* library = calloc(1, sizeof *library);
  for (; text && *text; text = strchr(text, '\n') ? strchr(text, '\n') + 1 : NULL) {
    Kernel* kernel = &library->kernels[library->kernel_count];
    Symbol* symbol = &library->symbols[library->symbol_count];
    int read = 0;
    if (sscanf(text, "kernel %255s %d%n", kernel->name, &kernel->static_shared, &read) == 2) {
      library->kernel_count++;
      for (const char* at = text + read; *at == ' ';) {
        char* end;
        kernel->sizes[kernel->count++] = strtol(at, &end, 10);
        at = end;
      }
    } else if (sscanf(text, "symbol %255s %zu", symbol->name, &symbol->size) == 2) {
      library->symbol_count++;
      symbol->memory = calloc(1, symbol->size);
    }
  }
  *out = library;
  return SUCCESS;
}

static CUresult cuLibraryGetKernel(Kernel** kernel, Library* library, const char* name) {
  RECORD("cuLibraryGetKernel %s", name);
  BEGIN(cuLibraryGetKernel);
  for (int i = 0; i < library->kernel_count; i++) {
    *kernel = &library->kernels[i];
    if (!strcmp((*kernel)->name, name)) return SUCCESS;
  }
  return NOT_FOUND;
}

static CUresult cuLibraryGetGlobal(void** address, size_t* size, Library* library, const char* name) {
  BEGIN(cuLibraryGetGlobal);
  for (int i = 0; i < library->symbol_count; i++) {
    const Symbol* symbol = &library->symbols[i];
    if (strcmp(symbol->name, name)) continue;
    if (address) *address = symbol->memory;
    if (size) *size = symbol->size;
    return SUCCESS;
  }
  return NOT_FOUND;
}

static CUresult cuKernelGetAttribute(int* value, int attribute, Kernel* kernel, int device) {
  (void)device;
  BEGIN(cuKernelGetAttribute);
  switch (attribute) {
    case 0: *value = 1024; return SUCCESS;                   // MAX_THREADS_PER_BLOCK
    case 1: *value = kernel->static_shared; return SUCCESS;  // SHARED_SIZE_BYTES
    case 2: *value = 64; return SUCCESS;                     // CONST_SIZE_BYTES
    case 3: *value = 0; return SUCCESS;                      // LOCAL_SIZE_BYTES
    case 4: *value = 32; return SUCCESS;                     // NUM_REGS
    case 5: *value = 90; return SUCCESS;                     // PTX_VERSION
    case 6: *value = 90; return SUCCESS;                     // BINARY_VERSION
  }
  return INVALID_VALUE;
}

// A kernel as a function of the current context; a Function is its kernel and device.
typedef struct Function {
  const Kernel* kernel;
  int device;
} Function;

static CUresult cuKernelGetFunction(Function** function, const Kernel* kernel) {
  BEGIN(cuKernelGetFunction);
  if (!depth) return INVALID_CONTEXT;
  *function = calloc(1, sizeof **function);
  (*function)->kernel = kernel;
  (*function)->device = stack[depth - 1]->device;
  return SUCCESS;
}

static CUresult cuOccupancyMaxPotentialBlockSize(int* grid, int* block, Function* function, void* shared_of_block,
                                                 size_t shared, int limit) {
  (void)function, (void)shared_of_block, (void)shared, (void)limit;
  BEGIN(cuOccupancyMaxPotentialBlockSize);
  *grid = 264, *block = 256;
  return SUCCESS;
}

static CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function* function, int threads, size_t shared) {
  (void)function, (void)shared;
  BEGIN(cuOccupancyMaxActiveBlocksPerMultiprocessor);
  *blocks = 2048 / threads;
  return SUCCESS;
}

static CUresult cuOccupancyMaxPotentialClusterSize(int* size, Function* function, const void* config) {
  (void)function, (void)config;
  BEGIN(cuOccupancyMaxPotentialClusterSize);
  *size = 16;
  return SUCCESS;
}

static CUresult cuKernelSetAttribute(int attribute, int value, Kernel* kernel, int device) {
  RECORD("cuKernelSetAttribute %s %d %d %d", kernel->name, attribute, value, device);
  BEGIN(cuKernelSetAttribute);
  return SUCCESS;
}

// Launches and copies

// Streams are numbers, and belong to the device that their thousands name: 1009 is one of device 1.
static int device_of(void* stream) {
  return (int)((uintptr_t)stream / 1000);
}

static CUresult cuStreamGetCtx(void* stream, Context** context) {
  BEGIN(cuStreamGetCtx);
  *context = &contexts[device_of(stream)];
  return SUCCESS;
}

static CUresult launch(const char* how, const Function* function, const unsigned extents[6], unsigned shared, void* stream,
                       void** parameters, const char* attributes) {
  const Kernel* kernel = function->kernel;
  char bytes[2048] = "";
  char* end = bytes;
  for (int i = 0; i < kernel->count; i++) {
    const unsigned char* value = parameters[i];
    *end++ = ' ';
    for (int j = 0; j < kernel->sizes[i]; j++) end += sprintf(end, "%02x", value[j]);
  }
  // As the driver does: the default stream is that of the current context.
  const int named = (uintptr_t)stream > 2;
  if (!named && !depth) return INVALID_CONTEXT;
  RECORD("%s %s grid=%u,%u,%u block=%u,%u,%u shared=%u stream=%llu device=%d%s%s", how, kernel->name, extents[0],
         extents[1], extents[2], extents[3], extents[4], extents[5], shared, (unsigned long long)(uintptr_t)stream,
         function->device, attributes, bytes);
  return SUCCESS;
}

static CUresult cuLaunchKernel(const Function* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                               unsigned bz, unsigned shared, void* stream, void** parameters, void** extra) {
  (void)extra;
  const unsigned extents[6] = {gx, gy, gz, bx, by, bz};
  const CUresult error = launch("cuLaunchKernel", function, extents, shared, stream, parameters, "");
  BEGIN(cuLaunchKernel);
  return error;
}

// As cuda.h has them.
typedef struct Attribute {
  int id;
  char pad[4];
  union {
    char pad[64];
    unsigned cluster[3];
    int number;
  } value;
} Attribute;

typedef struct Config {
  unsigned extents[6], shared;
  void* stream;
  Attribute* attributes;
  unsigned count;
} Config;

static CUresult cuLaunchKernelEx(const Config* config, const Function* function, void** parameters, void** extra) {
  (void)extra;
  char attributes[256] = "";
  char* end = attributes;
  for (unsigned i = 0; i < config->count; i++) {
    const Attribute* attribute = &config->attributes[i];
    const unsigned* cluster = attribute->value.cluster;
    switch (attribute->id) {
      case 2: end += sprintf(end, " cooperative=%d", attribute->value.number); break;
      case 4: end += sprintf(end, " cluster=%u,%u,%u", cluster[0], cluster[1], cluster[2]); break;
      case 6: end += sprintf(end, " dependent=%d", attribute->value.number); break;
      default: return INVALID_VALUE;
    }
  }
  const CUresult error =
      launch("cuLaunchKernelEx", function, config->extents, config->shared, config->stream, parameters, attributes);
  BEGIN(cuLaunchKernelEx);
  return error;
}

static CUresult cuMemcpyHtoD(void* to, const void* from, size_t size) {
  RECORD("cuMemcpyHtoD %zu", size);
  BEGIN(cuMemcpyHtoD);
  memcpy(to, from, size);
  return SUCCESS;
}

static CUresult cuMemcpyDtoH(void* to, const void* from, size_t size) {
  RECORD("cuMemcpyDtoH %zu", size);
  BEGIN(cuMemcpyDtoH);
  memcpy(to, from, size);
  return SUCCESS;
}

static CUresult cuMemcpyDtoD(void* to, const void* from, size_t size) {
  RECORD("cuMemcpyDtoD %zu", size);
  BEGIN(cuMemcpyDtoD);
  memcpy(to, from, size);
  return SUCCESS;
}

static CUresult cuStreamSynchronize(void* stream) {
  (void)stream;
  BEGIN(cuStreamSynchronize);
  return SUCCESS;
}

// cuda-bindings asks for every function by its name; what is not in the table does not exist.
CUresult cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, int* status) {
  (void)version, (void)flags;
#define FUNCTION(name) {#name, (void*)name}
  static const struct {
    const char* name;
    void* function;
  } table[] = {
      FUNCTION(cuInit), FUNCTION(cuDriverGetVersion), FUNCTION(cuGetErrorName), FUNCTION(cuGetErrorString),
      FUNCTION(cuDeviceGetCount), FUNCTION(cuDeviceGet), FUNCTION(cuDeviceGetAttribute),
      FUNCTION(cuDevicePrimaryCtxRetain), FUNCTION(cuCtxGetCurrent), FUNCTION(cuCtxPushCurrent),
      FUNCTION(cuCtxPopCurrent), FUNCTION(cuCtxGetDevice), FUNCTION(cuLibraryLoadData), FUNCTION(cuLibraryGetKernel),
      FUNCTION(cuLibraryGetGlobal), FUNCTION(cuKernelGetAttribute), FUNCTION(cuKernelSetAttribute),
      FUNCTION(cuLaunchKernel), FUNCTION(cuLaunchKernelEx), FUNCTION(cuMemcpyHtoD), FUNCTION(cuMemcpyDtoH),
      FUNCTION(cuMemcpyDtoD), FUNCTION(cuStreamSynchronize), FUNCTION(cuStreamGetCtx), FUNCTION(cuKernelGetFunction),
      FUNCTION(cuOccupancyMaxPotentialBlockSize), FUNCTION(cuOccupancyMaxActiveBlocksPerMultiprocessor),
      FUNCTION(cuOccupancyMaxPotentialClusterSize),
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    if (strcmp(table[i].name, name)) continue;
    *function = table[i].function;
    if (status) *status = 0;
    return SUCCESS;
  }
  *function = NULL;
  if (status) *status = 1;
  return SUCCESS;
}
