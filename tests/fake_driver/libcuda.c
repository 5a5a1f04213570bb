// A CUDA driver without a GPU: as much of it as the loader calls, with a log of the calls that matter.
//
// What it is, it reads from the environment:
//   FAKE_CUDA_VERSION     what cuDriverGetVersion says (13000)
//   FAKE_CUDA_DEVICES     how many devices there are (1)
//   FAKE_CUDA_CAPABILITY  their compute capability (90), or that of each, 90,80
//   FAKE_CUDA_NAMES       their names (Fake GPU), separated by commas; the last holds for all that follow
//   FAKE_CUDA_MEMORIES    how many MiB they have (81920), in the same way
//   FAKE_CUDA_MEMORY      what is allocated: address+size@device, several with commas; else all is, on device 0
//   FAKE_CUDA_CAPTURING   the stream that captures
//   FAKE_CUDA_POOLS       whether there are memory pools (1)
//   FAKE_CUDA_FAIL        functions and the errors that they give, cuInit=100,cuLaunchKernel=719; with
//                         cuMemFree=1@3 the first two calls succeed
//   FAKE_CUDA_LACKS       a function that is not there
//   FAKE_CUDA_LOADING     how many milliseconds it takes to load an image (0)
//   FAKE_CUDA_KERNELS     the microseconds that launches of kernels take, by a part of their lowered names: a
//                         number, and one for each block, with what is wrong with it behind a colon: wrong,
//                         hangs, crashes, or the number of an error; Li64E=1+0.5,Li32E=2+0:hangs
//   FAKE_CUDA_SLOWER      by how much all launches take longer with each launch (0), as a percentage
//   FAKE_CUDA_LOG         the file that calls are written to, and every error that is not one of FAKE_CUDA_FAIL
//
// An image is a cubin, of which the kernels and variables are read; or it is text, which may lie behind the headers
// of a fatbin. Each line describes a kernel by its lowered name, its static shared memory, and the sizes of its
// parameters, or a symbol by its name and size:
//   kernel _Z4axpyIfEvi 0 4 4
//   symbol weights 36
//   threads _Z4axpyIfEvi 256   (what a block of it has at most, on a line below that of the kernel)
// Kernels do nothing, unless the line ends in one of these, which goes to the end of the memory's allocation:
//   increments 1          the bytes that parameter 1, a pointer, points to
//   copies 0 1            what parameter 0 points to, to where parameter 1 does

#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int CUresult;
enum { SUCCESS = 0, INVALID_VALUE = 1, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600,
       OUT_OF_RESOURCES = 701, TOO_LARGE = 720, NOT_SUPPORTED = 801, INVALID_CLUSTER_SIZE = 912 };

enum { MOST_DEVICES = 8 };

// What is launched, a Kernel or a Function, begins with what it is.
typedef enum Launchable { KERNEL, FUNCTION } Launchable;

typedef struct Kernel {
  Launchable what;
  char name[256];
  int static_shared;
  int most_threads;
  int dynamic_shared[MOST_DEVICES];  // what it may have
  int large_clusters[MOST_DEVICES];
  int count;
  int sizes[64];
  int from, to;  // the parameters of what it does, if `does` is not NULL
  void (*does)(char* from, char* to, size_t size);
} Kernel;

typedef struct Symbol {
  char name[256];
  size_t size;
  char* memory[MOST_DEVICES];
} Symbol;

typedef struct Library {
  int kernel_count, symbol_count;
  Kernel kernels[1024];
  Symbol symbols[1024];
} Library;

typedef struct Context {
  int device;
} Context;

static int setting(const char* name, int fallback) {
  const char* value = getenv(name);
  return value ? atoi(value) : fallback;
}

// Held while memory, streams or settings are looked at.
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

// Whether the latest error of this thread is one of FAKE_CUDA_FAIL.
static __thread int is_asked_for;

// The error that FAKE_CUDA_FAIL names for this call of `function`.
static CUresult fault(const char* function) {
  static int calls[16];
  const char* at = getenv("FAKE_CUDA_FAIL");
  is_asked_for = 0;
  const size_t length = strlen(function);
  for (int i = 0; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL, i++) {
    if (strncmp(at, function, length) || at[length] != '=') continue;
    char* end;
    const CUresult error = strtol(at + length + 1, &end, 10);
    is_asked_for = __atomic_add_fetch(&calls[i], 1, __ATOMIC_SEQ_CST) >= (*end == '@' ? atoi(end + 1) : 1);
    return is_asked_for ? error : SUCCESS;
  }
  return SUCCESS;
}

// Write a line into the log, at once, so that the lines of several threads stay whole.
__attribute__((format(printf, 1, 2))) static void record(const char* format, ...) {
  const char* path = getenv("FAKE_CUDA_LOG");
  const int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
  if (file < 0) return;
  va_list values;
  va_start(values, format);
  char* line;
  const int size = vasprintf(&line, format, values);
  va_end(values);
  if (size < 0) abort();
  line[size] = '\n';  // instead of the NUL
  if (write(file, line, size + 1) != size + 1) abort();
  free(line);
  close(file);
}

#define BEGIN(function)                                  \
  do {                                                   \
    const CUresult error = fault(#function);             \
    if (error) return error;                             \
  } while (0)

static CUresult cuInit(unsigned flags) {
  (void)flags;
  record("cuInit");
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

static Context contexts[MOST_DEVICES] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};
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

// What the setting `name` says of `device`; the last of its values holds for all that follow.
static const char* setting_of(int device, const char* name, const char* fallback) {
  const char* at = getenv(name);
  for (; at && device && strchr(at, ','); device--) at = strchr(at, ',') + 1;
  return at ? at : fallback;
}

static int capability_of(int device) { return atoi(setting_of(device, "FAKE_CUDA_CAPABILITY", "90")); }

static CUresult cuDeviceGetName(char* name, int size, int device) {
  BEGIN(cuDeviceGetName);
  const char* text = setting_of(device, "FAKE_CUDA_NAMES", "Fake GPU");
  snprintf(name, size, "%.*s", (int)strcspn(text, ","), text);
  return SUCCESS;
}

static CUresult cuDeviceTotalMem(size_t* size, int device) {
  BEGIN(cuDeviceTotalMem);
  *size = (size_t)atoi(setting_of(device, "FAKE_CUDA_MEMORIES", "81920")) << 20;
  return SUCCESS;
}

static CUresult cuDeviceGetAttribute(int* value, int attribute, int device) {
  BEGIN(cuDeviceGetAttribute);
  const int capability = capability_of(device);
  switch (attribute) {
    case 1: *value = 1024; return SUCCESS;              // MAX_THREADS_PER_BLOCK
    case 2: *value = 1024; return SUCCESS;              // MAX_BLOCK_DIM_X
    case 3: *value = 1024; return SUCCESS;              // MAX_BLOCK_DIM_Y
    case 4: *value = 64; return SUCCESS;                // MAX_BLOCK_DIM_Z
    case 5: *value = 0x7fffffff; return SUCCESS;        // MAX_GRID_DIM_X
    case 6: *value = 65535; return SUCCESS;             // MAX_GRID_DIM_Y
    case 7: *value = 65535; return SUCCESS;             // MAX_GRID_DIM_Z
    case 16: *value = 132; return SUCCESS;              // MULTIPROCESSOR_COUNT
    case 20: *value = setting("FAKE_CUDA_COMPUTE_MODE", 0); return SUCCESS;  // COMPUTE_MODE
    case 38: *value = 1 << 16; return SUCCESS;          // L2_CACHE_SIZE
    case 39: *value = 2048; return SUCCESS;             // MAX_THREADS_PER_MULTIPROCESSOR
    case 75: *value = capability / 10; return SUCCESS;  // COMPUTE_CAPABILITY_MAJOR
    case 76: *value = capability % 10; return SUCCESS;  // COMPUTE_CAPABILITY_MINOR
    case 95: *value = 1; return SUCCESS;                // COOPERATIVE_LAUNCH
    case 97: *value = 232448; return SUCCESS;           // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    case 115: *value = setting("FAKE_CUDA_POOLS", 1); return SUCCESS;  // MEMORY_POOLS_SUPPORTED
    case 120: *value = capability >= 90; return SUCCESS;  // CLUSTER_LAUNCH
  }
  return INVALID_VALUE;
}

static CUresult cuDevicePrimaryCtxRetain(Context** context, int device) {
  record("cuDevicePrimaryCtxRetain %d", device);
  BEGIN(cuDevicePrimaryCtxRetain);
  *context = &contexts[device];
  return SUCCESS;
}

static CUresult cuCtxGetCurrent(Context** context) {
  BEGIN(cuCtxGetCurrent);
  *context = depth ? stack[depth - 1] : NULL;
  return SUCCESS;
}

static CUresult cuCtxSetCurrent(Context* context) {
  record("cuCtxSetCurrent %d", context->device);
  BEGIN(cuCtxSetCurrent);
  if (!depth) depth = 1;
  stack[depth - 1] = context;
  return SUCCESS;
}

static CUresult cuCtxPushCurrent(Context* context) {
  record("cuCtxPushCurrent %d", context->device);
  BEGIN(cuCtxPushCurrent);
  stack[depth++] = context;
  return SUCCESS;
}

static CUresult cuCtxPopCurrent(Context** context) {
  record("cuCtxPopCurrent");
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

// What kernels do

static void increment(char* from, char* to, size_t size) {
  (void)from;
  for (size_t i = 0; i < size; i++) to[i]++;
}

static void copy(char* from, char* to, size_t size) { memmove(to, from, size); }

// Libraries

static Kernel* add_kernel(Library* library, const char* name, int static_shared) {
  if (library->kernel_count == sizeof library->kernels / sizeof *library->kernels) abort();
  Kernel* kernel = &library->kernels[library->kernel_count++];
  snprintf(kernel->name, sizeof kernel->name, "%s", name);
  kernel->static_shared = static_shared;
  kernel->most_threads = 1024;
  for (int device = 0; device < MOST_DEVICES; device++) {
    kernel->dynamic_shared[device] = static_shared < 48 << 10 ? (48 << 10) - static_shared : 0;
  }
  return kernel;
}

static void add_symbol(Library* library, const char* name, size_t size) {
  if (library->symbol_count == sizeof library->symbols / sizeof *library->symbols) abort();
  Symbol* symbol = &library->symbols[library->symbol_count++];
  snprintf(symbol->name, sizeof symbol->name, "%s", name);
  symbol->size = size;
  for (int device = 0; device < MOST_DEVICES; device++) symbol->memory[device] = calloc(1, size);
}

// The sizes of a kernel's parameters out of its .nv.info: a format byte, an attribute byte, and 16 bits, which count
// the bytes that follow where the format is 4.
static void add_parameters(Kernel* kernel, const unsigned char* info, size_t size) {
  for (size_t at = 0; at + 4 <= size;) {
    const unsigned char* attribute = info + at;
    at += attribute[0] == 4 ? 4 + (attribute[2] | attribute[3] << 8) : 4;
    if (attribute[0] != 4 || (attribute[1] != 0x17 && attribute[1] != 0x45)) continue;
    uint16_t ordinal;
    uint32_t packed;
    memcpy(&ordinal, attribute + 8, sizeof ordinal);
    memcpy(&packed, attribute + 12, sizeof packed);
    kernel->sizes[ordinal] = attribute[1] == 0x17 ? packed >> 18 : packed & 0xffffff;
    if (kernel->count <= ordinal) kernel->count = ordinal + 1;
  }
}

static void read_cubin(Library* library, const char* cubin) {
  const Elf64_Ehdr* header = (const Elf64_Ehdr*)cubin;
  const Elf64_Shdr* sections = (const Elf64_Shdr*)(cubin + header->e_shoff);
  const char* names = cubin + sections[header->e_shstrndx].sh_offset;
  for (int i = 0; i < header->e_shnum; i++) {
    const char* name = names + sections[i].sh_name;
    if (!strncmp(name, ".nv.constant0.", 14)) add_kernel(library, name + 14, 0);
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const Elf64_Sym* symbols = (const Elf64_Sym*)(cubin + sections[i].sh_offset);
    const char* strings = cubin + sections[sections[i].sh_link].sh_offset;
    for (size_t j = 0; j < sections[i].sh_size / sizeof *symbols; j++) {
      if (ELF64_ST_TYPE(symbols[j].st_info) == STT_OBJECT) {
        add_symbol(library, strings + symbols[j].st_name, symbols[j].st_size);
      }
    }
  }
  for (int i = 0; i < header->e_shnum; i++) {
    const char* name = names + sections[i].sh_name;
    for (int j = 0; j < library->kernel_count && !strncmp(name, ".nv.info.", 9); j++) {
      if (strcmp(library->kernels[j].name, name + 9)) continue;
      add_parameters(&library->kernels[j], (const unsigned char*)cubin + sections[i].sh_offset, sections[i].sh_size);
    }
  }
}

static CUresult cuLibraryLoadData(Library** out, const void* code, int* jit_options, void** jit_values, unsigned jit_count,
                                  int* options, void** values, unsigned count) {
  (void)jit_options, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
  const char* text = code;
  if (*(const uint32_t*)code == 0xba55ed50) {
    const char* entry = text + 16;
    text = entry + *(const uint32_t*)(entry + 4);
  }
  record("cuLibraryLoadData");
  usleep(1000 * setting("FAKE_CUDA_LOADING", 0));
  *out = (Library*)text;  // which a caller must not take for a library if this fails
  BEGIN(cuLibraryLoadData);
  Library* library = calloc(1, sizeof *library);
  const int is_cubin = !memcmp(text, ELFMAG, SELFMAG);
  if (is_cubin) read_cubin(library, text);
  for (; !is_cubin && text && *text; text = strchr(text, '\n') ? strchr(text, '\n') + 1 : NULL) {
    int static_shared, most_threads;
    char name[256];
    size_t size;
    int read = 0;
    if (sscanf(text, "kernel %255s %d%n", name, &static_shared, &read) == 2) {
      Kernel* kernel = add_kernel(library, name, static_shared);
      const char* at = text + read;
      for (char* end; *at == ' ' && (kernel->sizes[kernel->count] = strtol(at, &end, 10), end != at); at = end) {
        if (++kernel->count == sizeof kernel->sizes / sizeof *kernel->sizes) abort();
      }
      if (sscanf(at, " increments %d", &kernel->to) == 1) kernel->does = increment;
      if (sscanf(at, " copies %d %d", &kernel->from, &kernel->to) == 2) kernel->does = copy;
    } else if (sscanf(text, "threads %255s %d", name, &most_threads) == 2) {
      Kernel* kernel = library->kernels;
      for (; strcmp(kernel->name, name); kernel++) continue;
      kernel->most_threads = most_threads;
    } else if (sscanf(text, "symbol %255s %zu", name, &size) == 2) {
      add_symbol(library, name, size);
    }
  }
  *out = library;
  return SUCCESS;
}

static CUresult cuLibraryUnload(Library* library) {
  record("cuLibraryUnload");
  BEGIN(cuLibraryUnload);
  for (int i = 0; i < library->symbol_count; i++) {
    for (int device = 0; device < MOST_DEVICES; device++) free(library->symbols[i].memory[device]);
  }
  free(library);
  return SUCCESS;
}

static CUresult cuLibraryGetKernel(Kernel** kernel, Library* library, const char* name) {
  record("cuLibraryGetKernel %s", name);
  BEGIN(cuLibraryGetKernel);
  for (int i = 0; i < library->kernel_count; i++) {
    *kernel = &library->kernels[i];
    if (!strcmp((*kernel)->name, name)) return SUCCESS;
  }
  return NOT_FOUND;
}

static CUresult cuLibraryGetGlobal(void** address, size_t* size, Library* library, const char* name) {
  BEGIN(cuLibraryGetGlobal);
  if (!depth) return INVALID_CONTEXT;
  for (int i = 0; i < library->symbol_count; i++) {
    const Symbol* symbol = &library->symbols[i];
    if (strcmp(symbol->name, name)) continue;
    if (address) *address = symbol->memory[stack[depth - 1]->device];
    if (size) *size = symbol->size;
    return SUCCESS;
  }
  return NOT_FOUND;
}

static CUresult cuKernelGetAttribute(int* value, int attribute, Kernel* kernel, int device) {
  BEGIN(cuKernelGetAttribute);
  switch (attribute) {
    case 0: *value = kernel->most_threads; return SUCCESS;   // MAX_THREADS_PER_BLOCK
    case 1: *value = kernel->static_shared; return SUCCESS;  // SHARED_SIZE_BYTES
    case 2: *value = 64; return SUCCESS;                     // CONST_SIZE_BYTES
    case 3: *value = 0; return SUCCESS;                      // LOCAL_SIZE_BYTES
    case 4: *value = 32; return SUCCESS;                     // NUM_REGS
    case 5: *value = 90; return SUCCESS;                     // PTX_VERSION
    case 6: *value = 90; return SUCCESS;                     // BINARY_VERSION
    case 8: *value = kernel->dynamic_shared[device]; return SUCCESS;  // MAX_DYNAMIC_SHARED_SIZE_BYTES
  }
  return INVALID_VALUE;
}

// A kernel as a function of the current context; a Function is its kernel and device.
typedef struct Function {
  Launchable what;
  const Kernel* kernel;
  int device;
} Function;

static CUresult cuKernelGetFunction(Function** function, const Kernel* kernel) {
  BEGIN(cuKernelGetFunction);
  if (!depth) return INVALID_CONTEXT;
  *function = calloc(1, sizeof **function);
  (*function)->what = FUNCTION;
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

static CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* launchable, int threads, size_t shared) {
  BEGIN(cuOccupancyMaxActiveBlocksPerMultiprocessor);
  if (threads < 1) return INVALID_VALUE;
  const Function* function = *(const Launchable*)launchable == FUNCTION ? launchable : NULL;
  const Kernel* kernel = function ? function->kernel : launchable;
  const int device = function ? function->device : stack[depth - 1]->device;
  *blocks = shared > (size_t)kernel->dynamic_shared[device] ? 0 : 2048 / threads;
  return SUCCESS;
}

static CUresult cuOccupancyMaxPotentialClusterSize(int* size, Function* function, const void* config) {
  (void)function, (void)config;
  BEGIN(cuOccupancyMaxPotentialClusterSize);
  *size = 16;
  return SUCCESS;
}

static CUresult cuKernelSetAttribute(int attribute, int value, Kernel* kernel, int device) {
  record("cuKernelSetAttribute %s %d %d %d", kernel->name, attribute, value, device);
  BEGIN(cuKernelSetAttribute);
  if (attribute == 8) kernel->dynamic_shared[device] = value;
  if (attribute == 14) kernel->large_clusters[device] = value;
  return SUCCESS;
}

// Memory

typedef struct Allocation {
  struct Allocation* next;
  char* start;
  size_t size;
  int on_host, given_back;
  int device;  // of memory that is not on the host
} Allocation;

static Allocation* allocations;

// What `address` lies in, or lay in: no address is given out twice.
static Allocation* allocation_at(const char* address) {
  pthread_mutex_lock(&lock);
  Allocation* at = allocations;
  while (at && (address < at->start || at->start + at->size <= address)) at = at->next;
  pthread_mutex_unlock(&lock);
  return at;
}

static Allocation* allocated(const void* address) {
  Allocation* at = allocation_at(address);
  return at && !at->given_back ? at : NULL;
}

static void* allocate(size_t size, int on_host, int device) {
  Allocation* made = malloc(sizeof *made);
  char* start = memset(malloc(size), 0xaa, size);
  *made = (Allocation){.start = start, .size = size, .on_host = on_host, .device = device};
  pthread_mutex_lock(&lock);
  made->next = allocations;
  allocations = made;
  pthread_mutex_unlock(&lock);
  return made->start;
}

static CUresult give_back(void* address) {
  Allocation* at = allocated(address);
  if (!at || at->start != address) {
    record("illegal address given back");
    return INVALID_VALUE;
  }
  at->given_back = 1;
  return SUCCESS;
}

static void check_not_given_back(const char* address) {
  const Allocation* at = allocation_at(address);
  if (at && at->given_back) record("illegal address in a copy");
}

static CUresult cuMemAlloc(void** address, size_t size) {
  record("cuMemAlloc %zu", size);
  BEGIN(cuMemAlloc);
  if (!depth) return INVALID_CONTEXT;
  *address = allocate(size, 0, stack[depth - 1]->device);
  return SUCCESS;
}

static CUresult cuMemFree(void* address) {
  record("cuMemFree");
  BEGIN(cuMemFree);
  return give_back(address);
}

static CUresult cuMemHostAlloc(void** address, size_t size, unsigned flags) {
  (void)flags;
  record("cuMemHostAlloc %zu", size);
  BEGIN(cuMemHostAlloc);
  if (!depth) return INVALID_CONTEXT;
  *address = allocate(size, 1, 0);
  return SUCCESS;
}

// The memory of a pool is on the device of the pool, whatever the stream of an allocation is.
typedef struct Pool {
  int device;
} Pool;

// As the first fields of cuda.h's CUmemPoolProps.
typedef struct PoolProperties {
  int allocation, handles, location, device;
} PoolProperties;

static Pool pools[MOST_DEVICES] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};

static CUresult cuMemPoolCreate(Pool** pool, const PoolProperties* properties) {
  record("cuMemPoolCreate");
  BEGIN(cuMemPoolCreate);
  *pool = &pools[properties->device];
  return SUCCESS;
}

static CUresult cuMemPoolSetAttribute(void* pool, int attribute, const uint64_t* value) {
  (void)pool;
  record("cuMemPoolSetAttribute %d %llu", attribute, (unsigned long long)*value);
  BEGIN(cuMemPoolSetAttribute);
  return SUCCESS;
}

// Streams and events. Work waits in a stream until a caller waits for the stream, or for an event behind that
// work: so what is used too early is not there yet.

typedef struct Event {
  struct Stream* stream;
  uint64_t awaited, reached;
  int device;
  double at;  // the microseconds of the clock when it was recorded
} Event;

// A clock in microseconds that only launches move, or those of what a stream captures.
static double now, captured, slower;
static int is_captured;

typedef struct Work {
  struct Work* next;
  void (*does)(char* from, char* to, size_t size);  // NULL: gives the memory at `to` back
  char *from, *to;
  size_t size;
  int from_kept;  // `from` is a copy of what was there
  Event* event;   // if there is one, this is reached or, in another stream, waited for
  uint64_t number;
} Work;

typedef struct Stream {
  uintptr_t handle;
  int device;
  Work *first, *last;
} Stream;

// Streams are numbers, and belong to the device that their thousands name: 1009 is one of device 1.
static int device_of(void* stream) {
  return (int)((uintptr_t)stream / 1000);
}

static Stream streams[256];

// NULL without a context, which the default streams belong to.
static Stream* stream_of(void* handle) {
  const int named = (uintptr_t)handle > 2;
  if (!named && !depth) return NULL;
  const int device = named ? device_of(handle) : stack[depth - 1]->device;
  const uintptr_t key = (named ? 0 : 1 + 1000 * device) + (uintptr_t)handle;
  pthread_mutex_lock(&lock);
  Stream* stream = streams;
  while (stream->handle && stream->handle != key) stream++;
  stream->handle = key;
  stream->device = device;
  pthread_mutex_unlock(&lock);
  return stream;
}

static void give(Stream* stream, Work work) {
  Work* last = malloc(sizeof *last);
  *last = work;
  pthread_mutex_lock(&lock);
  if (stream->first) stream->last->next = last;
  else stream->first = last;
  stream->last = last;
  pthread_mutex_unlock(&lock);
}

// Do what is in `stream`, until `event` is reached if it is not NULL.
static void finish(Stream* stream, Event* event) {
  pthread_mutex_lock(&lock);
  while (stream->first && (!event || event->reached < event->awaited)) {
    Work* work = stream->first;
    stream->first = work->next;
    if (work->event && work->event->stream != stream) {
      finish(work->event->stream, work->event);
    } else if (work->event) {
      work->event->reached = work->number;
    } else if (work->does) {
      check_not_given_back(work->from);
      check_not_given_back(work->to);
      work->does(work->from, work->to, work->size);
    } else {
      give_back(work->to);
    }
    if (work->from_kept) free(work->from);
    free(work);
  }
  pthread_mutex_unlock(&lock);
}

__attribute__((destructor)) static void count_what_is_left(void) {
  size_t left = 0;
  for (Stream* stream = streams; stream->handle; stream++) finish(stream, NULL);
  for (const Allocation* at = allocations; at; at = at->next) left += at->on_host || at->given_back ? 0 : at->size;
  if (left) record("%zu bytes of device memory are left", left);
}

static CUresult cuStreamCreate(void** stream, unsigned flags) {
  static int count;
  record("cuStreamCreate %u", flags);
  BEGIN(cuStreamCreate);
  if (!depth) return INVALID_CONTEXT;
  *stream = (void*)(uintptr_t)(1000 * stack[depth - 1]->device + 500 + __atomic_fetch_add(&count, 1, __ATOMIC_SEQ_CST));
  return SUCCESS;
}

static CUresult cuEventCreate(Event** event, unsigned flags) {
  record("cuEventCreate %u", flags);
  BEGIN(cuEventCreate);
  if (!depth) return INVALID_CONTEXT;
  *event = calloc(1, sizeof **event);
  (*event)->device = stack[depth - 1]->device;
  return SUCCESS;
}

static CUresult cuEventDestroy(Event* event) {
  (void)event;
  record("cuEventDestroy");
  BEGIN(cuEventDestroy);
  return SUCCESS;
}

static CUresult cuEventRecord(Event* event, void* handle) {
  record("cuEventRecord stream=%llu", (unsigned long long)(uintptr_t)handle);
  BEGIN(cuEventRecord);
  Stream* stream = stream_of(handle);
  if (!stream) return INVALID_CONTEXT;
  if (event->device != stream->device) return INVALID_HANDLE;
  pthread_mutex_lock(&lock);
  event->stream = stream;
  event->at = now;
  give(stream, (Work){.event = event, .number = ++event->awaited});
  pthread_mutex_unlock(&lock);
  return SUCCESS;
}

static CUresult cuEventSynchronize(Event* event) {
  BEGIN(cuEventSynchronize);
  if (event->stream) finish(event->stream, event);
  return SUCCESS;
}

// The answer is no once, and the work done by the time of the next question.
static CUresult cuEventQuery(Event* event) {
  BEGIN(cuEventQuery);
  if (event->reached >= event->awaited) return SUCCESS;
  finish(event->stream, event);
  return NOT_READY;
}

static CUresult cuStreamWaitEvent(void* handle, Event* event, unsigned flags) {
  (void)flags;
  record("cuStreamWaitEvent stream=%llu", (unsigned long long)(uintptr_t)handle);
  BEGIN(cuStreamWaitEvent);
  Stream* stream = stream_of(handle);
  if (!stream) return INVALID_CONTEXT;
  if (event->stream != stream) give(stream, (Work){.event = event});
  return SUCCESS;
}

static CUresult cuMemAllocFromPoolAsync(void** address, size_t size, const Pool* pool, void* stream) {
  record("cuMemAllocFromPoolAsync %zu stream=%llu", size, (unsigned long long)(uintptr_t)stream);
  BEGIN(cuMemAllocFromPoolAsync);
  if (!size) return INVALID_VALUE;
  if (!stream_of(stream)) return INVALID_CONTEXT;
  *address = allocate(size, 0, pool->device);
  return SUCCESS;
}

static CUresult cuMemAllocAsync(void** address, size_t size, void* stream) {
  record("cuMemAllocAsync %zu stream=%llu", size, (unsigned long long)(uintptr_t)stream);
  BEGIN(cuMemAllocAsync);
  if (!size) return INVALID_VALUE;
  Stream* at = stream_of(stream);
  if (!at) return INVALID_CONTEXT;
  *address = allocate(size, 0, at->device);
  return SUCCESS;
}

static CUresult cuMemFreeAsync(void* address, void* handle) {
  record("cuMemFreeAsync stream=%llu", (unsigned long long)(uintptr_t)handle);
  BEGIN(cuMemFreeAsync);
  Stream* stream = stream_of(handle);
  if (!stream) return INVALID_CONTEXT;
  give(stream, (Work){.to = address});
  return SUCCESS;
}

// Launches and copies

static CUresult cuStreamGetCtx(void* stream, Context** context) {
  BEGIN(cuStreamGetCtx);
  *context = &contexts[device_of(stream)];
  return SUCCESS;
}

// Whether kernels on `device` reach the memory of `at`.
static int is_reached(const Allocation* at, int device) {
  return at && (at->on_host || at->device == device);
}

static CUresult compute(const Kernel* kernel, Stream* stream, void** parameters) {
  char* from = *(char**)parameters[kernel->from];
  char* to = *(char**)parameters[kernel->to];
  const Allocation *source = allocated(from), *target = allocated(to);
  if (!is_reached(target, stream->device) || (kernel->does == copy && !is_reached(source, stream->device))) {
    record("illegal address in %s", kernel->name);
    return SUCCESS;
  }
  size_t size = target->start + target->size - to;
  if (kernel->does == copy && source->start + source->size < from + size) size = source->start + source->size - from;
  give(stream, (Work){.does = kernel->does, .from = from, .to = to, .size = size});
  return SUCCESS;
}

// Move the clock by a launch, or do what is wrong with it.
static CUresult take_time(const Kernel* kernel, double blocks, void** parameters) {
  double time = 1, each = 0;
  const char* faulty = "";
  for (const char* at = getenv("FAKE_CUDA_KERNELS"); at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
    char name[128] = "";
    const size_t length = strcspn(at, "=");
    if (length < sizeof name) memcpy(name, at, length);
    if (!strstr(kernel->name, name)) continue;
    char* end;
    time = strtod(at + length + 1, &end);
    each = *end == '+' ? strtod(end + 1, &end) : 0;
    faulty = *end == ':' ? end + 1 : "";
    break;
  }
  time = (time + each * blocks) * (1 + slower);
  slower += atof(getenv("FAKE_CUDA_SLOWER") ? getenv("FAKE_CUDA_SLOWER") : "0") / 100;
  *(is_captured ? &captured : &now) += time;
  if (!strncmp(faulty, "hangs", 5)) sleep(600);
  if (!strncmp(faulty, "crashes", 7)) _exit(139);
  for (int i = 0; i < kernel->count && !strncmp(faulty, "wrong", 5); i++) {
    const Allocation* at = kernel->sizes[i] == 8 ? allocated(*(char**)parameters[i]) : NULL;
    if (at) at->start[0] ^= 1;
  }
  return atoi(faulty);
}

typedef struct Configuration {
  unsigned extents[6], shared;
  void* stream;
  int cooperative, dependent;  // -1: not said
  unsigned cluster[3];
} Configuration;

// What the driver answers where `kernel` cannot be launched in that way.
static CUresult limits(const Kernel* kernel, int device, const Configuration* config) {
  const unsigned* extents = config->extents;
  const unsigned threads = extents[3] * extents[4] * extents[5], *cluster = config->cluster;
  for (int i = 0; i < 6; i++) {
    int most;
    cuDeviceGetAttribute(&most, i < 3 ? 5 + i : i - 1, device);
    if (!extents[i] || extents[i] > (unsigned)most) return INVALID_VALUE;
  }
  if (threads > (unsigned)kernel->most_threads) return threads > 1024 ? INVALID_VALUE : OUT_OF_RESOURCES;
  if (config->shared > (unsigned)kernel->dynamic_shared[device]) return INVALID_VALUE;
  if (cluster[0] && capability_of(device) < 90) return NOT_SUPPORTED;
  if (cluster[0] * cluster[1] * cluster[2] > (kernel->large_clusters[device] ? 16 : 8)) return INVALID_CLUSTER_SIZE;
  if (config->cooperative == 1 && extents[0] * extents[1] * extents[2] > 132 * (2048 / threads)) return TOO_LARGE;
  return SUCCESS;
}

static CUresult launch(const char* how, const void* launchable, const Configuration* config, void** parameters) {
  // As the driver does: a default stream is that of the current context, and what is launched in another stream
  // runs where that is. A Function belongs to a context, which must be that of the stream, a Kernel to all of them.
  const int named = (uintptr_t)config->stream > 2;
  if (!named && !depth) return INVALID_CONTEXT;
  const Function* function = *(const Launchable*)launchable == FUNCTION ? launchable : NULL;
  const Kernel* kernel = function ? function->kernel : launchable;
  const int device = named ? device_of(config->stream) : stack[depth - 1]->device;
  if (function && function->device != device) return INVALID_HANDLE;
  const CUresult error = limits(kernel, device, config);
  if (error) return error;

  size_t room = 100;  // of the attributes
  for (int i = 0; i < kernel->count; i++) room += 1 + 2 * kernel->sizes[i];
  char* text = calloc(room, 1);
  char* end = text;
  if (config->cooperative >= 0) end += sprintf(end, " cooperative=%d", config->cooperative);
  if (config->dependent >= 0) end += sprintf(end, " dependent=%d", config->dependent);
  const unsigned *cluster = config->cluster, *extents = config->extents;
  if (cluster[0]) end += sprintf(end, " cluster=%u,%u,%u", cluster[0], cluster[1], cluster[2]);
  for (int i = 0; i < kernel->count; i++) {
    const unsigned char* value = parameters[i];
    *end++ = ' ';
    for (int j = 0; j < kernel->sizes[i]; j++) end += sprintf(end, "%02x", value[j]);
  }
  record("%s %s grid=%u,%u,%u block=%u,%u,%u shared=%u stream=%llu device=%d%s", how, kernel->name, extents[0],
         extents[1], extents[2], extents[3], extents[4], extents[5], config->shared,
         (unsigned long long)(uintptr_t)config->stream, device, text);
  free(text);
  const CUresult fault_of_kernel = take_time(kernel, (double)extents[0] * extents[1] * extents[2], parameters);
  if (fault_of_kernel) return fault_of_kernel;
  return kernel->does ? compute(kernel, stream_of(config->stream), parameters) : SUCCESS;
}

static CUresult cuStreamBeginCapture(void* stream, int mode) {
  (void)mode;
  BEGIN(cuStreamBeginCapture);
  if (!stream_of(stream)) return INVALID_CONTEXT;
  is_captured = 1;
  captured = 0;
  return SUCCESS;
}

static CUresult cuStreamEndCapture(void* stream, double** graph) {
  BEGIN(cuStreamEndCapture);
  if (!is_captured || !stream_of(stream)) return INVALID_VALUE;
  is_captured = 0;
  *graph = malloc(sizeof **graph);
  **graph = captured;
  return SUCCESS;
}

static CUresult cuGraphInstantiate(double** executable, const double* graph, uint64_t flags) {
  (void)flags;
  BEGIN(cuGraphInstantiate);
  *executable = malloc(sizeof **executable);
  **executable = *graph;
  return SUCCESS;
}

static CUresult cuGraphLaunch(const double* executable, void* stream) {
  BEGIN(cuGraphLaunch);
  if (!stream_of(stream)) return INVALID_CONTEXT;
  now += *executable * (1 + slower);
  return SUCCESS;
}

static CUresult cuGraphExecDestroy(double* executable) {
  BEGIN(cuGraphExecDestroy);
  free(executable);
  return SUCCESS;
}

static CUresult cuGraphDestroy(double* graph) {
  BEGIN(cuGraphDestroy);
  free(graph);
  return SUCCESS;
}

static CUresult cuEventElapsedTime(float* milliseconds, const Event* first, const Event* last) {
  BEGIN(cuEventElapsedTime);
  *milliseconds = (float)((last->at - first->at) / 1000);
  return SUCCESS;
}

static CUresult cuMemsetD8Async(void* address, unsigned char value, size_t size, void* stream) {
  BEGIN(cuMemsetD8Async);
  if (!stream_of(stream) || !allocated(address)) return INVALID_VALUE;
  memset(address, value, size);
  return SUCCESS;
}

static CUresult cuLaunchKernel(const void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                               unsigned bz, unsigned shared, void* stream, void** parameters, void** extra) {
  (void)extra;
  const Configuration config = {{gx, gy, gz, bx, by, bz}, shared, stream, -1, -1, {0}};
  const CUresult error = launch("cuLaunchKernel", function, &config, parameters);
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

static CUresult cuLaunchKernelEx(const Config* given, const void* function, void** parameters, void** extra) {
  (void)extra;
  Configuration config = {{0}, given->shared, given->stream, -1, -1, {0}};
  memcpy(config.extents, given->extents, sizeof config.extents);
  for (unsigned i = 0; i < given->count; i++) {
    const Attribute* attribute = &given->attributes[i];
    switch (attribute->id) {
      case 2: config.cooperative = attribute->value.number; break;
      case 4: memcpy(config.cluster, attribute->value.cluster, sizeof config.cluster); break;
      case 6: config.dependent = attribute->value.number; break;
      default: return INVALID_VALUE;
    }
  }
  const CUresult error = launch("cuLaunchKernelEx", function, &config, parameters);
  BEGIN(cuLaunchKernelEx);
  return error;
}

static CUresult cuMemcpyHtoDAsync(void* to, const void* from, size_t size, void* stream) {
  record("cuMemcpyHtoDAsync %zu stream=%llu", size, (unsigned long long)(uintptr_t)stream);
  BEGIN(cuMemcpyHtoDAsync);
  Stream* at = stream_of(stream);
  if (!at) return INVALID_CONTEXT;
  // The driver reads page-locked memory when it comes to it, and other memory at once.
  const int kept = !allocated(from);
  char* source = kept ? memcpy(malloc(size), from, size) : (char*)from;
  give(at, (Work){.does = copy, .from = source, .to = to, .size = size, .from_kept = kept});
  return SUCCESS;
}

static CUresult cuMemcpyDtoHAsync(void* to, const void* from, size_t size, void* stream) {
  record("cuMemcpyDtoHAsync %zu stream=%llu", size, (unsigned long long)(uintptr_t)stream);
  BEGIN(cuMemcpyDtoHAsync);
  Stream* at = stream_of(stream);
  if (!at) return INVALID_CONTEXT;
  give(at, (Work){.does = copy, .from = (char*)from, .to = to, .size = size});
  if (!allocated(to)) finish(at, NULL);
  return SUCCESS;
}

static CUresult cuMemcpyAsync(void* to, const void* from, size_t size, void* stream) {
  record("cuMemcpyAsync %zu stream=%llu", size, (unsigned long long)(uintptr_t)stream);
  BEGIN(cuMemcpyAsync);
  Stream* at = stream_of(stream);
  if (!at) return INVALID_CONTEXT;
  finish(at, NULL);
  memcpy(to, from, size);
  return SUCCESS;
}

static CUresult cuCtxSynchronize(void) {
  record("cuCtxSynchronize");
  BEGIN(cuCtxSynchronize);
  return depth ? SUCCESS : INVALID_CONTEXT;
}

static CUresult cuStreamSynchronize(void* stream) {
  record("cuStreamSynchronize %llu", (unsigned long long)(uintptr_t)stream);
  BEGIN(cuStreamSynchronize);
  Stream* at = stream_of(stream);
  if (!at) return INVALID_CONTEXT;
  finish(at, NULL);
  return SUCCESS;
}

static CUresult cuStreamIsCapturing(void* stream, int* status) {
  BEGIN(cuStreamIsCapturing);
  *status = (uintptr_t)stream == (uintptr_t)setting("FAKE_CUDA_CAPTURING", -1);
  return SUCCESS;
}

// Of memory that is in no allocation, all attributes are 0, and the device is -2.
static CUresult cuPointerGetAttributes(unsigned count, const int* attributes, void** values, uint64_t address) {
  BEGIN(cuPointerGetAttributes);
  unsigned long long start = 0, size = ~0ull;
  int device = 0, is_known = 1;
  for (const char* at = getenv("FAKE_CUDA_MEMORY"); at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
    if (sscanf(at, "%lli+%lli@%d", (long long*)&start, (long long*)&size, &device) != 3) abort();
    is_known = start <= address && address < start + size;
    if (is_known) break;
  }
  const Allocation* at = allocated((void*)address);
  for (unsigned i = 0; i < count; i++) {
    switch (attributes[i]) {
      case 2: *(unsigned*)values[i] = !is_known ? 0 : at && at->on_host ? 1 : 2; break;  // MEMORY_TYPE: host, device
      case 8: *(unsigned*)values[i] = 0; break;                                          // IS_MANAGED
      case 9: *(int*)values[i] = is_known ? device : -2; break;                          // DEVICE_ORDINAL
      case 11: *(unsigned long long*)values[i] = is_known ? start : 0; break;            // RANGE_START_ADDR
      case 12: *(size_t*)values[i] = is_known ? size : 0; break;                         // RANGE_SIZE
      default: return INVALID_VALUE;
    }
  }
  return SUCCESS;
}

// The map has the arguments, so that tests see them.
CUresult cuTensorMapEncodeTiled(uint64_t* map, int type, uint32_t rank, void* address, const uint64_t* extents,
                                const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int interleave,
                                int swizzle, int promotion, int fill) {
  BEGIN(cuTensorMapEncodeTiled);
  if (!depth) return INVALID_CONTEXT;
  if ((uintptr_t)map % 64 || rank > 5 || (uintptr_t)address % 16) return INVALID_VALUE;
  memset(map, 0, 128);
  map[0] = (uintptr_t)address;
  map[1] = type + 256 * rank + 65536 * swizzle + (1 << 24) * (interleave + promotion + fill);
  for (uint32_t i = 0; i < rank; i++) {
    if (!extents[i] || steps[i] != 1) return INVALID_VALUE;
    map[2 + i] = extents[i];
    map[7 + i] = i + 1 < rank ? strides[i] : 0;
    map[12] |= (uint64_t)box[i] << 12 * i;
  }
  return SUCCESS;
}

// Write an error of `function` into the log, unless FAKE_CUDA_FAIL asks for it. "Not ready" is an answer.
static CUresult noted(const char* function, CUresult error) {
  if (error && error != NOT_READY && !is_asked_for) record("error %d of %s", error, function);
  return error;
}

#define FOR_EACH_FUNCTION(FUNCTION)                                                                                   \
  FUNCTION(cuInit) FUNCTION(cuDriverGetVersion) FUNCTION(cuGetErrorName) FUNCTION(cuGetErrorString)                   \
  FUNCTION(cuDeviceGetCount) FUNCTION(cuDeviceGet) FUNCTION(cuDeviceGetAttribute) FUNCTION(cuDeviceGetName)           \
  FUNCTION(cuDeviceTotalMem) FUNCTION(cuDevicePrimaryCtxRetain) FUNCTION(cuCtxGetCurrent) FUNCTION(cuCtxPushCurrent)  \
  FUNCTION(cuCtxPopCurrent) FUNCTION(cuCtxSetCurrent) FUNCTION(cuCtxGetDevice) FUNCTION(cuLibraryLoadData)            \
  FUNCTION(cuLibraryUnload) FUNCTION(cuLibraryGetKernel) FUNCTION(cuLibraryGetGlobal) FUNCTION(cuKernelGetAttribute)  \
  FUNCTION(cuKernelSetAttribute) FUNCTION(cuLaunchKernel) FUNCTION(cuLaunchKernelEx) FUNCTION(cuMemcpyHtoDAsync)      \
  FUNCTION(cuMemcpyDtoHAsync) FUNCTION(cuMemcpyAsync) FUNCTION(cuCtxSynchronize)                                      \
  FUNCTION(cuStreamSynchronize) FUNCTION(cuStreamIsCapturing) FUNCTION(cuPointerGetAttributes)                        \
  FUNCTION(cuStreamGetCtx) FUNCTION(cuKernelGetFunction) FUNCTION(cuOccupancyMaxPotentialBlockSize)                   \
  FUNCTION(cuOccupancyMaxActiveBlocksPerMultiprocessor) FUNCTION(cuOccupancyMaxPotentialClusterSize)                  \
  FUNCTION(cuMemAlloc) FUNCTION(cuMemFree) FUNCTION(cuMemHostAlloc) FUNCTION(cuMemPoolCreate)                         \
  FUNCTION(cuMemPoolSetAttribute) FUNCTION(cuMemAllocFromPoolAsync) FUNCTION(cuMemAllocAsync) FUNCTION(cuMemFreeAsync) \
  FUNCTION(cuStreamCreate) FUNCTION(cuStreamWaitEvent) FUNCTION(cuEventCreate) FUNCTION(cuEventDestroy)               \
  FUNCTION(cuEventRecord) FUNCTION(cuEventSynchronize) FUNCTION(cuEventQuery) FUNCTION(cuTensorMapEncodeTiled) \
  FUNCTION(cuStreamBeginCapture) FUNCTION(cuStreamEndCapture) FUNCTION(cuGraphInstantiate) FUNCTION(cuGraphLaunch)     \
  FUNCTION(cuGraphExecDestroy) FUNCTION(cuGraphDestroy) FUNCTION(cuEventElapsedTime) FUNCTION(cuMemsetD8Async)

// Callers get the functions so. Arguments are words of the machine, of which a function takes as many as it has.
typedef uintptr_t Word;
typedef CUresult (*Function12)(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word);
#define NOTED(name)                                                                                                  \
  static CUresult noted_##name(Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i, Word j, Word k, \
                               Word l) {                                                                             \
    const volatile Word address = (Word)name; /* which the compiler does not look through */                          \
    return noted(#name, ((Function12)address)(a, b, c, d, e, f, g, h, i, j, k, l));                                  \
  }
FOR_EACH_FUNCTION(NOTED)

// The loader and cuda-bindings ask for every function by its name; what is not in the table does not exist. The library
// exports no other function: NVRTC, which opens it too, would call those that it finds.
CUresult cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, int* status) {
  (void)flags;
  BEGIN(cuGetProcAddress);
  const char* lacks = getenv("FAKE_CUDA_LACKS");
#define ENTRY(name) {#name, (void*)noted_##name},
  static const struct {
    const char* name;
    void* function;
  } table[] = {{"cuGetProcAddress", (void*)cuGetProcAddress_v2}, FOR_EACH_FUNCTION(ENTRY)};
  *function = NULL;
  if (status) *status = 1;
  size_t i = 0;
  while (i < sizeof table / sizeof *table && strcmp(table[i].name, name)) i++;
  if (i == sizeof table / sizeof *table) return NOT_FOUND;  // cuda-bindings alone asks for such
  const int is_too_new = version > 12000 && version > setting("FAKE_CUDA_VERSION", 13000);
  if (is_too_new || (lacks && !strcmp(name, lacks))) return noted("cuGetProcAddress", NOT_FOUND);
  *function = table[i].function;
  if (status) *status = 0;
  return SUCCESS;
}
