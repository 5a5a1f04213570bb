#pragma once

#include <string>

namespace filters {

// What comes of launching a kernel of this library on nothing: its name, then "launched" or why not.
[[gnu::visibility("default")]] std::string try_window();

}  // namespace filters
