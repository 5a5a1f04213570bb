/* The last step of a launch, in C: arguments that were checked already, as the driver takes them.
 *
 * Everything works without this module; see cuda_ext/runtime/launch/submission.py, which says what it does. Both
 * functions take an entry, bytes that hold the address of the driver's function and then a letter of Python's
 * `struct` for each argument, and return the driver's status, or -1 if something does not fit and nothing was
 * launched. The arguments lie on this thread's stack, so that nothing is shared while the interpreter is released.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { MOST = 256 };

typedef struct Config Config;
typedef int Launch(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** arguments, void** extra);
typedef int LaunchConfigured(const Config* config, void* function, void** arguments, void** extra);

/* Of one launch: the driver's function, and memory for each argument. */
typedef struct Call {
  void* entry;
  void* arguments[MOST];
  uint64_t values[MOST];
} Call;

static int out_of_range(void) {
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_OverflowError, "out of range");
  return -1;
}

static int take_signed(PyObject* object, int bytes, uint64_t* value) {
  const long long number = PyLong_AsLongLong(object);
  const int bits = 8 * bytes;
  if (number == -1 && PyErr_Occurred()) return -1;
  if (bits < 64 && (number < -(1LL << (bits - 1)) || number >= 1LL << (bits - 1))) return out_of_range();
  *value = (uint64_t)number;
  return 0;
}

static int take_unsigned(PyObject* object, int bytes, uint64_t* value) {
  const unsigned long long number = PyLong_AsUnsignedLongLong(object);
  if (number == (unsigned long long)-1 && PyErr_Occurred()) return -1;
  if (bytes < 8 && number >> (8 * bytes)) return out_of_range();
  *value = number;
  return 0;
}

/* Little-endian, as every machine with a GPU is: the lowest bytes come first. */
static int take(char letter, PyObject* object, uint64_t* value, void** address) {
  *address = value;
  switch (letter) {
    case 'b': return take_signed(object, 1, value);
    case 'h': return take_signed(object, 2, value);
    case 'i': return take_signed(object, 4, value);
    case 'q': return take_signed(object, 8, value);
    case 'B': return take_unsigned(object, 1, value);
    case 'H': return take_unsigned(object, 2, value);
    case 'I': return take_unsigned(object, 4, value);
    case 'Q': return take_unsigned(object, 8, value);
    case 'f':
    case 'd': {
      const double number = PyFloat_AsDouble(object);
      if (number == -1 && PyErr_Occurred()) return -1;
      if (letter == 'd') {
        memcpy(value, &number, sizeof number);
        return 0;
      }
      const float single = (float)number;
      if (isinf(single) && !isinf(number)) return out_of_range();
      memcpy(value, &single, sizeof single);
      return 0;
    }
    case 's':
      *address = PyBytes_AsString(object);
      return *address ? 0 : -1;
  }
  PyErr_Format(PyExc_SystemError, "no letter of an argument: %c", letter);
  return -1;
}

/* The arguments behind the first `fixed` ones. */
static int begin(Call* call, PyObject* const* objects, Py_ssize_t count, Py_ssize_t fixed) {
  char* entry;
  Py_ssize_t size;
  if (count < fixed || PyBytes_AsStringAndSize(objects[0], &entry, &size)) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "too few arguments");
    return -1;
  }
  const Py_ssize_t letters = size - (Py_ssize_t)sizeof call->entry;
  if (letters != count - fixed || letters > MOST) {
    PyErr_SetString(PyExc_TypeError, "another number of arguments than letters");
    return -1;
  }
  memcpy(&call->entry, entry, sizeof call->entry);
  entry += sizeof call->entry;
  for (Py_ssize_t i = 0; i < letters; i++) {
    if (take(entry[i], objects[fixed + i], &call->values[i], &call->arguments[i])) return -1;
  }
  return 0;
}

/* Not an error: whoever asked tries again with care, and finds out what is wrong. */
static PyObject* nothing(void) {
  PyErr_Clear();
  return PyLong_FromLong(-1);
}

static PyObject* launch(PyObject* module, PyObject* const* objects, Py_ssize_t count) {
  (void)module;
  enum { FIXED = 10 };
  Call call;
  uint64_t numbers[FIXED] = {0};
  if (begin(&call, objects, count, FIXED)) return nothing();
  for (int i = 1; i < FIXED; i++) {
    const int bytes = i == 1 || i == FIXED - 1 ? 8 : 4;
    if (take_unsigned(objects[i], bytes, &numbers[i])) return nothing();
  }
  const uint64_t* at = numbers + 2;
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = ((Launch*)call.entry)((void*)(uintptr_t)numbers[1], (unsigned)at[0], (unsigned)at[1], (unsigned)at[2],
                                 (unsigned)at[3], (unsigned)at[4], (unsigned)at[5], (unsigned)at[6],
                                 (void*)(uintptr_t)at[7], call.arguments, NULL);
  Py_END_ALLOW_THREADS;
  return PyLong_FromLong(status);
}

static PyObject* launch_configured(PyObject* module, PyObject* const* objects, Py_ssize_t count) {
  (void)module;
  enum { FIXED = 3 };
  Call call;
  uint64_t function, config;
  if (begin(&call, objects, count, FIXED)) return nothing();
  if (take_unsigned(objects[1], 8, &function) || take_unsigned(objects[2], 8, &config)) return nothing();
  int status;
  Py_BEGIN_ALLOW_THREADS;
  status = ((LaunchConfigured*)call.entry)((const Config*)(uintptr_t)config, (void*)(uintptr_t)function,
                                           call.arguments, NULL);
  Py_END_ALLOW_THREADS;
  return PyLong_FromLong(status);
}

static PyMethodDef methods[] = {
    {"launch", (PyCFunction)(void (*)(void))launch, METH_FASTCALL,
     "launch(entry, function, gx, gy, gz, bx, by, bz, shared, stream, *arguments)"},
    {"launch_configured", (PyCFunction)(void (*)(void))launch_configured, METH_FASTCALL,
     "launch_configured(entry, function, config, *arguments)"},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "cuda_ext.runtime.launch._launch",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__launch(void) {
  return PyModuleDef_Init(&definition);
}
