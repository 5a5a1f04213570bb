// The data of the module sample.kernels, as a build generates it. Its images are text for the fake driver.

#include "sample.h"

namespace sample::kernels {
namespace {

using namespace ::cuda_ext;

template <class T, std::size_t size>
constexpr Array<T> all_of(const T (&elements)[size]) {
  return {elements, size};
}

constexpr unsigned char axpy_fatbin[] =
    "kernel _Z4axpyIfEv 0 4 4 8 8\n"
    "kernel _Z4axpyIdEv 0 4 8 8 8\n"
    "kernel plain 0\n"
    "kernel plain_of_sm_80 0\n"
    "kernel tiled 40960\n"
    "kernel narrow 0\n"
    "threads narrow 256\n"
    "kernel _Z2ovi 0 4\n"
    "kernel _Z2ovfPi 0 4 8\n"
    "kernel _ZN2ns4move 0 8 12 4 1 16\n"
    "symbol weights 36\n"
    "symbol _ZN2ns5tableE 4\n"
    "symbol twice 4\n";
constexpr unsigned char gemm_cubin[] = "kernel gemm 0\nsymbol twice 4\n";
constexpr unsigned char later_ptx[] = "kernel later 0\n";
constexpr unsigned char small_fatbin[] = "kernel small 0\n";
constexpr unsigned char separate_sm_80[] = "kernel separate 0\nsymbol table 80\n";
constexpr unsigned char separate_sm_90[] = "kernel separate 0\nsymbol table 90\n";

constexpr ImageData axpy_images[] = {
    {"sm_90", 90, 99, 13000, "made by CUDA 13.5", axpy_fatbin, sizeof axpy_fatbin - 1},
    {"sm_80", 80, 89, 13000, "made by CUDA 13.5", axpy_fatbin, sizeof axpy_fatbin - 1},
    {"compute_90", 90, 999, 13050, "made by CUDA 13.5", axpy_fatbin, sizeof axpy_fatbin - 1}};
constexpr ImageData gemm_images[] = {
    {"sm_90a", 90, 90, 13000, "made by CUDA 13.5", gemm_cubin, sizeof gemm_cubin - 1}};
constexpr ImageData later_images[] = {
    {"compute_80", 80, 999, 13050, "made by CUDA 13.5", later_ptx, sizeof later_ptx - 1},
    {"lto_90", 0, -1, 0, "", later_ptx, sizeof later_ptx - 1}};
constexpr ImageData small_images[] = {
    {"sm_90", 90, 99, 12040, "compressed with zstd", small_fatbin, sizeof small_fatbin - 1}};
constexpr ImageData separate_images[] = {
    {"sm_90", 90, 99, 0, "", separate_sm_90, sizeof separate_sm_90 - 1},
    {"sm_80", 80, 89, 0, "", separate_sm_80, sizeof separate_sm_80 - 1}};

constexpr UnitData units[] = {
    {"device/axpy.cu", all_of(axpy_images), "sm_80, sm_90; PTX: compute_90"},
    {"device/gemm.cu", all_of(gemm_images), "sm_90a; PTX: none"},
    {"device/later.cu", all_of(later_images), "none; PTX: compute_80; LTO-IR, which has to be linked first: lto_90"},
    {"device/small.cu", all_of(small_images), "sm_90; PTX: none"},
    {"device/separate.cu", all_of(separate_images), "sm_80, sm_90; PTX: none"}};

constexpr ParameterData of_axpy_float[] = {
    {"n", "int", 4}, {"a", "float", 4}, {"x", "const float*", 8}, {"y", "float*", 8}};
constexpr ParameterData of_axpy_double[] = {
    {"n", "int", 4}, {"a", "double", 8}, {"x", "const double*", 8}, {"y", "double*", 8}};
constexpr ParameterData of_ov_int[] = {{"n", "int", 4}};
constexpr ParameterData of_ov_float[] = {{"a", "float", 4}, {"x", "int*", 8}};
constexpr ParameterData of_move[] = {{"particles", "ns::Particle*", 8},
                                     {"origin", "ns::Particle", 12},
                                     {"mode", "ns::Mode", 4},
                                     {"back", "bool", 1},
                                     {"wide", "__int128", 16}};

constexpr LoweredName plain_elsewhere[] = {{1, "plain_of_sm_80"}};
constexpr LoweredName tiled_elsewhere[] = {{1, nullptr}};

constexpr KernelData kernel_table[] = {{"axpy<float>", "_Z4axpyIfEv", 0, all_of(of_axpy_float), {}},
                                       {"axpy<double>", "_Z4axpyIdEv", 0, all_of(of_axpy_double), {}},
                                       {"plain", "plain", 0, {}, all_of(plain_elsewhere)},
                                       {"tiled", "tiled", 0, {}, all_of(tiled_elsewhere)},
                                       {"gemm", "gemm", 1, {}, {}},
                                       {"later", "later", 2, {}, {}},
                                       {"small", "small", 3, {}, {}},
                                       {"separate", "separate", 4, {}, {}},
                                       {"narrow", "narrow", 0, {}, {}},
                                       {"ov(int)", "_Z2ovi", 0, all_of(of_ov_int), {}},
                                       {"ov(float, int*)", "_Z2ovfPi", 0, all_of(of_ov_float), {}},
                                       {"ns::move<ns::Particle, 4>", "_ZN2ns4move", 0, all_of(of_move), {}}};

constexpr SymbolData symbol_table[] = {{"weights", "weights", 0, "float[9]", 36, {}},
                                       {"ns::table", "_ZN2ns5tableE", 0, "unsigned char[4]", 4, {}},
                                       {"table", "table", 4, "char[90]", 90, {}},
                                       {"twice", "twice", 0, "int", 4, {}},
                                       {"twice", "twice", 1, "int", 4, {}}};

}  // namespace

const ModuleData cuda_ext_module = {open_module,
                                    "sample.kernels",
                                    "nvrtc 13.5",
                                    false,
                                    all_of(units),
                                    all_of(kernel_table),
                                    all_of(symbol_table),
                                    {},
                                    {0, nullptr, nullptr, ""}};

const Library& cuda_ext_library() {
  static auto& library = *new Library(cuda_ext_module);
  return library;
}

ModuleKernel& cuda_ext_kernel(std::size_t index) {
  return cuda_ext_library().module().kernel(index);
}

}  // namespace sample::kernels
