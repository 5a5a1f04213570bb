// The data of one module in its generated source: constants that describe the compiled images.
//
// They hold the content of the Python package's manifest. Nothing here is ever changed or freed.

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

// `size` elements that lie at `data`.
template <class T>
struct Array {
  const T* data = nullptr;
  std::size_t size = 0;

  constexpr const T* begin() const noexcept { return data; }
  constexpr const T* end() const noexcept { return data + size; }
  constexpr const T& operator[](std::size_t index) const noexcept { return data[index]; }
};

// A translation unit compiled for one architecture, as nvcc spells it ("sm_90a", "compute_90", "lto_90").
// `data` is the file that holds it, followed by a zero byte; the images of one fatbin share it.
struct ImageData {
  const char* architecture;
  const unsigned char* data;
  std::size_t size;
};

// What is loaded as one. `sources` are paths within the project, "device/axpy.cu, device/gemm.cu".
// `version` is the CUDA version that made the machine code, 1000 * major + 10 * minor, and 0 where it arrived
// compiled; `ptx_version` is the same of the PTX. `zstd` says that only drivers from CUDA 12.4 on can
// decompress it.
struct UnitData {
  const char* sources;
  Array<ImageData> images;
  int version;
  int ptx_version;
  bool zstd;
};

// What a kernel or a symbol is called in one image, counted within its unit; nullptr if it is not there.
struct LoweredName {
  std::size_t image;
  const char* lowered;
};

// `type` is a C++ type without typedefs; `size` counts bytes.
struct ParameterData {
  const char* name;
  const char* type;
  std::size_t size;
};

// What the kernel gets for one of its parameters: the argument of a call at that position; or else a zero of
// so many bytes; or, without any, the address of the memory that an image has each launch allocate.
struct PassedData {
  int argument;
  std::size_t zeros;
};

// What an image, counted within its unit, fixes of launches of a kernel, so that a call gives the grid alone.
// That counts clusters if `cluster` is not zero. `scratch` are the bytes of memory for each block.
struct FixedLaunchData {
  std::size_t image;
  unsigned block[3];
  unsigned cluster[3];
  std::size_t shared;
  std::size_t scratch;
  bool cooperative;
  bool dependent;
};

// A part of a condition: the argument at that position, or else the compute capability, 90 for 9.0, modulo
// `modulus` unless that is 0, is less than, equal to or greater than `number`, by the bits of `outcomes`; or
// the image for the GPU has that `target`, "90a". `then` and `otherwise` are the positions of parts before
// this one, or what follows for the condition.
struct ComparisonData {
  enum { holds = -1, fails = -2 };

  int argument;
  bool is_signed;
  unsigned long long modulus;
  unsigned outcomes;
  unsigned long long number;
  bool is_negative;
  const char* target;
  int then;
  int otherwise;
};

// A kernel that is compiled on a condition, `when`; the last of the comparisons is made first.
struct KernelData;
struct CandidateData {
  const KernelData* kernel;
  const char* when;
  Array<ComparisonData> comparisons;
};

// An integer that a kernel was compiled for, and that no call gives, "BLOCK".
struct ConfigurationData {
  const char* name;
  long long value;
};

// A kernel, or one instantiation of a template. `lowered` is its name in all images but those in
// `exceptions`. Where it is compiled when the program runs, the parameters are not described. Those are the
// ones of a call; `passed` are the kernel's own, if there are others. A launch takes the first of the
// `candidates` whose condition holds, if there are any.
struct KernelData {
  const char* expression;
  const char* lowered;
  std::size_t unit;
  Array<ParameterData> parameters;
  Array<LoweredName> exceptions;
  bool is_described = true;
  Array<PassedData> passed = {};
  Array<FixedLaunchData> launches = {};
  Array<CandidateData> candidates = {};
  Array<ConfigurationData> configuration = {};
};

// A __constant__ or __device__ variable.
struct SymbolData {
  const char* name;
  const char* lowered;
  std::size_t unit;
  const char* type;
  std::size_t size;
  Array<LoweredName> exceptions;
};

// A device source: its path within the project, and its text.
struct SourceData {
  const char* name;
  const char* text;
};

// Device headers, in the form in which nvrtcCreateProgram takes them. A header is listed under its path within
// the project; its path below an include directory is the name of a further header, which includes it. The
// digest `sha256` changes with every name and text.
struct HeaderData {
  int count;
  const char* const* texts;
  const char* const* names;
  const char* sha256;
};

// The source of a unit as NVRTC compiles it on demand. `sha256` is the digest of its text and its headers;
// `options` are those of NVRTC on every machine and for every architecture; `instantiate` are the name
// expressions that were built ahead. `is_specific` adds the features of exactly one GPU (sm_90a). `obstacle`
// says why it is not compiled on demand, and is empty if it is.
struct RecipeData {
  const char* name;
  const char* text;
  const char* sha256;
  Array<const char*> options;
  Array<const char*> instantiate;
  HeaderData headers;
  bool is_specific;
  const char* obstacle;
};

// A kernel template, and the unit that defines it, unless there is an `obstacle`. The name of a built kernel
// `is_qualified`; the others are as in the sources, without namespaces.
struct TemplateData {
  const char* name;
  bool is_qualified;
  std::size_t unit;
  const char* obstacle;
};

// Of loader/demand.hpp; defined in on_demand/on_demand.cpp.
struct Demand;
void fulfil_demand(Demand& demand);

// What compiles on demand, the source of each unit, and the templates of the module.
struct OnDemandData {
  void (*fulfil)(Demand& demand);
  Array<RecipeData> units;
  Array<TemplateData> templates;
};

// Of loader/loader.cpp: the module of `data`, with one holder.
class Module;
struct ModuleData;
Module* open_module(const ModuleData& data);

// `open` is the loader's. `name` is the import name, "example_project.kernels"; `compiler` what compiled it,
// "nvrtc 13.5". `jit` says whether sources and headers are there, and `on_demand` how to compile them.
struct ModuleData {
  Module* (*open)(const ModuleData& data);
  const char* name;
  const char* compiler;
  bool jit;
  Array<UnitData> units;
  Array<KernelData> kernels;
  Array<SymbolData> symbols;
  Array<SourceData> sources;
  HeaderData headers;
  const OnDemandData* on_demand = nullptr;
};

}  // namespace CUDA_EXT_ABI
}  // namespace cuda_ext
