#include "filters/filters.h"

#include <filters/windowing.h>

std::string filters::try_window() {
  try {
    windowing::window({1, 32}, 0, nullptr);
  } catch (const cuda_ext::Error& error) {
    return std::string("window: ") + error.what();
  }
  return "window: launched";
}
