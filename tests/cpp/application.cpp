// Loads the shared objects that are its arguments, all at once, and has each launch.

#include <cuda_ext/interface.hpp>

#include <dlfcn.h>

#include <cstdio>
#include <string>

int main(int count, char** paths) {
  for (int i = 2; i < count; i++) {
    void* plugin = ::dlopen(paths[i],
                            RTLD_NOW | (std::string(paths[1]) == "global" ? RTLD_GLOBAL : RTLD_LOCAL));
    if (!plugin) return std::puts(::dlerror());
    reinterpret_cast<void (*)(int)>(::dlsym(plugin, "launch"))(i);
    try {
      reinterpret_cast<void (*)()>(::dlsym(plugin, "fail"))();
    } catch (const cuda_ext::ArgumentError& error) {
      std::puts(error.what());
    }
  }
}
