// Texture and surface objects.

#pragma once

// Each texture function returns what it reads, or puts it where the first argument leads.
#define TEXTURE(name, ...)                                                                      \
  template <class T> __device__ T name(cudaTextureObject_t texture, __VA_ARGS__);               \
  template <class T> __device__ void name(T* value, cudaTextureObject_t texture, __VA_ARGS__);
TEXTURE(tex1Dfetch, int x)
TEXTURE(tex1D, float x)
TEXTURE(tex1DLod, float x, float level)
TEXTURE(tex1DGrad, float x, float dx, float dy)
TEXTURE(tex1DLayered, float x, int layer)
TEXTURE(tex1DLayeredLod, float x, int layer, float level)
TEXTURE(tex1DLayeredGrad, float x, int layer, float dx, float dy)
TEXTURE(tex2D, float x, float y)
TEXTURE(tex2DLod, float x, float y, float level)
TEXTURE(tex2DGrad, float x, float y, float2 dx, float2 dy)
TEXTURE(tex2DLayered, float x, float y, int layer)
TEXTURE(tex2DLayeredLod, float x, float y, int layer, float level)
TEXTURE(tex2DLayeredGrad, float x, float y, int layer, float2 dx, float2 dy)
TEXTURE(tex2Dgather, float x, float y, int component = 0)
TEXTURE(tex3D, float x, float y, float z)
TEXTURE(tex3DLod, float x, float y, float z, float level)
TEXTURE(tex3DGrad, float x, float y, float z, float4 dx, float4 dy)
TEXTURE(texCubemap, float x, float y, float z)
TEXTURE(texCubemapLod, float x, float y, float z, float level)
TEXTURE(texCubemapGrad, float x, float y, float z, float4 dx, float4 dy)
TEXTURE(texCubemapLayered, float x, float y, float z, int layer)
TEXTURE(texCubemapLayeredLod, float x, float y, float z, int layer, float level)
TEXTURE(texCubemapLayeredGrad, float x, float y, float z, int layer, float4 dx, float4 dy)
#undef TEXTURE

// Of a surface, x counts bytes.
#define SURFACE(name, ...)                                                                             \
  template <class T>                                                                                   \
  __device__ T name##read(cudaSurfaceObject_t surface, __VA_ARGS__,                                    \
                          cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap);                        \
  template <class T>                                                                                   \
  __device__ void name##read(T* value, cudaSurfaceObject_t surface, __VA_ARGS__,                       \
                             cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap);                     \
  template <class T>                                                                                   \
  __device__ void name##write(T value, cudaSurfaceObject_t surface, __VA_ARGS__,                       \
                              cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap);
SURFACE(surf1D, int x)
SURFACE(surf1DLayered, int x, int layer)
SURFACE(surf2D, int x, int y)
SURFACE(surf2DLayered, int x, int y, int layer)
SURFACE(surf3D, int x, int y, int z)
SURFACE(surfCubemap, int x, int y, int face)
SURFACE(surfCubemapLayered, int x, int y, int layer)
#undef SURFACE
