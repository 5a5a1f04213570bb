#pragma once

#define OPERATION(a, b) ((a) + (b))
#define NEUTRAL 0
