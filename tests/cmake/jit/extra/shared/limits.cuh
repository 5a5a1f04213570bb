#pragma once

constexpr int most_elements = 1 << 30;
