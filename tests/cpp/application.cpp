// Loads the shared objects that are its arguments, all at once, has each launch, and closes them again.

#include <cuda_ext/interface.hpp>

#include <dlfcn.h>

#include <cstdio>
#include <string>
#include <vector>

int main(int count, char** paths) {
  std::vector<void*> plugins;
  for (int i = 2; i < count; i++) {
    void* plugin = ::dlopen(paths[i],
                            RTLD_NOW | (std::string(paths[1]) == "global" ? RTLD_GLOBAL : RTLD_LOCAL));
    if (!plugin) return std::puts(::dlerror());
    plugins.push_back(plugin);
    reinterpret_cast<void (*)(int)>(::dlsym(plugin, "launch"))(i);
    try {
      reinterpret_cast<void (*)()>(::dlsym(plugin, "fail"))();
    } catch (const cuda_ext::ArgumentError& error) {
      std::puts(error.what());
    }
  }
  for (void* plugin : plugins) ::dlclose(plugin);
  for (int i = 2; i < count; i++) {
    if (::dlopen(paths[i], RTLD_NOW | RTLD_NOLOAD)) std::printf("%s stays\n", paths[i]);
  }
}
