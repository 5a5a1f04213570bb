/* The part of DLPack 1 that reads a tensor through its type's `__dlpack_c_exchange_api__`, as dlpack.h declares it. */
#ifndef CUDA_EXT_DLPACK_H
#define CUDA_EXT_DLPACK_H

#include <stdint.h>

enum { kDLCUDA = 2 };
enum {
  kDLInt = 0,
  kDLUInt = 1,
  kDLFloat = 2,
  kDLOpaqueHandle = 3,
  kDLBfloat = 4,
  kDLComplex = 5,
  kDLBool = 6,
};

typedef struct DLDevice {
  int32_t device_type;
  int32_t device_id;
} DLDevice;

typedef struct DLDataType {
  uint8_t code, bits;
  uint16_t lanes;
} DLDataType;

typedef struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} DLTensor;

/* Both return 0, or -1 with an exception set. */
typedef int DLTensorFromObject(void* object, DLTensor* tensor);
typedef int DLCurrentStream(int32_t device_type, int32_t device_id, void** stream);

typedef struct DLExchange {
  uint32_t major, minor;
  const struct DLExchange* previous; /* the same in another version, or NULL */
  void* allocate;
  void* managed_from_object;
  void* managed_to_object;
  DLTensorFromObject* tensor_from_object;
  DLCurrentStream* current_stream;
} DLExchange;

#endif
