#pragma once

#define OPERATION(a, b) ((a) > (b) ? (a) : (b))
#define NEUTRAL (-2147483647 - 1)
