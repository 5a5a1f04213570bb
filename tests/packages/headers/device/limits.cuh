#pragma once

#define LOW -1.0f
#define HIGH 1.0f
