/* `Structure`, the base of the classes of structures, and `Field`, a member, as an attribute of such a class.
 *
 * A field converts common values in C, and leaves all others, and every message, to the method `__assign__`.
 */
#ifndef CUDA_EXT_STRUCTURE_TYPE_H
#define CUDA_EXT_STRUCTURE_TYPE_H

#include <stddef.h>

#include "arguments.h"
#include "callable.h"

enum { MOST_FIELD_BYTES = 16 }; /* of a value that C converts */

typedef struct Field {
  PyObject_HEAD
  PyObject* module; /* keeps `state` */
  State* state;
  PyObject* name;
  Parameter parameter; /* whose offset is that in the structure */
  int reference;       /* the number of a pointer's reference, or of the first of a structure; -1 for others */
  int is_careful;      /* whether C converts no value */
} Field;

/* Structure */

static int read_number(PyTypeObject* type, PyObject* name, int most, int* number) {
  PyObject* value = PyObject_GetAttr((PyObject*)type, name);
  if (!value) return -1;
  const long found = PyLong_AsLong(value);
  Py_DECREF(value);
  if (PyErr_Occurred()) return -1;
  if (found < 0 || found > most) {
    PyErr_Format(PyExc_ValueError, "invalid %U of %s", name, type->tp_name);
    return -1;
  }
  *number = (int)found;
  return 0;
}

/* Assign the member `name`: in C, or carefully if that does not suffice. */
static int assign(PyObject* self, PyObject* name, PyObject* value, const Names* names) {
  PyObject* result = PyObject_CallMethodObjArgs(self, names->assign, name, value, NULL);
  Py_XDECREF(result);
  return result ? 0 : -1;
}

static int set_member(PyObject* self, PyObject* name, PyObject* value) {
  if (!PyObject_GenericSetAttr(self, name, value)) return 0;
  if (!value || !PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
  PyObject* module = PyType_GetModuleByDef(Py_TYPE(self), &module_definition);
  if (!module) return -1;
  PyErr_Clear();
  return assign(self, name, value, &((State*)PyModule_GetState(module))->names);
}

static PyObject* refuse_positions(PyTypeObject* type) {
  return PyErr_Format(PyExc_TypeError, "%s takes its members by name, as in %s(n=1)", type->tp_name, type->tp_name);
}

/* A structure whose bytes are 0. */
static Structure* allocate_structure(PyTypeObject* type) {
  enum { ALIGNMENT = 16, MOST = 1 << 15 };
  PyObject* module = PyType_GetModuleByDef(type, &module_definition);
  if (!module) return NULL;
  const Names* names = &((State*)PyModule_GetState(module))->names;
  int size, count;
  if (read_number(type, names->size, MOST, &size) || read_number(type, names->references, MOST, &count)) return NULL;
  const Py_ssize_t behind = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  Structure* structure = (Structure*)type->tp_alloc(type, behind + count * (Py_ssize_t)sizeof(Reference) + ALIGNMENT);
  if (!structure) return NULL;
  const uintptr_t start = (uintptr_t)structure + sizeof *structure;
  structure->bytes = (unsigned char*)((start + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
  structure->references = (Reference*)(structure->bytes + behind);
  structure->size = size;
  structure->reference_count = count;
  return structure;
}

/* A structure whose bytes are 0, but for those of the members that the keywords give. */
static PyObject* new_structure(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  if (PyTuple_GET_SIZE(arguments)) return refuse_positions(type);
  PyObject* structure = (PyObject*)allocate_structure(type);
  PyObject *name, *value;
  for (Py_ssize_t i = 0; structure && keywords && PyDict_Next(keywords, &i, &name, &value);) {
    if (PyObject_SetAttr(structure, name, value)) Py_CLEAR(structure);
  }
  return structure;
}

static int set_field(PyObject* self, PyObject* object, PyObject* value);

/* The field of `fields` called `name`, which the search at `*at` finds at once if names come in their order, and moves
 * behind it; NULL if none is. */
static PyObject* next_field(PyObject* fields, Py_ssize_t* at, PyObject* name) {
  const Py_ssize_t count = PyTuple_GET_SIZE(fields);
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* field = PyTuple_GET_ITEM(fields, *at);
    *at = *at + 1 == count ? 0 : *at + 1;
    if (Py_TYPE(field)->tp_descr_set == set_field && ((Field*)field)->name == name) return field;
  }
  return NULL;
}

/* A structure as new_structure makes it, without a dictionary of the keywords. */
static PyObject* make_structure(PyObject* type, PyObject* const* values, size_t flags, PyObject* names) {
  if (PyVectorcall_NARGS(flags)) return refuse_positions((PyTypeObject*)type);
  PyObject* fields = PyObject_GetAttrString(type, "__fields__");
  PyObject* structure = fields && PyTuple_Check(fields) ? (PyObject*)allocate_structure((PyTypeObject*)type) : NULL;
  Py_ssize_t at = 0;
  for (Py_ssize_t i = 0; structure && names && i < PyTuple_GET_SIZE(names); i++) {
    PyObject* name = PyTuple_GET_ITEM(names, i);
    PyObject* field = next_field(fields, &at, name);
    if (field ? set_field(field, structure, values[i]) : PyObject_SetAttr(structure, name, values[i])) {
      Py_CLEAR(structure);
    }
  }
  Py_XDECREF(fields);
  return structure;
}

/* Let calls of the class run make_structure; subclasses do not inherit that. */
static PyObject* call_directly(PyObject* type, PyObject* fields) {
  if (!PyTuple_CheckExact(fields)) return PyErr_Format(PyExc_TypeError, "expected a tuple, found %R", fields);
  if (PyObject_SetAttrString(type, "__fields__", fields)) return NULL;
  ((PyTypeObject*)type)->tp_vectorcall = make_structure;
  Py_RETURN_NONE;
}

/* The member of `self` that is a structure of the class `type`, at this offset and with references from this one on. */
static PyObject* view_structure(PyObject* self, PyObject* arguments) {
  Structure* outer = (Structure*)self;
  PyTypeObject* type;
  int offset, reference, size, count;
  if (!PyArg_ParseTuple(arguments, "O!ii:__view__", &PyType_Type, &type, &offset, &reference)) return NULL;
  PyObject* module = PyType_GetModuleByDef(type, &module_definition);
  if (!module) return NULL;
  const Names* names = &((State*)PyModule_GetState(module))->names;
  if (read_number(type, names->size, outer->size, &size) ||
      read_number(type, names->references, outer->reference_count, &count)) {
    return NULL;
  }
  if (offset < 0 || offset > outer->size - size || reference < 0 || reference > outer->reference_count - count) {
    PyErr_SetString(PyExc_ValueError, "the member is not within the structure");
    return NULL;
  }
  Structure* structure = (Structure*)type->tp_alloc(type, 0);
  if (!structure) return NULL;
  structure->owner = Py_NewRef(owner_of(outer));
  structure->bytes = outer->bytes + offset;
  structure->references = outer->references + reference;
  structure->size = size;
  structure->reference_count = count;
  return (PyObject*)structure;
}

/* Replace a reference, and return its former object. */
static PyObject* exchange(Reference* reference, Reference other) {
  PyObject* former = reference->object;
  *reference = other;
  Py_XINCREF(other.object);
  return former;
}

static PyObject* write_structure(PyObject* self, PyObject* arguments) {
  Structure* structure = (Structure*)self;
  int offset;
  Py_buffer data;
  if (!PyArg_ParseTuple(arguments, "iy*:__write__", &offset, &data)) return NULL;
  const int fits = offset >= 0 && data.len <= structure->size - offset;
  PyObject* owner = owner_of(structure);
  (void)owner;
  Py_BEGIN_CRITICAL_SECTION(owner);
  if (fits) memcpy(structure->bytes + offset, data.buf, (size_t)data.len);
  Py_END_CRITICAL_SECTION();
  PyBuffer_Release(&data);
  if (fits) Py_RETURN_NONE;
  PyErr_SetString(PyExc_ValueError, "the bytes are not within the structure");
  return NULL;
}

static PyObject* refer(PyObject* self, PyObject* arguments) {
  Structure* structure = (Structure*)self;
  int number;
  PyObject *object, *former = NULL;
  if (!PyArg_ParseTuple(arguments, "iO:__refer__", &number, &object)) return NULL;
  if (number < 0 || number >= structure->reference_count) {
    PyErr_SetString(PyExc_IndexError, "the structure has no such pointer");
    return NULL;
  }
  PyObject* module = PyType_GetModuleByDef(Py_TYPE(self), &module_definition);
  if (!module) return NULL;
  const State* state = PyModule_GetState(module);
  Reference other = {NULL, NULL, -1, 0};
  if (PyLong_CheckExact(object)) {
    if (take_unsigned_long_long(object, &other.address)) return PyErr_Format(PyExc_ValueError, "invalid address");
  } else if (object != Py_None) {
    const ArrayType* type = find_array_type(&state->types, object);
    Memory memory;
    other.object = object;
    if (type && !type->read(&state->names, type, object, &memory)) {
      other.type = type;
      other.device = memory.device;
    } else if (drop_exception()) { /* launches check it carefully */
      return NULL;
    }
  }
  PyObject* owner = owner_of(structure);
  (void)owner;
  Py_BEGIN_CRITICAL_SECTION(owner);
  former = exchange(&structure->references[number], other);
  Py_END_CRITICAL_SECTION();
  Py_XDECREF(former);
  Py_RETURN_NONE;
}

static PyObject* content_of_structure(PyObject* self, PyObject* unused) {
  (void)unused;
  Structure* structure = (Structure*)self;
  PyObject* bytes = PyBytes_FromStringAndSize(NULL, structure->size);
  PyObject* objects = PyTuple_New(structure->reference_count);
  if (!bytes || !objects) {
    Py_XDECREF(bytes);
    Py_XDECREF(objects);
    return NULL;
  }
  PyObject* owner = owner_of(structure);
  (void)owner;
  Py_BEGIN_CRITICAL_SECTION(owner);
  memcpy(PyBytes_AS_STRING(bytes), structure->bytes, (size_t)structure->size);
  for (int i = 0; i < structure->reference_count; i++) {
    const Reference* each = &structure->references[i];
    PyObject* address = each->object || !each->address ? NULL : PyLong_FromUnsignedLongLong(each->address);
    PyTuple_SET_ITEM(objects, i, address ? address : Py_NewRef(each->object ? each->object : Py_None));
  }
  Py_END_CRITICAL_SECTION();
  return Py_BuildValue("(NN)", bytes, objects);
}

static PyMethodDef structure_methods[] = {
    {"__call_directly__", call_directly, METH_O | METH_CLASS,
     "__call_directly__(fields)\n--\n\nMake structures of this class, which has these fields, faster."},
    {"__view__", view_structure, METH_VARARGS,
     "__view__(type, offset, reference)\n--\n\nReturn the member of class `type` at this offset."},
    {"__write__", write_structure, METH_VARARGS, "__write__(offset, data)\n--\n\nStore these bytes."},
    {"__refer__", refer, METH_VARARGS,
     "__refer__(number, array)\n--\n\nKeep the array whose address a pointer is, or an address, or None."},
    {"__content__", content_of_structure, METH_NOARGS,
     "__content__()\n--\n\nReturn the bytes, and the array of each pointer, or its address, or None."},
    {NULL, NULL, 0, NULL},
};

static int traverse_structure(PyObject* self, visitproc visit, void* arg) {
  Structure* structure = (Structure*)self;
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(structure->owner);
  for (int i = 0; !structure->owner && i < structure->reference_count; i++) Py_VISIT(structure->references[i].object);
  return 0;
}

static int clear_structure(PyObject* self) {
  Structure* structure = (Structure*)self;
  for (int i = 0; !structure->owner && i < structure->reference_count; i++) Py_CLEAR(structure->references[i].object);
  return 0;
}

static void deallocate_structure(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  clear_structure(self);
  Py_CLEAR(((Structure*)self)->owner);
  type->tp_free(self);
  Py_DECREF(type);
}

static PyType_Slot structure_slots[] = {
    {Py_tp_doc, "Structure(**members)\n--\n\nThe base of classes of structures, whose members are fields."},
    {Py_tp_new, new_structure},
    {Py_tp_setattro, set_member},
    {Py_tp_traverse, traverse_structure},
    {Py_tp_clear, clear_structure},
    {Py_tp_dealloc, deallocate_structure},
    {Py_tp_methods, structure_methods},
    {0, NULL},
};

static PyType_Spec structure_spec = {
    .name = "cuda_ext.runtime.launch._launch.Structure",
    .basicsize = sizeof(Structure),
    .itemsize = 1,
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = structure_slots,
};

/* Field */

static int has_references(const Parameter* parameter) {
  return parameter->kind == POINTER || parameter->structure;
}

static PyObject* new_field(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static char* names[] = {"parameter", "offset", "reference", "is_careful", NULL};
  PyObject* source;
  int offset, reference, is_careful;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!iip:Field", names, &PyTuple_Type, &source, &offset,
                                   &reference, &is_careful)) {
    return NULL;
  }
  PyObject* module = PyType_GetModuleByDef(type, &module_definition);
  if (!module) return NULL;
  State* state = PyModule_GetState(module);
  Parameter parameter;
  PyObject* name;
  if (parse_parameter(state, source, &parameter, &name)) return NULL;
  if (offset < 0 || offset > UINT16_MAX || (reference < 0) != (!has_references(&parameter) || is_careful)) {
    PyErr_SetString(PyExc_ValueError, "invalid field");
    Py_DECREF(name);
    Py_XDECREF(parameter.structure);
    return NULL;
  }
  Field* field = (Field*)type->tp_alloc(type, 0);
  if (!field) {
    Py_DECREF(name);
    Py_XDECREF(parameter.structure);
    return NULL;
  }
  parameter.offset = (uint16_t)offset;
  field->module = Py_NewRef(module);
  field->state = state;
  field->name = name;
  field->parameter = parameter;
  field->reference = reference;
  field->is_careful = is_careful || (parameter.size > MOST_FIELD_BYTES && !parameter.structure);
  return (PyObject*)field;
}

/* Whether `field` lies within `object`, a structure. */
static int is_within(const Field* field, PyObject* object) {
  if (!PyObject_TypeCheck(object, field->state->structure_type)) return 0;
  const Structure* structure = (Structure*)object;
  /* A member without pointers may lie behind the last one. */
  const int least = field->parameter.structure ? 0 : 1;
  return field->parameter.offset + field->parameter.size <= structure->size &&
         field->reference + least <= structure->reference_count;
}

/* Copy `source` to the member of `target` that `field` is. */
static int set_structure(const Field* field, Structure* target, Structure* source) {
  const int count = source->reference_count;
  Reference* references = PyMem_Malloc(((size_t)count + 1) * sizeof *references); /* of the source, then the former ones */
  if (!references) {
    PyErr_NoMemory();
    return -1;
  }
  PyObject *from = owner_of(source), *to = owner_of(target);
  (void)from, (void)to;
  int fits = 0;
  Py_BEGIN_CRITICAL_SECTION2(from, to);
  fits = source->size == field->parameter.size && count <= target->reference_count - field->reference;
  if (fits) memmove(target->bytes + field->parameter.offset, source->bytes, (size_t)source->size);
  for (int i = 0; i < count && fits; i++) {
    references[i].object = exchange(&target->references[field->reference + i], source->references[i]);
  }
  Py_END_CRITICAL_SECTION2();
  for (int i = 0; i < count && fits; i++) Py_XDECREF(references[i].object);
  PyMem_Free(references);
  if (!fits) PyErr_SetString(PyExc_ValueError, "the structure is not as large as the member");
  return fits ? 0 : -1;
}

static int set_field(PyObject* self, PyObject* object, PyObject* value) {
  Field* field = (Field*)self;
  if (!value || !is_within(field, object)) {
    PyErr_Format(PyExc_TypeError, "the member %U cannot be deleted, and belongs to structures", field->name);
    return -1;
  }
  Structure* structure = (Structure*)object;
  if (field->parameter.structure) {
    if (Py_TYPE(value) == field->parameter.structure) return set_structure(field, structure, (Structure*)value);
    return assign(object, field->name, value, &field->state->names);
  }
  unsigned char memory[MOST_FIELD_BYTES];
  Placement placement = {-1, NULL, 0};
  if (field->is_careful || take_argument(field->state, &field->parameter, value, memory, &placement)) {
    if (drop_exception()) return -1;
    return assign(object, field->name, value, &field->state->names);
  }
  PyObject *owner = owner_of(structure), *former = NULL;
  (void)owner;
  Py_BEGIN_CRITICAL_SECTION(owner);
  memcpy(structure->bytes + field->parameter.offset, memory, field->parameter.size);
  if (field->reference >= 0) {
    Reference* reference = &structure->references[field->reference];
    Reference other = {placement.first ? value : NULL, placement.first, placement.device, 0};
    if (!placement.first) memcpy(&other.address, memory, sizeof other.address);
    former = exchange(reference, other);
  }
  Py_END_CRITICAL_SECTION();
  Py_XDECREF(former);
  return 0;
}

static PyObject* get_field(PyObject* self, PyObject* object, PyObject* type) {
  (void)type;
  Field* field = (Field*)self;
  if (!object) return Py_NewRef(self);
  return PyObject_CallMethodObjArgs(object, field->state->names.read, field->name, NULL);
}

static int traverse_field(PyObject* self, visitproc visit, void* arg) {
  Field* field = (Field*)self;
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(field->module);
  Py_VISIT(field->parameter.structure);
  return 0;
}

static void deallocate_field(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  Field* field = (Field*)self;
  PyObject_GC_UnTrack(self);
  Py_XDECREF(field->name);
  Py_XDECREF(field->parameter.structure);
  PyObject* module = field->module;
  type->tp_free(self);
  Py_DECREF(type);
  Py_XDECREF(module);
}

static PyType_Slot field_slots[] = {
    {Py_tp_doc, "Field(parameter, offset, reference, is_careful)\n--\n\nA member of a structure."},
    {Py_tp_new, new_field},
    {Py_tp_descr_get, get_field},
    {Py_tp_descr_set, set_field},
    {Py_tp_traverse, traverse_field},
    {Py_tp_dealloc, deallocate_field},
    {0, NULL},
};

static PyType_Spec field_spec = {
    .name = "cuda_ext.runtime.launch._launch.Field",
    .basicsize = sizeof(Field),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = field_slots,
};

#endif
