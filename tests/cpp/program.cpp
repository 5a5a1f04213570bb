// Does what its arguments say, one after the other, and prints what came of each, in a line.

#include "sample.h"

#include <cuda_ext/loader/driver.hpp>
#include <cuda_ext/loader/loaded_images.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace ns {
struct Particle {
  float x, y, z;
};
enum class Mode { slow, fast };
}  // namespace ns

namespace kernels = sample::kernels;

// How many more allocations succeed; all, if it is negative.
static thread_local long allocations = -1;

void* operator new(std::size_t size) {
  if (allocations == 0) throw std::bad_alloc();
  if (allocations > 0) allocations--;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

// What projects write: a class that is visible, with members of ours.
class Solver {
 public:
  explicit Solver(cuda_ext::Library library)
      : library_(std::move(library)), kernel_(library_.kernel("plain")) {}

  void run() const { kernel_.launch(config_); }

 private:
  cuda_ext::Library library_;
  cuda_ext::Kernel kernel_;
  cuda_ext::LaunchConfig config_{1, 1};
};

struct Wide {
  std::uint64_t low, high;
};
template <>
inline constexpr const char* cuda_ext::device_name<Wide> = "__int128";

struct Extents {
  unsigned x, y, z;
};

static std::string name_of(const cuda_ext::Error& error) {
#define CLASS(name) \
  if (dynamic_cast<const cuda_ext::name*>(&error)) return #name
  // The most derived first.
  CLASS(ArgumentError);
  CLASS(KernelNotFoundError);
  CLASS(NoDriverError);
  CLASS(DriverTooOldError);
  CLASS(NoDeviceError);
  CLASS(LaunchError);
  CLASS(NoImageError);
  CLASS(PtxTooNewError);
  CLASS(LoadError);
  CLASS(DriverCallError);
  CLASS(DriverError);
  return "Error";
}

// A template with arguments that are spelled so.
struct Template {
  static constexpr char name[] = "k";
};
template <int which>
struct SpelledArgument {
  static constexpr cuda_ext::TypeText text() noexcept {
    return which == 0 ? cuda_ext::TypeText("x::__y<a::b>")
           : which == 1 ? cuda_ext::TypeText("x::__1::z")
                        : cuda_ext::TypeText("x::__y");
  }
};

template <class T>
static T* address(std::uintptr_t number) {
  return reinterpret_cast<T*>(number);
}

static cuda_ext::LaunchConfig in_stream(int number) {
  return {1, 1, address<CUstream_st>(static_cast<std::uintptr_t>(number))};
}

// Calls `function` with memory for no allocation, for one, and so on, until it has enough. Returns how often
// it did not have enough.
template <class Function>
static int count_failed_allocations(const Function& function) {
  for (int count = 0;; count++) {
    allocations = count;
    const auto result = function();
    allocations = -1;
    if (result.ok() || result.error().kind != cuda_ext::ErrorKind::out_of_memory) return count;
    if (std::strcmp(result.error().message, "out of host memory")) std::abort();
  }
}

// Prints a line, whatever is in `text`.
static void print(std::string text) {
  for (char& letter : text) letter = letter == '\n' ? '|' : letter;
  std::puts(text.c_str());
  std::fflush(stdout);
}

static void perform(const std::string& command, const std::string& operand);

static void run(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::string operand = colon == std::string::npos ? "" : text.substr(colon + 1);
  try {
    perform(text.substr(0, colon), operand);
  } catch (const cuda_ext::DriverError& error) {
    print(name_of(error) + " " + std::to_string(error.code()) + ": " + error.what());
  } catch (const cuda_ext::Error& error) {
    print(name_of(error) + ": " + error.what());
  }
}

static void perform(const std::string& command, const std::string& operand) {
  const int number = std::atoi(operand.c_str());
  if (command == "plain") return kernels::plain({1, 1});
  if (command == "gemm") return kernels::gemm({1, 1});
  if (command == "later") return kernels::later({1, 1});
  if (command == "small") return kernels::small({1, 1});
  if (command == "separate") return kernels::separate({1, 1});
  if (command == "axpy")
    return kernels::axpy<float>({{2, 3}, 4}, 5, 2.0f, address<float>(16), address<float>(32));
  if (command == "axpy_double") return kernels::axpy<double>({1, 1}, 'n', 0.5f, nullptr, address<double>(8));
  if (command == "ov_int") return kernels::ov({1, 1}, short{-1});
  if (command == "ov_float") return kernels::ov({1, 1}, 1.0f, address<int>(64));
  if (command == "move") {
    const Wide wide{7, 8};
    const ns::Particle origin{1, 2, 3};
    return kernels::ns::move<ns::Particle, 4>({1, 1}, address<ns::Particle>(16), origin, ns::Mode::fast, true,
                                              wide);
  }
  if (command == "extents") return kernels::plain({Extents{4, 5, 6}, {7, 8, 9}, nullptr, 11});
  if (command == "stream") return kernels::plain(in_stream(number));
  if (command == "grid") return kernels::plain({number, 1});
  if (command == "huge_grid") return kernels::plain({1ULL << 40, 1});
  if (command == "block") return kernels::plain({1, {number, 2}});
  if (command == "narrow") return kernels::narrow({1, number});
  if (command == "shared") return kernels::plain({1, 1, nullptr, static_cast<std::size_t>(number)});
  if (command == "tiled") return kernels::tiled({1, 1, nullptr, static_cast<std::size_t>(number)});
  if (command == "cluster") return kernels::plain({32, 1, nullptr, 0, number});
  if (command == "flat_cluster") return kernels::plain({{2, 4}, 1, nullptr, 0, {2, 0, 1}});
  if (command == "dependent") return kernels::plain({1, 1, nullptr, 0, {0, 0, 0}, false, true});
  if (command == "cooperative") return kernels::plain({number, 1024, nullptr, 0, {0, 0, 0}, true});
  if (command == "everything") return kernels::plain({{4, 2}, 8, nullptr, 60000, {2, 1, 1}, true, true});
  if (command == "named") return kernels::cuda_ext_library().kernel(operand).launch({1, 1});
  if (command == "named_axpy") {
    const cuda_ext::Kernel axpy = kernels::cuda_ext_library().kernel("axpy< float >");
    return axpy.launch({1, 1}, 5, 2.0f, nullptr, address<float>(32));
  }
  if (command == "too_few") return kernels::cuda_ext_library().kernel("axpy<float>").launch({1, 1}, 5);
  if (command == "none_taken") return kernels::cuda_ext_library().kernel("plain").launch({1, 1}, 5, 6);
  if (command == "too_wide") return kernels::cuda_ext_library().kernel("ov(int)").launch({1, 1}, 5LL);
  if (command == "raw") {
    int n = 3;
    void* arguments[] = {&n};
    return decltype(kernels::ov)::Chosen<int>::kernel().launch_raw({1, 1}, arguments);
  }
  if (command == "wide") {
    return kernels::axpy<float>({1, 1}, std::atoll(operand.c_str()), 2.0f, nullptr, nullptr);
  }
  if (command == "unsigned") {
    return kernels::axpy<float>({1, 1}, std::strtoull(operand.c_str(), nullptr, 10), 2.0f, nullptr, nullptr);
  }
  if (command == "threads") return kernels::plain(cuda_ext::threads(std::atoll(operand.c_str())));
  if (command == "threads_in") {
    cuda_ext::LaunchConfig config = cuda_ext::threads(number);
    config.block = 32;
    return kernels::plain(config);
  }
  if (command == "launch_attribute") {
    const cuda_ext::LaunchAttribute attribute(number, 1);
    cuda_ext::LaunchConfig config{1, 1};
    config.attributes = {&attribute, 1};
    return kernels::plain(config);
  }
  if (command == "prepare") {
    return kernels::tiled.kernel().prepare({1, 1, nullptr, static_cast<std::size_t>(number)});
  }
  if (command == "set_shared") return kernels::tiled.kernel().set_attribute(8, number);
  if (command == "without_memory") {
    const cuda_ext::Library& library = kernels::cuda_ext_library();
    const cuda_ext::Kernel plain = kernels::plain.kernel();
    std::string counts;
    const auto count = [&](const auto& function) {
      counts += (count_failed_allocations(function) ? " some" : " none");
    };
    count([&] { return kernels::plain.try_launch({1, 1}); });
    count([&] { return kernels::plain.try_launch({1, 1}); });
    count([&] { return kernels::gemm.kernel().try_handle(); });
    count([&] { return library.try_load(); });
    count([&] { return kernels::plain.try_launch({0, 1}); });
    count([&] {
      return kernels::axpy<float>.try_launch({1, 1}, (1LL << 40) + number, 2.0f, nullptr, nullptr);
    });
    count([&] { return plain.try_launch({1, 1}, 5, 6); });
    count([&] { return plain.try_prepare({{1, 1, 100000}, 1}); });
    count([&] { return plain.try_attribute(99); });
    count([&] { return library.try_kernel("a name that no kernel of this module has"); });
    count([&] { return library.try_symbol("a name that no variable of this module has"); });
    allocations = 0;
    try {
      kernels::plain({0, 1});
    } catch (const std::bad_alloc&) {
      allocations = -1;
      counts += " thrown";
    }
    return print(counts.substr(1));
  }
  if (command == "load") return kernels::cuda_ext_library().load();
  if (command == "occupancy") {
    const cuda_ext::Kernel plain = kernels::plain.kernel();
    const cuda_ext::Attributes attributes = plain.attributes();
    print(std::to_string(attributes.registers) + " registers, " + std::to_string(attributes.most_threads) +
          " threads");
    const int blocks = plain.blocks_per_multiprocessor(number);
    return print(std::to_string(plain.best_block()) + ": " + std::to_string(blocks) + " blocks of " +
                 operand);
  }
  if (command == "weights") {
    float values[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    kernels::weights.copy_from(values);
    std::vector<float> copied(9);
    kernels::weights.copy_to(copied.data());
    return print(std::to_string(static_cast<int>(copied[0])) + " " +
                 std::to_string(static_cast<int>(copied[1])) + " " +
                 std::to_string(static_cast<int>(copied[8])));
  }
  if (command == "weights_in") {  // of a stream, and those on the GPU of the current context
    const float values[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    const auto stream = address<CUstream_st>(static_cast<std::uintptr_t>(number));
    kernels::weights.copy_from(values, stream);
    float copied[9] = {};
    float here[9] = {};
    kernels::weights.copy_to(copied, stream);
    kernels::weights.copy_to(here);
    return print(std::to_string(static_cast<int>(copied[8])) + " " +
                 std::to_string(static_cast<int>(here[8])));
  }
  if (command == "attribute") {
    return print(std::to_string(kernels::tiled.kernel().attribute(number)));
  }
  if (command == "handle") {
    const cuda_ext::Kernel named = kernels::cuda_ext_library().kernel("plain");
    return print(kernels::plain.kernel().handle() == named.handle() ? "the same" : "another");
  }
  if (command == "symbol") {
    const cuda_ext::Symbol symbol = kernels::cuda_ext_library().symbol(operand);
    return print(std::to_string(symbol.size) + " bytes" + (symbol.address ? "" : " nowhere"));
  }
  if (command == "expression") {
    const cuda_ext::NameExpression<Template, SpelledArgument<0>, SpelledArgument<1>, SpelledArgument<2>> made;
    const cuda_ext::Text text = made;
    return print({text.data, text.size});
  }
  if (command == "empty") {  // nothing is held, without an initializer and after a move
    cuda_ext::Kernel kernel = kernels::plain.kernel();
    const cuda_ext::Kernel moved = std::move(kernel);
    const cuda_ext::Library library;
    void* arguments[] = {nullptr};
    auto counted = [empty = 0](const auto& result) mutable {
      return empty += !result && result.error().kind == cuda_ext::ErrorKind::argument;
    };
    counted(kernel.try_launch({1, 1}));
    counted(kernel.try_launch_raw({1, 1}, arguments));
    counted(kernel.try_prepare({1, 1}));
    counted(kernel.try_handle());
    counted(kernel.try_attribute(0));
    counted(kernel.try_attributes());
    counted(kernel.try_set_attribute(8, 1));
    counted(kernel.try_blocks_per_multiprocessor(32));
    counted(kernel.try_best_block());
    counted(library.try_kernel("plain"));
    counted(library.try_symbol("weights"));
    counted(library.try_load());
    counted(library.try_copy_from("weights", arguments));
    print(std::to_string(counted(moved.try_launch({1, 1}))) + (library.gpu_available() ? " and a GPU" : ""));
    return kernel.launch_raw({1, 1}, arguments);
  }
  if (command == "nameless") return kernels::cuda_ext_library().kernel(nullptr).launch({1, 1});
  if (command == "constant") {  // results
    const auto plain = kernels::cuda_ext_library().try_kernel("plain");
    const auto symbol = kernels::cuda_ext_library().try_symbol("weights");
    (*plain).launch({1, 1});
    return print(plain.value().data().expression + std::string(" ") + std::to_string(symbol->size));
  }
  if (command == "available") return print(kernels::cuda_ext_library().gpu_available() ? "yes" : "no");
  if (command == "solver") {
    Solver solver{cuda_ext::Library(kernels::cuda_ext_module)};
    const Solver moved = std::move(solver);
    return moved.run();
  }
  if (command == "orphan") {  // a kernel that outlives its library
    cuda_ext::Kernel kernel;
    kernel = cuda_ext::Library(kernels::cuda_ext_module).kernel("plain");
    kernel.launch({1, 1});
    return kernel.launch({1, 1});
  }
  if (command == "context") {  // make that of a GPU current
    cuda_ext::Driver& driver = **cuda_ext::open_driver();
    driver.call.set_current_context(*driver.primary_context(number));
    return;
  }
  if (command == "raise_limit") {  // as a project may do itself
    cuda_ext::Driver& driver = **cuda_ext::open_driver();
    driver.call.set_kernel_attribute(cuda_ext::driver_api::KernelAttribute::dynamic_shared_memory, number,
                                     kernels::tiled.kernel().handle(), 0);
    return;
  }
  if (command == "set") {
    const std::size_t equals = operand.find('=');
    ::setenv(operand.substr(0, equals).c_str(), operand.substr(equals + 1).c_str(), 1);
    return;
  }
  if (command == "thread") {
    std::thread(run, operand).join();
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
  if (command == "fork_while_opening") {  // another thread of the parent is in the middle of it
    const std::lock_guard<std::mutex> lock(cuda_ext::opening);
    cuda_ext::opening_process = cuda_ext::current_process();
    return perform("fork", operand);
  }
  print("what is " + command + "?");
}

int main(int count, char** arguments) {
  for (int i = 1; i < count; i++) run(arguments[i]);
}
