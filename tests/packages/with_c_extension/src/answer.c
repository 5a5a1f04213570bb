#include <Python.h>

static PyObject* answer(PyObject* self, PyObject* none) { return PyLong_FromLong(42); }

static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, NULL}, {NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_answer", NULL, -1, methods};

PyMODINIT_FUNC PyInit__answer(void) { return PyModule_Create(&module); }
