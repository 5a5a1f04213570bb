// The driver without a GPU, which reads fatbins too: the cubin for its GPU is taken out and decompressed with zstd.
//
// It is ../fake_driver/libcuda.c with another cuLibraryLoadData. FAKE_CUDA_CAPABILITY says which GPU it is (90).

#define cuGetProcAddress_v2 cuGetProcAddress_of_cubins
#include "fake_driver/libcuda.c"
#undef cuGetProcAddress_v2

#include <dlfcn.h>

// How an entry of a fatbin begins.
typedef struct Entry {
  uint16_t kind, version;
  uint32_t header_size;
  uint64_t padded_size;
  uint32_t compressed_size, options_offset;
  uint16_t minor, major;
  uint32_t architecture, identifier_offset, identifier_size;
  uint64_t flags, key, size;
} Entry;

enum { CUBIN = 2, ZSTD = 0x8000, FAMILY = 0x200000, EXACTLY = 0x100000 };

static const Entry* cubin_for(int capability, const char* fatbin) {
  const Entry* best = NULL;
  const char* end = fatbin + 16 + *(const uint64_t*)(fatbin + 8);
  for (const char* at = fatbin + 16; at < end;) {
    const Entry* entry = (const Entry*)at;
    const int number = entry->architecture;
    const int fits = number / 10 == capability / 10 && number <= capability &&
                     (!(entry->flags & EXACTLY) || number == capability);
    if (entry->kind == CUBIN && fits && (!best || best->architecture <= entry->architecture)) best = entry;
    at += entry->header_size + entry->padded_size;
  }
  return best;
}

typedef CUresult (*LoadData)(Library**, const void*, int*, void**, unsigned, int*, void**, unsigned);
static LoadData load_cubin;

static CUresult load(Library** out, const void* code, int* jit_options, void** jit_values, unsigned jit_count,
                     int* options, void** values, unsigned count) {
  const Entry* entry = *(const uint32_t*)code == 0xba55ed50 ? cubin_for(setting("FAKE_CUDA_CAPABILITY", 90), code) : NULL;
  if (entry) code = (const char*)entry + entry->header_size;
  if (entry && entry->flags & ZSTD) {
    void* zstd = dlopen("libzstd.so.1", RTLD_NOW);
    size_t (*decompress)(void*, size_t, const void*, size_t) = NULL;
    if (zstd) *(void**)&decompress = dlsym(zstd, "ZSTD_decompress");
    char* cubin = malloc(entry->size);
    if (!decompress || decompress(cubin, entry->size, code, entry->compressed_size) != entry->size) return 200;
    code = cubin;  // kept, as the library refers to it
  }
  return load_cubin(out, code, jit_options, jit_values, jit_count, options, values, count);
}

CUresult cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, int* status) {
  const CUresult error = cuGetProcAddress_of_cubins(name, function, version, flags, status);
  if (!strcmp(name, "cuGetProcAddress")) *function = (void*)cuGetProcAddress_v2;
  if (!strcmp(name, "cuLibraryLoadData")) {
    load_cubin = (LoadData)*function;
    *function = (void*)load;
  }
  return error;
}
