// Does what its arguments say with the kernels of a generated module, and prints what came of each, in a
// line.

#include <p/kernels/compile.hpp>
#include <p/kernels.h>

#include <cuda_ext/loader/launches.hpp>

#include "takes.hpp"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace kernels = p::kernels;

// Prints a line, whatever is in `text`.
void print(std::string text) {
  for (char& letter : text) letter = letter == '\n' ? '|' : letter;
  std::puts(text.c_str());
  std::fflush(stdout);
}

void perform(const std::string& command, const std::string& operand);

void run(const std::string& text) {
  const std::size_t colon = text.find(':');
  try {
    perform(text.substr(0, colon), colon == std::string::npos ? "" : text.substr(colon + 1));
  } catch (const cuda_ext::CompilationError& error) {
    print(std::string("CompilationError: ") + error.what());
  } catch (const cuda_ext::ToolchainError& error) {
    print(std::string("ToolchainError: ") + error.what());
  } catch (const cuda_ext::KernelNotFoundError& error) {
    print(std::string("KernelNotFoundError: ") + error.what());
  } catch (const cuda_ext::NoImageError& error) {
    print(std::string("NoImageError: ") + error.what());
  } catch (const cuda_ext::PtxTooNewError& error) {
    print(std::string("PtxTooNewError: ") + error.what());
  } catch (const cuda_ext::Error& error) {
    print(std::string("Error: ") + error.what());
  }
}

// Every parameter is given bytes that are 0.
void launch(const cuda_ext::Kernel& kernel) {
  std::vector<char> zeros(4096);
  std::vector<void*> arguments(64, zeros.data());
  kernel.launch_raw({1, 1}, arguments.data());
}

// A source that is compiled when the program runs, with an embedded header, one of the program's own, and one in
// the directory `include`.
constexpr const char* source = R"(
#include "by.cuh"
#include <own.h>
#if HAS_FILE
#include "file.h"
#endif
template <class T> __global__ void times(int n, T* x, T by) { if (threadIdx.x < n) x[threadIdx.x] *= by * BY * OWN; }
extern "C" __global__ void plain(float* x) { *x = 1; }
)";

// A program of two units, with variables.
const std::string first_unit = R"(
#warning the compiler says this
namespace z { template <class T> __constant__ T tv; __device__ int x; static __device__ int y; struct Fixed { static constexpr int v = 3; }; }
static __constant__ short sg;
namespace { __device__ int hidden; }
__device__ int other(int);
template <class T> __global__ void use(T* p) { *p = z::tv<T> + z::y + sg + hidden + other(1) + *&z::Fixed::v; }
)";
const std::string second_unit = "__device__ int other(int x) { return x + 1; }";
const std::vector<std::string> unit_names = {"use<double>", "&z::tv<double>"};

// What was not built ahead takes what the parameters of its template say.
static_assert(takes<double*, float>(kernels::scale<double>) && !takes<float*, double>(kernels::scale<double>));
static_assert(takes<int*, long>(kernels::scale<int>) && !takes<int*, float>(kernels::scale<int>));
static_assert(!takes<int*, int, float*>(kernels::ns::fill<int, 3>) && takes<int*, int, void*>(kernels::ns::fill<int, 3>));
static_assert(takes<int*, float*>(kernels::reduce<int>) == false && takes<int*, int*>(kernels::reduce<int>));

std::optional<cuda_ext::Library> compiled;

void compile(const std::string& include, const std::vector<std::string>& names) {
  cuda_ext::CompileOptions options;
  options.name = "own.cu";
  options.options = {"--std=c++20", include.empty() ? "-DHAS_FILE=0" : "-DHAS_FILE=1"};
  options.headers = &kernels::cuda_ext_headers();
  options.texts = {{"own.h", "#define OWN 2\n"}};
  if (!include.empty()) options.include_directories = {include};
  compiled = cuda_ext::compile(source, names, options);
}

void perform(const std::string& command, const std::string& operand) {
  const cuda_ext::Library& library = kernels::cuda_ext_library();
  if (command == "launch") return launch(library.kernel(operand));
  if (command == "signature") return print(cuda_ext::signature(library.kernel(operand).data()));
  if (command == "typed") return kernels::scale<double>({1, 32}, static_cast<double*>(nullptr), 2.0);
  if (command == "converted") return kernels::scale<double>({1, 32}, nullptr, 2.0f);
  if (command == "unbuilt") {  // instantiations of templates of which none was built
    kernels::lonely<int>({1, 32}, static_cast<int*>(nullptr));
    return kernels::ns::sized<float, 3>({1, 32}, 1.0f, 2);
  }
  if (command == "narrow") return kernels::scale<unsigned char>({1, 32}, nullptr, operand.size() + 300);
  if (command == "variable") return kernels::ns::fill<unsigned, 7>({1, 32}, nullptr, 0, nullptr);
  if (command == "compile") return compile(operand, {"times<float>", "times<double>", "plain"});
  if (command == "texts") {  // one of the embedded headers is replaced, or a name is there twice
    cuda_ext::CompileOptions options;
    options.headers = &kernels::cuda_ext_headers();
    options.texts = {{"by.cuh", "#define BY 5\n"}, {operand, "\n"}};
    compiled = cuda_ext::compile("#include \"by.cuh\"\nextern \"C\" __global__ void five() { static_assert(BY == 5); }",
                                 {"five"}, options);
    return;
  }
  if (command == "nul") {
    compiled = cuda_ext::compile(std::string("\0", 1), {"five"});
    return;
  }
  if (command == "wrong") return compile("", {operand});
  cuda_ext::CompileOptions for_architecture;
  for_architecture.architecture = operand;
  if (command == "program") {  // one library of both units
    compiled = cuda_ext::compile(first_unit + second_unit, unit_names, for_architecture);
    return;
  }
  if (command == "size") return print(std::to_string(compiled->symbol(operand).size));
  if (command == "values") {
    compiled->copy_from("z::x", 41);
    int x = 0;
    compiled->copy_to("z::x", x);
    print(std::to_string(x));
    return compiled->copy_from("z::x", 41.0);
  }
  if (command == "image") {
    const cuda_ext::Image image = cuda_ext::compile_image(first_unit + second_unit, unit_names, for_architecture);
    const bool is_said = image.log.find("the compiler says this") != image.log.npos;
    return print(image.architecture + " " + (image.data[0] == '\x7f' ? "cubin" : image.data[0] == '/' ? "PTX" : "else") + " " +
                 image.lowered_name("use<double>") + " " + image.lowered_name("&z::tv<double>") + (is_said ? " and a log" : ""));
  }
  if (command == "link") {  // the kinds of images of both units, and the architecture
    std::vector<cuda_ext::Image> images;
    for (std::size_t i = 0; i < 2; i++) {
      cuda_ext::CompileOptions options;
      options.name = i ? "second.cu" : "first.cu";
      options.architecture = operand.substr(4 * i, 3) == "lto" ? "lto_90" : operand.substr(4 * i, 3) == "ptx" ? "compute_90" : "sm_90";
      if (options.architecture != "lto_90") options.options = {"-rdc=true"};
      images.push_back(i ? cuda_ext::compile_image(second_unit, {}, options) : cuda_ext::compile_image(first_unit, unit_names, options));
    }
    cuda_ext::Image linked = cuda_ext::link_images(images, operand.substr(8));
    print(linked.architecture);
    compiled = cuda_ext::load_image(std::move(linked), "linked");
    return launch(compiled->kernel("use<double>"));
  }
  if (command == "load") {  // damaged images, and ones to link
    cuda_ext::CompileOptions options;
    options.architecture = operand == "ptx" ? "compute_90" : operand == "lto" ? "lto_90" : "sm_90";
    if (operand == "rdc") options.options = {"-rdc=true"};
    cuda_ext::Image image = cuda_ext::compile_image(second_unit + "extern \"C\" __global__ void k() {}", {"k"}, options);
    if (operand[0] == 'c') image.data.resize(operand == "cut" ? image.data.size() / 2 : 3);
    if (operand == "none") image.architecture = "sm-90";
    compiled = cuda_ext::load_image(std::move(image));
    return compiled->kernel("k").launch({1, 1});
  }
  if (command == "unlinked") {
    cuda_ext::CompileOptions options;
    options.architecture = "sm_90";
    options.options = {"-rdc=true"};
    const std::string text = operand == "none" ? first_unit : second_unit;
    std::vector<cuda_ext::Image> images(operand == "empty" ? 0 : 1);
    if (!images.empty()) images[0] = cuda_ext::compile_image(text, operand == "none" ? unit_names : std::vector<std::string>(), options);
    if (operand == "garbage") images[0].data = "garbage";
    cuda_ext::link_images(images, operand == "sm" ? "sm" : "", {operand == "option" ? "-nonsense" : "-O3"});
    return;
  }
  if (command == "headers") {  // relative to their includers, and of the standard library
    cuda_ext::CompileOptions options;
    options.name = "kernels/five.cu";
    options.texts = {{"kernels/ops/a.cuh", "#include \"b.cuh\"\n  # include \"../c.cuh\"\n"},
                     {"kernels/ops/b.cuh", "#pragma once\n#define B 2\n"},
                     {"kernels/c.cuh", "#include \"./ops/b.cuh\"\n#define C 3\n"},
                     {"b.cuh", "#error this is another\n"}};
    options.options = {"-default-device"};
    compiled = cuda_ext::compile("#include <algorithm>\n#include <cstdint>\n#include <type_traits>\n"
                                 "#include <math.h>\n#include \"ops/a.cuh\"\n"
                                 "constexpr std::int64_t two(int x) { return std::max(x, B); }\n"
                                 "extern \"C\" __global__ void five(double* x) {\n"
                                 "  static_assert(B + C == 5 && std::is_same_v<std::int64_t, decltype(two(1))>);\n"
                                 "  *x = two(threadIdx.x) * M_PI; }", {"five"}, options);
    return;
  }
  if (command == "options") {  // that may be wrong: the name of the source, an option, a directory
    cuda_ext::CompileOptions options;
    if (operand == "name") options.name = "";
    if (operand[0] == '-') options.options = {operand};
    if (operand[0] == '/') options.include_directories = {operand};
    compiled = cuda_ext::compile("#include \"nowhere.h\"\n", {"five"}, options);
    return;
  }
  if (command == "compiled") return launch(compiled->kernel(operand));
  if (command == "times") {  // in the stream of that number
    const auto stream = reinterpret_cast<CUstream_st*>(static_cast<std::uintptr_t>(std::atoi(operand.c_str())));
    return compiled->kernel("times<float>").launch({1, 32, stream}, 32, &command, 2.0f);
  }
  if (command == "mistaken") return compiled->kernel("times<float>").launch({1, 32}, 32L, &command, 2.0f);
  if (command == "few") return compiled->kernel("times<float>").launch({1, 32}, 32);
  if (command == "unload") return compiled.reset();
  if (command == "directories") {
    for (const std::string& directory : cuda_ext::toolkit_directories()) print(directory);
    return;
  }
  if (command == "all") {
    for (const cuda_ext::KernelData& kernel : library.data().kernels) {
      launch(library.kernel(kernel.expression));
    }
    return;
  }
  if (command == "symbol") return print(std::to_string(library.symbol(operand).size) + " bytes");
  if (command == "same") {
    const auto handle = library.kernel(operand).handle();
    return print(handle == library.kernel(operand).handle() ? "the same" : "another");
  }
  if (command == "context") {  // make that of a GPU current
    cuda_ext::Driver& driver = **cuda_ext::open_driver();
    driver.call.set_current_context(*driver.primary_context(std::atoi(operand.c_str())));
    return;
  }
  if (command == "threads") {  // all want the same
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++) threads.emplace_back(run, operand);
    for (std::thread& thread : threads) thread.join();
    return;
  }
  if (command == "fork") {
    const pid_t child = ::fork();
    if (child == 0) {
      run(operand);
      std::_Exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (status) print("the child ended with " + std::to_string(status));
    return;
  }
  if (command == "opened") {  // whether NVRTC was
    return print(::dlopen("libnvrtc.so.13", RTLD_NOW | RTLD_NOLOAD) ? "yes" : "no");
  }
  print("what is " + command + "?");
}

}  // namespace

int main(int count, char** arguments) {
  for (int i = 1; i < count; i++) run(arguments[i]);
}
