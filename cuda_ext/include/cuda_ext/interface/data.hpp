// The data of one module in its generated source: constants that describe the compiled images.
//
// They have the content of the Python package's manifest. Nothing here is ever changed or freed.

namespace cuda_ext CUDA_EXT_HIDDEN {
inline namespace CUDA_EXT_ABI {

// An array of `size` elements at `data`.
template <class T>
struct Array {
  const T* data = nullptr;
  std::size_t size = 0;

  constexpr const T* begin() const noexcept { return data; }
  constexpr const T* end() const noexcept { return data + size; }
  constexpr const T& operator[](std::size_t index) const noexcept { return data[index]; }
};

// A translation unit compiled for one architecture, as nvcc spells it ("sm_90a", "compute_90", "lto_90").
// GPUs run it whose compute capability is from `first_gpu` to `last_gpu`, under a driver that supports CUDA
// `needed_driver`, 1000 * major + 10 * minor, for the `reason`. `data` is the content of its file, followed
// by a zero byte. All images of a fatbin share it.
struct ImageData {
  const char* architecture;
  int first_gpu;
  int last_gpu;
  int needed_driver;
  const char* reason;
  const unsigned char* data;
  std::size_t size;
};

// A translation unit or several linked ones, which the driver loads as one. `sources` are paths within the
// project, "device/axpy.cu, device/gemm.cu". The driver takes the first of the `images` that runs on its GPU.
// `built` lists them in messages.
struct UnitData {
  const char* sources;
  Array<ImageData> images;
  const char* built;
};

// The name of a kernel or a symbol in one image, by the image's position in its unit; nullptr if the image
// lacks it.
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

// The value of one of a kernel's parameters: the argument of a call at this position; or else a zero of so
// many bytes; or, if both are missing, the address of the memory that each launch allocates.
struct PassedData {
  int argument;
  std::size_t zeros;
};

// The launch configuration that an image fixes, by the image's position in its unit. A call gives only the
// grid, in clusters if `cluster` is not zero. `scratch` is the size of the memory for each block in bytes.
struct FixedLaunchData {
  std::size_t image;
  unsigned block[3];
  std::size_t shared;
  unsigned cluster[3];
  bool cooperative;
  bool dependent;
  std::size_t scratch;
};

// A term of a condition. It compares the argument at this position, or else the compute capability (90 for
// 9.0), modulo `modulus` unless that is 0, with `number`; the bits of `outcomes` say which of less, equal and
// greater are true. With a `target`, "90a", it asks whether the image for the GPU has this target.
struct TermData {
  int argument;
  bool is_signed;
  long long modulus;
  unsigned outcomes;
  long long number;
  const char* target;
};

// A kernel that was compiled under the condition `when`: all of the `terms` must hold.
struct KernelData;
struct CandidateData {
  const KernelData* kernel;
  const char* when;
  Array<TermData> terms;
};

// An integer, "BLOCK", that a kernel was compiled for. Calls do not give it.
struct ConfigurationData {
  const char* name;
  long long value;
};

// A kernel, or one instantiation of a template. `lowered` is its name in all images except those in
// `exceptions`. Parameters of a kernel that is compiled when the program runs are not described. `parameters`
// are those of a call; `passed` are the kernel's own, if these are others. If there are `candidates`, a
// launch takes the first one whose condition holds.
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

// Device headers, in the form that nvrtcCreateProgram takes. A header is listed under its path within the
// project. If it also has a path below an include directory, that is the name of a second header, which
// includes the first. The digest `sha256` changes with every name and text.
struct HeaderData {
  int count;
  const char* const* texts;
  const char* const* names;
  const char* sha256;
};

// The source of a unit as NVRTC compiles it on demand. `sha256` is the digest of its text and its headers.
// `options` are NVRTC's options on every machine and for every architecture. `instantiate` are the name
// expressions that were built. `is_specific` adds the features of exactly one GPU (sm_90a). `obstacle` says
// why it is not compiled on demand; it is empty if it is.
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

// A kernel template and the unit that defines it, or an `obstacle` to its compilation on demand. The name of
// a built kernel's template `is_qualified`. Other names are as in the sources, without namespaces.
struct TemplateData {
  const char* name;
  bool is_qualified;
  std::size_t unit;
  const char* obstacle;
};

// Declared in loader/demand.hpp, and defined in on_demand/on_demand.cpp.
struct Demand;
void fulfil_demand(Demand& demand);

// The parts of a module for compilation on demand: the source of each unit, and the templates.
struct OnDemandData {
  void (*fulfil)(Demand& demand);
  Array<RecipeData> units;
  Array<TemplateData> templates;
};

// Defined in loader/loader.cpp: opens the module of `data`, with one holder.
class Module;
struct ModuleData;
Module* open_module(const ModuleData& data);

// `open` is the loader's function. `name` is the import name, "example_project.kernels", and `compiler` the
// compiler's name and version, "nvrtc 13.5". `jit` is true if sources and headers are embedded, and
// `on_demand` describes how to compile them.
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
