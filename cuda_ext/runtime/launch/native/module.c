/* `cuda_ext.runtime.launch._launch`: launches without running Python.
 *
 * Python calls a kernel as an array of arguments, which are checked, converted onto the stack and passed to the driver.
 * Whatever is uncommon or wrong is left to the method `__launch_carefully__`, which knows everything and raises every
 * message; so a function here only returns -1 where it does not know how to go on. Everything works without this
 * module.
 *
 * All parts are one translation unit: the compiler inlines across them, and a launch finds its code close together.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "concurrency.h"     /* locks of free-threaded Python */
#include "integers.h"        /* Python's integers */
#include "names.h"           /* keywords and attributes */
#include "driver.h"          /* the driver: its functions and structures */
#include "dlpack.h"          /* arrays as DLPack describes them */
#include "arrays.h"          /* the arrays of all libraries */
#include "state.h"           /* what all of these share */
#include "structures.h"      /* structures, as arguments */
#include "registration.h"    /* how Python registers types of arrays */
#include "arguments.h"       /* parameters, and the values of arguments */
#include "streams.h"         /* given streams, and those of libraries */
#include "extents.h"         /* shapes and strides of arguments */
#include "hidden.h"          /* parameters that are no arguments */
#include "configuration.h"   /* grid, block, threads, shared memory */
#include "choice.h"          /* which of several variants */
#include "devices.h"         /* what is known of launches on each device */
#include "callable.h"        /* what both types of objects have in common */
#include "brackets.h"        /* what stands behind a kernel in brackets */
#include "launch.h"          /* launching */
#include "launch_type.h"     /* Launch: a kernel, or a bound launch */
#include "overloads.h"       /* Overloads: kernels of one name */
#include "grid_launch.h"     /* GridLaunch: a kernel with a grid */
#include "structure_type.h"  /* Structure and Field: structures, and their members */

static PyObject* connect(PyObject* module, PyObject* arguments) {
  State* state = PyModule_GetState(module);
  Driver d;
  if (!PyArg_ParseTuple(arguments, "iO&O&O&O&O&O&O&O&O&:connect", &d.gpu_count, parse_pointer, &d.launch, parse_pointer,
                        &d.launch_with_attributes, parse_pointer, &d.current_context, parse_pointer, &d.current_device,
                        parse_pointer, &d.context_of_stream, parse_pointer, &d.push_context, parse_pointer,
                        &d.pop_context, parse_pointer, &d.allocate, parse_pointer, &d.release)) {
    return NULL;
  }
  Py_BEGIN_CRITICAL_SECTION(module);
  if (!state->is_connected) {
    state->driver = d;
    STORE(state->is_connected, 1);
  }
  Py_END_CRITICAL_SECTION();
  Py_RETURN_NONE;
}

static PyObject* disconnect(PyObject* module, PyObject* unused) {
  (void)unused;
  STORE(((State*)PyModule_GetState(module))->is_connected, 0);
  Py_RETURN_NONE;
}

static PyMethodDef driver_functions[] = {
    {"connect", connect, METH_VARARGS,
     "connect(gpu_count, cuLaunchKernel, cuLaunchKernelEx, cuCtxGetCurrent, cuCtxGetDevice, cuStreamGetCtx, "
     "cuCtxPushCurrent, cuCtxPopCurrent, cuMemAllocFromPoolAsync, cuMemFreeAsync)\n--\n\n"
     "Launch through these functions, given by their addresses, from now on."},
    {"disconnect", disconnect, METH_NOARGS,
     "disconnect()\n--\n\nLaunch everything carefully from now on: the driver does not survive a fork."},
    {NULL, NULL, 0, NULL},
};

static int add_dtypes(PyObject* module) {
  PyObject* names = PyTuple_New(DTYPE_COUNT);
  if (!names) return -1;
  int outcome = 0;
  for (int i = 0; i < DTYPE_COUNT && !outcome; i++) {
    PyObject* name = PyUnicode_FromString(dtype_names[i]);
    if (name) PyTuple_SET_ITEM(names, i, name);
    outcome = name ? 0 : -1;
  }
  if (!outcome) outcome = PyModule_AddObjectRef(module, "DTYPES", names);
  Py_DECREF(names);
  return outcome;
}

/* Return a new reference to the type, or NULL with an exception. */
static PyTypeObject* add_type(PyObject* module, PyType_Spec* spec) {
  PyTypeObject* type = (PyTypeObject*)PyType_FromModuleAndSpec(module, spec, NULL);
  if (type && PyModule_AddType(module, type)) Py_CLEAR(type);
  return type;
}

static int execute(PyObject* module) {
  State* state = PyModule_GetState(module);
  if (intern_names(&state->names) || add_dtypes(module)) return -1;
  if (PyModule_AddFunctions(module, driver_functions)) return -1;
  if (PyModule_AddFunctions(module, type_functions)) return -1;
  state->types.values = PyDict_New();
  if (!state->types.values || PyModule_AddObjectRef(module, "VALUES", state->types.values)) return -1;
  state->structure_type = add_type(module, &structure_spec);
  if (!state->structure_type) return -1;
  PyTypeObject* field_type = add_type(module, &field_spec);
  Py_XDECREF(field_type);
  if (!field_type) return -1;
  state->launch_type = add_type(module, &launch_spec);
  if (!state->launch_type) return -1;
  state->overloads_type = add_type(module, &overloads_spec);
  if (!state->overloads_type) return -1;
  state->grid_launch_type = add_type(module, &grid_launch_spec);
  return state->grid_launch_type ? 0 : -1;
}

static int traverse(PyObject* module, visitproc visit, void* arg) {
  State* state = PyModule_GetState(module);
  Py_VISIT(state->launch_type);
  Py_VISIT(state->overloads_type);
  Py_VISIT(state->grid_launch_type);
  Py_VISIT(state->structure_type);
  return visit_types(&state->types, visit, arg);
}

static int clear(PyObject* module) {
  clear_types(&((State*)PyModule_GetState(module))->types);
  return 0;
}

/* Objects keep the module, so nothing launches any more; after clear(), something still may. */
static void release(void* module) {
  State* state = PyModule_GetState(module);
  clear_types(&state->types);
  Py_CLEAR(state->types.values);
  Py_CLEAR(state->launch_type);
  Py_CLEAR(state->overloads_type);
  Py_CLEAR(state->grid_launch_type);
  Py_CLEAR(state->structure_type);
  clear_names(&state->names);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, execute},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "cuda_ext.runtime.launch._launch",
    .m_doc = "Launches without running Python.",
    .m_size = sizeof(State),
    .m_slots = slots,
    .m_traverse = traverse,
    .m_clear = clear,
    .m_free = release,
};

PyMODINIT_FUNC PyInit__launch(void) {
  return PyModuleDef_Init(&module_definition);
}
