// Compiles a kernel that is made at run time, and each source of the module, with the headers that the module holds.
// The arguments are the path of NVRTC, and a directory with CUDA's own headers.

#include <app/kernels.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <dlfcn.h>

namespace {

struct Program;

// NVRTC, from the file whose path is given: what of its header is used here.
struct Nvrtc {
  explicit Nvrtc(const char* path) : library(dlopen(path, RTLD_NOW)) {
    if (!library) {
      std::fprintf(stderr, "%s\n", dlerror());
      std::exit(1);
    }
    find(create_program, "nvrtcCreateProgram");
    find(add_name_expression, "nvrtcAddNameExpression");
    find(compile_program, "nvrtcCompileProgram");
    find(get_lowered_name, "nvrtcGetLoweredName");
    find(get_log_size, "nvrtcGetProgramLogSize");
    find(get_log, "nvrtcGetProgramLog");
  }

  template <class Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
  }

  void* library;
  int (*create_program)(Program** program, const char* source, const char* name, int count,
                        const char* const* headers, const char* const* names);
  int (*add_name_expression)(Program* program, const char* expression);
  int (*compile_program)(Program* program, int count, const char* const* options);
  int (*get_lowered_name)(Program* program, const char* expression, const char** lowered);
  int (*get_log_size)(Program* program, std::size_t* size);
  int (*get_log)(Program* program, char* log);
};

// Prints the lowered names, or what the compiler says. Programs are left to the end of the process.
bool compile(const Nvrtc& nvrtc, const std::string& cuda, const char* name, const char* source,
             const std::vector<const char*>& expressions) {
  const auto& headers = app::kernels::cuda_ext_module.headers;
  Program* program = nullptr;
  if (nvrtc.create_program(&program, source, name, headers.count, headers.texts, headers.names)) return false;
  for (const char* expression : expressions) nvrtc.add_name_expression(program, expression);
  const std::string include = "--include-path=" + cuda;
  const char* const options[] = {"--gpu-architecture=sm_90", "--std=c++17", include.c_str()};
  if (nvrtc.compile_program(program, 3, options)) {
    std::size_t size = 0;
    nvrtc.get_log_size(program, &size);
    std::string log(size, '\0');
    nvrtc.get_log(program, log.data());
    std::printf("%s does not compile:\n%s\n", name, log.c_str());
    return false;
  }
  for (const char* expression : expressions) {
    const char* lowered = nullptr;
    if (nvrtc.get_lowered_name(program, expression, &lowered)) return false;
    std::printf("%s: %s = %s\n", name, expression, lowered);
  }
  return true;
}

// Includes by the path below an include directory, and by the path within the project.
constexpr const char* made_at_run_time = R"(
#include "ops/unary.cuh"
#include "device/ops/binary.cuh"
#include <shared/limits.cuh>

template <class Op, class T>
__global__ void zip(int n, const T* x, T* y) {
  const int i = thread_index();
  if (n <= most_elements && i < n) y[i] = ops::Negate{}(Op{}(x[i], y[i]));
}
)";

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  const Nvrtc nvrtc(arguments[1]);
  const std::string cuda = arguments[2];
  const auto& module = app::kernels::cuda_ext_module;
  for (int i = 0; i < module.headers.count; i++) std::printf("header %s\n", module.headers.names[i]);

  bool done = compile(nvrtc, cuda, "zip.cu", made_at_run_time,
                      {"zip<ops::Subtract, float>", "zip<ops::Subtract, __half>"});
  for (const auto& source : module.sources) {
    std::vector<const char*> expressions;
    for (const auto& kernel : module.kernels) {
      if (module.units[kernel.unit].sources == std::string(source.name)) expressions.push_back(kernel.expression);
    }
    done = compile(nvrtc, cuda, source.name, source.text, expressions) && done;
  }
  return done ? 0 : 1;
}
