#pragma once

#include <vendor/compare.h>
