// What nvcc declares in every source, since it includes <cuda_runtime.h> and with it headers of the host.
#pragma once

#include "algorithm"
#include "cfloat"
#include "climits"
#include "cmath"
#include "cstdint"
#include "cstdlib"
#include "cstring"
#include "ctime"
#include "initializer_list"
#include "limits"
#include "type_traits"
#include "utility"

using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;
using ulong = unsigned long;
