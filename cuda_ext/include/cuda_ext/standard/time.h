#include "ctime"
